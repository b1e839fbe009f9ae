"""Training information of ONNX: a reader that is not ours runs a step of it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import closedform as cf
from closedform.errors import ExportError
from closedform.exporters import onnx_training_info
from closedform.exporters.onnx_training_info import joined_step
from closedform.language import UpdateRule
from closedform.runtime.onnx_session import open_session
from closedform.training import TrainSession, export
from tests.support.torch_exporter import traced_once

RATE = cf.schedules.linear(1e-2, 0, 10)
RULES = {
    "adamw": cf.optimizers.adamw(RATE, weight_decay=0.1),
    "momentum, clipped": cf.transforms.clip_by_global_norm(cf.optimizers.sgd(RATE, 0.9), 1),
    "averages": cf.transforms.weight_average(cf.optimizers.sgd(RATE), 0.9),
}
GENERATOR = np.random.default_rng(0)
PARAMS = {"w": (3, 2), "b": (2,)}


def variables(model: ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """The variables after the initialization, as a reader of the specification assigns them."""
    (info,) = model.training_info
    initializers = {
        tensor.name: numpy_helper.to_array(tensor)
        for graph in (model.graph, info.algorithm)
        for tensor in graph.initializer
    }
    start = onnx.helper.make_model(info.initialization, opset_imports=model.opset_import)
    names = [output.name for output in info.initialization.output]
    values = dict(zip(names, ReferenceEvaluator(start).run(None, {}), strict=True))
    for binding in info.initialization_binding:
        np.testing.assert_array_equal(initializers[binding.key], values[binding.value])
    return {binding.key: initializers[binding.key] for binding in info.update_binding}


def assign(model: ModelProto, values: dict[str, Any]) -> None:
    """Gives variables other values, as a reader does after a step."""
    for graph in (model.graph, model.training_info[0].algorithm):
        for tensor in graph.initializer:
            if tensor.name in values:
                tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))


def step(model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """One step by ONNX's reference evaluator."""
    joined = joined_step(model)
    onnx.checker.check_model(joined, full_check=True)
    evaluator = ReferenceEvaluator(joined)
    return dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_two_steps_of_a_rule_are_those_of_its_files(
    rule: UpdateRule, inline: bool, tmp_path: Path
) -> None:
    models = cf.to_onnx(rule, tmp_path, params=PARAMS, training_info=True, inline=inline)
    model = onnx.load(tmp_path / "training.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model == models["training"]
    assign(model, {f"param.{n}": GENERATOR.normal(size=s).astype("f") for n, s in PARAMS.items()})
    # Averages begin with the parameters, which are zeros in the file.
    values = variables(models["training"]) | {
        name: array for name, array in numbers(model.graph).items() if name.startswith("param.")
    }
    assert all(np.any(values[f"param.{name}"]) for name in PARAMS)
    session = open_session(models["step"])
    for _ in range(2):
        grads = {f"grad.{n}": GENERATOR.normal(size=s).astype("f") for n, s in PARAMS.items()}
        expected = dict(
            zip(session.outputs, session.raw.run(None, {**values, **grads}), strict=True)
        )
        assign(model, values)
        outputs = step(model, grads)
        values = {b.key: outputs[b.value] for b in model.training_info[0].update_binding}
        assert values.keys() == {name.removeprefix("next.") for name in expected}
        for name, array in values.items():
            # NumPy's and onnxruntime's order of operations differ in the last place.
            np.testing.assert_allclose(array, expected[f"next.{name}"], rtol=1e-6, atol=1e-7)


def numbers(graph: onnx.GraphProto) -> dict[str, np.ndarray[Any, Any]]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


@pytest.mark.parametrize("rule", [RULES["adamw"], RULES["averages"]], ids=["adamw", "averages"])
def test_a_step_of_a_model_is_that_of_a_session(rule: UpdateRule, tmp_path: Path) -> None:
    torch.manual_seed(0)
    # A bias in front of a batch normalisation has a gradient of rounding errors only.
    model = nn.Sequential(
        nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)
    )
    batch = torch.randn(4, 3), torch.randn(4, 2)
    with traced_once(test_a_step_of_a_model_is_that_of_a_session):
        models = export(model, "mse", batch, rule, tmp_path, training_info=True)
    file = onnx.load(tmp_path / "training.onnx")
    onnx.checker.check_model(file, full_check=True)
    assert [value.name for value in file.graph.input] == ["batch.input"]
    assert [value.name for value in file.training_info[0].algorithm.input] == ["batch.target"]
    feeds = {
        "batch.input": batch[0].numpy(),
        "batch.target": batch[1].numpy(),
    }
    values = variables(file)
    session = TrainSession(tmp_path)
    outputs = step(file, feeds)
    result = session.step(tuple(feeds.values()))
    # float32 sums in the order of NumPy and in that of onnxruntime.
    np.testing.assert_allclose(outputs["loss"], result.loss, rtol=1e-6)
    assert outputs["next.step"] == session.t == values["step"] + 1
    following = {
        f"next.{kind}.{name}": array
        for kind, arrays in (
            ("param", session.params),
            ("state", session.states),
            ("buffer", session.buffers),
        )
        for name, array in arrays.items()
    }
    assert following.keys() | {"next.step", "loss", "learning_rate", "output"} == outputs.keys()
    for name, array in following.items():
        np.testing.assert_allclose(outputs[name], array, rtol=2e-5, atol=1e-6)
    # The graph of the model runs without its training information.
    evaluator = ReferenceEvaluator(file)
    (before,) = list(evaluator.run(None, {"batch.input": feeds["batch.input"]}))
    with torch.no_grad():
        expected = model.eval()(batch[0]).numpy()
    np.testing.assert_allclose(np.asarray(before), expected, rtol=1e-5, atol=1e-6)
    (info,) = models["training.onnx"].training_info
    assert [info] == list(file.training_info)


def test_states_above_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(onnx_training_info, "LIMIT", 40)
    with pytest.raises(ExportError, match="must have at most 40 bytes, got 104"):
        cf.to_onnx(RULES["adamw"], tmp_path, params=PARAMS, training_info=True)


def test_sizes_without_numbers_and_schedules_are_refused() -> None:
    with pytest.raises(ExportError, match=r"needs sizes that are numbers, got \('n',\) for 'w'"):
        cf.to_onnx(cf.optimizers.sgd(0.1), params={"w": ("n",)}, training_info=True)
    with pytest.raises(ExportError, match="are options of rules, got a schedule"):
        cf.to_onnx(RATE, training_info=True)  # type: ignore[call-overload]
