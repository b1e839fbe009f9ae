"""Candidates for claims about a schedule: bounds, directions and ends, from exact values.

A guess proves nothing; each becomes a claim, and the prover judges it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
from flint import arb, fmpq
from sympy.core.relational import Relational

from closedform.language import Schedule, t
from closedform.language.boundaries import root_of_line
from closedform.verify.claims.reading import ScheduleReading
from closedform.verify.terms.build import rational, substitute
from closedform.verify.terms.evaluate import Undefined, holds, value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.real_line import RealCell, cells_of, choice_cells
from closedform.verify.terms.sympy_io import CLOCK, term
from closedform.verify.terms.tree import Sign, Term, symbols

Point = Mapping[str, fmpq]
Number = fmpq | arb

# Steps after the last joint: an unbounded cell has no middle, and what decays is small far out.
_STEPS_BEYOND = (0, 1, 2, 3, 5, 8, 13, 40, 100, 1000)


def draws(reading: ScheduleReading, seed: int = 0) -> list[Point]:
    """Returns values of the open hyperparameters that satisfy all assumptions."""
    names = {name: node for name, node in symbols(reading.value).items() if node != CLOCK}
    if not names:
        return [{}]
    generator = random.Random(seed)
    points: list[Point] = []
    for _ in range(LIMITS.guess_attempts):
        point = {name: _draw(node, generator) for name, node in names.items()}
        if all(_holds(fact, point) for fact in reading.assume):
            points.append(point)
            if len(points) == LIMITS.guess_draws:
                break
    return points


def _holds(fact: Term, point: Point) -> bool:
    missing = set(symbols(fact)) - set(point)
    # Symbols that the value lacks are 1: they change no sample.
    return holds(fact, {**point, **dict.fromkeys(missing, fmpq(1))}) is True


def _draw(node: Term, generator: random.Random) -> fmpq:
    symbol_value = node.value
    if symbol_value.integer:
        number = fmpq(generator.choice((1, 2, 3, 4, 5, 7, 10, 12, 20, 30, 50)))
    else:
        number = fmpq(generator.randint(0, 12), generator.choice((1, 2, 4, 10, 12)))
    if symbol_value.sign is Sign.POSITIVE and number == 0:
        return fmpq(1)
    if symbol_value.sign is Sign.ANY and generator.random() < 0.2:
        return -number
    return number


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a schedule at one point."""

    point: Point
    value: Number


def sample_cells(reading: ScheduleReading, seed: int = 0) -> list[Sample]:
    """Returns values on every cell: its first and last steps, one between, and some beyond."""
    samples: list[Sample] = []
    declared_symbols = symbols(reading.value)
    for parameters in draws(reading, seed):
        numbers_by_symbol = {
            declared_symbols[name]: rational(number) for name, number in parameters.items()
        }
        cells = (
            choice_cells(substitute(reading.value, numbers_by_symbol))
            if numbers_by_symbol
            else cells_of(reading.schedule)
        )
        if numbers_by_symbol and len(cells) > LIMITS.guess_cells:
            cells = random.Random(seed).sample(cells, LIMITS.guess_cells)
        for cell in cells:
            for step in _steps_of(cell, is_one_of_many=len(cells) > LIMITS.guess_cells):
                point = {**parameters, "t": fmpq(step)}
                number = value(cell.value, point)
                if not isinstance(number, Undefined):
                    samples.append(Sample(point, number))
    if len(samples) > LIMITS.guess_samples and declared_symbols.keys() - {"t"}:
        return random.Random(seed).sample(samples, LIMITS.guess_samples)
    return samples


