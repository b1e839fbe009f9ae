"""``closedform verify``: verdicts on claims about a schedule, rule, recipe or ONNX file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import SourceOptions, json_flag, name_argument, source_bundle
from closedform.cli.output import check_free, heading, output_folder, print_json, table
from closedform.cli.parser import UsageError, at_least_a_tenth, command, flag, option

if TYPE_CHECKING:
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe
    from closedform.referee.file_report import ReportLine
    from closedform.verify.claims.report import Report

REFUTED, UNKNOWN, OUT_OF_REACH = 1, 3, 5
"""Exit codes."""

HELP = """\
Verify claims about NAME: each is proved, refuted by a counterexample, or undecided.

The exit code is 0, 1 if a claim is refuted, 2 for a wrong request, 3 with --strict if a claim is
undecided, 4 if the input cannot be read, and 5 if a step of a file differs from that of its rule,
as far as is known only at a state that a run need not reach. NO answers a question, such as whether
a schedule jumps, and is not a failure. STATED repeats what a file says, which is not checked.

The arguments of NAME are options. An .onnx file is read in a separate process, with limits of time
and memory; --against says which source it should be.

examples:
  closedform verify cosine --start 3e-4 --end 0 --steps 100
  closedform verify step.onnx --against adamw --set lr=0.01
