"""huggingface: transformers' ``get_scheduler`` by name, and its optimizers.

Each schedule is a factor of the group's base. Arguments are ``num_warmup_steps``,
``num_training_steps`` and the entries of ``scheduler_specific_kwargs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.transformers.schedules import DEFECTS as TRAINER_DEFECTS
from closedform.language import Schedule, UpdateRule
from closedform.optimizers import adafactor
from closedform.recipes import kit
from closedform.schedules import (
    constant,
    cosine_annealing,
    cosine_hard_restarts,
    inverse_square_root,
    linear,
    polynomial,
)

CLOCK = kit.Clock(kit.Unit.UPDATE)
N = CLOCK.count(kit.Facts()).n
"""The count of the clock."""

DEFECTS: Mapping[str, kit.Defect[...]] = {
    name: TRAINER_DEFECTS[name]
    for name in (
        "cosine-1",
        "cosine_with_min_lr-1",
        "cosine_warmup_with_min_lr-1",
        "cosine_warmup_with_min_lr-2",
    )
}
ScheduleOfBase = Callable[[kit.Arguments, kit.Context, sp.Expr], Schedule]
"""From the arguments, the context and the base value to the schedule after the warmup."""

_SHAPES: Mapping[str, Callable[[sp.Expr], sp.Expr]] = {
    "linear": lambda p: p,
    "cosine": lambda p: (1 - sp.cos(sp.pi * p)) / 2,
    "1-sqrt": lambda p: 1 - sp.sqrt(1 - p),
}


def _with_warmup(curve: ScheduleOfBase) -> kit.ScheduleBuilder:
    """A line from 0 to the base value before a curve that begins at the base value."""

    def build(arguments: kit.Arguments, context: kit.Context) -> Schedule:
        base, warmup = kit.base_value(context), arguments["num_warmup_steps"]
        later = curve(arguments, context, base)
        return linear(0, base, warmup).then(later) if warmup else later

    return build


def _rest(arguments: kit.Arguments, context: kit.Context) -> int:
    """The number of steps after the warmup, above 0."""
    total, warmup = arguments["num_training_steps"], arguments["num_warmup_steps"]
    # Upstream's max(1, …) hides a run that is all warmup: it is refused here.
    if total <= warmup:
        raise DefinitionError(
            f"num_training_steps must be above num_warmup_steps, got {total} and {warmup}"
        )
    return int(total - warmup)


def _constant(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    del arguments, context
    return constant(base)


def _linear(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    return linear(base, 0, _rest(arguments, context))


def _cosine(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    """It rises again after the last step, where num_cycles is not whole."""
    # (1 + cos(2 pi c x)) / 2 with c = num_cycles: half a period is the rest / (2 c).
    return cosine_annealing(base, 0, _half_period(arguments, context))


def _restarts(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    return cosine_hard_restarts(base, 0, _rest(arguments, context), arguments["num_cycles"])


def _polynomial(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    end = arguments["lr_end"]
    if end >= base:
        raise DefinitionError(f"lr_end must be below the base value {base}, got {end}")
    return polynomial(base, end, _rest(arguments, context), arguments["power"])


def _inverse_root(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    del context
    # optimization.py of 5.23.0: the timescale is the warmup by default, or 10,000 without one.
    scale = arguments["timescale"] or arguments["num_warmup_steps"] or 10_000
    # sqrt(S / (t + S - W)): the shift by S puts the peak at the end of the warmup.
    return inverse_square_root(base, sp.sqrt(sp.Integer(scale)), scale).shift(scale)


def _cosine_to_minimum(arguments: kit.Arguments, context: kit.Context, base: sp.Expr) -> Schedule:
    return cosine_annealing(
        base, base * _minimum(arguments, context), _half_period(arguments, context)
    )


def _cosine_one_ahead(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """Warmup from its first step on, and the cosine one step ahead."""
    base, warmup, first = (
        kit.base_value(context),
        arguments["num_warmup_steps"],
        arguments["warmup_lr_rate"],
    )
    # The lambda uses current_step + 1: after the warmup the peak never comes.
    ahead = 1 if context.as_implemented else 0
    later = _cosine_to_minimum(arguments, context, base).shift(ahead)
    if not warmup:
        return later
    rise = (N + 1) / sp.Integer(warmup)
    if first is not None:
        # The last step of the warmup has the peak; max(1, …) guards a warmup of one step.
        rise = first + (1 - first) * N / max(1, warmup - 1)
    return Schedule(base * rise, name="warmup", length=warmup).then(later)


def _wsd(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """Warmup from the minimum, a flat stretch, a decay to the minimum."""
    base, low = kit.base_value(context), arguments["min_lr_ratio"]
    warmup, decay = arguments["num_warmup_steps"], arguments["num_decay_steps"]
    stable = arguments["num_stable_steps"]
    if stable is None:
        if arguments["num_training_steps"] is None:
            raise DefinitionError(
                "the length is missing", hint="give num_training_steps or num_stable_steps"
            )
        # num_stable_steps wins over num_training_steps where both are given.
        stable = arguments["num_training_steps"] - warmup - decay
    if stable < 0:
        raise DefinitionError(
            f"warmup and decay must fit into num_training_steps, they are {-stable} steps too long"
        )
    up = _SHAPES[arguments["warmup_type"]]
    # The minimum is mixed into the warmup as well, which starts at min_lr_ratio times the base.
    branches = [(low + (1 - low) * up(N / sp.Integer(max(1, warmup))), N < warmup)]
    branches.append((sp.Integer(1), N < warmup + stable))
    progress = (N - warmup - stable) / sp.Integer(decay)
    if arguments["decay_type"] == "cosine":
        fall = (1 + sp.cos(2 * sp.pi * arguments["num_cycles"] * progress)) / 2
    elif arguments["decay_type"] == "linear":
        fall = 1 - progress
    else:
        fall = 1 - sp.sqrt(progress)
    branches.append((low + (1 - low) * fall, N < warmup + stable + decay))
    expr = base * sp.Piecewise(*branches, (low, True))
    return Schedule(expr, name="warmup_stable_decay", length=warmup + stable + decay)


def _half_period(arguments: kit.Arguments, context: kit.Context) -> sp.Rational:
    return _rest(arguments, context) / (2 * arguments["num_cycles"])


def _minimum(arguments: kit.Arguments, context: kit.Context) -> sp.Expr:
    """The minimum as a part of the base value, from ``min_lr_rate`` or ``min_lr``."""
    rate, value = arguments["min_lr_rate"], arguments["min_lr"]
    if (rate is None) == (value is None):
        raise DefinitionError(
            f"one of min_lr and min_lr_rate must be given, got {'none' if rate is None else 'both'}"
        )
    return rate if rate is not None else value / kit.base_value(context)


_WARMUP = kit.Parameter("num_warmup_steps", kit.REQUIRED, kit.checks.count(0))
_TOTAL = kit.Parameter("num_training_steps", kit.REQUIRED, kit.checks.count(1))
_STEPS = (_WARMUP, _TOTAL)
_CYCLES = kit.Parameter("num_cycles", 0.5, kit.checks.steps)
_MINIMUM = (
    kit.Parameter("min_lr", None, kit.checks.number),
    kit.Parameter("min_lr_rate", None, kit.checks.number),
)
_RATIO = kit.checks.in_range(0, 1)
_ENTRIES = (
    kit.ScheduleEntry("linear", ("linear",), _STEPS, _with_warmup(_linear)),
    kit.ScheduleEntry("cosine", ("cosine_annealing",), (*_STEPS, _CYCLES), _with_warmup(_cosine)),
    kit.ScheduleEntry(
        "cosine_with_restarts",
        ("cosine_hard_restarts",),
        (*_STEPS, kit.Parameter("num_cycles", 1, kit.checks.steps)),
        _with_warmup(_restarts),
    ),
    kit.ScheduleEntry(
        "polynomial",
        ("polynomial",),
        (
            *_STEPS,
            kit.Parameter("lr_end", 1e-7, kit.checks.number),
            kit.Parameter("power", 1.0, kit.checks.at_least(0)),
        ),
        _with_warmup(_polynomial),
    ),
    kit.ScheduleEntry("constant", ("constant",), (), kit.of_base(constant)),
    kit.ScheduleEntry("constant_with_warmup", ("constant",), (_WARMUP,), _with_warmup(_constant)),
    kit.ScheduleEntry(
        "inverse_sqrt",
        ("inverse_square_root",),
        (_WARMUP, kit.Parameter("timescale", None, kit.checks.count(1))),
        _with_warmup(_inverse_root),
    ),
    kit.metric_entry("reduce_lr_on_plateau", kit.TORCH_ARGUMENTS, kit.torch_plateau),
    kit.ScheduleEntry(
        "cosine_with_min_lr",
        ("cosine_annealing",),
        (*_STEPS, _CYCLES, *_MINIMUM),
        _with_warmup(_cosine_to_minimum),
    ),
    kit.ScheduleEntry(
        "cosine_warmup_with_min_lr",
        ("cosine_annealing",),
        (*_STEPS, _CYCLES, *_MINIMUM, kit.Parameter("warmup_lr_rate", None, kit.checks.number)),
        _cosine_one_ahead,
    ),
    kit.ScheduleEntry(
        "warmup_stable_decay",
        ("wsd",),
        (
            _WARMUP,
            kit.Parameter("num_decay_steps", kit.REQUIRED, kit.checks.count(1)),
            kit.Parameter("num_training_steps", None, kit.checks.count(1)),
            kit.Parameter("num_stable_steps", None, kit.checks.count(0)),
            kit.Parameter("warmup_type", "linear", kit.checks.choice(*_SHAPES)),
            kit.Parameter("decay_type", "cosine", kit.checks.choice(*_SHAPES)),
            kit.Parameter("min_lr_ratio", 0, _RATIO),
            kit.Parameter("num_cycles", 0.5, kit.checks.steps),
        ),
        _wsd,
    ),
)


_WHERE = "huggingface > Adafactor"


def _adafactor(arguments: Mapping[str, Any]) -> UpdateRule:
    values = dict(arguments)
    is_relative = kit.checks.flag(values["relative_step"], "relative_step", _WHERE)
    is_warmed = kit.checks.flag(values.pop("warmup_init"), "warmup_init", _WHERE)
    if is_relative and values["lr"] is not None:
        raise DefinitionError(
            f"with relative_step the step sets lr itself, got lr {values['lr']!r}",
            where=_WHERE,
            hint="omit lr, or give relative_step=False",
        )
    if is_warmed and not is_relative:
        raise DefinitionError(
            "warmup_init needs relative_step, got False", where=_WHERE, hint="omit one of them"
        )
    if is_relative:
        # Adafactor._get_lr of 5.23.0: the step is min(1e-2 or 1e-6 n, 1 / sqrt(n)).
        values["lr"] = _warmup() if is_warmed else sp.Rational(1, 100)
    # transformers gives the exponent with its sign, -0.8; the rule of the library takes 0.8.
    values["decay_rate"] = -kit.checks.number(values["decay_rate"], "decay_rate", _WHERE)
    # Without beta1 there is no first moment; with a decay rate of 0 the moment is the update
    # itself.
    values["beta1"] = 0 if values["beta1"] is None else values["beta1"]
    return adafactor(**values)


def _warmup() -> Schedule:
    """The ceiling of a relative step that begins at 1e-6 and grows by that at each step."""
    return Schedule((N + 1) / sp.Integer(10) ** 6)


_ADAFACTOR = (
    *kit.parameters_of(adafactor, lr=None, decay_rate=-0.8, beta1=None),
    *kit.parameters(scale_parameter=True, relative_step=True, warmup_init=False),
)
FRAMEWORK = kit.Framework(
    "huggingface",
    {entry.name: entry for entry in _ENTRIES},
    {"Adafactor": kit.OptimizerEntry("Adafactor", _ADAFACTOR, _adafactor)},
    versions=("5.23.0",),
    repository="https://github.com/huggingface/transformers",
    tier=kit.Tier.OFFICIAL,
    upstream="src/transformers/optimization.py",
    clock=CLOCK,
    defects=DEFECTS,
)
