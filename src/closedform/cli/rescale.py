"""``closedform rescale``: a recipe at another batch size, number of tokens or width."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import SourceOptions, json_flag, name_argument, source_bundle
from closedform.cli.output import check_free, output_folder, print_result, write_output
from closedform.cli.parser import UsageError, command, flag, option, positive

if TYPE_CHECKING:
    from closedform.recipes import Recipe

HELP = """\
Change a recipe for another batch size, number of tokens or width, with proved invariants.

The report lists what is kept; an invariant that cannot be kept is an error that names it. The
arguments of NAME are options.

example:
  closedform rescale cosine --start 3e-4 --end 0 --steps 1000 --batch 4 --rule sqrt
"""

RULES = ("none", "linear", "sqrt", "sde", "critical")
"""Rules of a learning rate for another batch size."""


@command
class Options:
    """The options of ``closedform rescale``."""

    name: str = name_argument()
    words: list[str]
    batch: str = option("the factor of the batch size", default="1")
    tokens: str = option("the factor of the tokens of the run", default="1")
    width: str = option("the factor of the width of the model", default="1")
    horizon: int | None = option("the updates of the new run", type=positive)
    rule: str | None = option(
        "how the learning rate scales with the batch size; needed with --batch", choices=RULES
    )
    keep: list[str] | None = option(
        "an invariant to keep; repeatable", action="append", metavar="INVARIANT"
    )
    warmup: int | None = option("the updates of the warmup in the old run", type=int)
    critical_batch: str | None = option("the critical batch size in samples")
    total: int | None = option("the updates of the old run, if the source has none", type=positive)
    to: str | None = option("the framework to write the config for, to -o")
    output: Path | None = option(
        "write the learning rate to this .onnx, or the config", "-o", type=Path
    )
    force: bool = flag("overwrite the file")
    as_json: bool = json_flag()
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> None:
    """Prints the report of the change."""
    from closedform.analysis.rescaling import rescale

    if options.to is not None and options.output is None:
        raise UsageError("--to needs a file, got no -o", hint="name it: -o FILE")
    if options.output is not None:
        if options.to is None and options.output.suffix != ".onnx":
            raise UsageError(
                f"-o must be an .onnx file, or --to given, got {str(options.output)!r}"
            )
        check_free(options.output, force=options.force)
    if options.batch is not None and options.rule is None:
        raise UsageError(
            "--batch needs a rule for the learning rate, got no --rule",
            hint=f"add --rule {', '.join(RULES[:-1])} or {RULES[-1]}",
        )
    rescaled = rescale(
        _recipe(options.name, options.words, options.total, options.source_options),
        batch=_number(options.batch, "--batch"),
        tokens=_number(options.tokens, "--tokens"),
        width=_number(options.width, "--width"),
        horizon=options.horizon,
        rule=options.rule,
        keep=options.keep,
        warmup=options.warmup,
        critical_batch=None
        if options.critical_batch is None
        else _number(options.critical_batch, "--critical-batch"),
    )
    print_result(rescaled, as_json=options.as_json)
    if options.output is not None:
        _write(rescaled.recipe, options.output, options.to)


def _write(recipe: Recipe, output: Path, to: str | None) -> None:
    import closedform as cf

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
