"""Theorems about other systems: their defects, each with the step at which it shows."""

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
from closedform.verify.claims.step import step_of
from closedform.verify.terms.build import equal
from tools.theorem import (
    ACCELERATED,
    CEREBRAS,
    REFUTED,
    TORCH,
    TORCH_RULES,
    Section,
    Theorem,
    about,
    at_first_step,
    cases,
    end,
    of_system,
    power,
    start,
    steps,
)


def _made(name: str, kwargs: Mapping[str, Any], base: Any = None) -> Callable[[bool], Schedule]:
    """A class by ``system > name``, as it is implemented or as it is documented."""
    system, class_name = name.split(" > ")

    def make(as_implemented: bool) -> Schedule:
        made = frameworks.schedule(
            system, class_name, kwargs, base=base, as_implemented=as_implemented
        )
        return made.rename("as implemented" if as_implemented else "as documented")

    return make


def _as_implemented(
    name: str, kwargs: Mapping[str, Any], base: Any = None, where: Any = True
) -> Callable[[], Claim]:
    """The claim that a class implements its documentation."""
    make = _made(name, kwargs, base)
    return lambda: claims.equal(make(True), make(False), where=where)


_PERIODS = {"initial_learning_rate": 1, "T_0": 10, "eta_min": 0.1}
_CYCLES = {
    "initial_learning_rate": 1,
    "end_learning_rate": 0.2,
    "total_iters": 12,
    "power": 2,
    "cycle": True,
}
_NESTED = {
    "schedulers": [
        {
            "class": "SequentialLR",
            "kwargs": {
                "schedulers": [
                    {
                        "class": "LinearLR",
                        "kwargs": {
                            "initial_learning_rate": 0,
                            "end_learning_rate": 1,
                            "total_iters": 5,
                        },
                    },
                    {
                        "class": "CosineDecayLR",
                        "kwargs": {
                            "initial_learning_rate": 1,
                            "end_learning_rate": 0.1,
                            "total_iters": 20,
                        },
                    },
                ],
                "milestones": [5],
            },
        },
        {"class": "ConstantLR", "kwargs": {"learning_rate": 9}},
    ],
    "milestones": [20],
}
_RESUMED = {**_NESTED["schedulers"][0]["kwargs"], "last_epoch": 6}  # type: ignore[index]
_EPOCHS = {"total_num_epochs": 10, "num_update_steps_per_epoch": 10, "num_warmup_epochs": 2}
_HALVES = {"class": "ExponentialLR", "kwargs": {"gamma": 0.5}}
_TENTHS = {"class": "ExponentialLR", "kwargs": {"gamma": 0.9}}


def _plateaus() -> Claim:
    implemented = _made("cerebras > CosineAnnealingWarmRestarts", _PERIODS)(True)
    inside = sp.And(t > 10, sp.Ne(floor_mod(t, 10), 0))
    return claims.recurrence(implemented, 1, lambda previous, _: previous, where=inside)


def _stretched() -> Claim:
    """The source: N times ceil((t + 1)/N), where t < N."""
    stretched = steps * floor_div(t + steps, steps)
    source = cases((end + (start - end) * (1 - t / stretched) ** power, t < steps), (end, True))
    return claims.equal(schedules.polynomial(1, 0, 9, 2).unbind(), source)


def _cycle_is_dropped() -> Claim:
    name = "cerebras > PolynomialLR"
    plain = {key: item for key, item in _CYCLES.items() if key != "cycle"}
    return claims.equal(_made(name, _CYCLES)(True), _made(name, plain)(False))


def _scale_mode() -> Claim:
    name, kwargs = "cerebras > CyclicLR", {"base_lr": 0.1, "max_lr": 1, "step_size_up": 5}
    modes = [_made(name, {**kwargs, "scale_mode": mode}) for mode in ("cycle", "iterations")]
    return claims.equal(modes[0](True), modes[1](True))


_ONE_CYCLE = {"initial_learning_rate": 0.04, "max_lr": 1, "total_steps": 100}


def _one_cycle_clamped() -> Claim:
    implemented = _made("cerebras > OneCycleLR", _ONE_CYCLE)(True)
    return claims.equal(implemented, schedules.one_cycle(0.04, 1, 0.04 / 1e4, 100))


def _chain_of_torch() -> dict[str, Any]:
    function = {"class": "LambdaLR", "kwargs": {"lr_lambda": {"expr": "0.5**t"}}}
    return {"schedulers": [_TENTHS, function]}


def _sequence_of_torch(first_member: Any, *others: Any, at: list[int]) -> dict[str, Any]:
    return {"schedulers": [first_member, *others], "milestones": at}


