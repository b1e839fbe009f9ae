"""The number of standard claims that are decided, and their time.

Covers the whole library for all values of its hyperparameters (within the typical and the full
domain of each schedule), the example of every entry, and every config of a real run. Prints the
figures with their bars; the exit code is 1 if one is missed.

    python benchmarks/claims.py [--configs FOLDER]
"""

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sympy as sp

import closedform as cf
from closedform.language import Schedule
from closedform.verify.claims.report import Finding

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.reference.records import CEREBRAS  # noqa: E402
from tests.test_library import SCHEDULES  # noqa: E402 - the table of entries
from tests.verify.defaults import default_conditions  # noqa: E402

BOUND_KINDS = ("total", "finite", "bounded", "continuous")
MEDIAN, WORST = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The findings of one group of claims."""

    name: str
    findings: tuple[Finding, ...]
    least: float

    @property
    def decided(self) -> float:
        """The fraction of the claims that is not UNKNOWN."""
        known = sum(not finding.verdict.unknown for finding in self.findings)
        return known / len(self.findings)

    @property
    def seconds(self) -> list[float]:
        """The time of each claim, including its formulation."""
        return [finding.verdict.seconds for finding in self.findings]

    @property
    def is_met(self) -> bool:
        """Whether all figures are within their bars."""
        fast = statistics.median(self.seconds) <= MEDIAN and max(self.seconds) <= WORST
        return self.decided >= self.least and fast

    def __str__(self) -> str:
        proved = sum(finding.verdict.proved for finding in self.findings)
        times = f"{statistics.median(self.seconds):>7.3f} {max(self.seconds):>7.2f}"
        return (
            f"{self.name:<24} {len(self.findings):>6} {proved:>7} {self.decided:>8.1%} "
            f"(>= {self.least:.0%})  {times}  {'' if self.is_met else 'MISSED'}"
        )


def findings(
    schedules: Iterable[tuple[Schedule, list[sp.Basic]]], kinds: tuple[str, ...] = ()
) -> Iterator[Finding]:
    for schedule, assume in schedules:
        for finding in schedule.verify(assume=assume):
            if not kinds or finding.claim.name in kinds:
                yield finding


def configs(folder: Path) -> Iterator[tuple[Schedule, list[sp.Basic]]]:
    for path in sorted(folder.glob("*.yaml")):
        for schedule in cf.load_schedules(path)[0].values():
            yield schedule, []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=Path, default=CEREBRAS)
    folder = parser.parse_args().configs
    entries = [make() for make in SCHEDULES.values()]
    free = [entry.unbind() for entry in entries]
    groups = {
        "library, common values": (((each, default_conditions(each)) for each in free), (), 0.95),
        "library, whole domain": (((each, []) for each in free), (), 0.95),
        "library, values": (((each, []) for each in entries), BOUND_KINDS, 1.0),
        "configs": (configs(folder), BOUND_KINDS, 1.0),
    }
    print(
        f"{'claims about':<24} {'claims':>6} {'proved':>7} {'decided':>8} {'bar':>9}  "
        f"{'median':>7} {'worst':>7} s"
    )
    missed = False
    for name, (subjects, kinds, least) in groups.items():
        figures = Figures(name, tuple(findings(subjects, kinds)), least)
        print(figures, flush=True)
        missed |= not figures.is_met
        for finding in figures.findings:
            if finding.verdict.unknown:
                print(f"    UNKNOWN {finding.claim.sentence}: {finding.detail}")
    raise SystemExit(int(missed))


if __name__ == "__main__":
    main()
