"""``closedform verify``: verdicts on claims about a schedule, rule, recipe or ONNX file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from closedform.cli.arguments import AsImplemented, BaseValue, Key

if TYPE_CHECKING:
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe
    from closedform.verify.claims.report import Report

Subject = Annotated[
    str,
    typer.Argument(help="A name of the library, FRAMEWORK:CLASS, a config file, or an .onnx file."),
]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A report, and its schedule if it concerns one."""

    title: str
    report: Report
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
        bool, typer.Option("--strict", help="Exit with code 2 if a claim is undecided.")
    ] = False,
    budget: Annotated[float, typer.Option(help="Seconds per claim.", min=0.1)] = 10.0,
    key: Key = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Verify claims about NAME: each is proved, refuted by a counterexample, or undecided.

    The exit code is 1 if a claim is refuted. NO answers a question, such as whether a schedule
    jumps, and is not a failure.

    The arguments of NAME are options: closedform verify cosine --start 3e-4 --end 0 --steps 100.
    """
    from closedform.cli.sources import load_source

    if name.lower().endswith(".onnx"):
        _refuse_arguments(context.args)
        checked = [_check_file(Path(name), budget)]
    else:
        source = load_source(
            name, context.args, key=key, base=base_value, as_implemented=as_implemented
        )
        checked = list(_check_source(source, symbolic=symbolic, budget=budget))
    for each in checked:
        _show(each)
    if output is not None:
        _draw(checked, key, output)
    code = max((each.report.exit_code(strict=strict) for each in checked), key=weight)
    raise typer.Exit(code)


def weight(code: int) -> int:
    """Returns the rank of an exit code: a refutation (1) outranks an undecided claim (2)."""
    return {0: 0, 2: 1, 1: 2}[code]


def _refuse_arguments(words: list[str]) -> None:
    if words:
        raise typer.BadParameter(f"an .onnx file takes no {words[0]}")


def _check_file(path: Path, budget: float) -> _Checked:
    from closedform.verify.claims.files import verify_file

    schedule, report = verify_file(path, budget=budget)
    return _Checked(path.name, report, schedule)


def _check_source(
    source: Schedule | UpdateRule | Recipe, *, symbolic: bool, budget: float
) -> Iterator[_Checked]:
    from closedform.cli.sources import schedules_of
    from closedform.language import Schedule, UpdateRule

    for scheduled, schedule in schedules_of(source).items():
        title = schedule.name if isinstance(source, Schedule) else f"{scheduled}: {schedule.name}"
        checked = schedule.unbind() if symbolic else schedule
        yield _Checked(title, checked.verify(budget=budget), checked)
    if not isinstance(source, Schedule):
        rule = source if isinstance(source, UpdateRule) else source.optimizer
        yield _Checked(f"optimizer: {rule.name}", rule.verify(budget=budget))


def _show(checked: _Checked) -> None:
    from closedform.cli.output import heading, table

    heading(checked.title)
    rows = [(each.shown, each.claim.sentence, each.detail) for each in checked.report]
    table(("verdict", "claim", "by, or counterexample"), rows)
    print(f"{summary(checked.report)}\n")


def summary(report: Report) -> str:
    """Returns the number of claims per verdict."""
    counts = {
        "proved": len(report.proved),
        "refuted": len(report.refuted),
        "answered no": len(report.answered_no),
        "unknown": len(report.unknown),
    }
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{text or 'no claims'}, in {report.seconds:.2f} s"


def _draw(checked: list[_Checked], key: str, output: Path) -> None:
    from closedform.plotting import last_step, plot_schedule

    plottable = [(each, each.schedule) for each in checked if each.schedule is not None]
    if not plottable:
        raise typer.BadParameter("there is no schedule to plot: omit -o")
    named = {each.title.partition(":")[0]: (each, schedule) for each, schedule in plottable}
    chosen, schedule = named.get(key, plottable[0])
    schedule = _with_values(schedule, chosen.report)
    if schedule.open:
        raise typer.BadParameter(
            f"{schedule.open[0]} has no value to plot with: omit -o or --symbolic"
        )
    remarks = _remarks(chosen.report)
    end = max(last_step(schedule), *remarks) if remarks else last_step(schedule)
    plot_schedule(schedule, output, steps=end, title=chosen.title, remarks=remarks)
    print(output)


def _with_values(schedule: Schedule, report: Report) -> Schedule:
    """The schedule, its unbound hyperparameters bound to the values of a counterexample."""
    names = [symbol.name for symbol in schedule.open]
    for finding in report if names else ():
        point = finding.verdict.counterexample or {}
        if all(name in point for name in names):
            return schedule.bind(**{name: point[name] for name in names})
    return schedule


def _remarks(report: Report) -> dict[int, str]:
    """The claims refuted at each step of a counterexample."""
    remarks: dict[int, str] = {}
    for finding in report:
        point = finding.verdict.counterexample or {}
        for clock in ("t", "t'"):
            step = point.get(clock)
            if step is not None and step.is_Integer:
                remarks.setdefault(int(step), f"not {finding.claim.name}")
    return remarks
