"""Errors of an optimizer session."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform import to_onnx
from closedform.errors import SessionError, StateError
from closedform.exporters.onnx_model import to_model, write_model
from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.types import DType, Shape, TensorType
from closedform.optimizers import adamw
from closedform.runtime import OptimizerSession
from closedform.schedules import constant
from tests.exporters.graphs import momentum_init
from tests.runtime.sessions import (
    AVERAGED,
    ONES,
    SHAPES,
    draw,
    momentum,
    phased,
    phased_graphs,
    snapshot,
)


def shorter(content: dict[str, Any]) -> None:
    content["params"]["w"] = np.zeros((2, 4), np.float32)


def wider(content: dict[str, Any]) -> None:
    content["states"]["velocity"]["layer.0.bias"] = np.zeros(3, np.float64)


BROKEN: tuple[tuple[Callable[[dict[str, Any]], object], str], ...] = (
    (
        lambda content: content.update(rule="lion"),
        "the state dict belongs to rule 'lion' (rule 'momentum'): "
        "load it into a session of that rule",
    ),
    (
        lambda content: content.update(step=-2),
        f"'step' must be an integer in 0..{2**50}, got -2 (rule 'momentum')",
    ),
    (
        lambda content: content.update(step=2**50 + 1),
        f"'step' must be an integer in 0..{2**50}, got {2**50 + 1} (rule 'momentum')",
    ),
    (
        lambda content: content.update(step=2.5),
        f"'step' must be an integer in 0..{2**50}, got 2.5 (rule 'momentum')",
    ),
    (
        lambda content: content.pop("states"),
        "key 'states' missing (state dict for rule 'momentum'): give one for each name",
    ),
    (
        lambda content: content.update(extra=1),
        "unknown key 'extra' (state dict for rule 'momentum'): "
        "known are params, rule, states, step",
    ),
    (
        lambda content: content["params"].pop("s"),
        "parameter 's' missing (rule 'momentum'): give one for each name",
    ),
    (
        lambda content: content["params"].update(vv=1),
        "unknown parameter 'vv' (rule 'momentum'): known are layer.0.bias, none, s, w",
    ),
    (shorter, "parameter 'w' must be float32[2,3], got shape [2, 4] (rule 'momentum')"),
    (
        wider,
        "state 'velocity' of 'layer.0.bias' must be float32[3], got dtype float64 "
        "(rule 'momentum'): convert it with .astype('float32')",
    ),
    (
        lambda content: content["states"].pop("norm"),
        "state 'norm' missing (rule 'momentum'): give one for each name",
    ),
    (
        lambda content: content["states"]["norm"].pop("s"),
        "parameter of state 'norm' 's' missing (rule 'momentum'): give one for each name",
    ),
    (
        lambda content: content.update(params=[1]),
        "expected a mapping from name to parameter, got list (rule 'momentum'): give {name: …} for "
        "'w', 'layer.0.bias', 's', 'none'",
    ),
    (
        lambda content: content["states"].update(norm=3),
        "expected a mapping from name to parameter of state 'norm', got int (rule 'momentum'): "
        "give {name: …} for 'w', 'layer.0.bias', 's', 'none'",
    ),
)


@pytest.mark.parametrize(("break_it", "message"), BROKEN, ids=[m[:40] for _, m in BROKEN])
def test_a_state_dict_is_validated_before_anything_is_written(
    break_it: Callable[[dict[str, Any]], object], message: str
) -> None:
    session = momentum()
    session.step(draw(45))
    content = momentum(seed=46).state_dict()
    break_it(content)
    before = snapshot(session)
    with pytest.raises(StateError) as caught:
        session.load_state_dict(content)
    assert str(caught.value) == message
    assert snapshot(session) == before


def gradient(**changed: object) -> Callable[[], None]:
    grads = {**draw(47), **changed}
    return lambda: momentum().step(grads)  # type: ignore[arg-type]


INVALID: tuple[tuple[Callable[[], object], str], ...] = (
    (
        gradient(wq=np.zeros(3, np.float32)),
        "unknown gradient 'wq' (rule 'momentum'): did you mean 'w'?",
    ),
    (
        lambda: momentum().step({"w": draw(47)["w"]}),
        "gradient 'layer.0.bias', 's', 'none' missing (rule 'momentum'): give one for each name",
    ),
    (
        gradient(w=np.zeros((2, 3))),
        "the gradient of 'w' must be float32[2,3], got dtype float64 (rule 'momentum'): "
        "convert it with .astype('float32')",
    ),
    (
        gradient(w=np.zeros((3, 2), np.float32)),
        "the gradient of 'w' must be float32[2,3], got shape [3, 2] (rule 'momentum')",
    ),
    (
        gradient(w=[[0.0] * 3] * 2),
        "the gradient of 'w' must be a NumPy array float32[2,3], got list (rule 'momentum'): "
        "pass numpy.asarray(…), or tensor.detach().cpu().numpy()",
    ),
    (
        gradient(w=np.zeros((3, 2), np.float32).T),
        "the gradient of 'w' must be C-contiguous, got strides [4, 8] (rule 'momentum'): "
        "pass numpy.ascontiguousarray(…)",
    ),
    (
        lambda: phased().step(ONES, period=2),
        "hyperparameter 'lr' missing (rule 'phased'): give one for each name",
    ),
    (
        lambda: phased().step(ONES, period=2, lr=0.1, momentun=0.9),
        "unknown hyperparameter 'momentun' (rule 'phased'): known are lr, period",
    ),
    (
        lambda: phased().step(ONES, period=2.5, lr=0.1),
        "hyperparameter 'period' must be a number (int64[]), got 2.5 (rule 'phased')",
    ),
    (
        lambda: OptimizerSession(AVERAGED, {}),
        "an optimizer needs at least one parameter, got none (rule 'averaged')",
    ),
    (
        lambda: OptimizerSession(AVERAGED, {"w": np.zeros(3, np.int64)}),
        "parameter 'w' must be a NumPy array of float32 or float64, got dtype int64 "
        "(rule 'averaged'): convert it with numpy.asarray(…, numpy.float32)",
    ),
    (
        lambda: OptimizerSession(AVERAGED, {"w": np.float32(1)}),  # type: ignore[dict-item]
        "parameter 'w' must be a NumPy array of float32 or float64, got a float32 "
        "(rule 'averaged'): convert it with numpy.asarray(…, numpy.float32)",
    ),
    (
        lambda: OptimizerSession(AVERAGED, [np.zeros(3)]),  # type: ignore[arg-type]
        "parameters must be a mapping of names to arrays, got list (rule 'averaged'): "
        'give {"w": array}',
    ),
    (
        lambda: OptimizerSession(constant(1), {"w": np.zeros(3)}),  # type: ignore[arg-type]
        "an optimizer session runs an UpdateRule, got Schedule: "
        "make one with closedform.optimizers, or use ScheduleSession for a schedule",
    ),
    (
        lambda: phased().step(None, period=2, lr=0.1),  # type: ignore[arg-type]
        "expected a mapping from name to gradient, got NoneType (rule 'phased'): "
        "give {name: …} for 'w'",
    ),
    (
        lambda: OptimizerSession(AVERAGED, {"w": np.zeros(3), "b": np.zeros(2, np.float32)}),
        "the parameters must share one dtype, got 'w' float64, 'b' float32 (rule 'averaged'): "
        "use one session per dtype",
    ),
    (
        lambda: OptimizerSession.from_models(*phased_graphs(), {"v": np.zeros(2, np.float32)}),
        "unknown parameter 'v' (rule 'phased'): known are w",
    ),
    (
        lambda: OptimizerSession.from_models(*phased_graphs(), {"w": np.zeros(3, np.float32)}),
        "parameter 'w' must be float32[2], got shape [3] (rule 'phased')",
    ),
    (
        lambda: OptimizerSession.from_models(
            momentum_init({"w": (2,)}), phased_graphs()[1], {"w": np.zeros(2, np.float32)}
        ),
        "output 'state.w.phase' of the init model must be float32[], got none (rule 'phased'): "
        "export both models of the rule again, together",
    ),
    (
        lambda: OptimizerSession.from_models(phased_graphs()[1], phased_graphs()[1], ONES),
        "input 'step' of the init model is not a parameter of the step model "
        "(rule 'phased'): export both models of the rule again, together",
    ),
    (
        lambda: OptimizerSession.from_models(phased_graphs()[1], phased_graphs()[0], ONES),
        "a step model needs an integer input 'step', got none (step model 'phased_init'): "
        "export the rule with closedform.to_onnx",
    ),
)


@pytest.mark.parametrize("content", [None, [1], "rule"])
def test_a_state_dict_is_a_mapping(content: Any) -> None:
    expected = (
        f"expected a mapping from name to key, got {type(content).__name__} (state dict for "
        "rule 'momentum'): give {name: …} for 'rule', 'step', 'params', 'states'"
    )
    with pytest.raises(StateError) as caught:
        momentum().load_state_dict(content)
    assert str(caught.value) == expected


@pytest.mark.parametrize(("action", "message"), INVALID, ids=[m[:40] for _, m in INVALID])
def test_invalid(action: Callable[[], object], message: str) -> None:
    with pytest.raises(SessionError) as caught:
        action()
    assert str(caught.value) == message


def step_model(*inputs: tuple[str, Shape], outputs: Mapping[str, str]) -> Graph:
    """A step model of f32 inputs whose outputs are inputs."""
    b = Builder("odd")
    values = {"step": b.input("step", scalar(DType.I64), Role.STEP)}
    for name, shape in inputs:
        values[name] = b.input(name, TensorType(DType.F32, shape), Role.PARAM)
    for name, source in outputs.items():
        b.output(name, values[source])
    return b.build()


W: tuple[tuple[str, Shape], ...] = (("param.w", (2,)), ("grad.w", (2,)))
NEXT = {"next.step": "step", "next.param.w": "param.w"}
ODD: tuple[tuple[Graph, str], ...] = (
    (
        step_model(W[0], outputs=NEXT),
        "a step model needs one gradient per parameter, got parameters w and gradients none "
        "(step model 'odd'): export the rule with closedform.to_onnx",
    ),
    (
        step_model(*W, ("state.v.mean", ()), outputs=NEXT),
        "state 'state.v.mean' belongs to no parameter (step model 'odd'): the parameters are w",
    ),
    (
        step_model(("param.w", ("n",)), ("grad.w", ("n",)), outputs=NEXT),
        "input 'param.w' must have a static shape, got float32[n] (step model 'odd')",
    ),
    (
        step_model(*W, outputs={"next.step": "step"}),
        "output 'next.param.w' must be float32[2], got none (step model 'odd'): "
        "export the rule with closedform.to_onnx",
    ),
    (
        step_model(W[0], ("grad.w", (3,)), outputs=NEXT),
        "input 'grad.w' must be float32[2], got float32[3] (step model 'odd'): "
        "export the rule with closedform.to_onnx",
    ),
    (
        step_model(*W, ("lr", (2,)), outputs=NEXT),
        "input 'lr' must have rank 0, got float32[2] (step model 'odd')",
    ),
)


@pytest.mark.parametrize(("graph", "message"), ODD, ids=[m[:40] for _, m in ODD])
def test_a_model_that_is_not_a_step_is_refused(graph: Graph, message: str) -> None:
    with pytest.raises(SessionError) as caught:
        OptimizerSession.from_models(momentum_init({"w": (2,)}), graph, ONES)
    assert str(caught.value) == message


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_model(to_model(momentum_init(SHAPES)), tmp_path / "init.onnx")
    with pytest.raises(SessionError) as caught:
        OptimizerSession.from_files(tmp_path, draw(48))
    assert str(caught.value) == (
        f"cannot read the model: No such file or directory (file {str(tmp_path / 'step.onnx')!r})"
    )


@pytest.mark.parametrize("backend", ["onnxruntime", "c"])
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_the_clock_does_not_leave_its_domain(backend: str, dtype: str, tmp_path: Path) -> None:
    params = {"w": np.ones(3, np.float32)}
    gradient = {"w": np.full(3, 0.5, np.float32)}
    rule = adamw(lr=0.01)
    if dtype == "i32":
        to_onnx(rule, tmp_path, params={"w": (3,)}, step_dtype=dtype, validate=False)
        session = OptimizerSession.from_files(tmp_path, params)
    else:
        session = OptimizerSession(rule, params, backend=backend)
    last = 2**31 - 1 if dtype == "i32" else 2**50
    session.load_state_dict({**session.state_dict(), "step": last - 1})
    session.step(gradient)
    before = snapshot(session)
    with pytest.raises(SessionError, match=f"the clock is at {last} and ends at {last}, the last"):
        session.step(gradient)
    assert session.t == last
    assert snapshot(session) == before
