"""Hyperparameters that were computed with floats, such as 0.003 / 10 = 0.00030000000000000003.

Constants of their graphs are also the floats of shorter numbers: 0.003 - 0.00030000000000000003
rounds to that of 0.0027. A proof chooses the numbers that the source has.
"""

import math
import re
from typing import cast

import pytest
from flint import fmpq

from closedform import compile, optimizers, schedules
from closedform.ir import DType
from closedform.language import Schedule
from closedform.schedules.examples import EXAMPLES, Example
from closedform.verify.terms import build
from closedform.verify.translation.constants import Constants
from closedform.verify.translation.translation import validate

RATES = re.compile(
    r"(start|end|peak|value|low|high|final|floor|warmup_start|exponent|power|gamma|scale)(_\d)?"
)
FACTORS = (1 / 3, 1 / 7, 1.1, 0.7, 0.1 * 3)
OPEN = {("log_warmup", 1 / 3), ("log_warmup", 0.1 * 3), ("tanh_decay", 1.1), ("tanh_decay", 0.7)}
"""Products of a logarithm or a tanh and two numbers of the source are not looked for."""

LONG, SHORT = fmpq(3333333333333333, 10**17), fmpq(1, 30)


def has_rates(example: Example) -> bool:
    schedule = example.make()
    names = schedule.hyperparameters if isinstance(schedule, Schedule) else ()
    return any(RATES.fullmatch(name) for name in names)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if has_rates(example)])
def test_graphs_of_schedules_with_long_numbers_are_proved(name: str, factor: float) -> None:
    schedule = cast(Schedule, EXAMPLES[name].make())
    values = {
        key: float(value) * factor
        for key, value in schedule.hyperparameters.items()
        if RATES.fullmatch(key)
    }
    schedule = schedule.bind(values)
    verdict = validate(schedule, compile(schedule))
    assert verdict.proved != ((name, factor) in OPEN), verdict


def test_a_rule_with_long_numbers_is_proved() -> None:
    peak = 3e-3
    lr = schedules.linear(0, peak, 5).then(schedules.cosine(peak, peak / 10, 35))
    rule = optimizers.adamw(lr)
    assert validate(rule, compile(rule, params={"w": (2,)})).proved


def test_the_longest_number_of_the_source_is_chosen() -> None:
    number = 1 / 30
    assert number == 3333333333333333 / 10**17
    for longest, expected in ((False, SHORT), (True, LONG)):
        constants = Constants((), (LONG, SHORT), longest=longest)
        assert constants(number, DType.F64) == build.rational(expected)


def test_sums_of_long_numbers_are_chosen_before_short_numbers_of_no_source() -> None:
    peak, end = fmpq(3, 1000), fmpq(30000000000000003, 10**20)
    constants = Constants((), (peak, end), longest=True)
    assert constants(0.0027, DType.F64) == build.rational(peak - end)
    constants = Constants((), (peak, end))
    assert constants(0.0027, DType.F64) == build.rational(27, 10000)


def test_angles_have_short_multiples_of_pi() -> None:
    long_number = build.multiply(build.PI, build.rational(280000000000000005, 10**18))
    constants = Constants([long_number], longest=True)
    assert constants(math.pi / 400, DType.F64) == build.multiply(build.PI, build.rational(1, 400))


def test_a_wrong_graph_is_refuted_whatever_numbers_are_chosen() -> None:
    peak = 3e-3
    source = schedules.cosine(peak, peak / 10, 35)
    wrong = compile(schedules.cosine(peak, peak / 10 * (1 + 1e-14), 35))
    assert not validate(source, wrong).proved
