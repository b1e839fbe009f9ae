"""Fits laws to early records of Track 3 of modded-nanogpt, and tries them on later ones.

The records are lines of tests/laws/data/track_3.jsonl, read from the logs of the repository
KellerJordan/modded-nanogpt at f411b3d3, folder records/track_3_optimization: the numbers of the
schedule of the matrices, rates that the log's own code computes, losses as means over the seeds.
``python -m tools track_3`` takes two minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from closedform.language import Schedule, t
from closedform.laws import NonIncreasing, Run, design, fit, predict
from tools.sections import DOCS, RESULTS_FOLDER, ROOT, GeneratedSection, add_figures

RECORDS = ROOT / "tests" / "laws" / "data" / "track_3.jsonl"
RESULTS = RESULTS_FOLDER / "track_3.json"
UPSTREAM = (
    "https://github.com/KellerJordan/modded-nanogpt/blob/f411b3d3/records/track_3_optimization"
)

EARLY = range(1, 13)
"""Records whose losses are fitted; those after them are predicted."""
WITH_WARMUP = (2, 4)
"""Records whose rate rises first: the laws are of runs after their warmup."""
LONGEST = 3_500
"""Updates of the records that are predicted: two baselines are far beyond those of the fit."""
FIRST, MIDDLE, LATE = 250, 1_500, 2_500
"""Updates: the first loss of a fit, and two after which each record has a loss."""
SCALE = 1e-3
"""The peak of every schedule in a law: the optimizers have rates of different meanings."""


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """A record, by the numbers of its schedule.

    Attributes:
        numbers: The line of the file.
    """

    numbers: Mapping[str, Any]

    def schedule(self, peak: float | None = None) -> Schedule:
        """Returns the rate of the matrices; with a peak, as a part of it.

        ``peak * min(1, low + (1 - low) * ((end - t) / length)**power)``.
        """
        numbers = self.numbers
        rate = sp.Rational(str(numbers["peak"]))
        rest = sp.Max(0, (sp.Integer(numbers["end"]) - t) / self.length)
        if "later_end" in numbers:
            first, end = numbers["later_end"]
            rest = sp.Piecewise((rest, t < first), (sp.Max(0, (end - t) / self.length), True))
        low = sp.Rational(str(numbers.get("floor", 0)))
        fall = low + (1 - low) * rest**self.power
        shape = sp.Min(1, fall)
        if numbers["number"] == 2:
            shape *= sp.Min(1, (t + 1) / sp.Integer(numbers["warmup"]))
        elif "warmup" in numbers:
            warmup = sp.Integer(numbers["warmup"])
            shape = sp.Piecewise((t / warmup, t < warmup), (shape, True))
        return Schedule((rate if peak is None else sp.Rational(str(peak))) * shape)

    @property
    def power(self) -> sp.Rational:
        """The power of the decay."""
        return sp.Rational(str(self.numbers.get("power", 1)))

    @property
    def length(self) -> sp.Expr:
        """The updates of the decay: a part of the schedule, or as the slope of the power has it."""
        numbers = self.numbers
        if "slope" in numbers:
            ratio = sp.Rational(str(numbers["peak"])) / sp.Rational(str(numbers["slope"]))
            return ratio ** (1 / self.power)
        return sp.Rational(str(numbers["cooldown"])) * numbers["end"]

    def formula(self) -> str:
        """Returns the schedule in text."""
        numbers = self.numbers
        fall = f"({numbers['end']} − t)/{float(self.length):.6g}"
        if self.power != 1:
            fall = f"({fall})^{numbers['power']}"
        if "floor" in numbers:
            fall = f"{numbers['floor']} + {1 - numbers['floor']:.6g} {fall}"
        text = f"{numbers['peak']} min(1, {fall})"
        if "warmup" in numbers:
            text += f", after a warmup of {numbers['warmup']}"
        if "later_end" in numbers:
            text += ", from {} on with {}".format(*numbers["later_end"])
        return text

    @property
    def losses(self) -> dict[int, float]:
        """Updates done -> loss."""
        return {int(update): float(loss) for update, loss in self.numbers["losses"]}


def read_records() -> list[TrackRecord]:
    """Returns the records in the order of their numbers."""
    lines = RECORDS.read_text(encoding="utf-8").splitlines()
    return [TrackRecord(json.loads(line)) for line in lines]


def early_records() -> list[TrackRecord]:
    """Returns the records whose losses are fitted."""
    return [r for r in read_records() if r.numbers["number"] in {*EARLY} - {*WITH_WARMUP}]


def later_records() -> list[TrackRecord]:
    """Returns the records that are predicted."""
    return [
        record
        for record in read_records()
        if record.numbers["number"] not in EARLY
        and record.numbers["updates"] <= LONGEST
        and record.losses
    ]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns Spearman's rank correlation.

    Example:
        >>> rank_correlation([1, 2, 3], [10, 30, 20])
        0.5
    """

    def ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        array = np.asarray(values)
        return np.array([np.mean(array < value) + np.mean(array <= value) for value in array])

    return round(float(np.corrcoef(ranks(first), ranks(second))[0, 1]), 6)


