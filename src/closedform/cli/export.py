"""``closedform export``: ONNX files of a schedule, an optimizer, or a whole recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
        typer.Option("-o", "--output", help="A folder or, for one schedule, an .onnx file."),
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
    -o lr.onnx, closedform export --optimizer adamw --params model.safetensors -o adamw.
    """
    from closedform.cli.output import progress
    from closedform.cli.sources import load_source
    from closedform.language import Schedule

    name, words = _named(name, optimizer, context.args)
    shapes = parse_shapes(params or [])
    source = load_source(name, words, key=key, base=base_value, as_implemented=as_implemented)
    _check(source, shapes, output)
    common: dict[str, Any] = {"opset": opset} | ({"dtype": dtype.value} if dtype else {})
    own = {"step_shape": ("n",) if vector else (), "inputs": tuple(hyper_inputs or ())}
    tasks = [*_schedule_tasks(source, output, {**common, **own}, with_claims=claims)]
    if shapes and not isinstance(source, Schedule):
        tasks.append(_rule_task(source, output, {**common, "params": shapes, "inline": inline}))
    folder = output.parent if _is_file(output) else output
    with _folder(folder), progress("compile and export", len(tasks)) as bar:
        for task in tasks:
            task.write()
            bar.advance(description=f"wrote {task.files[-1].name}")
    for path in (path for task in tasks for path in task.files):
        print(f"{path}  {path.stat().st_size:,} bytes")


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


@dataclass(frozen=True, slots=True)
class _Task:
    """Files, and the function that writes them."""

    files: tuple[Path, ...]
    write: Callable[[], object]


def _check(source: Source, shapes: Mapping[str, tuple[int, ...]], output: Path) -> None:
    from closedform.language import Schedule, UpdateRule

    if isinstance(source, UpdateRule) and not shapes:
        raise typer.BadParameter("an optimizer needs the shapes of parameters: --params w=64x10")
    if isinstance(source, Schedule) and shapes:
        raise typer.BadParameter("a schedule has no parameters: omit --params")
    if _is_file(output) and not isinstance(source, Schedule):
        raise typer.BadParameter("several files are written: -o must be a folder")


def _schedule_tasks(
    source: Source, output: Path, options: dict[str, Any], *, with_claims: bool
) -> Iterator[_Task]:
    from closedform.cli.sources import schedules_of

    for key, schedule in schedules_of(source).items():
        name = "schedule.onnx" if key == "lr" else f"schedule.{key}.onnx"
        path = output if _is_file(output) else output / name
        yield _Task((path,), partial(_write, schedule, path, options, with_claims=with_claims))


def _write(schedule: Schedule, path: Path, options: dict[str, Any], *, with_claims: bool) -> None:
    import closedform as cf

    report = schedule.verify() if with_claims else None
    cf.to_onnx(schedule, path, claims=report, **options)


def _rule_task(source: UpdateRule | Recipe, folder: Path, options: dict[str, Any]) -> _Task:
    import closedform as cf
    from closedform.language import UpdateRule

    rule = source if isinstance(source, UpdateRule) else source.optimizer
    files = (folder / "init.onnx", folder / "step.onnx")
    return _Task(files, partial(cf.to_onnx, rule, folder, **options))


def _is_file(output: Path) -> bool:
    return output.suffix == ".onnx"
