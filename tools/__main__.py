"""Writes pages and files from the code or from stored results: ``python -m tools gallery``."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Sequence

MODULES = {
    "accuracy": "build_accuracy",
    "architecture": "build_architecture",
    "checker": "build_checker",
    "drift": "drift",
    "environments": "build_environments",
    "frameworks": "build_frameworks",
    "gallery": "build_gallery",
    "gpu": "build_gpu",
    "laws": "build_laws",
    "low_precision": "build_low_precision",
    "notebooks": "run_notebooks",
    "operators": "build_training_operators",
    "rocq": "build_rocq",
    "runtimes": "build_runtimes",
    "scaling": "build_scaling",
    "stubs": "build_stubs",
    "theorems": "theorems",
    "track_3": "build_track_3",
    "trust": "build_trust",
}
"""The module of this folder that writes each page, or files of the package."""


def main(words: Sequence[str] | None = None) -> None:
    """Runs the builders that are named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools", description=__doc__)
    parser.add_argument("name", nargs="+", choices=MODULES)
    for name in parser.parse_args(words).name:
        runpy.run_module(f"tools.{MODULES[name]}", run_name="__main__")


if __name__ == "__main__":
    main()
