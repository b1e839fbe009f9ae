"""Theorems about sums over all steps: the two conditions of Robbins and Monro."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import sympy as sp

from closedform import claims, schedules
from closedform.language import Schedule, hyper
from closedform.schedules.examples import EXAMPLES
from closedform.verify.claims.core import Claim
from closedform.verify.terms.verdict import Status
from tools.theorem import PROVED, REFUTED, Section, Theorem, end, gamma, low, start, value

_NAMES: Mapping[tuple[Status, Status], tuple[str, ...]] = {
    (PROVED, PROVED): (
        "inverse_time",
        "power",
    ),
    (PROVED, REFUTED): (
        "constant",
        "log_warmup",
        "quadratic_warmup",
        "polynomial",
        "cosine",
        "half_cosine",
        "cosine_linear_envelope",
        "cosine_constant_tail",
        "cosine_annealing",
        "cosine_k_decay",
        "cosine_with_min",
        "warm_restarts",
        "jagged_restarts",
        "cyclic",
        "one_cycle_momentum",
        "geometric",
        "range_test",
        "multi_step",
        "piecewise_constant",
        "inverse_square_root",
        "noam",
        "tanh_decay",
        "hyperbolic",
        "slanted_triangular",
        "tri_stage",
        "wsd_checkpoints",
        "function",
        "table",
        "sequential",
        "repeat",
        "scale",
        "product",
        "maximum",
    ),
    (REFUTED, PROVED): (
        "linear",
        "fsl",
        "cosine_linear_tail",
        "cosine_hard_restarts",
        "flat_cosine",
        "one_cycle",
        "exponential",
        "multiplicative",
        "step_decay",
        "inverse_square_root_cooldown",
        "power_with_tail",
        "rex",
        "trapezoidal",
        "wsd",
        "refined",
        "stages",
        "chained",
        "splice",
    ),
}
SUMS: Mapping[str, tuple[Status, Status]] = {
    name: verdicts for verdicts, names in _NAMES.items() for name in sorted(names)
}
"""Of each schedule of the library, as its example calls it: whether its values add up to infinity,
and whether the sum of its squares is finite."""

_TABLE = r"""The schedules of the library, as the examples call them. A schedule that holds its last
value is the function that runs on: its sums are infinite. One that ends at 0 or decays
exponentially has finite sums. Both conditions of Robbins and Monro hold for two schedules.

| schedule | $\sum \eta_t = \infty$ | $\sum \eta_t^2 < \infty$ |
| --- | --- | --- |
"""


def table() -> str:
    """Returns the table of the page, which ``tests/verify/claims/test_series.py`` asks again."""
    return _TABLE + "".join(
        f"| `{EXAMPLES[name].call}` | {diverges.value} | {is_summable.value} |\n"
        for name, (diverges, is_summable) in SUMS.items()
    )


rate, scale, high, most = hyper("rate"), hyper("scale"), hyper("high"), hyper("L", positive=True)
_ROBBINS = "Robbins and Monro (1951), A stochastic approximation method"


def _theorem(
    name: str,
    statement: str,
    make: Callable[..., Claim],
    schedule: Schedule,
    assume: Iterable[sp.Basic],
    source: str = _ROBBINS,
) -> Theorem:
    """A statement for all hyperparameters that some conditions admit."""
    conditions = tuple(assume)
    return Theorem(
        Section.SUMS,
        name,
        statement,
        lambda: make(schedule.unbind(), assume=conditions),
        source=source,
    )


def _at_most_inverse(lr: Schedule, *, assume: Iterable[sp.Basic]) -> Claim:
    return claims.at_most(lr, 1 / most, assume=assume)


_INVERSE = schedules.inverse_time(1, 1, 20)
_INVERSE_TEXT = r"$\eta_0 / (1 + \gamma t / N)$"

THEOREMS = (
    _theorem(
        "Inverse time has an infinite sum",
        rf"{_INVERSE_TEXT} with $\eta_0, \gamma > 0$ adds up to infinity.",
        claims.sum_diverges, _INVERSE, [value > 0, rate > 0],
    ),
    _theorem(
        "Inverse time is square summable",
        rf"The squares of {_INVERSE_TEXT} with $\eta_0, \gamma > 0$ have a finite sum.",
        claims.square_summable, _INVERSE, [value > 0, rate > 0],
    ),
    _theorem(
        "The inverse square root has an infinite sum",
        r"$\eta_0 s / \sqrt{\max(t, W)}$ with $\eta_0, s > 0$ adds up to infinity.",
        claims.sum_diverges, schedules.inverse_square_root(1, 1, 40), [value > 0, scale > 0],
    ),
    _theorem(
        "Exponential decay is square summable",
        r"The squares of $\eta_0 \gamma^t$ with $0 < \gamma < 1$ have a finite sum.",
        claims.square_summable, schedules.multiplicative(1, 0.9), [gamma > 0, gamma < 1],
    ),
    _theorem(
        "A line to 0 is square summable",
        r"The squares of the line from $a$ to $b = 0$ over $N$ steps have a finite sum.",
        claims.square_summable, schedules.linear(1, 0, 10), [sp.Eq(end, 0)],
    ),
    _theorem(
        "A cosine to a rate above 0 has an infinite sum",
        "Cosine decay to $b > 0$, which it holds, adds up to infinity.",
        claims.sum_diverges, schedules.cosine(1, 0, 10), [end > 0],
    ),
    _theorem(
        "Cosine annealing has an infinite sum",
        "Cosine annealing between $a > 0$ and $b > 0$ adds up to infinity.",
        claims.sum_diverges, schedules.cosine_annealing(1, 0, 10), [start > 0, end > 0],
    ),
    _theorem(
        "Triangular cycles have an infinite sum",
        "Triangular cycles between $0 < l < h$ add up to infinity.",
        claims.sum_diverges, schedules.cyclic(0.1, 1, 20, 30), [low > 0, high > low],
    ),
    _theorem(
        "A cosine below one over L",
        r"Cosine decay from $a \le 1/L$ to $b \le a$ is at most $1/L$ at all steps.",
        _at_most_inverse, schedules.cosine(1, 0, 10), [start <= 1 / most, end <= start],
        "Nesterov (2004), Introductory lectures on convex optimization, theorem 2.1.14",
    ),
)  # fmt: skip
