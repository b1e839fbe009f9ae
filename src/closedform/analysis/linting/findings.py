"""Findings of a linter of recipes, and the table of its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from closedform.analysis.result import Result


class Severity(StrEnum):
    """The severity of a finding, from the least to the greatest."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return list(Severity).index(self)


RULES: Mapping[str, tuple[Severity, str]] = {
    "warmup-not-finished": (Severity.ERROR, "the run ends while the rate still rises"),
    "decay-not-started": (Severity.ERROR, "the run ends before the rate begins to fall"),
    "decay-not-finished": (Severity.WARNING, "the run ends before the decay does"),
    "updates-without-effect": (Severity.WARNING, "several updates have the rate 0"),
    "jump": (Severity.ERROR, "two neighbouring updates differ by more than either branch changes"),
    "rises-after-decay": (Severity.ERROR, "the rate rises again where the decay has ended"),
    "negative-rate": (Severity.ERROR, "a rate is below 0"),
    "above-peak": (Severity.ERROR, "a rate is above the peak that the config states"),
    "below-minimum": (Severity.ERROR, "a rate is below the minimum that the config states"),
    "rate-of-the-optimizer-ignored": (Severity.WARNING, "a rate of the config has no effect"),
    "unscheduled-group": (Severity.WARNING, "the rate of a group does not follow the schedule"),
    "group-rates-overwritten": (Severity.WARNING, "the rate of a group has no effect"),
    "horizon-mismatch": (Severity.ERROR, "the length of the schedule is not that of the run"),
    "unit-mismatch": (Severity.ERROR, "the length of the schedule is counted in another unit"),
    "schedule-replaced": (Severity.WARNING, "another file's schedule takes the config's place"),
    "warmup-fraction": (Severity.WARNING, "a fraction of the warmup is not one of the run"),
    "refused-by-framework": (Severity.ERROR, "two files of the run contradict each other"),
    "weight-decay-not-applied": (Severity.WARNING, "a weight decay of the config has no effect"),
    "defect": (Severity.WARNING, "the framework departs from its documentation"),
}
"""Rule -> its severity, unless the finding has a lower one, and the fault that it finds."""


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """A fault of a recipe, with the values that show it.

    Attributes:
        rule: The rule, a key of ``RULES``.
        severity: How grave it is.
        message: The fault, in a sentence, with the numbers of the config.
        quantity: The hyperparameter that it concerns: ``lr``, ``weight_decay``.
        group: The param group by its name; empty for the default group.
        update: The first update that is wrong, counted from 0; None where no single update is.
        evidence: Update -> the exact value there: the counterexample.
    """

    rule: str
    severity: Severity
    message: str
    quantity: str = "lr"
    group: str = ""
    update: int | None = None
    evidence: Mapping[int, str] | None = None

    def lines(self) -> list[str]:
        """Returns the finding in one line."""
        place = f" [{self.group}]" if self.group else ""
        return [f"{self.severity} {self.rule}{place}: {self.message}"]
