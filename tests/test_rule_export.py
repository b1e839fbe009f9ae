"""The files of a model: local functions and groups, in onnxruntime, beside the flat graph."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sympy as sp

import closedform as cf
from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_init, compile_program
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_model import serialize
from closedform.frameworks import cerebras
from closedform.ir.evaluate import evaluate
from closedform.ir.program import flatten
from closedform.language import RANK, Group, UpdateRule, from_param_groups
from closedform.language.groups import assign
from closedform.options import ModelSpec
from closedform.runtime.onnx_session import open_session

SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (7, 4),
    "block.weight": (4, 5),
    "block.bias": (5,),
    "norm.weight": (4,),
    "conv.weight": (4, 2, 3, 2),
    "head.weight": (7, 4),
    "scale": (),
}


def feeds(rule: UpdateRule, groups: list[Group], step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    params = {
        f"param.{name}": np.asarray(rng.normal(size=shape), np.float32)
        for name, shape in SHAPES.items()
    }
    grads = {
        f"grad.{name}": np.asarray(rng.normal(size=shape), np.float32)
        for name, shape in SHAPES.items()
    }
    init = compile_init(ModelSpec(rule, SHAPES, groups))
    wanted = [node.attribute("name") for node in init.inputs]
    start = evaluate(init, {name: params[name] for name in wanted})
    return {**params, **grads, **start, "step": np.asarray(step)}


MATRICES = Group("*", optimizers.muon(0.02), shapes=sp.Ge(RANK, 2))
NO_DECAY = Group(("*.bias", "norm.*", "scale"), changes={"weight_decay": 0})
SLOWER = Group("embed.*", factors={"lr": 0.5})
COSINE = schedules.cosine(1e-2, 0, 100)
MODELS: dict[str, tuple[UpdateRule, list[Group]]] = {
    "adamw": (optimizers.adamw(weight_decay=0.1), []),
    "adamw in groups": (optimizers.adamw(COSINE, weight_decay=0.1), [NO_DECAY, SLOWER]),
    "adafactor": (optimizers.adafactor(), []),
    "muon for matrices": (optimizers.adamw(COSINE, weight_decay=0.1), [MATRICES]),
    "clipped in groups": (
        transforms.clip_by_global_norm(optimizers.adamw(COSINE, weight_decay=0.1), 0.5),
        [NO_DECAY, SLOWER],
    ),
    "skipped": (transforms.skip_nonfinite(optimizers.sgd(0.1, 0.9)), []),
    "momentum": (optimizers.sgd(0.1, 0.9, dampening=0.5), []),
    "lamb": (optimizers.lamb(), []),
    "novograd": (optimizers.novograd(), [Group("scale", optimizers.sgd(0.1))]),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", MODELS)
def test_functions_and_flat_graph_compute_the_same(name: str, tmp_path: Path) -> None:
    rule, groups = MODELS[name]
    models = cf.to_onnx(rule, tmp_path, params=SHAPES, groups=groups, inline=False)
    flat = cf.to_onnx(rule, tmp_path, params=SHAPES, groups=groups)
    assert isinstance(models, dict)
    assert isinstance(flat, dict)
    assert models["step"].functions
    assert not flat["step"].functions
    ports = [[(v.name, v.type) for v in model["step"].graph.input] for model in (models, flat)]
    assert sorted(ports[0], key=str) == sorted(ports[1], key=str)
    feed = feeds(rule, groups, 3)
    results = [
        dict(zip(session.outputs, session.raw.run(None, feed), strict=True))
        for session in (
            open_session(model["step"], is_optimized=optimized)
            for optimized in (False, True)
            for model in (models, flat)
        )
    ]
    expected = evaluate(flatten(compile_program(ModelSpec(rule, SHAPES, groups))), feed)
    assert set(results[0]) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(results[0][key], results[1][key])
        # Sums and products of matrices of a few elements, in another order than NumPy's.
        for result in results:
            np.testing.assert_allclose(result[key], value, rtol=2e-5, atol=2e-6)


def test_calls_are_in_the_order_of_the_model() -> None:
    program = compile_program(ModelSpec(optimizers.adamw(), SHAPES, [NO_DECAY, SLOWER]))
    assert [call.param for call in program.calls] == list(SHAPES)


def test_the_first_group_that_means_a_parameter_has_it() -> None:
    groups = [SLOWER, Group("*", factors={"lr": 3}, shapes=sp.Ge(RANK, 2)), NO_DECAY]
    assignments = assign(optimizers.sgd(1, weight_decay=1), SHAPES, groups)
    rates = {
        name: float(one.rule.hyperparameters["lr"]) for one in assignments for name in one.params
    }
    once = dict.fromkeys(("block.bias", "norm.weight", "scale"), 1.0)
    thrice = dict.fromkeys(("block.weight", "conv.weight", "head.weight"), 3.0)
    assert rates == {"embed.weight": 0.5, **once, **thrice}


def test_functions_are_named_and_shared(tmp_path: Path) -> None:
    rule = optimizers.adamw(weight_decay=0.1)
    models = cf.to_onnx(rule, tmp_path, params=SHAPES, groups=[NO_DECAY, SLOWER], inline=False)
    assert isinstance(models, dict)
    (function,) = models["step"].functions
    assert (function.domain, function.name) == ("closedform", "adamw_0")
    inputs = ["param", "grad", "state.exp_avg", "state.exp_avg_sq"]
    assert list(function.input)[:4] == inputs
    assert list(function.output) == ["next.param", "next.state.exp_avg", "next.state.exp_avg_sq"]
    calls = [node for node in models["step"].graph.node if node.domain == "closedform"]
    assert [node.name for node in calls] == [f"adamw_0/{name}" for name in SHAPES]
    again = cf.to_onnx(rule, tmp_path, params=SHAPES, groups=[NO_DECAY, SLOWER], inline=False)
    assert isinstance(again, dict)
    assert serialize(again["step"]) == serialize(models["step"])


def test_a_large_model_is_a_small_file(tmp_path: Path) -> None:
    sizes = [(160, 160), (160,), (160, 480), (160,)]
    shapes = {f"layers.{i // 4}.part_{i % 4}.weight": sizes[i % 4] for i in range(1000)}
    assert sum(int(np.prod(shape)) for shape in shapes.values()) > 25e6
    cf.to_onnx(optimizers.adamw(), tmp_path, params=shapes)
    assert (tmp_path / "step.onnx").stat().st_size < 3e6
    assert (tmp_path / "init.onnx").stat().st_size < 1e6
    onnx.checker.check_model(onnx.load(tmp_path / "step.onnx"), full_check=True)


def test_param_groups_of_other_systems_become_groups() -> None:
    names = ["embedding.weight", "decoder.linear.weight", "decoder.linear.bias"]
    config = {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 0.5}}
    param_groups = cerebras.configure_param_groups(names, [], config)
    rule = optimizers.adamw(0.5, weight_decay=0.1)
    program = compile_program(
        ModelSpec(rule, dict.fromkeys(names, (3,)), from_param_groups(param_groups, rule))
    )
    feed: dict[str, Any] = {"step": np.asarray(0)}
    for name in names:
        feed |= {f"param.{name}": np.ones(3, np.float32), f"grad.{name}": np.zeros(3, np.float32)}
        feed |= {f"state.{name}.{m}": np.zeros(3, np.float32) for m in rule.states}
    after = evaluate(flatten(program), feed)
    decayed = [float(after[f"next.param.{name}"][0]) for name in names]
    np.testing.assert_allclose(decayed, [1 - 0.25 * 0.1, 1 - 0.5 * 0.1, 1], rtol=1e-7)


BAD: dict[str, tuple[list[Group], str]] = {
    "no parameter": (
        [Group(("*.gain",))],
        "group ['*.gain'] matches no remaining parameter (rule 'adamw'): "
        "a glob matches the whole name, and the first matching group wins",
    ),
    "unknown hyperparameter": (
        [Group("scale", changes={"weight": 3})],
        "'weight' is not a hyperparameter (rule 'adamw'): "
        "it has lr, beta1, beta2, eps, weight_decay",
    ),
    "unknown factor": (
        [Group("scale", factors={"rate": 3})],
        "rule 'adamw' has no hyperparameter 'rate' (group ['scale'], factor of 'rate'): known are "
        "beta1, beta2, eps, lr, weight_decay",
    ),
    "factor of an input": (
        [Group("block.bias", changes={"lr": None}, factors={"lr": 2})],
        "'lr' is an input of the graph, which has no factor here (group ['block.bias'], factor of "
        "'lr'): give it a number or a Schedule",
    ),
    "rule for other shapes": (
        [Group("block.*", optimizers.muon())],
        "the rule is only for shapes with shape.rank >= 2 (rule 'muon', shape [5] of parameter "
        "'block.bias'): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_groups_are_refused(name: str, tmp_path: Path) -> None:
    groups, message = BAD[name]
    with pytest.raises(ClosedFormError) as caught:
        cf.to_onnx(optimizers.adamw(), tmp_path, params=SHAPES, groups=groups)
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_param_groups_without_params_are_refused() -> None:
    with pytest.raises(ClosedFormError) as caught:
        from_param_groups([{"lr": 7}], optimizers.sgd())
    expected = "a param group is a mapping with 'params', got {'lr': 7} (param group 0)"
    assert str(caught.value) == expected


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lr, rule, params = schedules.cosine(1, 0, 100), optimizers.sgd(0.1), {"w": (3,)}
    model, models = cf.to_onnx(lr), cf.to_onnx(rule, params=params)
    assert list(tmp_path.iterdir()) == []
    assert serialize(model) == serialize(cf.to_onnx(lr, "lr.onnx"))
    assert serialize(model) == Path("lr.onnx").read_bytes()
    written = cf.to_onnx(rule, "sgd", params=params)
    assert {name: serialize(m) for name, m in models.items()} == {
        name: serialize(m) for name, m in written.items()
    }


def test_split_files_need_a_folder() -> None:
    with pytest.raises(ClosedFormError, match=r"split is for files, and there is no path .*folder"):
        cf.to_onnx(optimizers.sgd(0.1), params={"w": (3,)}, split=True)
