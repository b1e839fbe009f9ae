"""Rocq as a program: the library is compiled once in a folder, files are checked there."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.rocq.files import RocqFile, write_rocq

COQC = shutil.which("coqc")
"""The compiler; Debian: `apt-get install coq libcoq-interval`. None where it is not installed."""


@dataclass(frozen=True, slots=True)
class Coq:
    """A folder with the compiled library."""

    folder: Path

    def check(self, file: RocqFile, seconds: int = 300) -> subprocess.CompletedProcess[str]:
        """Checks a file and its claims; the exit code is 0 where the kernel accepts all of it."""
        (self.folder / f"{file.name}.v").write_text(file.text, encoding="utf-8")
        result = compile_file(self.folder, f"{file.name}.v", seconds)
        if result.returncode or not file.claims:
            return result
        (self.folder / f"{file.name}_claims.v").write_text(file.claims, encoding="utf-8")
        return compile_file(self.folder, f"{file.name}_claims.v", seconds)


def failing_line(result: subprocess.CompletedProcess[str]) -> int | None:
    """Returns the line of the first error, counted from 1; None where there is none."""
    match = re.search(r"line (\d+), characters", result.stderr)
    return int(match[1]) if match else None


def compile_file(folder: Path, name: str, seconds: int = 300) -> subprocess.CompletedProcess[str]:
    """Runs coqc in a folder."""
    assert COQC is not None
    words = [COQC, "-q", "-Q", ".", "Closedform", name]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )


def with_library(folder: Path) -> Coq:
    """Returns a folder in which the library is compiled."""
    write_rocq(folder, RocqFile("nothing", "", "", {}))
    result = compile_file(folder, "Closedform.v")
    assert result.returncode == 0, result.stderr
    return Coq(folder)


def version() -> str:
    """Returns the version of Coq."""
    assert COQC is not None
    words = [COQC, "--print-version"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0]
