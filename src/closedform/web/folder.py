"""The folder of a static page: its scripts, and the files that it needs from npm packages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path

from closedform.errors import ExportError
from closedform.files import new_folder, writing

PACKAGES: Mapping[str, str] = {"onnxruntime-web": "1.30", "katex": "0.19"}
"""The npm packages of the pages, with the oldest tested version."""

COMMON_ASSETS = ("page.js", "served.js", "trainer.js", "chart.js", "style.css")
"""The scripts and styles of every page."""

_RUNTIME = (
    "dist/ort.wasm.min.mjs",
    "dist/ort-wasm-simd-threaded.mjs",
    "dist/ort-wasm-simd-threaded.wasm",
)
# The native provider. The older one, of ort.all, returns wrong losses without an error.
_WEBGPU_RUNTIME = (
    "dist/ort.webgpu.min.mjs",
    "dist/ort-wasm-simd-threaded.asyncify.mjs",
    "dist/ort-wasm-simd-threaded.asyncify.wasm",
)


class Device(StrEnum):
    """Where a page trains: on the CPU, or on the GPU where the browser has an adapter."""

    WASM = "wasm"
    WEBGPU = "webgpu"


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Writes a folder atomically; a failure leaves the previous page in place.

    Args:
        folder: The folder of the page. It may exist if it is empty or contains an earlier page.
        fill: Writes the files into the folder that it is given.

    Raises:
        ExportError: The folder contains other files.
        WriteError: It cannot be written.
    """
    where = f"folder {str(folder)!r}"
    if folder.exists() and not (folder.is_dir() and _is_page(folder)):
        raise ExportError("the folder contains other files", where=where, hint="choose a new one")
    target = folder.resolve()
    with writing(target, "the page"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as new_path:
            fill(new_path)
            # A temporary folder is 0o700, which a web server of another user cannot read.
            new_path.chmod(0o755)
            _put_in_place(new_path, target)


def _put_in_place(new_path: Path, target: Path) -> None:
    """Renames a new folder to its target; a previous one is moved aside first and then removed."""
    if not target.exists():
        new_path.rename(target)
        return
    # A rename over a folder with files fails on every system.
    old = new_path.with_name(f"{new_path.name}.old")
    target.rename(old)
    try:
        new_path.rename(target)
    except BaseException:
        old.rename(target)
        raise
    try:
        shutil.rmtree(old)
    except OSError as error:
        raise ExportError(
            f"the page is written, but the previous one cannot be removed: {error}",
            where=f"folder {str(old)!r}",
            hint="remove it manually",
        ) from error


def _is_page(folder: Path) -> bool:
    # manifest.json is in each page, and tells it from a folder of the user.
    return not any(folder.iterdir()) or (folder / "manifest.json").is_file()


def copy_assets(folder: Path, names: Iterable[str]) -> None:
    """Copies the scripts and styles of this package."""
    assets = resources.files("closedform.web") / "assets"
    for name in names:
        (folder / name).write_bytes((assets / name).read_bytes())


def write_loop_page(folder: Path, name: str, *, device: Device = Device.WASM) -> None:
    """Writes ``index.html`` of a page with a training loop, with its scripts.

    ``loop.html`` is the page, with places such as ``{{title}}``; the file ``NAME.html`` has what
    belongs there, each part after a line such as ``<!-- title -->``. A part that it lacks is empty.

    Args:
        folder: Where to.
        name: The page, ``train`` or ``text``.
        device: Where it trains.
    """
    assets = resources.files("closedform.web") / "assets"
    _, *split = _PART.split((assets / f"{name}.html").read_text(encoding="utf-8"))
    parts = dict(zip(split[::2], (text.strip("\n") for text in split[1::2]), strict=True))
    page = (assets / "loop.html").read_text(encoding="utf-8")
    # Whole lines first: an empty part leaves no empty line.
    page = re.sub(r"(?m)^\{\{(\w+)\}\}\n", lambda m: _line(parts.get(m[1], "")), page)
    page = re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], page)
    (folder / "index.html").write_text(page, encoding="utf-8")
    copy_assets(folder, (*COMMON_ASSETS, "fields.js", "loop.js", f"{name}.js"))
    if device is Device.WEBGPU:
        copy_assets(folder, ("webgpu.js",))


def _line(text: str) -> str:
    return f"{text}\n" if text else ""


_PART = re.compile(r"(?m)^<!-- (\w+) -->\n")


def copy_runtime(folder: Path, packages: Path | None, *, device: Device = Device.WASM) -> None:
    """Copies the WebAssembly build of onnxruntime-web to ``ort/``, and on request that of WebGPU.

    Raises:
        ExportError: The npm package is not installed.
    """
    source = find_package("onnxruntime-web", packages)
    target = folder / "ort"
    target.mkdir()
    for name in (*_RUNTIME, *(_WEBGPU_RUNTIME if device is Device.WEBGPU else ())):
        shutil.copyfile(source / name, target / Path(name).name)


def copy_katex(folder: Path, packages: Path | None) -> None:
    """Copies KaTeX with its style sheet and fonts to ``katex/``.

    Raises:
        ExportError: The npm package is not installed.
    """
    source = find_package("katex", packages) / "dist"
    target = folder / "katex"
    (target / "fonts").mkdir(parents=True)
    for name in ("katex.min.js", "katex.min.css"):
        shutil.copyfile(source / name, target / name)
    for font in sorted((source / "fonts").glob("*.woff2")):
        shutil.copyfile(font, target / "fonts" / font.name)


def find_package(name: str, packages: Path | None) -> Path:
    """Returns the folder of an npm package.

    It is looked up in ``packages`` if given, else in ``node_modules`` of the current folder and of
    its parents.

    Raises:
        ExportError: The npm package is not installed.
    """
    here = Path.cwd()
    # As Node resolves a package.
    places = [packages] if packages else [p / "node_modules" for p in (here, *here.parents)]
    for place in places:
        if (place / name / "package.json").is_file():
            return place / name
    requirements = " ".join(f"{package}@^{version}" for package, version in PACKAGES.items())
    raise ExportError(
        f"the npm package {name!r} is not installed",
        where=f"searched {', '.join(map(str, places[:2]))}{'' if packages else ' and above'}",
        hint=f"npm install --ignore-scripts {requirements}, or give its folder with --packages",
    )
