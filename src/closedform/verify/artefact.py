"""Verdicts in artefacts: an exported model says whether it was shown to be its source."""

from __future__ import annotations

import json

from onnx import ModelProto, helper

from closedform.errors import VerificationError
from closedform.language import Schedule
from closedform.verify.onnx_graph import read_model
from closedform.verify.translation import BUDGET, validate
from closedform.verify.verdict import Verdict

KEY = "closedform.translation"
"""The entry of the metadata that holds the verdict."""


def validate_model(source: Schedule, model: ModelProto, *, budget: float = BUDGET) -> Verdict:
    """Returns whether a model is its source, and writes the verdict into its metadata.

    The model is read back and the graph that it holds is validated, so the exporter is checked
    with the lowering and the passes. UNKNOWN is written as such, with its reason.

    Args:
        source: What the model was made of.
        model: The model; its metadata gets an entry, a JSON object without times.
        budget: The seconds that it may take.

    Raises:
        VerificationError: They differ at a step that the message names.
    """
    verdict = validate(source, read_model(model), budget=budget)
    if verdict.refuted:
        point = ", ".join(
            f"{name} = {value}" for name, value in (verdict.counterexample or {}).items()
        )
        raise VerificationError(
            f"the model is not its source: at {point} {verdict.reason}",
            where=f"schedule {source.name!r}",
            hint="this is a defect of the compiler: report it; validate=False exports all the same",
        )
    known = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, dict(sorted({**known, KEY: as_json(verdict)}.items())))
    return verdict


def as_json(verdict: Verdict) -> str:
    """Returns what a verdict says, as a JSON object that is the same at every run."""
    content = {
        "reason": verdict.reason,
        "status": str(verdict.status),
        "tactics": list(verdict.tactics),
    }
    return json.dumps(content, sort_keys=True)
