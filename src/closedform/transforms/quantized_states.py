"""States of 8 and of 4 bits: codes of a book, in blocks that share one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import (
    PARAM,
    SIZE,
    Sizes,
    State,
    UpdateRule,
    like_param,
    local,
    positions,
    reduce_max,
    reduce_sum,
    reshape,
    state,
)
from closedform.language.arguments import step_count
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.code_books import CodeBook, dynamic_book, linear_book
from closedform.transforms.substitution import (
    check_rule,
    check_unstored,
    substitute_symbols,
    unused_name,
    with_definition,
    with_states,
)

_SHIFT = 128
"""The difference between a byte, from 0 to 255, and the integer of 8 bits that is stored."""

# A block of zeros would have the scale 0 and codes of 0 / 0; torchao's kernels clamp at 1e-12.
_LEAST_SCALE = sp.Rational(1, 10**12)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a state is stored.

    Attributes:
        bits: The bits of a code, a divisor of 8.
        block: The number of elements that share a scale, if the caller names none.
        signed: The code book of states that may be below 0.
        unsigned: The code book of states that may not.
    """

    bits: int
    block: int
    signed: CodeBook
    unsigned: CodeBook


EIGHT_BITS = Quantization(
    8, 256, dynamic_book(7, 1, is_signed=True), dynamic_book(7, 2, is_signed=False)
)
FOUR_BITS = Quantization(4, 128, dynamic_book(3, 1, is_signed=True), linear_book(16))
QUANTIZATIONS: Mapping[str, Quantization] = {
    "eight_bit_states": EIGHT_BITS,
    "four_bit_states": FOUR_BITS,
}
"""By transform."""


@dataclass(frozen=True, slots=True)
class _Coding:
    """Codes of a book in blocks of a parameter, packed into bytes."""

    book: CodeBook
    bits: int
    block: sp.Integer

    @property
    def block_count(self) -> sp.Expr:
        """The number of blocks."""
        return SIZE / self.block

    @property
    def codes_per_byte(self) -> int:
        """The number of codes in a byte."""
        return 8 // self.bits

    @property
    def shape_of_bytes(self) -> tuple[sp.Expr, sp.Expr]:
        """The shape of the packed codes."""
        return self.block_count, self.block / self.codes_per_byte

    @property
    def first_byte(self) -> int:
        """The byte whose codes are all that of 0, or of the value next to it."""
        return sum(self.book.lowest << self.bits * place for place in range(self.codes_per_byte))

    def pack(self, codes: sp.Expr) -> sp.Expr:
        """Returns the bytes of codes of shape [blocks, block]; the first has the highest bits."""
        if self.codes_per_byte == 1:
            return codes
        by_byte = reshape(codes, (*self.shape_of_bytes, self.codes_per_byte))
        highest = self.codes_per_byte - 1
        weights = [sp.Integer(1) << self.bits * (highest - i) for i in range(self.codes_per_byte)]
        # Sums of whole numbers up to 255 are exact in any order.
        return reduce_sum(by_byte * self._choose_by_place(weights), (2,))

    def unpack(self, packed: sp.Expr) -> sp.Expr:
        """Returns the codes of bytes, of shape [blocks, block]."""
        if self.codes_per_byte == 1:
            return packed
        higher = reshape(packed, (*self.shape_of_bytes, 1))
        digits: list[sp.Expr] = []
        for _ in range(self.codes_per_byte - 1):
            # Exact: float32 holds the quotients of whole numbers up to 255 by powers of 2.
            packed_digits, higher = higher, sp.floor(higher / 2**self.bits)
            digits.insert(0, packed_digits - 2**self.bits * higher)
        codes = self._choose_by_place([higher, *digits])
        return reshape(codes, (self.block_count, self.block))

    def _choose_by_place(self, choices: Sequence[sp.Expr]) -> sp.Expr:
        """The first choice at the first code of each byte, and so on."""
        *earlier, last = choices
        # Any tensor of this shape has these places.
        places = positions(reshape(PARAM, (*self.shape_of_bytes, self.codes_per_byte)), -1)
        branches = [(choice, sp.Lt(places, i + 1)) for i, choice in enumerate(earlier)]
        return sp.Piecewise(*branches, (last, True))


