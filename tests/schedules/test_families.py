"""Each family against its formula in plain Python, written anew: every step, past every end."""

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pytest
import sympy as sp

from closedform import schedules as library
from closedform.compiler import compile_schedule
from closedform.ir.text import print_graph
from closedform.language import Schedule, t


def swing(a: float, b: float, p: float) -> float:
    return b + (a - b) * (1 + math.cos(math.pi * p)) / 2


def restarts(first: int, factor: int) -> Callable[[int], float]:
    starts = [0, *accumulate(first * factor**i for i in range(30))]

    def value(step: int) -> float:
        i = bisect_right(starts, step) - 1
        return swing(1, 0.1, (step - starts[i]) / (first * factor**i))

    return value


def triangle(step: int, up: int, down: int) -> tuple[float, int]:
    cycle, place = divmod(step, up + down)
    return (place / up if place <= up else 1 - (place - up) / down), cycle + 1


def cyclic(up: int, down: int, factor: Callable[[int, int], float]) -> Callable[[int], float]:
    def value(step: int) -> float:
        height, cycle = triangle(step, up, down)
        return 0.1 + 0.9 * height * factor(step, cycle)

    return value


def phases(marks: list[float], values: list[float], end: float) -> Callable[[int], float]:
    def value(step: int) -> float:
        now = min(step, end)
        j = sum(1 for mark in marks[:-1] if now > mark)
        begin = marks[j - 1] if j else 0
        return swing(values[j], values[j + 1], (now - begin) / (marks[j] - begin))

    return value


def k_decay(step: int) -> float:
    if step < 20:
        return 0.1 + 0.9 * step / 20
    return swing(1, 0.2, ((step - 20) / 70) ** 1.5) if step < 90 else 0.2


def trapezium(shape: Callable[[float], float]) -> Callable[[int], float]:
    def value(step: int) -> float:
        if step < 10:
            return 0.5 + 0.5 * step / 10
        return shape(min(max(step - 80, 0) / 20, 1.0))

    return value


def stops(step: int) -> float:
    for begin, stop, falling in ((0, 25, 5), (25, 50, 5), (50, 100, 10)):
        if step < stop:
            return 1 - 0.9 * max(0, step - (stop - falling)) / falling if step >= begin else 0
    return 0.1


def slanted(step: int) -> float:
    p = step / 5 if step < 5 else max(0, (55 - step) / 50)
    return (1 + 31 * p) / 32


SHAPES = {
    "linear": lambda p: 1 - 0.9 * p,
    "sqrt": lambda p: 0.1 + 0.9 * (1 - math.sqrt(p)),
    "inverse": lambda p: 1 / (p / 0.1 + 1 - p),
    "cosine": lambda p: swing(1, 0.1, p),
    "square": lambda p: 0.1 + 0.9 * (1 - p * p),
    "exponential": lambda p: 0.1**p,
}

