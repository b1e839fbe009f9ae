"""The algebra of tensors of torch: their values are the values of their storages."""

from __future__ import annotations

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.tensors.algebra import Algebra, constant, stack_values
from closedform.importers.tensors.comparisons import is_of_data
from closedform.importers.tensors.values import Axes, Definitions, Operand, Value
from closedform.importers.torch_optimizer.stand_ins import expression
from closedform.importers.torch_optimizer.storages import Storages

ROUNDED = {torch.bfloat16: "bf16", torch.float16: "f16"}


class TorchAlgebra(Algebra):
    """Values of the operations of one run.

    Args:
        axes: The shapes of the traced parameters.
        definitions: Takes the values that get a name.
        storages: The values of tensors.
    """

    def __init__(self, axes: Axes, definitions: Definitions, storages: Storages) -> None:
        super().__init__(axes, definitions)
        self.storages = storages
        self.numbers: dict[float, sp.Expr | None] = {}
        self.by_place: dict[tuple[float, int], sp.Expr] = {}
        self.place: int | None = None
        self.read_floats: set[float] = set()
        self.floats_to_read: set[float] = set()
        self.is_asked = False
        self.ranks: set[int] = set()

    def value(self, operand: Operand) -> Value:
        """Returns the value of a tensor or a number.

        Raises:
            TraceError: It is a tensor of different constants, or not initialized.
        """
        if not isinstance(operand, torch.Tensor):
            return super().value(operand)
        stored_value = self.storages.read(operand)
        if stored_value is not None:
            return stored_value
        if self.storages.of(operand) is not None:
            raise TraceError("a tensor is read before it has a value")
        if operand.numel() == 1 and operand.is_floating_point():
            # torch makes a tensor of a number that Python assigns to elements.
            return Value(self.number(operand.item()))
        return _constant(operand)

    def element(self, operand: Operand) -> Value:
        """Returns the value of the only element of a tensor; of stacked numbers the first."""
        value = self.value(operand)
        return value.items[0] if value.items else self.reshape(value, value.shape, ())

    def owner(self, tensor: torch.Tensor) -> int | None:
        """Returns which of the traced parameters a tensor belongs to; None if to both or none."""
        if tensor.dim() and self.axes.shape != self.axes.twin:
            for place, shape in enumerate(self.axes.both):
                if tuple(tensor.shape) == shape:
                    return place
        value = self.storages.read(tensor) if self.storages.of(tensor) is not None else None
        if value is None or not is_of_data(value.expr):
            return None
        return int(self.definitions.is_of_other(value.expr))

    def number(self, number: Operand) -> sp.Basic:
        """Returns the expression of a number that an operation takes."""
        if isinstance(number, bool):
            return constant(number)
        plain = float(number)
        if plain in self.numbers:
            self.read_floats.add(plain)
            expr = self.numbers[plain]
            if expr is None and self.place is not None:
                expr = self.by_place.get((plain, self.place))
            if expr is None:
                raise TraceError(
                    f"two numbers of one call have the value {plain} and different expressions",
                    hint="trace the optimizer with hyperparameters that differ",
                )
            return expr
        return expression(number)

    def cast(self, operand: Operand, dtype: torch.dtype | None, source_dtype: torch.dtype) -> Value:
        """Returns a tensor in another dtype; float32 and float64 are the dtype of the rule."""
        value = self.value(operand)
        if dtype is None or dtype == source_dtype:
            return value
        if dtype == torch.bool:
            return value if value.is_bool else self.map(lambda a: sp.Ne(a, 0), value, name="mask")
        if dtype in ROUNDED:
            return self.round_to(value, ROUNDED[dtype])
        if dtype.is_floating_point or value.is_bool or not source_dtype.is_floating_point:
            return self.real(value)
        if value.expr.is_integer:
            return value
        raise TraceError(f"a cast of floats to {dtype} has no expression")


def _constant(tensor: torch.Tensor) -> Value:
    if tensor.numel() == 0:
        raise TraceError("a tensor without elements is read")
    flat = tensor.detach().reshape(-1)
    if tensor.dim() == 1 and 1 < tensor.numel() <= 64:
        return stack_values([Value(constant(number)) for number in flat.tolist()])
    first = flat[0]
    is_one = bool((flat == first).all()) or bool(torch.isnan(flat).all())
    if not is_one:
        raise TraceError(
            f"a tensor of shape {list(tensor.shape)} holds constants that differ",
            hint="it was made outside of the step, or by an operation that is not traced",
        )
    return Value(constant(first.item()))
