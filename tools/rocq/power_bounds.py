"""The intervals of powers: extreme at the corners of base and exponent, or open."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from flint import fmpq

from closedform.verify.checker.intervals import Interval
from tools.rocq.definitions import InexpressibleError, number_text
from tools.rocq.ends import Proof, end_text, rational_text

if TYPE_CHECKING:
    from tools.rocq.bounds import Bounds

MOST_EXACT = 400
"""The highest whole exponent whose power is computed as a fraction."""


def power_bounds(bounds: Bounds, base: Proof, exponent: Proof, target: Interval) -> Proof:
    """Returns the proof of the interval of a power with these intervals of base and exponent.

    Raises:
        InexpressibleError: An end is open that the checker does not let be open.
    """
    (a, b), (x, y) = base[1], exponent[1]
    if a is None or x is None:
        raise InexpressibleError("the interval of this power is not printed")
    low, high = target
    if a > 0 and b is not None and y is not None:
        ends = f"{end_text(low)} {end_text(high)}"
        lemmas = [
            _corner(bounds, f"in_ends {ends} ({{}})", end, number)
            for end in (a, b)
            for number in (x, y)
        ]
        return f"(b_pw {ends} _ {' '.join(lemmas)} {base[0]} {exponent[0]})", target
    proofs = f"{base[0]} {exponent[0]}"
    if b is not None and b <= 0:
        return f"(b_pw_of_zero _ {proofs})", (fmpq(0), fmpq(0))
    low_proof = f"(b_pw_positive _ {base[0]})" if a > 0 else f"(b_pw_zero _ {proofs})"
    if low is not None and low > 0:
        corners = [(a, x), *([] if y is None else [(a, y)]), *([] if b is None else [(b, x)])]
        name = "base" if y is not None else "exponent" if b is not None else "corner"
        text = rational_text(low)
        lemmas = [_corner(bounds, f"Q2R {text} <= {{}}", *corner) for corner in corners]
        low_proof = f"(b_pw_{name}_low {text} _ {' '.join(lemmas)} {proofs})"
    if high is None:
        return low_proof, (low, None)
    # It is highest at the ends that are not open, at the base or the exponent that is closed.
    if a == 0 and b is not None:
        name, corners = "from_zero", [(b, x), (b, x if y is None else y)]
    elif b is not None:
        name, corners = "exponent", [(a, x), (b, x)]
    else:
        name, corners = "base", [(a, x), (a, x if y is None else y)]
    text = rational_text(high)
    lemmas = [_corner(bounds, f"{{}} <= Q2R {text}", *corner) for corner in corners]
    high_proof = f"(b_pw_{name}_high {text} _ {' '.join(lemmas)} {proofs})"
    if a == 0 and b is not None and y is None:
        high_proof = f"(b_pw_rising {rational_text(b)} {text} _ {lemmas[0]} {proofs})"
    return bounds.join_ends(low_proof, high_proof, target)


def _corner(bounds: Bounds, relation: str, base: fmpq, exponent: fmpq) -> str:
    """The lemma that a relation holds for a power of two fractions."""
    power = f"pw (Q2R {rational_text(base)}) (Q2R {rational_text(exponent)})"
    return bounds.numeric(relation.format(power), _power_tactic(base, exponent))


def _power_tactic(base: fmpq, exponent: fmpq) -> str:
    start, end = "unfold in_ends, Q2R; cbn [Qnum Qden]; rewrite ", "; lra"
    if base == 1:
        return f"{start}pw_base_one by lra{end}"
    if base == 0:
        return f"{start}pw_zero_base by lra{end}"
    if exponent.q == 1 and abs(exponent) <= MOST_EXACT:
        count = abs(int(exponent.p))
        inverse = "inverse_" if exponent < 0 else ""
        return f"{start}(pw_{inverse}power _ _ {count}) by (cbn; lra){end}"
    if base < 0:
        raise InexpressibleError("a power of a negative number is not printed")
    root = fmpq(isqrt(int(base.p)), isqrt(int(base.q)))
    if exponent == fmpq(1, 2) and root**2 == base:
        return f"{start}(pw_root_of ({number_text(root)})) by lra{end}"
    return "numeric"
