"""``closedform export``: ONNX files of a schedule, an optimizer, or a whole recipe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from closedform.language import UpdateRule


def export(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A name of the library, SYSTEM:CLASS, or a config file.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder, or for one schedule an .onnx file.")
    ],
    params: Annotated[
        list[str] | None,
        typer.Option(help="Name and shape of a parameter, such as w=64x10; once for each."),
    ] = None,
    key: Annotated[str, typer.Option(help="What a class of a system schedules.")] = "lr",
    base_value: Annotated[
        float | None, typer.Option(help="The optimizer's own value, where a class scales it.")
    ] = None,
) -> None:
    """Export NAME to ONNX: schedule.onnx, and with --params init.onnx and step.onnx.

    The arguments of NAME are options: closedform export cosine --start 3e-4 --end 0 --steps 100
    -o lr.onnx.
    """
    import closedform as cf
    from closedform.cli.arguments import parse_shapes
    from closedform.cli.output import progress
    from closedform.cli.sources import load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    shapes = parse_shapes(params or [])
    source = load_source(name, context.args, key=key, base=base_value)
    rule = _rule_of(source)
    if isinstance(source, UpdateRule) and not shapes:
        raise typer.BadParameter("an optimizer needs the shape of each parameter: --params w=64x10")
    if rule is None and shapes:
        raise typer.BadParameter("a schedule has no parameters: leave --params out")
    is_file = output.suffix == ".onnx"
    if is_file and not isinstance(source, Schedule):
        raise typer.BadParameter(f"{name} gives several files: -o must name a folder")
    folder = output.parent if is_file else output
    folder.mkdir(parents=True, exist_ok=True)
    tasks: list[tuple[list[Path], Callable[[], object]]] = []
    for scheduled, schedule in schedules_of(source).items():
        path = output if is_file else folder / _file_name(scheduled)
        tasks.append(([path], partial(cf.to_onnx, schedule, path)))
    if rule is not None and shapes:
        paths = [folder / "init.onnx", folder / "step.onnx"]
        tasks.append((paths, partial(cf.to_onnx, rule, folder, params=shapes)))
    with progress("compile and export", len(tasks)) as bar:
        for paths, write in tasks:
            write()
            bar.advance(description=f"wrote {paths[-1].name}")
    for paths, _ in tasks:
        for path in paths:
            print(f"{path}  {path.stat().st_size:,} bytes")


def _rule_of(source: object) -> UpdateRule | None:
    from closedform.language import Schedule, UpdateRule

    if isinstance(source, Schedule):
        return None
    return source if isinstance(source, UpdateRule) else getattr(source, "optimizer", None)


def _file_name(key: str) -> str:
    return "schedule.onnx" if key == "lr" else f"schedule.{key}.onnx"
