"""Verdicts on translations: said to whoever exports, and written into the metadata of a file.

Two verdicts, which are never mixed: ``closedform.translation`` is about the formula, over the real
numbers; ``closedform.floats`` about the graph as engines run it, with rounding and overflow.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ModelProto

from closedform.compiler import refuse_nonfinite
from closedform.effort import Effort
from closedform.errors import ClosedFormError, UnprovedWarning, VerificationError
from closedform.exporters.onnx_metadata import set_metadata
from closedform.importers.onnx_graph import read_model
from closedform.ir.graph import Graph
from closedform.ir.program import Program
from closedform.language import Schedule, UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision
from closedform.verify.certificates.floats import rule_floats, schedule_floats
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_files import (
    FILES,
    OutputVerdict,
    combine_verdicts,
    validate_file,
)
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model
from closedform.verify.translation.translation import PAIRS, validate

NOT_VALIDATED = Verdict(Status.UNKNOWN, reason="not validated: validate=False")
"""In the place of a verdict where the user asked for none."""

_SUMS = "it has sums over all parameters and several functions: only its ONNX files are validated"


def verdict_text(verdict: Verdict) -> str:
    """Returns a verdict on one line, without grounds: "UNKNOWN, proved for t < 10; open beyond: …".

    Example:
        >>> verdict_text(Verdict(Status.UNKNOWN, reason="it is too large", proved_until=10))
        'UNKNOWN, proved for t < 10; open beyond: it is too large'
    """
    if verdict is NOT_VALIDATED:
        return verdict.reason
    if verdict.proved:
        return str(verdict.status)
    summary = ", ".join(filter(None, (str(verdict.status), verdict.proved_range)))
    return f"{summary}: {verdict.reason}" if verdict.reason else summary


def warn_unless_proved(verdict: Verdict, subject: str) -> None:
    """Issues an ``UnprovedWarning`` at the line that called closedform, unless it is PROVED.

    Args:
        verdict: The verdict on the translation; none that the user did not ask for.
        subject: The translation, such as "the file of schedule 'cosine'".
    """
    if verdict.proved or verdict is NOT_VALIDATED:
        return
    warnings.warn(
        f"{subject} is not proved to be its source: {verdict_text(verdict)}",
        UnprovedWarning,
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """The stack level, counted from the caller of this function, of code outside of closedform."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_own(str(frame.f_globals.get("__name__", ""))):
        level, frame = level + 1, frame.f_back
    return level


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "closedform"


def translation_note(verdict: Verdict) -> str:
    """Returns the sentence for the comment of a file that is printed from a graph."""
    if verdict is NOT_VALIDATED:
        return "Formula: not validated (validate=False)."
    if verdict.proved:
        return "Formula: the graph of this text is PROVED equal to it over the real numbers."
    return f"Formula: the graph of this text is not proved to be it: {verdict_text(verdict)}."


def refuse_refuted(verdict: Verdict, where: str) -> None:
    """Raises VerificationError with the point at which a translation is another function."""
    if verdict.refuted:
        values_by_name = verdict.counterexample or {}
        point = ", ".join(f"{name} = {value}" for name, value in values_by_name.items())
        at_point = f"at {point} " if point else ""
        raise VerificationError(
            f"the model is not its source: {at_point}{verdict.reason}",
            where=where,
            hint="this is a defect of the compiler: report it; validate=False exports all the same",
        )


def graph_verdict(source: Schedule | UpdateRule, graph: Graph, options: GraphOptions) -> Verdict:
    """Returns whether the graph that is printed as code is its source.

    Graphs in pairs of float32 are not read: over the real numbers nothing would come of it.
    """
    if options.precision is Precision.DOUBLE_FLOAT:
        return Verdict(Status.UNKNOWN, reason=PAIRS)
    return validate(source, graph)


def step_verdict(
    rule: UpdateRule, graphs: Sequence[Graph | None], options: GraphOptions
) -> Verdict:
    """Returns whether the graphs of a rule on flat arrays of any size, sums and step, are it."""
    *stages, step = graphs
    if stages or step is None:
        return Verdict(Status.UNKNOWN, reason=_SUMS)
    return graph_verdict(rule, step, options)


KEY = "closedform.translation"
"""The entry of the metadata that holds the verdict on the formula."""

FLOATS_KEY = "closedform.floats"
"""The entry of the metadata that holds the verdict on the floats of the graph."""


