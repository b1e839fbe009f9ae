"""A forward with its weights in the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import onnx
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.exporters.onnx_join import rename_values
from closedform.exporters.onnx_model import make_folder
from closedform.exporters.onnx_scopes import names_read
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
    model, sources = read_forward(source, arrays, where)
    make_folder(path.parent, "name a file in a folder")
    write_weights(model, {name: arrays[source] for name, source in sources.items()}, path)
    return model


def read_forward(
    source: Path, weights: Collection[str], where: str
) -> tuple[ModelProto, dict[str, str]]:
    """Returns a forward whose values have public names, and the weights that it reads.

    Args:
        source: The file of the forward.
        weights: The inputs that are weights.
        where: The model, named in errors.

    Returns:
        The model, whose weights are inputs, and the weights by their names in it: ``{"fc.weight":
        "param.fc.weight"}`` for a model of a file, and otherwise the same names.

    Raises:
        SessionError: The file of the forward cannot be read.
    """
    check_regular(source, SessionError)
    try:
        model = onnx.load(source)
    except OSError as error:
        raise SessionError(f"cannot read the forward: {error}", where=where) from error
    names = _public_names(model)
    sources = {names.get(name, name): name for name in weights}
    model = rename_values(model, names)
    draw_in_graph(model)
    values = names_read(model.graph.node).union(value.name for value in model.graph.output)
    # onnxruntime warns of constants that nothing reads, such as num_batches_tracked.
    inputs = [v for v in model.graph.input if v.name in values or v.name not in sources]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model, {v.name: sources[v.name] for v in inputs if v.name in sources}


def _public_names(model: ModelProto) -> dict[str, str]:
    """The names that change: to the names of the model's arguments, or of its file."""
    names = {value.name: value.name.removeprefix(BATCH) for value in model.graph.input}
    names |= take_names(model)
    return {old: new for old, new in names.items() if old != new}
