"""``closedform diff``: where and how far two recipes, schedules or logs are apart."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closedform.cli.arguments import BaseValue

if TYPE_CHECKING:
    from closedform.difference import CurveDifference, Difference, Source

Facts = Annotated[
    list[str] | None,
    typer.Option(help="Facts of the run, such as total_steps=1000; for both, repeated or several."),
]


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The first one.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The second one.")],
    facts: Facts = None,
    facts_a: Annotated[list[str] | None, typer.Option(help="Facts of A alone.")] = None,
    facts_b: Annotated[list[str] | None, typer.Option(help="Facts of B alone.")] = None,
    framework_a: Annotated[
        str | None, typer.Option(help="The framework of the config A, also with @version.")
    ] = None,
    framework_b: Annotated[
        str | None, typer.Option(help="The framework of the config B, also with @version.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, such as lr.")] = None,
    until: Annotated[int | None, typer.Option(help="The number of updates.", min=1)] = None,
    log_offset: Annotated[
        int, typer.Option(help="The step that a log gives to update 0: 0 or 1.")
    ] = 0,
    base_value: BaseValue = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write both curves and their difference to this file.")
    ] = None,
) -> None:
    """Compare A and B: proved equal, or the first update that differs, the largest gap, the area.

    Each is a config file, an ONNX file, a function of a Python file (train.py:get_lr), a log (CSV
    or JSON lines with step and lr), or a name with its arguments in quotes:
    closedform diff recipe.yaml "cosine --start 3e-4 --end 0 --steps 100".

    The exit code is 0 if no curve differs, and 1 otherwise.
    """
    from closedform.cli.output import note_line
    from closedform.difference import diff as difference_of
    from closedform.errors import UnknownNameError, nearest
    from closedform.verify.terms.verdict import Status

    shared = _facts(facts)
    one = _loaded(a, framework_a, {**shared, **_facts(facts_a)}, base_value, log_offset)
    other = _loaded(b, framework_b, {**shared, **_facts(facts_b)}, base_value, log_offset)
    found = difference_of(one, other, until)
    curves = [curve for curve in found.curves if key is None or curve.key == key]
    if not curves:
        known = {curve.key for curve in found.curves}
        raise UnknownNameError(f"the two do not share {key!r}", hint=nearest(str(key), known))
    if as_json:
        print(json.dumps(_plain(found, curves), indent=2))
    else:
        _show(curves)
        for name, only in (("A", found.only_in_a), ("B", found.only_in_b)):
            if only:
                note_line(f"only {name} has {', '.join(only)}")
    if plot is not None:
        _plot(one, other, curves[0], plot, (a, b))
    if any(curve.verdict is Status.REFUTED for curve in curves):
        raise typer.Exit(1)


def _facts(words: list[str] | None) -> dict[str, Any]:
    """Facts from words such as ``total_steps=1000``, also several in one word."""
    from closedform.cli.arguments import parse_literal

    found: dict[str, Any] = {}
    for word in [part for text in words or () for part in shlex.split(text)]:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected name=value, got {word!r}")
        found[name] = parse_literal(value)
    return found


def _loaded(
    text: str,
    framework: str | None,
    facts: Mapping[str, Any],
    base: float | None,
    log_offset: int,
) -> Source:
    from closedform.cli.sources import load_source
    from closedform.errors import ArgumentError
    from closedform.language import UpdateRule
    from closedform.recipes.logs import LOG_SUFFIXES, read_log

    name, *words = [text] if Path(text).is_file() else shlex.split(text)
    if name.lower().endswith(LOG_SUFFIXES) or _is_json_log(Path(name)):
        return read_log(name, log_offset)
    found = load_source(name, words, base=base, framework=framework, facts=facts)
    if isinstance(found, UpdateRule):
        raise ArgumentError(
            f"{name} is an optimizer, not a schedule", hint="name a schedule, or a config"
        )
    return found


def _is_json_log(path: Path) -> bool:
    """Whether a JSON file is the state of a trainer or a list of rows, and not a config."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(1 << 20)
    return head.lstrip().startswith("[") or '"log_history"' in head


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
    from closedform.difference import curve_values
    from closedform.plotting import plot_difference

    steps, ours, theirs = curve_values(one, other, curve)
    names = tuple(Path(label).name if Path(label).is_file() else label for label in labels)
    plot_difference(ours, theirs, steps, path, labels=(names[0], names[1]), title=curve.key)
    print(path)
