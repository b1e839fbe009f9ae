"""The operators that are read from ONNX files: their table, and what it says about nodes.

For ``Reshape(x, shape)``, ``needed_names`` has the name of ``shape``, a number that torch has to
know while it traces. An operator without a row is refused by ``check_operator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, helper

from closedform.errors import TrainingExportError, nearest
from closedform.exporters.onnx_scopes import all_nodes
from closedform.importers.onnx_checks import node_place
from closedform.training.from_onnx.control_flow import BRANCH, LOOP
from closedform.training.from_onnx.elementwise import ELEMENTWISE
from closedform.training.from_onnx.layers import LAYERS
from closedform.training.from_onnx.movement import MOVEMENT
from closedform.training.from_onnx.recurrent import RECURRENT
from closedform.training.from_onnx.resizing import RESIZING
from closedform.training.from_onnx.values import ANOTHER_SOURCE
from closedform.training.from_onnx.weights import array_of
from closedform.training.tables import union

ROWS = union(ELEMENTWISE, MOVEMENT, LAYERS, RECURRENT, RESIZING)
"""The table of operators: a function, and the attributes with their defaults."""


OLDEST, NEWEST = 7, 24
"""The opsets that the table is for: rows also have the attributes that were operands later on."""


def running_statistics(nodes: Iterable[NodeProto]) -> set[str]:
    """Returns the names of the running statistics."""
    kind = "BatchNormalization"
    # Operands 3 and 4 of BatchNormalization: mean and variance, which it moves by itself.
    return {name for node in all_nodes(nodes) if node.op_type == kind for name in node.input[3:5]}


LAST_BY_RESULTS = 13
"""The last opset in which the number of its results puts a batch normalisation in training form."""


def is_training_form(node: NodeProto, version: int) -> bool:
    """Returns whether a batch normalisation of a file uses the statistics of the batch."""
    if version <= LAST_BY_RESULTS:
        # Before opset 14 the outputs mean, var, saved_mean and saved_var exist in training form
        # only (onnx.defs, BatchNormalization-9); from 14 on there is the attribute training_mode.
        return sum(map(bool, node.output)) > 1
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


_WITH_SECOND = (
    "CumSum Expand OneHot Reshape SequenceAt Split SplitToSequence Squeeze Tile TopK Trilu "
    "Unsqueeze Upsample"
)
KNOWN_PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_WITH_SECOND.split(), (1,)),
    **dict.fromkeys((name for name in ROWS if name.startswith("Reduce")), (1,)),
    "ConstantOfShape": (0,),
    "Dropout": (1, 2),
    # A Loop is unrolled, so that its trip count and its first condition are numbers.
    LOOP: (0, 1),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
}
"""Operands that have to be known while a graph is traced, by operator."""


def needed_names(nodes: Sequence[NodeProto]) -> set[str]:
    """Returns the names that have to be known while the graph is traced."""
    names: set[str] = set()
    count = -1
    # Once more while a loop has names that its next iteration reads.
    # A set of names that only grows, so the loop ends.
    while len(names) > count:
        count = len(names)
        # Against the order of the nodes: a name is needed by the nodes after its producer.
        for node in reversed(list(all_nodes(nodes))):
            _add_needed(node, names)
    return names


def _add_needed(node: NodeProto, names: set[str]) -> None:
    """Adds the names that a node needs."""
    for attribute in node.attribute if node.op_type == LOOP else ():
        # An argument of the body has its first value from outside, and others from the body.
        for place, value in enumerate(attribute.g.input):
            if value.name in names and place < len(node.input):
                names.add(node.input[place])
            if value.name in names and 0 < place <= len(attribute.g.output):
                names.add(attribute.g.output[place - 1].name)
        # The condition of the next iteration has to be known, too.
        names.update(value.name for value in attribute.g.output[:1])
    # Shape and Size give numbers whatever their operand is.
    if not names.isdisjoint(node.output) and node.op_type not in ("Shape", "Size"):
        names.update(node.input)
        for attribute in node.attribute:
            names.update(value.name for value in attribute.g.output)
    else:
        places = KNOWN_PLACES.get(node.op_type, ())
        names.update(node.input[place] for place in places if place < len(node.input))


_DOMAINS = {"Scaler": "ai.onnx.ml"}
"""The domains of operators that are not ONNX's own."""

_QUANTIZED = ("convinteger", "matmulinteger", "quantize", "qlinear")
"""Parts of the names of operators on quantized weights, in small letters."""


def check_operator(node: NodeProto) -> None:
    """Raises TrainingExportError if an operator is not supported."""
    # Nodes within a branch or a loop are checked one by one; their own graphs are visited by
    # all_nodes.
    if node.op_type in (BRANCH, LOOP) and not node.domain:
        for inner in all_nodes([node]):
            if inner is not node and inner.op_type not in (BRANCH, LOOP):
                check_operator(inner)
        return
    if node.op_type in (*ROWS, "Constant") and node.domain == _DOMAINS.get(node.op_type, ""):
        return
    domain = f" of the domain {node.domain!r}" if node.domain else ""
    reason, hint = "", "export the model without fused operators"
    if any(part in node.op_type.lower() for part in _QUANTIZED):
        reason = ": it is a quantized model: its integer weights have no gradients"
        hint = "take the model in float32"
    elif node.domain == "ai.onnx.ml":
        reason = (
            ": it is a model of scikit-learn's kind (trees, or other classical models), which has "
            "no weights that gradients train"
        )
        hint = "train it with the package that it comes from, or train a network in its place"
    elif node.op_type == "Scan":
        reason = ": a graph that is trained has no control flow"
        hint = "export the model without loops, such as for one length"
    elif not node.domain:
        hint = nearest(node.op_type, ROWS)
    raise TrainingExportError(
        f"the operator {node.op_type!r}{domain} is not supported{reason}",
        where=node_place(node),
        hint=hint,
    )


def attributes_of(node: NodeProto, where: str) -> Mapping[str, Any]:
    """Returns the attributes of a node over their defaults.

    Raises:
        TrainingExportError: An attribute is not supported.
    """
    row = ROWS[node.op_type]
    values_by_name = {}
    for attribute in node.attribute:
        if attribute.name not in row[1]:
            raise TrainingExportError(
                f"its attribute {attribute.name!r} is not supported",
                where=where,
                hint=ANOTHER_SOURCE,
            )
        value = helper.get_attribute_value(attribute)
        is_tensor = isinstance(value, TensorProto)
        values_by_name[attribute.name] = array_of(value, where) if is_tensor else value
    return {**row[1], **values_by_name}
