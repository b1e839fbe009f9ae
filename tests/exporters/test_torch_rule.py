"""Rules as functional torch modules: beside sessions, compiled, exported, and refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import ExportError, SessionError
from closedform.language import GRAD, PARAM, UpdateRule
from closedform.runtime import OptimizerSession

WARMUP = cf.schedules.linear(0, 0.1, 3).then(cf.schedules.cosine(0.1, 0, 10))
RULE = cf.transforms.clip_by_global_norm(cf.optimizers.adamw(lr=WARMUP), 0.5)
SHAPES: dict[str, tuple[int, ...]] = {"layer.w": (2, 3), "b": (3,)}


def draw(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def tensors(seed: int) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in draw(seed).items()}


@pytest.mark.parametrize(
    "rule",
    [RULE, cf.optimizers.prodigy(), cf.optimizers.adafactor()],
    ids=lambda rule: str(rule.name),
)
def test_steps_are_those_of_a_session(rule: UpdateRule) -> None:
    session = OptimizerSession(rule, draw(1), threads=1)
    module = cf.to_torch(rule, params=SHAPES)
    assert list(module.parameters()) == []
    params = tensors(1)
    before = {name: value.clone() for name, value in params.items()}
    states: Any = module.initial_states(params)
    for step in range(3):
        session.step({**draw(10 + step)})
        params, states = module(params, tensors(10 + step), states, torch.tensor(step))
    for name, value in session.params.items():
        np.testing.assert_allclose(params[name], value, rtol=3e-6, atol=1e-6)
    for label, by_name in session.states.items():
        for name, value in by_name.items():
            np.testing.assert_allclose(states[label][name], value, rtol=1e-5, atol=1e-6)
    for name, shared in session.shared.items():
        np.testing.assert_allclose(states["shared"][name], shared, rtol=1e-5)
    assert all(torch.equal(before[name], tensors(1)[name]) for name in SHAPES)


def test_export_and_compile() -> None:
    module = cf.to_torch(RULE, params=SHAPES)
    params, grads = tensors(1), tensors(2)
    arguments = params, grads, module.initial_states(params), torch.tensor(5)
    expected = module(*arguments)
    exported = torch.export.export(module, arguments).module()
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for run in (exported, compiled):
        actual = run(*arguments)
        for name in SHAPES:
            assert torch.equal(actual[0][name], expected[0][name])
            for label in expected[1]:
                assert torch.equal(actual[1][label][name], expected[1][label][name])


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles with g++")
@pytest.mark.filterwarnings("ignore")
def test_aot_inductor(tmp_path: Path) -> None:
    """A package that is compiled ahead of time has the values of the module."""
    from torch import _inductor as inductor

    rate = cf.schedules.linear(0, 0.1, 3).then(cf.schedules.cosine(0.1, 0, 10))
    module = cf.to_torch(cf.optimizers.sgd(rate, momentum=0.9), params={"w": (2, 3)})
    params, grads = {"w": torch.randn(2, 3)}, {"w": torch.randn(2, 3)}
    arguments = (params, grads, module.initial_states(params), torch.tensor(5))
    program = torch.export.export(module, arguments)
    package = inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "step.pt2"))
    after, states = inductor.aoti_load_package(package)(*arguments)
    wanted, states_wanted = module(*arguments)
    assert torch.equal(after["w"], wanted["w"])
    name = "momentum_buffer"
    assert torch.equal(states[name]["w"], states_wanted[name]["w"])


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["adamw", "lion", "adagrad", "radam", "lamb", "prodigy"])
def test_executorch(name: str) -> None:
    """A program of ExecuTorch has the values of the module, from float64 scalars on."""
    exir: Any = pytest.importorskip("executorch.exir")
    runtime: Any = pytest.importorskip("executorch.runtime")
    rule = RULE if name == "adamw" else getattr(cf.optimizers, name)()
    module = cf.to_torch(rule, params=SHAPES)
    states = module.initial_states(tensors(1))
    arguments = (tensors(1), tensors(2), states, torch.tensor(5))
    program = exir.to_edge_transform_and_lower(torch.export.export(module, arguments))
    buffer = program.to_executorch().buffer
    loaded = runtime.Runtime.get().load_program(buffer).load_method("forward")
    results = loaded.execute(torch.utils._pytree.tree_leaves(arguments))
    wanted = torch.utils._pytree.tree_leaves(module(*arguments))
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted, strict=True):
        # Its kernels round powers and square roots as the C library, torch as its own.
        torch.testing.assert_close(result, value, rtol=3e-7, atol=1e-7)


def test_hyperparameters_are_arguments() -> None:
    rule = UpdateRule("descent", PARAM - cf.expr.hyper("lr") * GRAD, {}, {"lr": None})
    module = cf.to_torch(rule, params={"w": (2,)}, dtype="float64")
    ones = {"w": torch.ones(2, dtype=torch.float64)}
    after, states = module(ones, ones, {}, torch.tensor(0), lr=0.25)
    assert after["w"].tolist() == [0.75, 0.75]
    assert states == {}
    with pytest.raises(SessionError) as caught:
        module(ones, ones, {}, torch.tensor(0))
    assert str(caught.value) == "'lr' is missing (rule 'descent')"


REFUSED = (
    (
        lambda: cf.to_torch(
            cf.transforms.skip_nonfinite(cf.optimizers.sgd(0.1)), params={"w": (2,)}
        ),
        "this rule decides whether a step counts",
    ),
    (
        lambda: cf.to_torch(cf.optimizers.sophia(), params={"w": (2,)}),
        "a functional module takes only gradients, and this rule takes 'hessian' (rule 'sophia'): "
        "use closedform.torch.Optimizer",
    ),
    (lambda: cf.to_torch(cf.optimizers.sgd(0.1), params={}), "compiled for parameters, got none"),
    (
        lambda: cf.to_torch(cf.schedules.constant(1), params={"w": (2,)}),  # type: ignore[call-overload]
        "a schedule has no parameters, got params or groups",
    ),
)


@pytest.mark.parametrize(("action", "message"), REFUSED, ids=[m[:30] for _, m in REFUSED])
def test_refusals(action: object, message: str) -> None:
    assert callable(action)
    with pytest.raises(ExportError) as caught:
        action()
    assert message in str(caught.value)