def correlations(law: str, parameters: Mapping[str, float]) -> dict[str, float]:
    """Returns the rank correlations of predictions and measurements over the later records."""
    predicted, measured = [], []
    for record in later_records():
        updates = [MIDDLE, LATE, max(record.losses)]
        losses = predict(record.schedule(SCALE), law, parameters, horizon=updates)
        predicted.append([losses[2], losses[1], losses[0] - losses[1]])
        found = [record.losses[update] for update in updates]
        measured.append([found[2], found[1], found[0] - found[1]])
    names = ("last loss", f"loss after {LATE}", f"fall from {MIDDLE} to {LATE}")
    columns = zip(names, zip(*predicted, strict=True), zip(*measured, strict=True), strict=True)
    return {name: rank_correlation(ours, theirs) for name, ours, theirs in columns}


def fit_early(law: str) -> dict[str, Any]:
    """Returns the parameters of a law by the early records, and its rank correlations."""
    runs = []
    for record in early_records():
        points = {update: loss for update, loss in record.losses.items() if update >= FIRST}
        runs.append(Run(record.schedule(SCALE), list(points), list(points.values())))
    fitted = fit(law, runs)
    updates = 3_000
    best = design(
        law, updates, NonIncreasing(SCALE, 0, updates, 0, knots=24), fitted.parameters
    ).schedule
    marks = [float(best(updates * part // 10)) / SCALE for part in range(10)]
    return {
        "parameters": fitted.parameters,
        "error": fitted.error,
        "correlations": correlations(law, fitted.parameters),
        "design": marks,
    }


def results() -> dict[str, Any]:
    """Returns the stored figures by law."""
    figures: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return figures


def table_of_laws() -> str:
    """Returns the table of the fits."""
    names = list(next(iter(results().values()))["correlations"])
    lines = [
        f"| law | mean error of the fit | {' | '.join(names)} |",
        f"| --- | --- | {' | '.join('---' for _ in names)} |",
    ]
    for law, figures in results().items():
        cells = " | ".join(f"{figures['correlations'][name]:+.2f}" for name in names)
        lines.append(f"| `{law}` | {figures['error']:.2%} | {cells} |")
    return "\n".join(lines)


def table_of_records() -> str:
    """Returns the table of the records, each with its log as the source."""
    lines = [
        "| record | updates to 3.28 | rate of the matrices at update t |",
        "| --- | --- | --- |",
    ]
    for record in read_records():
        numbers = record.numbers
        link = f"[{numbers['number']}]({UPSTREAM}/{numbers['log']})"
        lines.append(f"| {link} | {numbers['updates']:,} | {record.formula()} |")
    return "\n".join(lines)


def _section(name: str, build: Any) -> GeneratedSection:
    marks = f"<!-- {name}, by `python -m tools track_3` -->\n\n", f"\n\n<!-- end of {name} -->"
    return GeneratedSection(DOCS / "track_3.md", *marks, build)


SECTIONS = (_section("laws", table_of_laws), _section("records", table_of_records))


def main() -> None:
    """Fits, stores the figures and writes the page."""
    add_figures(RESULTS, {law: fit_early(law) for law in ("momentum", "multi_power")})
    for section in SECTIONS:
        section.write()


if __name__ == "__main__":
    main()
