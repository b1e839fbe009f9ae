"""States of eight bits: codes of a dynamic map, in blocks that share one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import (
    SIZE,
    Sizes,
    State,
    UpdateRule,
    like_param,
    local,
    reduce_max,
    reshape,
    state,
)
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import (
    check_rule,
    step_count,
    substitute_symbols,
    unused_name,
    with_states,
)

_DECADES = 7
"""The decades below 1 that the map covers, each with twice as many codes as the one below."""

_SHIFT = 128
"""The difference between a code, from 0 to 255, and the integer of 8 bits that is stored."""

# A block of zeros would have the scale 0 and codes of 0 / 0; torchao's kernels clamp at 1e-12.
_LEAST_SCALE = sp.Rational(1, 10**12)


@with_checked_keywords
def eight_bit_states(
    rule: UpdateRule,
    signed: Sequence[str] = ("exp_avg",),
    unsigned: Sequence[str] = ("exp_avg_sq",),
    *,
    block: int = 256,
    least_size: int = 4096,
) -> UpdateRule:
    r"""Returns a rule whose states are codes of eight bits, with one scale for each block.

    .. math:: s = a\, q(c), \qquad a' = \max_{block} |s'|, \quad c' = \arg\min_c |q(c) - s' / a'|

    for the state s of the rule. The map q has 0, 1 and, in each of the seven decades :math:`10^{e -
    6}`, e = 0 … 6, the midpoints of :math:`2^e` equal parts of (0.1, 1), with both signs; unsigned,
    of :math:`2^{e + 1}` parts. The steps of the rule read and write s; between them there is only
    its code, so that each state is rounded once a step.

    The elements of a parameter are taken in order, ``block`` to a scale. A state that is not the
    parameter's shape, and a parameter of fewer than ``least_size`` elements or of a number that
    blocks do not divide, are not coded.

    States, in place of each coded one: ``…_code``, c - 128 as int8, of shape [blocks, block];
    ``…_scale`` a, of shape [blocks, 1], in the dtype of the parameter. They begin at the code of 0
    and at 0; from the first step on a scale is at least 1e-12. At 256 elements to a scale of
    float32 a state takes 1.016 bytes for each element.

    Coding is off by at most half of the largest gap of the map: :math:`|s - a q(c)| \le 0.9 a /
    128`, and half of that unsigned. An element that is NaN makes its block NaN.

    Args:
        rule: The rule.
        signed: The names of states that may be below 0; those that the rule lacks are left out.
        unsigned: The names of states that may not.
        block: The number of elements B >= 1 that share a scale.
        least_size: The number of elements from which on states are coded.

    Raises:
        DefinitionError: The rule has none of these states, a state does not begin at 0, a name is
            in both lists, or a number is out of its range.

    Example:
        >>> from closedform import optimizers
        >>> rule = eight_bit_states(optimizers.adamw(1e-3))
        >>> list(rule.for_shape((64, 64)).states)
        ['exp_avg_code', 'exp_avg_scale', 'exp_avg_sq_code', 'exp_avg_sq_scale']
        >>> list(rule.for_shape((64,)).states)
        ['exp_avg', 'exp_avg_sq']

    Source: Dettmers et al., 8-bit optimizers via block-wise quantization (2022), section 2 and
    appendix F; the map of ``create_dynamic_map`` and the blocks of bitsandbytes and torchao, which
    leave other sizes uncoded as well.
    """
    where = "eight_bit_states"
    check_rule(rule, where)
    size, least = step_count(block, "block", where), step_count(least_size, "least_size", where, 0)
    in_both = set(signed) & set(unsigned)
    names = [name for name in rule.states if name in {*signed, *unsigned}]
    if in_both or not names:
        state_names = ", ".join(rule.states) or "none"
        problem = f"{min(in_both)!r} is in both lists" if in_both else "no state is coded"
        raise DefinitionError(
            f"{problem}: rule {rule.name!r} has the states {state_names}",
            where=where,
            hint=nearest((*signed, *unsigned, "")[0], tuple(rule.states)),
        )
    is_coded = sp.And(sp.Ge(SIZE, least), sp.Eq(sp.Mod(SIZE, size), 0))
    coded_rule = rule
    for name in names:
        coded_rule = _code_state(coded_rule, name, name in signed, size, is_coded)
    return coded_rule


def _code_state(
    rule: UpdateRule, name: str, is_signed: bool, block: sp.Integer, is_coded: sp.Basic
) -> UpdateRule:
    """The rule with one state as codes and scales."""
    spec = rule.states[name]
    if spec.shape != "param" or spec.initial != 0 or spec.exists != sp.true:
        raise DefinitionError(
            f"a coded state has the parameter's shape and begins at 0, which {name!r} does not",
            where="eight_bit_states",
        )
    count, zero = SIZE / block, 127 if is_signed else 0
    shapes = {"code": Sizes((count, block)), "scale": Sizes((count, sp.Integer(1)))}
    code_states = {f"{name}_{part}": State(0, 0, shape, is_coded) for part, shape in shapes.items()}
    extended_rule = with_states(rule, "eight_bit_states", **code_states)
    code, scale = state(f"{name}_code") + _SHIFT, state(f"{name}_scale")
    value = like_param(scale * dequantize(code, is_signed))
    read, next_name = unused_name(extended_rule, name), unused_name(extended_rule, f"{name}_next")
    whole = sp.Piecewise((value, is_coded), (state(name), True))
    substituted_rule = substitute_symbols(extended_rule, {state(name): local(read)}, {read: whole})
    # Axes [block, element]: the maximum over axis 1 is one scale a block.
    blocks = reshape(local(next_name), (count, block))
    largest = sp.Max(reduce_max(sp.Max(blocks, -blocks), (1,), True), _LEAST_SCALE)
    following = {
        name: State(local(next_name), 0, "param", sp.Not(is_coded)),
        f"{name}_code": State(
            quantize(blocks / largest, is_signed) - _SHIFT,
            zero - _SHIFT,
            shapes["code"],
            is_coded,
            stored="i8",
        ),
        f"{name}_scale": State(largest, 0, shapes["scale"], is_coded),
    }
    definitions = {**substituted_rule.definitions, next_name: substituted_rule.states[name].next}
    other_states = {
        key: old for key, old in substituted_rule.states.items() if key not in following
    }
    return replace(substituted_rule, states={**other_states, **following}, definitions=definitions)


def dequantize(code: sp.Expr, is_signed: bool) -> sp.Expr:
    """Returns the value of a code, from 0 to 255, of the dynamic map: lines in each decade."""
    if not is_signed:
        return _value(code, 2)
    # Codes below 127 are negative, 127 is 0.
    size = _value(sp.Max(code - 127, 127 - code), 1)
    return sp.Piecewise((-size, code < 127), (size, True))


def quantize(part: sp.Expr, is_signed: bool) -> sp.Expr:
    """Returns the code of the value of the dynamic map that is nearest to a number in [-1, 1]."""
    if not is_signed:
        return _index(part, 2, 1)
    # There is no code of -1.
    below = 127 - sp.Min(_index(-part, 1, 0), 127)
    return sp.Piecewise((below, part < 0), (127 + _index(part, 1, 1), True))


def _offset(decade: int, parts: int) -> int:
    """The number of values above 0 that are below a decade."""
    return parts * (int(2**decade) - 1)


def _midpoint(decade: int, parts: int, place: int) -> sp.Rational:
    """A value of the map: the middle of a part of a decade."""
    count = parts * 2**decade
    part = sp.Rational(1, 10) + sp.Rational(9, 10) * sp.Rational(2 * place + 1, 2 * count)
    return part * sp.Integer(10) ** (decade - _DECADES + 1)


def _value(index: sp.Expr, parts: int) -> sp.Expr:
    """The value at an index: 0, the values of each decade, and 1."""
    branches: list[tuple[sp.Expr, sp.Basic]] = [(sp.Integer(0), index < 1)]
    for decade in range(_DECADES):
        first, begin = _midpoint(decade, parts, 0), 1 + _offset(decade, parts)
        width = _midpoint(decade, parts, 1) - first
        # A decade is a line in the index: seven branches, where a table has 256 entries and needs a
        # lookup for each element.
        line = first + width * (index - begin)
        branches.append((line, index < begin + parts * 2**decade))
    return sp.Piecewise(*branches, (sp.Integer(1), True))


def _index(size: sp.Expr, parts: int, has_one: int) -> sp.Expr:
    """The index of the value that is nearest to a number from 0 to 1."""
    before = sp.Integer(0)
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    previous: sp.Expr = sp.Integer(0)
    for decade in range(_DECADES):
        first, count = _midpoint(decade, parts, 0), parts * 2**decade
        # Rounding to nearest: the border of two values is their midpoint.
        branches.append((previous, size < (before + first) / 2))
        # The lowest signed decade has a single value, and no width.
        width = _midpoint(decade, parts, 1) - first if count > 1 else sp.Integer(1)
        place = sp.floor((size - first) / width + sp.Rational(1, 2))
        inside = sp.Min(sp.Max(place, 0), count - 1)
        previous = 1 + _offset(decade, parts) + inside
        before = _midpoint(decade, parts, count - 1)
    end = 1 + _offset(_DECADES, parts)
    if not has_one:
        return sp.Piecewise(*branches, (previous, True))
    branches.append((previous, size < (before + 1) / 2))
    return sp.Piecewise(*branches, (sp.Integer(end), True))
