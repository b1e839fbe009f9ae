"""The step of a file in an engine, to see a difference where the file runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpq

from closedform.importers.onnx_graph import type_of
from closedform.ir import DType, TensorType, evaluate
from closedform.ir.graph import Array
from closedform.language.exact import nearest_float
from closedform.referee.ports import Port
from closedform.referee.simulation import Point, Simulation, broadcast_tensor, sizes
from closedform.referee.step import ForeignStep


@dataclass(frozen=True)
class Engine:
    """onnxruntime with a file; the evaluator of the graph language where it has no kernel.

    Attributes:
        step: The step of the file.
    """

    step: ForeignStep

    @cached_property
    def session(self) -> Any:
        """The session of onnxruntime; None where it does not load the file."""
        import onnxruntime

        if self.step.model is None:
            return None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            return onnxruntime.InferenceSession(
                self.step.model.model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception:  # its classes are not public; an operator without a kernel
            return None

    @property
    def name(self) -> str:
        """The name of the engine."""
        return "the evaluator" if self.session is None else "onnxruntime"

    def run(self, inputs: Mapping[Port, Array]) -> dict[str, Array]:
        """Returns the outputs of the file by name."""
        places = self.step.ports.inputs
        feed = {name: inputs[port] for name, port in places.items() if port in inputs}
        # An input that the step does not depend on may have any value.
        for name, type_ in self._types.items():
            feed.setdefault(name, np.zeros(sizes(type_.shape), type_.dtype.numpy))
        with np.errstate(all="ignore"):
            if self.session is None:
                return evaluate(self.step.graph, feed)
            names = [output.name for output in self.step.graph.outputs]
            return dict(zip(names, self.session.run(names, feed), strict=True))

    @cached_property
    def _types(self) -> dict[str, TensorType]:
        """The types of the inputs of the file by name."""
        if self.session is not None and self.step.model is not None:
            return {value.name: type_of(value) for value in self.step.model.graph.input}
        return {str(node.attribute("name")): node.type for node in self.step.graph.inputs}


def replay(
    engine: Engine, simulation: Simulation, first: Mapping[Port, Array], points: Sequence[Point]
) -> dict[str, Array]:
    """Returns the outputs of a file after the last step of a run, in floats.

    Args:
        engine: The engine.
        simulation: How the run advances.
        first: The inputs of the first step.
        points: The point of the rule at each step.
    """
    step = simulation.step
    inputs = floats_of(step, first)
    outputs: dict[str, Array] = {}
    for place in range(len(points)):
        outputs = engine.run(inputs)
        if place + 1 < len(points):
            states = {port: outputs[name] for name, port in step.outputs.items()}
            following = simulation.advance(inputs, states, points[place + 1])
            inputs = floats_of(step, following)
    return outputs


def floats_of(step: ForeignStep, inputs: Mapping[Port, Array]) -> dict[Port, Array]:
    """Returns the inputs of a file as its dtypes hold them."""
    return {port: _as_floats(step, port, value) for port, value in inputs.items()}


def _as_floats(step: ForeignStep, port: Port, value: Array) -> Array:
    if value.dtype != object:
        return value
    type_ = step.types[port]
    # A tensor of one number for all elements gets its shape.
    numbers = np.array([_number(entry) for entry in value.ravel()]).reshape(value.shape)
    if type_.dtype is DType.BOOL:
        numbers = numbers != 0
    with np.errstate(over="ignore", under="ignore"):
        array = numbers.astype(type_.dtype.numpy)
    return np.array(broadcast_tensor(array, sizes(type_.shape)))


def _number(entry: Any) -> float | int:
    if isinstance(entry, fmpq):
        return int(entry.p) if entry.q == 1 and abs(entry) < 2**62 else nearest_float(entry)
    return float(entry.mid()) if isinstance(entry, arb) else float("nan")
