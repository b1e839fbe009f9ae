"""Sums with a scaled tensor as one op of torch: ``add``, ``addcmul``, ``addcdiv`` or ``lerp``.

``param - (n₀·exp_avg) / (n₁ + sqrt(exp_avg_sq))`` is three ops of a program, and one ``addcdiv``
whose ``value`` is the number ``-n₀``. Each rounds the sum once where the processor has a fused
multiply-add, as torch's own optimizers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from closedform.exporters.torch_module import TYPE
from closedform.ir.types import Shape


@dataclass(frozen=True, slots=True)
class ScaledSum:
    """``addend + c·n₀·n₁·… / (d₀·d₁·…) · term``, where the term is x, x·y, x / y or y - addend.

    Attributes:
        addend: A tensor or a number.
        function: ``torch.add``, ``torch.addcmul``, ``torch.addcdiv`` or ``torch.lerp``.
        constant: The factor c: the sign, and what is a constant of the program.
        operands: The tensors of the term.
        numbers: The factors.
        divisors: The numbers that it is divided by.
        absorbed: The nodes that need not run.
    """

    addend: fx.Node
    function: Callable[..., Tensor]
    constant: float
    operands: tuple[fx.Node, ...]
    numbers: tuple[fx.Node, ...]
    divisors: tuple[fx.Node, ...]
    absorbed: frozenset[fx.Node]

    @property
    def arguments(self) -> tuple[fx.Node, ...]:
        """The operands of the function that ``call`` returns."""
        return (self.addend, *self.operands, *self.numbers, *self.divisors)

    def call(self, position: int | None) -> Callable[..., Tensor]:
        """Returns the function of the arguments that computes the sum.

        Args:
            position: The argument that the result is written over; None for new memory.
        """
        function, constant, count = self.function, self.constant, len(self.operands)
        numbers = slice(1 + count, 1 + count + len(self.numbers))
        divisors = slice(numbers.stop, None)
        keyword = {torch.add: "alpha", torch.lerp: "weight"}.get(function, "value")

        def run(*args: Tensor) -> Tensor:
            out = None if position is None else args[position]
            scale: Any = constant
            for number in args[numbers]:
                # A number for each element, such as the bias corrections of several parameters.
                if number.numel() > 1:
                    return on_vectors(args, out)
                scale *= number.item()  # on the CPU, reading it waits for nothing
            for number in args[divisors]:
                if number.numel() > 1:
                    return on_vectors(args, out)
                scale /= number.item()
            return function(*args[: 1 + count], **{keyword: scale}, out=out)

        def on_vectors(args: Sequence[Tensor], out: Tensor | None) -> Tensor:
            scale: Any = constant
            for number in args[numbers]:
                scale = scale * number
            for number in args[divisors]:
                scale = scale / number
            addend, first = args[:2]
            if function is torch.lerp:
                return torch.lerp(addend, first, scale, out=out)
            if function is torch.add:
                return torch.addcmul(addend, scale, first, out=out)
            return function(addend, scale * first, args[2], out=out)

        return run


def match_scaled_sum(node: fx.Node, overwritten: dict[fx.Node, int]) -> ScaledSum | None:
    """Returns a node as a scaled sum, or None.

    Args:
        node: A node of a program.
        overwritten: The operand that an op writes its result over, by its position.
    """
    if node.target not in (torch.add, torch.sub) or not all(map(_is_float, node.args)):
        return None
    if not _shape(node):  # numbers are computed as the graph says
        return None
    # torch scales the second operand: ``n·x - y`` has no such form.
    for position in (1, 0) if node.target is torch.add else (1,):
        addend: Any = node.args[1 - position]
        # x + x reads its operand twice.
        if addend is node.args[position] or not isinstance(addend, fx.Node):
            continue
        match = _Match(_shape(node), -1 if node.target is torch.sub else 1)
        scaled_sum = match.of(addend, node.args[position])
        if scaled_sum is not None and not _is_overwritten_before(scaled_sum, node, overwritten):
            return scaled_sum
    return None


class _Match:
    """A term of a sum: its numbers, and the nodes that the sum absorbs."""

    def __init__(self, shape: Shape, sign: int) -> None:
        self._shape = shape
        self._constant: float = sign
        self._numbers: list[fx.Node] = []
        self._divisors: list[fx.Node] = []
        self._absorbed: list[fx.Node] = []

    def of(self, addend: fx.Node, term: Any) -> ScaledSum | None:
        """The sum; None if the term has no number and is one tensor."""
        term = self._strip_numbers(term)
        if not self._is_vector(term):
            return None
        function: Callable[..., Tensor] = torch.add
        operands: tuple[fx.Node, ...] = (term,)
        if self._is_own(term) and all(map(self._is_vector, term.args)):
            first, second = term.args
            if term.target is torch.sub and second is addend and self._absorbed:
                function, operands = torch.lerp, (first,)
            elif term.target is torch.mul:
                function, operands = (
                    torch.addcmul,
                    (self._strip_numbers(first), self._strip_numbers(second)),
                )
            elif term.target is torch.true_divide:
                function, operands = torch.addcdiv, (self._strip_numbers(first), second)
        if function is not torch.add:
            self._absorbed.append(term)
        if not self._absorbed:
            return None
        numbers, divisors = tuple(self._numbers), tuple(self._divisors)
        nodes = frozenset(self._absorbed)
        return ScaledSum(addend, function, self._constant, operands, numbers, divisors, nodes)

    def _is_vector(self, operand: Any) -> bool:
        return isinstance(operand, fx.Node) and _shape(operand) == self._shape

    def _is_own(self, term: Any) -> bool:
        """Whether a term is a product, quotient or difference that only the sum needs."""
        if not isinstance(term, fx.Node) or len(term.users) > 1:
            return False
        targets = (torch.mul, torch.true_divide, torch.sub)
        return term.target in targets and all(map(_is_float, term.args))

    def _strip_numbers(self, term: Any) -> Any:
        """A term without its numbers, which are collected."""
        while self._is_own(term) and term.target is not torch.sub:
            vector, number = term.args
            if term.target is torch.mul and not self._is_vector(vector):
                vector, number = number, vector
            if not self._is_vector(vector) or self._is_vector(number):
                break
            is_divisor = term.target is torch.true_divide
            if isinstance(number, fx.Node):
                (self._divisors if is_divisor else self._numbers).append(number)
            else:
                self._constant *= 1 / number if is_divisor else number
            self._absorbed.append(term)
            term = vector
        return term


def _is_overwritten_before(
    scaled_sum: ScaledSum, node: fx.Node, overwritten: dict[fx.Node, int]
) -> bool:
    """Whether an op before the sum writes over an operand that an absorbed node has read."""
    operands: Iterable[Any] = (*scaled_sum.operands, *scaled_sum.numbers, *scaled_sum.divisors)
    return any(
        user < node
        and user not in scaled_sum.absorbed
        and user in overwritten
        and user.args[overwritten[user]] is operand
        for operand in operands
        for user in operand.users
    )


def _is_float(operand: Any) -> bool:
    """Whether an operand is a tensor of floating-point numbers, or such a number."""
    if not isinstance(operand, fx.Node):
        return isinstance(operand, float)
    return TYPE in operand.meta and operand.meta[TYPE].dtype.is_float


def _shape(node: Any) -> Shape:
    shape: Shape = node.meta[TYPE].shape
    return shape
