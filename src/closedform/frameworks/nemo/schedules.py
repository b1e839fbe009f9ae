"""The learning rate policies of NeMo, from ``{"lr": …, "sched": {"name": …}}``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of a policy.

    Attributes:
        values: The values of its section.
        context: The param groups, and whether a decay that has no hold counts from update 0.
        rates: The base rate of every param group.
        base: The base rate of this group.
        warmup: The length of the warmup.
        hold: The update at which the hold after the warmup ends, 0 without one.
        constant: The length of the constant phase at the end.
        total: ``max_steps``.
    """

    values: Any
    context: kit.Context
    rates: tuple[sp.Expr, ...]
    base: sp.Expr
    warmup: sp.Expr
    hold: sp.Expr
    constant: sp.Expr
    total: sp.Expr

    @property
    def low(self) -> sp.Expr:
        """The minimum."""
        return self.values.min_lr

    @property
    def rest(self) -> sp.Expr:
        """The updates after the warmup."""
        return self.total - self.warmup

    def refuse_unless(self, condition: object, message: str) -> None:
        """Raises DefinitionError unless a condition of NeMo holds."""
        kit.refuse_unless(condition, message, self.context.where)


Curve = Callable[[Policy, Any], Any]
"""From a policy and the update to the rate: a plain function of exact numbers."""
Build = Callable[[Policy], Schedule]
_PHASES = ("warmup", "hold", "constant")


def _length(values: Sched, kind: str, where: str) -> sp.Expr | None:
    """The length of a phase in updates, from its steps or its part of the run; None without one."""
    if f"{kind}_steps" not in values.keys:
        return None
    steps, ratio = getattr(values, f"{kind}_steps"), getattr(values, f"{kind}_ratio")
    kit.refuse_unless(
        steps is None or ratio is None,
        f"only one of {kind}_steps and {kind}_ratio may be given",
        where,
    )
    if steps is not None or ratio is None:
        return steps
    kit.refuse_unless(values.max_steps is not None, f"{kind}_ratio needs max_steps", where)
    # int() of a product of floats, as upstream.
    return exact_number(int(float(ratio) * (values.max_steps or 0)))


def rate(context: kit.Context, values: Sched, lr: Any) -> Schedule:
    """Returns the schedule of the section of a policy.

    Args:
        context: The facts ``param_groups`` and ``group_index``.
        values: The values of the section.
        lr: The rate of the optimizer.
    """
    build, _ = POLICIES[values.name]
    warmup, hold, constant = (_length(values, kind, context.where) for kind in _PHASES)
    warmup = sp.S.Zero if warmup is None else warmup
    if hold is None and not context.as_implemented:
        hold = sp.S.Zero
    groups: Sequence[Mapping[str, Any]] = context.facts.get("param_groups") or ({},)
    return build(
        Policy(
            values,
            context,
            tuple(exact_number(group.get("lr", lr), "lr") for group in groups),
            context.of_group("lr", lr),
            warmup,
            # A hold is counted from the warmup's end; without hold_steps it is 0 and the decay
            # counts from update 0.
            sp.S.Zero if hold is None else warmup + hold,
            sp.S.Zero if constant is None else constant,
            # max_steps may be missing: most policies then fail after the warmup, WarmupHoldPolicy
            # too.
            sp.oo if values.max_steps is None else sp.Integer(values.max_steps),
        )
    )


def _policy(curve: Curve, *, is_open: bool = False) -> Build:
    """A warmup, a hold where the class has one, the curve, the minimum after the run.

    Args:
        curve: The curve.
        is_open: Whether the class reads max_steps only where it is given.
    """

    def build(policy: Policy) -> Schedule:
        has_end = policy.total != sp.oo

        def value(n: float) -> Any:
            if 0 < policy.warmup and n <= policy.warmup:
                # (t + 1) / (W + 1): update 0 is above 0 and update W has the rate.
                return policy.base * (n + 1) / (policy.warmup + 1)
            if n < policy.hold:
                return policy.base
            if not has_end and not is_open:
                raise ValueError("TypeError: max_steps is not given")
            return policy.low if has_end and n > policy.total else curve(policy, n)

        return kit.curve(policy.values.name, value)

    return build


