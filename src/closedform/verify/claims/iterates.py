"""Claims about odd polynomials that are applied one after the other, as Newton-Schulz does.

A polynomial takes an interval to an interval: that of its values at the ends and at the critical
points between them. So the image under several is that of one after the other, without a loss but
the radius of balls. Rational critical points and their values stay exact: the polynomial
``(15 x - 10 x^3 + 3 x^5)/8`` has its critical points at -1 and 1, where it is -1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import sympy as sp
from flint import arb, arb_poly, ctx, fmpq, fmpq_poly

from closedform.effort import Effort, spend
from closedform.errors import VerificationError
from closedform.language import exact_number
from closedform.language.balls import bounds
from closedform.verify.claims.core import Claim, number_text
from closedform.verify.terms.build import exact
from closedform.verify.terms.interval import Number, lesser
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status, Verdict

TACTIC = "images of intervals"
"""The ground of proofs by the values at ends and critical points."""
_MOST_STEPS = 1000
_Ends = tuple[Number, Number]
_WORK = 2_000
"""Units of work for the image under one polynomial; measured with quintics of 17 digits."""


_PRECISIONS = (1, 8, 64)
"""Multiples of the bits of balls that are tried: what converges to an end comes near it."""


def iterate_within(
    coefficients: Sequence[Any],
    source: tuple[Any, Any],
    target: tuple[Any, Any],
    *,
    steps: int | None = None,
) -> Claim:
    r"""Claims that iterated odd polynomials take every number of an interval into another one.

    With :math:`p_k(x) = a_k x + b_k x^3 + c_k x^5 + …`: :math:`p_n(… p_1(x) …)` is in the target
    for every x in the source. Where the target has no number below 0, this is a statement about
    the singular values of a matrix: Newton-Schulz takes :math:`U \Sigma V^\top` to
    :math:`U p(\Sigma) V^\top`. It is about real numbers: an iteration in bf16 rounds besides.

    Args:
        coefficients: The numbers a, b, c, … of every polynomial; or such a row for each step, of
            which the last one repeats, as ``ns_coefficients`` of ``closedform.optimizers.muon``.
            A float is the decimal that it prints as.
        source: The ends of the interval of x, both included.
        target: The ends of the interval of the result, both included.
        steps: The number n of steps, 0 for none; the number of rows if None.

    Raises:
        VerificationError: The coefficients are not rows of rational numbers, an interval has no
            number, or ``steps`` is not an integer from 0 to 1000.

    Example:
        >>> iterate_within((1.5, -0.5), (0.1, 1), (0.999, 1), steps=9).verify().status.value
        'PROVED'
        >>> jordan = (3.4445, -4.775, 2.0315)
        >>> iterate_within(jordan, (0.1, 1), (0.9, 1.1), steps=5).verify().status.value
        'REFUTED'
    """
    rows = coefficients if isinstance(coefficients[0], Sequence) else [coefficients]
    count = len(rows) if steps is None else steps
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_STEPS:
        raise _error(f"steps must be an integer from 0 to {_MOST_STEPS}, got {steps!r}")
    polynomials = [_odd_polynomial(row) for row in rows[:count]]
    polynomials += polynomials[-1:] * (count - len(polynomials))
    ends = _interval(source, "source"), _interval(target, "target")
    places = (f"[{low}, {high}]" for low, high in ends)
    sentence = f"{count} steps of odd polynomials take {' into '.join(places)}"
    decide = partial(_decide, polynomials, *ends)
    return Claim("iterate_within", sentence, None, (), decide=decide)


def _error(what: str) -> VerificationError:
    return VerificationError(what, where="claim iterate_within")


def _odd_polynomial(row: Sequence[Any]) -> fmpq_poly:
    """The polynomial of the coefficients of x, x^3, x^5, ..."""
    numbers = [_rational(number, "a coefficient") for number in row]
    return fmpq_poly([number for pair in numbers for number in (fmpq(0), pair)])


def _rational(number: Any, name: str) -> fmpq:
    exactly = exact_number(number, name)
    if not exactly.is_Rational:
        raise _error(f"{name} must be rational, got {number!r}")
    return exact(exactly)


def _interval(ends: Sequence[Any], name: str) -> _Ends:
    low, high = (_rational(end, f"an end of the {name}") for end in ends)
    if low > high:
        raise _error(f"the {name} must begin at or below its end, got {low} and {high}")
    return low, high


def _decide(
    polynomials: Sequence[fmpq_poly], source: _Ends, target: _Ends, effort: Effort
) -> Verdict:
    verdict = Verdict(Status.UNKNOWN)
    for multiple in _PRECISIONS:
        # A step of Newton-Schulz takes less than 16 bits off a ball.
        with ctx.workprec(multiple * (256 + 16 * len(polynomials))):
            verdict = _verdict(polynomials, source, target)
        if not verdict.unknown or not effort.left:
            break
    return verdict


def _verdict(polynomials: Sequence[fmpq_poly], source: _Ends, target: _Ends) -> Verdict:
    """The verdict by balls of the precision that is set."""
    images = [_Image(source, source, fmpq_poly([0, 1]))]
    for polynomial in polynomials:
        images.append(images[-1].under(polynomial))
        spend(_WORK)
    low, high = images[-1].ends
    reason = f"the image is from {number_text(low)} to {number_text(high)}"
    if low >= target[0] and high <= target[1]:
        return Verdict(Status.PROVED, (TACTIC,), reason=reason)
    for is_outside, end in ((low < target[0], 0), (high > target[1], 1)):
        point = _point_outside(polynomials, target, images, end) if is_outside else None
        if point is not None:
            reason = f"it is taken to {number_text(_result(polynomials, point))}"
            return Verdict(Status.REFUTED, (TACTIC,), {"x": sp.Rational(str(point))}, reason)
    return Verdict(Status.UNKNOWN, reason=f"{reason}, in balls that reach over the target")


@dataclass(frozen=True, slots=True)
class _Image:
    """The image of an interval under a polynomial.

    Attributes:
        ends: The least and the greatest number of the image.
        places: The numbers before the polynomial that it takes there.
        polynomial: The polynomial.
    """

    ends: _Ends
    places: _Ends
    polynomial: fmpq_poly

    def under(self, polynomial: fmpq_poly) -> _Image:
        """Returns the image of this image under a polynomial.

        The ends are balls around those of an interval that holds the image: a critical point whose
        ball reaches over an end counts as inside.
        """
        low, high = self.ends
        critical_points = _critical_points(polynomial)
        inner = [point for point in critical_points if not (point <= low or point >= high)]
        places = [low, high, *inner]
        values = [_at(polynomial, place) for place in places]
        middles = [arb(value).mid() for value in values]
        extremes = min(middles), max(middles)
        return _Image(
            (_least(values), -_least([-value for value in values])),
            (places[middles.index(extremes[0])], places[middles.index(extremes[1])]),
            polynomial,
        )

    def preimage(self, number: Number) -> Number:
        """Returns a number that the polynomial takes near one of the image, by bisection."""
        below, above = self.places
        for _ in range(ctx.prec):
            middle = ((arb(below) + arb(above)) / 2).mid()
            if _at(self.polynomial, middle).mid() < arb(number).mid():
                below = middle
            else:
                above = middle
        return above


def _point_outside(
    polynomials: Sequence[fmpq_poly], target: _Ends, images: Sequence[_Image], end: int
) -> fmpq | None:
    """A fraction that is taken out of the target, with few decimals; None if none is.

    It is near the number whose result is the least (``end`` 0) or greatest (1).
    """
    number = images[-1].places[end]
    for image in reversed(images[1:-1]):
        number = image.preimage(number)
    middle = bounds(arb(number).mid())
    digits = 0
    while middle is not None and digits < ctx.prec:
        scale = fmpq(10) ** digits
        decimal = fmpq((middle[0] * scale + fmpq(1, 2)).floor()) / scale
        point: fmpq = min(max(decimal, images[0].ends[0]), images[0].ends[1])
        result = _result(polynomials, point)
        if result < target[0] or result > target[1]:
            return point
        digits += 1 + digits // 4
    return None


def _result(polynomials: Sequence[fmpq_poly], point: fmpq) -> Number:
    """The number to which a fraction is taken."""
    return reduce(lambda number, polynomial: _at(polynomial, number), polynomials, point)


def _at(polynomial: fmpq_poly, number: Number) -> Number:
    """The value of a polynomial, a fraction where the number is one that is short."""
    if isinstance(number, fmpq) and number.height_bits() <= LIMITS.stated_digits:
        return polynomial(number)
    return arb_poly(polynomial)(arb(number))


def _critical_points(polynomial: fmpq_poly) -> list[Number]:
    """The real roots of the derivative, fractions where they are rational."""
    slope = polynomial.derivative().numer()
    points: list[Number] = []
    for factor, _ in slope.factor()[1] if slope.degree() > 0 else ():
        if factor.degree() == 1:
            points.append(fmpq(-factor[0], factor[1]))
        else:
            roots: Any = factor.complex_roots()
            # The imaginary part of a real root is exactly 0 (arb_fmpz_poly_complex_roots).
            points += [root.real for root, _ in roots if root.imag.is_zero()]
    return points


def _least(numbers: Sequence[Number]) -> Number:
    """The least number itself where balls decide which it is; else a ball around it."""
    for number in numbers:
        if all(number is other or number <= other for other in numbers):
            return number
    return reduce(lesser, numbers)
