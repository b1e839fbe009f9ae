"""Claims that a schedule has a value: at every step, on every branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from closedform.language import Schedule
from closedform.verify.claims.core import Claim, Goal, definedness
from closedform.verify.claims.reading import Condition, claim_about, condition_text, read_schedule
from closedform.verify.terms.build import UNDEFINED, both, equal, negate
from closedform.verify.terms.definedness import PartialOperation, obligations
from closedform.verify.terms.tree import Op, Term, chain, walk


def total(lr: Schedule, *, where: Condition = True, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that at every step some branch holds.

    A branch is taken where its condition is the first that holds, so branches that overlap are
    no gap and no contradiction; ``unambiguous`` claims that they do not.
    """
    reading = read_schedule(lr, assume, where)
    branches = [
        obligation
        for obligation in obligations(reading.value)
        if obligation.kind is PartialOperation.BRANCH
    ]
    goals = [definedness(obligation, reading.given) for obligation in branches]
    return claim_about(reading, "total", "every step has a branch", goals)


def finite(lr: Schedule, *, where: Condition = True, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that there is a value at every step, and that it is finite and real."""
    reading = read_schedule(lr, assume, where)
    goals = [definedness(obligation, reading.given) for obligation in obligations(reading.value)]
    return claim_about(reading, "finite", "the value is finite and real", goals)


def where_safe(lr: Schedule, *, assume: Iterable[Condition] = ()) -> Claim:
    """Asks whether all branches may be computed at every step, also those not taken.

    It is a question: the compiler guards what is not safe.
    """
    reading = read_schedule(lr, assume)
    goals = [
        definedness(obligation, reading.given)
        for obligation in obligations(reading.value, taken=False)
    ]
    sentence = "branches not taken are finite and real, too"
    return claim_about(reading, "where_safe", sentence, goals, is_question=True)


def reached(lr: Schedule, *, assume: Iterable[Condition] = ()) -> Claim:
    """Asks whether every branch of every Piecewise is taken somewhere; names one that is not."""
    reading = read_schedule(lr, assume)
    goals = [
        Goal(f"the branch where {condition_text(path[-1])} is taken", both(*path), (), True)
        for path in _branches(reading.value)
    ]
    return claim_about(reading, "reached", "every branch is taken", goals, is_question=True)


def unambiguous(lr: Schedule, *, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that where several branches of a Piecewise hold, they agree in value.

    Then the order of the branches does not matter. Branches under a condition which
    does not repeat the ones before it, as ``t < 5`` then ``t < 10``, are ambiguous in this sense.
    """
    reading = read_schedule(lr, assume)
    goals = []
    for branches, _ in _chains(reading.value):
        for index, (condition, value) in enumerate(branches):
            for later, second in branches[index + 1 :]:
                goal = Goal(
                    f"branches {condition_text(condition)} and {condition_text(later)} agree",
                    equal(value, second),
                    (condition, later),
                    shown=(("the first", value), ("the second", second)),
                )
                goals.append(goal)
    return claim_about(reading, "unambiguous", "branches that overlap agree", goals)


def _branches(value: Term) -> list[tuple[Term, ...]]:
    """For each branch of each outermost chain the conditions under which it is taken."""
    paths: list[tuple[Term, ...]] = []
    for branches, last in _chains(value):
        negations: list[Term] = []
        for condition, _ in branches:
            paths.append((*negations, condition))
            negations.append(negate(condition))
        if last != UNDEFINED:
            paths.append(tuple(negations))
    return paths


def _chains(value: Term) -> Iterator[tuple[list[tuple[Term, Term]], Term]]:
    """Each outermost chain of choices: the links of a chain begin no other one."""
    links = {node.args[2] for node in walk(value) if node.op is Op.ITE}
    for node in walk(value):
        if node.op is Op.ITE and node not in links:
            yield chain(node)
