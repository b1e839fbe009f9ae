"""Files that cannot be written: exit code 4, the name of the file, and no half of one."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from closedform.cli.application import UNREADABLE
from closedform.errors import WriteError
from closedform.files import files_of, replace_file, writing
from tests.support.commands import CliRunner, Result

LINEAR = ["linear", "--start", "1", "--end", "0", "--steps", "10"]
PARAMS = ["--params", "w=3x2"]
CONFIG = "learning_rate: 1.0e-3\nlr_scheduler_type: linear\nmax_steps: 10\n"

# The files and folders of the commands, and the words before their names.
WRITERS = {
    "lr.onnx": ["export", *LINEAR, "-o"],
    "lr.h": ["export", *LINEAR, "-o"],
    "rule": ["export", "adamw", *PARAMS, "-o"],
    "recipe": ["export", "config.yaml", "--framework", "transformers", *PARAMS, "-o"],
    "lr.svg": ["plot", *LINEAR, "-o"],
    "claims.svg": ["verify", *LINEAR, "-o"],
    "certificates": ["verify", *LINEAR, "--certificate"],
    "values.csv": ["run", "start.onnx", "-o"],
    "resumed.onnx": ["resume", *LINEAR, "--at", "3", "--total", "20", "-o"],
    "config.args": [
        *("convert", "config.yaml", "--from", "transformers", "--facts", "global_batch_size=8"),
        *("--to", "megatron", "-o"),
    ],
}


def invoke(*words: str) -> Result:
    return CliRunner().invoke(words)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG, encoding="utf-8")
    assert invoke("export", *LINEAR, "-o", "start.onnx").exit_code == 0
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, those whose names begin with a dot, too."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_nothing_new(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(Path, "write_text", fail)
    result = invoke(*WRITERS[name], f"new/{name}")
    assert result.exit_code == UNREADABLE
    assert "No space left on device" in result.stderr
    assert name in result.stderr
    assert ".tmp" not in result.stderr
    assert contents(folder) == before
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    result = invoke(*WRITERS[name], f"new/{name}")
    assert result.exit_code == 0, result.stderr
    assert (folder / "new" / name).exists()


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_made_is_named(name: str) -> None:
    result = invoke(*WRITERS[name], f"start.onnx/{name}")
    assert result.exit_code == UNREADABLE
    assert "start.onnx" in result.stderr.removeprefix("error:")
    assert "[Errno" not in result.stderr


@pytest.mark.parametrize("name", ["lr.h", "lr.onnx", "values.csv", "lr.svg"])
def test_a_failure_leaves_the_previous_file(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / name).write_text("previous", encoding="utf-8")
    assert invoke(*WRITERS[name], name).exit_code == 2, "--force is not given"

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert invoke(*WRITERS[name], name, "--force").exit_code == UNREADABLE
    assert (folder / name).read_text(encoding="utf-8") == "previous"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["run start.onnx", "convert linear --total 10 --to torch"])
def test_a_device_is_written_to_and_stays_one(command: str) -> None:
    words = [*command.split(), "-o"]
    if command.startswith("convert"):
        words = [*WRITERS["config.args"]]
    result = invoke(*words, "/dev/full")
    assert result.exit_code == UNREADABLE
    assert "cannot write the file: No space left on device (file '/dev/full')" in result.stderr
    assert invoke(*words, "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()


def test_what_is_written_to_a_pipe_is_read_from_it(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(pipe, [b"one ", b"two"])
    assert os.read(reader, 99) == b"one two"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("suffix", [".py", ".json", ".C", ".tflite"])
def test_a_suffix_that_export_lacks_is_refused_with_those_that_it_has(suffix: str) -> None:
    result = invoke(*WRITERS["lr.onnx"], f"lr{suffix}")
    assert result.exit_code == 2
    assert "-o is a folder, or a file .onnx (one schedule) or a file .h (a C11 header" in (
        result.stderr
    )
    assert ("closedform convert --as extension" in result.stderr) is (suffix == ".py")
    assert "a file .onnx (one schedule) or a file .h" in " ".join(
        invoke("export", "--help").stdout.split()
    )


@pytest.mark.parametrize("suffix", [".onnx", ".ONNX", ".h", ".H"])
def test_a_suffix_that_export_has(suffix: str, folder: Path) -> None:
    assert invoke(*WRITERS["lr.onnx"], f"lr{suffix}").exit_code == 0
    assert (folder / f"lr{suffix}").is_file()


def test_files_of_a_folder_move_together(folder: Path) -> None:
    target = folder / "target"
    target.mkdir()

    def write_two() -> None:
        with files_of(target) as place:
            replace_file(place / "a", b"1")
            with writing(place / "b"):
                raise OSError(28, "No space left on device")

    with pytest.raises(WriteError) as raised:
        write_two()
    assert raised.value.where == f"file {str(target / 'b')!r}"
    assert list(target.iterdir()) == []
    with files_of(target) as place:
        replace_file(place / "a", b"1")
        replace_file(place / "b", b"2")
    assert contents(target) == {str(target / "a"): b"1", str(target / "b"): b"2"}


def test_an_error_of_the_standard_output_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("sh") or not Path("/dev/full").exists():
        pytest.skip("a device of Linux")
    command = f"{shlex.quote(sys.executable)} -m closedform completion bash > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == UNREADABLE
    assert done.stderr == ("error: cannot write to the standard output: No space left on device\n")