def validate_model(source: Schedule, model: ModelProto, *, effort: Effort | None = None) -> Verdict:
    """Returns whether a model is its source, and writes the verdicts into its metadata.

    The model is read back and the graph that it holds is validated, so the exporter is checked
    with the lowering and the simplifier; then its floats are, up to the last step that the domain
    of the schedule declares. UNKNOWN is written as such, with its reason.

    Args:
        source: What the model was made of.
        model: The model; its metadata gets an entry, a JSON object without times.
        effort: The work that it may do; that of one validation if None.

    Raises:
        VerificationError: They differ at a step that the message names.
        LoweringError: The value is NaN or infinite at a step that the message names.
    """
    graph = read_model(model)
    verdict = validate(source, graph, effort=effort)
    refuse_refuted(verdict, f"schedule {source.name!r}")
    floats = schedule_floats(graph, last=source.last_step)
    if floats.check is not None:
        refuse_nonfinite(source, graph, floats.check)
    _write(model, KEY, as_json(verdict))
    _write(model, FLOATS_KEY, json.dumps(floats.as_data(), sort_keys=True))
    return verdict


def validate_rule(
    spec: ModelSpec,
    options: GraphOptions,
    models: Mapping[str, ModelProto],
    *,
    program: Program | None = None,
    effort: Effort | None = None,
) -> dict[str, Verdict]:
    """Returns whether the files of a rule are the rule; writes the verdicts into their metadata.

    Each file is read back. Parameters that are computed in the same way are one proof; the entry
    says of how many. UNKNOWN is written as such, with its reason.

    Args:
        spec: The parameters and their rules.
        options: How they were compiled.
        models: The models by the names of ``FILES``; others are left as they are.
        program: The step that the models were made of; its floats are checked if it is given.
        effort: The work that it may do in all; that of one validation if None.

    Raises:
        VerificationError: A file is not the rule; the message names the output and a point.
    """
    budget = Effort.of(LIMITS.validation_work) if effort is None else effort
    kinds = Kinds(options.tensor_dtype, options.scalar_dtype)
    members = [(assignment.rule, assignment.params) for assignment in spec.assignments]
    verdicts = {}
    # Sorted: the files share a budget, and a set has no order.
    for name in sorted(FILES.keys() & models.keys()):
        try:
            parts = validate_file(name, Model(members, kinds), models[name], budget)
        except ClosedFormError as error:
            parts = [OutputVerdict("", 0, Verdict(Status.UNKNOWN, reason=str(error)))]
        verdicts[name] = combine_verdicts(parts)
        refuse_refuted(verdicts[name], f"rule {spec.rule.name!r}, file '{name}.onnx'")
        _write(models[name], KEY, as_json(verdicts[name], parts))
    if program is not None:
        floats = rule_floats(program, read_model(models["init"]))
        _write(models["step"], FLOATS_KEY, json.dumps(floats.as_data(), sort_keys=True))
    return verdicts


def mark_not_validated(model: ModelProto) -> None:
    """Writes into the metadata of a model that nothing was shown of it."""
    content = {"reason": "validate=False", "status": "NOT VALIDATED", "grounds": []}
    _write(model, KEY, json.dumps(content, sort_keys=True))


def translation_line(model: ModelProto) -> str:
    """Returns the verdict in the metadata of a model that was exported here, on one line."""
    metadata = next(entry.value for entry in model.metadata_props if entry.key == KEY)
    content = json.loads(metadata)
    if content["status"] not in set(Status):
        return "translation: not validated"
    verdict = Verdict(
        Status(content["status"]),
        reason=content["reason"],
        proved_until=content.get("proved_until"),
    )
    return f"translation: {verdict_text(verdict)}"


def _write(model: ModelProto, key: str, content: str) -> None:
    properties = {entry.key: entry.value for entry in model.metadata_props}
    set_metadata(model, {**properties, key: content})


def as_json(verdict: Verdict, parts: Sequence[OutputVerdict] = ()) -> str:
    """Returns a verdict as a JSON object, the same at every run.

    Args:
        verdict: The verdict on a file.
        parts: The results of its parameters, for the files of a rule.
    """
    content: dict[str, Any] = _facts(verdict)
    if parts:
        content["parts"] = [
            {"of": part.name, "parameters": part.count, **_facts(part.verdict)} for part in parts
        ]
        for part in content["parts"]:
            del part["reason"]
    return json.dumps(content, sort_keys=True)


def _facts(verdict: Verdict) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "reason": verdict.reason,
        "status": str(verdict.status),
        "grounds": list(verdict.grounds),
    }
    if verdict.proved_until is not None:
        facts["proved_until"] = verdict.proved_until
    return facts
