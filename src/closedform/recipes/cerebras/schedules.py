"""The schedulers of cerebras.pytorch 2.10: one row for each formula, three classes a row."""

from __future__ import annotations

from dataclasses import replace

from closedform.recipes import checks
from closedform.recipes.cerebras import composites, formulas
from closedform.recipes.entries import REQUIRED, Parameter, ScheduleBuilder, ScheduleEntry
from closedform.recipes.tags import read_tags
from closedform.schedules.cyclic import SCALE_MODES

_LR_NAMES = {
    "val": "learning_rate",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
    "vals": "learning_rates",
    "base_val": "base_lr",
    "max_val": "max_lr",
}
_TAGS = Parameter("param_group_tags", None, read_tags)
_START = Parameter("initial_val", REQUIRED, checks.number)
_END = Parameter("end_val", REQUIRED, checks.number)
_STEPS = Parameter("total_iters", REQUIRED, checks.steps)
_CYCLE = Parameter("cycle", False, checks.flag)
_STAIRCASE = Parameter("staircase", False, checks.flag)
_LOW = Parameter("eta_min", 0.0, checks.number)
_GAMMA = Parameter("gamma", REQUIRED, checks.number)
_HIGH = Parameter("max_val", REQUIRED, checks.number)
_LENGTH = Parameter("total_iters", None, checks.number)
_LAST_EPOCH = Parameter("last_epoch", -1, checks.last_epoch)
_MILESTONES = Parameter("milestones", REQUIRED, checks.integer_milestones)
_MEMBERS = Parameter("schedulers")


def _row(
    stem: str,
    builds: str,
    build: ScheduleBuilder,
    *parameters: Parameter,
    children: str | None = None,
    lr_name: str | None = None,
) -> tuple[ScheduleEntry, ...]:
    """The lr class, the wd class and the generic class of a formula."""
    generic = (*parameters, _TAGS)
    lr = tuple(replace(p, name=_LR_NAMES.get(p.name, p.name)) for p in generic)
    known = {_LR_NAMES.get(p.name, p.name): p.name for p in generic}
    of = (builds,)
    return (
        ScheduleEntry(lr_name or f"{stem}LR", of, lr, build, known, children),
        ScheduleEntry(f"{stem}WD", of, generic, build, {}, children),
        ScheduleEntry(f"{stem}Scheduler", of, generic, build, {}, children),
    )


_OWN = (Parameter("expr"), _LENGTH, _LAST_EPOCH, _TAGS)
_ROWS = (
    _row(
        "Constant",
        "constant",
        formulas.constant_value,
        Parameter("val", REQUIRED, checks.number),
        _LENGTH,
    ),
    _row("Linear", "linear", formulas.straight, _START, _END, _STEPS, _CYCLE),
    _row(
        "Polynomial",
        "polynomial",
        formulas.power_of_rest,
        _START,
        _END,
        _STEPS,
        Parameter("power", 1.0, checks.number),
        _CYCLE,
    ),
    _row(
        "Exponential",
        "exponential",
        formulas.exponential_decay,
        _START,
        _STEPS,
        Parameter("decay_rate", REQUIRED, checks.number),
        _STAIRCASE,
    ),
    _row(
        "InverseExponentialTimeDecay",
        "inverse_time",
        formulas.inverse_time_decay,
        _START,
        Parameter("step_exponent", REQUIRED, checks.number),
        _STEPS,
        Parameter("decay_rate", REQUIRED, checks.rate),
        _STAIRCASE,
    ),
    _row(
        "InverseSquareRootDecay",
        "inverse_square_root",
        formulas.inverse_root,
        Parameter("initial_val", 1.0, checks.number),
        Parameter("scale", 1.0, checks.number),
        Parameter("warmup_steps", 1.0, checks.warmup),
    ),
    _row("CosineDecay", "cosine", formulas.cosine_decay, _START, _END, _STEPS),
    _row(
        "CosineAnnealing",
        "cosine_annealing",
        formulas.cosine_swing,
        _START,
        Parameter("T_max", REQUIRED, checks.steps),
        _LOW,
    ),
    _row(
        "CosineAnnealingWarmRestarts",
        "warm_restarts",
        formulas.cosine_restarts,
        _START,
        Parameter("T_0", REQUIRED, checks.steps),
        Parameter("T_mult", 1, checks.number),
        _LOW,
        lr_name="CosineAnnealingWarmRestarts",
    ),
    _row(
        "MultiStep",
        "multi_step",
        formulas.milestones_down,
        _START,
        _GAMMA,
        Parameter("milestones", REQUIRED, checks.milestones),
    ),
    _row(
        "Step",
        "step_decay",
        formulas.steps_down,
        _START,
        Parameter("step_size", REQUIRED, checks.steps),
        _GAMMA,
    ),
    _row("Lambda", "function", formulas.product_of_functions, _START, Parameter("lambdas", None)),
    _row(
        "Multiplicative",
        "multiplicative",
        formulas.coefficient_power,
        _START,
        Parameter("coefficient", REQUIRED, checks.number),
    ),
    _row(
        "Cyclic",
        "cyclic",
        formulas.triangles,
        Parameter("base_val", REQUIRED, checks.number),
        _HIGH,
        Parameter("step_size_up", 2000, checks.steps),
        Parameter("step_size_down", None, checks.at_least(0)),
        Parameter("mode", "triangular"),
        Parameter("gamma", 1.0, checks.number),
        Parameter("scale_mode", "cycle", checks.choice(*SCALE_MODES)),
    ),
    _row(
        "OneCycle",
        "one_cycle",
        formulas.one_cycle_policy,
        _START,
        _HIGH,
        Parameter("total_steps", 1000),
        Parameter("pct_start", 0.3, checks.number),
        Parameter("final_div_factor", 1e4, checks.divisor),
        Parameter("three_phase", False, checks.flag),
        Parameter("anneal_strategy", "cos"),
    ),
    _row(
        "PiecewiseConstant",
        "piecewise_constant",
        composites.values_between,
        Parameter("vals", REQUIRED, checks.numbers),
        _MILESTONES,
    ),
    _row(
        "Sequential",
        "sequential",
        composites.sequence,
        _MEMBERS,
        _MILESTONES,
        _LAST_EPOCH,
        children="schedulers",
    ),
    _row("Chained", "chained", composites.product, _MEMBERS, children="schedulers"),
    _row("ScalePerParam", "scale", composites.scaled, Parameter("scheduler"), children="scheduler"),
    tuple(
        ScheduleEntry(name, ("function",), _OWN, formulas.own_function)
        for name in ("LRScheduler", "WeightDecayScheduler", "Scheduler")
    ),
)
SCHEDULES = {entry.name: entry for row in _ROWS for entry in row}
