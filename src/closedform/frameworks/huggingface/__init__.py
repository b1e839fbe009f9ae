"""huggingface: transformers' ``get_scheduler`` by name, and its optimizers.

Each schedule is a factor of the group's base. Arguments are ``num_warmup_steps``,
``num_training_steps`` and the entries of ``scheduler_specific_kwargs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.transformers.schedules import DEFECTS as TRAINER_DEFECTS
from closedform.frameworks.transformers.schedules import SHAPES, ScheduleNumbers, schedule_by_name
from closedform.language import Schedule, UpdateRule
from closedform.optimizers import adafactor
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)

DEFECTS: Mapping[str, kit.Note[...]] = {
    name: defect for name, defect in TRAINER_DEFECTS.items() if name.startswith("cosine")
}
_LENGTHS = ("num_warmup_steps", "num_training_steps")
"""Arguments of ``get_scheduler`` itself; the others belong to a scheduler."""


def _entry(name: str, *parameters: kit.Parameter) -> kit.ScheduleEntry:
    """A scheduler with the curve that the Trainer has under its name."""

    def build(arguments: kit.Arguments, context: kit.Context) -> Schedule:
        base, where = kit.base_value(context), f"huggingface > {name}"
        warmup = arguments.get("num_warmup_steps", 0)
        length = _length(warmup, arguments)
        kwargs = {
            key: value
            for key, value in arguments.items()
            if key not in _LENGTHS and value is not None
        }
        total = sp.Integer(warmup if length is None else length)
        run = ScheduleNumbers(base, base, sp.Integer(warmup), total, context)
        section = kit.document_section(kit.Document(kwargs, where))
        expr = schedule_by_name(name, section, run).expr
        return Schedule(expr, name=name, length=length)

    return kit.ScheduleEntry(name, (), parameters, build)


def _length(warmup: int, arguments: kit.Arguments) -> int | None:
    """The updates of the run; None for a scheduler that has no end."""
    total: int | None = arguments.get("num_training_steps")
    decay = arguments.get("num_decay_steps")
    if decay is None:
        # Upstream's max(1, …) hides a run that is all warmup: it is refused here.
        if total is not None and total <= warmup:
            raise DefinitionError(
                f"num_training_steps must be above num_warmup_steps, got {total} and {warmup}"
            )
        return total
    # num_stable_steps wins over num_training_steps where both are given.
    if arguments["num_stable_steps"] is not None:
        return int(warmup + arguments["num_stable_steps"] + decay)
    if total is None:
        raise DefinitionError(
            "the length is missing", hint="give num_training_steps or num_stable_steps"
        )
    if (excess := warmup + decay - total) > 0:
        raise DefinitionError(
            f"warmup and decay must fit into num_training_steps, they are {excess} steps too long"
        )
    return total


_WARMUP = kit.Parameter("num_warmup_steps", kit.REQUIRED, kit.checks.count(0))
_TOTAL = kit.Parameter("num_training_steps", kit.REQUIRED, kit.checks.count(1))
_STEPS = (_WARMUP, _TOTAL)
_CYCLES = kit.Parameter("num_cycles", 0.5, kit.checks.steps)
_MINIMUM = (
    kit.Parameter("min_lr", None, kit.checks.number),
    kit.Parameter("min_lr_rate", None, kit.checks.number),
)
_ENTRIES = (
    _entry("linear", *_STEPS),
    _entry("cosine", *_STEPS, _CYCLES),
    _entry("cosine_with_restarts", *_STEPS, kit.Parameter("num_cycles", 1, kit.checks.steps)),
    _entry(
        "polynomial",
        *_STEPS,
        kit.Parameter("lr_end", 1e-7, kit.checks.number),
        kit.Parameter("power", 1.0, kit.checks.at_least(0)),
    ),
    _entry("constant"),
    _entry("constant_with_warmup", _WARMUP),
    _entry("inverse_sqrt", _WARMUP, kit.Parameter("timescale", None, kit.checks.count(1))),
    kit.metric_entry("reduce_lr_on_plateau", kit.TORCH_ARGUMENTS, kit.torch_plateau),
    _entry("cosine_with_min_lr", *_STEPS, _CYCLES, *_MINIMUM),
    _entry(
        "cosine_warmup_with_min_lr",
        *_STEPS,
        _CYCLES,
        *_MINIMUM,
        kit.Parameter("warmup_lr_rate", None, kit.checks.number),
    ),
    _entry(
        "warmup_stable_decay",
        _WARMUP,
        kit.Parameter("num_decay_steps", kit.REQUIRED, kit.checks.count(1)),
        kit.Parameter("num_training_steps", None, kit.checks.count(1)),
        kit.Parameter("num_stable_steps", None, kit.checks.count(0)),
        kit.Parameter("warmup_type", "linear", kit.checks.choice(*SHAPES)),
        kit.Parameter("decay_type", "cosine", kit.checks.choice(*SHAPES)),
        kit.Parameter("min_lr_ratio", 0, kit.checks.in_range(0, 1)),
        _CYCLES,
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
        ceiling = Schedule((CLOCK.position(kit.Facts()) + 1) / sp.Integer(10) ** 6)
        values["lr"] = ceiling if is_warmed else sp.Rational(1, 100)
    # transformers gives the exponent with its sign, -0.8; the rule of the library takes 0.8.
    values["decay_rate"] = -kit.checks.number(values["decay_rate"], "decay_rate", _WHERE)
    # Without beta1 there is no first moment; with a decay rate of 0 the moment is the update
    # itself.
    values["beta1"] = 0 if values["beta1"] is None else values["beta1"]
    return adafactor(**values)


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
    upstream="src/transformers/optimization.py",
    clock=CLOCK,
    defects=DEFECTS,
)
