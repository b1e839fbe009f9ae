"""Results of the verification of a foreign file: rows for people and machines.

Claims about a schedule are asked again. The file is compared with a source that is named; what it
says of its own source, ``closedform.translation``, is reported as stated, not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from closedform.effort import Effort, Watch
from closedform.errors import ArgumentError, ClosedFormError, VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import checked_model, read_model, type_of
from closedform.ir import naming
from closedform.language import Schedule, UpdateRule
from closedform.referee.judgement import Judgement, bound_floats, judge_step, read_step
from closedform.referee.own_files import FileVerdict, judge_file, judge_schedule
from closedform.referee.ports import PortNames
from closedform.referee.step import ForeignStep, ports_by_name
from closedform.verify.certificates.floats import schedule_floats
from closedform.verify.claims.captured import capturable
from closedform.verify.claims.core import claim_effort
from closedform.verify.claims.files import verify_file
from closedform.verify.claims.report import Finding
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.verdicts import FLOATS_KEY, KEY

STATED = "STATED"
"""The verdict of a row that says how a file was read, or repeats what it says of itself."""

STATEMENTS: Mapping[str, str] = {
    KEY: "the file has the value of the source that it was made of",
    FLOATS_KEY: "no value of its graph overflows or is NaN",
}
"""By the key of the metadata: statements of a file that are reported and not checked."""

_REMEDIES: Mapping[str, str] = {KEY: "; --against SOURCE checks it", FLOATS_KEY: ""}

Source = Schedule | UpdateRule | Mapping[str, UpdateRule]
"""A schedule, a rule, or the rule of each parameter of a step by name."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of a report.

    Attributes:
        verdict: PROVED, REFUTED, UNKNOWN, NO or STATED.
        claim: The statement.
        detail: The grounds, the counterexample, or the reason.
        name: The kind of claim, such as ``bounded``.
        counterexample: The values of symbols, as fractions in text.
        is_reached: Whether a run reaches the counterexample; False of an UNKNOWN whose
            counterexample is at a state that a run need not reach.
    """

    verdict: str
    claim: str
    detail: str = ""
    name: str = ""
    counterexample: Mapping[str, str] = field(default_factory=dict)
    is_reached: bool = True


@dataclass(frozen=True, slots=True)
class FileReport:
    """The rows about one file.

    Attributes:
        subject: The name of the file.
        rows: What was found out, in the order in which it was asked.
        seconds: The time that it took; the result does not depend on it.
    """

    subject: str
    rows: tuple[ReportLine, ...]
    seconds: float = field(default=0.0, compare=False)

    def count(self, verdict: str) -> int:
        """Returns the number of rows with a verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def exit_code(self, *, strict: bool = False) -> int:
        """Returns the exit code of ``closedform verify``.

        1 where a row is refuted, 5 where one differs at a state that a run need not reach, 3 where
        ``strict`` and one is unknown, else 0.
        """
        if self.count(Status.REFUTED):
            return 1
        if not all(row.is_reached for row in self.rows):
            return 5
        return 3 if strict and self.count(Status.UNKNOWN) else 0

    def as_data(self) -> dict[str, Any]:
        """Returns the report as data that JSON holds."""
        return asdict(self)

    @staticmethod
    def of_data(data: Mapping[str, Any]) -> FileReport:
        """Returns the report that ``as_data`` returned."""
        rows = tuple(ReportLine(**row) for row in data["rows"])
        return FileReport(data["subject"], rows, data["seconds"])

    def __str__(self) -> str:
        width = max((len(row.claim) for row in self.rows), default=0)
        lines = [f"  {row.verdict:<8} {row.claim:<{width}}  {row.detail}" for row in self.rows]
        return "\n".join([self.subject, *(line.rstrip() for line in lines)])


def unknown_report(path: str | Path, reason: str, seconds: float = 0.0) -> FileReport:
    """Returns the report of a file that could not be looked at within the limits."""
    row = ReportLine(
        str(Status.UNKNOWN), "the file is verified within the limits", reason, "limits"
    )
    return FileReport(Path(path).name, (row,), seconds)


def row_of(finding: Finding) -> ReportLine:
    """Returns a finding of a report as a row."""
    point = finding.verdict.counterexample or {}
    return ReportLine(
        finding.shown,
        finding.claim.sentence,
        finding.detail,
        finding.claim.name,
        {name: str(number) for name, number in point.items()},
    )


