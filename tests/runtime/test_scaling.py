"""Sessions that store multiples of the states: states of the rule where they are seen."""

from typing import Any

import numpy as np
import pytest

import closedform as cf
from closedform.errors import SessionError, StateError

RULE = cf.optimizers.adamw(1e-3, weight_decay=0.1)
DRAWS = np.random.default_rng(0)
PARAMS = {"w": DRAWS.normal(size=(40, 5)).astype(np.float32)}


def gradients(count: int) -> list[dict[str, Any]]:
    return [{"w": DRAWS.normal(size=(40, 5)).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def session() -> cf.OptimizerSession:
    """A session after 50 steps; the tests of this file do not depend on its step."""
    made = cf.OptimizerSession(RULE, PARAMS, equivalent_states=True)
    for grads in gradients(50):
        made.step(grads)
    return made


def test_states_are_those_of_the_rule() -> None:
    own = cf.OptimizerSession(RULE, PARAMS)
    scaled = cf.OptimizerSession(RULE, PARAMS, equivalent_states=True)
    for grads in gradients(60):
        own.step(grads)
        scaled.step(grads)
    # Each step rounds a state three or four times, and forgets a tenth or more of what came before;
    # a mean of squares forgets a thousandth, and its roundings add up over the 60 steps.
    for label, limit in (("exp_avg", 40), ("exp_avg_sq", 3 * 60)):
        one, other = own.states[label]["w"], scaled.states[label]["w"]
        scale = np.spacing(np.abs(one).max())
        assert 0 < np.abs(one - other).max() <= limit * scale
    assert np.abs(own.params["w"] - scaled.params["w"]).max() <= 60 * np.spacing(np.float32(4))


def test_a_run_that_resumes_is_the_run_that_goes_on(session: cf.OptimizerSession) -> None:
    saved = session.state_dict()
    again = cf.OptimizerSession(RULE, PARAMS, equivalent_states=True)
    again.load_state_dict(saved)
    for grads in gradients(5):
        session.step(grads)
        again.step(grads)
    for label in session.states:
        assert np.array_equal(session.states[label]["w"], again.states[label]["w"])
    assert np.array_equal(session.params["w"], again.params["w"])


def test_a_checkpoint_is_read_by_the_other_kind(session: cf.OptimizerSession) -> None:
    saved = session.state_dict()
    other = cf.OptimizerSession(RULE, PARAMS)
    other.load_state_dict(saved)
    for label in saved["states"]:
        assert np.array_equal(other.states[label]["w"], saved["states"][label]["w"])


def test_a_round_trip_is_two_roundings(session: cf.OptimizerSession) -> None:
    saved = session.state_dict()
    special = np.array([0.0, -0.0, np.inf, np.nan, 1e-45, 1e-38], np.float32)
    state = saved["states"]["exp_avg_sq"]["w"]
    state.reshape(-1)[: special.size] = special
    session.load_state_dict(saved)
    seen = session.states["exp_avg_sq"]["w"]
    finite = np.isfinite(state)
    gap = np.abs(seen[finite] - state[finite])
    assert np.all(gap <= 2 * np.spacing(np.abs(state[finite])))
    assert np.array_equal(seen[~finite], state[~finite], equal_nan=True)
    assert np.signbit(seen.reshape(-1)[1])


def test_a_state_beyond_the_floats_is_refused(session: cf.OptimizerSession) -> None:
    saved = session.state_dict()
    saved["states"]["exp_avg_sq"]["w"][0, 0] = 1e36
    with pytest.raises(
        StateError, match=r"'state.w.exp_avg_sq' holds a value beyond the largest f"
    ):
        session.load_state_dict(saved)


def test_parameters_of_16_bits_are_refused() -> None:
    rule = cf.transforms.master_weights(RULE, "f16")
    params = {"w": PARAMS["w"].astype(np.float16)}
    with pytest.raises(SessionError, match="equivalent_states is for onnxruntime and rules with"):
        cf.OptimizerSession(rule, params, equivalent_states=True)
