"""The inputs of a stored result: a digest of files and versions, and the commit."""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]


def digest(sources: Iterable[str], packages: Iterable[str] = (), root: Path = ROOT) -> str:
    """A digest of files and folders of Python code, relative to the root, and of versions."""
    total = hashlib.sha256()
    for file in _files(sources, root):
        total.update(file.relative_to(root).as_posix().encode())
        total.update(file.read_bytes())
    for package in packages:
        total.update(f"{package} {_version(package)}".encode())
    return total.hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """The commit that is checked out; empty in an archive without git."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _files(sources: Iterable[str], root: Path) -> Iterator[Path]:
    for source in sources:
        path = root / source
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
