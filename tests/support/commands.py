"""The command line, run in this process with its output captured."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

import pytest

from closedform.cli.application import run
from tests.support.extras import EXTRA_OF, reason

_MISSING = re.compile(r"(\w+)(?: needs \w+, which)? is not installed")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.

    Attributes:
        exit_code: The exit code.
        stdout: The text on standard output.
        stderr: The text on standard error.
        exception: The exception that it raised, as with ``--traceback``.
    """

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None

    @property
    def output(self) -> str:
        """Standard output and standard error."""
        return self.stdout + self.stderr


class CliRunner:
    """Runs commands."""

    def invoke(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> Result:
        """Returns the result of ``closedform`` with these words."""
        out, err = io.StringIO(), io.StringIO()
        code, raised = 1, None
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, env or {}),
        ):
            try:
                code = run(list(words))
            except Exception as error:
                raised = error
        # The command has no result to judge where a package of an extra is missing.
        for module in _MISSING.findall(err.getvalue()):
            if module in EXTRA_OF and importlib.util.find_spec(module) is None:
                pytest.skip(reason(EXTRA_OF[module]))
        return Result(code, out.getvalue(), err.getvalue(), raised)
