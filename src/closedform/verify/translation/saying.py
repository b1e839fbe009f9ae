"""The verdict on a translation, said to whoever exports: a warning unless it is PROVED."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from closedform.errors import UnprovedWarning, VerificationError
from closedform.ir.graph import Graph
from closedform.language import Schedule, UpdateRule
from closedform.options import GraphOptions, Precision
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.translation import PAIRS, validate

NOT_VALIDATED = Verdict(Status.UNKNOWN, reason="not validated: validate=False")
"""In the place of a verdict where the user asked for none."""

_SUMS = "it has sums over all parameters and several functions: only its ONNX files are validated"


def verdict_text(verdict: Verdict) -> str:
    """Returns a verdict on one line, without tactics: "UNKNOWN, proved for t < 10; open beyond: …".

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
