"""``closedform audit``: values of a schedule at critical steps, compared across frameworks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    SourceOptions,
    add_json,
    add_name,
    add_source_options,
    add_until,
)
from closedform.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from closedform.analysis.audit import Audit, AuditDifference, Comparison
    from closedform.language import Schedule

_SHOWN_JUMPS = 20
_HELP = """\
Audit the schedules of NAME: values around warmup W and end T, peak, area, jumps.

Also compares the same settings (start, peak, end, warmup, decay) in other frameworks: the first
step that differs, and the step that differs most.

The arguments of NAME are options.

example:
  closedform audit cosine --start 3e-4 --end 0 --steps 100
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    add_name(command)
    add_until(command, "the number of steps T of the run")
    add_json(command)
    add_source_options(command)
    return command


def run(
    *,
    name: str,
    words: list[str],
    until: int | None,
    as_json: bool,
    options: SourceOptions,
) -> None:
    """Prints the audits."""
    from closedform.analysis.audit import audit as audit_of
    from closedform.cli.output import heading, note_line

    schedules, total, notes = _schedules(name, words, options)
    for schedule in schedules.values():
        if schedule.length is None and not (until or total):
            raise UsageError(
                f"the schedule {schedule.name!r} has no length",
                hint="give the number of steps of the run, such as --until 1000",
            )
    audits = {key: audit_of(schedule, until or total) for key, schedule in schedules.items()}
    if as_json:
        data = {key: _plain(report) for key, report in audits.items()}
        if notes:
            data["notes"] = dict(notes)
        print(json.dumps(data, indent=1, ensure_ascii=False))
        return
    for key_of_schedule, report in audits.items():
        heading(f"{key_of_schedule}: {report.schedule.name}")
        _show(report)
    for note, text in notes.items():
        note_line(f"{note}: {text}")


def _plain(audit: Audit) -> dict[str, Any]:
    """An audit as JSON; numbers are the nearest floats."""
    from closedform.language.exact import to_float

    steps = sorted({*audit.values, audit.peak})
    return {
        "schedule": audit.schedule.name,
        "total": audit.total,
        "warmup": audit.warmup,
        "peak": audit.peak,
        "area": audit.area,
        "values": {step: to_float(audit.schedule.exact(step)) for step in steps},
        "jumps": [str(jump) for jump in audit.jumps],
        "comparisons": [
            {
                "framework": comparison.framework,
                "is_proved": comparison.is_proved,
                "first": _plain_difference(comparison.first),
                "largest": _plain_difference(comparison.largest),
            }
            for comparison in audit.comparisons
        ],
    }


def _plain_difference(difference: AuditDifference | None) -> dict[str, Any] | None:
    from closedform.language.exact import to_float

    if difference is None:
        return None
    return {
        "step": difference.step,
        "ours": to_float(difference.ours),
        "theirs": to_float(difference.theirs),
    }


def _schedules(
    name: str, words: list[str], options: SourceOptions
) -> tuple[Mapping[str, Schedule], int | None, Mapping[str, str]]:
    """The schedules by key, the number of steps of the run if a config has it, and its notes."""
    from closedform.cli.sources import load_source, recipe_notes, schedules_of

    source = load_source(name, words, options)
    schedules = schedules_of(source)
    if not schedules:
        raise UsageError(f"{name} has no schedule to audit")
    return schedules, getattr(source, "horizon", None), recipe_notes(source)


def _show(audit: Audit) -> None:
    from closedform.cli.output import table
    from closedform.language.exact import to_float

    labels = _labels(audit)
    steps = sorted({*audit.values, audit.peak})
    rows = [
        (f"{step:,}", repr(to_float(audit.schedule.exact(step))), labels.get(step, ""))
        for step in steps
    ]
    table(("step", "value", ""), rows, numbers=True)
    print(f"\nsum of the {audit.total:,} steps  {audit.area!r}")
    print(f"jumps  {_jumps(audit)}\n")
    if audit.settings is None:
        print("not a warmup with one linear or cosine decay: not compared with other frameworks\n")
        return
    s = audit.settings
    print(
        f"start {to_float(s.start)!r}, peak {to_float(s.peak)!r}, end {to_float(s.end)!r}, "
        f"warmup {s.warmup:,}, {s.shape} until {s.total:,}, in other frameworks:\n"
    )
    table(
        ("framework", "first difference", "largest difference"),
        [(comparison.framework, *_cells(comparison)) for comparison in audit.comparisons],
    )
    print()


def _labels(audit: Audit) -> dict[int, str]:
    total, warmup = audit.total, audit.warmup
    # Off-by-one errors of frameworks are at these steps.
    marks = {0: "0", total - 1: "T - 1", total: "T", total + 1: "T + 1"}
    if warmup:
        # The right operand wins: where warmup and end meet, the step is named by the end.
        marks = {warmup - 1: "W - 1", warmup: "W"} | marks
    marks[audit.peak] = ", ".join(filter(None, (marks.get(audit.peak), "peak")))
    return marks


def _jumps(audit: Audit) -> str:
    if not audit.jumps:
        return "none"
    text = "; ".join(str(jump) for jump in audit.jumps[:_SHOWN_JUMPS])
    more = len(audit.jumps) - _SHOWN_JUMPS
    return f"{text}; and {more} more" if more > 0 else text


def _cells(comparison: Comparison) -> tuple[str, str]:
    if comparison.first is None or comparison.largest is None:
        return ("none, proved" if comparison.is_proved else "none found"), ""
    return _cell(comparison.first), _cell(comparison.largest)


def _cell(difference: AuditDifference) -> str:
    from closedform.language.exact import to_float

    gap = to_float(difference.theirs - difference.ours)
    return f"{difference.step:,}: {to_float(difference.theirs)!r} ({gap:+.3g})"
