"""``closedform export``: ONNX files of a schedule, an optimizer or a recipe, and C headers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import SourceOptions, name_argument, parse_shapes, source_bundle
from closedform.cli.output import check_free, output_folder, write_output
from closedform.cli.parser import UsageError, command, flag, option
from closedform.errors import UnprovedWarning
from closedform.files import files_of, writing

if TYPE_CHECKING:
    from onnx import ModelProto

    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe

    Source = Schedule | UpdateRule | Recipe

_SUFFIXES = {
    ".onnx": "one schedule",
    ".h": "a C11 header, whose name is that of the function",
}
"""The files that are written besides a folder of them; the help and the errors name them."""

UNDECIDED = 3
"""The exit code where a translation is not proved, with ``--strict``."""

HELP = """\
Export NAME to ONNX: schedule.onnx, and with --params init.onnx and step.onnx.

The arguments of NAME are options. Of FILE.py:FUNCTION the file is imported, that is, its code is
run; a file .h is a C11 header.

examples:
  closedform export cosine --start 3e-4 --end 0 --steps 100 -o lr.onnx
  closedform export --optimizer adamw --params model.safetensors -o adamw
  closedform export train.py:get_lr -o lr.h
"""


@command
class Options:
    """The options of ``closedform export``."""

    name: str | None = name_argument(nargs="?")
    words: Sequence[str]
    output: Path = option(
        "a folder, or "
        + " or ".join(f"a file {suffix} ({form})" for suffix, form in _SUFFIXES.items()),
        "-o",
        type=Path,
        required=True,
    )
    force: bool = flag("overwrite existing files")
    optimizer: str | None = option("an optimizer, instead of NAME")
    params: list[str] | None = option(
        "name and shape of a parameter, such as w=64x10, or an npz or safetensors file; "
        "repeat for each",
        action="append",
        metavar="NAME=SHAPE",
    )
    functions: bool = flag(
        "write step.onnx with a local function for each kind of tensor, not as a flat graph"
    )
    inputs: list[str] | None = option(
        "a hyperparameter that becomes an input; repeat for each", "--input", action="append"
    )
    vector: bool = flag("the schedule takes a vector of steps")
    dtype: str | None = option(
        "dtype of a schedule's value (default: f64), or of a rule's tensors (default: f32)",
        choices=("f32", "f64"),
    )
    scalar_dtype: str = option(
        "dtype in which scalars are computed (default: f64)", choices=("f32", "f64"), default="f64"
    )
    step_dtype: str = option(
        "dtype of the step (default: i64)", choices=("i32", "i64"), default="i64"
    )
    opset: int | None = option("the ONNX opset (default: that of the target, or 21)", type=int)
    target: str | None = option('the runtime that reads the files, such as "onnxruntime>=1.17"')
    claims: bool = flag("verify schedules; write verdicts into the files")
    strict: bool = flag("exit with 3, and write nothing, if a file is not proved to be its source")
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> int:
    """Writes the files, prints their names and verdicts, and returns the exit code."""
    import closedform as cf
    from closedform.cli.sources import load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    _check_suffix(options.output)
    name, words = _split_name(options)
    shapes = parse_shapes(options.params or [])
    source = load_source(name, words, options.source_options, inputs=options.inputs or ())
    if options.output.suffix.lower() == ".h":
        check_free(options.output, force=options.force)
        return _write_header(source, options)
    _check(source, shapes, options.output)

    graph: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("dtype", "scalar_dtype", "step_dtype", "opset", "target")
    }

    def write_schedule(schedule: Schedule, path: Path) -> list[ModelProto]:
        model = cf.to_onnx(
            schedule,
            path,
            step_shape=("n",) if options.vector else (),
            inputs=options.inputs or (),
            claims=schedule.verify() if options.claims else None,
            **graph,
        )
        return [model]

    def write_rule(rule: UpdateRule, folder: Path) -> list[ModelProto]:
        models = cf.to_onnx(rule, folder, params=shapes, inline=not options.functions, **graph)
        return [models[path.stem] for path in _rule_files(folder)]

    tasks: list[_Task] = []
    for key, schedule in schedules_of(source).items():
        file = "schedule.onnx" if key == "lr" else f"schedule.{key}.onnx"
        path = options.output if _is_file(options.output) else options.output / file
        tasks.append(_Task((path,), path, partial(write_schedule, schedule)))
    if shapes and not isinstance(source, Schedule):
        rule = source if isinstance(source, UpdateRule) else source.optimizer()
        tasks.append(_Task(_rule_files(options.output), options.output, partial(write_rule, rule)))
    files = [path for task in tasks for path in task.files]
    for path in files:
        check_free(path, force=options.force)
    folder = options.output.parent if _is_file(options.output) else options.output
    try:
        with output_folder(folder), writing(folder, "the files"):
            lines = _write_all(tasks, folder, is_strict=options.strict)
    except UnprovedWarning as warning:
        return _refuse_unproved(str(warning))
    for path, line in zip(files, lines, strict=True):
        print(f"{path}  {path.stat().st_size:,} bytes")
        print(f"  {line}")
    return 0


@dataclass(frozen=True, slots=True)
class _Task:
    """Files, and the function that writes them.

    Attributes:
        files: The files.
        target: The path of the writer: the file, or the folder of the files.
        write: Writes to a path in the place of the target, and returns the models of the files.
    """

    files: tuple[Path, ...]
    target: Path
    write: Callable[[Path], Sequence[ModelProto]]


def _rule_files(folder: Path) -> tuple[Path, ...]:
    return folder / "init.onnx", folder / "step.onnx"


def _write_all(tasks: Sequence[_Task], folder: Path, *, is_strict: bool) -> list[str]:
    """Writes all files, and returns a line on the translation of each.

    They are written into a new folder first, and put in place when all are; strictly, when all are
    proved.

    Raises:
        UnprovedWarning: Strictly, a file is not proved to be its source; nothing is written.
    """
    from closedform.verify.translation.verdicts import translation_line

    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # As an error, the warning leaves files_of, which then puts nothing in place.
        warnings.simplefilter("error" if is_strict else "ignore", UnprovedWarning)
        place = stack.enter_context(files_of(folder))
        for task in tasks:
            models = task.write(place / task.target.relative_to(folder))
            lines += [translation_line(model) for model in models]
    return lines


def _refuse_unproved(reason: str) -> int:
    print(f"nothing is written: {reason}", file=sys.stderr)
    return UNDECIDED


def _write_header(source: Source, options: Options) -> int:
    from closedform.api.c import header_and_verdict
    from closedform.cli.sources import schedules_of
    from closedform.language import Schedule, UpdateRule
    from closedform.options import GraphOptions
    from closedform.verify.translation.verdicts import verdict_text

    if not isinstance(source, Schedule | UpdateRule):
        schedules = schedules_of(source)
        if len(schedules) > 1:
            raise UsageError(
                f"a header is of one schedule or optimizer, got {', '.join(schedules)}: use to_c"
            )
        (source,) = schedules.values()
    output = options.output
    graph_options = GraphOptions(dtype=options.dtype, inputs=options.inputs or ())
    header, verdict = header_and_verdict(source, graph_options, output.stem)
    line = verdict_text(verdict)
    if options.strict and not verdict.proved:
        return _refuse_unproved(f"the C of {source.name!r} is not proved to be its source: {line}")
    write_output(output, header.text)
    print(f"{output}  {output.stat().st_size:,} bytes")
    print(f"  translation: {line}")
    return 0


def _split_name(options: Options) -> tuple[str, Sequence[str]]:
    """The name to export, and the words that are its arguments."""
    name, optimizer, words = options.name, options.optimizer, options.words
    if optimizer is None:
        if name is None:
            raise UsageError("nothing to export: give NAME or --optimizer")
        return name, words
    if name is not None and not name.startswith("-"):
        raise UsageError(f"give either NAME or --optimizer, got {name!r} and --optimizer")
    full = optimizer if ":" in optimizer else f"optimizer:{optimizer}"
    return full, words if name is None else [name, *words]


def _check(source: Source, shapes: Mapping[str, tuple[int, ...]], output: Path) -> None:
    from closedform.cli.sources import schedules_of
    from closedform.language import Schedule, UpdateRule

    if isinstance(source, UpdateRule) and not shapes:
        raise UsageError("an optimizer needs the shapes of parameters: --params w=64x10")
    if isinstance(source, Schedule) and shapes:
        raise UsageError("a schedule has no parameters: omit --params")
    # An optimizer has two files, init.onnx and step.onnx.
    count = len(schedules_of(source)) + 2 * bool(shapes)
    if _is_file(output) and count > 1:
        names = ", ".join([*schedules_of(source), *(["the optimizer"] if shapes else [])])
        raise UsageError(f"several files are written, of {names}: -o must be a folder")


def _check_suffix(output: Path) -> None:
    """Refuses a file of another form; a folder may have a dot in its name, as in run-1.5."""
    suffix = output.suffix.lower()
    if suffix in _SUFFIXES or not suffix[1:].isalpha() or output.is_dir():
        return
    hint = "`closedform convert --as extension` writes Python source" if suffix == ".py" else None
    forms = " or ".join(f"a file {suffix} ({form})" for suffix, form in _SUFFIXES.items())
    raise UsageError(f"-o is a folder, or {forms}, got {str(output)!r}", hint=hint)


def _is_file(output: Path) -> bool:
    return output.suffix.lower() == ".onnx"
