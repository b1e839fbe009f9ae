"""Theorems about odd polynomials that are iterated, as Muon does with singular values.

Sources: Jordan et al. (2024), Muon; KellerJordan/modded-nanogpt, train_gpt_medium.py, for the five
triples of YouJiacheng; Amsel et al. (2025), The Polar Express, arXiv:2505.16932, algorithm 1;
Higham (2008), Functions of Matrices, section 8.3, for Newton-Schulz and its basin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from closedform import claims
from closedform.optimizers.muon import COEFFICIENTS as JORDAN
from closedform.optimizers.muon import POLAR_EXPRESS
from closedform.verify.terms.verdict import Status
from tools.theorem import PROVED, REFUTED, Section, Theorem

NEWTON_SCHULZ = (Fraction(3, 2), Fraction(-1, 2))
QUINTIC = (Fraction(15, 8), Fraction(-10, 8), Fraction(3, 8))
YOU_JIACHENG = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
_HIGHAM = "Higham (2008), Functions of Matrices, section 8.3"
_JORDAN = "Jordan et al. (2024), Muon"
_AMSEL = "Amsel et al. (2025), The Polar Express, algorithm 1"


@dataclass(frozen=True, slots=True)
class Iteration:
    """A row: polynomials, steps, and the two intervals.

    Attributes:
        coefficients: As ``claims.iterate_within`` takes them.
        steps: The number of steps.
        source: The ends of the interval that is taken.
        target: The ends of the interval that it is taken into.
        expected: The verdict that must come out.
        statement: What is claimed, in words and LaTeX.
        source_text: Where it comes from.
    """

    coefficients: Sequence[Any]
    steps: int
    source: tuple[Any, Any]
    target: tuple[Any, Any]
    expected: Status
    statement: str
    source_text: str


def _row(
    coefficients: Sequence[Any],
    steps: int,
    source: tuple[str, str],
    target: tuple[str, str],
    expected: Status,
    polynomial: str,
    text: str,
) -> Iteration:
    """A row whose statement is that of its numbers."""
    ends = [(Fraction(low), Fraction(high)) for low, high in (source, target)]
    statement = (
        f"{steps} steps of {polynomial} take $[{', '.join(source)}]$ into $[{', '.join(target)}]$."
    )
    return Iteration(coefficients, steps, ends[0], ends[1], expected, statement, text)


_CUBIC = r"$\frac{3}{2} x - \frac{1}{2} x^3$"
_QUINTIC = r"$\frac{15}{8} x - \frac{10}{8} x^3 + \frac{3}{8} x^5$"
_MUON = "$3.4445 x - 4.775 x^3 + 2.0315 x^5$"
_YOU = "the five polynomials of YouJiacheng, $4.0848 x - 6.8946 x^3 + 2.927 x^5$ first,"
_POLAR = "the eight polynomials of Polar Express, with their safety factor of 1.01,"

ITERATIONS: Mapping[str, Iteration] = {
    "Newton-Schulz stays at or below 1": _row(
        NEWTON_SCHULZ, 64, ("0", "1"), ("0", "1"), PROVED, _CUBIC, _HIGHAM
    ),
    "Newton-Schulz converges in 14 steps": _row(
        NEWTON_SCHULZ, 14, ("0.01", "1"), ("0.999", "1"), PROVED, _CUBIC, _HIGHAM
    ),
    "Five steps of Newton-Schulz are too few": _row(
        NEWTON_SCHULZ, 5, ("0.1", "1"), ("0.9", "1"), REFUTED, _CUBIC, _HIGHAM
    ),
    "Newton-Schulz below the root of 3": _row(
        NEWTON_SCHULZ, 64, ("0", "1.732"), ("0", "1"), PROVED, _CUBIC, _HIGHAM
    ),
    "Newton-Schulz above the root of 3": _row(
        NEWTON_SCHULZ, 64, ("0", "1.733"), ("0", "1"), REFUTED, _CUBIC,
        f"{_HIGHAM}: the matrix must be scaled first",
    ),
    "The quintic of order 3": _row(
        QUINTIC, 5, ("0.1", "1"), ("0.995", "1"), PROVED, _QUINTIC, _HIGHAM
    ),
    "Muon's singular values": _row(
        JORDAN, 5, ("0.01", "1"), ("0.68", "1.135"), PROVED, _MUON, _JORDAN
    ),
    "Muon's singular values are not within 0.3 of 1": _row(
        JORDAN, 5, ("0.01", "1"), ("0.7", "1.3"), REFUTED, _MUON, _JORDAN
    ),
    "Muon's iteration does not converge to 1": _row(
        JORDAN, 20, ("0.01", "1"), ("0.9", "1.1"), REFUTED, _MUON, _JORDAN
    ),
    "Muon's iteration stays where it is": _row(
        JORDAN, 64, ("0.01", "1"), ("0.68", "1.135"), PROVED, _MUON, _JORDAN
    ),
    "Muon's small singular values": _row(
        JORDAN, 5, ("0.001", "1"), ("0.5", "1.5"), REFUTED, _MUON,
        "the docstring of `zeropower_via_newtonschulz5` of KellerJordan/modded-nanogpt, which "
        "says that they are spread over it",
    ),
    "Five steps with five triples": _row(
        YOU_JIACHENG, 5, ("0.01", "1"), ("0.977", "1.032"), PROVED, _YOU,
        "`train_gpt_medium.py` of KellerJordan/modded-nanogpt",
    ),
    "Five triples do not reach 2 %": _row(
        YOU_JIACHENG, 5, ("0.01", "1"), ("0.98", "1.02"), REFUTED, _YOU,
        "`train_gpt_medium.py` of KellerJordan/modded-nanogpt",
    ),
    "Five steps of Polar Express": _row(
        POLAR_EXPRESS, 5, ("0.001", "1"), ("0.84", "1.124"), PROVED, _POLAR, _AMSEL
    ),
    "Eight steps of Polar Express": _row(
        POLAR_EXPRESS, 8, ("0.001", "1"), ("0.9999", "1.0001"), PROVED, _POLAR, _AMSEL
    ),
    "Polar Express keeps what is small small": _row(
        POLAR_EXPRESS, 5, ("0", "1"), ("0.84", "1.124"), REFUTED, _POLAR,
        f"{_AMSEL}: it is made for singular values of at least 0.001",
    ),
}  # fmt: skip
"""The rows, by the titles of their theorems."""

THEOREMS = tuple(
    Theorem(
        Section.POLYNOMIALS,
        name,
        row.statement,
        partial(claims.iterate_within, row.coefficients, row.source, row.target, steps=row.steps),
        row.expected,
        row.source_text,
    )
    for name, row in ITERATIONS.items()
)
