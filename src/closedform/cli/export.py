"""``closedform export``: ONNX files of a schedule, an optimizer or a recipe, and C headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from closedform.cli.arguments import AsImplemented, BaseValue, Key, OptionalName, parse_shapes

if TYPE_CHECKING:
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe

    Source = Schedule | UpdateRule | Recipe


class Dtype(StrEnum):
    """The dtype of a schedule's value, or of parameters and states."""

    F32 = "f32"
    F64 = "f64"


def export(
    context: typer.Context,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="A folder; for one schedule an .onnx file; for C, a header .h: its name is that "
            "of the function.",
        ),
    ],
    name: OptionalName = None,
    optimizer: Annotated[str | None, typer.Option(help="An optimizer, instead of NAME.")] = None,
    params: Annotated[
        list[str] | None,
        typer.Option(
            help="Name and shape of a parameter, such as w=64x10, or an npz or safetensors file; "
            "repeat for each."
        ),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="Write step.onnx as one flat graph, without functions.")
    ] = False,
    hyper_inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="A hyperparameter that becomes an input; repeat for each."),
    ] = None,
    vector: Annotated[
        bool, typer.Option("--vector", help="The schedule takes a vector of steps.")
    ] = False,
    dtype: Annotated[
        Dtype | None, typer.Option(help="Default: f64 for a schedule, f32 for parameters.")
    ] = None,
    opset: Annotated[int, typer.Option(help="The ONNX opset.")] = 21,
    claims: Annotated[
        bool,
        typer.Option("--claims", help="Verify schedules; write verdicts into the files."),
    ] = False,
    key: Key = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Export NAME to ONNX: schedule.onnx, and with --params init.onnx and step.onnx.

    The arguments of NAME are options: closedform export cosine --start 3e-4 --end 0 --steps 100
    -o lr.onnx, closedform export --optimizer adamw --params model.safetensors -o adamw. A function
    of your own is closedform export train.py:get_lr -o lr.onnx, which imports train.py: its code
    is run. With -o lr.h a C11 header is written, of a schedule or an elementwise optimizer.
    """
    import closedform as cf
    from closedform.cli.output import tracked
    from closedform.cli.sources import load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    name, words = _named(name, optimizer, context.args)
    shapes = parse_shapes(params or [])
    source = load_source(
        name,
        words,
        key=key,
        base=base_value,
        as_implemented=as_implemented,
        inputs=hyper_inputs or (),
    )
    if output.suffix == ".h":
        _write_header(source, output, dtype, hyper_inputs or ())
        return
    _check(source, shapes, output)

    def write_schedule(schedule: Schedule, path: Path) -> None:
        cf.to_onnx(
            schedule,
            path,
            step_shape=("n",) if vector else (),
            dtype=dtype,
            inputs=hyper_inputs or (),
            opset=opset,
            claims=schedule.verify() if claims else None,
        )

    tasks: list[tuple[tuple[Path, ...], Callable[[], object]]] = []  # files and their writer
    for scheduled, schedule in schedules_of(source).items():
        file = "schedule.onnx" if scheduled == "lr" else f"schedule.{scheduled}.onnx"
        path = output if _is_file(output) else output / file
        tasks.append(((path,), partial(write_schedule, schedule, path)))
    if shapes and not isinstance(source, Schedule):
        rule = source if isinstance(source, UpdateRule) else source.optimizer()
        write_rule = partial(
            cf.to_onnx, rule, output, params=shapes, dtype=dtype, inline=inline, opset=opset
        )
        tasks.append(((output / "init.onnx", output / "step.onnx"), write_rule))
    folder = output.parent if _is_file(output) else output
    with _folder(folder):
        for _, write in tracked(tasks, "compile and export"):
            write()
    for path in (path for files, _ in tasks for path in files):
        print(f"{path}  {path.stat().st_size:,} bytes")


def _write_header(source: Source, output: Path, dtype: Dtype | None, inputs: Sequence[str]) -> None:
    import closedform as cf
    from closedform.language import Schedule, UpdateRule

    if not isinstance(source, Schedule | UpdateRule):
        raise typer.BadParameter(
            "a header is of one schedule or optimizer: name one of the recipe, or use to_c"
        )
    header = cf.to_c(source, name=output.stem, dtype=dtype, inputs=inputs)
    with _folder(output.parent):
        output.write_text(header, encoding="ascii")
    print(f"{output}  {output.stat().st_size:,} bytes")


def _named(
    name: str | None, optimizer: str | None, words: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """The name to export, and the words that are its arguments."""
    if optimizer is None:
        if name is None:
            raise typer.BadParameter("nothing to export: give NAME or --optimizer")
        return name, words
    if name is not None and not name.startswith("-"):
        raise typer.BadParameter(f"give either NAME or --optimizer, got {name!r} and --optimizer")
    full = optimizer if ":" in optimizer else f"optimizer:{optimizer}"
    return full, words if name is None else [name, *words]


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Makes a folder; if the block fails, new folders that are empty are removed."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in new:
            if any(folder.iterdir()):
                break
            folder.rmdir()
        raise


def _check(source: Source, shapes: Mapping[str, tuple[int, ...]], output: Path) -> None:
    from closedform.language import Schedule, UpdateRule

    if isinstance(source, UpdateRule) and not shapes:
        raise typer.BadParameter("an optimizer needs the shapes of parameters: --params w=64x10")
    if isinstance(source, Schedule) and shapes:
        raise typer.BadParameter("a schedule has no parameters: omit --params")
    if _is_file(output) and not isinstance(source, Schedule):
        raise typer.BadParameter("several files are written: -o must be a folder")


def _is_file(output: Path) -> bool:
    return output.suffix == ".onnx"
