"""Dion beside 50 steps of the code of its authors, and what is refused.

``tests/reference/optimizers_dion.npz`` has parameters after some of the steps, in float64, written
by ``make_optimizers_dion.py``.
"""

import numpy as np
import pytest

from closedform import optimizers
from closedform.errors import ClosedFormError, DefinitionError
from closedform.runtime import OptimizerSession
from tests.reference.draws import drawn
from tests.reference.records import ROOT

with np.load(ROOT / "optimizers_dion.npz") as file:
    ARRAYS = dict(file)
RECORDED = (1, 2, 3, 10, 25, 50)
NAMES = ("w", "u")


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_steps_are_those_of_the_authors(dtype: type, bound: float) -> None:
    start, gradients, _ = drawn()
    rule = optimizers.dion(0.01, weight_decay=0.1, rank=2)
    session = OptimizerSession(rule, {name: start[name].astype(dtype) for name in NAMES})
    states = session.state_dict()
    for name in NAMES:
        states["states"]["Q"][name] = ARRAYS[f"{name}/Q"].astype(dtype)
    session.load_state_dict(states)
    for step, gradient in enumerate(gradients, 1):
        session.step({name: gradient[name].astype(dtype) for name in NAMES})
        if step in RECORDED:
            for name in NAMES:
                expected = ARRAYS[name][RECORDED.index(step)]
                gap = np.abs(session.params[name] - expected).max() / np.abs(expected).max()
                # 50 steps of some hundred roundings of 1.1e-16, or of 6e-8, times the rate of 0.01.
                assert gap <= bound, (name, step)


def test_the_first_step_is_along_the_first_rows_and_has_the_rank() -> None:
    rng = np.random.default_rng(4)
    start, gradient = {"w": rng.normal(size=(5, 4))}, rng.normal(size=(5, 4))
    session = OptimizerSession(optimizers.dion(0.1, weight_decay=0, rank=2), start)
    session.step({"w": gradient})
    step = session.params["w"] - start["w"]
    lengths = np.linalg.norm(gradient[:2], axis=1, keepdims=True)
    expected = -0.1 * np.sqrt(5 / 4) * gradient[:2] / lengths
    # The term eps of the norms is 1e-8.
    np.testing.assert_allclose(step[:2], expected, rtol=1e-7)
    np.testing.assert_array_equal(step[2:], 0)
    assert session.states["Q"]["w"].shape == (4, 2)
    before = session.params["w"].copy()
    session.step({"w": rng.normal(size=(5, 4))})
    values = np.linalg.svd(session.params["w"] - before)[1]
    # P has orthonormal columns, and the columns of Q have unit length.
    np.testing.assert_allclose(np.sum(values**2), 2 * 0.1**2 * 5 / 4, rtol=1e-6)
    assert values[2] < 1e-14


def test_it_is_for_matrices() -> None:
    with pytest.raises(ClosedFormError, match="dion"):
        OptimizerSession(optimizers.dion(), {"b": np.zeros(3)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be an integer >= 1, got 0 (dion)"),
        ({"momentum": 1}, "momentum must be in [0, 1), got 1 (dion)"),
        ({"eps": -1}, "eps must be >= 0, got -1 (dion)"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        optimizers.dion(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message
