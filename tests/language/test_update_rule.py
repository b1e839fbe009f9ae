"""Update rules: what they are made of, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import GRAD, PARAM, Schedule, State, UpdateRule, hyper, state, t

LR = hyper("lr")


def momentum(**changes: Any) -> UpdateRule:
    buffer = sp.Rational(9, 10) * state("buffer") + GRAD
    parts: dict[str, Any] = {
        "name": "momentum",
        "param": PARAM - LR * buffer,
        "states": {"buffer": State(buffer)},
        "hyperparameters": {"lr": 0.1},
    }
    return UpdateRule(**{**parts, **changes})


def test_parts() -> None:
    rule = momentum()
    assert rule.hyperparameters == {"lr": sp.Rational(1, 10)}
    assert list(rule.expressions()) == ["param", "buffer"]
    assert rule.bind(lr=0.2).hyperparameters == {"lr": sp.Rational(1, 5)}
    assert momentum(states={"buffer": State(GRAD, PARAM)}).states["buffer"].initial == PARAM
    assert isinstance(momentum(hyperparameters={"lr": Schedule(t)}).hyperparameters["lr"], Schedule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: momentum(hyperparameters={}), "'lr' is neither a state nor a hyperparameter"),
        (lambda: momentum(states={}), "'state.buffer' is neither a state nor a hyperparameter"),
        (
            lambda: momentum(hyperparameters={"lr": "0.1"}),
            "hyperparameter 'lr' of momentum must be",
        ),
        (
            lambda: momentum(param="param"),
            "next value of 'param' in rule 'momentum' must be a number",
        ),
        (
            lambda: momentum(states={"buffer": State(GRAD, 0, "row")}),
            r"the shape rule must be one of \('param', 'scalar'\), .*Along\(axis\), got 'row'",
        ),
        (
            lambda: momentum(states={"buffer": State(GRAD, float("nan"))}),
            "initial value of state 'buffer' must be finite, got nan",
        ),
        (lambda: momentum().bind(momentum=0.9), "'momentum' is no hyperparameter .*it has lr"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()
