"""A forward with its weights in the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.exporters.onnx_join import rename_values
from closedform.exporters.onnx_model import make_folder
from closedform.exporters.onnx_weights import write_weights
from closedform.files import check_regular
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH
from closedform.training.file_names import take_names
from closedform.training.random_nodes import draw_in_graph


def with_weights(source: Path, arrays: Mapping[str, Array], path: Path, where: str) -> ModelProto:
    """Writes a forward whose parameters, buffers and states are constants.

    Args:
        source: The file of the forward.
        arrays: The constants by the names of the inputs.
        path: The file that is written.
        where: The model, named in errors.

    Raises:
        SessionError: The file of the forward cannot be read.
    """
    check_regular(source, SessionError)
    try:
        model = onnx.load(source)
    except OSError as error:
        raise SessionError(f"cannot read the forward: {error}", where=where) from error
    names = _public_names(model)
    arrays = {names.get(name, name): array for name, array in arrays.items()}
    model = rename_values(model, names)
    draw_in_graph(model)
    weights = {v.name: arrays[v.name] for v in model.graph.input if v.name in arrays}
    make_folder(path.parent, "name a file in a folder")
    write_weights(model, weights, path)
    return model


def _public_names(model: ModelProto) -> dict[str, str]:
    """The names that change: to the names of the model's arguments, or of its file."""
    names = {value.name: value.name.removeprefix(BATCH) for value in model.graph.input}
    names |= take_names(model)
    return {old: new for old, new in names.items() if old != new}
