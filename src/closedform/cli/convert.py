"""``closedform convert``: a config as that of another framework, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from closedform.writing import Written


def convert(
    source: Annotated[Path, typer.Argument(help="A config of a framework.")],
    to: Annotated[str, typer.Option("--to", help="The framework to write the config for.")],
    framework: Annotated[
        str | None, typer.Option("--from", help="The framework of the config, if not clear.")
    ] = None,
    facts: Annotated[
        list[str] | None,
        typer.Option("--facts", help="A number of the run, as in --facts global_batch_size=512."),
    ] = None,
    total: Annotated[
        int | None, typer.Option(help="The updates of the run, if the config has none.", min=1)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; standard output.")
    ] = None,
) -> None:
    """Convert a config to that of another framework: exact (proved), exact until, nearest.

    The config is read back by the framework's own semantics and compared. The verdict goes to
    standard error.
    """
    from closedform.recipes.load import load_recipe
    from closedform.writing import Verdict, write_recipe

    recipe = load_recipe(source, framework=framework, facts=_facts(facts or []))
    written = write_recipe(recipe, to, total)
    typer.echo(_verdict(written), err=True)
    if written.verdict is Verdict.IMPOSSIBLE:
        raise typer.Exit(1)
    if output is None:
        typer.echo(written.text, nl=False)
    else:
        output.write_text(written.text, encoding="utf-8")


def _facts(words: list[str]) -> dict[str, Any]:
    from closedform.recipes.documents.scalars import word

    found: dict[str, Any] = {}
    for one in words:
        name, equals, value = one.partition("=")
        if not equals:
            raise typer.BadParameter(f"a fact must be name=value, got {one!r}")
        found[name] = word(value)
    return found


def _verdict(written: Written) -> str:
    lines = [f"{written.framework}: {written.verdict}"]
    if written.until is not None:
        lines[0] += f" update {written.until}"
    if written.gap is not None:
        lines[0] += f", largest gap {written.gap:.3g} of the largest rate, at update {written.at}"
    if written.why:
        lines.append(f"  {written.why}")
    if written.facts:
        used = ", ".join(f"{name}={value}" for name, value in written.facts.items())
        lines.append(f"  facts to read it with: {used}")
    lines += [f"  not written: {what}" for what in written.left_out]
    return "\n".join(lines)
