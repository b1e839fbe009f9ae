"""A choice of elements within a function of whole tensors stays where it is in conditions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
from numpy.typing import NDArray

from closedform.expr import (
    GRAD,
    PARAM,
    global_sum,
    reduce_max,
    reduce_mean,
    reduce_sum,
    transpose,
)
from closedform.language import UpdateRule
from tests.support.trajectories import trajectory

Values = NDArray[np.float64]
FUNCTIONS: dict[str, tuple[Callable[[sp.Expr], sp.Expr], Callable[[Values], Any]]] = {
    "sum": (reduce_sum, np.sum),
    "mean": (reduce_mean, np.mean),
    "maximum": (reduce_max, np.max),
    "rows": (
        lambda x: reduce_sum(x, axes=(-1,), keepdims=True),
        lambda x: x.sum(-1, keepdims=True),
    ),
    "transposed": (lambda x: reduce_sum(transpose(x)), np.sum),
    "of the model": (global_sum, np.sum),
}
CHOICES: dict[str, tuple[sp.Expr, Callable[[Values, Values], Values]]] = {
    "gradient or parameter": (
        sp.Piecewise((GRAD, GRAD > 0), (PARAM, True)),
        lambda p, g: np.where(g > 0, g, p),
    ),
    "in a sum": (
        PARAM + sp.Piecewise((GRAD, PARAM > 0), (2 * GRAD, True)),
        lambda p, g: p + np.where(p > 0, g, 2 * g),
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_condition_on_a_tensor_of_choices_is_that_of_numpy(function: str, choice: str) -> None:
    apply, in_numpy = FUNCTIONS[function]
    chosen, values_of = CHOICES[choice]
    is_large = apply(chosen) > sp.Rational(1, 2)
    step = sp.Piecewise((PARAM - 1, is_large), (PARAM + 1, True))
    rule = UpdateRule("choosing", step, {}, {})
    numbers = np.random.default_rng(38)
    branches = set()
    for mean in np.linspace(-1.5, 1.5, 12):
        param, grad = numbers.normal(mean, size=(2, 2, 2))
        (carried,) = trajectory(rule, {"w": param}, [{"w": grad}])
        condition = in_numpy(values_of(param, grad)) > 0.5
        np.testing.assert_array_equal(carried["param.w"], np.where(condition, param - 1, param + 1))
        branches |= set(np.ravel(condition).tolist())
    assert branches == {True, False}


def test_elementwise_choices_are_folded_as_before() -> None:
    inner = sp.Piecewise((GRAD, GRAD > 0), (PARAM, True))
    branch = sp.Piecewise((PARAM, abs(inner) > 1), (GRAD, True))
    assert not branch.args[0].cond.has(sp.Piecewise)
