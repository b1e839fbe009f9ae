"""The hosts of examples/ in C and JavaScript train as Python does, with onnxruntime's API alone.

`make compare-hosts` brings the headers of onnxruntime and its package for Node. Without it,
ORT_INCLUDE_DIR names the folder of onnxruntime_c_api.h, and ORT_LIB_DIR that of the library, if it
is not the one in the wheel.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from closedform import optimizers, schedules, transforms
from closedform.errors import SessionError
from closedform.runtime.c_library import c_compiler
from closedform.training import TrainSession, export

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "hosts"
INCLUDE = Path(os.environ.get("ORT_INCLUDE_DIR") or BUILD / "include")
LIBRARIES = Path(os.environ.get("ORT_LIB_DIR") or Path(onnxruntime.__file__).parent / "capi")
PROVIDED = "`make compare-hosts` provides it"
STEPS, ROWS = 20, 8

# Without onnxruntime's "basic" level, other operators are fused, and add in another order.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with running statistics and a scheduled rule, and data for it."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("hosts")
    _export(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), folder)
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(3 * ROWS + 2, 6)).astype(np.float32)
    (folder / "x.bin").write_bytes(inputs.tobytes())
    (folder / "y.bin").write_bytes(inputs[:, :3].argmax(1).tobytes())
    return folder


def _export(model: nn.Module, folder: Path) -> None:
    rate = schedules.linear(0, 1e-2, 5).then(schedules.cosine(1e-2, 0, STEPS))
    rule = transforms.clip_by_global_norm(optimizers.adamw(rate), 1)
    example = torch.zeros(4, 6), torch.zeros(4, dtype=torch.long)
    export(model, cross_entropy, example, rule, folder, validate=False)


def _here(folder: Path) -> tuple[list[float], TrainSession]:
    """The losses in Python, and the session after them."""
    inputs = np.fromfile(folder / "x.bin", np.float32).reshape(-1, 6)
    targets = np.fromfile(folder / "y.bin", np.int64)
    starts = [step % 3 * ROWS for step in range(STEPS)]
    session = TrainSession(folder, threads=1)
    results = session.fit(
        [(inputs[i : i + ROWS], targets[i : i + ROWS]) for i in starts], progress=False
    )
    return [result.loss for result in results], session


def _words(folder: Path) -> list[str]:
    return [f"input={folder / 'x.bin'}", f"target={folder / 'y.bin'}"]


def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host in C, compiled with warnings as errors."""
    compiler, libraries = c_compiler(), sorted(LIBRARIES.glob("libonnxruntime.so*"))
    if compiler is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    if not (INCLUDE / "onnxruntime_c_api.h").exists():
        pytest.skip(f"needs onnxruntime_c_api.h in ORT_INCLUDE_DIR: {PROVIDED}")
    if not libraries:
        pytest.skip("needs libonnxruntime.so in ORT_LIB_DIR")
    made = tmp_path_factory.mktemp("program") / "training_host"
    linked = made.with_name("libonnxruntime.so.1")  # the name that the program looks for
    linked.symlink_to(libraries[0])
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-O2",
        "-isystem",
        str(INCLUDE),
    ]
    source = str(ROOT / "examples" / "training_host.c")
    library = [str(linked), f"-Wl,-rpath,{linked.parent}", "-lm"]
    done = _ran(*compiler, *flags, source, *library, "-o", str(made))
    assert done.returncode == 0, done.stderr
    return made


def test_c_trains_and_saves_as_here(folder: Path, program: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    done = _ran(str(program), str(folder), str(STEPS), str(ROWS), str(state), *_words(folder))
    assert done.returncode == 0, done.stderr
    losses, session = _here(folder)
    assert losses[-1] < 0.75 * losses[0]
    assert [float(line) for line in done.stdout.split()] == pytest.approx(losses, rel=TOLERANCE)
    loaded = TrainSession(folder, threads=1)
    loaded.load(state)
    assert loaded.t == session.t == STEPS
    for kind in ("params", "states", "buffers"):
        for name, array in getattr(session, kind).items():
            found = getattr(loaded, kind)[name]
            assert found == pytest.approx(array, rel=1e-4, abs=1e-6), name


def test_c_draws_random_numbers(program: Path, folder: Path, tmp_path: Path) -> None:
    _export(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.Linear(16, 3)), tmp_path)
    words = [str(program), str(tmp_path), "60", str(ROWS), str(tmp_path / "state"), *_words(folder)]
    done = _ran(*words)
    assert done.returncode == 0, done.stderr
    losses = [float(line) for line in done.stdout.split()]
    assert len(losses) == 60
    # The learning rate is 0 from step 25: losses of the same batch differ by what is dropped.
    same = losses[30::3]
    assert len(set(same)) == len(same)
    assert np.mean(same) < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({5: "other=x.bin"}, "cannot read: x.bin"),
        ({2: "0"}, "STEPS and ROWS must be positive: 0"),
        ({1: "nowhere"}, "Load model from nowhere/init.onnx failed"),
        ({3: "1000"}, "fewer values than one step takes: batch.input"),
    ],
)
def test_c_refuses(program: Path, folder: Path, change: Any, message: str, tmp_path: Path) -> None:
    words = [str(program), str(folder), "2", str(ROWS), str(tmp_path / "state"), *_words(folder)]
    for place, word in change.items():
        words[place] = word
    done = _ran(*words)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "state").exists()


