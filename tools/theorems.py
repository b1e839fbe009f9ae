"""Writes docs/theorems.md: what is true of schedules and rules, and what is not, by the prover.

``make theorems`` runs it. ``THEOREMS`` is the one table: ``tests/verify/test_theorems.py`` asks the
prover each of its rows, and holds the page to it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from closedform.verify.terms.verdict import Verdict
from tools import (
    theorems_edges,
    theorems_polynomials,
    theorems_rules,
    theorems_schedules,
    theorems_sums,
    theorems_systems,
)
from tools.sections import DOCS
from tools.theorem import Section, Theorem

PAGE = DOCS / "theorems.md"

THEOREMS = (
    *theorems_schedules.THEOREMS,
    *theorems_rules.THEOREMS,
    *theorems_systems.THEOREMS,
    *theorems_sums.THEOREMS,
    *theorems_polynomials.THEOREMS,
    *theorems_edges.THEOREMS,
)
"""All rows, in the order of the page."""

WITHOUT_THEOREM: Mapping[str, str] = {
    "error": "an exception, which has no value",
    "int_kept": "about the dtype of a constant",
    "metric_driven": "no function of the step: an update rule",
    "unsorted_milestones": "no formula is documented for it",
    "cyclic_unknown_mode": "refused, as no formula is documented for it",
}
"""The flags of the reference records that no theorem states, and why."""


INTRODUCTION = r"""# Theorems

True statements about the schedules and rules of this library, and false ones. Each statement is
a claim ([verification](verification.md)) that the prover decides: for all steps $t \ge 0$, and
where no numbers are said for all hyperparameters that the library admits. A title says what is
true, the statement below it what was claimed: where it is REFUTED, with a point at which it is
false, evaluated exactly.

The rows of this page are the tables `tools/theorems_*.py`: schedules of the library with open
hyperparameters, and classes of other systems by their documented formula and as they ship. The
tests ask the prover each of them; `make theorems` writes the page.
"""


def evidence(verdict: Verdict) -> str:
    """Returns what decided a theorem, as one line of the page."""
    if verdict.counterexample is None:
        return f"**{verdict.status.value}** by {', '.join(verdict.grounds)}."
    point = ", ".join(f"`{name} = {number}`" for name, number in verdict.counterexample.items())
    return f"**{verdict.status.value}** at {point}: `{verdict.reason}`."


def entry(theorem: Theorem, line: str) -> str:
    """Returns the part of the page about one theorem, with its line of evidence."""
    source = f"\n\nSource: {theorem.source}." if theorem.source else ""
    return f"### {theorem.name}\n\n{theorem.statement}\n\n{line}{source}\n"


def page(lines: Mapping[str, str]) -> str:
    """Returns the page, with the line of evidence of each theorem by its name."""
    parts = [INTRODUCTION]
    for section in Section:
        parts.append(f"## {section.value}\n")
        parts += [entry(one, lines[one.name]) for one in THEOREMS if one.section is section]
        parts += [theorems_sums.table()] * (section is Section.SUMS)
    return "\n".join(parts)


def main() -> int:
    """Writes the page; returns 1 if a verdict is not the expected one."""
    lines: dict[str, str] = {}
    wrong = 0
    for theorem in THEOREMS:
        verdict = theorem.claim().verify(effort=6.0)
        lines[theorem.name] = evidence(verdict)
        if verdict.status is not theorem.expected:
            wrong += 1
            sys.stderr.write(f"{theorem.name}: {verdict}\n")
    if wrong:
        return 1
    PAGE.write_text(page(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
