"""``closedform diff``: where and how far two recipes, schedules or logs are apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    FILES_HELP,
    LogOptions,
    SourceOptions,
    add_json,
    add_log_options,
    add_until,
    generic_options,
    parse_facts,
    split_name,
)
from closedform.cli.parser import Parser

if TYPE_CHECKING:
    from closedform.analysis.difference import CurveDifference, Difference, Source

DIFFERENT, UNDECIDED = 1, 3
"""Exit codes."""

_HELP = """\
Compare A and B: proved equal, or the first update that differs, the largest gap, the area.

Each is a config file, an ONNX file, a function of a Python file (train.py:get_lr), a log (CSV,
JSON lines, trainer_state.json, TensorBoard, MLflow, printed text), or a name with its arguments in
quotes:
closedform diff recipe.yaml "cosine --start 3e-4 --end 0 --steps 100".

The exit code is 0 if no curve differs, 1 if one does, and 3 with --strict if no difference was
found but none was excluded either.
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(prog, _HELP)
    found.add_argument("a", metavar="A", help="the first curve")
    found.add_argument("b", metavar="B", help="the second curve")
    for name, side in (("--facts", "both"), ("--facts-a", "A"), ("--facts-b", "B")):
        text = f"facts of the run that {side} leaves out: total_steps=1000; may be repeated"
        found.add_argument(name, action="append", metavar="NAME=VALUE", help=text)
    for side in ("a", "b"):
        text = f"the framework of the config {side.upper()}, also with @version, or generic"
        found.add_argument(f"--framework-{side}", metavar="FRAMEWORK", help=text)
        text = (
            f"for --framework-{side} generic, the key of a concept of {side.upper()}, or its value"
        )
        found.add_argument(f"--map-{side}", action="append", metavar="CONCEPT=PATH", help=text)
    found.add_argument("--files", type=Path, help=FILES_HELP)
    for side in ("a", "b"):
        text = f"the same for {side.upper()} only"
        found.add_argument(f"--files-{side}", type=Path, metavar="FILES", help=text)
    found.add_argument("--key", help="only this key, such as lr")
    add_until(found, "the number of updates")
    add_log_options(found)
    found.add_argument(
        "--base-value", type=float, help="the optimizer's own value, for a class that scales it"
    )
    found.add_argument("--strict", action="store_true", help="exit with 3 if a curve is undecided")
    add_json(found)
    found.add_argument(
        "--plot", type=Path, help="write both curves and their difference to this file"
    )
    found.add_argument("--force", action="store_true", help="overwrite the file")
    return found


def run(
    *,
    a: str,
    b: str,
    facts: list[str] | None,
    facts_a: list[str] | None,
    facts_b: list[str] | None,
    framework_a: str | None,
    framework_b: str | None,
    map_a: list[str] | None,
    map_b: list[str] | None,
    files: Path | None,
    files_a: Path | None,
    files_b: Path | None,
    key: str | None,
    until: int | None,
    log_options: LogOptions,
    base_value: float | None,
    strict: bool,
    as_json: bool,
    plot: Path | None,
    force: bool,
) -> int:
    """Prints the differences."""
    from closedform.analysis.difference import diff as difference_of
    from closedform.cli.output import check_free, note_line
    from closedform.cli.sources import recipe_notes
    from closedform.errors import UnknownNameError, nearest
    from closedform.verify.terms.verdict import Status

    if plot is not None:
        check_free(plot, force=force)
    shared = parse_facts(facts)
    each = SourceOptions(base=base_value)
    own, others = {**shared, **parse_facts(facts_a)}, {**shared, **parse_facts(facts_b)}
    _, paths_a = generic_options(framework_a, map_a, is_generic=False)
    _, paths_b = generic_options(framework_b, map_b, is_generic=False)
    of_a = replace(each, framework=framework_a, facts=own, files=files_a or files, paths=paths_a)
    of_b = replace(each, framework=framework_b, facts=others, files=files_b or files, paths=paths_b)
    one, other = load_curve(a, of_a, log_options), load_curve(b, of_b, log_options)
    found = difference_of(one, other, until)
    curves = [curve for curve in found.curves if key is None or curve.key == key]
    sides = (("A", one), ("B", other))
    if not curves:
        known = {curve.key for curve in found.curves}
        raise UnknownNameError(f"the two do not share {key!r}", hint=nearest(str(key), known))
    if as_json:
        notes = {side.lower(): dict(recipe_notes(source)) for side, source in sides}
        print(json.dumps({**_plain(found, curves), "notes": notes}, indent=2))
    else:
        _show(curves)
        for side, source in sides:
            for note, text in recipe_notes(source).items():
                note_line(f"{side}: {note}: {text}")
        for name, only in (("A", found.only_in_a), ("B", found.only_in_b)):
            if only:
                note_line(f"only {name} has {', '.join(only)}")
    if plot is not None:
        _plot(one, other, curves[0], plot, (a, b))
    if any(curve.verdict is Status.REFUTED for curve in curves):
        return DIFFERENT
    is_undecided = any(curve.verdict is Status.UNKNOWN for curve in curves)
    return UNDECIDED if strict and is_undecided else 0


def load_curve(text: str, options: SourceOptions, log_options: LogOptions) -> Source:
    """Returns the recipe, schedule or log that a text denotes, which may have arguments."""
    from closedform.cli.sources import load_log, load_source
    from closedform.errors import ArgumentError
    from closedform.language import UpdateRule

    name, words = split_name(text)
    log = load_log(name, log_options)
    if log is not None:
        return log
    found = load_source(name, words, options)
    if isinstance(found, UpdateRule):
        raise ArgumentError(
            f"{name} is an optimizer, not a schedule", hint="name a schedule, or a config"
        )
    return found


def _show(curves: list[CurveDifference]) -> None:
    from closedform.cli.output import table

    rows = []
    for one in curves:
        name = f"{one.key} of {one.group}" if one.group else one.key
        if one.first_step is None:
            rows.append((name, str(one.verdict), "", "", "", one.reason))
            continue
        values = "" if one.first is None else f"{one.first[0]!r} and {one.first[1]!r}"
        gap = f"{one.max_gap:.6g} at {one.at:,}" if one.at is not None else ""
        remark = "; ".join(part for part in (values, one.reason) if part)
        rows.append((name, "differ", f"{one.first_step:,}", gap, f"{one.area:.6g}", remark))
    columns = ("", "verdict", "first update", "largest gap", "area", "values there")
    table(columns, rows, numbers=False)


def _plain(found: Difference, curves: list[CurveDifference]) -> dict[str, Any]:
    fields = CURVE_FIELDS
    return {
        "verdict": str(found.verdict),
        "curves": [{name: _of(getattr(one, name)) for name in fields} for one in curves],
        "only_in_a": list(found.only_in_a),
        "only_in_b": list(found.only_in_b),
    }


CURVE_FIELDS = (
    "key",
    "group",
    "verdict",
    "until",
    "first_step",
    "first",
    "max_gap",
    "at",
    "area",
    "reason",
    "is_sampled",
)
"""The fields that ``--json`` prints of each curve."""


def _of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plot(
    one: Source, other: Source, curve: CurveDifference, path: Path, labels: tuple[str, str]
) -> None:
    from closedform.analysis.difference import curve_values
    from closedform.plotting import plot_difference

    steps, ours, theirs = curve_values(one, other, curve)
    names = tuple(Path(label).name if Path(label).is_file() else label for label in labels)
    plot_difference(ours, theirs, steps, path, labels=(names[0], names[1]), title=curve.key)
    print(path)
