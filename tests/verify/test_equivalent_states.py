"""Equivalent states: scalings that are found, proved, refuted and left alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import sympy as sp

from closedform import optimizers
from closedform.errors import VerificationError
from closedform.language import UpdateRule
from closedform.transforms.scaled_states import scaled_states
from closedform.verify.equivalent_states import claims, equivalent_states

MEANS = {"exp_avg": sp.Rational(1, 10), "exp_avg_sq": sp.Rational(1, 1000)}


@pytest.mark.parametrize(
    ("make", "scales", "operators"),
    [
        (lambda: optimizers.adamw(1e-3, weight_decay=0.1), MEANS, (15, 12)),
        (lambda: optimizers.adamw(eps_added="before_correction"), MEANS, None),
        (lambda: optimizers.lion(1e-4), {"exp_avg": sp.Rational(1, 100)}, None),
        (lambda: optimizers.laprop(1e-3), {"exp_avg": sp.Rational(1, 10)}, None),
        (lambda: optimizers.sgd(0.1), {}, None),
    ],
)
def test_a_scaling_is_found_and_proved(
    make: Callable[[], UpdateRule], scales: dict[str, sp.Expr], operators: tuple[int, int] | None
) -> None:
    rule = make()
    found = equivalent_states(rule)
    assert found.scales == scales
    assert operators in (None, found.operators)
    assert (found.operators[1] < found.operators[0]) == bool(scales)
    assert scales or found.rule is rule


def test_another_scale_or_step_is_refuted() -> None:
    found = scaled_states(optimizers.adamw(1e-3))
    wrong = replace(found, scales={**found.scales, "exp_avg": sp.Rational(1, 9)})
    assert claims(wrong)[1].verify().refuted
    state = found.rule.states["exp_avg_sq"]
    off = replace(state, next=state.next * sp.Rational(999, 1000))
    other = replace(found.rule, states={**found.rule.states, "exp_avg_sq": off})
    assert claims(replace(found, rule=other))[1].verify().refuted


def test_a_scaling_that_is_not_proved_is_an_error() -> None:
    with pytest.raises(VerificationError, match="the scaling of exp_avg, exp_avg_sq is not proved"):
        equivalent_states(optimizers.adamw(1e-3), effort=1e-6)
