"""Results are the same bytes in any folder, home, locale, time zone, umask, hash seed, and -O."""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "support" / "surroundings.py"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@dataclass(frozen=True)
class Surroundings:
    """Environment variables, options of Python, umask and current folder of a process."""

    variables: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    umask: int = 0o022
    is_folder_deleted: bool = False


# Files of a umask of 0777 are for root only.
NO_RIGHTS = 0o777 if hasattr(os, "geteuid") and os.geteuid() == 0 else 0o077
NO_HOME = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
ALL_AT_ONCE = {
    "ASCII, no docstrings": Surroundings(
        {**ASCII, "TZ": "America/St_Johns", "PYTHONHASHSEED": "2", "HOME": "/"},
        ["-OO", "-B"],
        umask=NO_RIGHTS,
    ),
    "C, other home": Surroundings(
        {"LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "1", **NO_HOME},
        ["-O"],
        umask=0o077,
        is_folder_deleted=True,
    ),
}
ONE_BY_ONE = {
    "POSIX": Surroundings({"LC_ALL": "POSIX"}),
    "Turkish": Surroundings({"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    "ASCII": Surroundings(ASCII),
    "no home": Surroundings(NO_HOME),
    "read-only home": Surroundings({"HOME": "/proc", "MPLCONFIGDIR": "/proc"}),
    "far zone": Surroundings({"TZ": "Pacific/Kiritimati"}),
    "umask 077": Surroundings(umask=0o077),
    "umask 777": Surroundings(umask=NO_RIGHTS),
    "hash seed 0": Surroundings({"PYTHONHASHSEED": "0"}),
    "hash seed 7": Surroundings({"PYTHONHASHSEED": "7"}),
    "-O": Surroundings(options=["-O"]),
    "-OO": Surroundings(options=["-OO"]),
    "deleted folder": Surroundings(is_folder_deleted=True),
}


def variables_of(surroundings: Surroundings) -> dict[str, str]:
    """The environment variables of a process."""
    variables = {**os.environ, **surroundings.variables}
    if not str(PROGRAM).isascii() and variables.get("LC_ALL") in ("C", "POSIX"):
        # Python reads the .pth file with the path of this checkout in the encoding of the locale,
        # and cannot start.
        variables |= {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
    return variables


def run(surroundings: Surroundings) -> str:
    """The digests of the results."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "current"
        place.mkdir()

        def enter() -> None:
            os.umask(surroundings.umask)
            if surroundings.is_folder_deleted:
                os.rmdir(place)

        done = subprocess.run(
            [sys.executable, *surroundings.options, str(PROGRAM), out],
            cwd=place,
            env=variables_of(surroundings),
            preexec_fn=enter,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@functools.cache
def usual_results() -> str:
    return run(Surroundings())


@pytest.mark.skipif(os.name == "nt", reason="umask and deleted folders are of POSIX")
@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", ALL_AT_ONCE)
def test_the_bytes_do_not_depend_on_the_surroundings(name: str) -> None:
    results = run(ALL_AT_ONCE[name])
    assert len(results.splitlines()) == 10
    assert results == usual_results()


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="umask and deleted folders are of POSIX")
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_the_bytes_depend_on_no_single_surrounding(name: str) -> None:
    assert run(ONE_BY_ONE[name]) == usual_results()
