"""``closedform run``: values of an exported schedule in onnxruntime over a range of steps."""

from __future__ import annotations

import sys
from pathlib import Path

from closedform.cli.output import check_free, table, write_output
from closedform.cli.parser import argument, command, flag, option

_CHUNK = 65_536
HELP = """\
Run an exported schedule in onnxruntime and print its value at each step.

Inputs of the graph are options.

example:
  closedform run lr.onnx --steps 0:1000:10 --peak 3e-4
"""


@command
class Options:
    """The options of ``closedform run``."""

    file: Path = argument("an .onnx file of an exported schedule", type=Path)
    words: list[str]
    steps: str = option("start:stop:stride, without stop (default: 0:10)", default="0:10")
    form: str = option("the output format", "--format", choices=("table", "csv"), default="table")
    output: Path | None = option("write CSV to this file", "-o", type=Path)
    force: bool = flag("overwrite the file")


def run(options: Options) -> None:
    """Prints or writes the values."""
    import numpy as np

    import closedform as cf
    from closedform.cli.arguments import free_arguments, parse_steps

    step_numbers = parse_steps(options.steps)
    inputs = free_arguments(options.words)
    check_free(options.output, force=options.force)
    session = cf.ScheduleSession(options.file)
    rows: list[tuple[str, str]] = []
    for begin in range(0, len(step_numbers), _CHUNK):
        chunk = np.array(step_numbers[begin : begin + _CHUNK], dtype=np.int64)
        values = np.asarray(session(chunk, **inputs))
        rows += [(str(t), str(v)) for t, v in zip(chunk.tolist(), values, strict=True)]
    if options.output is not None:
        write_output(options.output, _csv(rows))
        print(options.output)
    elif options.form == "csv":
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
