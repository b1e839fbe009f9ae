"""Proofs that the backward of a linear operator is its adjoint, for all sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import ModelProto

from closedform.errors import VerificationError
from closedform.ir import naming
from closedform.training.gradients.pullbacks import (
    OUTPUT,
    Operation,
    Sizes,
    export_pullback,
    gradient_of,
)
from closedform.verify.gradients.index_sums import Sum, Summand, are_equal, product, total
from closedform.verify.gradients.multilinear import read_tensors
from closedform.verify.gradients.tensors import Tensor, check_shapes
from closedform.verify.terms.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Linear:
    """A rule of an operator that is linear in each operand in which it is differentiated.

    Attributes:
        operation: The operator.
        sizes: The shapes of its operands.
        operands: Those in which it is differentiated.
        integers: Those that are integers.
        smallest: The least of each free size.
    """

    operation: Operation
    sizes: Sizes
    operands: tuple[str, ...] = ("x",)
    integers: tuple[str, ...] = ()
    smallest: int = 1

    def export(self) -> ModelProto:
        """Returns the operator and its backward as they are written to files."""
        return export_pullback(
            self.operation,
            self.sizes,
            self.operands,
            integers=self.integers,
            has_cotangent=False,
        )

    def judge(self, model: ModelProto) -> Verdict:
        """Returns whether ⟨A x, g⟩ = ⟨x, B g⟩ for the forward A and the backward B in a model."""
        try:
            tensors, reader = read_tensors(model, "Sin")
            for name in self.operands:
                operand = reader.tensor(f"{naming.BATCH}{name}")
                gradient = tensors[gradient_of(name)]
                check_shapes(operand.shape, gradient.shape, f"{name} and its gradient")
        except (VerificationError, IndexError) as error:
            return Verdict(Status.UNKNOWN, reason=str(error))
        if reader.cotangent is None:
            return Verdict(Status.UNKNOWN, reason="no backward reads the gradient")
        sizes = [size >= self.smallest for size in reader.sizes.values()]
        forward = _dot(tensors[OUTPUT], reader.cotangent)
        for name in self.operands:
            backward = _dot(reader.tensor(f"{naming.BATCH}{name}"), tensors[gradient_of(name)])
            part = tuple(s for s in forward if _reads(s, f"{naming.BATCH}{name}"))
            if any(_count(s, f"{naming.BATCH}{name}") != 1 for s in (*part, *backward)):
                return Verdict(Status.UNKNOWN, reason=f"it is not linear in {name}")
            reason = are_equal(part, backward, sizes)
            if reason is not None:
                return Verdict(Status.UNKNOWN, reason=f"in {name}: {reason}")
        return Verdict(Status.PROVED, ("index sums",))


def _reads(summand: Summand, name: str) -> bool:
    return _count(summand, name) > 0


def _count(summand: Summand, name: str) -> int:
    return sum(access.tensor == name for access in summand.accesses)


def _dot(first: Tensor, second: Tensor) -> Sum:
    """The sum of the products of two tensors of one shape."""

    def over(axes: int, index: tuple[Any, ...]) -> Sum:
        if axes == len(first.shape):
            return product(first.at(index), second.at(index))
        return total(lambda i: over(axes + 1, (*index, i)), first.shape[axes])

    return over(0, ())
