"""Points at which facts hold, to guess what may be true before a proof of it is looked for.

Nothing follows from a point but that a truth is false there, within the rounding of floats: a guess
that is wrong costs or saves work, and never decides.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from flint import fmpq

from closedform.effort import Effort, spend
from closedform.language.exact import nearest_float
from closedform.verify.checker.polynomials import Monomial
from closedform.verify.checker.replay import Replay
from closedform.verify.checker.terms import Node
from closedform.verify.search.solver import (
    Question,
    Solver,
    has_long_numbers,
    print_number,
    print_relation,
)

_POINTS = 12
_UNITS = 50_000  # of z3, for one point
_SLACK = 1e-9
_BOUNDS = fmpq(1, 5), fmpq(3, 4), *map(fmpq, (0, 1, 2, 3, 5, 8, 13, 40, 150))


class Points:
    """The values of terms at points at which facts about symbols hold.

    Args:
        replay: The terms and rules of the checker.
        solver: The context of the questions for points.
        facts: The facts that hold at the points.
        roots: The terms whose symbols have values, besides those of the facts.
        effort: The work that it may do.
        below_0: Whether symbols without a sign are below 0 at half of the points.
    """

    def __init__(
        self,
        replay: Replay,
        solver: Solver,
        facts: Sequence[int],
        roots: Iterable[int],
        effort: Effort,
        *,
        below_0: bool = False,
    ) -> None:
        self.terms = replay.terms
        nodes = self.terms.nodes
        below = self.terms.below(*facts, *roots)
        symbols = [term for term in below if nodes[term][0] == "symbol"]
        points = _points(replay, solver, facts, symbols, effort, below_0=below_0)
        self._values = [p for p in points if all(self._truth(fact, p) for fact in facts)]

    def may_hold(self, truth: int) -> bool:
        """Returns whether a relation is false at no point."""
        return all(self._truth(truth, values) is not False for values in self._values)

    def range_of(self, number: int) -> tuple[float, float] | None:
        """Returns the least and the greatest value of a number at the points."""
        values = [value for value in self._numbers(number) if not math.isnan(value)]
        return (min(values), max(values)) if values else None

    def are_equal(self, first: int, second: int) -> bool:
        """Returns whether two numbers are equal at half of the points, and differ at none."""
        pairs = list(zip(self._numbers(first), self._numbers(second), strict=True))
        pairs = [(a, b) for a, b in pairs if not math.isnan(a) and not math.isnan(b)]
        return len(pairs) > _POINTS // 2 and all(
            abs(a - b) <= _SLACK * (abs(a) + abs(b)) for a, b in pairs
        )

    def _numbers(self, number: int) -> list[float]:
        return [self._value(number, values) for values in self._values]

    def _truth(self, truth: int, values: dict[int, float]) -> bool | None:
        op, args, _ = self.terms.nodes[truth]
        if op in ("true", "false"):
            return op == "true"
        if op in ("and", "or", "not"):
            parts = [self._truth(arg, values) for arg in args]
            if op == "not":
                return None if parts[0] is None else not parts[0]
            if (op == "or") in parts:
                return op == "or"
            return None if None in parts else op == "and"
        left, right = (self._value(arg, values) for arg in args)
        if math.isnan(left) or math.isnan(right):
            return None
        slack = _SLACK * (1 + abs(left) + abs(right))
        if op == "=":
            return abs(left - right) <= slack
        return left < right if op == "<" and abs(left - right) > slack else left <= right + slack

    def _value(self, number: int, values: dict[int, float]) -> float:
        if number not in values:
            for term in self.terms.below(number):
                if term not in values and not self.terms.is_truth(term):
                    values[term] = self._evaluate(self.terms.nodes[term], values)
                    spend(1)
        return values[number]

    def _evaluate(self, node: Node, values: dict[int, float]) -> float:
        op, args, value = node
        if op == "rational":
            return _to_float(cast("fmpq", value))
        if op == "ite":
            truth = self._truth(args[0], values)
            return math.nan if truth is None else values[args[1] if truth else args[2]]
        make = _FUNCTIONS.get(op)
        if make is None:
            return math.nan
        try:
            result = make([values[arg] for arg in args])
        except (ArithmeticError, ValueError):
            return math.nan
        return result if isinstance(result, float) and math.isfinite(result) else math.nan


def _to_float(number: fmpq) -> float:
    nearest = nearest_float(number)
    return nearest if math.isfinite(nearest) else math.nan


_FUNCTIONS: dict[str, Callable[[list[float]], Any]] = {
    "pi": lambda _: math.pi,
    "+": lambda numbers: math.fsum(numbers),
    "*": lambda numbers: math.prod(numbers),
    "/": lambda numbers: numbers[0] / numbers[1],
    "^": lambda numbers: numbers[0] ** numbers[1],
    "min": min,
    "max": max,
    "abs": lambda numbers: abs(numbers[0]),
    "sign": lambda numbers: float((numbers[0] > 0) - (numbers[0] < 0)),
    "floor": lambda numbers: float(math.floor(numbers[0] + _SLACK)),
    "cospi": lambda numbers: math.cos(math.pi * math.fmod(numbers[0], 2)),
    "sinpi": lambda numbers: math.sin(math.pi * math.fmod(numbers[0], 2)),
    "exp": lambda numbers: math.exp(numbers[0]),
    "log": lambda numbers: math.log(numbers[0]),
    "atan": lambda numbers: math.atan(numbers[0]),
}


def _points(
    replay: Replay,
    solver: Solver,
    facts: Sequence[int],
    symbols: Sequence[int],
    effort: Effort,
    *,
    below_0: bool,
) -> list[dict[int, float]]:
    """Points at which the linear facts hold, with bounds of symbols at random."""
    nodes, forms = replay.terms.nodes, replay.forms
    names: dict[Monomial, str] = {
        ((next(iter(forms.of(symbol)))[0][0], 1),): f"s{place}"
        for place, symbol in enumerate(symbols)
    }
    literals = [literal for fact in facts if (literal := replay.literal(fact)) is not None]
    if has_long_numbers(literal.form for literal in literals):
        return []
    points: list[dict[int, float]] = []
    with solver.question("QF_LIRA") as question:
        declarations = [cast("tuple[str, bool, str]", nodes[symbol][2]) for symbol in symbols]
        for name, (_, is_integer, _) in zip(names.values(), declarations, strict=True):
            question.declare(name, "Int" if is_integer else "Real")
        for literal in literals:
            if all(not monomial or monomial in names for monomial in literal.form):
                question.state(print_relation(literal, lambda monomial: names[monomial]))
        for seed in range(_POINTS):
            question.push()
            is_below_0 = below_0 and seed % 2
            signs = [-1 if is_below_0 and sign == "any" else 1 for _, _, sign in declarations]
            signed_names = [*zip(names.values(), signs, strict=True)]
            count = 1 + _add_bounds(question, signed_names, random.Random(seed), effort)
            if question.check(effort, _UNITS):
                values = question.values()
                numbers = (_to_float(values.get(name, fmpq(0))) for name in names.values())
                points.append(dict(zip(symbols, numbers, strict=True)))
            question.pop(count)
    return points


def _add_bounds(
    question: Question,
    signed_names: Sequence[tuple[str, int]],
    chance: random.Random,
    effort: Effort,
) -> int:
    """States a bound of each symbol that may have it; the number of pushes to take back."""
    count = 0
    for name, sign in chance.sample(signed_names, len(signed_names)):
        bound = print_number(chance.choice(_BOUNDS) * sign)
        question.push()
        question.state(f"({'>=' if chance.random() < 0.6 else '<='} {name} {bound})")
        if question.check(effort, _UNITS):
            count += 1
        else:
            question.pop()
    return count
