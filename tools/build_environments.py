"""Writes the table of docs/stability.md: the tests in environments other than that of `make test`.

`make environments` measures and runs it. The figures stand in tools/results/environments.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.support.environments import ENVIRONMENTS, Outcome, parts, read
from tools.sections import DOCS, GeneratedSection

HEAD = (
    "| environment | parts of the tests | passed | failed | skipped, by reason | commits |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


def table() -> str:
    """Returns the stored outcomes as a table."""
    results = read()
    rows = [_row(name, results[name]) for name in ENVIRONMENTS if name in results]
    return f"{HEAD}{''.join(rows)}" if rows else "No environment has a stored result.\n"


def _row(name: str, outcomes: Mapping[str, Outcome]) -> str:
    skips: Counter[str] = Counter()
    for outcome in outcomes.values():
        skips.update(outcome.skips)
    passed, failed = (
        sum(getattr(o, key) for o in outcomes.values()) for key in ("passed", "failed")
    )
    reasons = "; ".join(f"{words}: {count}" for words, count in sorted(skips.items())) or "none"
    commits = ", ".join(sorted({outcome.commit[:8] for outcome in outcomes.values()}))
    return (
        f"| {ENVIRONMENTS[name].title} | {len(outcomes)} of {len(list(parts()))} | {passed:,} | "
        f"{failed} | {reasons} | {commits} |\n"
    )


SECTION = GeneratedSection(
    DOCS / "stability.md",
    "<!-- figures: make environments -->\n",
    "<!-- end of the figures of the environments -->\n",
    table,
)


if __name__ == "__main__":
    SECTION.write()
