"""The result of a claim: proved, refuted at a point, or not decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import sympy as sp


class Status(StrEnum):
    """The three ways a claim can end. UNKNOWN is never a pass."""

    PROVED = "PROVED"
    REFUTED = "REFUTED"
    UNKNOWN = "UNKNOWN"


CHECKED_STEPS = "checked steps"
"""The ground of a proof that the checker replayed."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an update rule: its first states, the inputs of each step, and where it ends.

    Args:
        first: The parameter before the first step and the open hyperparameters, by name.
        inputs: The gradient and further tensors of each step, by name; the last ones are those of
            all later steps, too.
        steps: The number of steps that are taken before the one that the verdict is about.
    """

    first: Mapping[str, sp.Rational]
    inputs: tuple[Mapping[str, sp.Rational], ...]
    steps: int

    def __str__(self) -> str:
        beginning = ", ".join(f"{name} = {number}" for name, number in self.first.items())
        rows = {
            name: [inputs[name] for inputs in self.inputs] for name in (self.inputs or ({},))[0]
        }
        inputs_text = ", ".join(
            f"{name} = {', '.join(map(str, numbers))}" for name, numbers in rows.items()
        )
        count = "1 step" if self.steps == 1 else f"{self.steps} steps"
        return f"after {count} from {beginning} with {inputs_text}"


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that the checker accepted, as JSON data: ``check(proof.statement, proof.steps)``.

    Args:
        statement: The goal and its assumptions.
        steps: The steps, and the terms in them.
        goal: The goal as text, for people.
    """

    statement: Mapping[str, Any]
    steps: Mapping[str, Any]
    goal: str = ""

    @property
    def step_count(self) -> int:
        """The number of its steps."""
        count = 0
        pending: list[Any] = [self.steps["step"]]
        while pending:
            part = pending.pop()
            if isinstance(part, list):
                # A list that begins with a word is a step; numbers are text, too.
                count += bool(part) and isinstance(part[0], str) and part[0].isalpha()
                pending += part
        return count


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict; ask ``proved``, ``refuted`` or ``unknown``, its truth value raises TypeError.

    Args:
        status: The result.
        grounds: The ways in which it was proved or refuted, in the order of their use.
        counterexample: The values of all symbols at which the claim is false, by exact evaluation.
        reason: The finding at that point, the open part, or the assumption of the proof.
        samples: The points at which the claim was evaluated and true.
        proved_until: Of an UNKNOWN verdict on all steps, the first step that is open: the claim is
            proved at every step below it. None where no such range was looked for or found.
        run: Of a refuted claim about the steps of a rule, the run to the step at which it is false.
        proof: Of a proved claim, the proof of each goal.
        seconds: The time that it took; verdicts are compared without it.
    """

    status: Status
    grounds: tuple[str, ...] = ()
    counterexample: Mapping[str, sp.Rational] | None = None
    reason: str = ""
    samples: int = 0
    proved_until: int | None = None
    run: Run | None = None
    proof: tuple[Proof, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def proved(self) -> bool:
        """Whether the claim holds everywhere."""
        return self.status is Status.PROVED

    @property
    def refuted(self) -> bool:
        """Whether the claim is false at ``counterexample``."""
        return self.status is Status.REFUTED

    @property
    def unknown(self) -> bool:
        """Whether neither was shown."""
        return self.status is Status.UNKNOWN

    @property
    def step_count(self) -> int:
        """The steps of its proof, which the checker replayed."""
        return sum(goal_proof.step_count for goal_proof in self.proof)

    @property
    def means(self) -> str:
        """How it was proved or refuted, as text: its grounds, with the number of its steps."""
        steps = self.step_count
        count = f"{steps:,} checked step{'s' if steps > 1 else ''}"
        names = (count if name == CHECKED_STEPS and steps else name for name in self.grounds)
        return ", ".join(names)

    @property
    def proved_range(self) -> str:
        """The range of steps that is proved, as text; empty where that is not known."""
        if self.proved_until is None:
            return ""
        return f"proved for t < {self.proved_until:,}; open beyond"

    def __bool__(self) -> bool:
        raise TypeError("a verdict has no truth value: ask .proved, .refuted or .unknown")

    def __str__(self) -> str:
        parts: list[str] = [self.status.value]
        if self.means:
            parts.append(f"by {self.means}")
        if self.counterexample is not None:
            point = ", ".join(f"{name} = {value}" for name, value in self.counterexample.items())
            parts.append(f"at {point}" if point else "at every point")
        text = " ".join(parts)
        if self.proved_until is not None:
            text = f"{text}, {self.proved_range}"
        return f"{text}: {self.reason}" if self.reason else text

    def after(self, seconds: float) -> Verdict:
        """Returns the same verdict with another time."""
        return replace(self, seconds=seconds)
