"""The application ``closedform``: its commands, global options, errors and exit codes.

Only the module of the command that runs is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from closedform.cli.output import error_line, prepare, working
from closedform.cli.parser import Parser, UsageError
from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    DefinitionError,
    ExportError,
    LimitError,
    LoweringError,
    UnknownNameError,
    WriteError,
    nearest,
)
from closedform.version import __version__

USAGE, UNREADABLE = 2, 4
INTERRUPTED, CLOSED_PIPE = 130, 141
"""As a shell reports the signals SIGINT and SIGPIPE."""

COMMANDS = {
    "list": ("listing", "List schedules and optimizers of the library, or of a framework."),
    "show": ("show", "Show formula, values at the boundaries and graph."),
    "plot": ("plot", "Plot one or several schedules and logs, in the terminal or a file."),
    "export": ("export", "Write ONNX files."),
    "run": ("run", "Run an exported schedule in onnxruntime."),
    "verify": ("verify", "Prove or refute claims about a schedule, a rule or an ONNX file."),
    "diff": ("diff", "Compare two recipes, schedules or logs."),
    "lint": ("lint", "Check recipes before the run."),
    "watch": ("watch", "Compare a log with its recipe, also while it grows."),
    "resume": ("resume", "Change a schedule at an update of its run."),
    "rescale": ("rescale", "Change a recipe for another batch size, tokens or width."),
    "solve": ("solve", "Find the hyperparameter of a value or an area."),
    "recover": ("recover", "Find the schedule that reproduces a log."),
    "convert": ("convert", "Write a config as that of another framework."),
    "web": ("web", "Write a page that trains in the browser."),
    "gallery": ("gallery", "Write a page with every schedule."),
    "doctor": ("doctor", "Print versions, extras and the engines that are used."),
    "completion": ("completion", "Print the completion script of a shell."),
}
"""The module and the summary of each command."""

_HELP = """\
usage: closedform [--version] [--traceback] COMMAND ...

Compile training schedules and optimizer steps to static graphs.

commands:
{commands}

options:
  -h, --help   show this help; closedform COMMAND --help shows that of a command
  --version    show the version
  --traceback  show the traceback of an error

examples:
  closedform show cosine --start 3e-4 --end 0 --steps 100
  closedform plot torch:LinearLR --total-iters 30 --base-value 0.1
  closedform diff recipe.yaml "cosine --start 3e-4 --end 0 --steps 100"
  closedform export recipe.yaml -o build --params w=64x10 --params b=10

exit codes:
  0 done   1 refuted   2 wrong usage   3 unknown, with --strict   4 file not read or written
  5 a step differs at a state that a run need not reach
"""

_USAGE_ERRORS = (
    UsageError,
    ArgumentError,
    DefinitionError,
    ExportError,
    LimitError,
    LoweringError,
    UnknownNameError,
)


def run(words: Sequence[str]) -> int:
    """Runs a command and returns the exit code.

    Args:
        words: The words after ``closedform``.
    """
    if not prepare():
        return UNREADABLE
    is_traced = False
    try:
        while words and words[0] == "--traceback":
            is_traced, words = True, words[1:]
        code = _run(words)
        sys.stdout.flush()  # here an error has its line and its exit code
        return code
    except BrokenPipeError:
        # The reader has ended, such as `head`; nothing more is written when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ClosedFormError, OSError) as error:
        if is_traced:
            raise
        error_line(error)
        return code_of(error)


def code_of(error: Exception) -> int:
    """Returns the exit code of an error: wrong usage, or a file that cannot be read or written.

    Example:
        >>> code_of(UsageError("x")), code_of(FileNotFoundError())
        (2, 4)
    """
    is_usage = isinstance(error, _USAGE_ERRORS) and not isinstance(error, WriteError)
    return USAGE if is_usage else UNREADABLE


def _near(name: str, commands: Iterable[str]) -> str:
    """A hint with the command that is closest, or that shows what the library has of this name."""
    from closedform.cli.sources import library

    if name in {**library("schedules"), **library("optimizers")}:
        return f"did you mean `closedform show {name}`?"
    return nearest(name, commands)


def help_text() -> str:
    """Returns the help of the application."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return _HELP.format(commands="\n".join(lines))


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(help_text(), end="")
        return 0 if words else USAGE
    if words[0] == "--version":
        print(f"closedform {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        alternatives = ("--help", "--version", "--traceback") if kind == "option" else COMMANDS
        raise UsageError(f"there is no {kind} {name!r}", hint=_near(name, alternatives))
    command = _module(name)
    try:
        options = command.Options(**parser_of(name).parse(rest))
    except SystemExit as ended:  # --help
        return int(ended.code or 0)
    with working(f"closedform {name}"):
        code: int | None = command.run(options)
    return code or 0


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"closedform.cli.{COMMANDS[name][0]}")


def parser_of(name: str) -> Parser:
    """Returns the parser of a command."""
    command = _module(name)
    return Parser.of(f"closedform {name}", command.HELP, command.Options)