FAMILIES: dict[str, tuple[Schedule, Callable[[int], float]]] = {
    "exponential": (library.exponential(2, 0.9, 7), lambda n: 2 * 0.9 ** (n / 7)),
    "staircase": (
        library.exponential(2, -0.9, 7, staircase=True),
        lambda n: 2 * (-0.9) ** (n // 7),
    ),
    "rate 0": (library.exponential(2, 0, 7), lambda n: 0 if n else 2),
    "step over 5/2": (library.step_decay(1, 0.5, 2.5), lambda n: 0.5 ** math.floor(n / 2.5)),
    "multiplicative": (library.multiplicative(1, -0.9), lambda n: (-0.9) ** n),
    "inverse time": (library.inverse_time(1, 0.5, 10), lambda n: 1 / (1 + n / 20)),
    "inverse staircase": (
        library.inverse_time(1, 0.5, 50, 2, staircase=True),
        lambda n: 1 / (1 + 0.5 * (n * n // 50)),
    ),
    "inverse of a root": (library.inverse_time(1, 2, 4, 0.5), lambda n: 1 / (1 + n**0.5 / 2)),
    "inverse of power -1": (
        library.inverse_time(1, 0.5, 5, -1),
        lambda n: 1 / (1 + 0.1 / n) if n else 0,
    ),
    "fsl": (library.fsl(2, 50, 1.7), lambda n: 2 * (1 - min(n, 50) / 50) ** 2.4),
    "power": (library.power(2, -0.51, 20), lambda n: 2 * (max(n, 20) / 20) ** -0.51),
    "noam": (
        library.noam(256, 40, 2),
        lambda n: 2 / 16 * min((n + 1) ** -0.5, (n + 1) * 40**-1.5),
    ),
    "restarts": (library.warm_restarts(1, 0.1, 10), restarts(10, 1)),
    "restarts, twice as long": (library.warm_restarts(1, 0.1, 7, 2), restarts(7, 2)),
    "restarts, thrice from 1": (library.warm_restarts(1, 0.1, 1, 3), restarts(1, 3)),
    "two restarts": (
        library.warm_restarts(1, 0.1, 10, restarts=2),
        lambda n: swing(1, 0.1, n % 10 / 10) if n < 30 else 0.1,
    ),
    "two longer restarts": (
        library.warm_restarts(1, 0.1, 5, 2, restarts=2),
        lambda n: restarts(5, 2)(n) if n < 35 else 0.1,
    ),
    "hard restarts": (
        library.cosine_hard_restarts(1, 0.1, 100, 2.5),
        lambda n: swing(1, 0.1, n / 40 % 1) if n < 100 else 0.1,
    ),
    "triangular": (library.cyclic(0.1, 1, 5, 8), cyclic(5, 8, lambda n, k: 1)),
    "triangular2": (
        library.cyclic(0.1, 1, 5, 8, "triangular2"),
        cyclic(5, 8, lambda n, k: 2.0 ** (1 - k)),
    ),
    "exp_range": (
        library.cyclic(0.1, 1, 5, mode="exp_range", gamma=0.95),
        cyclic(5, 5, lambda n, k: 0.95**n),
    ),
    "own scale of the cycle": (
        library.cyclic(0.1, 1, 5, scale=1 / t),
        cyclic(5, 5, lambda n, k: 1 / k),
    ),
    "own scale of the step": (
        library.cyclic(0.1, 1, 5, scale=lambda x: 1 / (1 + x), scale_mode="iterations"),
        cyclic(5, 5, lambda n, k: 1 / (1 + n)),
    ),
    "sawtooth": (library.cyclic(0.1, 1, 5, 0), lambda n: 0.1 + 0.9 * (n % 5) / 5),
    "one cycle": (library.one_cycle(0.1, 1, 0, 50), phases([14, 49], [0.1, 1, 0], 49)),
    "one cycle, fractional peak": (
        library.one_cycle(0.1, 1, 0, 15, 0.25),
        phases([2.75, 14], [0.1, 1, 0], 14),
    ),
    "one cycle in three": (
        library.one_cycle(0.1, 1, 0, 50, three_phase=True),
        phases([14, 28, 49], [0.1, 1, 0.1, 0], 49),
    ),
    "one cycle that goes on": (
        library.one_cycle(0.1, 1, 0, 50, clamp=False),
        phases([14, 49], [0.1, 1, 0], math.inf),
    ),
    "one cycle without a rise": (
        library.one_cycle(0.1, 1, 0, 10, 0),
        phases([-1, 9], [0.1, 1, 0], 9),
    ),
    "momentum": (
        library.one_cycle_momentum(0.95, 0.85, 50),
        phases([14, 49], [0.95, 0.85, 0.95], 49),
    ),
    "k-decay": (library.cosine_k_decay(1, 0.2, 100, 1.5, 20, 0.1, 10), k_decay),
    "flat cosine": (
        library.flat_cosine(1, 0.1, 60, 20),
        lambda n: swing(1, 0.1, min(max(n - 20, 0), 40) / 40),
    ),
    "cosine with a least value": (
        library.cosine_with_min(1, 0.1, 60, 1.5),
        lambda n: swing(1, 0.1, 3 * min(n, 60) / 60),
    ),
    "rex": (
        library.rex(1, 0.1, 50),
        lambda n: 0.1 + 0.9 * (1 - min(n, 50) / 50) / (0.5 + (1 - min(n, 50) / 50) / 2),
    ),
    "tanh": (
        library.tanh_decay(1, 0.1, 50),
        lambda n: 0.1 + 0.45 * (1 - math.tanh(-6 + 9 * min(n, 50) / 50)),
    ),
    "hyperbolic": (
        library.hyperbolic(1, 0.1, 50, 80),
        lambda n: (
            1
            + 0.9
            * (
                math.sqrt((50 - min(n, 50)) / 80 * (2 - (50 + min(n, 50)) / 80))
                - math.sqrt(50 / 80 * (2 - 50 / 80))
            )
        ),
    ),
    "slanted triangle": (library.slanted_triangular(1, 55), slanted),
    "checkpoints": (
        library.wsd_checkpoints(1, 0.1, 100, ratio=0.2, checkpoints=3, shape="linear"),
        stops,
    ),
    "function": (library.function(lambda x: 1 / (2 + x)), lambda n: 1 / (2 + n)),
    "table": (library.table([3, 1, 1, 2]), lambda n: [3, 1, 1, 2][min(n, 3)]),
    "long table": (
        library.table([i * i % 7 for i in range(100)]),
        lambda n: min(n, 99) ** 2 % 7,
    ),
    "repeated": (library.repeat(library.linear(0, 1, 4)), lambda n: n % 4 / 4),
    "repeated early": (library.repeat(library.linear(0, 1, 4), 3), lambda n: n % 3 / 4),
    "spliced": (
        library.splice(library.linear(1, 0, 50), 20, library.linear(1, 0, 100)),
        lambda n: 1 - n / 50 if n < 20 else max(0, 1 - n / 100),
    ),
}
FAMILIES |= {
    f"wsd, {shape}": (library.wsd(1, 0.1, 100, 10, 20, shape, 0.5), trapezium(formula))
    for shape, formula in SHAPES.items()
}


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_its_formula(name: str) -> None:
    schedule, formula = FAMILIES[name]
    steps = np.arange(131)
    expected = np.array([formula(int(step)) for step in steps])
    # float64: the plain formula and the graph each round some ten times, by 1.1e-16 of the scale
    np.testing.assert_allclose(schedule(steps), expected, rtol=0, atol=4e-15)
    exact = np.array([float(sp.N(schedule.exact(int(step)), 30)) for step in steps[::5]])
    np.testing.assert_allclose(exact, expected[::5], rtol=0, atol=4e-15)


GOLDEN = {
    "warm_restarts": library.warm_restarts(1, 0.1, 10, 2, restarts=3),
    "cyclic": library.cyclic(0.1, 1, 5, 8, "triangular2"),
    "one_cycle_linear": library.one_cycle(0.1, 1, 0, 50, anneal="linear"),
    "wsd_sqrt": library.wsd(1, 0, 100, 10, 20, "sqrt"),
    "wsd_checkpoints": library.wsd_checkpoints(1, 0, 100, 10, 0.2, 3),
    "table": library.table([0.1, 0.5, 0.25, 0.3, 0.4, 0.4, 0.7]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"schedules/{name}", print_graph(compile_schedule(GOLDEN[name])))


def test_methods_are_the_functions() -> None:
    line, other = library.linear(0, 1, 4), library.linear(0, 1, 8)
    assert line.repeat(3) == library.repeat(line, 3)
    assert line.splice(2, other) == library.splice(line, 2, other)


LENGTHS = {
    "restarts": None,
    "two restarts": 30,
    "two longer restarts": 35,
    "triangular": None,
    "one cycle": 50,
    "k-decay": 100,
    "checkpoints": 100,
    "table": 4,
    "wsd, sqrt": 100,
    "repeated": None,
    "spliced": 100,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_family_has_its_length(name: str) -> None:
    assert FAMILIES[name][0].length == LENGTHS[name]


def test_restarts_are_exact_to_the_end_of_the_clock() -> None:
    schedule = library.warm_restarts(1, 0, 1, 2)
    for power in (10, 30, 49, 50):
        assert schedule.exact(2**power - 1) == 1
        assert schedule(2**power - 1) == 1.0
        half = 2**power - 1 + 2 ** (power - 1)
        if half <= 2**50:
            assert schedule.exact(half) == sp.Rational(1, 2)


def test_the_number_of_branches_does_not_change_the_cost() -> None:
    tables = [[(i * i % 7) / 8 for i in range(n)] for n in (12, 300)]
    sizes = [len(compile_schedule(library.table(values)).nodes) for values in tables]
    assert sizes[0] == sizes[1]
    assert len(compile_schedule(library.warm_restarts(1, 0, 7, 2)).nodes) < 25


FINE = 1.4234567890123457


@pytest.mark.parametrize(
    ("schedule", "value"),
    [
        (library.cosine_k_decay(1, 0, 24, FINE), lambda n: swing(1, 0, (n / 24) ** FINE)),
        (library.power(1, -FINE, 24), lambda n: (max(n, 24) / 24) ** -FINE),
        (library.polynomial(1, 0, 24, FINE), lambda n: (1 - n / 24) ** FINE),
    ],
)
def test_exponents_of_many_digits_are_worked_out(
    schedule: Schedule, value: Callable[[int], float]
) -> None:
    """SymPy works 24 to such a power out as 3 to the power of 10^16."""
    steps = range(24)
    expected = [value(n) for n in steps]
    # Two roundings of the quotient and its power, and those of the cosine.
    np.testing.assert_allclose(schedule(np.array(steps)), expected, rtol=0, atol=5e-16)
    exact = [float(schedule.exact(n)) for n in steps]
    np.testing.assert_allclose(exact, expected, rtol=0, atol=5e-16)
