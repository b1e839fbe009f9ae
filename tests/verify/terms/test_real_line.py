"""Cells between breakpoints, limits from both sides, and jumps, beside exact values."""

from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from flint import fmpq

from closedform import schedules
from closedform.errors import VerificationError
from closedform.language import Schedule, floor_div, floor_mod, hyper, t
from closedform.verify.claims.continuity import continuous, directions_of, jumps, limits
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.linear import line as line_in
from closedform.verify.terms.real_line import (
    TIME,
    as_choices,
    cells_of,
    over_real_clock,
    real_cells,
)
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Op, Term, walk
from tests.test_library import SCHEDULES


def line(expr: sp.Expr) -> Term:
    return over_real_clock(term(expr))


def at(root: Term, time: Any) -> Any:
    number = Fraction(time)
    return value(root, {"t": fmpq(number.numerator, number.denominator)})


CELLS: dict[str, tuple[sp.Expr, list[tuple[str, bool, str | None]]]] = {
    "none": (t / 7, [("0", True, None)]),
    "half open": (sp.Piecewise((1, t < 5), (2, True)), [("0", True, "5"), ("5", True, None)]),
    "closed": (sp.Piecewise((1, t <= 5), (2, True)), [("0", True, "5"), ("5", False, None)]),
    "a point": (
        sp.Piecewise((1, t < 5), (2, t <= 5), (3, True)),
        [("0", True, "5"), ("5", True, "5"), ("5", False, None)],
    ),
    "a fraction": (
        sp.Piecewise((1, 2 * t < 5), (2, True)),
        [("0", True, "5/2"), ("5/2", True, None)],
    ),
    "both": (
        sp.Piecewise((1, (t >= 2) & (t < 4)), (2, True)),
        [("0", True, "2"), ("2", True, "4"), ("4", True, None)],
    ),
    "nested": (
        sp.Piecewise((sp.Piecewise((1, t < 2), (2, True)), t < 4), (3, True)),
        [("0", True, "2"), ("2", True, "4"), ("4", True, None)],
    ),
    "a product": (
        sp.Piecewise((1, t < 3), (2, True)) * sp.Piecewise((1, t < 2), (5, True)),
        [("0", True, "2"), ("2", True, "3"), ("3", True, None)],
    ),
    "a condition on a choice": (
        sp.Piecewise((1, sp.Max(10 - t, 0) < 4), (2, True)),
        [("0", True, "6"), ("6", False, "10"), ("10", False, None)],
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str) -> None:
    expr, wanted = CELLS[name]
    found = real_cells(as_choices(line(expr)))
    shown = [
        (str(cell.low), cell.has_low, None if cell.high is None else str(cell.high))
        for cell in found
    ]
    if name == "a condition on a choice":
        # The choice turns at 10, too: where it does not change the condition, cells may be split.
        assert shown[0] == ("0", True, "6")
    else:
        assert shown == wanted


def test_steps_of_cells() -> None:
    expr = sp.Piecewise((1, t <= 5), (2, 2 * t < 17), (3, t < 20), (4, True))
    found = [(cell.first, cell.last) for cell in cells_of(Schedule(expr))]
    assert found == [(0, 5), (6, 8), (9, 19), (20, None)]


def test_a_condition_that_is_not_a_line_stays() -> None:
    (cell,) = real_cells(line(sp.Piecewise((1, t**2 < 5), (2, True))))
    assert any(node.op is Op.ITE for node in walk(cell.value))


@pytest.mark.parametrize("name", SCHEDULES)
def test_cells_have_the_values_of_the_schedule(name: str) -> None:
    lr = SCHEDULES[name]()
    for cell in cells_of(lr)[:40]:
        last = cell.first + 3 if cell.last is None else cell.last
        for step in {cell.first, min(cell.first + 1, last), last} if last >= cell.first else ():
            # Balls of 128 bits beside 30 digits.
            found = as_float(value(cell.value, {"t": fmpq(step)}))
            assert abs(sp.N(lr.exact(step), 30) - found) < sp.Float("1e-24")


def as_float(number: Any) -> sp.Expr:
    if isinstance(number, fmpq):
        return sp.Rational(int(number.p), int(number.q))
    return sp.Float(number.str(35, radius=False), 35)


@pytest.mark.parametrize(
    ("expr", "slope", "height"),
    [(t / 3 - 2, "1/3", "-2"), ((2 * t + 1) / 4, "1/2", "1/4"), (sp.Integer(7), "0", "7")],
)
def test_lines(expr: sp.Expr, slope: str, height: str) -> None:
    found = line_in(line(expr), TIME)
    assert found is not None
    assert (str(found.slope(TIME)), str(found.constant)) == (slope, height)


@pytest.mark.parametrize("expr", [t**2, 1 / (t + 1), hyper("a") * t, sp.cos(sp.pi * t)])
def test_what_is_not_a_line(expr: sp.Expr) -> None:
    assert line_in(line(expr), TIME) is None


# --- limits --------------------------------------------------------------------------------------

A = hyper("a", positive=True)
# An expression, a point, and what it is just before, there, and just after.
LIMITS: list[tuple[sp.Expr, Any, tuple[int, int, int]]] = [
    (sp.Piecewise((1, t < 5), (2, True)), 5, (1, 2, 2)),
    (sp.Piecewise((1, t <= 5), (2, True)), 5, (1, 1, 2)),
    (sp.Piecewise((1, t > 5), (2, True)), 5, (2, 2, 1)),
    (sp.Piecewise((1, 10 - t < 5), (2, True)), 5, (2, 2, 1)),
    (sp.Piecewise((1, 10 - t <= 5), (2, True)), 5, (2, 1, 1)),
    (sp.Piecewise((7, sp.Eq(t, 5)), (2, True)), 5, (2, 7, 2)),
    (floor_div(t, 5), 5, (0, 1, 1)),
    (floor_div(12 - t, 5), 2, (2, 2, 1)),
    (-floor_div(t, 5), 10, (-1, -2, -2)),
    (sp.floor(sp.Rational(1, 4) * t**2), 4, (3, 4, 4)),
    (floor_mod(t, 5), 5, (5, 0, 0)),
    (sp.Piecewise((floor_div(t, 5), t < 5), (sp.Integer(1), True)), 5, (0, 1, 1)),
    (sp.sign(t - 5), 5, (-1, 0, 1)),
]


@pytest.mark.parametrize(("expr", "point", "wanted"), LIMITS)
def test_limits(expr: sp.Expr, point: Any, wanted: tuple[int, int, int]) -> None:
    root = line(expr)
    ways = {node: way for node, way in directions_of(root).items() if way is not None}
    before, after = limits(root, ways)
    assert (at(before, point), at(root, point), at(after, point)) == wanted
    # The limits are what the expression is close by.
    near = Fraction(1, 10**9)
    assert abs(at(root, Fraction(point) - near) - wanted[0]) < fmpq(1, 10**8)
    assert abs(at(root, Fraction(point) + near) - wanted[2]) < fmpq(1, 10**8)


@pytest.mark.parametrize(
    ("left", "right", "way"),
    [
        (t, A, 1),
        (A, t, -1),
        (2 * t + 1, 3 - t, 1),
        (A / (t + 1), 1, -1),
        ((t + 1) ** A, 3, 1),
        (sp.Rational(1, 2) * sp.sqrt(t + 1), 3, 1),
        (sp.exp(t / A), 3, 1),
        (sp.Min(t, A), 3, None),
        (sp.Max(t, 2 * t), 3, 1),
        (hyper("b") * t, 3, None),
        (t - t**2, 3, None),
        (sp.cos(sp.pi * t), 0, None),
    ],
)
def test_directions(left: sp.Expr, right: sp.Expr, way: int | None) -> None:
    condition = line(sp.Piecewise((1, sp.Lt(left, right, evaluate=False)), (2, True)))
    ways = {node: found for node, found in directions_of(condition).items() if node.op is Op.LESS}
    assert list(ways.values()) == [way]


def test_what_does_not_move_has_no_direction() -> None:
    condition = line(sp.Piecewise((1, hyper("b") < 3), (2, True)))
    assert directions_of(condition) == {}


# --- jumps ---------------------------------------------------------------------------------------

JUMPS: dict[str, tuple[Schedule, int, list[tuple[int, str]]]] = {
    "stairs": (
        schedules.step_decay(1, 0.5, 10),
        25,
        [(10, "from 1 to 1/2 at step 10"), (20, "from 1/2 to 1/4 at step 20")],
    ),
    "closed": (
        Schedule(sp.Piecewise((1, t <= 5), (2, True))),
        9,
        [(6, "from 1 to 2 at step 6")],
    ),
    "between two steps": (
        Schedule(sp.Piecewise((1, 2 * t < 5), (2, True))),
        9,
        [(3, "from 1 to 2 at step 3")],
    ),
    "to a pole": (
        Schedule(sp.Piecewise((1, t < 5), (1 / (t - 5), t > 5), (3, True))),
        9,
        [(5, "from 1 to undefined at step 5")],
    ),
    "none": (schedules.cosine(1, 0, 10), 99, []),
    "two that cancel": (
        Schedule(floor_mod(t, 5) + 5 * floor_div(t, 5)),
        99,
        [],
    ),
    "a jump of a root": (
        Schedule(sp.Piecewise((sp.sqrt(2), t < 3), (1, True))),
        9,
        [(3, "from ≈ 1.4142136 to 1 at step 3")],
    ),
}


@pytest.mark.parametrize("name", JUMPS)
def test_jumps(name: str) -> None:
    lr, until, wanted = JUMPS[name]
    assert [(jump.step, str(jump)) for jump in jumps(lr, until)] == wanted
    claim = continuous(lr)
    assert claim.verify().refuted == bool(wanted)


def test_jumps_are_counted_up_to_a_number() -> None:
    assert len(jumps(schedules.step_decay(1, 0.5, 2), 100, most=7)) == 7


def test_jumps_need_values() -> None:
    with pytest.raises(VerificationError) as caught:
        jumps(schedules.step_decay(1, 0.5, 10).unbind("gamma"), 9)
    assert str(caught.value) == (
        "gamma has no value (schedule 'step_decay'): give it one with bind()"
    )


def test_coinciding_changes_are_looked_at_together() -> None:
    # Neither change alone is a jump once the other has happened: their order matters.
    both = sp.Piecewise((floor_div(t, 5), t < 5), (1, True))
    assert continuous(Schedule(both)).verify().refuted
    steps = hyper("steps", integer=True, positive=True)
    free = sp.Piecewise((floor_div(t, steps), t < steps), (1, True))
    verdict = continuous(Schedule(free)).verify()
    assert verdict.refuted
    # There the count is about to be 1, and the branch that counts is left.
    point = verdict.counterexample or {}
    assert point["t"] == point["steps"]


def test_what_cannot_be_looked_at_is_unknown() -> None:
    nested = Schedule(floor_div(t + floor_div(t, hyper("a", positive=True)), 7))
    verdict = continuous(nested).verify()
    assert verdict.unknown
    assert "a floor of what jumps itself: not looked at" in verdict.reason
    cosine = Schedule(
        sp.Piecewise((1, sp.cos(sp.pi * t / hyper("n", positive=True)) < 0), (2, True))
    )
    assert continuous(cosine).verify().unknown


def test_what_stands_still_at_a_comparison_does_not_cross_it() -> None:
    still = Schedule(sp.Piecewise((1, sp.Lt(sp.Min(t, A), 3, evaluate=False)), (2, True)))
    # With a = 3 it reaches 3 at t = 3, which is a jump, and is at 3 for ever, which is none.
    assert not continuous(still, jumps=[3]).verify().refuted


def test_a_sign_is_a_jump_with_open_hyperparameters_too() -> None:
    assert continuous(Schedule(sp.sign(t - A))).verify().refuted
    assert continuous(Schedule(sp.Abs(t - A))).verify().proved