"""


@dataclass(frozen=True, slots=True)
class _Checked:
    """The rows of a report, and the schedule if it concerns one."""

    title: str
    rows: tuple[ReportLine, ...]
    seconds: float
    code: int
    schedule: Schedule | None = None
    certificate_line: str = ""


@command
class Options:
    """The options of ``closedform verify``."""

    name: str = name_argument()
    words: list[str]
    output: Path | None = option("a .png, .svg or .pdf plot with counterexamples", "-o", type=Path)
    force: bool = flag("overwrite the plot")
    symbolic: bool = flag("verify for all values of the hyperparameters")
    strict: bool = flag("exit with code 3 if a claim is undecided")
    as_json: bool = json_flag()
    against: str | None = option(
        "compare an .onnx file with a source: a name with its options in quotes, a config "
        "file, or FILE.py:NAME, which is run"
    )
    settings: list[str] = option(
        "an option of the source of --against, such as lr=0.01; may be repeated",
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
    )
    ports: Path | None = option(
        "a JSON file of what the inputs and outputs of a step are, such as "
        '{"in_0": "grad.w"}; without it their use says so',
        type=Path,
    )
    certificate: Path | None = option(
        "a folder for the proofs, as JSON that the checker replays", type=Path
    )
    effort: float = option(
        "work per claim, as a multiple of the usual (default: 1)",
        type=at_least_a_tenth,
        default=1.0,
    )
    budget: float | None = option(
        "seconds of wall-clock time per claim (default: no limit; a verdict that it ends "
        "depends on the machine)",
        type=at_least_a_tenth,
    )
    seconds: float = option(
        "seconds for an .onnx file (default: 60)", type=at_least_a_tenth, default=60.0
    )
    memory: float = option(
        "GiB of memory for an .onnx file (default: 2)", type=at_least_a_tenth, default=2.0
    )
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> int:
    """Prints the verdicts."""
    from closedform.cli.sources import load_source

    is_file = options.name.lower().endswith(".onnx")
    if is_file and options.words:
        raise UsageError(f"an .onnx file takes no {options.words[0]}")
    if options.against is not None and not is_file:
        raise UsageError(f"--against is for an .onnx file, got {options.name!r}")
    if options.ports is not None and not is_file:
        raise UsageError(f"--ports is for an .onnx file, got {options.name!r}")
    if options.settings and options.against is None:
        raise UsageError("--set is for the source of --against, and there is none")
    if is_file and options.certificate is not None:
        raise UsageError("--certificate is for a source, got an .onnx file")
    check_free(options.output, force=options.force)
    if is_file:
        subjects = [_check_file(options)]
    else:
        source = load_source(options.name, options.words, options.source_options)
        subjects = []
        for title, report, *schedule in _check_source(source, options):
            subject = _of_report(title, report, *schedule, strict=options.strict)
            if options.certificate is not None:
                subject = _with_certificate(subject, report, options.certificate)
            subjects.append(subject)
    if options.as_json:
        print_json([_as_data(subject) for subject in subjects])
    for subject in () if options.as_json else subjects:
        _show(subject)
    if options.output is not None:
        _draw(subjects, options.name, options.source_options.key, options.output)
    return max((subject.code for subject in subjects), key=weight)


def with_settings(against: str | None, settings: Iterable[str]) -> str | None:
    """Returns a source with more options, as text.

    Example:
        >>> with_settings("adamw", ["lr=0.01", "weight_decay=0"])
        'adamw --lr 0.01 --weight-decay 0'
    """
    if against is None:
        return None
    words = [against]
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--set takes NAME=VALUE, got {setting!r}")
        words += [f"--{name.strip().replace('_', '-')}", shlex.quote(value.strip())]
    return " ".join(words)


def weight(code: int) -> int:
    """Returns the rank of an exit code: a refutation (1) outranks what is undecided (5, 3)."""
    return (0, UNKNOWN, OUT_OF_REACH, REFUTED).index(code)


def _check_file(options: Options) -> _Checked:
    from closedform.api.verification import verify_file

    report = verify_file(
        Path(options.name),
        against=with_settings(options.against, options.settings),
        ports=options.ports,
        key=options.source_options.key,
        effort=options.effort,
        budget=options.budget,
        seconds=options.seconds,
        memory=int(options.memory * 2**30),
    )
    code = report.exit_code(strict=options.strict)
    return _Checked(report.subject, report.rows, report.seconds, code)


def _of_report(
    title: str,
    report: Report,
    schedule: Schedule | None = None,
    *,
    strict: bool,
) -> _Checked:
    from closedform.referee.file_report import row_of

    rows = tuple(row_of(finding) for finding in (*report, *report.floats))
    return _Checked(title, rows, report.seconds, report.exit_code(strict=strict), schedule)


def _with_certificate(subject: _Checked, report: Report, folder: Path) -> _Checked:
    """A subject whose proofs are in a folder, with the number of goals that have them."""
    from closedform.referee.file_report import row_of

    lines = []
    name = re.sub(r"[^\w.-]+", "-", subject.title)
    if subject.schedule is not None and not subject.schedule.open:
        equality = _equality_of_file(subject.schedule, folder / f"{name}.onnx")
        lines = [f"{row.verdict} {row.claim}" for row in map(row_of, equality)]
        report = replace(report, findings=(*report.findings, *equality.findings))
    certificate = report.certificate()
    certificate.check()
    certificate.write(folder / f"{name}.json")
    lines.append(f"certificate: the proofs of {len(certificate.certified)} goals")
    return replace(subject, certificate_line="\n".join(lines))


def _equality_of_file(schedule: Schedule, path: Path) -> Report:
    """The verdict that the term read back from an ONNX file of a schedule is that of its source."""
    from closedform.api.onnx import from_onnx, to_onnx
    from closedform.verify.claims.report import check
    from closedform.verify.claims.values import equal_to

    with output_folder(path.parent):
        to_onnx(schedule, path)
    back = from_onnx(path).rename(path.name)
    return check(schedule.name, [equal_to(schedule, back)])


def _check_source(
    source: Schedule | UpdateRule | Recipe, options: Options
) -> Iterator[tuple[str, Report] | tuple[str, Report, Schedule]]:
    from closedform.cli.sources import rule_of, schedules_of
    from closedform.language import Schedule

    for key, schedule in schedules_of(source).items():
        title = schedule.name if isinstance(source, Schedule) else f"{key}: {schedule.name}"
        subject = schedule.unbind() if options.symbolic else schedule
        yield title, subject.verify(effort=options.effort, budget=options.budget), subject
    rule = rule_of(source)
    if rule is not None:
        yield f"optimizer: {rule.name}", rule.verify(effort=options.effort, budget=options.budget)


def _as_data(subject: _Checked) -> dict[str, object]:
    return {
        "subject": subject.title,
        "exit_code": subject.code,
        "seconds": round(subject.seconds, 3),
        "rows": [asdict(row) for row in subject.rows],
        **(
            {"certificate": subject.certificate_line.splitlines()}
            if subject.certificate_line
            else {}
        ),
    }


def _show(subject: _Checked) -> None:
    heading(subject.title)
    rows = [(row.verdict, row.claim, row.detail) for row in subject.rows]
    table(("verdict", "claim", "by, or counterexample"), rows)
    certificate_line = f"{subject.certificate_line}\n" if subject.certificate_line else ""
    print(f"{summary(subject.rows, subject.seconds)}\n{certificate_line}")


_WORDS = {
    "PROVED": "proved",
    "REFUTED": "refuted",
    "NO": "answered no",
    "UNKNOWN": "unknown",
    "STATED": "stated",
}


def summary(rows: Iterable[ReportLine], seconds: float) -> str:
    """Returns the number of rows per verdict."""
    verdicts = [row.verdict for row in rows]
    counts = {word: verdicts.count(verdict) for verdict, word in _WORDS.items()}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{text or 'no claims'}, in {seconds:.2f} s"


def _draw(subjects: list[_Checked], name: str, key: str, output: Path) -> None:
    from closedform.plotting import last_step, plot_schedule

    plottable = [(subject, _schedule_of(subject, name)) for subject in subjects]
    curves = [(subject, schedule) for subject, schedule in plottable if schedule is not None]
    if not curves:
        raise UsageError("there is no schedule to plot: omit -o")
    curves_by_key = {
        subject.title.partition(":")[0]: (subject, schedule) for subject, schedule in curves
    }
    subject, schedule = curves_by_key.get(key, curves[0])
    schedule = _with_values(schedule, subject.rows)
    if schedule.open:
        raise UsageError(f"{schedule.open[0]} has no value to plot with: omit -o or --symbolic")
    remarks = _remarks(subject.rows)
    end = max(last_step(schedule), *remarks) if remarks else last_step(schedule)
    with output_folder(output.parent):
        plot_schedule(schedule, output, steps=end, title=subject.title, remarks=remarks)
    print(output)


def _schedule_of(subject: _Checked, name: str) -> Schedule | None:
    """The schedule of a report; that of a file which was read within the limits is read here."""
    is_file = name.lower().endswith(".onnx")
    # Only a schedule has the claim "total"; a step file has no curve.
    is_read = is_file and any(row.name == "total" for row in subject.rows)
    if not is_read:
        return subject.schedule
    from closedform.api.onnx import from_onnx

    return from_onnx(name)


def _with_values(schedule: Schedule, rows: Iterable[ReportLine]) -> Schedule:
    """The schedule, its unbound hyperparameters bound to the values of a counterexample."""
    names = [symbol.name for symbol in schedule.open]
    for row in rows if names else ():
        if all(name in row.counterexample for name in names):
            # A counterexample is exact: a float of it may lie on the other side of the bound.
            values = {name: Fraction(row.counterexample[name]) for name in names}
            return schedule.bind(values)
    return schedule


def _remarks(rows: Iterable[ReportLine]) -> dict[int, str]:
    """The claims refuted at each step of a counterexample."""
    remarks: dict[int, str] = {}
    for row in rows:
        for clock in ("t", "t'"):
            step = Fraction(row.counterexample.get(clock, "1/2"))
            if step.denominator == 1:
                remarks.setdefault(int(step), f"not {row.name}")
    return remarks
