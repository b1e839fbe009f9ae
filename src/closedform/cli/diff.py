"""``closedform diff``: where and how far two recipes, schedules or logs are apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    FILES_HELP,
    LogOptions,
    SourceOptions,
    generic_options,
    json_flag,
    log_bundle,
    parse_facts,
    split_name,
    until_option,
)
from closedform.cli.output import check_free, note_line, print_json, table
from closedform.cli.parser import argument, command, flag, option

if TYPE_CHECKING:
    from closedform.analysis.difference import CurveDifference, Source

DIFFERENT, UNDECIDED = 1, 3
"""Exit codes."""

HELP = """\
Compare A and B: proved equal, or the first update that differs, the largest gap, the area.

Each is a config file, an ONNX file, a function of a Python file (train.py:get_lr), a log (CSV,
JSON lines, trainer_state.json, TensorBoard, MLflow, printed text), or a name with its arguments in
quotes.

The exit code is 0 if no curve differs, 1 if one does, and 3 with --strict if no difference was
found but none was excluded either.

example:
  closedform diff recipe.yaml "cosine --start 3e-4 --end 0 --steps 100"
"""

_FACTS = "facts of the run that {} leaves out: total_steps=1000; may be repeated"
_FRAMEWORK = "the framework of the config {}, also with @version, or generic"
_MAP = "for --framework-{} generic, the key of a concept of {}, or its value"


@command
class Options:
    """The options of ``closedform diff``."""

    a: str = argument("the first curve", metavar="A")
    b: str = argument("the second curve", metavar="B")
    facts: list[str] | None = option(_FACTS.format("both"), action="append", metavar="NAME=VALUE")
    facts_a: list[str] | None = option(_FACTS.format("A"), action="append", metavar="NAME=VALUE")
    facts_b: list[str] | None = option(_FACTS.format("B"), action="append", metavar="NAME=VALUE")
    framework_a: str | None = option(_FRAMEWORK.format("A"), metavar="FRAMEWORK")
    map_a: list[str] | None = option(_MAP.format("a", "A"), action="append", metavar="CONCEPT=PATH")
    framework_b: str | None = option(_FRAMEWORK.format("B"), metavar="FRAMEWORK")
    map_b: list[str] | None = option(_MAP.format("b", "B"), action="append", metavar="CONCEPT=PATH")
    files: Path | None = option(FILES_HELP, type=Path)
    files_a: Path | None = option("the same for A only", type=Path, metavar="FILES")
    files_b: Path | None = option("the same for B only", type=Path, metavar="FILES")
    key: str | None = option("only this key, such as lr")
    until: int | None = until_option("the number of updates")
    log_options: LogOptions = log_bundle()
    base_value: float | None = option(
        "the optimizer's own value, for a class that scales it", type=float
    )
    strict: bool = flag("exit with 3 if a curve is undecided")
    as_json: bool = json_flag()
    plot: Path | None = option("write both curves and their difference to this file", type=Path)
    force: bool = flag("overwrite the file")


def run(options: Options) -> int:
    """Prints the differences."""
    from closedform.analysis.difference import diff as difference_of
    from closedform.analysis.result import plain
    from closedform.cli.sources import recipe_notes
    from closedform.errors import UnknownNameError, nearest
    from closedform.verify.terms.verdict import Status

    check_free(options.plot, force=options.force)
    first, second = (_load_side(options, side) for side in ("a", "b"))
    difference = difference_of(first, second, options.until)
    curves = [
        curve for curve in difference.curves if options.key is None or curve.key == options.key
    ]
    sides = (("A", first), ("B", second))
    if not curves:
        keys = {curve.key for curve in difference.curves}
        raise UnknownNameError(
            f"the two do not share {options.key!r}", hint=nearest(str(options.key), keys)
        )
    if options.as_json:
        notes = {side.lower(): dict(recipe_notes(source)) for side, source in sides}
        print_json({**difference.data(), "curves": plain(curves), "notes": notes}, indent=2)
    else:
        _show(curves)
        for side, source in sides:
            for note, text in recipe_notes(source).items():
                note_line(f"{side}: {note}: {text}")
        for name, only in (("A", difference.only_in_a), ("B", difference.only_in_b)):
            if only:
                note_line(f"only {name} has {', '.join(only)}")
    if options.plot is not None:
        _plot(first, second, curves[0], options.plot, (options.a, options.b))
    if any(curve.verdict is Status.REFUTED for curve in curves):
        return DIFFERENT
    is_undecided = any(curve.verdict is Status.UNKNOWN for curve in curves)
    return UNDECIDED if options.strict and is_undecided else 0


def _load_side(options: Options, side: str) -> Source:
    """The source of a side, ``a`` or ``b``, by the options of that side and of both."""
    text, facts, framework, words, files = (
        getattr(options, name)
        for name in (side, f"facts_{side}", f"framework_{side}", f"map_{side}", f"files_{side}")
    )
    _, paths = generic_options(framework, words, is_generic=False)
    source_options = SourceOptions(
        base=options.base_value,
        framework=framework,
        facts={**parse_facts(options.facts), **parse_facts(facts)},
        files=files or options.files,
        paths=paths,
    )
    return load_curve(text, source_options, options.log_options)


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
    rows = []
    for curve in curves:
        if curve.first_step is None:
            rows.append((curve.name, str(curve.verdict), "", "", "", curve.reason))
            continue
        values = "" if curve.first is None else f"{curve.first[0]!r} and {curve.first[1]!r}"
        gap = f"{curve.max_gap:.6g} at {curve.at:,}" if curve.at is not None else ""
        remark = "; ".join(part for part in (values, curve.reason) if part)
        rows.append(
            (curve.name, "differ", f"{curve.first_step:,}", gap, f"{curve.area:.6g}", remark)
        )
    columns = ("", "verdict", "first update", "largest gap", "area", "values there")
    table(columns, rows, numbers=False)


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
