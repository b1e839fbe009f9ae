"""Sessions of rules with shared states, other inputs, or an evaluation point."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from closedform import optimizers, transforms
from closedform.api.onnx import to_onnx
from closedform.errors import SessionError, StateError
from closedform.runtime import OptimizerSession

START = {"w": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": np.array([4.0])}
GRADS = {"w": np.array([[0.5, 1.0], [-1.0, 2.0]]), "b": np.array([-1.0])}


def test_a_loss_scale_halves_and_the_clock_does_not_advance() -> None:
    rule = transforms.dynamic_loss_scaling(optimizers.adam(0.1), 8)
    session = OptimizerSession(rule, START)
    assert session.shared["loss_scale"] == 8
    session.step({name: array * 8 for name, array in GRADS.items()})
    moved = {name: array.copy() for name, array in session.params.items()}
    session.step({**GRADS, "b": np.array([np.inf])})
    assert session.t == 1
    assert session.shared["loss_scale"] == 4
    assert session.shared["skipped_steps"] == 1
    for name, array in session.params.items():
        np.testing.assert_array_equal(array, moved[name])


def test_the_state_dict_contains_shared_states() -> None:
    rule = optimizers.prodigy(d0=1e-2)
    one, other = OptimizerSession(rule, START), OptimizerSession(rule, START)
    for _ in range(3):
        one.step(GRADS)
    saved = one.state_dict()
    assert saved["shared"]["d"] > 1e-2
    other.load_state_dict(saved)
    one.step(GRADS)
    other.step(GRADS)
    for name, array in one.params.items():
        np.testing.assert_array_equal(other.params[name], array)
    with pytest.raises(StateError, match="unknown state of the model 'e'"):
        other.load_state_dict({**saved, "shared": {**saved["shared"], "e": np.zeros(())}})
    missing = {key: value for key, value in saved.items() if key != "shared"}
    with pytest.raises(StateError, match="key 'shared' missing"):
        other.load_state_dict(missing)


@pytest.mark.parametrize("is_read_from_files", [False, True])
def test_evaluation_point(is_read_from_files: bool, tmp_path: Path) -> None:
    rule = transforms.weight_average(optimizers.sgd(1))
    averaged = OptimizerSession(rule, START)
    if is_read_from_files:
        to_onnx(rule, tmp_path, params={n: a.shape for n, a in START.items()}, dtype="f64")
        averaged = OptimizerSession.from_files(tmp_path, START)
    plain = OptimizerSession(optimizers.sgd(1), START)
    for _ in range(3):
        averaged.step(GRADS)
        plain.step(GRADS)
    # The mean of START - g, START - 2g and START - 3g.
    for name, array in averaged.evaluated().items():
        np.testing.assert_allclose(array, START[name] - 2 * GRADS[name], rtol=1e-15)
        np.testing.assert_array_equal(plain.evaluated()[name], plain.params[name])


def test_other_inputs_are_checked() -> None:
    session = OptimizerSession(optimizers.sophia(0.1, weight_decay=0, update_period=1), START)
    hessian: dict[str, Any] = {name: np.ones(array.shape) for name, array in START.items()}
    session.step(GRADS, {"hessian": hessian})
    for name, array in session.params.items():
        # m' = 0.04 g, 0.01 h' = 1e-4: every ratio is beyond 1.
        np.testing.assert_allclose(array, START[name] - 0.1 * np.sign(GRADS[name]), rtol=1e-15)
    with pytest.raises(SessionError, match="input 'hessian' missing"):
        session.step(GRADS)
    with pytest.raises(SessionError, match="parameter of input 'hessian' 'b' missing"):
        session.step(GRADS, {"hessian": {"w": hessian["w"]}})
    with pytest.raises(SessionError, match=r"the hessian of 'w' must be .*, got shape \[4\]"):
        session.step(GRADS, {"hessian": {**hessian, "w": np.ones(4)}})
    with pytest.raises(SessionError, match="unknown input 'curvature'"):
        session.step(GRADS, {"hessian": hessian, "curvature": hessian})


@pytest.mark.parametrize(("stored", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_parameters_of_16_bits_are_updated_through_master_weights(stored: str, dtype: Any) -> None:
    rule = transforms.master_weights(optimizers.sgd(1e-4), stored)
    start = {"w": np.array([1.0, -2.0], dtype)}
    session = OptimizerSession(rule, start)
    for _ in range(20):
        session.step({"w": np.array([1.0, 1.0], dtype)})
    assert session.params["w"].dtype == dtype
    masters = session.states["master"]["w"]
    assert masters.dtype == np.float32
    np.testing.assert_allclose(masters, [0.998, -2.002], rtol=2e-6)  # twenty roundings of 6e-8
    np.testing.assert_array_equal(session.params["w"], masters.astype(dtype))
    name = np.dtype(dtype).name
    with pytest.raises(SessionError, match=rf"must be a NumPy array of {name}, got dtype float32"):
        OptimizerSession(rule, {"w": start["w"].astype(np.float32)})
