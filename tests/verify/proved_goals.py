"""The goals that the prover proves: of the table, the theorems, the schedules and the rules."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from closedform.verify.claims.core import Claim
from closedform.verify.claims.report import Report
from closedform.verify.search.statements import statement_of
from closedform.verify.terms.tree import Term
from tests.test_library import OPTIMIZERS, SCHEDULES
from tests.verify.goals import PROVED
from tests.verify.test_goals import GOALS
from tools.theorems import THEOREMS


@dataclass(frozen=True, slots=True)
class ProvedGoal:
    """A proved goal with the facts under which it is proved."""

    name: str
    goal: Term
    assume: tuple[Term, ...]

    def statement(self) -> dict[str, Any]:
        """The goal as the checker reads it."""
        return statement_of(self.goal, self.assume)


def distinct_goals(goals: Iterator[ProvedGoal]) -> list[ProvedGoal]:
    """Each goal once, under the name that comes first."""
    by_statement: dict[tuple[Term, frozenset[Term]], ProvedGoal] = {}
    for goal in goals:
        by_statement.setdefault((goal.goal, frozenset(goal.assume)), goal)
    return list(by_statement.values())


def goals_of_the_table() -> Iterator[ProvedGoal]:
    """The goals that are expected to be proved."""
    for goal in GOALS:
        if goal.expected is PROVED:
            yield ProvedGoal(goal.name, goal.goal, goal.assume)


def _goals_of_claim(subject: str, claim: Claim) -> Iterator[ProvedGoal]:
    for goal in (*claim.presumes, *claim.goals):
        if not goal.is_somewhere:
            facts = tuple(dict.fromkeys((*claim.assume, *goal.given)))
            yield ProvedGoal(f"{subject}: {goal.text}", goal.statement, facts)


def goals_of_theorems() -> Iterator[ProvedGoal]:
    """The goals of the rows of docs/theorems.md that are proved."""
    for theorem in THEOREMS:
        if theorem.expected is PROVED:
            yield from _goals_of_claim(theorem.name, theorem.claim())


def _goals_of_report(subject: str, report: Report) -> Iterator[ProvedGoal]:
    for finding in report.findings_proved:
        yield from _goals_of_claim(f"{subject}: {finding.claim.name}", finding.claim)


def goals_of_schedules() -> Iterator[ProvedGoal]:
    """The standard claims about the schedules of the library that are proved."""
    for name, make in SCHEDULES.items():
        yield from _goals_of_report(name, make().verify())


def goals_of_rules() -> Iterator[ProvedGoal]:
    """The standard claims about the rules of the library that are proved."""
    for name, make in OPTIMIZERS.items():
        yield from _goals_of_report(name, make().verify())


SOURCES: Mapping[str, Callable[[], Iterator[ProvedGoal]]] = {
    "table": goals_of_the_table,
    "theorems": goals_of_theorems,
    "schedules": goals_of_schedules,
    "rules": goals_of_rules,
}
