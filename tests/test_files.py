"""Files written whole or not at all: failures, kills, and two processes at once."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import closedform as cf
from closedform.cli.application import run as main
from closedform.errors import ClosedFormError, ConfigError
from closedform.files import check_regular, new_folder, remove_leftovers, replace_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other locks")

STOPPED = """
import os, signal, sys
from pathlib import Path
import closedform.files as files
def stop(descriptor):
    print("written", flush=True)
    signal.pause()
files.os.fsync = stop
files.replace_file(Path(sys.argv[1]), b"half")
"""


def stopped_writer(target: Path) -> subprocess.Popen[str]:
    """A process that has written its temporary file and has not renamed it."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(target)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def test_a_killed_process_leaves_nothing_after_the_next_save(tmp_path: Path) -> None:
    target = tmp_path / "state.safetensors"
    replace_file(target, b"first")
    process = stopped_writer(target)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    assert target.read_bytes() == b"first"
    replace_file(target, b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]
    assert target.read_bytes() == b"second"


def test_a_live_process_keeps_its_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "lr.onnx"
    process = stopped_writer(target)
    replace_file(target, b"ours")
    assert len(list(tmp_path.iterdir())) == 2, "the file of the other process has been removed"
    process.kill()
    process.communicate()
    remove_leftovers(target)
    assert [path.name for path in tmp_path.iterdir()] == ["lr.onnx"]


@pytest.mark.parametrize(
    "name",
    [
        ".lr.onnx.backup12.tmp",  # no digits of base 16
        ".lr.onnx.0123abcd.tmp.txt",
        ".lr.onnx.0123abc.tmp",
        ".other.onnx.0123abcd.tmp",
        "lr.onnx.0123abcd.tmp",
        ".lr.onnx.2.0123abcd.tmp",
    ],
)
def test_files_of_other_names_stay(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    replace_file(tmp_path / "lr.onnx", b"")
    assert (tmp_path / name).exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "important").write_bytes(b"important")
    (tmp_path / ".lr.onnx.0123abcd.tmp").symlink_to(tmp_path / "important")
    replace_file(tmp_path / "lr.onnx", b"")
    assert (tmp_path / "important").read_bytes() == b"important"


def test_a_failure_leaves_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "lr.onnx"
    replace_file(target, b"first")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(target, b"second")
    assert target.read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target, errors = tmp_path / "state", []
    contents = [bytes([65 + number]) * 1000 for number in range(4)]

    def write(content: bytes) -> None:
        for _ in range(100):
            try:
                replace_file(target, content)
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert target.read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_missing_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none" / "lr.onnx", b"")


def test_folders_of_killed_processes_are_removed_too(tmp_path: Path) -> None:
    target = tmp_path / "page"
    (tmp_path / ".page.0123abcd.tmp").mkdir()
    (tmp_path / ".page.0123abcd.tmp" / "index.html").write_bytes(b"")
    with new_folder(target) as folder:
        (folder / "index.html").write_bytes(b"")
        with new_folder(target) as other:
            assert folder.exists()
            assert other.exists()
            assert other != folder
        folder.rename(target)
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


# --- inputs that are none ------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], object]] = {
    "x.yaml": cf.load_recipe,
    "x.json": cf.lint,
    "x.csv": cf.recover,
    "x.jsonl": cf.recover,
    "events.out.tfevents.1": cf.recover,
    "x.onnx": cf.from_onnx,
    "schedule.onnx": cf.ScheduleSession,
    "step.onnx": lambda path: cf.OptimizerSession.from_models(path, path, {}),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    signal.alarm(20)  # a reader that opens it would wait for a writer: the signal ends the tests
    try:
        with pytest.raises(ClosedFormError, match=r"expected a file, got a pipe .*: write its"):
            READERS[name](path)
    finally:
        signal.alarm(0)


@pytest.mark.parametrize(
    "words", [["recover", "x.csv"], ["show", "x.yaml"], ["verify", "x.onnx"], ["run", "x.onnx"]]
)
def test_commands_refuse_pipes(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / words[1]
    os.mkfifo(path)
    signal.alarm(20)
    assert main([words[0], str(path)]) in (2, 4)
    signal.alarm(0)
    assert "expected a file, got a pipe" in capsys.readouterr().err


def test_devices_and_sockets_are_refused_and_files_are_not(tmp_path: Path) -> None:
    import socket

    with pytest.raises(ConfigError, match="expected a file, got a device \\(file '/dev/zero'"):
        check_regular("/dev/zero", ConfigError)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(ConfigError, match="expected a file, got a socket"):
            check_regular(tmp_path / "s", ConfigError)
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="expected a file, got a device"):
        check_regular(tmp_path / "link", ConfigError)
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        check_regular(path, ConfigError)
