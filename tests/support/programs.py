"""Python programs in processes of their own, which are forks of one that imported torch."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.extras import skip_for_message

SERVER = Path(__file__).with_name("fork_server.py")
LIMIT_SECONDS = 300


@functools.cache
def _server() -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    pipe = subprocess.PIPE
    command = [sys.executable, str(SERVER)]
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def close() -> None:
    """Ends the server, if there is one; its CPU time counts as that of the tests after the wait."""
    if _server.cache_info().currsize:
        _server().communicate()
        _server.cache_clear()


def run_python(
    words: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit: int = LIMIT_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Runs ``python`` with these words: a script, ``-m`` and a module, or ``-c`` and code.

    The test is skipped where the program fails for want of an extra.

    Args:
        words: The arguments of Python.
        folder: The current folder of the program; None for that of the tests.
        environment: What is added to the environment of the tests.
        limit: The seconds after which the program is ended.
    """
    server = _server()
    assert server.stdin
    assert server.stdout
    with tempfile.TemporaryDirectory() as made:
        files = [Path(made) / name for name in ("out", "err")]
        for file in files:
            file.touch()
        request = {
            "words": list(words),
            "folder": str(folder or Path.cwd()),
            "environment": {**os.environ, **(environment or {})},
            "files": [str(file) for file in files],
            "seconds": limit,
        }
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        out, err = (file.read_text(encoding="utf-8") for file in files)
    if status:
        skip_for_message(err)
    return subprocess.CompletedProcess([sys.executable, *words], status, out, err)
