"""Guard: every partial function gets an operand that is safe at every step.

Both sides of a Where are computed, also where a branch is not taken. There a square root of a
negative number, a division by zero or a logarithm of zero must not happen: an integer remainder by
zero ends a whole onnxruntime run, and a NaN in a branch not taken poisons its gradient.

Where intervals show that the operand is legal in the branch but not outside of it, the operand is
clamped to its bound in the branch (``Max(x, low)``, ``Min(x, high)``), which changes no value that
is taken. Where they show nothing, the operand is replaced by 1 outside of the branch
(``SafeOperand``). An operand that is illegal at a step at which it is taken is an error that names
the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp
from sympy.core.relational import Relational

from closedform.errors import DomainError
from closedform.language.exact import holds_at, value_at
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.settled import construct
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import branches, interval, is_integral
from closedform.lowering.analysis.domain import Domain, Interval, linear_in, narrow, point
from closedform.lowering.safe_operand import SafeOperand

# Exact powers with the clock in the exponent have as many digits as there are steps; exp(t*log(2))
# is such a power to SymPy.
_LAST_OF_POWERS = 1000


@dataclass(frozen=True, slots=True)
class Requirement:
    """The condition that an operand of a partial function must satisfy."""

    requirement: str
    is_met: Callable[[Interval], bool]
    relation: type[Relational]


@dataclass(frozen=True, eq=False)
class Path:
    """The branch of an operand: its condition holds, those before it do not.

    Attributes:
        parent: The branch around it; None for the whole expression.
        conditions: Those of all branches up to it, or of more: they share one list.
        place: The index of the condition.
        excuses: Partial arguments of the And or Or that the operand is in, with the truth by which
            each decides it: where one of them does, the operand does not matter.
    """

    parent: Path | None = None
    conditions: Sequence[sp.Basic] = ()
    place: int = 0
    excuses: tuple[tuple[sp.Basic, bool], ...] = ()

    def expression(self, tensors: frozenset[sp.Symbol] = frozenset()) -> sp.Basic:
        """Returns the condition under which the branch is taken, as far as scalars decide it."""
        if self.parent is None:
            return sp.true
        *before, condition = self.conditions[: self.place + 1]
        parts = [condition, *(sp.Not(earlier) for earlier in before)]
        scalar = [part for part in parts if not part.free_symbols & tensors]
        return sp.And(self.parent.expression(tensors), *scalar)

    def has_excuses(self) -> bool:
        """Whether other partial arguments may decide an And or Or that the operand is in."""
        return bool(self.excuses) or (self.parent is not None and self.parent.has_excuses())

    def is_excused(self, values: dict[sp.Symbol, sp.Expr]) -> bool:
        """Whether such an argument has a value that decides at these values."""
        decides = any(_is(truth, statement, values) for statement, truth in self.excuses)
        return decides or (self.parent is not None and self.parent.is_excused(values))


def _is(truth: bool, condition: sp.Basic, values: dict[sp.Symbol, sp.Expr]) -> bool:
    """Whether a condition has a value, and this one."""
    try:
        return holds_at(condition, values) is truth
    except DomainError:
        return False


NONZERO = Requirement("not zero", lambda values: values.is_nonzero, sp.Ne)
POSITIVE = Requirement("above zero", lambda values: values.is_positive, sp.Gt)
NONNEGATIVE = Requirement("not below zero", lambda values: values.is_nonnegative, sp.Ge)


def guard(
    expr: sp.Expr,
    domain: Domain,
    place: str,
    *,
    tensors: frozenset[sp.Symbol] = frozenset(),
    numbers: Mapping[sp.Symbol, sp.Expr] | None = None,
) -> sp.Expr:
    """Returns ``expr`` with safe operands; values on the domain are unchanged.

    Args:
        expr: A simplified expression.
        domain: Every step at which the graph may run.
        place: What the expression belongs to, named in errors.
        tensors: Symbols whose values are data; operands with them follow IEEE arithmetic and are
            left unchanged.
        numbers: Values of hyperparameters that are symbols of ``expr``.

    Raises:
        DomainError: An operand is illegal at a step at which it is taken, or holds a hyperparameter
            that may make it so.
    """
    return _Guard(domain, place, tensors, numbers or {}).visit(expr, domain, Path())


class _Guard:
    def __init__(
        self,
        outer: Domain,
        place: str,
        tensors: frozenset[sp.Symbol],
        numbers: Mapping[sp.Symbol, sp.Expr],
    ) -> None:
        self.outer = outer
        self.place = place
        self.tensors = tensors
        self.numbers = numbers
        self._known: dict[tuple[sp.Basic, Domain, Path], sp.Basic] = {}

    def visit(self, expr: sp.Basic, domain: Domain, path: Path) -> sp.Basic:
        if not expr.args or expr.is_number:
            return expr
        key = (expr, domain, path)
        if key not in self._known:
            self._known[key] = self._rewrite(expr, domain, path)
        return self._known[key]

    def _rewrite(self, expr: sp.Basic, domain: Domain, path: Path) -> sp.Basic:
        if isinstance(expr, sp.Piecewise):
            return self._piecewise(expr, domain, path)
        if isinstance(expr, sp.And | sp.Or):
            return self._junction(expr, domain, path)
        args = [self.visit(arg, domain, path) for arg in expr.args]
        requirement = _requirement(expr, domain)
        if requirement is not None:
            place, needs = requirement
            args[place] = self._safe(args[place], needs, domain, path, expr)
        return expr if tuple(args) == expr.args else expr.func(*args)

    def _piecewise(self, expr: sp.Piecewise, domain: Domain, path: Path) -> sp.Expr:
        guarded_branches = []
        conditions: list[sp.Basic] = []
        for value, condition, inside in branches(expr, domain):
            conditions.append(condition)
            here = Path(path, conditions, len(conditions) - 1)
            guarded_branches.append(
                (self.visit(value, inside, here), self.visit(condition, domain, path))
            )
        # Branches that no step of the domain reaches are left out; the last one left has the rest.
        if len(guarded_branches) < len(expr.args) and expr.args[-1].cond == sp.true:
            guarded_branches[-1] = guarded_branches[-1][0], sp.true
        is_unchanged = all(
            new[0] is old[0] and new[1] is old[1]
            for new, old in zip(guarded_branches, expr.args, strict=False)
        )
        return (
            expr
            if is_unchanged and len(guarded_branches) == len(expr.args)
            else sp.Piecewise(*guarded_branches)
        )

    def _junction(self, expr: sp.Basic, domain: Domain, path: Path) -> sp.Basic:
        """An And matters to an argument only where the others hold, an Or where they do not.

        Only arguments that are total by themselves are conditions of a safe operand: were two
        partial ones to lean on each other, both could be changed at the same step. Partial ones
        excuse each other: where one decides, the operand of another may be illegal.
        """
        is_and = isinstance(expr, sp.And)
        total = [arg for arg in expr.args if self._is_total(arg)]
        total_part = expr.func(*total)
        inside = narrow(domain, total_part, holds=is_and)
        if len(total) == len(expr.args) or inside is None:
            return expr if inside is not None else total_part
        # For an Or the path is the second branch: the total part does not hold there.
        conditions, place = ((total_part,), 0) if is_and else ((total_part, sp.true), 1)
        partial = [arg for arg in expr.args if arg not in total]
        guarded_parts = []
        for arg in partial:
            excuses = tuple((sibling, not is_and) for sibling in partial if sibling is not arg)
            guarded_parts.append(self.visit(arg, inside, Path(path, conditions, place, excuses)))
        return expr.func(total_part, *guarded_parts)

    def _is_total(self, expr: sp.Basic) -> bool:
        """Whether every operand in an expression is legal at every step, taken or not."""
        for part in sp.preorder_traversal(expr):
            requirement = _requirement(part, self.outer)
            if requirement is not None:
                place, needs = requirement
                if not needs.is_met(interval(part.args[place], self.outer)):
                    return False
        return True

    def _safe(
        self, operand: sp.Expr, needs: Requirement, domain: Domain, path: Path, user: sp.Expr
    ) -> sp.Expr:
        if operand.free_symbols & self.tensors or needs.is_met(interval(operand, self.outer)):
            return operand
        inside = interval(operand, domain)
        condition = path.expression(self.tensors)
        if needs.is_met(inside):
            return _hold(operand, inside, needs, condition)
        self._refute(operand, needs, domain, path, user)
        if path.has_excuses():
            # Others may be changed at the same step: this one only where it is illegal.
            condition = sp.And(condition, needs.relation(operand, 0))
        return SafeOperand(operand, condition)

    def _refute(
        self,
        operand: sp.Expr,
        needs: Requirement,
        domain: Domain,
        path: Path,
        user: sp.Expr,
    ) -> None:
        """Raises if a step is found at which the operand is illegal, taken and not excused."""
        condition = path.expression(self.tensors)
        unbound = sorted(symbol.name for symbol in operand.free_symbols - {t, *self.numbers})
        if unbound:
            raise DomainError(
                f"cannot show that {operand} is {needs.requirement}, as {user} needs",
                where=self.place,
                hint=f"declare it: hyper({unbound[0]!r}, positive=True), or give it a value",
            )
        for step in _samples(domain.interval(t), operand):
            values = {**self.numbers, t: sp.Integer(step)}
            if not holds_at(condition, values):
                continue
            value = value_at(operand, values)
            sign = sp.sign(sp.N(value, 40))
            # The sign of a number beyond all that SymPy computes with stays open.
            is_illegal = sign.is_Integer and not needs.is_met(point(Fraction(int(sign))))
            if is_illegal and not path.is_excused(values):
                raise DomainError(
                    f"{user} has no finite real value at t = {step}: {operand} is {value}, "
                    f"and must be {needs.requirement}",
                    where=self.place,
                    hint="change the formula or the branch conditions there",
                )


def _hold(operand: sp.Expr, inside: Interval, needs: Requirement, condition: sp.Basic) -> sp.Expr:
    """The operand clamped to its bound nearer to zero, or replaced by 1 outside of the branch."""
    low, high = inside.low, inside.high
    # Max(x, low) is x in the branch, as x >= low there, and legal everywhere; one node instead of a
    # where.
    if isinstance(low, Fraction) and low >= 0 and needs.is_met(point(low)):
        return construct(sp.Max, operand, _rational(low))
    if isinstance(high, Fraction) and high < 0 and needs.is_met(point(high)):
        return construct(sp.Min, operand, _rational(high))
    return SafeOperand(operand, condition)


def _rational(number: Fraction) -> sp.Rational:
    return sp.Rational(number.numerator, number.denominator)


def _requirement(expr: sp.Basic, domain: Domain) -> tuple[int, Requirement] | None:
    """The operand of a partial function that must have a property."""
    if isinstance(expr, FloorDiv | FloorMod):
        return 1, NONZERO
    if isinstance(expr, sp.log):
        return 0, POSITIVE
    if isinstance(expr, sp.Pow):
        return _power_requirement(expr, domain)
    return None


def _is_whole(expr: sp.Expr) -> bool:
    """Whether an exponent is an integer at every step: ``Min(4, 2*t)/2`` is one, too."""
    factor, core = expr.as_coeff_Mul()
    if factor.is_Rational and isinstance(core, sp.Min | sp.Max):
        return all(_is_whole(factor * arg) for arg in core.args)
    return is_integral(expr)


def _power_requirement(expr: sp.Pow, domain: Domain) -> tuple[int, Requirement] | None:
    exponent = expr.args[1]
    powers = interval(exponent, domain)
    if _is_whole(exponent):
        # 0**0 is 1 in SymPy, IEEE 754 pow, NumPy and torch.
        return None if powers.is_nonnegative else (0, NONZERO)
    # 0**p is 0 for p > 0 and has no value for p < 0.
    return (0, NONNEGATIVE) if powers.is_positive else (0, POSITIVE)


def _samples(steps: Interval, operand: sp.Expr) -> Iterator[int]:
    """Steps at which to look for a counterexample: roots of lines, both ends, hundreds between."""
    low, high, first, parts = int(steps.low), int(steps.high), 200, 64
    powers = [power.exp for power in operand.atoms(sp.Pow)]
    powers += [power.args[0] for power in operand.atoms(sp.exp) if power.has(sp.log)]
    if any(t in exponent.free_symbols for exponent in powers):
        high, first, parts = min(high, low + _LAST_OF_POWERS), 20, 8
    seen_steps = set()
    near = [low + offset for offset in range(first)] + [high - offset for offset in range(3)]
    far = [low + (high - low) * part // parts for part in range(parts + 1)]
    doubling = [low + 2**exponent for exponent in range(50)]
    lines = [linear_in(part, t) for part in sp.preorder_traversal(operand) if part.is_Add]
    roots = [-line[1] / line[0] for line in lines if line is not None and line[0] != 0]
    around = [math.floor(root) + offset for root in roots for offset in (-1, 0, 1, 2)]
    for step in (*near, *around, *far, *doubling):
        if low <= step <= high and step not in seen_steps:
            seen_steps.add(step)
            yield step
