"""The values of a training run before its first step, read straight into the arrays of a session.

Weights are copied from the file as they are; the rest of ``init.onnx`` (the initial states, which
are zeros or copies of parameters) is run. onnxruntime, given the whole file, would hold it three
times: as bytes, as a model and as its constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import helper

from closedform.errors import SessionError
from closedform.exporters.onnx_weights import read_weights
from closedform.ir.graph import Array
from closedform.runtime.onnx_session import Port, open_session, run_into


class InitialValues:
    """The outputs of ``init.onnx``.

    Args:
        path: The file.

    Attributes:
        ports: Its outputs by name.

    Raises:
        SessionError: The file cannot be read, or is not a model.
    """

    def __init__(self, path: Path) -> None:
        self._where = f"file {str(path)!r}"
        try:
            model, weight_places = read_weights(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SessionError(f"cannot read the model: {reason}", where=self._where) from error
        except ValueError as error:
            raise SessionError(
                "it is not an ONNX model", where=self._where, hint="export the model again"
            ) from error
        graph = model.graph
        # Outputs that are weights as they are; what computes with a weight reads such an output.
        self._stored = {
            node.output[0]: weight_places[node.input[0]]
            for node in graph.node
            if node.op_type == "Identity" and node.input[0] in weight_places
        }
        nodes = [node for node in graph.node if node.output[0] not in self._stored]
        outputs = [value for value in graph.output if value.name not in self._stored]
        read_names = {name for node in nodes for name in node.input}
        self._others = {name: place for name, place in weight_places.items() if name in read_names}
        places = {**self._others, **self._stored}
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(place.dtype), place.shape
            )
            for name, place in places.items()
            if name in read_names
        ]
        del graph.node[:], graph.input[:], graph.output[:]
        graph.node.extend(nodes)
        graph.input.extend(inputs)
        graph.output.extend(outputs)
        # Not optimized: the constants that onnxruntime folds would be as large as the states.
        self._rest = open_session(model, is_optimized=False)
        self.ports = {
            **{name: Port(name, place.dtype, place.shape) for name, place in self._stored.items()},
            **self._rest.outputs,
        }

    def write_into(self, arrays: Mapping[str, Array]) -> None:
        """Fills arrays by the names of outputs, all of them.

        Raises:
            SessionError: The file cannot be read.
        """
        feeds = {name: np.empty(place.shape, place.dtype) for name, place in self._others.items()}
        try:
            for name, place in self._stored.items():
                place.read_into(arrays[name])
            for name, array in feeds.items():
                self._others[name].read_into(array)
        except OSError as error:
            raise SessionError(f"cannot read the model: {error}", where=self._where) from error
        feeds |= {name: arrays[name] for name in self._rest.inputs if name in self._stored}
        run_into(self._rest, feeds, {name: arrays[name] for name in self._rest.outputs})
