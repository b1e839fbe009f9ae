"""The conditions under which every operation of a term is defined, as goals to be proved.

Partial operations are: a quotient (divisor 0), a logarithm (argument not above 0), a power
(base 0 or negative), a table (index outside), and a choice without a last branch.

Conditions are evaluated lazily, as in ``language.exact`` and in graphs: of a choice the branch that
is taken counts, and a part of an ``and`` or ``or`` may be undefined where another part that has a
value decides it. The order of the parts does not matter; SymPy keeps none.

A rule that reads an operation and leaves out one of its operands keeps the conditions of that
operand by ``with_domain``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from closedform.verify.terms.build import (
    FALSE,
    ONE,
    ZERO,
    add,
    both,
    either,
    equal,
    floor,
    is_rational,
    ite,
    less,
    less_equal,
    multiply,
    negate,
    rational,
)
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import TRUTHS, Op, Term, show, walk


class PartialOperation(StrEnum):
    """The kind of an operation that could be undefined."""

    DIVISION = "division"
    LOGARITHM = "logarithm"
    ROOT = "root"
    POWER = "power"
    TABLE = "table"
    BRANCH = "branch"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing to prove: ``goal`` wherever all conditions of ``path`` hold.

    Args:
        goal: What makes the operation defined.
        path: The conditions under which it is reached; empty where they are left out.
        kind: The kind of operation.
        node: The operation; those with one goal are asked once.
        is_sufficient: Whether conditions of the path are left out: to refute it says nothing.
    """

    goal: Term
    path: tuple[Term, ...]
    kind: PartialOperation
    node: Term = field(compare=False)
    is_sufficient: bool = False

    @property
    def text(self) -> str:
        """The operation, for people."""
        match self.kind:
            case PartialOperation.BRANCH:
                return "no branch holds"
            case PartialOperation.DIVISION:
                return f"1 / {show(self.node.args[1])}"
            case _:
                return show(self.node)

    @property
    def claim(self) -> Term:
        """The goal under its path, as one truth."""
        return either(*(negate(condition) for condition in self.path), self.goal)


def obligations(term: Term, taken: bool = True) -> list[Obligation]:
    """Returns the conditions under which every operation in a term is defined, each once.

    Args:
        term: A number or a truth.
        taken: True: under the conditions of the branches in which it stands, so the claim is
            that no step at which it is taken is undefined. False: under none, so that both
            sides of every choice may be computed (where-safety); a missing last branch is then
            no operation.

    The same operation on several paths is asked on each. Where these are too many to be listed it
    is asked once, under the conditions that all of them share.

    Example:
        >>> from closedform.verify.terms.build import divide, ite, less, ONE, symbol
        >>> x = symbol("x")
        >>> [str(found.claim) for found in obligations(ite(less(ZERO, x), divide(ONE, x), x))]
        ['(x <= 0 or not(x = 0))']
    """
    if not taken:
        demands_of_nodes = (_demand(node) for node in walk(term))
        demands = (
            demand
            for demand in demands_of_nodes
            if demand and demand.kind is not PartialOperation.BRANCH
        )
        return list(dict.fromkeys(demands))
    return _obligations_on_paths(term)


def is_partial(term: Term) -> bool:
    """Whether a term has an operation that could be undefined."""
    return any(_demand(node) is not None for node in walk(term))


def with_domain(number: Term, operands: Iterable[Term]) -> Term:
    """Returns a number that is undefined also where one of some operands is.

    Args:
        number: The number.
        operands: Numbers and truths. Those that the number evaluates in any case change nothing.

    Example:
        >>> from closedform.verify.terms.build import divide, symbol
        >>> x, y = symbol("x"), symbol("y")
        >>> with_domain(x, [divide(x, y)]), with_domain(divide(x, y), [y, divide(x, y)])
        ((x + (0 * (x / y))), (x / y))
    """
    parts = missing_parts([number], operands)
    zeros = (ite(part, ONE, ONE) if part.op in TRUTHS else part for part in parts)
    # Not an ``ite``: that 0 times a number is 0 is known to each normal form.
    return add(number, *(multiply(ZERO, part) for part in zeros)) if parts else number


