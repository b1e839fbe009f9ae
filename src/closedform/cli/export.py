"""``closedform export``: ONNX files of a schedule, an optimizer, or a whole recipe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    hyper_inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="A hyperparameter that becomes an input; once for each."),
    ] = None,
    vector: Annotated[
        bool, typer.Option("--vector", help="The schedule takes any number of steps at once.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="f32 or f64; f64 for a schedule, f32 for parameters.")
    ] = None,
    opset: Annotated[int, typer.Option(help="The ONNX opset.")] = 21,
    key: Annotated[str, typer.Option(help="What a class of a system schedules.")] = "lr",
    base_value: Annotated[
        float | None, typer.Option(help="The optimizer's own value, where a class scales it.")
    ] = None,
    as_shipped: Annotated[
        bool, typer.Option("--as-shipped", help="Keep the defects of the system.")
    ] = False,
) -> None:
    """Export NAME to ONNX: schedule.onnx, and with --params init.onnx and step.onnx.

    The arguments of NAME are options: closedform export cosine --start 3e-4 --end 0 --steps 100
    -o lr.onnx.
    """
    import closedform as cf
    from closedform.cli.arguments import parse_shapes
    from closedform.cli.output import progress
    from closedform.cli.sources import DialectOptions, load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    shapes = parse_shapes(params or [])
    options = DialectOptions(key=key, base=base_value, as_shipped=as_shipped)
    source = load_source(name, context.args, options)
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
    common: dict[str, Any] = {"opset": opset} | ({"dtype": dtype} if dtype else {})
    own: dict[str, Any] = {
        "step_shape": ("n",) if vector else (),
        "inputs": tuple(hyper_inputs or ()),
    }
    tasks: list[tuple[list[Path], Callable[[], object]]] = []
    for scheduled, schedule in schedules_of(source).items():
        path = output if is_file else folder / _file_name(scheduled)
        tasks.append(([path], partial(cf.to_onnx, schedule, path, **common, **own)))
    if rule is not None and shapes:
        paths = [folder / "init.onnx", folder / "step.onnx"]
        tasks.append((paths, partial(cf.to_onnx, rule, folder, params=shapes, **common)))
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