def one_cycle_of_ten(where: Any = True) -> Claim:
    """Returns the claim that a linear one-cycle of ten steps is never below 0."""
    kwargs = {"max_lr": 1, "total_steps": 10, "anneal_strategy": "linear"}
    return claims.non_negative(
        frameworks.schedule("torch", "OneCycleLR", kwargs, base=1), where=where
    )


def _nadam() -> Claim:
    implemented = of_system("cerebras", "NAdam", as_implemented=True)
    return claims.same_rule(
        of_system("torch", "NAdam"), implemented, where=at_first_step(implemented)
    )


def _muon() -> Claim:
    # The momentum does not depend on the steps of the iteration, whose expression is large.
    kwargs = {"ns_steps": 0}
    documented = of_system("cerebras", "Muon", kwargs)
    implemented = of_system("cerebras", "Muon", kwargs, as_implemented=True)
    wanted, stored = (
        step_of(rule, ()).states["momentum_buffer"] for rule in (documented, implemented)
    )
    where = (at_first_step(implemented),)
    return about(implemented, "the momentum after the step", equal, stored, wanted, given=where)


THEOREMS = (
    Theorem(
        Section.DEFECTS,
        "Warm restarts do not restart",
        r"`CosineAnnealingWarmRestarts(T_0=10)` as implemented is the cosine of $t \bmod 10$.",
        _as_implemented("cerebras > CosineAnnealingWarmRestarts", _PERIODS),
        REFUTED,
        source=CEREBRAS,
        flags=("cawr_restart",),
    ),
    Theorem(
        Section.DEFECTS,
        "Warm restarts are right in their first period",
        r"The same where $t < 10$.",
        _as_implemented("cerebras > CosineAnnealingWarmRestarts", _PERIODS, where=t < 10),
        source=CEREBRAS,
    ),
    Theorem(
        Section.DEFECTS,
        "Warm restarts are plateaus",
        r"As implemented, the value at $t > 10$ is the one at $t - 1$ but where $t \bmod 10 = 0$: "
        r"the source takes the cosine of $\lfloor t/T_0 \rfloor T_0 - T_0$, in which no $t$ is "
        r"left.",
        _plateaus,
        source=f"{CEREBRAS}, read and run",
    ),
    Theorem(
        Section.DEFECTS,
        "A polynomial's cycles do not cycle",
        r"`PolynomialLR(total_iters=12, power=2, cycle=True)` as implemented begins again.",
        _as_implemented("cerebras > PolynomialLR", _CYCLES),
        REFUTED,
        source=CEREBRAS,
        flags=("poly_cycle_ignored",),
    ),
    Theorem(
        Section.DEFECTS,
        "A polynomial's cycle is dropped",
        r"As implemented, it equals the schedule without `cycle`.",
        _cycle_is_dropped,
        source=CEREBRAS,
    ),
    Theorem(
        Section.DEFECTS,
        "A polynomial's cycle can have no effect",
        r"For all $N$ and $p$: where $t < N$, the stretched length $N \lceil (t+1)/N \rceil$ is "
        r"$N$; and where it is not, the end value is used before it is looked up.",
        _stretched,
        source=f"{CEREBRAS}, read and run",
    ),
    Theorem(
        Section.DEFECTS,
        "A product of functions is not the initial value times it",
        r"`LambdaLR` of two functions as implemented is $\eta_0 f_1(t) f_2(t)$; it is $\eta_0^2 "
        r"f_1(t) f_2(t)$.",
        _as_implemented(
            "cerebras > LambdaLR",
            {"initial_learning_rate": 0.5, "lambdas": ["1/(t+1)", "0.9**t"]},
        ),
        REFUTED,
        source=CEREBRAS,
        flags=("lambda_power_of_initial",),
    ),
    Theorem(
        Section.DEFECTS,
        "A sequence in a sequence does not advance",
        r"A warmup and a cosine inside an outer `SequentialLR`, as implemented, run on their own "
        r"time.",
        _as_implemented("cerebras > SequentialLR", _NESTED),
        REFUTED,
        source=CEREBRAS,
        flags=("frozen_children",),
    ),
    Theorem(
        Section.DEFECTS,
        "A resumed sequence forgets its members",
        r"`SequentialLR(last_epoch=6)` as implemented is the sequence from step 7 on.",
        _as_implemented("cerebras > SequentialLR", _RESUMED),
        REFUTED,
        source=CEREBRAS,
        flags=("sequential_last_epoch",),
    ),
    Theorem(
        Section.DEFECTS,
        "The scale mode of a cycle is dropped",
        r"`CyclicLR` as implemented is the same for both values of `scale_mode`.",
        _scale_mode,
        source=CEREBRAS,
        flags=("scale_mode_overwritten",),
    ),
    Theorem(
        Section.DEFECTS,
        "One cycle goes on past its end",
        r"`OneCycleLR(total_steps=100)` as implemented holds its last value.",
        _one_cycle_clamped,
        REFUTED,
        source=CEREBRAS,
        flags=("past_end_not_clamped",),
    ),
    Theorem(
        Section.DEFECTS,
        "A cosine is cut by its warmup",
        r"`CosineLrScheduler` of 10 epochs with 2 of warmup as implemented falls to its minimum at "
        r"the end; it stops 20 steps early and jumps there.",
        _as_implemented("pytorch_accelerated > CosineLrScheduler", _EPOCHS, 0.01),
        REFUTED,
        source=ACCELERATED,
        flags=("cosine_cut_by_warmup",),
    ),
    Theorem(
        Section.DEFECTS,
        "A warmup from a ratio overshoots",
        r"`CosineLrScheduler` with `warmup_starting_lr_ratio` as implemented warms up in equal "
        r"steps to its base rate.",
        _as_implemented(
            "pytorch_accelerated > CosineLrScheduler",
            {**_EPOCHS, "warmup_starting_lr_ratio": 0.5},
            0.01,
            t <= 20,
        ),
        REFUTED,
        source=ACCELERATED,
        flags=("warmup_ratio_slope",),
    ),
    Theorem(
        Section.DEFECTS,
        "A continued run loses its arguments",
        r"`WSDLrScheduler` that loads the state of a first run as implemented has its own ratio, "
        r"warmup and minimum.",
        _as_implemented(
            "pytorch_accelerated > WSDLrScheduler",
            {
                "total_steps": 50,
                "is_continuation_from_checkpoint": True,
                "continuation": {"first": {"total_steps": 100, "lr_min": 0.1}, "load_state": True},
            },
            0.01,
        ),
        REFUTED,
        source=ACCELERATED,
        flags=("continuation_state",),
    ),
    Theorem(
        Section.DEFECTS,
        "A recursion misses milestones between two steps",
        r"`ConstantLR(total_iters=2.5)` by `step()` is its closed form, which ends at step 3.",
        _as_implemented("torch > ConstantLR", {"factor": 0.5, "total_iters": 2.5}, 1),
        REFUTED,
        source=TORCH,
        flags=("recursive_differs_from_closed",),
    ),
    Theorem(
        Section.DEFECTS,
        "A nested chain is one step ahead",
        r"A `ChainedScheduler` as the first member of a `SequentialLR` as implemented is at the "
        r"step of the sequence.",
        _as_implemented(
            "torch > SequentialLR",
            _sequence_of_torch(
                {
                    "class": "ChainedScheduler",
                    "kwargs": {
                        "schedulers": [
                            _HALVES,
                            {"class": "ConstantLR", "kwargs": {"factor": 0.25, "total_iters": 100}},
                        ]
                    },
                },
                _TENTHS,
                at=[5],
            ),
            1,
        ),
        REFUTED,
        source=TORCH,
        flags=("nested_one_step_ahead",),
    ),
    Theorem(
        Section.DEFECTS,
        "A chain is not a product",
        r"A `ChainedScheduler` of `ExponentialLR` and `LambdaLR` as implemented is the base rate "
        r"times both factors.",
        _as_implemented("torch > ChainedScheduler", _chain_of_torch(), 1, t < 100),
        REFUTED,
        source=TORCH,
        flags=("chain_is_not_a_product",),
    ),
    Theorem(
        Section.DEFECTS,
        "A later one-cycle moves the members before it",
        r"A `ConstantLR` before a `OneCycleLR` in a `SequentialLR` as implemented starts from the "
        r"base rate.",
        _as_implemented(
            "torch > SequentialLR",
            _sequence_of_torch(
                {"class": "ConstantLR", "kwargs": {"factor": 0.1, "total_iters": 100}},
                {"class": "OneCycleLR", "kwargs": {"max_lr": 1, "total_steps": 30}},
                at=[5],
            ),
            1,
            t < 5,
        ),
        REFUTED,
        source=TORCH,
        flags=("sequential_not_restarted_from_base",),
    ),
    Theorem(
        Section.DEFECTS,
        "NAdam's doubled factor",
        r"The first step of `NAdam` of cerebras as implemented is that of torch: its $1 - M' "
        r"\mu_{t+2}$ is $1 - M' \mu_{t+1} \mu_{t+2}$.",
        _nadam,
        REFUTED,
        source=f"`NAdam` of {CEREBRAS} and of {TORCH_RULES}",
    ),
    Theorem(
        Section.DEFECTS,
        "Muon's momentum is lost",
        r"The momentum of `Muon` as implemented is $\mu b + (1 - \mu) g$ after its first step; it "
        r"is never written back.",
        _muon,
        REFUTED,
        source=CEREBRAS,
    ),
)
