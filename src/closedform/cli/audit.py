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
    from closedform.analysis.audit import Audit, Comparison, Difference
    from closedform.language import Schedule

_SHOWN_JUMPS = 20
_HELP = """\
Audit the schedules of NAME: values around warmup W and end T, peak, area, jumps.

Also compares the same settings (start, peak, end, warmup, decay) in other frameworks: the first
step that differs, and the step that differs most.

The arguments of NAME are options: closedform audit cosine --start 3e-4 --end 0 --steps 100.
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(prog, _HELP, has_arguments=True)
    add_name(found)
    add_until(found, "the number of steps T of the run")
    add_json(found)
    add_source_options(found)
    return found


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
    found = {key: audit_of(schedule, until or total) for key, schedule in schedules.items()}
    if as_json:
        data = {key: _plain(each) for key, each in found.items()}
        if notes:
            data["notes"] = dict(notes)
        print(json.dumps(data, indent=1, ensure_ascii=False))
        return
    for scheduled, each in found.items():
        heading(f"{scheduled}: {each.schedule.name}")
        _show(each)
    for note, text in notes.items():
        note_line(f"{note}: {text}")


def _plain(found: Audit) -> dict[str, Any]:
    """An audit as JSON; numbers are the nearest floats."""
    from closedform.language.exact import to_float

    steps = sorted({*found.values, found.peak})
    return {
        "schedule": found.schedule.name,
        "total": found.total,
        "warmup": found.warmup,
        "peak": found.peak,
        "area": found.area,
        "values": {step: to_float(found.schedule.exact(step)) for step in steps},
        "jumps": [str(jump) for jump in found.jumps],
        "comparisons": [
            {
                "framework": each.framework,
                "is_proved": each.is_proved,
                "first": _plain_difference(each.first),
                "largest": _plain_difference(each.largest),
            }
            for each in found.comparisons
        ],
    }


def _plain_difference(found: Difference | None) -> dict[str, Any] | None:
    from closedform.language.exact import to_float

    if found is None:
        return None
    return {
        "step": found.step,
        "ours": to_float(found.ours),
        "theirs": to_float(found.theirs),
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


def _show(found: Audit) -> None:
    from closedform.cli.output import table
    from closedform.language.exact import to_float

    labels = _labels(found)
    steps = sorted({*found.values, found.peak})
    rows = [
        (f"{step:,}", repr(to_float(found.schedule.exact(step))), labels.get(step, ""))
        for step in steps
    ]
    table(("step", "value", ""), rows, numbers=True)
    print(f"\nsum of the {found.total:,} steps  {found.area!r}")
    print(f"jumps  {_jumps(found)}\n")
    if found.settings is None:
        print("not a warmup with one linear or cosine decay: not compared with other frameworks\n")
        return
    s = found.settings
    print(
        f"start {to_float(s.start)!r}, peak {to_float(s.peak)!r}, end {to_float(s.end)!r}, "
        f"warmup {s.warmup:,}, {s.shape} until {s.total:,}, in other frameworks:\n"
    )
    table(
        ("framework", "first difference", "largest difference"),
        [(each.framework, *_cells(each)) for each in found.comparisons],
    )
    print()


def _labels(found: Audit) -> dict[int, str]:
    total, warmup = found.total, found.warmup
    marks = {0: "0", total - 1: "T - 1", total: "T", total + 1: "T + 1"}
    if warmup:
        marks = {warmup - 1: "W - 1", warmup: "W"} | marks
    marks[found.peak] = ", ".join(filter(None, (marks.get(found.peak), "peak")))
    return marks


def _jumps(found: Audit) -> str:
    if not found.jumps:
        return "none"
    shown = "; ".join(str(jump) for jump in found.jumps[:_SHOWN_JUMPS])
    more = len(found.jumps) - _SHOWN_JUMPS
    return f"{shown}; and {more} more" if more > 0 else shown


def _cells(each: Comparison) -> tuple[str, str]:
    if each.first is None or each.largest is None:
        return ("none, proved" if each.is_proved else "none found"), ""
    return _cell(each.first), _cell(each.largest)


def _cell(found: Difference) -> str:
    from closedform.language.exact import to_float

    gap = to_float(found.theirs - found.ours)
    return f"{found.step:,}: {to_float(found.theirs)!r} ({gap:+.3g})"
