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
quotes.

The exit code is 0 if no curve differs, 1 if one does, and 3 with --strict if no difference was
found but none was excluded either.

example:
  closedform diff recipe.yaml "cosine --start 3e-4 --end 0 --steps 100"
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("a", metavar="A", help="the first curve")
    command.add_argument("b", metavar="B", help="the second curve")
    for name, side in (("--facts", "both"), ("--facts-a", "A"), ("--facts-b", "B")):
        text = f"facts of the run that {side} leaves out: total_steps=1000; may be repeated"
        command.add_argument(name, action="append", metavar="NAME=VALUE", help=text)
    for side in ("a", "b"):
        text = f"the framework of the config {side.upper()}, also with @version, or generic"
        command.add_argument(f"--framework-{side}", metavar="FRAMEWORK", help=text)
        text = (
            f"for --framework-{side} generic, the key of a concept of {side.upper()}, or its value"
        )
        command.add_argument(f"--map-{side}", action="append", metavar="CONCEPT=PATH", help=text)
    command.add_argument("--files", type=Path, help=FILES_HELP)
    for side in ("a", "b"):
        text = f"the same for {side.upper()} only"
        command.add_argument(f"--files-{side}", type=Path, metavar="FILES", help=text)
    command.add_argument("--key", help="only this key, such as lr")
    add_until(command, "the number of updates")
    add_log_options(command)
    command.add_argument(
        "--base-value", type=float, help="the optimizer's own value, for a class that scales it"
    )
    command.add_argument(
        "--strict", action="store_true", help="exit with 3 if a curve is undecided"
    )
    add_json(command)
    command.add_argument(
        "--plot", type=Path, help="write both curves and their difference to this file"
    )
    command.add_argument("--force", action="store_true", help="overwrite the file")
    return command


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
    from closedform.cli.output import check_free, note_line, working
    from closedform.cli.sources import recipe_notes
    from closedform.errors import UnknownNameError, nearest
    from closedform.verify.terms.verdict import Status

    if plot is not None:
        check_free(plot, force=force)
    common_facts = parse_facts(facts)
    options = SourceOptions(base=base_value)
    first_facts, second_facts = (
        {**common_facts, **parse_facts(facts_a)},
        {**common_facts, **parse_facts(facts_b)},
    )
    _, paths_a = generic_options(framework_a, map_a, is_generic=False)
    _, paths_b = generic_options(framework_b, map_b, is_generic=False)
    of_a = replace(
        options, framework=framework_a, facts=first_facts, files=files_a or files, paths=paths_a
    )
    of_b = replace(
        options, framework=framework_b, facts=second_facts, files=files_b or files, paths=paths_b
    )
    first, second = load_curve(a, of_a, log_options), load_curve(b, of_b, log_options)
    with working("compare A and B"):
        difference = difference_of(first, second, until)
    curves = [curve for curve in difference.curves if key is None or curve.key == key]
    sides = (("A", first), ("B", second))
    if not curves:
        keys = {curve.key for curve in difference.curves}
        raise UnknownNameError(f"the two do not share {key!r}", hint=nearest(str(key), keys))
    if as_json:
        notes = {side.lower(): dict(recipe_notes(source)) for side, source in sides}
        print(json.dumps({**_plain(difference, curves), "notes": notes}, indent=2))
    else:
        _show(curves)
        for side, source in sides:
            for note, text in recipe_notes(source).items():
                note_line(f"{side}: {note}: {text}")
        for name, only in (("A", difference.only_in_a), ("B", difference.only_in_b)):
            if only:
                note_line(f"only {name} has {', '.join(only)}")
    if plot is not None:
        _plot(first, second, curves[0], plot, (a, b))
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
    source = load_source(name, words, options)
    if isinstance(source, UpdateRule):
        raise ArgumentError(
            f"{name} is an optimizer, not a schedule", hint="name a schedule, or a config"
        )
    return source


def _show(curves: list[CurveDifference]) -> None:
    from closedform.cli.output import table

    rows = []
    for curve in curves:
        name = f"{curve.key} of {curve.group}" if curve.group else curve.key
        if curve.first_step is None:
            rows.append((name, str(curve.verdict), "", "", "", curve.reason))
            continue
        values = "" if curve.first is None else f"{curve.first[0]!r} and {curve.first[1]!r}"
        gap = f"{curve.max_gap:.6g} at {curve.at:,}" if curve.at is not None else ""
        remark = "; ".join(part for part in (values, curve.reason) if part)
        rows.append((name, "differ", f"{curve.first_step:,}", gap, f"{curve.area:.6g}", remark))
    columns = ("", "verdict", "first update", "largest gap", "area", "values there")
    table(columns, rows, numbers=False)


def _plain(difference: Difference, curves: list[CurveDifference]) -> dict[str, Any]:
    fields = CURVE_FIELDS
    return {
        "verdict": str(difference.verdict),
        "curves": [{name: _of(getattr(curve, name)) for name in fields} for curve in curves],
        "only_in_a": list(difference.only_in_a),
        "only_in_b": list(difference.only_in_b),
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
    first: Source, second: Source, curve: CurveDifference, path: Path, labels: tuple[str, str]
) -> None:
    from closedform.analysis.difference import curve_values
    from closedform.plotting import plot_difference

    steps, first_values, second_values = curve_values(first, second, curve)
    names = tuple(Path(label).name if Path(label).is_file() else label for label in labels)
    plot_difference(
        first_values, second_values, steps, path, labels=(names[0], names[1]), title=curve.key
    )
    print(path)
