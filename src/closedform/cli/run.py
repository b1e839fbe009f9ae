"""``closedform run``: values of an exported schedule in onnxruntime over a range of steps."""

from __future__ import annotations

import csv
import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_CHUNK = 65_536


class Format(StrEnum):
    """The output format of ``run``."""

    TABLE = "table"
    CSV = "csv"


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An .onnx file of an exported schedule.")],
    steps: Annotated[str, typer.Option(help="start:stop:stride, stop excluded.")] = "0:10",
    form: Annotated[Format, typer.Option("--format", help="The output format.")] = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write CSV to this file.")
    ] = None,
) -> None:
    """Run an exported schedule in onnxruntime and print its value at each step.

    Inputs of the graph are options: closedform run lr.onnx --steps 0:1000:10 --peak 3e-4.
    """
    import numpy as np

    import closedform as cf
    from closedform.cli.arguments import free_arguments, parse_steps
    from closedform.cli.output import table, tracked

    wanted = parse_steps(steps)
    inputs = free_arguments(context.args)
    session = cf.ScheduleSession(file)
    rows: list[tuple[str, str]] = []
    for begin in tracked(range(0, len(wanted), _CHUNK), "run"):
        chunk = np.array(wanted[begin : begin + _CHUNK], dtype=np.int64)
        values = np.asarray(session(chunk, **inputs))
        rows += [(str(t), str(v)) for t, v in zip(chunk.tolist(), values, strict=True)]
    if output is not None:
        output.write_text(_csv(rows), encoding="utf-8")
        print(output)
    elif form is Format.CSV:
        sys.stdout.write(_csv(rows))
    else:
        table(("step", "value"), rows, numbers=True)


def _csv(rows: list[tuple[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", "value"))
    writer.writerows(rows)
    return text.getvalue()