def _flat(policy: Policy, n: Any) -> Any:
    del n
    return policy.base


def _square(policy: Policy, n: Any) -> Any:
    return max(policy.base * ((policy.total - n) / policy.rest) ** 2, policy.low)


def _square_root(policy: Policy, n: Any) -> Any:
    # It is implemented to count from update 0, not from the end of the warmup.
    length = policy.total if policy.context.as_implemented else policy.rest
    return max(policy.base * ((policy.total - n) ** 0.5 / length**0.5), policy.low)


def _polynomial(policy: Policy, done: Any, length: Any) -> Any:
    if policy.values.cycle:
        # cycle stretches the length to whole cycles, at least one.
        length = length * max(1, -math.floor(-done / length))
    else:
        done = min(done, length)
    power = policy.values.power
    share_left = max(0, length - done) ** power / length**power
    return (policy.base - policy.low) * share_left + policy.low


def _polynomial_decay(policy: Policy, n: Any) -> Any:
    return _polynomial(policy, n - policy.warmup, policy.rest)


def _polynomial_hold(policy: Policy, n: Any) -> Any:
    length = policy.total - max(policy.warmup, policy.hold)
    return _polynomial(policy, n - policy.hold, length)


def _hold_linear(policy: Policy, n: Any) -> Any:
    progress = (n - policy.hold) / (policy.total - policy.hold)
    return along_line(policy.base, policy.low, progress)


def _hold_root(policy: Policy, n: Any) -> Any:
    progress = (n - policy.hold) ** 0.5 / (policy.total - policy.hold) ** 0.5
    return max(policy.low, policy.base * (1 - progress))


def _hold_noam(policy: Policy, n: Any) -> Any:
    if policy.warmup == 0:
        raise ValueError("ValueError: Noam scheduler cannot be used without warmup steps")
    rate = policy.values.decay_rate
    # Steps of the hold are taken off the count of the root.
    hold = policy.hold - policy.warmup if policy.hold > 0 else 0
    rise = max(1, policy.warmup**rate)
    return max(policy.base * rise / max(1, (n - hold) ** rate), policy.low)


def _annealing(policy: Policy, n: Any) -> Any:
    # The rate of the first group serves all of them.
    return along_line(policy.rates[0], policy.low, (n - policy.warmup) / policy.rest)


def _inverse_root(policy: Policy, n: Any) -> Any:
    # Not floored by min_lr, which counts after max_steps only.
    return policy.base / math.sqrt((n + 1) / (policy.warmup + 1))


def _cosine(policy: Policy) -> Schedule:
    if policy.constant == 0:
        return _policy(lambda policy, n: _wave(policy, n, policy.base, policy.rest))(policy)
    # The other formula, with a constant phase: the rate of the first group serves all.
    peak, length = policy.rates[0], policy.rest - policy.constant
    policy.refuse_unless(
        peak > policy.low, f"min_lr must be below the rate {peak}, got {policy.low}"
    )

    def value(n: float) -> Any:
        if 0 < policy.warmup and n <= policy.warmup:
            # This warmup is t / W, the other policies have (t + 1) / (W + 1).
            return peak * n / policy.warmup
        return policy.low if n > policy.warmup + length else _wave(policy, n, peak, length)

    return kit.curve("CosineAnnealing", value)


def _wave(policy: Policy, n: Any, peak: Any, length: Any) -> Any:
    if min(policy.rates) < policy.low:
        raise ValueError("ValueError: an initial rate is below the minimum")
    return along_cosine(peak, policy.low, (n - policy.warmup) / length)