def _steps_of(cell: RealCell, *, is_one_of_many: bool) -> list[int]:
    """Some steps that lie in a cell."""
    first, last = cell.first, cell.last
    if last is None:
        return [first + more for more in _STEPS_BEYOND]
    if is_one_of_many:
        return sorted({first, last}) if first <= last else []
    steps = {first, first + 1, (first + last) // 2, last - 1, last}
    return [step for step in sorted(steps) if first <= step <= last]


@dataclass(frozen=True, slots=True)
class BoundCandidate:
    """A candidate for a bound: the claim and its term."""

    expr: sp.Expr
    term: Term


def bounds(
    candidates: Sequence[BoundCandidate], samples: Sequence[Sample], *, is_lower: bool
) -> Iterator[BoundCandidate]:
    """Yields bounds that no sample contradicts, the simplest first, of one size the nearest first.

    Each is a value of the schedule, a hyperparameter or 0, or the least (greatest) of a few.
    """
    columns = {
        candidate.expr: [_at(candidate.term, sample.point) for sample in samples]
        for candidate in candidates
    }
    usable = [
        candidate for candidate in candidates if all(c is not None for c in columns[candidate.expr])
    ]
    for size in range(1, LIMITS.guess_parts + 1):
        fitting = []
        for selection in itertools.combinations(usable, size):
            gap = _gap(
                [columns[candidate.expr] for candidate in selection], samples, is_lower=is_lower
            )
            if gap is not None:
                joint_bound = _join_bounds(selection, is_lower=is_lower)
                fitting.append(
                    (gap, joint_bound.expr.count_ops(), str(joint_bound.expr), joint_bound)
                )
        yield from (bound for *_, bound in sorted(fitting, key=lambda candidate: candidate[:3]))


def _at(candidate: Term, point: Point) -> Number | None:
    result = value(candidate, point)
    return None if isinstance(result, Undefined) else result


def _gap(
    columns: Sequence[Sequence[Any]], samples: Sequence[Sample], *, is_lower: bool
) -> float | None:
    """The mean distance of the samples from the bound; None where one is beyond it."""
    distance = 0.0
    for sample, *limits in zip(samples, *columns, strict=True):
        apart = [
            arb(sample.value) - arb(limit) if is_lower else arb(limit) - arb(sample.value)
            for limit in limits
        ]
        # A ball around 0 is a bound that is met.
        if all(difference < 0 for difference in apart):
            return None
        distance += max(float(difference.mid()) for difference in apart)
    return distance / max(len(samples), 1)


def _join_bounds(selection: tuple[BoundCandidate, ...], *, is_lower: bool) -> BoundCandidate:
    if len(selection) == 1:
        return selection[0]
    exprs = [candidate.expr for candidate in selection]
    joined_expr = (sp.Min if is_lower else sp.Max)(*exprs)
    return BoundCandidate(joined_expr, term(joined_expr))


def candidates_of(reading: ScheduleReading, samples: Sequence[Sample]) -> list[BoundCandidate]:
    """Returns candidate bounds: 0, values where the schedule turns, hyperparameters."""
    schedule = reading.schedule
    exprs: dict[sp.Expr, None] = {sp.Integer(0): None}
    if not schedule.open:
        exprs.update(dict.fromkeys(_extremes(samples)))
    elif schedule.expr.count(Relational) <= LIMITS.guess_turns:
        exprs.update(dict.fromkeys(_values_at_turns(schedule)))
    for symbol in sorted(schedule.expr.free_symbols - {t}, key=str):
        # A name declared as positive is a length or a factor, not a value of the schedule.
        if not symbol.is_positive:
            exprs[schedule.hyperparameters.get(symbol.name, symbol)] = None
    return [BoundCandidate(expr, term(expr)) for expr in exprs if _is_readable(expr)]


def _extremes(samples: Sequence[Sample]) -> Iterator[sp.Rational]:
    """The least and the greatest value seen, where they are fractions."""
    for choose in (min, max):
        extreme = choose((sample.value for sample in samples), key=_middle, default=None)
        if isinstance(extreme, fmpq):
            yield sp.Rational(int(extreme.p), int(extreme.q))


def _middle(number: Number) -> arb:
    """The sort key of values; a ball may be too large for a fraction."""
    return arb(number).mid()


def _is_readable(expr: sp.Expr) -> bool:
    small = sum(1 for _ in itertools.islice(sp.preorder_traversal(expr), LIMITS.guess_size + 1))
    if expr.is_number:
        return bool(expr.is_Rational) and len(str(expr)) <= LIMITS.guess_size
    return small <= LIMITS.guess_size and not expr.has(t, sp.Piecewise, sp.zoo, sp.nan, sp.oo)


def _values_at_turns(schedule: Schedule) -> Iterator[sp.Expr]:
    """The values at 0, at the end, and where a branch, a Min or a Max turns."""
    turns = [sp.Integer(0)]
    if schedule.duration is not None:
        turns.append(schedule.duration if schedule.length is None else schedule.length)
    for difference in differences(schedule.bound):
        root = root_of_line(difference)
        if root is not None:
            turns.append(root)
    for turn in dict.fromkeys(turns):
        yield schedule.bound.xreplace({t: turn})


def differences(expr: sp.Expr) -> Iterator[sp.Expr]:
    """Yields the differences at whose roots a comparison, a Min or a Max of a formula turns."""
    for relation in sorted(expr.atoms(Relational), key=str):
        yield relation.lhs - relation.rhs
    for extreme in sorted(expr.atoms(sp.Min, sp.Max), key=str):
        for first, second in itertools.combinations(extreme.args, 2):
            yield first - second


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps on which a schedule is monotone: from ``first`` to ``last``, None for no end."""

    direction: str
    first: int
    last: int | None


def phases(reading: ScheduleReading) -> tuple[Phase, ...]:
    """Returns the phases of a schedule without open hyperparameters; none where it often turns."""
    cells = cells_of(reading.schedule)
    if len(cells) > LIMITS.guess_cells:
        return ()
    phases_found: list[Phase] = []
    for number, cell in enumerate(cells):
        first = int(cell.low.ceil())
        last = None if cell.high is None else int(cells[number + 1].low.ceil())
        if last is not None and last <= first:
            continue
        # A prime number of steps, so that few periods divide the distances of the samples.
        direction = _direction(reading, first, first + 97 if last is None else last)
        if direction is None:
            return ()
        if phases_found and (joint_direction := _together(phases_found[-1].direction, direction)):
            phases_found[-1] = Phase(joint_direction, phases_found[-1].first, last)
        else:
            phases_found.append(Phase(direction, first, last))
    return tuple(phases_found) if len(phases_found) <= LIMITS.guess_phases else ()


def _together(first: str, second: str) -> str | None:
    if "constant" in (first, second):
        return second if first == "constant" else first
    return first if first == second else None


def _direction(reading: ScheduleReading, first: int, last: int) -> str | None:
    """The way of the samples on some steps, both ends among them; None where it turns."""
    count = min(last - first, LIMITS.phase_samples)
    steps = sorted({first + (last - first) * index // count for index in range(count + 1)})
    values = [value(reading.value, {"t": fmpq(step)}) for step in steps]
    if any(isinstance(result, Undefined) for result in values):
        return None
    signs = {_sign(after, before) for before, after in itertools.pairwise(values)} - {0}
    if len(signs) == 2:
        return None
    return {1: "increasing", -1: "decreasing"}[signs.pop()] if signs else "constant"


def _sign(left: Number, right: Number) -> int:
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return (left > right) - (left < right)
    difference = arb(left) - arb(right)
    return 1 if difference > 0 else -1 if difference < 0 else 0