def _line_of(
    verdict: Verdict,
    claim: str,
    name: str,
    tensors: Mapping[str, str] | None,
    *,
    is_out_of_reach: bool,
) -> ReportLine:
    """A verdict on a file as a row, with the tensors of its run where there is one."""
    point = {symbol: str(number) for symbol, number in (verdict.counterexample or {}).items()}
    place = ", ".join(f"{symbol} = {number}" for symbol, number in point.items())
    by = f"by {verdict.means}" if verdict.grounds else ""
    parts = (by,) if verdict.proved else (place, verdict.proved_range)
    detail = ": ".join(filter(None, (*parts, verdict.reason)))
    status, values = str(verdict.status), dict(tensors or point)
    return ReportLine(status, claim, detail, name, values, is_reached=not is_out_of_reach)


def check_file(
    path: str | Path,
    source: Source | None = None,
    *,
    effort: float = 1.0,
    budget: float | None = None,
    ports: PortNames | None = None,
) -> FileReport:
    """Returns what is found out about a file, in this process and without limits.

    Args:
        path: The file.
        source: A schedule or rule that it is compared with; a rule for each parameter by name.
        effort: How much work each claim and the comparison may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each of them; None for no such limit.
        ports: What inputs and outputs of a step that another tool wrote are; None for what their
            use says.

    Raises:
        VerificationError: The file cannot be read, or the folder cannot be written.
        ArgumentError: It is of another kind than its source.
    """
    watch = Watch()
    model = checked_model(path)
    rows = list(_rows(Path(path), model, source, effort, budget, ports))
    # A statement of the file that is proved here says nothing more.
    names = {row.name for row in rows if row.verdict == str(Status.PROVED)}
    rows = [row for row in rows if row.verdict != STATED or row.name not in names]
    return FileReport(Path(path).name, tuple(rows), watch.seconds)


def _rows(
    path: Path,
    model: CheckedModel,
    source: Source | None,
    effort: float,
    budget: float | None,
    ports: PortNames | None,
) -> Iterator[ReportLine]:
    kind = rule_file(model.model)
    if kind is None and (ports is not None or is_foreign_step(model)):
        if source is None:
            reason = "name its rule: --against adamw"
            yield ReportLine(
                str(Status.UNKNOWN), "it is the step of an optimizer", reason, "source"
            )
            with suppress(VerificationError):  # the use of its ports does not say what they are
                yield _replay(read_step(model, ports))
        else:
            yield from _judge_foreign_step(path, model, source, ports, effort, budget)
        return
    if ports is not None:
        raise ArgumentError(
            f"the file {kind!r} of a rule names its ports",
            where=f"file {str(path)!r}",
            hint="leave ports out",
        )
    if kind is None:
        _, report = verify_file(path, model, effort=effort, budget=budget)
        yield from (row_of(finding) for finding in report)
        yield _floats(model)
    if source is not None:
        yield _compare_with_source(path, model, source, kind, claim_effort(effort, budget))
    if kind == "step":
        graph = read_model(model)
        yield _replay(ForeignStep(graph, ports_by_name(graph), model))
    yield from _stated_rows(model)
    if kind is not None and source is None:
        reason = "name its rule: --against adamw"
        yield ReportLine(
            str(Status.UNKNOWN), f"it is the file {kind!r} of a rule", reason, "source"
        )


def _floats(model: CheckedModel) -> ReportLine:
    """The results for the graph of a schedule as engines run it."""
    result = schedule_floats(read_model(model))
    point = {name: str(number) for name, number in (result.verdict.counterexample or {}).items()}
    status = str(result.verdict.status)
    return ReportLine(
        status, "no value of its graph overflows or is NaN", result.reason, "floats", point
    )


def _replay(step: ForeignStep) -> ReportLine:
    """Whether replays of a captured step need a number from the host: a question, not a fault."""
    claim = replace(capturable(step), is_question=True)
    return row_of(Finding(claim, claim.verify()))


def rule_file(model: ModelProto) -> str | None:
    """Returns which file of a rule a model is by its outputs: init, step, evaluation or none."""
    outputs = {value.name for value in model.graph.output}
    if naming.following(naming.STEP) in outputs:
        return "step"
    if any(name.startswith(naming.EVALUATION) for name in outputs):
        return "evaluation"
    is_first = any(name.startswith((naming.STATE, naming.SHARED)) for name in outputs)
    return "init" if is_first else None


def is_foreign_step(model: CheckedModel) -> bool:
    """Whether a file is a step of an optimizer: it has several outputs, or tensors as inputs."""
    inputs = [type_of(value) for value in model.graph.input]
    # A schedule has one output and takes the step, and scalars.
    has_tensors = any(type_.dtype.is_float and type_.shape for type_ in inputs)
    return len(model.graph.output) > 1 or has_tensors


