"""SM3 beside the paper's algorithms, written element by element and set by set."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers, schedules
from closedform.compiler import compile_step
from closedform.ir.ops import Op
from closedform.options import ModelSpec
from closedform.runtime import OptimizerSession
from tests.support.trajectories import trajectory

Array = NDArray[Any]
SHAPES: list[tuple[int, ...]] = [(), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2)]
STEPS = 6
LR = 0.1


def drawn(shape: tuple[int, ...]) -> tuple[Array, list[Array]]:
    rng = np.random.default_rng(7)
    start, gradients = rng.normal(size=shape), rng.normal(size=(STEPS, *shape))
    gradients[2] = 0
    gradients[3] *= 30
    return start, list(gradients)


def sets_of(shape: tuple[int, ...]) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """The cover of a tensor: for each axis and index the places of this slice."""
    places = list(itertools.product(*map(range, shape)))
    if not shape:
        return {(0, 0): places}
    return {
        (axis, index): [place for place in places if place[axis] == index]
        for axis, size in enumerate(shape)
        for index in range(size)
    }


class Paper:
    """Algorithms SM3-I and SM3-II of Anil et al. (2019), 0 / 0 being 0, with momentum.

    Every number is a Python float of its own; ``mu`` is by set, all else by place.
    """

    def __init__(self, form: str, start: Array, beta1: float, beta2: float, eps: float) -> None:
        self.form, self.beta1, self.beta2, self.eps = form, beta1, beta2, eps
        self.sets = sets_of(start.shape)
        self.mu = dict.fromkeys(self.sets, 0.0)
        self.weights = {place: float(start[place]) for place in np.ndindex(start.shape)}
        self.mean = dict.fromkeys(self.weights, 0.0)

    def grown(self, old: float, square: float) -> float:
        return old + square if self.beta2 == 1 else self.beta2 * old + (1 - self.beta2) * square

    def step(self, gradient: Array) -> None:
        squares = {place: float(gradient[place]) ** 2 for place in self.weights}
        if self.form == "I":
            for key, places in self.sets.items():
                self.mu[key] = self.grown(self.mu[key], max(squares[place] for place in places))
            nu = {place: self.least(place) for place in squares}
        else:
            nu = {place: self.grown(self.least(place), squares[place]) for place in squares}
            self.mu = {key: max(nu[place] for place in self.sets[key]) for key in self.mu}
        for place, below in nu.items():
            step = float(gradient[place]) / (below + self.eps) ** 0.5 if below else 0
            self.mean[place] = self.beta1 * self.mean[place] + (1 - self.beta1) * step
            self.weights[place] -= LR * self.mean[place]

    def least(self, place: tuple[int, ...]) -> float:
        return min(self.mu[key] for key, places in self.sets.items() if place in places)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", ["I", "II"])
@pytest.mark.parametrize(
    ("beta1", "beta2", "eps"), [(0, 1, 0), (0.9, 1, 0), (0.5, 0.75, 1e-3)], ids=str
)
def test_trajectory_is_that_of_the_paper(
    form: str, shape: tuple[int, ...], beta1: float, beta2: float, eps: float
) -> None:
    start, gradients = drawn(shape)
    rule = optimizers.sm3(LR, (beta1, beta2), eps, form=form)
    paper = Paper(form, start, beta1, beta2, eps)
    steps = trajectory(rule, {"w": start}, [{"w": gradient} for gradient in gradients])
    for gradient, carried in zip(gradients, steps, strict=True):
        paper.step(gradient)
        wanted = np.array(list(paper.weights.values())).reshape(shape)
        # Six float64 steps of about ten roundings of 1.1e-16, on parameters near 1.
        np.testing.assert_allclose(carried["param.w"], wanted, rtol=1e-13, atol=1e-14)
        for axis, size in enumerate(shape):
            found = np.ravel(carried[f"state.w.accumulator_{axis}"])
            mu = [paper.mu[axis, index] for index in range(size)]
            np.testing.assert_allclose(found, mu, rtol=1e-14)


def test_the_second_form_is_the_tighter_bound() -> None:
    start, gradients = drawn((3, 4))
    sums = sum(gradient**2 for gradient in gradients)
    bounds = []
    for form in ("II", "I"):
        *_, last = trajectory(
            optimizers.sm3(form=form), {"w": start}, [{"w": g} for g in gradients]
        )
        bounds.append(np.minimum(last["state.w.accumulator_0"], last["state.w.accumulator_1"]))
    # Proposition 3 of the paper; at sums that round otherwise, by less than six roundings.
    assert (sums <= bounds[0] * (1 + 1e-15)).all()
    assert (bounds[0] <= bounds[1] * (1 + 1e-15)).all()
    assert (bounds[0] < bounds[1]).any()


def test_a_vector_is_stepped_by_adagrad() -> None:
    start, gradients = drawn((5,))
    given = [{"w": gradient} for gradient in gradients]
    *_, ours = trajectory(optimizers.sm3(LR, (0, 1), 0), {"w": start}, given)
    *_, adagrad = trajectory(optimizers.adagrad(LR, eps=0), {"w": start}, given)
    np.testing.assert_array_equal(ours["state.w.accumulator_0"], adagrad["state.w.sum"])
    np.testing.assert_allclose(ours["param.w"], adagrad["param.w"], rtol=1e-15)


@pytest.mark.parametrize("eps", [0, 1e-30, None, schedules.constant(0)], ids=["0", "30", "in", "s"])
@pytest.mark.parametrize("form", ["I", "II"])
def test_nothing_over_nothing_is_nothing_and_nan_stays(form: str, eps: Any) -> None:
    rule = optimizers.sm3(LR, (0, 1), eps, form=form)
    gradient = np.array([[0, 0, 0], [0, 0, 2], [0, np.nan, 0]])
    more = [{"eps": np.float64(0)}] if eps is None else None
    (carried,) = trajectory(rule, {"w": np.ones((3, 3))}, [{"w": gradient}], more=more)
    expected = np.ones((3, 3))
    expected[1, 2] -= LR
    # Row 2 and column 1 hold a number that is none: so is the least of them where they cross, and
    # elsewhere only the element's own square counts (II), or the row's and the column's (I).
    is_nan = np.isnan(gradient)
    found = carried["param.w"]
    np.testing.assert_array_equal(np.isnan(found) & is_nan, is_nan)
    np.testing.assert_array_equal(np.isnan(carried["state.w.accumulator_0"]).ravel(), [0, 0, 1])
    np.testing.assert_array_equal(np.isnan(carried["state.w.accumulator_1"]).ravel(), [0, 1, 0])
    if form == "II":
        np.testing.assert_allclose(found[~is_nan], expected[~is_nan], rtol=1e-15)


def test_a_large_matrix_has_few_numbers_beside_it() -> None:
    rule = optimizers.sm3(betas=(0, 1))
    start = np.ones((300, 200), np.float32)
    session = OptimizerSession(rule, {"w": start, "empty": np.ones((0, 3), np.float32)})
    session.step({"w": start, "empty": np.ones((0, 3), np.float32)})
    sizes = {name: of["w"].shape for name, of in session.states.items()}
    assert sizes == {"accumulator_0": (300, 1), "accumulator_1": (1, 200)}
    assert session.states["accumulator_1"]["empty"].tolist() == [[0, 0, 0]]
    np.testing.assert_allclose(session.params["w"], 0.9, rtol=1e-6)  # float32
    graph = compile_step(ModelSpec(rule, {"w": (300, 200)}))
    assert sum(node.op is Op.REDUCE_MAX for node in graph.nodes) == 2
