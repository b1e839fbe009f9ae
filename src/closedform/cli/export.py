"""``closedform export``: ONNX files of a schedule, an optimizer or a recipe, and C headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import SourceOptions, add_name, add_source_options, parse_shapes
from closedform.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe

    Source = Schedule | UpdateRule | Recipe

_HELP = """\
Export NAME to ONNX: schedule.onnx, and with --params init.onnx and step.onnx.

The arguments of NAME are options:
closedform export cosine --start 3e-4 --end 0 --steps 100 -o lr.onnx
closedform export --optimizer adamw --params model.safetensors -o adamw
closedform export train.py:get_lr -o lr.onnx    imports train.py, that is, runs its code
closedform export cosine --start 3e-4 --end 0 --steps 100 -o lr.h    writes a C11 header
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(prog, _HELP, has_arguments=True)
    add_name(found, nargs="?")
    found.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="a folder; for one schedule an .onnx file; for C, a header .h: its name is that of "
        "the function",
    )
    found.add_argument("--force", action="store_true", help="overwrite existing files")
    found.add_argument("--optimizer", help="an optimizer, instead of NAME")
    found.add_argument(
        "--params",
        action="append",
        metavar="NAME=SHAPE",
        help="name and shape of a parameter, such as w=64x10, or an npz or safetensors file; "
        "repeat for each",
    )
    found.add_argument(
        "--functions",
        action="store_true",
        help="write step.onnx with a local function for each kind of tensor, not as a flat graph",
    )
    found.add_argument(
        "--input",
        dest="inputs",
        action="append",
        help="a hyperparameter that becomes an input; repeat for each",
    )
    found.add_argument("--vector", action="store_true", help="the schedule takes a vector of steps")
    found.add_argument(
        "--dtype",
        choices=("f32", "f64"),
        help="dtype of a schedule's value (default: f64), or of a rule's tensors (default: f32)",
    )
    found.add_argument(
        "--scalar-dtype",
        choices=("f32", "f64"),
        default="f64",
        help="dtype in which scalars are computed (default: f64)",
    )
    found.add_argument(
        "--step-dtype",
        choices=("i32", "i64"),
        default="i64",
        help="dtype of the step (default: i64)",
    )
    found.add_argument(
        "--opset", type=int, help="the ONNX opset (default: that of the target, or 21)"
    )
    found.add_argument(
        "--target", help='the runtime that reads the files, such as "onnxruntime>=1.17"'
    )
    found.add_argument(
        "--claims",
        action="store_true",
        help="verify schedules; write verdicts into the files",
    )
    add_source_options(found)
    return found


def run(
    *,
    name: str | None,
    words: Sequence[str],
    output: Path,
    force: bool,
    optimizer: str | None,
    params: list[str] | None,
    functions: bool,
    inputs: list[str] | None,
    vector: bool,
    dtype: str | None,
    scalar_dtype: str,
    step_dtype: str,
    opset: int | None,
    target: str | None,
    claims: bool,
    options: SourceOptions,
) -> None:
    """Writes the files and prints their names."""
    import closedform as cf
    from closedform.cli.output import check_free, tracked
    from closedform.cli.sources import load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    name, words = _named(name, optimizer, words)
    shapes = parse_shapes(params or [])
    source = load_source(name, words, options, inputs=inputs or ())
    if output.suffix == ".h":
        check_free(output, force=force)
        _write_header(source, output, dtype, inputs or ())
        return
    _check(source, shapes, output)

    def write_schedule(schedule: Schedule, path: Path) -> None:
        cf.to_onnx(
            schedule,
            path,
            step_shape=("n",) if vector else (),
            dtype=dtype,
            scalar_dtype=scalar_dtype,
            step_dtype=step_dtype,
            inputs=inputs or (),
            opset=opset,
            target=target,
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
            cf.to_onnx,
            rule,
            output,
            params=shapes,
            dtype=dtype,
            scalar_dtype=scalar_dtype,
            step_dtype=step_dtype,
            inline=not functions,
            opset=opset,
            target=target,
        )
        tasks.append(((output / "init.onnx", output / "step.onnx"), write_rule))
    for path in (path for files, _ in tasks for path in files):
        check_free(path, force=force)
    folder = output.parent if _is_file(output) else output
    with _folder(folder):
        for _, write in tracked(tasks, "compile and export"):
            write()
    for path in (path for files, _ in tasks for path in files):
        print(f"{path}  {path.stat().st_size:,} bytes")


def _write_header(source: Source, output: Path, dtype: str | None, inputs: Sequence[str]) -> None:
    import closedform as cf
    from closedform.language import Schedule, UpdateRule

    if not isinstance(source, Schedule | UpdateRule):
        raise UsageError(
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
            raise UsageError("nothing to export: give NAME or --optimizer")
        return name, words
    if name is not None and not name.startswith("-"):
        raise UsageError(f"give either NAME or --optimizer, got {name!r} and --optimizer")
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
        raise UsageError("an optimizer needs the shapes of parameters: --params w=64x10")
    if isinstance(source, Schedule) and shapes:
        raise UsageError("a schedule has no parameters: omit --params")
    if _is_file(output) and not isinstance(source, Schedule):
        raise UsageError("several files are written: -o must be a folder")
    if output.suffix[1:].isalpha() and not _is_file(output) and not output.is_dir():
        form = "an .onnx file" if isinstance(source, Schedule) else "a folder"
        raise UsageError(f"-o must be {form}, got {str(output)!r}", hint="files end in .onnx")


def _is_file(output: Path) -> bool:
    return output.suffix == ".onnx"