_REFEREE_WORK = 10.0
"""Work for the step of another tool, as a multiple of that for a claim."""


def _judge_foreign_step(
    path: Path,
    model: CheckedModel,
    source: Source,
    ports: PortNames | None,
    effort: float,
    budget: float | None,
) -> Iterator[ReportLine]:
    """Yields the verdicts on the step of another tool."""
    if isinstance(source, Schedule):
        raise ArgumentError(
            "the file is a step of an optimizer, and its source is a schedule",
            where=f"file {str(path)!r}",
            hint="name a rule, such as adamw",
        )
    name = source.name if isinstance(source, UpdateRule) else "the rules"
    claim = f"from the first states of {name!r} on it makes the same steps"
    try:
        allowance = claim_effort(effort * _REFEREE_WORK, budget)
        judgement = judge_step(model, source, ports=ports, effort=allowance)
    except ArgumentError:
        raise
    except (ClosedFormError, ArithmeticError) as error:
        yield ReportLine(str(Status.UNKNOWN), claim, str(error), "step")
        return
    verdict, difference = judgement.verdict, judgement.difference
    tensors = None if difference is None else difference.tensors
    yield _line_of(verdict, claim, "step", tensors, is_out_of_reach=judgement.is_out_of_reach)
    if judgement.beginning is not None:
        claim = f"its states begin as those of {name!r}"
        beginning = judgement.beginning
        yield ReportLine(str(beginning.status), claim, beginning.reason, "beginning")
    if verdict.proved:
        yield _bound_floats(judgement, source, name)
    yield _replay(judgement.step)
    reading = [f"{port} in the rule: {meaning}" for port, meaning in judgement.renamed]
    if judgement.step.ports.is_by_use:
        reading.insert(0, f"ports by their use: {judgement.step.ports}")
    if reading:
        yield ReportLine(STATED, "it is read so", "; ".join(reading), "reading")


def _bound_floats(
    judgement: Judgement, source: UpdateRule | Mapping[str, UpdateRule], name: str
) -> ReportLine:
    """The distance in floats from the exported rule; a missing bound is not a fault of the file."""
    claim = f"its floats are near the floats of the exported {name!r}"
    try:
        difference = bound_floats(judgement, source)
    except (ClosedFormError, ArithmeticError) as error:
        return ReportLine(STATED, claim, f"no bound: {error}", "floats")
    status = str(Status.PROVED) if difference.absolute < math.inf else STATED
    return ReportLine(status, claim, str(difference), "floats")


def _stated_rows(model: CheckedModel) -> Iterator[ReportLine]:
    """Yields what the file says of itself, without an opinion on it."""
    for entry in model.model.metadata_props:
        if entry.key in STATEMENTS:
            status = _status(entry.value)
            detail = f"stated, not checked: the file says {status}{_REMEDIES[entry.key]}"
            yield ReportLine(STATED, STATEMENTS[entry.key], detail, entry.key.rpartition(".")[2])


def _status(text: str) -> str:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        # The metadata is text of unknown origin: nesting can exhaust the stack of the JSON parser.
        return "something other than JSON"
    status = content.get("status") if isinstance(content, dict) else None
    return str(status) if status in {*map(str, Status), "NOT VALIDATED"} else "no verdict"


# --- against a source ----------------------------------------------------------------------------


def _compare_with_source(
    path: Path, model: CheckedModel, source: Source, kind: str | None, effort: Effort
) -> ReportLine:
    if isinstance(source, Mapping):
        raise ArgumentError(
            "rules by parameter are for a step that another tool wrote",
            where=f"file {str(path)!r}",
            hint="name one rule",
        )
    is_rule = isinstance(source, UpdateRule)
    if is_rule is (kind is None):
        has, source_kind = ("schedule", "rule") if kind is None else ("rule", "schedule")
        raise ArgumentError(
            f"the file is of a {has}, and its source is a {source_kind}",
            where=f"file {str(path)!r}",
            hint="name a source of the same kind",
        )
    try:
        entry = (
            judge_file(str(kind), model, source, effort)
            if isinstance(source, UpdateRule)
            else FileVerdict(judge_schedule(model, source, effort))
        )
    except (ClosedFormError, ArithmeticError) as error:
        entry = FileVerdict(Verdict(Status.UNKNOWN, reason=str(error)))
    claim = f"the file is {source.name!r}"
    return _line_of(
        entry.verdict, claim, "translation", entry.tensors, is_out_of_reach=entry.is_out_of_reach
    )
