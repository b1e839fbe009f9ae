"""The command line, run in this process with its output captured."""

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from closedform.cli.application import run
from tests.support.extras import skip_for_message


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
        skip_for_message(err.getvalue())
        return Result(code, out.getvalue(), err.getvalue(), raised)
