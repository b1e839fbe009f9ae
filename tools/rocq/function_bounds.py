"""The intervals of cosines, exponentials, floors and extrema, from the intervals of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flint import fmpq

from closedform.verify.checker import intervals as arithmetic
from closedform.verify.checker.intervals import EVERYWHERE, Interval
from tools.rocq.definitions import FUNCTIONS, InexpressibleError, number_text
from tools.rocq.ends import Proof, end_text, ends_text, opposite, rational_text
from tools.rocq.power_bounds import power_bounds

if TYPE_CHECKING:
    from tools.rocq.bounds import Bounds

# Cosines that are rational; all others are bounded by series.
_COSINES = {
    fmpq(0): "cospi_zero",
    fmpq(1): "cospi_one",
    fmpq(1, 2): "cospi_half",
    fmpq(1, 3): "cospi_third",
    fmpq(2, 3): "cospi_two_thirds",
}


def function_bounds(
    bounds: Bounds, op: str, texts: Sequence[str], insides: Sequence[Proof], target: Interval
) -> Proof:
    """Returns the proof of the interval of a function, by the proofs for its arguments.

    Args:
        bounds: The intervals that the proof is one of.
        op: The function.
        texts: The arguments, as they are printed.
        insides: The proofs of their intervals, with the ends written out.
        target: The interval of the checker.

    Raises:
        InexpressibleError: The interval of this function is not printed.
    """
    inside = insides[0]
    if target == EVERYWHERE:
        return "(b_unknown _)", EVERYWHERE
    if op == "cospi":
        return _cosine(bounds, texts[0], inside, target)
    if op in ("exp", "log", "atan"):
        return _monotone(bounds, FUNCTIONS[op], texts[0], inside, target)
    if op == "floor":
        return _floor(bounds, inside, target)
    if op == "abs":
        return size_bounds(bounds, texts[0], inside)
    if op in ("min", "max"):
        extremum = _least if op == "min" else _greatest
        left, right = insides
        return extremum(bounds, left, right)
    if op == "sign":
        return f"(b_sgn {texts[0]})", (fmpq(-1), fmpq(1))
    if op == "^":
        return power_bounds(bounds, insides[0], insides[1], target)
    raise InexpressibleError(f"the interval of {op} is not printed")


def size_bounds(bounds: Bounds, name: str, inside: Proof) -> Proof:
    """Returns the proof of the interval of an absolute value, of a number as it is printed."""
    target = arithmetic._size(inside[1])
    negative = opposite(inside)
    proof = _greatest(bounds, inside, negative)
    proof = f"(b_equal (abs_is_max {name}) {proof[0]})", proof[1]
    low = proof[1][0]
    if low is None or low < 0:
        high = bounds.widen(proof, (None, target[1]))
        return f"(b_both (b_abs {name}) {high[0]})", (fmpq(0), target[1])
    return proof


def _greatest(bounds: Bounds, left: Proof, right: Proof) -> Proof:
    target = arithmetic._greatest(left[1], right[1])
    low, high = "(b_unknown _)", "(b_unknown _)"
    if target[0] is not None:
        side = left if left[1][0] == target[0] else right
        place = "or_introl" if side is left else "or_intror"
        inner = bounds.widen(side, (target[0], None))
        low = f"(b_max_low ({place} {inner[0]}))"
    if target[1] is not None:
        sides = [bounds.widen(side, (None, target[1]))[0] for side in (left, right)]
        high = f"(b_max_high {' '.join(sides)})"
    return f"(b_both {low} {high})", target


def _least(bounds: Bounds, left: Proof, right: Proof) -> Proof:
    target = arithmetic._least(left[1], right[1])
    low, high = "(b_unknown _)", "(b_unknown _)"
    if target[0] is not None:
        sides = [bounds.widen(side, (target[0], None))[0] for side in (left, right)]
        low = f"(b_min_low {' '.join(sides)})"
    if target[1] is not None:
        side = left if left[1][1] == target[1] else right
        place = "or_introl" if side is left else "or_intror"
        inner = bounds.widen(side, (None, target[1]))
        high = f"(b_min_high ({place} {inner[0]}))"
    return f"(b_both {low} {high})", target


def inverse_bounds(bounds: Bounds, inside: Proof, target: Interval) -> Proof:
    """Returns the proof of the interval of an inverse, whose divisor is not 0."""
    low, _ = inside[1]
    if low is not None and low > 0:
        least, most = target
        ends = f"{end_text(least)} {end_text(most)}"
        return f"(b_inverse {ends} _ {inside[0]})", target
    inner = inverse_bounds(bounds, opposite(inside), arithmetic._opposite(target))
    return f"(b_inverse_opposite {inner[0]})", target


def _monotone(bounds: Bounds, function: str, text: str, inside: Proof, target: Interval) -> Proof:
    low = high = ""
    start, end = inside[1]
    sign = "_ " if function == "ln" else ""
    if target[0] is not None:
        if start is None or (function == "exp" and target[0] == 0):
            low = f"(b_wide ({ends_text((target[0], None))}) _ (b_{function} {text}))"
        else:
            lemma = bounds.numeric(
                f"Q2R {rational_text(target[0])} <= {function} (Q2R {rational_text(start)})"
            )
            low = f"(b_{function}_low {rational_text(target[0])} {sign}{lemma} {inside[0]})"
    if target[1] is not None and end is None:
        high = f"(b_wide ({ends_text((None, target[1]))}) _ (b_{function} {text}))"
    elif target[1] is not None:
        lemma = bounds.numeric(
            f"{function} (Q2R {end_text(end)}) <= Q2R {rational_text(target[1])}"
        )
        high = f"(b_{function}_high {rational_text(target[1])} {sign}{lemma} {inside[0]})"
    return bounds.join_ends(low, high, target)


def _floor(bounds: Bounds, inside: Proof, target: Interval) -> Proof:
    low = high = ""
    if target[0] is not None:
        low = f"(b_floor_low ({int(target[0].p)}) _ {inside[0]})"
    if target[1] is not None:
        high = f"(b_floor_high ({int(target[1].p)}) _ {inside[0]})"
    return bounds.join_ends(low, high, target)


def _cosine(bounds: Bounds, text: str, inside: Proof, target: Interval) -> Proof:
    whole = f"(b_cospi {text})"
    start, end = inside[1]
    if start is None or end is None or target == (fmpq(-1), fmpq(1)):
        return whole, (fmpq(-1), fmpq(1))
    low = high = ""
    if target[0] == -1:
        low = f"(b_wide {ends_text((fmpq(-1), None))} _ {whole})"
    else:
        low = _cosine_end(bounds, "low", start, end, target[0], inside)
    if target[1] == 1:
        high = f"(b_wide {ends_text((None, fmpq(1)))} _ {whole})"
    else:
        high = _cosine_end(bounds, "high", start, end, target[1], inside)
    return bounds.join_ends(low, high, target)


def _cosine_end(
    bounds: Bounds, side: str, start: fmpq, end: fmpq, bound: fmpq | None, inside: Proof
) -> str:
    turns = (start + 1) / 2 if side == "low" else start / 2
    lemmas = []
    for point in (start, end):
        value, limit = f"cospi (Q2R {rational_text(point)})", f"Q2R {end_text(bound)}"
        statement = f"{limit} <= {value}" if side == "low" else f"{value} <= {limit}"
        lemmas.append(bounds.numeric(statement, _cosine_tactic(point)))
    return (
        f"(b_cospi_{side} ({int(turns.floor())}) {end_text(bound)} _ "
        f"{' '.join(lemmas)} {inside[0]})"
    )


def _cosine_tactic(point: fmpq) -> str:
    """The proof of a bound of a cosine at a fraction: first moved between 0 and 1."""
    turns = int(((point + 1) / 2).floor())
    remainder = point - 2 * turns
    size = abs(remainder)
    text = number_text(size)
    if remainder >= 0:
        move = f"rewrite (cospi_turned _ ({text}) ({turns})) by lra"
    else:
        move = (
            f"rewrite (cospi_turned _ (- ({text})) ({turns})) by lra; "
            f"rewrite (cospi_even (- ({text})) ({text})) by ring"
        )
    end = f"rewrite {_COSINES[size]}; lra" if size in _COSINES else "unfold cospi; by_interval"
    return f"unfold Q2R; cbn [Qnum Qden]; {move}; {end}"
