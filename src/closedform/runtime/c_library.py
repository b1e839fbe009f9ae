"""C headers compiled by the system's compiler and loaded into the process."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import SessionError
from closedform.exporters.c_function import SIZE, CFunction, Parameter, Passing
from closedform.exporters.c_header import Header

BASE_FLAGS = ("-std=c11", "-ffp-contract=off", "-DCLOSEDFORM_API=", "-shared", "-fPIC")
FAST_FLAGS = ("-O3", "-fno-math-errno", "-march=native")
"""The flags with which loops run at the speed of memory."""

_SECONDS = 120.0
_SHOWN = 5


class CLibrary:
    """The functions of headers, compiled into one library and loaded.

    The compiler is the command of the environment variable ``CC``, else cc, gcc or clang of the
    path. What is written is removed before the constructor returns.

    Args:
        headers: The headers; their functions have different names.
        flags: Flags of the compiler in addition to ``BASE_FLAGS``.

    Raises:
        SessionError: There is no C compiler, or it fails.
    """

    def __init__(self, headers: Sequence[Header], flags: Sequence[str] = FAST_FLAGS) -> None:
        self._functions = {
            function.name: function for header in headers for function in header.functions
        }
        with tempfile.TemporaryDirectory(prefix="closedform-") as folder:
            place = Path(folder)
            for header in headers:
                (place / f"{header.name}.h").write_text(header.text, encoding="ascii")
            lines = [f'#include "{header.name}.h"' for header in headers]
            source, target = place / "library.c", place / "library.so"
            source.write_text("\n".join([*lines, ""]), encoding="ascii")
            _compile([*BASE_FLAGS, *flags, str(source), "-o", str(target), "-lm"])
            library = ctypes.CDLL(str(target))
        self._load_function = {
            name: _load_function(library, function) for name, function in self._functions.items()
        }

    def function(self, name: str) -> Any:
        """Returns a function: numbers are passed as numbers, arrays and results as addresses."""
        return self._load_function[name]

    def find_function(self, name: str) -> CFunction | None:
        """Returns the description of a function, None if there is none of this name."""
        return self._functions.get(name)


def _load_function(library: ctypes.CDLL, function: CFunction) -> Any:
    symbol = library[function.name]
    symbol.argtypes = [_type(parameter) for parameter in function.parameters]
    if function.result is None:
        symbol.restype = None
    else:
        symbol.restype = np.ctypeslib.as_ctypes_type(function.result.numpy)
    return symbol


def _type(parameter: Parameter) -> Any:
    if parameter.port == SIZE:
        return ctypes.c_size_t
    if parameter.passing is Passing.VALUE:
        return np.ctypeslib.as_ctypes_type(parameter.dtype.numpy)
    return ctypes.c_void_p


def c_compiler() -> list[str] | None:
    """Returns the command of the C compiler, None if there is none."""
    words = shlex.split(os.environ.get("CC", ""))
    if words:
        return words if shutil.which(words[0]) else None
    path_of_compiler = next(
        (path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None
    )
    return None if path_of_compiler is None else [path_of_compiler]


def _compile(arguments: Sequence[str]) -> None:
    command = c_compiler()
    if command is None:
        compiler = os.environ.get("CC") or "cc, gcc or clang"
        raise SessionError(
            f"a C compiler is needed, and {compiler} is not in the path",
            hint="install one, or set CC to its command",
        )
    try:
        result = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SessionError(f"the C compiler {command[0]} failed: {error}") from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()[:_SHOWN]
        raise SessionError(
            f"the C compiler {command[0]} failed:\n  " + "\n  ".join(lines),
            hint="set CC to a compiler of C11 such as gcc or clang",
        )
