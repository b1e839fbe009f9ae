"""Theorems about the edges of other systems: where a formula has no value or leaves its range."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform import claims, schedules
from closedform.language import (
    Schedule,
    hyper,
    t,
)
from closedform.verify.claims.core import Claim
from tools.theorem import (
    ACCELERATED,
    CEREBRAS,
    REFUTED,
    TORCH,
    Section,
    Theorem,
    steps,
)
from tools.theorems_systems import one_cycle_of_ten


def _from_zero(name: str, *, integer: bool = False) -> sp.Symbol:
    return sp.Symbol(name, real=True, integer=integer or None, nonnegative=True)


def _finite(schedule: Schedule, old: Any, new: Any, *assume: sp.Basic) -> Claim:
    """That a schedule of the library is finite for a hyperparameter that it does not admit."""
    unbound = schedule.unbind()
    wider = Schedule(unbound.expr.xreplace({old: new}), name=schedule.name)
    return claims.finite(wider, assume=assume)


def _negative_rate() -> Claim:
    unbound = schedules.exponential(1, 0.5, 9).unbind()
    anything = Schedule(unbound.expr, name=unbound.name)
    return claims.finite(anything, where=sp.And(t >= 1, t <= 1), assume=(steps >= 2,))


_RISE = hyper("rise")


def _one_cycle_rise() -> Claim:
    unbound = schedules.one_cycle(0.04, 1, 0, 9, 0.5, clamp=False).unbind()
    schedule = Schedule(unbound.expr, name="one_cycle", domain=(_RISE >= 0, _RISE < 1))
    return claims.finite(schedule)


THEOREMS = (
    Theorem(
        Section.EDGES,
        "A factor below 0 past the end",
        r"`OneCycleLR(max_lr=1, total_steps=10, anneal_strategy=linear)` of torch is never "
        r"below 0.",
        one_cycle_of_ten,
        REFUTED,
        source=f"{TORCH}, which allows the step 10",
    ),
    Theorem(
        Section.EDGES,
        "No factor below 0 before the end",
        r"The same where $t \le 9$.",
        lambda: one_cycle_of_ten(t <= 9),
        source=TORCH,
    ),
    Theorem(
        Section.EDGES,
        "An inverse square root without warmup",
        r"$\eta_0 s / \sqrt{\max(t, W)}$ has a value for all $W \ge 0$.",
        lambda: _finite(
            schedules.inverse_square_root(1, 1, 9),
            hyper("warmup", positive=True),
            _from_zero("warmup"),
        ),
        REFUTED,
        source=f"`InverseSquareRootDecayLR` of {CEREBRAS}; the library refuses $W = 0$",
        flags=("non_finite",),
    ),
    Theorem(
        Section.EDGES,
        "One cycle whose rise has no steps",
        r"One cycle has a value for all $0 \le r < 1$ of its rise.",
        _one_cycle_rise,
        REFUTED,
        source=f"`OneCycleLR` of {CEREBRAS} and {TORCH}; the library refuses $r n = 1$",
        flags=("non_finite",),
    ),
    Theorem(
        Section.EDGES,
        "One cycle whose rise has steps",
        r"One cycle has a value for all $r$ and $n$ that the library admits.",
        lambda: claims.finite(schedules.one_cycle(0.04, 1, 0, 9, 0.5, clamp=False).unbind()),
        source="its domain: $0 \\le r \\le 1$, $r n \\ne 1$ and $r n \\ne n$",
    ),
    Theorem(
        Section.EDGES,
        "A cosine over no steps",
        r"Cosine decay over $N \ge 0$ steps has a value.",
        lambda: _finite(schedules.cosine(1, 0, 9), steps, _from_zero("steps", integer=True)),
        REFUTED,
        source=f"`CosineDecayLR` of {CEREBRAS}; the library refuses $N = 0$",
        flags=("non_finite",),
    ),
    Theorem(
        Section.EDGES,
        "Exponential decay of a negative rate",
        r"$\eta_0 \gamma^{t/N}$ is real for all $\gamma$ and $N \ge 2$, at $t = 1$.",
        _negative_rate,
        REFUTED,
        source=f"`ExponentialLR` of {CEREBRAS}; the library refuses $\\gamma < 0$",
        flags=("non_finite",),
    ),
    Theorem(
        Section.EDGES,
        "Inverse time of a negative rate",
        r"$\eta_0 / (1 + \gamma t / N)$ has a value for all $\gamma$.",
        lambda: _finite(schedules.inverse_time(1, 0.5, 9), hyper("rate"), hyper("rate")),
        REFUTED,
        source=f"`InverseExponentialTimeDecayLR` of {CEREBRAS}; the library refuses "
        r"$\gamma < 0$",
        flags=("non_finite",),
    ),
    Theorem(
        Section.EDGES,
        "A decay of no steps",
        r"The decay $\sqrt{\min(x/D, 1)}$ over $D \ge 0$ steps has a value.",
        lambda: claims.finite(
            Schedule(sp.sqrt(sp.Min(t / _from_zero("decay", integer=True), 1)), name="wsd")
        ),
        REFUTED,
        source=f"`WSDLrScheduler` of {ACCELERATED} raises ZeroDivisionError",
        flags=("zero_decay_steps",),
    ),
    Theorem(
        Section.EDGES,
        "A decay to nothing",
        r"The decay $1 / (p/l + 1 - p)$, $p = \min(t/D, 1)$, to $l \ge 0$ has a value.",
        lambda: claims.finite(
            Schedule(
                1
                / (
                    sp.Min(t / hyper("decay", integer=True, positive=True), 1)
                    * (1 / _from_zero("lowest") - 1)
                    + 1
                ),
                name="wsd",
            )
        ),
        REFUTED,
        source=f"`WSDLrScheduler(lr_min=0)` of {ACCELERATED} raises ZeroDivisionError",
        flags=("zero_lr_min",),
    ),
)
