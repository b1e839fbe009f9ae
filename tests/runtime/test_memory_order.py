"""Arrays in any order of memory have the values of a copy, or are refused with a way out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from closedform import optimizers, schedules
from closedform.errors import SessionError
from closedform.ir.types import DType
from closedform.runtime import OptimizerSession, ScheduleSession
from closedform.runtime.onnx_session import open_session, run_into, run_on
from closedform.training import TrainSession, export
from tests.runtime.sessions import draw, momentum, snapshot
from tests.runtime.test_onnx_session import identity_graph


def _strided(array: Any) -> Any:
    """The array as every second element of a larger one."""
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    places: tuple[Any, ...] = (..., *[slice(None, None, 2)] * array.ndim)
    view = wide[places]
    view[...] = array
    return view


ORDERS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda array: array.T.copy().T,
    "strided": _strided,
    "reversed": lambda array: np.asarray(np.flip(np.flip(array).copy())),
}

RULES = {
    "elementwise": lambda: optimizers.adamw(1e-2),
    "norms": lambda: optimizers.lamb(1e-2),
    "products": lambda: optimizers.muon(1e-2),
}

_SHAPE = {"w": (3, 4)}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "backend"), [*((n, "onnxruntime") for n in RULES), ("elementwise", "c")]
)
def test_parameters_of_an_optimizer_have_any_order(name: str, backend: str, order: str) -> None:
    states = []
    for put in (ORDERS[order], np.array):
        params = {"w": put(draw(1, shapes=_SHAPE)["w"])}
        session = OptimizerSession(RULES[name](), params, backend=backend, threads=1)
        # Gradients are read in place.
        with pytest.raises(SessionError, match=r"must be C-contiguous.*ascontiguousarray"):
            session.step({"w": ORDERS[order](params["w"])})
        for step in range(3):
            session.step(draw(step, shapes=_SHAPE))
        states.append(snapshot(session))
    assert states[0] == states[1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_state_has_any_order(order: str) -> None:
    states = []
    for put in (ORDERS[order], np.array):
        session = momentum()
        session.step(draw(3))
        content = session.state_dict()
        content["params"] = {name: put(array) for name, array in content["params"].items()}
        session.load_state_dict(content)
        session.step(draw(4))
        states.append(snapshot(session))
    assert states[0] == states[1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_schedule_reads_any_order(order: str) -> None:
    session = ScheduleSession(schedules.cosine(0.1, 0.0, 50))
    steps = np.arange(60).reshape(6, 10)
    assert np.array_equal(session(ORDERS[order](steps)), session(steps))


@pytest.mark.parametrize("order", ORDERS)
def test_a_training_session_reads_any_order(order: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    # A parameter in another order of memory, too.
    model.weight.data = torch.as_tensor(
        ORDERS[order](model.weight.detach().numpy()).copy(order="K")
    )
    batch = torch.randn(4, 6), torch.randn(4, 3)
    rule = optimizers.adamw(1e-2)
    export(model, mse_loss, batch, rule, tmp_path, evaluation_loss=True)
    results = []
    for put in (ORDERS[order], np.array):
        session = TrainSession(tmp_path)
        arrays = [put(tensor.numpy()) for tensor in batch]
        losses = [session.step(arrays).loss for _ in range(3)]
        session.set_params({name: put(array) for name, array in session.params.items()})
        session.set_flat_params(put(session.flat_params()))
        losses += [session.step(arrays).loss, session.evaluate(arrays).loss]
        results.append([losses, session.predict(arrays[0]).tolist()])
    assert results[0] == results[1]


def test_arrays_in_another_order_are_not_bound() -> None:
    session = open_session(identity_graph("x", DType.F32, 2))
    array = np.zeros((2, 3), np.float32)
    for change in ORDERS.values():
        with pytest.raises(SessionError, match=r"'x' must be C-contiguous.*ascontiguousarray"):
            run_on(session, {"x": change(array)})
        with pytest.raises(SessionError, match=r"'value' must be C-contiguous"):
            run_into(session, {"x": array}, {"value": change(array)})
