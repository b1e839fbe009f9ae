"""Tables as terms: the number of milestones reached, and the element at an index.

Both are balanced trees of comparisons, so that n milestones make a term of depth log n, and a run
of steps finds its branch without looking at the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from closedform.verify.terms import build
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.tree import RELATIONS, Op, Term


def total(row: Sequence[Term]) -> Term:
    """Returns the sum of a row; a number of milestones reached is a tree of comparisons.

    The sum of ``1 if m <= x else 0`` over sorted m is i exactly where m[i-1] <= x < m[i].
    """
    milestones = [_milestone(place) for place in row]
    marks = sorted(
        (mark for mark in milestones if mark is not None), key=lambda mark: mark[0].value
    )
    clocks = {clock for _, clock in marks}
    if len(marks) < len(row) or len(clocks) != 1:
        return build.add(*row)
    (clock,) = clocks
    counts = [build.rational(count) for count in range(len(marks) + 1)]
    return _tree(counts, lambda place: build.less(clock, marks[place - 1][0]))


def _tree(values: Sequence[Term], is_before: Callable[[int], Term]) -> Term:
    """The value at a place as a balanced tree of conditions that the place is before another."""

    def between(first: int, last: int) -> Term:
        if first == last:
            return values[first]
        middle = (first + last) // 2
        return build.ite(is_before(middle + 1), between(first, middle), between(middle + 1, last))

    return between(0, len(values) - 1)


def _milestone(place: Term) -> tuple[Term, Term] | None:
    """(m, x) of ``1 if m <= x else 0`` or, of integers, ``1 if m - 1 < x else 0``."""
    if place.op is not Op.ITE or place.args[1:] != (build.ONE, build.ZERO):
        return None
    condition = place.args[0]
    mark, clock = condition.args if condition.op in RELATIONS else (place, place)
    if not build.is_rational(mark):
        return None
    if condition.op is Op.LESS_EQUAL:
        return mark, clock
    is_whole = condition.op is Op.LESS and mark.value.q == 1 and is_integer(clock)
    return (build.rational(mark.value + 1), clock) if is_whole else None


def element(table: Sequence[Term], index: Term) -> Term:
    """Returns the element of a table at an index, undefined outside of it."""
    if _has_rational_leaves(index):
        return _map_leaves(index, table)
    if all(build.is_rational(entry) for entry in table):
        return build.lookup([entry.value for entry in table], index)
    entry = _tree(table, lambda place: build.less(index, build.rational(place)))
    places = build.rational(0), build.rational(len(table) - 1)
    inside = build.both(build.less_equal(places[0], index), build.less_equal(index, places[1]))
    return build.ite(inside, entry, build.UNDEFINED)


def _has_rational_leaves(index: Term) -> bool:
    """Whether a term is a tree of choices between rational numbers."""
    pending = [index]
    while pending:
        node = pending.pop()
        if node.op is Op.ITE:
            pending.extend(node.args[1:])
        elif not build.is_rational(node):
            return False
    return True


def _map_leaves(index: Term, table: Sequence[Term]) -> Term:
    """A tree of choices with each index at its leaves replaced by the element of the table."""
    if index.op is Op.ITE:
        condition, then, otherwise = index.args
        return build.ite(condition, _map_leaves(then, table), _map_leaves(otherwise, table))
    place = int(index.value)
    return table[place] if 0 <= place < len(table) else build.UNDEFINED
