"""ONNX graphs of linear operators as sums over indices, for all sizes of their ranks.

Sizes, and tensors that follow from sizes, are integers of z3; integer inputs are functions without
a definition. Indices into tensors are within them, as a training session checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import z3
from onnx import ModelProto, TensorProto, helper, numpy_helper

from closedform.errors import VerificationError
from tests.proofs.gradients.contractions import CONTRACTIONS
from tests.proofs.gradients.elementwise import ELEMENTWISE
from tests.proofs.gradients.index_sums import Index
from tests.proofs.gradients.indexing import INDEXING
from tests.proofs.gradients.layouts import LAYOUTS
from tests.proofs.gradients.nonlinear import NONLINEAR
from tests.proofs.gradients.normal_forms import SIZE
from tests.proofs.gradients.reshapes import RESHAPES
from tests.proofs.gradients.selections import SELECTIONS
from tests.proofs.gradients.tensors import Result, Tensor, constant_tensor, input_tensor


def read_tensors(model: ModelProto, barrier: str | None = None) -> tuple[dict[str, Tensor], Reader]:
    """Returns the outputs of a graph of linear operators.

    Args:
        model: The graph.
        barrier: The operator whose result is a new tensor, the gradient in the output.

    Raises:
        VerificationError: An operator is not read.
    """
    reader = Reader(model, barrier)
    return {value.name: reader.tensor(value.name) for value in model.graph.output}, reader


class Reader:
    """Reads each value of a graph when it is first needed.

    Attributes:
        sizes: The free sizes by name.
        cotangent: The tensor of the barrier.
        has_ties: Whether an operator that was read compares real numbers.
    """

    def __init__(self, model: ModelProto, barrier: str | None) -> None:
        self.sizes: dict[str, Index] = {}
        self.cotangent: Tensor | None = None
        self.has_ties = False
        self._barrier = barrier
        self._nodes = {name: node for node in model.graph.node for name in node.output}
        self._tensors: dict[str, Tensor] = {}
        for value in model.graph.input:
            type_ = value.type.tensor_type
            shape = tuple(
                self.sizes.setdefault(dim.dim_param, z3.Int(f"{SIZE}{dim.dim_param}"))
                if dim.dim_param
                else dim.dim_value
                for dim in type_.shape.dim
            )
            is_real = type_.elem_type == TensorProto.FLOAT
            self._tensors[value.name] = input_tensor(value.name, shape, is_real=is_real)
        self._infinities: set[str] = set()
        for tensor in model.graph.initializer:
            array = numpy_helper.to_array(tensor)
            self._tensors[tensor.name] = constant_tensor(array)
            if array.dtype.kind == "f" and np.isinf(array).all():
                self._infinities.add(tensor.name)

    def tensor(self, name: str) -> Tensor:
        """The value of a name."""
        if name not in self._tensors:
            node = self._nodes[name]
            operands = [self.tensor(operand) if operand else None for operand in node.input]
            if node.op_type == self._barrier:
                self.cotangent = input_tensor("g", self.tensor(node.input[0]).shape, is_real=True)
                results: Sequence[Tensor] = [self.cotangent]
            elif node.op_type in OPERATORS:
                attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                result = OPERATORS[node.op_type](node, operands, attributes)
                results = [result] if isinstance(result, Tensor) else result
                first = operands[0] if operands else None
                is_real = first is not None and first.is_real
                # A number is not infinite.
                compares = is_real and self._infinities.isdisjoint(node.input)
                self.has_ties |= node.op_type in COMPARISONS and compares
            else:
                raise VerificationError(f"{node.op_type} is not read")
            self._tensors |= dict(zip(node.output, results, strict=False))
        return self._tensors[name]


COMPARISONS = frozenset(
    {
        "Abs",
        "ArgMax",
        "ArgMin",
        "Clip",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Sign",
        "TopK",
    }
)
"""Operators that compare their operands; between real ones, what is said holds off ties."""

OPERATORS: Mapping[str, Callable[..., Result]] = {
    **CONTRACTIONS,
    **ELEMENTWISE,
    **INDEXING,
    **LAYOUTS,
    **NONLINEAR,
    **RESHAPES,
    **SELECTIONS,
}
"""Operators by name: from operands and attributes to the result, or to several results."""
