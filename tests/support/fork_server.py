"""A process that has imported the large packages, and runs each Python program in a fork of itself.

A program of these tests takes 1 to 5 seconds to import torch, onnxruntime and SymPy, more than to
do its work. closedform itself is imported by each program anew: a page may have changed its copy.

Each line of the standard input is a request; the answer is a line with the exit status.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
import warnings
from typing import Any

PACKAGES = ("numpy", "onnx", "onnxruntime", "sympy", "torch", "torch._dynamo", "torch.export")


def main() -> None:
    """Answers requests until the standard input is closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in PACKAGES:
            # In a core install torch is missing, and a program that needs it says so.
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(package)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            os._exit(_program(**json.loads(line)))
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _program(
    words: list[str], folder: str, environment: dict[str, str], files: list[str], seconds: int
) -> int:
    """Runs what ``python`` would run with these words; returns the exit status."""
    signal.alarm(seconds)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate((os.devnull, *files)):
        flags = os.O_WRONLY if number else os.O_RDONLY
        os.dup2(os.open(file, flags), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    searched = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [folder, *searched]
    code: Any = 0
    try:
        _run(words)
    except SystemExit as done:
        code = done.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return int(code or 0)


def _run(words: list[str]) -> None:
    match words:
        case ["-m", module, *_]:
            sys.argv = words[1:]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *_]:
            sys.argv = ["-c", *words[2:]]
            space = {"__name__": "__main__"}
            exec(compile(code, "<string>", "exec"), space)
        case [script, *_]:
            sys.argv = words
            sys.path[0] = os.path.dirname(os.path.abspath(script))
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
