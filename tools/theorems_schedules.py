"""Theorems about schedules: closed forms are their recursions, and one schedule in two forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform import claims, frameworks, schedules
from closedform.language import (
    Schedule,
    floor_div,
    floor_mod,
    t,
)
from closedform.verify.claims.core import Claim
from tools.theorem import (
    CEREBRAS,
    REFUTED,
    TORCH,
    Section,
    Theorem,
    cases,
    down,
    end,
    factor,
    first,
    gamma,
    high,
    is_multiple,
    low,
    power,
    second,
    start,
    steps,
    third,
    up,
    value,
)

# --- closed forms and recursions -----------------------------------------------------------------


def _cosine(progress: Any) -> sp.Expr:
    return end + (start - end) * (1 + sp.cos(sp.pi * progress)) / 2


def _open(schedule: Schedule, places: Mapping[Any, Any], *domain: sp.Basic) -> Schedule:
    """A schedule of the library with symbols in the place of numbers that it holds itself."""
    numbers = {sp.sympify(old): new for old, new in places.items()}
    unbound = schedule.unbind() if schedule.hyperparameters else schedule
    return Schedule(unbound.expr.xreplace(numbers), name=schedule.name, domain=domain)


def _multi_step() -> Claim:
    marks = {7: first, 11: second, 13: third}
    ordered = (first < second, second < third)
    schedule = _open(schedules.multi_step(1, 0.5, list(marks)), marks, *ordered)
    met = sp.Or(*(sp.Eq(t, mark) for mark in marks.values()))

    def step(previous: Any, now: Any) -> Any:
        del now
        return cases((previous * gamma, met), (previous, True))

    return claims.recurrence(schedule, value, step)


def _constant() -> Claim:
    implemented = frameworks.schedule(
        "torch", "ConstantLR", {"factor": 0.5, "total_iters": 7}, base=11
    )
    half = sp.Rational(11, 2)
    schedule = _open(implemented, {half: value * factor, 11: value, 7: steps}, factor > 0)
    return claims.recurrence(
        schedule,
        value * factor,
        lambda previous, now: cases((previous / factor, sp.Eq(now, steps)), (previous, True)),
    )


def _linear() -> Claim:
    def step(previous: Any, now: Any) -> Any:
        growth = 1 + (end - start) / (steps * start + (now - 1) * (end - start))
        return cases((previous, now > steps), (previous * growth, True))

    positive = (start > 0, end >= 0)
    return claims.recurrence(schedules.linear(1, 0, 9).unbind(), start, step, assume=positive)


def _polynomial() -> Claim:
    def step(previous: Any, now: Any) -> Any:
        ratio = ((1 - now / steps) / (1 - (now - 1) / steps)) ** power
        return cases((previous, now > steps), (previous * ratio, True))

    to_zero = schedules.polynomial(1, 0, 9, 2).unbind("start", "steps", "power")
    return claims.recurrence(to_zero, start, step, assume=[power > 0])


def _annealing_step(previous: Any, now: Any) -> Any:
    risen = previous + (start - end) * (1 - sp.cos(sp.pi / steps)) / 2
    ratio = (1 + sp.cos(sp.pi * now / steps)) / (1 + sp.cos(sp.pi * (now - 1) / steps))
    at_the_end = is_multiple(now - 1 - steps, 2 * steps)
    return cases((risen, at_the_end), (ratio * (previous - end) + end, True))


def _annealing() -> Claim:
    return claims.recurrence(schedules.cosine_annealing(1, 0, 9).unbind(), start, _annealing_step)


def _annealing_late() -> Claim:
    def step(previous: Any, now: Any) -> Any:
        ratio = (1 + sp.cos(sp.pi * now / steps)) / (1 + sp.cos(sp.pi * (now - 1) / steps))
        return ratio * (previous - end) + end

    schedule = schedules.cosine_annealing(1, 0, 9).unbind()
    return claims.recurrence(schedule, start, step, assume=[start > end])


def _restarts() -> Claim:
    def step(previous: Any, now: Any) -> Any:
        done = floor_mod(now, steps)
        ratio = (1 + sp.cos(sp.pi * done / steps)) / (1 + sp.cos(sp.pi * (done - 1) / steps))
        return cases((start, sp.Eq(done, 0)), (ratio * (previous - end) + end, True))

    return claims.recurrence(schedules.warm_restarts(1, 0, 9).unbind(), start, step)


def _restart_clock() -> Claim:
    def step(previous: Any, now: Any) -> Any:
        del now
        return cases((previous + 1 - steps, previous + 1 >= steps), (previous + 1, True))

    return claims.recurrence(Schedule(floor_mod(t, steps), name="clock"), 0, step)


def _local_clock() -> Claim:
    joined = Schedule(0 * t).then(Schedule(t, name="clock"), at=7)
    return claims.recurrence(
        _open(joined, {7: first, -7: -first}),
        0,
        lambda previous, now: previous + cases((0, now <= first), (1, True)),
    )


def _local_clock_late() -> Claim:
    joined = Schedule(0 * t).then(Schedule(t, name="clock"), at=7)
    return claims.recurrence(
        _open(joined, {7: first, -7: -first}),
        0,
        lambda previous, now: previous + cases((0, now < first), (1, True)),
    )


_RECURSIONS = (
    Theorem(
        Section.RECURSIONS,
        "Exponential decay",
        r"$\eta_t = \eta_0 \gamma^t$ is $\eta_t = \gamma \eta_{t-1}$.",
        lambda: claims.recurrence(
            schedules.multiplicative(1, 0.5).unbind(), value, lambda previous, _: previous * gamma
        ),
        source=f"`ExponentialLR` of {TORCH}; `MultiplicativeLR` of {CEREBRAS}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Step decay",
        r"$\eta_t = \eta_0 \gamma^{\lfloor t/S \rfloor}$ is $\eta_t = \gamma \eta_{t-1}$ where "
        r"$t \bmod S = 0$, and $\eta_{t-1}$ elsewhere.",
        lambda: claims.recurrence(
            schedules.step_decay(1, 0.5, 9).unbind(),
            value,
            lambda previous, now: cases(
                (previous * gamma, is_multiple(now, steps)), (previous, True)
            ),
        ),
        source=f"`StepLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Decay at milestones",
        r"With three milestones $m_1 < m_2 < m_3$ that are anywhere, $\eta_t = \eta_0 \gamma^k$ "
        r"with $k$ the number of milestones $\le t$ is $\eta_t = \gamma \eta_{t-1}$ where $t$ is "
        r"a milestone, and $\eta_{t-1}$ elsewhere.",
        _multi_step,
        source=f"`MultiStepLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Constant factor",
        r"$\eta_0 f$ before step $N$ and $\eta_0$ from there on, $f > 0$, is "
        r"$\eta_t = \eta_{t-1} / f$ where $t = N$, and $\eta_{t-1}$ elsewhere.",
        _constant,
        source=f"`ConstantLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Linear",
        r"The line from $a > 0$ to $b \ge 0$ over $N$ steps is $\eta_t = \eta_{t-1} \left(1 + "
        r"\frac{b - a}{N a + (t - 1)(b - a)}\right)$ up to step $N$, and $\eta_{t-1}$ from there "
        r"on.",
        _linear,
        source=f"`LinearLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Polynomial",
        r"$\eta_t = \eta_0 (1 - \min(t, N)/N)^p$, $p > 0$, is $\eta_t = \eta_{t-1} \left("
        r"\frac{1 - t/N}{1 - (t-1)/N}\right)^p$ up to step $N$, and $\eta_{t-1}$ from there on.",
        _polynomial,
        source=f"`PolynomialLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Cosine annealing",
        r"$\eta_t = b + \frac{a - b}{2}(1 + \cos \frac{\pi t}{T})$ is, at all steps, $\eta_t = b + "
        r"\frac{1 + \cos(\pi t/T)}{1 + \cos(\pi (t-1)/T)} (\eta_{t-1} - b)$, but where "
        r"$(t - 1 - T) \bmod 2T = 0$: there it is $\eta_{t-1} + \frac{a - b}{2} (1 - \cos "
        r"\frac{\pi}{T})$.",
        _annealing,
        source=f"`CosineAnnealingLR` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "Cosine annealing needs its second branch",
        r"The first branch alone is the recursion.",
        _annealing_late,
        REFUTED,
        source="a planted fault: at the end of the fall it divides by 0",
    ),
    Theorem(
        Section.RECURSIONS,
        "Warm restarts",
        r"The cosine of $c = t \bmod T$ is $\eta_t = a$ where $c = 0$, and elsewhere $\eta_t = b + "
        r"\frac{1 + \cos(\pi c/T)}{1 + \cos(\pi (c-1)/T)} (\eta_{t-1} - b)$.",
        _restarts,
        source="the recursion of cosine annealing, begun again",
    ),
    Theorem(
        Section.RECURSIONS,
        "The clock of warm restarts",
        r"$c_t = t \bmod T$ is $c_t = c_{t-1} + 1$, less $T$ where that is $\ge T$.",
        _restart_clock,
        source=f"`CosineAnnealingWarmRestarts` of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "The local clock of a sequence",
        r"The second member of a sequence, begun at milestone $m$, is at its own step "
        r"$\max(0, t - m)$: it is counted by one at each step $t > m$.",
        _local_clock,
        source=f"`SequentialLR` of {CEREBRAS} and of {TORCH}",
    ),
    Theorem(
        Section.RECURSIONS,
        "The local clock does not count its milestone",
        r"It is counted by one at each step $t \ge m$.",
        _local_clock_late,
        REFUTED,
        source="a planted fault: at $t = m$ the member is at its step 0",
    ),
)

# --- equal schedules -----------------------------------------------------------------------------


def _cyclic_of_torch() -> Claim:
    """The form of both systems: the part of the cycle that is done, from 0 to 1."""
    whole = up + down
    place = t / whole - floor_div(t, whole)
    ratio = up / whole
    rise = cases((place / ratio, place <= ratio), ((place - 1) / (ratio - 1), True))
    return claims.equal(schedules.cyclic(0, 1, 3, 5).unbind(), low + (high - low) * rise)


def _cyclic_of_smith() -> Claim:
    """Smith's form, of cycles as long down as up."""
    cycle = floor_div(t, 2 * up) + 1
    height = sp.Max(0, 1 - sp.Abs(t / up - 2 * cycle + 1))
    even = Schedule(schedules.cyclic(0, 1, 3, 5).unbind().expr.xreplace({down: up}), name="cyclic")
    return claims.equal(even, low + (high - low) * height)


