"""``closedform doctor``: versions, extras and engines of this installation, and which are used."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys

from closedform.cli.arguments import json_flag
from closedform.cli.output import heading, is_unicode, print_json, table
from closedform.cli.parser import command
from closedform.errors import install_hint
from closedform.version import __version__

HELP = """\
Print the versions of closedform and its packages, the extras, and the engines that are used.

example:
  closedform doctor
"""
_EXTRAS = ("plot", "torch", "jax", "keras", "tensorboard", "mlx")
_REQUIREMENT = re.compile(r"([\w.\-]+)(?:\[\w+\])?(?:>=([\w.]+))?(?:; extra == \"(\w+)\")?")
MISSING = "missing"


@command
class Options:
    """The options of ``closedform doctor``."""

    as_json: bool = json_flag()


def run(options: Options) -> None:
    """Prints the packages and the engines."""
    packages = [(*entry, _version(entry[1])) for entry in _requirements()]
    engines = _engines()
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if options.as_json:
        data = {
            "closedform": __version__,
            "python": python,
            "packages": [
                {"extra": extra, "name": name, "lowest": lowest, "version": version}
                for extra, name, lowest, version in packages
            ],
            "engines": engines,
        }
        print_json(data)
        return
    heading(f"closedform {__version__}, Python {python}")
    rows = [
        (extra or "core", name, lowest, version or f"{MISSING}: {install_hint(extra)}")
        for extra, name, lowest, version in packages
    ]
    table(("extra", "package", "lowest", "version"), rows)
    print()
    heading("engines")
    table(("job", "engine"), list(engines.items()))


def _requirements() -> list[tuple[str, str, str]]:
    """The extra, the name and the lowest version of each package, as the installation states."""
    try:
        lines = importlib.metadata.requires("closedform") or []
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return []
    entries = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is not None:
            name, lowest, extra = match.groups()
            if extra is None or extra in _EXTRAS:
                entries.append((extra or "", name, lowest or ""))
    return entries


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _engines() -> dict[str, str]:
    """The engine of each job; none is imported."""
    from closedform.runtime.c_library import c_compiler

    compiler = c_compiler()
    return {
        "values": "onnxruntime on the CPU",
        "claims": "the prover of closedform, then z3",
        "plots in files": "matplotlib" if _has("matplotlib") else install_hint("plot"),
        "plots here": "braille" if is_unicode(sys.stdout.encoding) else "ASCII",
        "tables here": "folded by rich" if sys.stdout.isatty() else "one line per row",
        "modules and optimizers": "torch" if _has("torch") else install_hint("torch"),
        "C": " ".join(compiler) if compiler else "no compiler: install one, or set CC",
    }
