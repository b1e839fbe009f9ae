"""``closedform run``: values of an exported schedule in onnxruntime over a range of steps."""

from __future__ import annotations

import sys
from pathlib import Path

from closedform.cli.parser import Parser

_CHUNK = 65_536
_HELP = """\
Run an exported schedule in onnxruntime and print its value at each step.

Inputs of the graph are options.

example:
  closedform run lr.onnx --steps 0:1000:10 --peak 3e-4
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    command.add_argument("file", type=Path, help="an .onnx file of an exported schedule")
    command.add_argument(
        "--steps", default="0:10", help="start:stop:stride, without stop (default: 0:10)"
    )
    command.add_argument(
        "--format", dest="form", choices=("table", "csv"), default="table", help="the output format"
    )
    command.add_argument("-o", "--output", type=Path, help="write CSV to this file")
    command.add_argument("--force", action="store_true", help="overwrite the file")
    return command


def run(
    *, file: Path, steps: str, form: str, output: Path | None, force: bool, words: list[str]
) -> None:
    """Prints or writes the values."""
    import numpy as np

    import closedform as cf
    from closedform.cli.arguments import free_arguments, parse_steps
    from closedform.cli.output import check_free, table, with_progress, write_output

    step_numbers = parse_steps(steps)
    inputs = free_arguments(words)
    if output is not None:
        check_free(output, force=force)
    session = cf.ScheduleSession(file)
    rows: list[tuple[str, str]] = []
    for begin in with_progress(range(0, len(step_numbers), _CHUNK), "run"):
        chunk = np.array(step_numbers[begin : begin + _CHUNK], dtype=np.int64)
        values = np.asarray(session(chunk, **inputs))
        rows += [(str(t), str(v)) for t, v in zip(chunk.tolist(), values, strict=True)]
    if output is not None:
        write_output(output, _csv(rows))
        print(output)
    elif form == "csv":
        sys.stdout.write(_csv(rows))
    else:
        table(("step", "value"), rows, numbers=True)


def _csv(rows: list[tuple[str, str]]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", "value"))
    writer.writerows(rows)
    return text.getvalue()
