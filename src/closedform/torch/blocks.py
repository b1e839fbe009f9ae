"""Rules that step by blocks: states of few bits, sharded with their parameters.

A rule steps by blocks if the elements of a block, which follow each other in the parameter, need no
element of another one. A shard of whole blocks is then stepped as if it were a parameter, and its
codes and scales are parts of the full ones.

Example:
    >>> from closedform import optimizers, transforms
    >>> rule = transforms.eight_bit_states(optimizers.adamw()).for_shape((64, 64))
    >>> steps_by_blocks(rule, (64, 64)), steps_by_blocks(optimizers.adafactor(), (64, 64))
    (True, False)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

import sympy as sp
from torch import Tensor

from closedform.language import GRAD, PARAM, UpdateRule, local, state
from closedform.language.functions import (
    WHOLE_TENSOR,
    LikeParam,
    Positions,
    ReduceMax,
    ReduceSum,
    Reshape,
)
from closedform.language.model import GlobalSum
from closedform.language.shapes import Shape
from closedform.torch.shards import row_shards


class _Kind(Enum):
    """The elements of an expression: of the parameter, or of blocks along the first axis."""

    SCALAR = "scalar"
    ELEMENTS = "elements"
    BLOCKS = "blocks"


def block_rule(rule: UpdateRule, param: Tensor) -> UpdateRule | None:
    """Returns the rule of the local part of a DTensor whose shards are whole blocks, or None.

    All processes decide alike: the shards are rows, and of one size.
    """
    count = row_shards(param)
    return None if count is None else _block_rule(rule, tuple(param.shape), count)


@lru_cache(128)
def _block_rule(rule: UpdateRule, shape: Shape, count: int) -> UpdateRule | None:
    rows, *others = map(int, shape)
    if rows % count:
        return None
    part = (rows // count, *others)
    full_rule, part_rule = rule.for_shape(shape), rule.for_shape(part)
    has_states = full_rule.states.keys() == part_rule.states.keys()
    return part_rule if has_states and steps_by_blocks(part_rule, part) else None


def steps_by_blocks(rule: UpdateRule, shape: Shape) -> bool:
    """Returns whether a rule for a shape steps each block by itself.

    Args:
        rule: The rule, for this shape.
        shape: The shape of the parameter.
    """
    block_counts = {
        rule.state_shape(name, shape)[0]
        for name, spec in rule.states.items()
        if spec.shape not in ("param", "scalar")
    }
    if len(block_counts) != 1 or rule.shared or rule.inputs or rule.advances != sp.true:
        return False
    (block_count,) = block_counts
    if math.prod(map(int, shape)) % int(block_count):
        return False
    kinds: dict[sp.Basic, _Kind | None] = {PARAM: _Kind.ELEMENTS, GRAD: _Kind.ELEMENTS}
    state_kinds = {"param": _Kind.ELEMENTS, "scalar": _Kind.SCALAR}
    for name, spec in rule.states.items():
        kinds[state(name)] = state_kinds.get(str(spec.shape), _Kind.BLOCKS)
    for name, expr in rule.definitions.items():
        kinds[local(name)] = _kind(expr, kinds, block_count)
    following = {state(name): spec.next for name, spec in rule.states.items()}
    return all(
        _kind(expr, kinds, block_count) in (kinds[symbol], _Kind.SCALAR)
        for symbol, expr in {PARAM: rule.param, **following}.items()
    )


def _kind(
    expr: sp.Basic, kinds: Mapping[sp.Basic, _Kind | None], block_count: sp.Basic
) -> _Kind | None:
    """The kind of an expression; None if it is another one."""
    if expr in kinds:
        return kinds[expr]
    if not expr.args:
        return _Kind.SCALAR
    if isinstance(expr, WHOLE_TENSOR):
        operand, *options = expr.args
        kind = _kind(operand, kinds, block_count)
        if isinstance(expr, Reshape) and kind in (_Kind.ELEMENTS, _Kind.BLOCKS):
            return _Kind.BLOCKS if options[0].args[0] == block_count else None
        if isinstance(expr, LikeParam) and kind is _Kind.BLOCKS:
            return _Kind.ELEMENTS
        is_within = kind is _Kind.BLOCKS and bool(options)
        if isinstance(expr, Positions) and is_within and options[0] != 0:
            return _Kind.BLOCKS
        if isinstance(expr, ReduceMax | ReduceSum) and is_within and 0 not in options[0].args:
            return _Kind.BLOCKS
        return None
    operand_kinds = {_kind(operand, kinds, block_count) for operand in expr.args}
    operand_kinds -= {_Kind.SCALAR}
    if isinstance(expr, GlobalSum) or len(operand_kinds) > 1:
        return None
    return operand_kinds.pop() if operand_kinds else _Kind.SCALAR