def _folded(argument: Any) -> Callable[[], Claim]:
    return lambda: claims.equal(
        schedules.cosine_annealing(1, 0, 9).unbind(), _cosine(argument / steps)
    )


def _one_cycle_of_torch() -> Claim:
    kwargs = {"max_lr": 1, "total_steps": 100, "pct_start": 0.25}
    torch = frameworks.schedule("torch", "OneCycleLR", kwargs, base=1)
    same = {"initial_learning_rate": 0.04, "max_lr": 1, "total_steps": 100, "pct_start": 0.25}
    return claims.equal(torch, frameworks.schedule("cerebras", "OneCycleLR", same))


_EQUALITIES = (
    Theorem(
        Section.EQUALITIES,
        "Cosine decay is cosine annealing on its range",
        r"$b + \frac{a-b}{2}(1 + \cos \frac{\pi \min(t, N)}{N}) = b + \frac{a-b}{2}(1 + \cos "
        r"\frac{\pi t}{N})$ for $t \le N$.",
        lambda: claims.equal(
            schedules.cosine(1, 0, 9).unbind(),
            schedules.cosine_annealing(1, 0, 9).unbind(),
            where=t <= steps,
        ),
        source=f"`CosineDecayLR` and `CosineAnnealingLR` of {CEREBRAS}",
    ),
    Theorem(
        Section.EQUALITIES,
        "Cosine decay is not cosine annealing beyond its range",
        r"The same for all $t$.",
        lambda: claims.equal(
            schedules.cosine(1, 0, 9).unbind(), schedules.cosine_annealing(1, 0, 9).unbind()
        ),
        REFUTED,
        source=f"`CosineAnnealingLR` of {CEREBRAS} and of {TORCH} rises again",
        flags=("past_end_not_clamped",),
    ),
    Theorem(
        Section.EQUALITIES,
        "Linear is polynomial of power 1",
        r"$b + (a - b)(1 - t/N)^1$ up to step $N$, then $b$, is $a + (b - a) t/N$, then $b$.",
        lambda: claims.equal(
            schedules.linear(1, 0, 9).unbind(),
            schedules.polynomial(1, 0, 9, 1).unbind("start", "end", "steps"),
        ),
        source=f"`LinearLR` and `PolynomialLR` of {CEREBRAS}",
    ),
    Theorem(
        Section.EQUALITIES,
        "Two forms of a triangular cycle",
        r"With $x = t/(u+d) - \lfloor t/(u+d) \rfloor$ and $r = u/(u+d)$, the height $x/r$ where "
        r"$x \le r$, else $(x-1)/(r-1)$, is $\min(c/u, (u + d - c)/d)$ of $c = t \bmod (u+d)$.",
        _cyclic_of_torch,
        source=f"`CyclicLR` of {TORCH} and of {CEREBRAS}, and that of this library",
    ),
    Theorem(
        Section.EQUALITIES,
        "The triangular cycle of its paper",
        r"With $u = d$ that height is $\max(0, 1 - |t/u - 2k + 1|)$, "
        r"$k = 1 + \lfloor t/(2u) \rfloor$.",
        _cyclic_of_smith,
        source="Smith (2017), Cyclical learning rates",
    ),
    Theorem(
        Section.EQUALITIES,
        "Cosine annealing has period 2T",
        r"It is the same of $t \bmod 2T$: integers are reduced first, so that no phase grows.",
        _folded(floor_mod(t, 2 * steps)),
        source="what the lowering does",
    ),
    Theorem(
        Section.EQUALITIES,
        "Cosine annealing folded to half a period",
        r"It is the same of $|((t + T) \bmod 2T) - T|$, which is between 0 and $T$.",
        _folded(sp.Abs(floor_mod(t + steps, 2 * steps) - steps)),
        source="what the float32 lowering does",
    ),
    Theorem(
        Section.EQUALITIES,
        "One cycle of two systems",
        r"`OneCycleLR(max_lr=1, total_steps=100, pct_start=0.25)` of torch is the class of that "
        r"name of cerebras that begins at $\frac{1}{25}$.",
        _one_cycle_of_torch,
        source=f"{TORCH} and {CEREBRAS}",
    ),
)


THEOREMS = (*_RECURSIONS, *_EQUALITIES)
