"""``closedform rescale``: a recipe at another batch size, number of tokens or width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    SourceOptions,
    add_json,
    add_name,
    add_source_options,
)
from closedform.cli.parser import Parser, UsageError, positive

if TYPE_CHECKING:
    from closedform.analysis.rescaling import Rescaled
    from closedform.recipes import Recipe

_HELP = """\
Change a recipe for another batch size, number of tokens or width, with proved invariants.

The report lists what is kept; an invariant that cannot be kept is an error that names it. The
arguments of NAME are options.

example:
  closedform rescale cosine --start 3e-4 --end 0 --steps 1000 --batch 4 --rule sqrt
"""

RULES = ("none", "linear", "sqrt", "sde", "critical")
"""Rules of a learning rate for another batch size."""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    add_name(command)
    command.add_argument("--batch", default="1", help="the factor of the batch size")
    command.add_argument("--tokens", default="1", help="the factor of the tokens of the run")
    command.add_argument("--width", default="1", help="the factor of the width of the model")
    command.add_argument("--horizon", type=positive, help="the updates of the new run")
    command.add_argument(
        "--rule",
        choices=RULES,
        help="how the learning rate scales with the batch size; needed with --batch",
    )
    command.add_argument(
        "--keep", action="append", metavar="INVARIANT", help="an invariant to keep; repeatable"
    )
    command.add_argument("--warmup", type=int, help="the updates of the warmup in the old run")
    command.add_argument("--critical-batch", help="the critical batch size in samples")
    command.add_argument(
        "--total", type=positive, help="the updates of the old run, if the source has none"
    )
    command.add_argument("--to", help="the framework to write the config for, to -o")
    command.add_argument(
        "-o", "--output", type=Path, help="write the learning rate to this .onnx, or the config"
    )
    command.add_argument("--force", action="store_true", help="overwrite the file")
    add_json(command)
    add_source_options(command)
    return command


def run(
    *,
    name: str,
    words: list[str],
    batch: str,
    tokens: str,
    width: str,
    horizon: int | None,
    rule: str | None,
    keep: list[str] | None,
    warmup: int | None,
    critical_batch: str | None,
    total: int | None,
    to: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    options: SourceOptions,
) -> None:
    """Prints the report of the change."""
    from closedform.analysis.rescaling import rescale
    from closedform.cli.output import check_free

    if to is not None and output is None:
        raise UsageError("--to needs a file, got no -o", hint="name it: -o FILE")
    if output is not None:
        if to is None and output.suffix != ".onnx":
            raise UsageError(f"-o must be an .onnx file, or --to given, got {str(output)!r}")
        check_free(output, force=force)
    if batch is not None and rule is None:
        raise UsageError(
            "--batch needs a rule for the learning rate, got no --rule",
            hint=f"add --rule {', '.join(RULES[:-1])} or {RULES[-1]}",
        )
    rescaled = rescale(
        _recipe(name, words, total, options),
        batch=_number(batch, "--batch"),
        tokens=_number(tokens, "--tokens"),
        width=_number(width, "--width"),
        horizon=horizon,
        rule=rule,
        keep=keep,
        warmup=warmup,
        critical_batch=None
        if critical_batch is None
        else _number(critical_batch, "--critical-batch"),
    )
    print(json.dumps(_plain(rescaled), indent=2) if as_json else rescaled)
    if output is not None:
        _write(rescaled.recipe, output, to)


def _write(recipe: Recipe, output: Path, to: str | None) -> None:
    import closedform as cf
    from closedform.cli.output import output_folder, write_output

    if to is None:
        with output_folder(output.parent):
            cf.to_onnx(recipe.schedule(), output)
        return
    written = cf.write_recipe(recipe, to)
    if not written.text:
        raise UsageError(f"{to} cannot say it: {written.why}")
    write_output(output, written.text)


def _recipe(name: str, words: list[str], total: int | None, options: SourceOptions) -> Recipe:
    """The recipe that a name denotes; a schedule is one without an optimizer."""
    from closedform.cli.sources import load_source, schedule_of
    from closedform.recipes.recipe import Recipe, recipe_of

    source = load_source(name, words, options)
    if isinstance(source, Recipe):
        return source
    schedule = schedule_of(source, name, options.key)
    length = schedule.length if total is None else total
    return recipe_of(schedule, name, None if length is None else int(length))


def _number(text: str, option: str) -> Any:
    from closedform.cli.arguments import parse_literal

    if "/" in text:
        from fractions import Fraction

        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"{option} must be a number such as 4 or 1/2, got {text!r}") from None
    number = parse_literal(text)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UsageError(f"{option} must be a number such as 4 or 1/2, got {text!r}")
    return number


def _plain(rescaled: Rescaled) -> dict[str, Any]:
    """The report as JSON; numbers are the nearest floats."""
    from closedform.language.exact import to_float

    factors = rescaled.factors
    return {
        "batch": to_float(factors.batch),
        "tokens": to_float(factors.tokens),
        "width": to_float(factors.width),
        "rule": rescaled.rule,
        "rate": to_float(rescaled.rate),
        "horizon": [rescaled.before.horizon, rescaled.recipe.horizon],
        "warmup": None if rescaled.warmup is None else [to_float(n) for n in rescaled.warmup],
        "invariants": [
            {"invariant": entry.invariant, "curve": entry.curve, "status": str(entry.status)}
            for entry in rescaled.invariances
        ],
        "reading": list(rescaled.reading),
    }
