"""Writes the table of docs/verification.md: which proved goals the second checker accepts.

`make checker` measures and runs it. The figures stand in tools/results/checker.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tools.sections import DOCS, RESULTS_FOLDER, GeneratedSection

FIGURES = RESULTS_FOLDER / "checker.json"

SUBJECTS = {
    "schedules": "standard claims about the schedules of the library",
    "theorems": "rows of [theorems](theorems.md)",
    "table": "goals that the tests of the prover state",
    "rules": "standard claims about the optimizers of the library",
}


def table() -> str:
    """Returns the figures as a table, and what was rejected as a sentence."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    entries = {source: figures[source] for source in SUBJECTS if source in figures}
    rows = [_row(SUBJECTS[source], entry) for source, entry in entries.items()]
    goals, accepted = (sum(e[key] for e in entries.values()) for key in ("goals", "accepted"))
    head = (
        "| PROVED goals of | goals | accepted | not accepted, by reason | median ms | most |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    )
    if not entries:
        return _rejected(figures).lstrip()
    total = f"| all of them | {goals} | {accepted} ({_percent(accepted, goals)}) | | | |\n"
    return f"{head}{''.join(rows)}{total}{_rejected(figures)}"


def _row(subject: str, entry: Mapping[str, Any]) -> str:
    reasons = Counter(entry["reasons"]).most_common()
    return (
        f"| {subject} | {entry['goals']} | {entry['accepted']} "
        f"({_percent(entry['accepted'], entry['goals'])}) | "
        f"{'; '.join(f'{text}: {count}' for text, count in reasons) or 'none'} | "
        f"{entry['median ms']} | {entry['maximum ms']} |\n"
    )


def _percent(part: int, whole: int) -> str:
    """A share, rounded down."""
    return f"{1000 * part // whole / 10:g} %"


def _rejected(figures: Mapping[str, Any]) -> str:
    claims, edits = (sum(figures[key].values()) for key in ("false claims", "edits"))
    harmless, still = (sum(figures[key].values()) for key in ("harmless edits", "proofs still"))
    return (
        f"\nOf {claims} claims about the schedules that are false by construction the search "
        f"proves none, and {figures['offered']:,} proofs of true claims and edits of them are "
        f"rejected for them. Of {edits} edits of proofs that change a number, fact or part of a "
        f"sum, an alternative or the cases, none is accepted. Of {harmless} further ones, of kinds "
        "that may leave a proof (a condition to split at, a bound that is not needed), "
        f"{still} still prove their goal.\n"
    )


SECTION = GeneratedSection(
    DOCS / "verification.md",
    "<!-- figures: make checker -->\n",
    "<!-- end of the figures of the checker -->\n",
    table,
)


if __name__ == "__main__":
    SECTION.write()
