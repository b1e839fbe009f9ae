"""Pages that this machine serves, and scripts of Node that look at them in Chromium."""

import contextlib
import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

HERE = Path(__file__).parent
BUILD = Path(__file__).parents[2] / "build" / "web"
PACKAGES = BUILD / "node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the base class has it
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextlib.contextmanager
def served(root: Path) -> Iterator[str]:
    """Serves a folder and yields its address."""
    handler = functools.partial(_Quiet, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def node(script: str, *words: str) -> Any:
    """Returns the last line that a script prints, which is JSON."""
    run = subprocess.run(
        ["node", str(HERE / script), *words],
        capture_output=True,
        text=True,
        cwd=BUILD,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def with_wrong_label(data: Path, row: int) -> Path:
    """Writes a data file that differs by -1 as the label of one row."""
    tensors = load_file(data)
    tensors["target"] = tensors["target"].copy()
    tensors["target"][row] = -1
    wrong = data.with_name("wrong.safetensors")
    save_file(tensors, wrong)
    return wrong
