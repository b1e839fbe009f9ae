"""False goals that are planted, and proofs that are tampered with.

A false goal is a proved one with another constant, another relation, two operands exchanged or one
assumption less, for which the prover has a counterexample that was evaluated exactly.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.checker.replay import check
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.prover import prove
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.steps import NoProofError
from closedform.verify.terms.build import less, less_equal, rational, substitute
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Op, Term, walk
from tests.verify.goals import PROVED, Goal

Data = dict[str, Any]
WORK = 400_000
UNITS = 40_000


def perturb(goal: Goal, chance: random.Random) -> Goal | None:
    """A goal with one change, or None where the change does not apply."""
    statement, assume = goal.goal, goal.assume
    match chance.randrange(4):
        case 0:
            constants = [node for node in walk(statement) if node.op is Op.RATIONAL]
            if not constants:
                return None
            constant = chance.choice(constants)
            number = constant.value + chance.choice((-1, 1, 2))
            statement = substitute(statement, {constant: rational(number)})
        case 1:
            if statement.op is not Op.LESS_EQUAL:
                return None
            statement = less(*statement.args)
        case 2:
            if statement.op not in (Op.LESS_EQUAL, Op.LESS):
                return None
            left, right = statement.args
            make = less_equal if statement.op is Op.LESS_EQUAL else less
            statement = make(right, left)
        case _:
            if not assume:
                return None
            dropped = chance.randrange(len(assume))
            assume = tuple(fact for place, fact in enumerate(assume) if place != dropped)
    return Goal(goal.name, statement, assume, goal.expected)


def is_false(goal: Goal) -> bool:
    """Whether the prover has a counterexample at which the statement has a value.

    A proof says that a relation holds where its sides are defined; that they are is another goal.
    """
    verdict = prove(goal.goal, assume=goal.assume, effort=Effort.of(UNITS))
    if not verdict.refuted:
        return False
    point = {
        name: fmpq(int(at.p), int(at.q)) for name, at in (verdict.counterexample or {}).items()
    }
    return holds(goal.goal, point) is False


def false_goals(goals: Sequence[Goal], count: int, seed: int = 38) -> Iterator[tuple[Goal, Goal]]:
    """Some false goals, each with the true goal that it is made of."""
    chance = random.Random(seed)
    true_goals = [goal for goal in goals if goal.expected is PROVED]
    statements: set[tuple[Term, tuple[Term, ...]]] = set()
    while len(statements) < count:
        goal = chance.choice(true_goals)
        false = perturb(goal, chance)
        key = None if false is None else (false.goal, false.assume)
        if false is None or key is None or key in statements or not is_false(false):
            continue
        statements.add(key)
        yield goal, false


def is_accepted(statement: Data, proof: Data) -> bool:
    """Whether the checker accepts a proof."""
    try:
        check(statement, proof)
    except RejectedProofError:
        return False
    return True


def certify_or_none(statement: Data, units: int = WORK) -> Data | None:
    """The proof of a statement, if the search comes to one."""
    try:
        return find_proof(statement, Effort.of(units))
    except NoProofError:
        return None


def fields_of(proof: Data) -> list[tuple[list[Any], int]]:
    """All numbers, texts and steps of a proof, each by the list that holds it and its place."""
    fields = []
    pending: list[Any] = [proof["nodes"], proof["step"]]
    while pending:
        part = pending.pop()
        for place, entry in enumerate(part):
            fields.append((part, place))
            if isinstance(entry, list):
                pending.append(entry)
    return fields


NAMES = (
    "contradiction",
    "empty",
    "combine",
    "simplify",
    "choose",
    "split",
    "lemma",
    "clear",
)


def tampered_proofs(proof: Data, count: int, seed: int) -> Iterator[Data]:
    """Copies of a proof, each with one of its fields changed."""
    chance = random.Random(seed)
    for _ in range(count):
        changed = copy.deepcopy(proof)
        holder, place = chance.choice(fields_of(changed))
        entry = holder[place]
        if isinstance(entry, bool) or entry is None:
            holder[place] = not entry
        elif isinstance(entry, int):
            holder[place] = entry + chance.choice((-2, -1, 1, 2))
        elif isinstance(entry, str):
            is_name = entry.isidentifier()
            holder[place] = chance.choice(NAMES if is_name else ("0", "1", "-1", "1/2"))
        else:
            holder[place] = chance.choice(([], [["1", [], []]], ["contradiction", [], 0]))
        yield changed
