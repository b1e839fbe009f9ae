"""Files and folders written whole or not at all; leftovers of killed processes are removed."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from closedform.errors import ClosedFormError, WriteError

try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves there stays
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_ENDING = re.compile(r"\.[0-9a-f]{8}\.tmp")


_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: str | os.PathLike[str], error: type[ClosedFormError]) -> None:
    """Refuses a pipe, a socket or a device as an input: to read it may wait or go on for ever.

    Every file that is named by a user is asked for before it is opened. A file that is missing is
    left to the reader, which has the error.

    Args:
        path: The file.
        error: The class of errors of the reader.

    Raises:
        ClosedFormError: It is none of a file and a folder, as an error of that class.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return
    if kind in _SPECIAL:
        raise error(
            f"expected a file, got {_SPECIAL[kind]}",
            where=f"file {os.fspath(path)!r}",
            hint="write its content to a file, and name that",
        )


def replace_file(target: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Writes a file whole or not at all: a failure leaves the previous file in place.

    The bytes go to ``.NAME.xxxxxxxx.tmp`` in the same folder, locked while its process lives, which
    is then renamed. Such files of the same target whose process is gone are removed first.
    A device or a pipe, such as ``/dev/stdout``, has nothing to replace: it is written to.

    Raises:
        OSError: Writing failed.
    """
    if target.exists() and not (target.is_file() or target.is_dir()):
        with target.open("wb", buffering=0) as device:
            for part in (data,) if isinstance(data, bytes) else data:
                device.write(part)
        return
    remove_leftovers(target)
    temporary, descriptor = _create(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in (data,) if isinstance(data, bytes) else data:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            if _HAS_LOCKS:  # unlocked, it could be removed before it is renamed
                temporary.replace(target)
        if not _HAS_LOCKS:  # Windows renames no open file
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(target: Path, data: bytes, description: str = "the file") -> None:
    """Writes a file whole or not at all, with an error that names it.

    Args:
        target: The file.
        data: Its bytes.
        description: The file's role, for the error.

    Raises:
        WriteError: Writing failed; a previous file is in place.
    """
    with writing(target, description):
        replace_file(target, data)


@contextmanager
def writing(target: Path, description: str = "the file") -> Iterator[None]:
    """Turns an error of the system within the block into one that names the file or folder.

    Raises:
        WriteError: The block has raised an OSError.

    Example:
        >>> with writing(Path("lr.csv")):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        closedform.errors.WriteError: cannot write the file: No space left on device (file \
'lr.csv'): look at the rights and the free space of the folder
    """
    try:
        yield
    except OSError as error:
        kind = "folder" if description == "the folder" or target.is_dir() else "file"
        raise WriteError(
            f"cannot write {description}: {error.strerror or error}",
            where=f"{kind} {str(target)!r}",
            hint="look at the rights and the free space of the folder",
        ) from error


@contextmanager
def files_of(folder: Path) -> Iterator[Path]:
    """Yields an empty folder whose files move into ``folder`` when the block ends without an error.

    After an error, the previous files of ``folder`` are in place, and no new ones.

    Raises:
        OSError: The files cannot be written.
    """
    with new_folder(folder / "files") as place:
        try:
            yield place
        except WriteError as error:  # with the name that the file would have
            where = (error.where or "").replace(str(place), str(folder))
            raise WriteError(error.what, where=where, hint=error.hint) from error
        for path in sorted(place.iterdir()):
            path.replace(folder / path.name)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder ``.NAME.xxxxxxxx.tmp`` in the folder of the target, to be renamed.

    It is locked within the block, and removed after it unless it has been renamed. Such folders of
    the same target whose process is gone are removed first.

    Raises:
        OSError: It cannot be made.
    """
    remove_leftovers(target)
    temporary, descriptor = _make_folder(target)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def remove_leftovers(target: Path) -> None:
    """Removes the temporary files and folders of a target that no process has locked."""
    if not _HAS_LOCKS:
        return
    start = f".{target.name}"
    with suppress(OSError):  # the folder is missing or cannot be read: writing will tell
        for name in os.listdir(target.parent):
            if name.startswith(start) and _ENDING.fullmatch(name, len(start)):
                _remove_if_unlocked(target.with_name(name))


def _remove_if_unlocked(leftover: Path) -> None:
    with suppress(OSError):  # locked, removed by another process, or of another user
        descriptor = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        finally:
            os.close(descriptor)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")


def _make_folder(target: Path) -> tuple[Path, int | None]:
    """A new temporary folder, and the lock on it where there are locks."""
    while True:
        temporary = _temporary(target)
        temporary.mkdir()
        if not _HAS_LOCKS:
            return temporary, None
        descriptor = _open_locked(temporary, os.O_RDONLY)
        if descriptor is not None:
            return temporary, descriptor


def _create(target: Path) -> tuple[Path, int]:
    """A new temporary file, open for writing and locked."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = _temporary(target)
        if not _HAS_LOCKS:
            return temporary, os.open(temporary, flags, 0o666)
        descriptor = _open_locked(temporary, flags)
        if descriptor is not None:
            return temporary, descriptor


def _open_locked(temporary: Path, flags: int) -> int | None:
    """Opens and locks; None if another process has removed it between the two calls."""
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise  # there is no such folder
        return None
    with suppress(OSError):  # a file system without locks, on which nothing is removed either
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.path.samestat(temporary.stat(), os.fstat(descriptor)):
            return descriptor
    os.close(descriptor)
    return None
