"""Builds the sdist and the wheel of a commit, the same bytes each time: ``make dist`` runs this.

setuptools writes the time of the build into the sdist, which is therefore packed again.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

LARGEST_WHEEL = 2_590_000
"""Bytes. 95 % of a wheel are Python sources of 9 kB, deflated to 30 %; zopfli saves 3 % more. An
added file is 0.9 kB of names, hash and imports before its first line.

2.5 MB before floats at discontinuities were decided; 15 kB are identity, integers of a width and
states of schedulers in traced code, 20 kB are arctangents, the sandbox of plain steps and the
quantities of keys, 18 kB the tensors of a model wherever they are stored, the keys that a reader
used, the checks of logs and of parameters in several processes, and corners of shares, 10 kB the
curves of twelve frameworks, each a file of plain functions, 11 kB the blocks of fused weights, with
the ops that cut and join tensors in every back end, and steps on a sphere.
"""

SHIPPED = frozenset({".py", ".pyi", ".typed", ".js", ".css", ".html"})
"""Suffixes of the files of the package: sources, types and pages."""


def wheel_faults(wheel: Path, largest: int = LARGEST_WHEEL) -> list[str]:
    """Returns, in words, files of a wheel that no release has, and a size that is too large."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    faults = [
        f"{name}, {size:,} bytes: a wheel has no such file"
        for name, size in sizes.items()
        if ".dist-info/" not in name
        and not (name.startswith("closedform/") and PurePosixPath(name).suffix in SHIPPED)
    ]
    if (total := wheel.stat().st_size) > largest:
        worst = sorted(sizes, key=lambda name: -sizes[name])[:5]
        listed = ", ".join(f"{name} {sizes[name]:,}" for name in worst)
        faults.append(f"{wheel.name} has {total:,} bytes, more than {largest:,}; first: {listed}")
    return faults


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


def compress_wheel(wheel: Path) -> None:
    """Packs a wheel again with zlib's best compression, which setuptools does not use: 0.2 %."""
    packed = io.BytesIO()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(packed, "w") as target:
        for entry in source.infolist():
            target.writestr(entry, source.read(entry), zipfile.ZIP_DEFLATED, 9)
    wheel.write_bytes(packed.getvalue())


def commit_time() -> int:
    """The time of the commit; SOURCE_DATE_EPOCH in an archive without git."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(folder: Path) -> None:
    """Builds into an empty folder, checks the wheel, and prints the hashes."""
    epoch = commit_time()
    build = [sys.executable, "-m", "build", "--outdir", str(folder), "."]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(build, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    for file in sorted(folder.iterdir()):
        if file.name.endswith(".tar.gz"):
            normalize_sdist(file, epoch)
        else:
            compress_wheel(file)
            if faults := wheel_faults(file):
                sys.exit("\n".join(faults))
        print(hashlib.sha256(file.read_bytes()).hexdigest(), file.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