def missing_parts(results: Sequence[Term], operands: Iterable[Term]) -> list[Term]:
    """Returns the parts of some operands that may be undefined where the results are not.

    Args:
        results: Terms that are all evaluated.
        operands: Other terms.
    """
    pending = [part for part in dict.fromkeys(operands) if part.args and part not in results]
    if not pending:
        return []
    open_terms, evaluated_terms = set(pending), set[Term]()
    for node in _walk_evaluated(results):
        evaluated_terms.add(node)
        open_terms.discard(node)
        # Most operands are arguments of the result: the search ends after a few terms.
        if not open_terms:
            return []
    partial = _partial_below(*open_terms)
    parts: dict[Term, None] = {}
    pending = [part for part in pending if part in open_terms]
    while pending:
        part = pending.pop()
        if part not in partial or part in evaluated_terms:
            continue
        # Of a choice and of an ``and`` only a part is evaluated.
        if part.op in _LAZY or _demand(part) is not None:
            parts[part] = None
        else:
            pending.extend(part.args)
    return list(parts)


_LAZY = frozenset({Op.ITE, Op.AND, Op.OR})
"""Operations that evaluate only some of their arguments."""


def _walk_evaluated(roots: Iterable[Term]) -> Iterator[Term]:
    """Yields the terms that are evaluated wherever some terms are, nearer ones first."""
    pending, walked_terms = deque(roots), set[Term]()
    while pending:
        node = pending.popleft()
        if node in walked_terms:
            continue
        walked_terms.add(node)
        yield node
        if node.op is Op.ITE:
            pending.append(node.args[0])
        elif node.op not in _LAZY:
            pending.extend(node.args)


# Conditions as a linked list, so that a chain of n branches costs n, not n * n. None in the place
# of a condition says that some are left out.
_Path = tuple["_Path", Term | None] | None


def _obligations_on_paths(root: Term) -> list[Obligation]:
    partial = _partial_below(root)
    obligations_by_key: dict[Obligation, None] = {}
    pending: list[tuple[Term, _Path]] = [(root, None)]
    path_by_visit: dict[
        tuple[Term, int], _Path
    ] = {}  # holds the paths: an id lives as long as its object
    while pending:
        node, path = pending.pop()
        if node not in partial or (node, id(path)) in path_by_visit:
            continue
        # A graph with shared parts has exponentially many paths.
        if len(path_by_visit) == LIMITS.paths:
            return _taken_on_common_paths(root, partial)
        path_by_visit[node, id(path)] = path
        demand = _demand(node)
        if demand is not None:
            obligations_by_key.setdefault(
                replace(demand, path=_conditions(path), is_sufficient=_is_shortened(path))
            )
        pending.extend((arg, way) for arg, way in _ways(node, path, partial) if arg in partial)
    return list(obligations_by_key)


def _ways(node: Term, path: _Path, partial: set[Term]) -> list[tuple[Term, _Path]]:
    """The arguments of a node, the last one first, and the conditions under which each is taken."""
    if node.op in (Op.AND, Op.OR):
        return _ways_of_junction(node, path, partial)
    if node.op is not Op.ITE:
        return [(arg, path) for arg in reversed(node.args)]
    condition, then, otherwise = node.args
    return [(otherwise, (path, negate(condition))), (then, (path, condition)), (condition, path)]


def _ways_of_junction(node: Term, path: _Path, partial: set[Term]) -> list[tuple[Term, _Path]]:
    """The partial arguments of an ``and`` or ``or``; each matters where no other one decides."""
    partial_args = [arg for arg in node.args if arg in partial]
    if not partial_args:
        return []
    total = node.args if node.op is Op.AND else tuple(map(negate, node.args))
    for arg, open_ in zip(node.args, total, strict=True):
        # Total arguments may be assumed for all others; partial ones only where they have a value.
        if arg not in partial:
            path = (path, open_)
    if len(partial_args) == 1:
        return [(partial_args[0], path)]
    operations = sum(1 for part in walk(*partial_args) if _demand(part) is not None)
    if operations > LIMITS.junction_operations:
        return [(arg, (path, None)) for arg in reversed(partial_args)]
    undecided_by_arg = {arg: _undecided_condition(arg, node.op) for arg in partial_args}
    ways: list[tuple[Term, _Path]] = []
    for arg in reversed(partial_args):
        way = path
        for sibling in partial_args:
            way = way if sibling is arg else (way, undecided_by_arg[sibling])
        ways.append((arg, way))
    return ways


