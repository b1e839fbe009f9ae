"""Proofs that the backward of an operator is the adjoint of its derivative, for all sizes.

The derivative of a linear operator is itself.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from onnx import ModelProto

from closedform.errors import VerificationError
from closedform.ir import naming
from closedform.verify.terms.verdict import Status, Verdict
from tests.proofs.gradients.formulas import differential
from tests.proofs.gradients.index_sums import Sum, are_equal, product, scale, total
from tests.proofs.gradients.multilinear import read_tensors
from tests.proofs.gradients.normal_forms import normal
from tests.proofs.gradients.tensors import Tensor, check_shapes, input_tensor
from tests.proofs.gradients.torch_rules.pullbacks import (
    OUTPUT,
    Operation,
    Sizes,
    export_pullback,
    gradient_of,
)


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
        """Returns whether ⟨dF, g⟩ = ⟨dx, B g⟩ for the forward F and the backward B in a model.

        Both are sums over indices, for all dx, x and g, and for all sizes.
        """
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
        try:
            for name in self.operands:
                change = f"change of {name}"
                tensor = f"{naming.BATCH}{name}"
                operand = reader.tensor(tensor)
                changes = input_tensor(change, operand.shape, is_real=True)
                of_forward = differential(_dot(tensors[OUTPUT], reader.cotangent), tensor, change)
                of_backward = _dot(changes, tensors[gradient_of(name)])
                open_part = normal((*of_forward, *scale(of_backward, Fraction(-1))))
                reason = are_equal(open_part, (), sizes)
                if reason is not None:
                    return Verdict(Status.UNKNOWN, reason=f"in {name}: {reason}")
        except VerificationError as error:
            return Verdict(Status.UNKNOWN, reason=str(error))
        return Verdict(Status.PROVED, ("index sums",))


@dataclass(frozen=True, slots=True)
class Composed(Linear):
    """A rule of an operator of functions, sums and maxima.

    It holds where the forward is defined: divisors are not 0, and roots and logarithms are of
    positive numbers.

    Attributes:
        has_kinks: Whether it compares real numbers; it is proved where these differ.
    """

    has_kinks: bool = False


def _dot(first: Tensor, second: Tensor) -> Sum:
    """The sum of the products of two tensors of one shape."""

    def over(axes: int, index: tuple[Any, ...]) -> Sum:
        if axes == len(first.shape):
            return product(first.at(index), second.at(index))
        return total(lambda i: over(axes + 1, (*index, i)), first.shape[axes])

    return over(0, ())
