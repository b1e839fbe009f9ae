"""A folder of a static page: our scripts, and what the page needs of packages from npm."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path

from closedform.errors import ExportError

PACKAGES: Mapping[str, str] = {"onnxruntime-web": "1.30", "katex": "0.19"}
"""What the pages need from npm, with the oldest version they were tested with."""

_RUNTIME = (
    "dist/ort.wasm.min.mjs",
    "dist/ort-wasm-simd-threaded.mjs",
    "dist/ort-wasm-simd-threaded.wasm",
)


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fills a new folder and gives it its name; a failure leaves what was there before.

    Args:
        folder: Where the page will be. It may exist if it is empty or holds a page of ours.
        fill: Writes the files.

    Raises:
        ExportError: The folder holds something else, or cannot be written.
    """
    where = f"folder {str(folder)!r}"
    if folder.exists() and not (folder.is_dir() and _is_ours(folder)):
        raise ExportError("the folder holds other files", where=where, hint="choose a new one")
    target = folder.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            fill(made)
            made.chmod(0o755)
            _put_in_place(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise ExportError(f"cannot write the page: {error}", where=where) from error


def _put_in_place(made: Path, target: Path) -> None:
    """Gives a folder its name; one that bears it is moved aside, and removed when all is done."""
    if not target.exists():
        made.rename(target)
        return
    old = made.with_name(f"{made.name}.old")
    target.rename(old)
    try:
        made.rename(target)
    except BaseException:
        old.rename(target)
        raise
    try:
        shutil.rmtree(old)
    except OSError as error:
        raise ExportError(
            f"the page is written, but the one before it cannot be removed: {error}",
            where=f"folder {str(old)!r}",
            hint="remove it yourself",
        ) from error


def _is_ours(folder: Path) -> bool:
    return not any(folder.iterdir()) or (folder / "manifest.json").is_file()


def copy_assets(folder: Path, names: Iterable[str]) -> None:
    """Copies our own scripts and styles."""
    assets = resources.files("closedform.web") / "assets"
    for name in names:
        (folder / name).write_bytes((assets / name).read_bytes())


def copy_runtime(folder: Path, packages: Path | None) -> None:
    """Copies onnxruntime-web, built for WebAssembly, to ``ort/``.

    Raises:
        ExportError: The package is not installed there.
    """
    source = find_package("onnxruntime-web", packages)
    target = folder / "ort"
    target.mkdir()
    for name in _RUNTIME:
        shutil.copyfile(source / name, target / Path(name).name)


def copy_katex(folder: Path, packages: Path | None) -> None:
    """Copies KaTeX, its style and its fonts to ``katex/``.

    Raises:
        ExportError: The package is not installed there.
    """
    source = find_package("katex", packages) / "dist"
    target = folder / "katex"
    (target / "fonts").mkdir(parents=True)
    for name in ("katex.min.js", "katex.min.css"):
        shutil.copyfile(source / name, target / name)
    for font in sorted((source / "fonts").glob("*.woff2")):
        shutil.copyfile(font, target / "fonts" / font.name)


def find_package(name: str, packages: Path | None) -> Path:
    """Returns the folder of an npm package: in ``packages``, or in a node_modules from here up.

    Raises:
        ExportError: It is in none of them.
    """
    here = Path.cwd()
    places = [packages] if packages else [p / "node_modules" for p in (here, *here.parents)]
    for place in places:
        if (place / name / "package.json").is_file():
            return place / name
    wanted = " ".join(f"{package}@^{version}" for package, version in PACKAGES.items())
    raise ExportError(
        f"the npm package {name!r} is not installed",
        where=f"looked in {', '.join(map(str, places[:2]))}{' and above' if not packages else ''}",
        hint=f"npm install --ignore-scripts {wanted}, or name its folder with --packages",
    )
