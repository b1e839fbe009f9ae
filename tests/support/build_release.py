"""Builds the sdist and the wheel of a commit, the same bytes each time: ``make dist`` runs this.

setuptools writes the time of the build into the sdist, which is therefore packed again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path


def normalize_sdist(sdist: Path, epoch: int) -> None:
    """Packs an archive again: sorted, without owners, each file of one time and one mode."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as source,
        gzip.GzipFile("", "wb", 9, packed, epoch) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.size, entry.linkname = member.type, member.size, member.linkname
            entry.mtime, entry.mode = epoch, 0o755 if member.isdir() else 0o644
            target.addfile(entry, source.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(packed.getvalue())


def commit_time() -> int:
    """The time of the commit; SOURCE_DATE_EPOCH in an archive without git."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(folder: Path) -> None:
    """Builds into an empty folder, and prints the hashes."""
    epoch = commit_time()
    build = [sys.executable, "-m", "build", "--outdir", str(folder), "."]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(build, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    for file in sorted(folder.iterdir()):
        if file.name.endswith(".tar.gz"):
            normalize_sdist(file, epoch)
        print(hashlib.sha256(file.read_bytes()).hexdigest(), file.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
