"""Rules for parameters that hold several matrices, each of which takes its step by itself.

A partition names the blocks of a parameter. The rule of a partition has the expressions of the rule
once for each block, with the block in place of the tensor and its sizes in place of the sizes of
the parameter, so that a block is stepped as a parameter of its shape would be.

Example:
    >>> from closedform import optimizers
    >>> rule = partition(optimizers.sgd(0.1), (4, 2))
    >>> rule.definitions["block_1.grad"], rule.param.args[1]
    (Block(grad, 1, (0, 1, False, (4, 2))), -local.block_1.grad*lr + local.block_1.param)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.arguments import whole
from closedform.language.functions import Block, Joined, LikeBlock, LikeParam
from closedform.language.lengths import with_checked_keywords
from closedform.language.model import GlobalSum, tensor_input
from closedform.language.shapes import RANK, SIZE, Shape, Sizes, Without, axis_size
from closedform.language.symbols import GRAD, PARAM, local, state
from closedform.language.update_rule import State, UpdateRule

MOST_BLOCKS = 512
"""The most blocks of a parameter: each has its own expressions in the rule."""

_AXES = range(-8, 8)


@dataclass(frozen=True, slots=True)
class Partition:
    """The blocks of a parameter along an axis.

    Attributes:
        blocks: The sizes of the blocks along the axis, or the number of equal blocks. Blocks that
            all have the size 1 are the entries of a stack, and lose the axis.
        axis: The axis, 0 for the rows of ``torch.nn.Linear``; -1 for the last.
        groups: The number of equal groups along the axis, each of which has its part of every
            block, one behind the other, as the heads of a fused query, key and value.

    Raises:
        DefinitionError: A size or a number below 1, sizes that the groups do not divide, or a
            stack that is not along the first axis.

    Example:
        >>> Partition((4096, 1024, 1024))
        Partition(blocks=(4096, 1024, 1024), axis=0, groups=1)
    """

    blocks: int | Sequence[int]
    axis: int = 0
    groups: int = 1

    def __post_init__(self) -> None:
        where = "partition"
        whole(self.groups, "groups", where)
        axis_size(self.axis)
        if isinstance(self.blocks, int):
            whole(self.blocks, "blocks", where, at_most=MOST_BLOCKS)
            return
        sizes = tuple(whole(size, "the size of a block", where) for size in self.blocks)
        whole(len(sizes), "the number of blocks", where, at_most=MOST_BLOCKS)
        if any(size % self.groups for size in sizes):
            raise DefinitionError(
                f"{self.groups} groups do not divide the sizes {sizes}",
                where=where,
                hint="a size is that of the whole block, in all groups together",
            )
        # Frozen: a tuple, so that equal partitions have equal hashes.
        object.__setattr__(self, "blocks", sizes)
        if self.is_stack and (self.axis, self.groups) != (0, 1):
            raise DefinitionError("a stack has its entries along axis 0, in one group", where=where)

    @property
    def is_stack(self) -> bool:
        """Whether the blocks are entries of a stack, which lose the axis."""
        return not isinstance(self.blocks, int) and set(self.blocks) == {1}

    @property
    def sizes(self) -> tuple[sp.Expr, ...]:
        """The sizes of the blocks, which are quotients for equal blocks."""
        if isinstance(self.blocks, int):
            return (axis_size(self.axis) / self.blocks,) * self.blocks
        return tuple(map(sp.Integer, self.blocks))

    @property
    def condition(self) -> sp.Basic:
        """The condition on the shape of a parameter."""
        size = axis_size(self.axis)
        if isinstance(self.blocks, int):
            return sp.Eq(sp.Mod(size, self.blocks * self.groups), 0)
        return sp.Eq(size, sum(self.blocks))

    @property
    def layout(self) -> sp.Tuple:
        """The axis, groups, kind and sizes of the blocks, as an argument of SymPy functions."""
        is_stack = sp.true if self.is_stack else sp.false
        return sp.Tuple(self.axis, self.groups, is_stack, sp.Tuple(*self.sizes))

    def shape_symbols(self, size: sp.Expr) -> dict[sp.Symbol, sp.Expr]:
        """Returns the symbols of the shape of a block, by the symbols of the parameter."""
        if self.is_stack:
            sizes = {axis_size(axis): axis_size(axis + 1) for axis in range(_AXES.stop - 1)}
            return {RANK: RANK - 1, SIZE: SIZE / axis_size(0), **sizes}
        symbols: dict[sp.Symbol, sp.Expr] = {SIZE: size * (SIZE / axis_size(self.axis))}
        for axis in _AXES:
            # The axis counted from the other end is another one for each rank. A product with 1 or
            # 0: of a Piecewise in a condition SymPy solves inequalities, for 0.6 s a block.
            if (axis < 0) != (self.axis < 0):
                is_the_axis = sp.Max(0, 1 - sp.Abs(RANK - abs(axis - self.axis)))
                other_size = axis_size(axis)
                symbols[other_size] = other_size + is_the_axis * (size - other_size)
        return {**symbols, axis_size(self.axis): size}


Partitions = Partition | int | Sequence[int]
"""A partition, the number of equal blocks of rows, or the sizes of blocks of rows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The shapes of the blocks of a parameter of a shape.

    Attributes:
        shape: The shape of the parameter.
        axis: The axis of the blocks, counted from the first.
        groups: The number of groups along it.
        is_stack: Whether a block loses it.
        sizes: The sizes of the blocks along it.
    """

    shape: Shape
    axis: int
    groups: int
    is_stack: bool
    sizes: tuple[int, ...]

    @staticmethod
    def of(layout: sp.Tuple, shape: Shape) -> Layout:
        """Returns the layout that the last argument of a function of blocks holds."""
        axis, groups, is_stack, sizes = layout.args
        numbers = tuple(int(size) for size in sizes.args)
        return Layout(shape, int(axis) % len(shape), int(groups), is_stack == sp.true, numbers)

    @property
    def joint_axis(self) -> int:
        """The axis of the blocks in ``with_groups``."""
        return self.axis + (self.groups > 1)

    def block(self, place: int) -> Shape:
        """Returns the shape of a block."""
        sizes = () if self.is_stack else (self.sizes[place],)
        return (*self.shape[: self.axis], *sizes, *self.shape[self.axis + 1 :])

    def with_groups(self, size: int) -> Shape:
        """Returns a shape of so many places along the axis, which groups become another axis of."""
        sizes = (size,) if self.groups == 1 else (self.groups, size // self.groups)
        return (*self.shape[: self.axis], *sizes, *self.shape[self.axis + 1 :])

    def ends(self, place: int) -> tuple[int, int]:
        """Returns the first place of a block along the joint axis, and that behind the last."""
        start = sum(self.sizes[:place]) // self.groups
        return start, start + self.sizes[place] // self.groups


@with_checked_keywords
def partition(rule: UpdateRule, blocks: Partitions | None) -> UpdateRule:
    """Returns a rule that steps each block of a parameter as a parameter of its shape.

    A state of the parameter's shape is partitioned as the parameter is; another state exists once
    for each block, as the ``Q`` of Dion in the example.

    Args:
        rule: The rule of a block.
        blocks: The sizes of the blocks of rows, their number where they are equal, or a
            :class:`Partition`; None for the rule itself.

    Raises:
        DefinitionError: The blocks do not make a partition, or the rule is partitioned already, or
            it has states of the model or sums over it.

    Example:
        >>> from closedform import optimizers
        >>> rule = partition(optimizers.dion(rank=2), (4, 2, 2))
        >>> [(name, rule.state_shape(name, (8, 4))) for name in rule.for_shape((8, 4)).states]
        [('momentum', (8, 4)), ('block_0_Q', (4, 2)), ('block_1_Q', (4, 2)), ('block_2_Q', (4, 2))]
    """
    if blocks is None:
        return rule
    division = blocks if isinstance(blocks, Partition) else Partition(blocks)
    is_joint = any(expr.has(GlobalSum, Joined) for expr in rule.all_expressions())
    if is_joint or rule.shared or rule.evaluation is not None:
        raise DefinitionError(
            f"rule {rule.name!r} is partitioned already, or looks at the whole model",
            where="partition",
            hint="partition the rule first, and then apply other transforms",
        )
    shapes = {size: division.shape_symbols(size) for size in division.sizes}
    versions = [
        _BlockVersion(rule, division, place, shapes[size])
        for place, size in enumerate(division.sizes)
    ]
    states: dict[str, State] = {}
    for name, spec in rule.states.items():
        parts = [version.state(spec) for version in versions]
        if spec.shape == "param":
            following = Joined(*(part.next for part in parts), division.layout)
            exists = sp.And(*(part.exists for part in parts))
            states[name] = replace(spec, next=following, exists=exists)
        else:
            states |= {_state_of_block(place, name): part for place, part in enumerate(parts)}
    return replace(
        rule,
        param=Joined(*(version.of(rule.param) for version in versions), division.layout),
        states=states,
        definitions={k: v for version in versions for k, v in version.definitions.items()},
        requires=sp.And(division.condition, *map(rule.requires.xreplace, shapes.values())),
    )


def _state_of_block(place: int, name: str) -> str:
    return f"block_{place}_{name}"


class _BlockVersion:
    """The expressions of a rule for one block, its tensors and definitions as definitions."""

    def __init__(
        self, rule: UpdateRule, blocks: Partition, place: int, sizes: Mapping[sp.Symbol, sp.Expr]
    ) -> None:
        self.place, self.layout = place, blocks.layout
        tensors = {
            symbol: Block(symbol, place, self.layout)
            for symbol in (PARAM, GRAD, *map(tensor_input, rule.inputs))
        }
        for name, spec in rule.states.items():
            # A state of another shape than the parameter's is kept by block.
            block = Block(state(name), place, self.layout)
            tensors[state(name)] = (
                block if spec.shape == "param" else state(_state_of_block(place, name))
            )
        self.symbols: dict[sp.Basic, sp.Basic] = {
            **{symbol: local(f"block_{place}.{symbol.name}") for symbol in tensors},
            **{local(name): local(f"block_{place}_{name}") for name in rule.definitions},
            **sizes,
        }
        self.definitions = {f"block_{place}.{symbol.name}": x for symbol, x in tensors.items()}
        for name, expr in rule.definitions.items():
            self.definitions[f"block_{place}_{name}"] = self.of(expr)

    def of(self, expr: Any) -> Any:
        """Returns an expression, or a condition on the shape, for the block."""
        expr = expr.xreplace(self.symbols)
        if not expr.has(LikeParam):
            return expr
        return expr.replace(LikeParam, lambda x: LikeBlock(x, self.place, self.layout))

    def state(self, spec: State) -> State:
        """Returns a state for the block."""
        shape = spec.shape
        if isinstance(shape, Without):
            raise DefinitionError(
                "a state without axes of the parameter has no blocks", where="partition"
            )
        if isinstance(shape, Sizes):
            shape = Sizes(tuple(self.of(sp.Integer(1) * size) for size in shape.sizes))
        return replace(spec, next=self.of(spec.next), exists=self.of(spec.exists), shape=shape)
