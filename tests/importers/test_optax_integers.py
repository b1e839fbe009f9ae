"""States and counts of optax in integers of a fixed width, judged by JAX for 60 updates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.optax.jaxprs import double_precision
from closedform.language.update_rule import UpdateRule

SHAPE = (4, 3)


def transformation(dtype: Any, update_count: Callable[[Any], Any], *, of_elements: bool) -> Any:
    """A scale by a count in a dtype, before sgd."""

    def init(params: Any) -> Any:
        return jax.tree.map(lambda p: jnp.zeros(p.shape if of_elements else (), dtype), params)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        state = jax.tree.map(update_count, state)
        return jax.tree.map(lambda u, count: u * (0.5 + count / 1024), updates, state), state

    return optax.chain(optax.GradientTransformation(init, update), optax.sgd(0.125))


COUNTS: dict[str, Callable[[Any], Any]] = {
    "one change": lambda count: jnp.where(count < 3, 2, 4),
    "two changes": lambda count: jnp.where(count < 2, 1, jnp.where(count < 5, 2, 3)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_multi_steps_with_a_schedule(name: str) -> None:
    accumulated = optax.MultiSteps(optax.sgd(0.125), every_k_schedule=COUNTS[name])
    # optax has the mean in float32, 6e-8 of a gradient; another length differs by 0.01 or more
    assert largest_difference(accumulated.gradient_transformation()) < 1e-6


def test_multi_steps_with_a_growing_count_are_refused() -> None:
    accumulated = optax.MultiSteps(optax.sgd(0.125), every_k_schedule=lambda count: 1 + count // 2)
    with pytest.raises(TraceError, match="divided by one that is not a constant above 0"):
        cf.from_optax(accumulated.gradient_transformation())


def largest_difference(optimizer: Any) -> float:
    """Of a rule and its transformation, relative to the largest element, in float64."""
    random = np.random.default_rng(7)
    first = random.standard_normal(SHAPE)
    rule = cf.from_optax(optimizer)
    assert isinstance(rule, UpdateRule)
    session = cf.OptimizerSession(rule, {"w": first.copy()})
    largest = 0.0
    with double_precision():
        params = {"w": jnp.asarray(first)}
        state = optimizer.init(params)
        update = jax.jit(optimizer.update)
        for _ in range(60):
            gradient = random.standard_normal(SHAPE)
            updates, state = update({"w": jnp.asarray(gradient)}, state, params)
            params = optax.apply_updates(params, updates)
            session.step({"w": gradient})
            value = np.asarray(params["w"])
            gap = np.abs(value - session.params["w"]).max() / np.abs(value).max()
            largest = max(largest, float(gap))
    return largest


@pytest.mark.parametrize("of_elements", [True, False])
@pytest.mark.parametrize("step", [1, 7, -5])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_short_integers_wrap(dtype: str, step: int, of_elements: bool) -> None:
    size = step * (1000 if dtype == "int16" else 9)

    def add(count: Any) -> Any:
        return count + jnp.asarray(size % 256 if dtype == "uint8" else size, dtype)

    # The rule computes in float64, as JAX does; a wrap differs by 0.1 or more.
    assert largest_difference(transformation(dtype, add, of_elements=of_elements)) < 1e-12


LONG: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "twenty million": (lambda count: count + 20_000_000, False),
    "doubled": (lambda count: count * 2 + 1, False),
    "one a step": (lambda count: count + 1, True),
    "saturating": (optax.safe_increment, True),
    "of a modulus": (lambda count: (count + 1) % 7, True),
}


@pytest.mark.parametrize("of_elements", [True, False])
@pytest.mark.parametrize("name", LONG)
def test_long_integers_stay_within_theirs(name: str, of_elements: bool) -> None:
    add, is_read = LONG[name]
    optimizer = transformation("int32", add, of_elements=of_elements)
    if is_read:
        assert largest_difference(optimizer) < 1e-12
        return
    with pytest.raises(TraceError, match="may leave the integers from -2147483648 to 2147483647"):
        cf.from_optax(optimizer)
