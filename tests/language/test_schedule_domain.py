"""The domain of a schedule: preserved by composition, checked as soon as the values are known."""

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

from closedform import schedules as library
from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, chained, hyper, sequential, t

FLAT, STEPS = hyper("flat", integer=True), hyper("steps", integer=True, positive=True)
RULE = FLAT < STEPS
PLAIN = Schedule(t * FLAT / (STEPS - FLAT), name="plain", domain=(RULE, STEPS > 0))


def test_conditions_that_always_hold_are_left_out() -> None:
    assert PLAIN.domain == (RULE,)


def test_the_domain_is_checked_once_its_values_are_known() -> None:
    half = PLAIN.bind(flat=7)
    assert half.bind(steps=8).exact(2) == 14
    with pytest.raises(DomainError) as caught:
        half.bind(steps=7)
    assert str(caught.value) == "flat < steps must hold, got flat = 7, steps = 7 (schedule 'plain')"


@pytest.mark.parametrize(
    "change",
    [
        copy.copy,
        lambda lr: pickle.loads(pickle.dumps(lr)),
        lambda lr: lr.rename("other"),
        lambda lr: lr.scale(3),
        lambda lr: lr.clip(0, 1),
        lambda lr: lr.shift(2),
        lambda lr: lr.bind(flat=1),
        lambda lr: lr.repeat(9),
        lambda lr: lr.then(library.constant(1), at=5),
        lambda lr: lr.splice(5, library.constant(1)),
        lambda lr: chained([lr, library.constant(2)]),
    ],
)
def test_the_domain_is_preserved(change: Callable[[Schedule], Schedule]) -> None:
    assert change(PLAIN).domain == (RULE,)


def test_members_with_other_values_keep_their_domains_apart() -> None:
    row = sequential([library.wsd(1, 0, 20, 4, 6), library.wsd(1, 0, 30, 4, 6)])
    names = sorted(str(symbol) for rule in row.domain for symbol in rule.free_symbols)
    assert names == ["decay", "decay", "steps_1", "steps_2", "warmup", "warmup"]
    with pytest.raises(DomainError, match=r"decay \+ warmup <= steps_2 must hold, got .*= 9"):
        row.bind(steps_2=9)


def test_the_domain_declares_the_last_step() -> None:
    growing = Schedule(2**t, domain=(t < 1000,))
    assert growing.last_step == 999
    assert Schedule(2**t, domain=(sp.Rational(21, 2) >= t,)).last_step == 10
    assert Schedule(t * STEPS, domain=(t <= STEPS,)).last_step is None
    assert Schedule(t * STEPS, domain=(t <= STEPS, t < 9), steps=7).last_step == 7
    for same in (growing.scale(3), growing.clip(0, 1), growing.rename("other"), growing.bind()):
        assert same.last_step == 999
    assert (growing.shift(10).last_step, growing.shift(-10).last_step) == (989, 1009)


def test_steps_after_the_last_have_no_value() -> None:
    falling = Schedule(1 - t / 10, name="falling", domain=(t <= 10,))
    assert falling(np.arange(11)).tolist() == [falling(step) for step in range(11)]
    for read in (falling, falling.exact, lambda step: falling(np.array([0, step]))):
        with pytest.raises(DomainError) as caught:
            read(11)
        assert str(caught.value) == (
            "the schedule has no value at t = 11, its last step is 10 (schedule 'falling'): "
            "splice(…) continues it with another schedule"
        )
    assert falling.splice(11, library.constant(0))(1000) == 0


def test_a_composition_has_a_clock_of_its_own() -> None:
    growing = Schedule(2**t, length=9, domain=(t < 10,))
    for other in (growing.repeat(), growing.then(growing), growing.splice(3, growing)):
        assert other.last_step is None


def test_unbind_removes_values() -> None:
    lr = library.linear(1, 0, 10)
    assert lr.unbind() == Schedule(lr.expr)
    assert [symbol.name for symbol in lr.unbind("end", "start").open] == ["end", "start"]
    assert lr.unbind("end").bind(end=0) == lr
    with pytest.raises(DefinitionError) as caught:
        lr.unbind("stop")
    assert str(caught.value) == ("'stop' is not bound (schedule 'linear'): did you mean 'steps'?")


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ([3], "domain must hold conditions such as flat < steps, got 3"),
        ([FLAT], "domain must hold conditions such as flat < steps, got flat"),
        ([t > FLAT], "a condition on t in the domain must be t <= last or t < end, got .*flat < t"),
        ([t**2 < 9], "a condition on t in the domain must be t <= last or t < end, got t..2 < 9"),
        ([hyper("steps") > 4], "'steps' in the domain is not a symbol .*did you mean 'steps'"),
    ],
)
def test_invalid_domains_are_refused(domain: list[sp.Basic], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Schedule(PLAIN.expr, domain=domain)


OUTSIDE: dict[str, tuple[Schedule, dict[str, float], str]] = {
    "flat_cosine": (library.flat_cosine(1, 0, 10, 4), {"flat": 10}, "flat < steps"),
    "flat_cosine before 0": (library.flat_cosine(1, 0, 10, 4), {"flat": -1}, "flat >= 0"),
    "cosine_k_decay": (
        library.cosine_k_decay(1, 0, 20, warmup=4, cooldown=4),
        {"cooldown": 16},
        r"cooldown \+ warmup < steps",
    ),
    "tanh_decay": (library.tanh_decay(1, 0, 10), {"low": 3}, "low < high"),
    "hyperbolic": (library.hyperbolic(1, 0, 10, 20), {"bound": 9}, "steps <= bound"),
    "slanted_triangular": (library.slanted_triangular(1, 20), {"cut": 0.01}, r"cut\*steps >= 1"),
    "exponential": (library.exponential(1, 0.5, 3), {"rate": -0.5}, "rate >= 0"),
    "inverse_time": (library.inverse_time(1, 1, power=-2), {"power": 3}, "power < 0"),
    "one_cycle": (library.one_cycle(1, 2, 0, 20), {"rise": 0.05}, r"Ne\(rise\*steps, 1\)"),
    "one_cycle, all rise": (library.one_cycle(1, 2, 0, 20), {"rise": 1}, "rise.*steps - 1"),
    "wsd": (library.wsd(1, 0, 20, 4, 6), {"warmup": 15}, r"decay \+ warmup <= steps"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_library_schedule_is_not_bound_outside_of_its_domain(name: str) -> None:
    schedule, values, condition = OUTSIDE[name]
    with pytest.raises(DomainError, match=f"^{condition} must hold, got "):
        schedule.bind(**values)
