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
from collections.abc import Mapping, Sequence
from functools import lru_cache

import sympy as sp
from torch import Tensor

from closedform.errors import DefinitionError
from closedform.language import GRAD, PARAM, AllBut, UpdateRule, local, state
from closedform.language.functions import (
    WHOLE_TENSOR,
    LikeParam,
    Positions,
    ReduceMax,
    ReduceSum,
    Reshape,
)
from closedform.language.model import GlobalSum
from closedform.language.shapes import NAMED_RULES, Shape
from closedform.torch.shards import row_shards

SCALAR, ELEMENTS = "scalar", "elements"
Kind = str | int | None
"""Kind of an expression: a number, a tensor of the parameter's shape, a tensor of so many axes with
the blocks along the first one, or None for another tensor."""


def block_rule(rule: UpdateRule, param: Tensor) -> UpdateRule | None:
    """Returns the rule of the local part of a DTensor whose shards are whole blocks, or None.

    All processes decide alike: the shards are rows, and of one size.
    """
    count = row_shards(param)
    return None if count is None else _block_rule(rule, tuple(param.shape), count)


@lru_cache(128)
def _block_rule(rule: UpdateRule, shape: Shape, count: int) -> UpdateRule | None:
    rows, *sizes = map(int, shape)
    # Before the shapes: most rules have no such state, and a rule for a shape is built by SymPy.
    if rows % count or all(spec.shape in NAMED_RULES for spec in rule.states.values()):
        return None
    part = (rows // count, *sizes)
    try:
        full_rule, part_rule = rule.for_shape(shape), rule.for_shape(part)
        is_by_blocks = steps_by_blocks(part_rule, part)
    except DefinitionError:  # the rule, or one of its states, is not for the part
        return None
    has_states = full_rule.states.keys() == part_rule.states.keys()
    return part_rule if has_states and is_by_blocks else None


def steps_by_blocks(rule: UpdateRule, shape: Shape) -> bool:
    """Returns whether a rule for a shape steps each block by itself.

    Args:
        rule: The rule, for this shape.
        shape: The shape of the parameter.
    """
    shapes = {
        name: rule.state_shape(name, shape)
        for name, spec in rule.states.items()
        if spec.shape not in NAMED_RULES
    }
    block_counts = {sizes[0] for sizes in shapes.values()}
    if len(block_counts) != 1 or rule.shared or rule.inputs or rule.advances != sp.true:
        return False
    (block_count,) = block_counts
    if math.prod(map(int, shape)) % int(block_count):
        return False
    kinds: dict[sp.Basic, Kind] = {PARAM: ELEMENTS, GRAD: ELEMENTS}
    for name, spec in rule.states.items():
        named_kind = ELEMENTS if spec.shape == "param" else SCALAR
        kinds[state(name)] = len(shapes[name]) if name in shapes else named_kind
    for name, expr in rule.definitions.items():
        kinds[local(name)] = _kind(expr, kinds, block_count)
    results = [(PARAM, rule.param), *((state(n), spec.next) for n, spec in rule.states.items())]
    if rule.evaluation is not None:
        results.append((PARAM, rule.evaluation))
    return all(
        _kind(expr, kinds, block_count) in (kinds[symbol], SCALAR) for symbol, expr in results
    )


def _kind(expr: sp.Basic, kinds: Mapping[sp.Basic, Kind], block_count: sp.Basic) -> Kind:
    """The kind of an expression."""
    if expr in kinds:
        return kinds[expr]
    if not expr.args:
        return SCALAR
    if isinstance(expr, WHOLE_TENSOR):
        operand, *options = expr.args
        return _whole_kind(expr, _kind(operand, kinds, block_count), options, block_count)
    # Tensors of different ranks are aligned at their last axes, where a block meets another one.
    operand_kinds = {_kind(operand, kinds, block_count) for operand in expr.args} - {SCALAR}
    if isinstance(expr, GlobalSum) or len(operand_kinds) > 1:
        return None
    return operand_kinds.pop() if operand_kinds else SCALAR


def _whole_kind(
    expr: sp.Basic, kind: Kind, options: Sequence[sp.Basic], block_count: sp.Basic
) -> Kind:
    """The kind of a function of a whole tensor, from that of its operand."""
    if isinstance(expr, Reshape) and kind not in (SCALAR, None):
        sizes = options[0].args
        return len(sizes) if sizes[0] == block_count else None
    if not isinstance(kind, int):
        return None
    if isinstance(expr, LikeParam):
        return ELEMENTS
    if isinstance(expr, Positions) and int(options[0]) % kind != 0:
        return kind
    if isinstance(expr, ReduceMax | ReduceSum) and options and not isinstance(options[0], AllBut):
        axes = {int(axis) % kind for axis in options[0].args}
        if 0 not in axes:
            return kind if options[1] == sp.true else kind - len(axes)
    return None