# --- labels and indices --------------------------------------------------------------------------


class Tokens(nn.Module):
    """Reads tokens from the second on, and of every second one the one after the next."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        later = self.embedding(tokens[:, 1:][:, ::2] + 2).mean(1)
        last = self.embedding((tokens[:, -1] // 3).clamp(min=1))
        scores: torch.Tensor = self.head(later + last)
        return scores


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of tokens and labels of which -100 is ignored, and data for it."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("labelled")
    example = torch.zeros(4, 6, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    export(Tokens(), cross_entropy, example, optimizers.sgd(0.1), folder, validate=False)
    tokens = np.tile(np.array([99, -2, 77, 2, -55, 0], np.int64), (2 * ROWS, 1))
    tokens.tofile(folder / "tokens.bin")
    labels = np.arange(2 * ROWS) % 3
    labels[3] = -100
    labels.tofile(folder / "labels.bin")
    return folder


def _changed(folder: Path, name: str, place: int, value: int) -> list[str]:
    """The words for the data of a folder, in which a value is another one."""
    words = []
    for tensor, file in (("tokens", "tokens"), ("target", "labels")):
        numbers = np.fromfile(folder / f"{file}.bin", np.int64)
        if tensor == name:
            numbers[place] = value
        path = folder / f"changed_{tensor}.bin"
        numbers.tofile(path)
        words.append(f"{tensor}={path}")
    return words


OUT_OF_RANGE = [
    ("target", 9, 3, "target: must have values in 0..2 or -100, got 3 in row 9 of the data"),
    ("target", 9, -1, "target: must have values in 0..2 or -100, got -1 in row 9 of the data"),
    ("tokens", 6 * 10 + 3, 3, "tokens: must have values in -2..2, got 3 in row 10 of the data"),
    ("tokens", 6 * 2 + 1, -3, "tokens: must have values in -2..2, got -3 in row 2 of the data"),
    ("tokens", 6 * 2 + 2, 5, ""),  # between the tokens that are read
    ("tokens", 0, -(2**40), ""),
]


def _check_host(folder: Path, command: list[str], end: list[str], case: Any) -> None:
    name, place, value, message = case
    data = _changed(folder, name, place, value)
    done = _ran(*command, str(folder), "2", str(ROWS), *end, *data)
    if message:
        assert done.returncode == 1
        assert message in done.stderr
        done = _ran(*command, "--no-check", str(folder), "1", str(ROWS), *end, *data)
        assert "must have values" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_c_checks_indices(program: Path, labelled: Path, tmp_path: Path, case: Any) -> None:
    _check_host(labelled, [str(program)], [str(tmp_path / "state")], case)


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_python_checks_the_same(labelled: Path, case: Any) -> None:
    name, place, value, message = case
    words = _changed(labelled, name, place, value)
    arrays = [np.fromfile(word.partition("=")[2], np.int64) for word in words]
    batch = [(arrays[0].reshape(-1, 6), arrays[1])]
    session = TrainSession(labelled, threads=1)
    if not message:
        session.fit(batch, progress=False)
        return
    with pytest.raises(SessionError) as raised:
        session.fit(batch, progress=False)
    bounds = message.partition("must have values ")[2].removesuffix(" of the data")
    assert bounds in str(raised.value)


@pytest.fixture(scope="module")
def node_host() -> Path:
    """The host for Node."""
    if shutil.which("node") is None or not (BUILD / "node_modules" / "onnxruntime-node").exists():
        pytest.skip(f"needs node and the npm package onnxruntime-node: {PROVIDED}")
    host = BUILD / "training_host.mjs"  # beside node_modules, where Node looks for packages
    host.write_bytes((ROOT / "examples" / "training_host.mjs").read_bytes())
    return host


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_node_checks_indices(node_host: Path, labelled: Path, case: Any) -> None:
    _check_host(labelled, ["node", str(node_host)], [], case)


def test_node_trains_as_here(folder: Path, node_host: Path) -> None:
    done = _ran("node", str(node_host), str(folder), str(STEPS), str(ROWS), *_words(folder))
    assert done.returncode == 0, done.stderr
    losses, _ = _here(folder)
    assert [float(line) for line in done.stdout.split()] == pytest.approx(losses, rel=TOLERANCE)
