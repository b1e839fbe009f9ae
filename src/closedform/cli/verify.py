"""``closedform verify``: verdicts on claims about a schedule, rule, recipe or ONNX file.

=========  =======================================================================================
exit code  when
=========  =======================================================================================
0          everything that was claimed is proved, or nothing is refuted
1          something that was claimed is refuted
2          usage: an option, a name or an argument is wrong
3          something is UNKNOWN, with ``--strict``
4          the input cannot be read
=========  =======================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from closedform.cli.arguments import AsImplemented, BaseValue, Key
from closedform.errors import ArgumentError, ClosedFormError, UnknownNameError

if TYPE_CHECKING:
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe
    from closedform.verify.claims.foreign import Row
    from closedform.verify.claims.report import Report

Subject = Annotated[
    str,
    typer.Argument(help="A name of the library, FRAMEWORK:CLASS, a config file, or an .onnx file."),
]
REFUTED, USAGE, UNKNOWN, UNREADABLE = 1, 2, 3, 4
"""Exit codes."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """The rows of a report, and the schedule if it concerns one."""

    title: str
    rows: tuple[Row, ...]
    seconds: float
    code: int
    schedule: Schedule | None = None


def verify(
    context: typer.Context,
    name: Subject,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .png, .svg or .pdf plot with counterexamples."),
    ] = None,
    symbolic: Annotated[
        bool, typer.Option("--symbolic", help="Verify for all values of the hyperparameters.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 3 if a claim is undecided.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare an .onnx file with a source: a name with its options in quotes, "
            "a config file, or FILE.py:NAME, which is run."
        ),
    ] = None,
    proof: Annotated[
        Path | None,
        typer.Option(help="A folder for the proved goals, as SMT-LIB 2 scripts."),
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds per claim.", min=0.1)] = 10.0,
    seconds: Annotated[float, typer.Option(help="Seconds for an .onnx file.", min=0.1)] = 60.0,
    memory: Annotated[float, typer.Option(help="GiB of memory for an .onnx file.", min=0.1)] = 2.0,
    key: Key = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Verify claims about NAME: each is proved, refuted by a counterexample, or undecided.

    The exit code is 0, 1 if a claim is refuted, 2 for a wrong request, 3 with --strict if a claim
    is undecided, and 4 if the input cannot be read. NO answers a question, such as whether a
    schedule jumps, and is not a failure. STATED repeats what a file says, which is not checked.

    The arguments of NAME are options: closedform verify cosine --start 3e-4 --end 0 --steps 100.
    An .onnx file is read in a process of its own, with limits of time and memory.
    """
    from closedform.cli.sources import load_source

    is_file = name.lower().endswith(".onnx")
    if is_file and context.args:
        raise typer.BadParameter(f"an .onnx file takes no {context.args[0]}")
    if against is not None and not is_file:
        raise typer.BadParameter(f"--against is for an .onnx file, got {name!r}")
    with _exit_codes(is_traced=bool(context.find_root().params.get("traceback"))):
        if is_file:
            size = int(memory * 2**30)
            checked = [
                _check_file(Path(name), against, key, budget, seconds, size, proof, strict=strict)
            ]
        else:
            source = load_source(
                name, context.args, key=key, base=base_value, as_implemented=as_implemented
            )
            found = _check_source(source, symbolic=symbolic, budget=budget)
            checked = [_of_report(*each, strict=strict, proof=proof) for each in found]
    if as_json:
        print(json.dumps([_as_data(each) for each in checked], indent=1, ensure_ascii=False))
    for each in () if as_json else checked:
        _show(each)
    if output is not None:
        _draw(checked, name, key, output)
    raise typer.Exit(max((each.code for each in checked), key=weight))


def weight(code: int) -> int:
    """Returns the rank of an exit code: a refutation (1) outranks an undecided claim (3)."""
    return (0, UNKNOWN, REFUTED).index(code)


@contextmanager
def _exit_codes(*, is_traced: bool) -> Iterator[None]:
    """Prints an error as one line and exits with its code: a wrong request, or what is not read."""
    from closedform.cli.output import error_line

    try:
        yield
    except (ClosedFormError, OSError) as error:
        if is_traced:
            raise
        error_line(error)
        is_usage = isinstance(error, UnknownNameError | ArgumentError)
        raise typer.Exit(USAGE if is_usage else UNREADABLE) from None


def _check_file(
    path: Path,
    against: str | None,
    key: str,
    budget: float,
    seconds: float,
    memory: int,
    proof: Path | None,
    *,
    strict: bool,
) -> _Checked:
    from closedform.api import verify_file

    report = verify_file(
        path,
        against=against,
        key=key,
        budget=budget,
        seconds=seconds,
        memory=memory,
        proof=proof,
    )
    code = report.exit_code(strict=strict)
    return _Checked(report.subject, report.rows, report.seconds, code)


