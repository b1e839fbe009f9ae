"""Forms of numbers and truths: sums of products of powers of atoms, and conditions on them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from flint import fmpq

from closedform.verify.terms import build
from closedform.verify.terms.tree import Op, Term

Monomial = tuple[tuple[int, fmpq], ...]
Form = tuple[tuple[Monomial, fmpq], ...]
"""A sum: the coefficient of each product of powers of atoms, in order."""
Truth = Hashable
Known = frozenset[tuple[Truth, bool]]
"""The truths that are decided around a term."""

UNIT: Monomial = ()
ONE, ZERO = fmpq(1), fmpq(0)


class NoForm(Exception):  # noqa: N818 - a result, not an error
    """A term divides by 0, a number is used as a truth, or a power has too many digits."""


def constant(number: fmpq) -> Form:
    """Returns a rational number."""
    return ((UNIT, number),) if number != 0 else ()


def power_of(atom: int, exponent: fmpq) -> Form:
    """Returns a power of an atom."""
    return ((((atom, exponent),), ONE),)


def scale(form: Form, factor: fmpq) -> Form:
    """Returns a rational multiple of a form."""
    if factor == 1:
        return form
    return tuple((monomial, times * factor) for monomial, times in form) if factor != 0 else ()


def number_of(form: Form) -> fmpq | None:
    """Returns the rational number that a form is, or None."""
    if not form:
        return ZERO
    return form[0][1] if len(form) == 1 and form[0][0] == UNIT else None


def place_of(item: tuple[Monomial, fmpq]) -> tuple[int, Monomial]:
    """Returns the place of a product in its sum: shorter ones first."""
    return len(item[0]), item[0]


def flatten_op(node: Term, op: Op) -> Iterable[Term]:
    """Yields the arguments of an op, with the arguments of its nested uses."""
    for arg in node.args:
        if arg.op is op:
            yield from flatten_op(arg, op)
        else:
            yield arg


WHOLE = "whole"
"""The truth that a sum of integers is 1 or more: ``x < y`` and ``x + 1 <= y`` are one."""


def is_whole(form: Form, atoms: Collection[int]) -> bool:
    """Returns whether a form is a sum of whole multiples of products of some atoms."""
    return all(
        times.q == 1 and all(atom in atoms and e.q == 1 and e > 0 for atom, e in monomial)
        for monomial, times in form
    )


def total(summands: Iterable[Form]) -> Form:
    """Returns the sum of some forms."""
    factors: dict[Monomial, fmpq] = {}
    for form in summands:
        for monomial, times in form:
            factors[monomial] = factors.get(monomial, ZERO) + times
    return tuple(sorted((item for item in factors.items() if item[1] != 0), key=place_of))


def parts_of_relation(op: Op, left: Term, right: Term) -> tuple[list[Term], Op]:
    """Returns ``z < min(x, y)``, ``max(x, y) < z`` and their likes by parts, and how these join."""
    make = build.less if op is Op.LESS else build.less_equal
    for inner, opposite_side, is_below in ((right, left, True), (left, right, False)):
        if op is not Op.EQUAL and inner.op in (Op.MINIMUM, Op.MAXIMUM):
            pairs = [
                (opposite_side, arg) if is_below else (arg, opposite_side)
                for arg in flatten_op(inner, inner.op)
            ]
            is_all = (inner.op is Op.MINIMUM) == is_below
            return [make(*pair) for pair in pairs], Op.AND if is_all else Op.OR
    return [], Op.AND


def junction(op: Op, parts: Iterable[Truth]) -> Truth:
    """Returns the conjunction or disjunction of some truths.

    Next to a part that is not itself a junction, the others are read with that part decided:
    ``a or (not a and b)`` is ``a or b``; a part next to its negation decides.
    """
    decisive = op is Op.OR
    flat = _flat_parts(op, parts)
    if flat is None:
        return decisive
    single = {part for part in flat if not _is_junction(part)}
    if any(opposite(part) in single for part in single):
        return decisive
    if single and len(single) < len(flat):
        facts = frozenset().union(*(facts_of(part, not decisive) for part in single))
        rest = _flat_parts(op, (simplify_truth(part, facts) for part in flat - single))
        if rest is None:
            return decisive
        simpler_parts = single | rest
        if simpler_parts != flat:
            return junction(op, simpler_parts)
    if not flat:
        return not decisive
    return next(iter(flat)) if len(flat) == 1 else (op, frozenset(flat))


def _flat_parts(op: Op, parts: Iterable[Truth]) -> set[Truth] | None:
    """The parts of a junction, nested ones of its kind flattened; None where one decides it."""
    decisive = op is Op.OR
    flat: set[Truth] = set()
    for part in parts:
        if isinstance(part, bool):
            if part is decisive:
                return None
            continue
        flat |= part[1] if isinstance(part, tuple) and part[0] is op else {part}
    return flat


def _is_junction(truth: Truth) -> bool:
    return isinstance(truth, tuple) and truth[0] in (Op.AND, Op.OR)


def opposite(truth: Truth) -> Truth:
    """Returns the negation: that of ``0 < d`` is ``0 <= -d``."""
    if not isinstance(truth, tuple):
        return not truth
    match truth[0]:
        case Op.LESS:
            return Op.LESS_EQUAL, scale(truth[1], fmpq(-1))
        case Op.LESS_EQUAL:
            return Op.LESS, scale(truth[1], fmpq(-1))
        case Op.AND | Op.OR:
            dual_op = Op.OR if truth[0] is Op.AND else Op.AND
            return dual_op, frozenset(map(opposite, truth[1]))
        case Op.NOT:
            return truth[1]  # type: ignore[no-any-return]
        case "whole":
            return WHOLE, total((scale(truth[1], fmpq(-1)), constant(ONE)))
        case _:
            return Op.NOT, truth


def is_negated(truth: Truth) -> bool:
    """Returns whether a choice is written with the negation of its condition."""
    if isinstance(truth, tuple) and truth[0] == WHOLE:
        return bool(truth[1][-1][1] < 0)
    return isinstance(truth, tuple) and truth[0] in (Op.LESS_EQUAL, Op.OR, Op.NOT)


def facts_of(truth: Truth, holds: bool) -> Known:
    """Returns the facts where a condition holds or fails, and its parts' facts where known."""
    facts = {(truth, holds), (opposite(truth), not holds)}
    if isinstance(truth, tuple) and truth[0] is (Op.AND if holds else Op.OR):
        for part in truth[1]:
            facts |= facts_of(part, holds)
    return frozenset(facts)


def simplify_truth(truth: Truth, facts: Known) -> Truth:
    """Returns a truth, True or False where that is known."""
    if isinstance(truth, bool) or not facts:
        return truth
    for value in (True, False):
        if (truth, value) in facts:
            return value
    if isinstance(truth, tuple) and _is_junction(truth):
        return junction(truth[0], [simplify_truth(part, facts) for part in truth[1]])
    return truth
