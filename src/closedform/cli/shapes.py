"""Shapes of parameters from the command line: ``name=64x10``, or a file that holds the tensors."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from closedform.cli.arguments import parse_shapes

FILES = (".npz", ".safetensors")
"""Endings of the files whose tensors are read."""

Shapes = dict[str, tuple[int, ...]]


def shapes_of(words: Sequence[str]) -> Shapes:
    """Returns shapes by name from words such as ``w=64x10`` and files such as ``model.npz``.

    Raises:
        typer.BadParameter: A word has another form, a file cannot be read or holds no tensors, or a
            name occurs twice.
    """
    shapes: Shapes = {}
    for word in words:
        is_file = word.lower().endswith(FILES) and "=" not in word
        for name, shape in (_in_file(Path(word)) if is_file else parse_shapes([word])).items():
            if name in shapes:
                raise typer.BadParameter(f"parameter {name!r} is given twice")
            shapes[name] = shape
    return shapes


def _in_file(path: Path) -> Shapes:
    try:
        found = _in_npz(path) if path.suffix.lower() == ".npz" else _in_safetensors(path)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not found:
        raise typer.BadParameter(f"{str(path)!r} holds no tensors")
    return found


def _in_npz(path: Path) -> Shapes:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].shape for name in arrays.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise typer.BadParameter(f"{str(path)!r} is no npz file: {error}") from None


def _in_safetensors(path: Path) -> Shapes:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise typer.BadParameter(
            "safetensors files need the package safetensors: pip install safetensors"
        ) from None
    try:
        with safe_open(path, framework="numpy") as tensors:
            names = list(tensors.keys())
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise typer.BadParameter(f"{str(path)!r} is no safetensors file: {error}") from None
