"""Training and gallery in Node and in headless Chromium, beside onnxruntime here.

Needs Node, Chromium and npm packages: `make compare-web` brings them to build/web.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from closedform.schedules.examples import EXAMPLES
from closedform.training import TrainSession
from closedform.web.gallery import write_gallery
from closedform.web.training import write_training_page
from tests.training.models import CASES, batches
from tests.training.test_sixteen_bits import exported
from tests.training.test_training import made

HERE = Path(__file__).parent
BUILD = Path(__file__).parents[2] / "build" / "web"
PACKAGES = BUILD / "node_modules"
STEPS, ROWS = 60, 16
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Another build of onnxruntime adds float32 products in another order.
TOLERANCE = 1e-4


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the base class has it
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The pages, served on this machine."""
    root = tmp_path_factory.mktemp("sites")
    handler = functools.partial(_Quiet, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", root
        server.shutdown()


def trained_here(name: str, folder: Path) -> tuple[list[float], Path]:
    """Losses of onnxruntime in this process, and the same batches as one data file."""
    case = CASES[name]
    session, _ = made(folder, case)
    rows = list(batches(case, STEPS, rows=ROWS))
    results = session.fit(rows, progress=False)
    names = list(TrainSession(folder)._batch)
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    data = folder / "data.safetensors"
    save_file(
        {
            key.removeprefix("batch."): np.ascontiguousarray(column)
            for key, column in zip(names, columns, strict=True)
        },
        data,
    )
    return [result.loss for result in results], data


def node(script: str, *words: str) -> Any:
    run = subprocess.run(
        ["node", str(HERE / script), *words],
        capture_output=True,
        text=True,
        cwd=BUILD,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_node_and_chromium_train_as_here(name: str, sites: tuple[str, Path]) -> None:
    address, root = sites
    here, data = trained_here(name, root / f"{name}-files")
    train = root / f"{name}-files" / "train.onnx"
    write_training_page(train, root / name, data=data, packages=PACKAGES)
    in_node = node("node_train.mjs", str(root / name), str(PACKAGES), str(STEPS), str(ROWS))
    assert in_node == pytest.approx(here, rel=TOLERANCE)
    shot = BUILD / f"train-{name}.png"
    words = (f"{address}/{name}/", str(STEPS), str(ROWS), str(shot), str(PACKAGES), str(CHROMIUM))
    in_chromium = node("chromium_train.mjs", *words)
    assert in_chromium["errors"] == []
    assert in_chromium["losses"] == pytest.approx(here, rel=TOLERANCE)
    assert in_chromium["foreign"] == []
    assert shot.stat().st_size > 10_000


def test_node_trains_masters_of_float16_as_here(tmp_path: Path) -> None:
    case = CASES["mlp"]
    session, _ = exported(tmp_path / "files", case, "f16", is_widened=True, initial=1024)
    # In 20 steps no gradient of these is rounded to another float16 by the other order of sums.
    rows = list(batches(case, 20, rows=ROWS))
    here = [result.loss for result in session.fit(rows, progress=False)]
    inputs, targets = (np.concatenate(column) for column in zip(*rows, strict=True))
    save_file({"input": inputs, "target": targets}, tmp_path / "data")
    train = tmp_path / "files" / "train.onnx"
    write_training_page(train, tmp_path / "site", data=tmp_path / "data", packages=PACKAGES)
    in_node = node("node_train.mjs", str(tmp_path / "site"), str(PACKAGES), "20", str(ROWS))
    assert in_node == pytest.approx(here, rel=TOLERANCE)


def test_a_slider_moves_its_curve(sites: tuple[str, Path]) -> None:
    address, root = sites
    write_gallery(root / "gallery", packages=PACKAGES)
    shot = BUILD / "gallery.png"
    words = (f"{address}/gallery/", "cosine", "end", "0.15", str(shot))
    seen = node("chromium_gallery.mjs", *words, str(PACKAGES), str(CHROMIUM))
    assert seen["errors"] == []
    assert seen["foreign"] == []
    for name, values in seen["before"].items():
        example = EXAMPLES[name]
        schedule: Any = example.make()
        # Inputs keep constants from being folded: a few roundings of values of size 1.
        assert values == pytest.approx(schedule(np.arange(example.steps + 1)), abs=1e-13), name
    assert len(seen["before"]) == len(EXAMPLES) - 1  # the plateau waits for a metric
    example = EXAMPLES["cosine"]
    moved: Any = example.make()
    wanted = moved.bind(end=0.15)(np.arange(example.steps + 1))
    assert seen["after"] == pytest.approx(wanted, abs=1e-13)
    assert max(abs(seen["after"][-1] - seen["before"]["cosine"][-1]), 0) > 0.04
    assert shot.stat().st_size > 10_000
