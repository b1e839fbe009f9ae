"""Claims about a file that anyone made: its graph is read back, and every claim is asked again.

The statements of a file about itself are questions, never answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from closedform.errors import DefinitionError, VerificationError, shortened
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import checked_model, read_model
from closedform.language import Schedule
from closedform.verify import claims
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.floats import FLOAT_CLAIMS, about_graph
from closedform.verify.claims.induction import recurrence_of
from closedform.verify.claims.report import Report, check
from closedform.verify.claims.standard import verify_schedule
from closedform.verify.claims.statements import read_arguments
from closedform.verify.terms.build import FALSE
from closedform.verify.translation.from_onnx import from_onnx

KEY = "closedform.claims"
"""The entry of the metadata that holds claims."""

# By name, the functions that rebuild a claim from a schedule and its arguments.
_MADE_AGAIN: Mapping[str, Callable[..., Claim]] = {
    make.__name__: make
    for make in (
        claims.total,
        claims.finite,
        claims.where_safe,
        claims.reached,
        claims.unambiguous,
        claims.bounded,
        claims.non_negative,
        claims.continuous,
        claims.monotone,
        claims.bounded_change,
        claims.argmax,
        claims.argmin,
        claims.ends_at,
        claims.periodic,
        claims.close,
        claims.area,
        claims.sum_diverges,
        claims.square_summable,
    )
} | {"equal": claims.equal, "recurrence": recurrence_of}


def verify_file(
    path: str | PathLike[str],
    model: CheckedModel | None = None,
    *,
    effort: float = 1.0,
    budget: float | None = None,
) -> tuple[Schedule, Report]:
    """Returns the schedule in an ONNX file, and the verdicts of claims about it.

    Asked are the standard claims, and those that the file states as proved, where they can be made
    again from numbers. A stated claim that is refuted here counts as refuted, also where the
    standard claims only ask.

    Args:
        path: The file.
        model: What it contains, if it has been read.
        effort: How much work each claim may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each claim; None for no such limit.

    Raises:
        VerificationError: The file cannot be read, is not a schedule, or states claims in another
            form than a report has.
    """
    model = checked_model(path) if model is None else model
    where = f"file {str(path)!r}"
    entries = _read_stated_claims(model, where)
    schedule = from_onnx(model)
    report = verify_schedule(schedule, effort=effort, budget=budget)
    findings = {finding.claim.sentence: finding for finding in report}
    claims_of_file = []
    for entry in entries:
        finding_in_report = findings.pop(str(entry.get("sentence")), None)
        claims_of_file.append(
            _again(entry, schedule, model, where)
            if finding_in_report is None
            else finding_in_report.claim
        )
    again = check(
        schedule.name,
        (replace(claim, is_question=False) for claim in claims_of_file),
        effort=effort,
        budget=budget,
    )
    return schedule, Report(f"file {Path(path).name!r}", (*findings.values(), *again))


def _read_stated_claims(model: CheckedModel, where: str) -> list[dict[str, Any]]:
    """The claims that the file states as proved."""
    texts = [entry.value for entry in model.model.metadata_props if entry.key == KEY]
    if not texts:
        return []
    requirement = f"{KEY} must be a list of claims with a name and a verdict"
    try:
        entries = json.loads(texts[0])
    except (ValueError, RecursionError):
        raise VerificationError(f"{requirement}, got no JSON", where=where) from None
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise VerificationError(f"{requirement}, got {texts[0][:80]!r}", where=where)
    return [entry for entry in entries if entry["verdict"] == "PROVED"]


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(key), str) for key in ("claim", "verdict")
    )


def _again(entry: dict[str, Any], schedule: Schedule, model: CheckedModel, where: str) -> Claim:
    """The claim of an entry about the schedule that was read, stated in the file."""
    name, numbers = entry["claim"], entry.get("arguments")
    make = _MADE_AGAIN.get(name)
    if name in FLOAT_CLAIMS:
        make = partial(about_graph, name, read_model(model))
    if make is None or not isinstance(numbers, dict):
        goal = Goal("it has no arguments to ask it again with", FALSE, is_sufficient=True)
        sentence = entry.get("sentence", name)
        return Claim(name, f"stated in the file: {sentence}", schedule, (goal,))
    try:
        claim = make(schedule, **read_arguments(numbers))
    except (TypeError, ValueError, ZeroDivisionError, DefinitionError):
        numbers_text = shortened(str(numbers))
        raise VerificationError(
            f"the claim {name!r} cannot be made of {numbers_text}", where=where
        ) from None
    return claim
