"""A forward with its weights in the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ModelProto, numpy_helper

from closedform.errors import SessionError
from closedform.exporters.onnx_join import renamed
from closedform.exporters.onnx_model import write_models
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH
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
    try:
        model = onnx.load(source)
    except OSError as error:
        raise SessionError(f"cannot read the forward: {error}", where=where) from error
    names = {value.name: value.name.removeprefix(BATCH) for value in model.graph.input}
    model = renamed(model, {old: new for old, new in names.items() if old != new})
    draw_in_graph(model)
    graph = model.graph
    inputs = [value for value in graph.input if value.name not in arrays]
    constants = [
        numpy_helper.from_array(arrays[value.name].copy(), value.name)
        for value in graph.input
        if value.name in arrays
    ]
    del graph.input[:]
    graph.input.extend(inputs)
    graph.initializer.extend(constants)
    write_models({path.name: model}, path.parent, "name a file in a folder")
    return model