def _noam(policy: Policy) -> Schedule:
    policy.refuse_unless(
        min(policy.rates) >= policy.low, f"min_lr must not be above the rate, got {policy.low}"
    )
    size = policy.values.d_model
    policy.refuse_unless(size > 0, f"d_model must be above 0, got {size}")
    factor, warmup, low = policy.base / sp.sqrt(size), policy.warmup, policy.low

    def value(n: float) -> Any:
        # max(1, t): updates 0 and 1 are equal.
        root = 1 / math.sqrt(max(1, n))
        # The floor holds for t > W only, so that it may lift the rate there.
        if n > max(1, warmup) or warmup < 1:
            return max(factor * root, low)
        return factor * min(root, max(1, n) * warmup**-1.5)

    return kit.curve("NoamAnnealing", value)


def _t5(policy: Policy) -> Schedule:
    policy.refuse_unless(
        "constant_steps" in policy.values,
        "constant_steps must be given: NeMo raises TypeError without it",
    )
    policy.refuse_unless(policy.constant > 0, "constant_steps must be above 0")

    def value(n: float) -> Any:
        if n <= policy.constant:
            return 1 / policy.constant**0.5  # the base rate has no effect
        return 1 / math.sqrt(n) if n <= policy.total else policy.low

    return kit.curve("T5InverseSquareRootAnnealing", value)


class _Outside(
    kit.Section,
    irrelevant="monitor reduce_on_plateau t_max_epochs t_accumulate_grad_batches "
    "t_limit_train_batches t_num_workers",
):
    name: str
    max_steps: kit.Steps | None = kit.integer()
    last_epoch: int = -1


class Outer(_Outside, irrelevant="iters_per_batch args"):
    """The keys of ``sched`` that has the arguments of its class as ``args``."""


class Sched(_Outside):
    min_lr: kit.EndRate = 0


class _Warm(Sched):
    warmup_steps: kit.RealSteps | None = None
    warmup_ratio: kit.RunRatio | None = None


class _WithHold(_Warm):
    hold_steps: kit.RealSteps | None = None
    hold_ratio: kit.RunRatio | None = None


class _Power(kit.Section):
    power: kit.Power = 1
    cycle: bool = False


class _Constant(kit.Section):
    constant_steps: kit.RealSteps | None = None
    constant_ratio: kit.RunRatio | None = None


class WarmupPolicy(_Warm):
    max_steps: kit.Steps | None = None


class WarmupHoldPolicy(_WithHold):
    max_steps: kit.Steps | None = None


class SquareAnnealing(_Warm):
    min_lr: kit.EndRate = 1e-5


class NoamHoldAnnealing(_WithHold):
    decay_rate: kit.Number = 0.5


class PolynomialDecayAnnealing(_Warm, _Power):
    pass


class PolynomialHoldDecayAnnealing(_WithHold, _Power):
    pass


class CosineAnnealing(_Warm, _Constant):
    pass


class NoamAnnealing(WarmupPolicy):
    d_model: kit.Number


class T5InverseSquareRootAnnealing(Sched, _Constant):
    pass


POLICIES: Mapping[str, tuple[Build, type[Sched]]] = {
    "WarmupPolicy": (_policy(_flat, is_open=True), WarmupPolicy),
    "WarmupHoldPolicy": (_policy(_flat), WarmupHoldPolicy),
    "SquareAnnealing": (_policy(_square), SquareAnnealing),
    "SquareRootAnnealing": (_policy(_square_root), _Warm),
    "NoamHoldAnnealing": (_policy(_hold_noam), NoamHoldAnnealing),
    "WarmupAnnealing": (_policy(_annealing), _Warm),
    "InverseSquareRootAnnealing": (_policy(_inverse_root), _Warm),
    "PolynomialDecayAnnealing": (_policy(_polynomial_decay), PolynomialDecayAnnealing),
    "PolynomialHoldDecayAnnealing": (_policy(_polynomial_hold), PolynomialHoldDecayAnnealing),
    "WarmupHoldAnnealLinear": (_policy(_hold_linear), _WithHold),
    "WarmupHoldAnnealOneMinusSquareRoot": (_policy(_hold_root), _WithHold),
    "CosineAnnealing": (_cosine, CosineAnnealing),
    "NoamAnnealing": (_noam, NoamAnnealing),
    "T5InverseSquareRootAnnealing": (_t5, T5InverseSquareRootAnnealing),
}
"""The policies by name: their schedule, and the keys of their section."""