@with_checked_keywords
def eight_bit_states(
    rule: UpdateRule,
    signed: Sequence[str] = ("exp_avg",),
    unsigned: Sequence[str] = ("exp_avg_sq",),
    *,
    block: int = EIGHT_BITS.block,
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
    return _quantize_states(rule, signed, unsigned, block, least_size, "eight_bit_states")


@with_checked_keywords
def four_bit_states(
    rule: UpdateRule,
    signed: Sequence[str] = ("exp_avg",),
    unsigned: Sequence[str] = ("exp_avg_sq",),
    *,
    block: int = FOUR_BITS.block,
    least_size: int = 4096,
) -> UpdateRule:
    r"""Returns a rule whose states are codes of four bits, two to a byte, with scales of blocks.

    .. math:: s = a\, q(c), \qquad a' = \max_{block} |s'|, \quad c' = \arg\min_c |q(c) - s' / a'|

    as :func:`eight_bit_states`, with other maps. Signed, q has 0, 1 and, in each of the three
    decades :math:`10^{e - 2}`, e = 0 … 2, the midpoints of :math:`2^e` equal parts of (0.1, 1),
    with both signs: 0, ±0.0055, ±0.0325, ±0.0775, ±0.2125, ±0.4375, ±0.6625, ±0.8875, 1. Unsigned,
    :math:`q(c) = (c + 1) / 16` without 0: a second moment that is rounded to 0 would divide the
    step by ε.

    States, in place of each coded one: ``…_code``, :math:`16 c_{2 i} + c_{2 i + 1} - 128` as int8,
    of shape [blocks, block / 2]; ``…_scale`` a, of shape [blocks, 1], in the dtype of the
    parameter. Signed states begin at the code of 0, unsigned ones at c = 0, and scales at 0; from
    the first step on a scale is at least 1e-12, so that unsigned zeros are read as 1e-12 / 16. At
    128 elements to a scale of float32 a state takes 0.531 bytes for each element. The bytes
    equal torchao's with the highest bit inverted.

    Coding is off by at most half of the largest gap of the map: :math:`|s - a q(c)| \le 0.1125 a`,
    and :math:`a / 16` unsigned, where s is near 0. An element that is NaN makes its block NaN.

    Args:
        rule: The rule.
        signed: The names of states that may be below 0; those that the rule lacks are left out.
        unsigned: The names of states that may not.
        block: The number of elements B that share a scale, a multiple of 2.
        least_size: The number of elements from which on states are coded.

    Raises:
        DefinitionError: The rule has none of these states, a state does not begin at 0, a name is
            in both lists, or a number is out of its range.

    Example:
        >>> from closedform import optimizers
        >>> rule = four_bit_states(optimizers.adamw(1e-3))
        >>> list(rule.for_shape((64, 64)).states)
        ['exp_avg_code', 'exp_avg_scale', 'exp_avg_sq_code', 'exp_avg_sq_scale']
        >>> list(rule.for_shape((65, 64)).states)
        ['exp_avg', 'exp_avg_sq']

    Source: Li, Chen and Zhu, Memory efficient optimizers with 4-bit states (2023), with the maps
    and blocks of their fused optimizer (``2nd_moment_group_128.yml``) and of torchao's
    ``AdamW4bit``, which packs codes in this order and leaves other sizes uncoded as well. Their
    scales of rows and columns of the second moment are not part of either.
    """
    return _quantize_states(rule, signed, unsigned, block, least_size, "four_bit_states")


def _quantize_states(
    rule: UpdateRule,
    signed: Sequence[str],
    unsigned: Sequence[str],
    block: int,
    least_size: int,
    where: str,
) -> UpdateRule:
    """The rule with states as codes, by the quantization of a transform."""
    quantization = QUANTIZATIONS[where]
    check_rule(rule, where)
    size, least = step_count(block, "block", where), step_count(least_size, "least_size", where, 0)
    codes_per_byte = 8 // quantization.bits
    if size % codes_per_byte:
        raise DefinitionError(
            f"block must be a multiple of {codes_per_byte}, the codes of a byte, got {block}",
            where=where,
        )
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
        book = quantization.signed if name in signed else quantization.unsigned
        coding = _Coding(book, quantization.bits, size)
        coded_rule = _code_state(coded_rule, name, coding, is_coded, where)
    return coded_rule


def _code_state(
    rule: UpdateRule, name: str, coding: _Coding, is_coded: sp.Basic, where: str
) -> UpdateRule:
    """The rule with one state as codes and scales."""
    spec = rule.states[name]
    if spec.shape != "param" or spec.initial != 0 or spec.exists != sp.true:
        raise DefinitionError(
            f"a coded state has the parameter's shape and begins at 0, which {name!r} does not",
            where=where,
        )
    check_unstored(rule, [name], where)
    shapes = {
        "code": Sizes(coding.shape_of_bytes),
        "scale": Sizes((coding.block_count, sp.Integer(1))),
    }
    code_states = {f"{name}_{part}": State(0, 0, shape, is_coded) for part, shape in shapes.items()}
    extended_rule = with_states(rule, where, **code_states)
    codes, read = (unused_name(extended_rule, label) for label in (f"{name}_codes", name))
    # The codes are a definition: SymPy would move a Reshape inside of the Piecewise of digits where
    # that is in a condition.
    value = like_param(state(f"{name}_scale") * coding.book.dequantize(local(codes)))
    first = {
        key: sp.Piecewise((expr, is_coded), (state(name), True))
        for key, expr in ((codes, coding.unpack(state(f"{name}_code") + _SHIFT)), (read, value))
    }
    substituted_rule = substitute_symbols(extended_rule, {state(name): local(read)}, first)
    next_value = substituted_rule.states[name].next
    coded_rule, next_state = with_definition(substituted_rule, f"{name}_next", next_value)
    # Axes [block, element]: the maximum over axis 1 is one scale a block.
    blocks = reshape(next_state, (coding.block_count, coding.block))
    largest = sp.Max(reduce_max(sp.Max(blocks, -blocks), (1,), True), _LEAST_SCALE)
    following = {
        name: State(next_state, 0, "param", sp.Not(is_coded)),
        f"{name}_code": State(
            coding.pack(coding.book.quantize(blocks / largest)) - _SHIFT,
            coding.first_byte - _SHIFT,
            shapes["code"],
            is_coded,
            stored="i8",
        ),
        f"{name}_scale": State(largest, 0, shapes["scale"], is_coded),
    }
    other_states = {key: old for key, old in coded_rule.states.items() if key not in following}
    return replace(coded_rule, states={**other_states, **following})