def _undecided_condition(arg: Term, op: Op) -> Term:
    """The condition that an argument of an ``and`` or ``or`` does not decide it.

    It has no value there, or not the decisive one.
    """
    undefined_args = (negate(demand.claim) for demand in obligations(arg))
    return either(*undefined_args, arg if op is Op.AND else negate(arg))


def _taken_on_common_paths(root: Term, partial: set[Term]) -> list[Obligation]:
    """The obligations under the conditions that are common to all paths to a node.

    That is more than has to hold. The cost is that of the walk, and of comparing paths.
    """
    paths: dict[Term, tuple[Term, ...]] = {root: ()}
    obligations_found = []
    for node in reversed(list(walk(root))):
        if node not in partial:
            continue
        path = paths[node]
        for arg, way in _ways(node, None, partial):
            longer_path = (*path, *_conditions(way))[: LIMITS.path_conditions]
            paths[arg] = _common(paths[arg], longer_path) if arg in paths else longer_path
        demand = _demand(node)
        if demand is not None:
            obligations_found.append(replace(demand, path=path, is_sufficient=True))
    return list(dict.fromkeys(obligations_found))


def _common(first: tuple[Term, ...], second: tuple[Term, ...]) -> tuple[Term, ...]:
    pairs = zip(first, second, strict=False)
    return tuple(left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _conditions(path: _Path) -> tuple[Term, ...]:
    conditions = []
    while path is not None:
        path, condition = path
        if condition is not None:
            conditions.append(condition)
    return tuple(reversed(conditions))


def _is_shortened(path: _Path) -> bool:
    """Whether conditions are left out of a path."""
    while path is not None:
        path, condition = path
        if condition is None:
            return True
    return False


def _partial_below(*roots: Term) -> set[Term]:
    """The nodes that hold a partial operation."""
    partial: set[Term] = set()
    for node in walk(*roots):
        if any(arg in partial for arg in node.args) or _demand(node) is not None:
            partial.add(node)
    return partial


def _demand(node: Term) -> Obligation | None:
    """The demand of one operation, on no path; None where it is always defined."""
    match node.op:
        case Op.UNDEFINED:
            return Obligation(FALSE, (), PartialOperation.BRANCH, node)
        case Op.DIVIDE:
            nonzero = negate(equal(node.args[1], ZERO))
            return Obligation(nonzero, (), PartialOperation.DIVISION, node)
        case Op.LOG:
            return Obligation(less(ZERO, node.args[0]), (), PartialOperation.LOGARITHM, node)
        case Op.POWER:
            return _power_demand(node)
        case Op.LOOKUP:
            index, last = node.args[0], rational(len(node.value) - 1)
            whole = equal(index, floor(index))
            inside = both(less_equal(ZERO, index), less_equal(index, last), whole)
            return Obligation(inside, (), PartialOperation.TABLE, node)
        case _:
            return None


def _power_demand(node: Term) -> Obligation | None:
    """A power's domain: base > 0; base = 0 and exponent >= 0; a whole exponent of base != 0.

    The last is asked of exponents that are whole by declaration, or constants.
    """
    base, exponent = node.args
    if is_rational(base) and base.value > 0:
        return None
    if is_rational(exponent):
        if exponent.value.q == 1 and exponent.value >= 0:
            return None
        # x**(1/3) has no real value below 0 here, as in SymPy, where it is complex.
        if exponent.value > 0:
            return Obligation(less_equal(ZERO, base), (), PartialOperation.ROOT, node)
    if is_integer(exponent):
        goal = either(negate(equal(base, ZERO)), less_equal(ZERO, exponent))
    else:
        goal = either(less(ZERO, base), both(equal(base, ZERO), less_equal(ZERO, exponent)))
    return Obligation(goal, (), PartialOperation.POWER, node)