def _of_report(
    title: str,
    report: Report,
    schedule: Schedule | None = None,
    *,
    strict: bool,
    proof: Path | None,
) -> _Checked:
    from closedform.verify.claims.foreign import row_of

    if proof is not None:
        from closedform.verify.claims.scripts import write_proofs

        write_proofs((*report, *report.floats), proof / re.sub(r"[^\w.-]+", "-", title))

    rows = tuple(row_of(finding) for finding in (*report, *report.floats))
    return _Checked(title, rows, report.seconds, report.exit_code(strict=strict), schedule)


def _check_source(
    source: Schedule | UpdateRule | Recipe, *, symbolic: bool, budget: float
) -> Iterator[tuple[str, Report] | tuple[str, Report, Schedule]]:
    from closedform.cli.sources import schedules_of
    from closedform.language import Schedule, UpdateRule

    for scheduled, schedule in schedules_of(source).items():
        title = schedule.name if isinstance(source, Schedule) else f"{scheduled}: {schedule.name}"
        checked = schedule.unbind() if symbolic else schedule
        yield title, checked.verify(budget=budget), checked
    if not isinstance(source, Schedule):
        rule = source if isinstance(source, UpdateRule) else source.optimizer()
        yield f"optimizer: {rule.name}", rule.verify(budget=budget)


def _as_data(checked: _Checked) -> dict[str, object]:
    return {
        "subject": checked.title,
        "exit_code": checked.code,
        "seconds": round(checked.seconds, 3),
        "rows": [asdict(row) for row in checked.rows],
    }


def _show(checked: _Checked) -> None:
    from closedform.cli.output import heading, table

    heading(checked.title)
    rows = [(row.verdict, row.claim, row.detail) for row in checked.rows]
    table(("verdict", "claim", "by, or counterexample"), rows)
    print(f"{summary(checked.rows, checked.seconds)}\n")


_WORDS = {
    "PROVED": "proved",
    "REFUTED": "refuted",
    "NO": "answered no",
    "UNKNOWN": "unknown",
    "STATED": "stated",
}


def summary(rows: Iterable[Row], seconds: float) -> str:
    """Returns the number of rows per verdict."""
    verdicts = [row.verdict for row in rows]
    counts = {word: verdicts.count(verdict) for verdict, word in _WORDS.items()}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{text or 'no claims'}, in {seconds:.2f} s"


def _draw(checked: list[_Checked], name: str, key: str, output: Path) -> None:
    from closedform.plotting import last_step, plot_schedule

    plottable = [(each, _schedule_of(each, name)) for each in checked]
    found = [(each, schedule) for each, schedule in plottable if schedule is not None]
    if not found:
        raise typer.BadParameter("there is no schedule to plot: omit -o")
    named = {each.title.partition(":")[0]: (each, schedule) for each, schedule in found}
    chosen, schedule = named.get(key, found[0])
    schedule = _with_values(schedule, chosen.rows)
    if schedule.open:
        raise typer.BadParameter(
            f"{schedule.open[0]} has no value to plot with: omit -o or --symbolic"
        )
    remarks = _remarks(chosen.rows)
    end = max(last_step(schedule), *remarks) if remarks else last_step(schedule)
    plot_schedule(schedule, output, steps=end, title=chosen.title, remarks=remarks)
    print(output)


def _schedule_of(checked: _Checked, name: str) -> Schedule | None:
    """The schedule of a report; that of a file which was read within the limits is read here."""
    is_file = name.lower().endswith(".onnx")
    is_read = is_file and any(row.name == "total" for row in checked.rows)
    if not is_read:
        return checked.schedule
    from closedform.api import from_onnx

    return from_onnx(name)


def _with_values(schedule: Schedule, rows: Iterable[Row]) -> Schedule:
    """The schedule, its unbound hyperparameters bound to the values of a counterexample."""
    names = [symbol.name for symbol in schedule.open]
    for row in rows if names else ():
        if all(name in row.counterexample for name in names):
            values = {name: Fraction(row.counterexample[name]) for name in names}
            return schedule.bind(values)
    return schedule


def _remarks(rows: Iterable[Row]) -> dict[int, str]:
    """The claims refuted at each step of a counterexample."""
    remarks: dict[int, str] = {}
    for row in rows:
        for clock in ("t", "t'"):
            step = Fraction(row.counterexample.get(clock, "1/2"))
            if step.denominator == 1:
                remarks.setdefault(int(step), f"not {row.name}")
    return remarks