Lengths = tuple[int | None, int | None]


def is_left_out(lengths: Lengths) -> bool:
    """Returns whether neither ``sched`` nor the trainer has a length: there is no scheduler."""
    return lengths == (-1, -1)


def _is_replaced(lengths: Lengths) -> bool:
    section, trainer = lengths
    return section is not None and trainer is not None and trainer >= 0 and section != trainer


def _note(
    text: str,
    line: int,
    *classes: str,
    concerns: Callable[[Sched, Collection[sp.Expr]], bool] = lambda sched, rates: True,
    kind: Callable[..., kit.Note[...]] = kit.Convention,
    **formula: str,
) -> kit.Note[...]:
    """A note on policies, in some of their configs.

    Its condition has the section, None without one, the rates of the param groups, and the
    ``max_steps`` of the section and of the trainer, None where one is not given.
    """

    def applies(sched: Sched | None, rates: Collection[sp.Expr], lengths: Lengths) -> bool:
        return sched is not None and sched.name in classes and concerns(sched, rates)

    place = f"nemo/core/optim/lr_scheduler.py:{line}"
    return kind(text, place, applies, classes, **formula)


def _has(sched: Any, phase: str) -> bool:
    return any(f"{phase}_{unit}" in sched for unit in ("steps", "ratio"))


def _has_rates(sched: Any, rates: Collection[sp.Expr]) -> bool:
    return len(set(rates)) > 1


DEFECTS: Mapping[str, kit.Note[[Any, Any, Any]]] = {
    "falls-after-the-run": _note(
        "falls to min_lr after the run", 79, "WarmupPolicy", "InverseSquareRootAnnealing"
    ),
    "jumps-after-the-warmup": _note(
        "the decay counts from update 0: the rate jumps after the warmup",
        374,
        "SquareRootAnnealing",
        concerns=lambda sched, rates: _has(sched, "warmup"),
        documented="the square root of the part of the run that is left after the warmup",
        kind=kit.Defect,
    ),
    "no-hold": _note(
        "without a hold, the decay counts from update 0: the rate jumps after the warmup",
        197,
        "PolynomialHoldDecayAnnealing",
        "WarmupHoldAnnealLinear",
        "WarmupHoldAnnealOneMinusSquareRoot",
        concerns=lambda sched, rates: not _has(sched, "hold") and _has(sched, "warmup"),
        documented="a decay from the end of the warmup",
        kind=kit.Defect,
    ),
    "first-group-serves-all": _note(
        "the rate of the first group serves every group",
        367,
        "WarmupAnnealing",
        concerns=_has_rates,
        kind=kit.Defect,
    ),
    "first-group-serves-all-with-a-constant": _note(
        "with constant_steps, the rate of the first group serves every group",
        500,
        "CosineAnnealing",
        concerns=lambda sched, rates: _has_rates(sched, rates) and _has(sched, "constant"),
        kind=kit.Defect,
    ),
    "minimum-raises": _note(
        "the minimum can raise the rate at the first update after the warmup",
        566,
        "NoamAnnealing",
        concerns=lambda sched, rates: "min_lr" in sched,
    ),
    "rate-ignored": _note(
        "the base rate has no effect",
        128,
        "T5InverseSquareRootAnnealing",
        kind=kit.Defect,
    ),
    "constant-ratio-fails": _note(
        "constant_ratio always raises TypeError",
        128,
        "T5InverseSquareRootAnnealing",
        concerns=lambda sched, rates: False,
    ),
    "no-scheduler": kit.Convention(
        "with max_steps -1 in sched, NeMo makes no scheduler",
        "nemo/core/optim/lr_scheduler.py:909",
        lambda sched, rates, lengths: is_left_out(lengths),
    ),
    "trainer-decides-the-length": kit.Convention(
        "max_steps of the trainer takes the place of max_steps in sched",
        "nemo/core/classes/modelPT.py:714",
        lambda sched, rates, lengths: sched is not None and _is_replaced(lengths),
        classes=(),
    ),
}
