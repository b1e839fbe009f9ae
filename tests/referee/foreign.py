"""Steps of optax that jax2onnx 0.17.1 wrote, the rules traced from optax 0.2.8, and edits of them.

``foreign_steps.zip`` has of each optimizer the file, what its ports are, and the rule.
"""

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from closedform.language import UpdateRule
from closedform.language.rule_data import rule_of_data
from closedform.verify.terms.verdict import Verdict

FILES = Path(__file__).with_name("foreign_steps.zip")

OPEN_IN_FLOATS = frozenset({"prodigy"})
"""Steps that are proved over the real numbers only.

No range of Prodigy's estimate of the distance is kept by its steps. In float32 its square overflows
from 2**40 on, times a gradient of 2**24, and ``max`` chooses between the estimates. Without any
gradient the new one is 0/0.
"""


def is_proved_as_far_as_is_known(name: str, verdict: Verdict) -> bool:
    """Whether a step is proved; of ``OPEN_IN_FLOATS`` over the real numbers."""
    if name in OPEN_IN_FLOATS:
        return verdict.unknown and verdict.reason.startswith("PROVED over the real numbers, and")
    return verdict.proved


@dataclass(frozen=True)
class Foreign:
    """A step of an optimizer of optax.

    Attributes:
        name: The optimizer.
        model: The file.
        ports: What its inputs and outputs are, and its first states.
        rule: The rule traced from optax, with the same arguments.
    """

    name: str
    model: ModelProto
    ports: dict[str, Any]
    rule: UpdateRule


def names() -> list[str]:
    """Returns the optimizers."""
    with zipfile.ZipFile(FILES) as archive:
        return [name.removesuffix(".onnx") for name in archive.namelist() if "onnx" in name]


def load(name: str) -> Foreign:
    """Returns the step of an optimizer."""
    with zipfile.ZipFile(FILES) as archive:
        model = onnx.load_model_from_string(archive.read(f"{name}.onnx"))
        ports = json.loads(archive.read(f"{name}.ports.json"))
        rule = rule_of_data(json.loads(archive.read(f"{name}.rule.json")))
    return Foreign(name, model, ports, rule)


# --- edits ---------------------------------------------------------------------------------------

_OPERATORS = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Max": "Min", "Min": "Max"}


def edits(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """Yields files with one fault each, and its description."""
    for place, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind not in "fi" or not np.all(np.isfinite(array)) or array.ndim:
            continue
        # Halved, as the largest float cannot be doubled; 0 becomes 1.
        changed = array / array.dtype.type(2) + array.dtype.type(array == 0)
        if array.dtype.kind == "i":
            changed = array - 1
        edited = _copy(model)
        edited.graph.initializer[place].CopyFrom(
            numpy_helper.from_array(changed.astype(array.dtype), tensor.name)
        )
        yield f"{tensor.name} is {changed}", edited
    for place, node in enumerate(model.graph.node):
        if node.op_type in _OPERATORS:
            edited = _copy(model)
            edited.graph.node[place].op_type = _OPERATORS[node.op_type]
            yield f"{node.name} is {_OPERATORS[node.op_type]}", edited
        if node.op_type in ("Sub", "Div", "Pow", "Less", "Greater"):
            edited = _copy(model)
            inputs = edited.graph.node[place].input
            inputs[0], inputs[1] = inputs[1], inputs[0]
            yield f"{node.name} has its operands swapped", edited
        if node.op_type in ("Sqrt", "Sign", "Abs", "Neg"):
            edited = _copy(model)
            edited.graph.node[place].op_type = "Identity"
            yield f"{node.name} is left out", edited
        if node.op_type == "Div":
            edited = _copy(model)
            _pass_on(edited.graph.node[place])
            yield f"{node.name} does not divide", edited


def _copy(model: ModelProto) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    return result


def _pass_on(node: NodeProto) -> None:
    node.op_type = "Identity"
    del node.input[1:]


def are_same(first: ModelProto, second: ModelProto, ports: dict[str, Any]) -> bool:
    """Whether two files agree on random runs from the first states of the ports, in float32.

    The differences of float32 in the order of operations are below 1e-5 of the largest element.
    """
    try:
        sessions = [ReferenceEvaluator(model) for model in (first, second)]
        runs = [list(_run(session, first, ports)) for session in sessions]
    except Exception:  # of a file that an edit broke; whatever the evaluator raises
        return False
    return all(
        np.allclose(a, b, rtol=1e-5, atol=1e-5 * float(np.max(np.abs(a), initial=1e-30)))
        for left, right in zip(*runs, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def _run(
    session: ReferenceEvaluator, model: ModelProto, ports: dict[str, Any]
) -> Iterator[list[Any]]:
    for size in (1.0, 1e-4):
        draw = np.random.default_rng(5)
        values: dict[str, Any] = {}
        types = {value.name: value.type.tensor_type for value in model.graph.input}
        for name, text in ports["inputs"].items():
            shape = [dim.dim_value for dim in types[name].shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(types[name].elem_type)
            stated = ports["initial_states"].get(text)
            array = draw.normal(size=shape) if stated is None else np.asarray(stated)
            values[name] = array.astype(dtype)
        for _ in range(4):
            for name, text in ports["inputs"].items():
                if text.startswith("grad"):
                    values[name] = (size * draw.normal(size=values[name].shape)).astype(np.float32)
            results = session.run(None, values)
            places = {text: name for name, text in ports["inputs"].items()}
            outputs = [value.name for value in model.graph.output]
            for name, result in zip(outputs, results, strict=True):
                values[places[ports["outputs"][name]]] = result
            yield [
                result
                for name, result in zip(outputs, results, strict=True)
                if ports["outputs"][name].startswith("param")
            ]
