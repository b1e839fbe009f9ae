"""The schedulers of cerebras.pytorch 2.10: one row for each formula, three classes a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.cerebras import composites
from closedform.language import Schedule, floor_mod, t
from closedform.language.arguments import choice, whole_number
from closedform.recipes import kit
from closedform.schedules import (
    constant,
    cosine,
    cosine_annealing,
    cyclic,
    exponential,
    function,
    inverse_square_root,
    inverse_time,
    linear,
    multi_step,
    multiplicative,
    one_cycle,
    polynomial,
    step_decay,
    warm_restarts,
)
from closedform.schedules.cyclic import MODES, SCALE_MODES
from closedform.schedules.exponential import check_factor
from closedform.schedules.one_cycle import ANNEALS, cycle_phases
from closedform.schedules.polynomial import check_cycle

CLOCK = kit.Clock(kit.Unit.UPDATE)

# The functions of a LambdaLR that gets none (lambdas=None).
_DEFAULT_LAMBDAS = ("t/30", "0.95**t")


def constant_value(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The length is only read when a Sequential is configured; it may be 0."""
    del context
    total = given["total_iters"]
    # A length of 0 is upstream's "no length".
    return constant(given["val"], total if total is not None and total > 0 else None)


def straight(given: kit.Arguments, context: kit.Context) -> Schedule:
    """Polynomial of power 1; over no steps, it is at its end from step 0 on."""
    # N = 0: t >= N holds at once, so that the end value counts from step 0 on (spec of
    # PolynomialLR: v1 is tested first).
    if given["total_iters"] == 0:
        return constant(given["end_val"])
    if given["cycle"] and not context.as_implemented:
        return power_of_rest({**given, "power": 1}, context)
    return linear(given["initial_val"], given["end_val"], given["total_iters"])


def power_of_rest(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, ``cycle`` has no effect: the value is final before the time is stretched.

    Over no steps, it is at its end from step 0 on.
    """
    if given["total_iters"] == 0:
        return constant(given["end_val"])
    # The intended stretch is N·ceil((t + 1)/N); upstream returns v1 for t >= N before it computes
    # it.
    is_stretched = given["cycle"] and not context.as_implemented
    if is_stretched:
        check_cycle(given["total_iters"], "total_iters", context.where)
    return polynomial(
        given["initial_val"],
        given["end_val"],
        given["total_iters"],
        given["power"],
        cycle=is_stretched,
    )


def exponential_decay(given: kit.Arguments, context: kit.Context) -> Schedule:
    """One factor every ``total_iters`` steps."""
    value, rate, steps = given["initial_val"], given["decay_rate"], given["total_iters"]
    # The base is checked for fractional exponents: a negative one is NaN in torch, alternating with
    # staircase.
    names = ("decay_rate", "total_iters")
    check_factor(rate, steps, context.where, staircase=given["staircase"], names=names)
    return exponential(value, rate, steps, staircase=given["staircase"])


def cosine_restarts(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, later periods are constant: at the start, at the end, and so on."""
    value, low, period = given["initial_val"], given["eta_min"], given["T_0"]
    if not context.as_implemented:
        # T_mult may only be 1 upstream (a ValueError otherwise), 1.0 included.
        multiplier = whole_number(given["T_mult"], "T_mult", context.where, least=1)
        return warm_restarts(value, low, period, multiplier)
    if given["T_mult"] != 1:
        raise DefinitionError(
            f"T_mult must be 1 as implemented, got {given['T_mult']}",
            hint="give as_implemented=False for periods that grow",
        )
    first = cosine(value, low, period)
    # c = floor(t/T_0)·T_0 - T_0 is an even or odd multiple of T_0: the cosine of it is 1 in the
    # second period, -1 in the third.
    later = sp.Piecewise((low, floor_mod(t, 2 * period) < period), (value, True))
    return Schedule(sp.Piecewise((first.bound, t < period), (later, True)), name="warm_restarts")


def product_of_functions(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, the initial value is a factor as often as there are functions."""
    texts = _DEFAULT_LAMBDAS if given["lambdas"] is None else given["lambdas"]
    if not isinstance(texts, list | tuple):
        raise DefinitionError(
            f"lambdas must be a list of functions, got {type(texts).__name__} {texts!r}"
        )
    count = len(texts) if context.as_implemented else 1
    factors = [_function(text, f"lambdas[{i}]", context) for i, text in enumerate(texts)]
    # LambdaLR's step multiplies the initial value once for each of the functions.
    return function(sp.Mul(given["initial_val"] ** count, *factors), name="lambda")


def own_function(given: kit.Arguments, context: kit.Context) -> Schedule:
    """A user-made class: its closed form, begun at last_epoch + 1."""
    factor = _function(given["expr"], "expr", context)
    total = given["total_iters"]
    length = None if total is None else sp.ceiling(total)
    # shift: a class of the user's starts at step last_epoch + 1 as torch's schedulers do.
    return function(factor, length=length).shift(given["last_epoch"] + 1)


def triangles(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The mode alone decides; as implemented, an unknown one is exp_range."""
    mode = given["mode"]
    if context.as_implemented and mode not in MODES:
        mode = "exp_range"
    choice(mode, "mode", context.where, MODES)
    low, high = given["base_val"], given["max_val"]
    up, down = given["step_size_up"], given["step_size_down"]
    return cyclic(low, high, up, down, mode=mode, gamma=given["gamma"])


def one_cycle_policy(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The last phase goes on past the end; as implemented, any strategy except cos is linear."""
    anneal = given["anneal_strategy"]
    if context.as_implemented and anneal != "cos":
        anneal = "linear"
    choice(anneal, "anneal_strategy", context.where, tuple(ANNEALS))
    cycle_phases(
        given["total_steps"],
        given["pct_start"],
        context.where,
        three_phase=given["three_phase"],
        clamp=False,
        names=("total_steps", "pct_start"),
    )
    return one_cycle(
        # final_div_factor divides the initial value, as in torch (min_lr = initial_lr /
        # final_div_factor).
        given["initial_val"],
        given["max_val"],
        given["initial_val"] / given["final_div_factor"],
        given["total_steps"],
        given["pct_start"],
        anneal,
        three_phase=given["three_phase"],
        # clamp=False: no error after total_steps, where torch raises; the last line goes on.
        clamp=False,
    )


def _function(spec: Any, name: str, context: kit.Context) -> sp.Expr:
    """A function of the step, given as text or as ``{"expr": text}``."""
    wrapped = {"expr": spec} if isinstance(spec, str) else spec
    return kit.parse_function(wrapped, f"{name} of {context.where}")


# The lr classes rename the arguments of the generic class; both read the same formula (spec 1).
_LR_NAMES = {
    "val": "learning_rate",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
    "vals": "learning_rates",
    "base_val": "base_lr",
    "max_val": "max_lr",
}
_TAGS = kit.Parameter("param_group_tags", None, kit.read_tags)
_START = kit.Parameter("initial_val", kit.REQUIRED, kit.checks.number)
_END = kit.Parameter("end_val", kit.REQUIRED, kit.checks.number)
_STEPS = kit.Parameter("total_iters", kit.REQUIRED, kit.checks.steps)
_STEPS_OR_NONE = kit.Parameter("total_iters", kit.REQUIRED, kit.checks.at_least(0))
_CYCLE = kit.Parameter("cycle", False, kit.checks.flag)
_STAIRCASE = kit.Parameter("staircase", False, kit.checks.flag)
_LOW = kit.Parameter("eta_min", 0.0, kit.checks.number)
_GAMMA = kit.Parameter("gamma", kit.REQUIRED, kit.checks.number)
_HIGH = kit.Parameter("max_val", kit.REQUIRED, kit.checks.number)
_LENGTH = kit.Parameter("total_iters", None, kit.checks.number)
_LAST_EPOCH = kit.Parameter("last_epoch", -1, kit.checks.last_epoch)
_MILESTONES = kit.Parameter("milestones", kit.REQUIRED, kit.checks.counted_milestones)
_MEMBERS = kit.Parameter("schedulers")


def _row(
    stem: str,
    builds: str,
    build: kit.ScheduleBuilder,
    *parameters: kit.Parameter,
    children: str | None = None,
    lr_name: str | None = None,
) -> tuple[kit.ScheduleEntry, ...]:
    """The lr class, the wd class and the generic class of a formula."""
    generic = (*parameters, _TAGS)
    lr = tuple(replace(p, name=_LR_NAMES.get(p.name, p.name)) for p in generic)
    known = {_LR_NAMES.get(p.name, p.name): p.name for p in generic}
    of = (builds,)
    return (
        kit.ScheduleEntry(lr_name or f"{stem}LR", of, lr, build, known, children),
        kit.ScheduleEntry(f"{stem}WD", of, generic, build, {}, children),
        kit.ScheduleEntry(f"{stem}Scheduler", of, generic, build, {}, children),
    )


_OWN = (kit.Parameter("expr"), _LENGTH, _LAST_EPOCH, _TAGS)
_ROWS = (
    _row(
        "Constant",
        "constant",
        constant_value,
        kit.Parameter("val", kit.REQUIRED, kit.checks.number),
        _LENGTH,
    ),
    _row("Linear", "linear", straight, _START, _END, _STEPS_OR_NONE, _CYCLE),
    _row(
        "Polynomial",
        "polynomial",
        power_of_rest,
        _START,
        _END,
        _STEPS_OR_NONE,
        kit.Parameter("power", 1.0, kit.checks.number),
        _CYCLE,
    ),
    _row(
        "Exponential",
        "exponential",
        exponential_decay,
        _START,
        _STEPS,
        kit.Parameter("decay_rate", kit.REQUIRED, kit.checks.number),
        _STAIRCASE,
    ),
    _row(
        "InverseExponentialTimeDecay",
        "inverse_time",
        kit.values_of(
            inverse_time,
            "initial_val",
            "decay_rate",
            "total_iters",
            "step_exponent",
            staircase="staircase",
        ),
        _START,
        kit.Parameter("step_exponent", kit.REQUIRED, kit.checks.number),
        _STEPS,
        kit.Parameter("decay_rate", kit.REQUIRED, kit.checks.rate),
        _STAIRCASE,
    ),
    _row(
        "InverseSquareRootDecay",
        "inverse_square_root",
        kit.values_of(inverse_square_root, "initial_val", "scale", "warmup_steps"),
        kit.Parameter("initial_val", 1.0, kit.checks.number),
        kit.Parameter("scale", 1.0, kit.checks.number),
        # scale·initial / sqrt(max(t, warmup)): with the default scale 1 the plateau is initial /
        # sqrt(warmup).
        kit.Parameter("warmup_steps", 1.0, kit.checks.warmup),
    ),
    _row(
        "CosineDecay",
        "cosine",
        kit.values_of(cosine, "initial_val", "end_val", "total_iters"),
        _START,
        _END,
        _STEPS,
    ),
    _row(
        "CosineAnnealing",
        "cosine_annealing",
        kit.values_of(cosine_annealing, "initial_val", "eta_min", "T_max"),
        _START,
        kit.Parameter("T_max", kit.REQUIRED, kit.checks.steps),
        _LOW,
    ),
    _row(
        "CosineAnnealingWarmRestarts",
        "warm_restarts",
        cosine_restarts,
        _START,
        kit.Parameter("T_0", kit.REQUIRED, kit.checks.steps),
        kit.Parameter("T_mult", 1, kit.checks.number),
        _LOW,
        # The lr class has no ending LR upstream.
        lr_name="CosineAnnealingWarmRestarts",
    ),
    _row(
        "MultiStep",
        "multi_step",
        kit.values_of(multi_step, "initial_val", "gamma", "milestones"),
        _START,
        _GAMMA,
        kit.Parameter("milestones", kit.REQUIRED, kit.checks.milestones),
    ),
    _row(
        "Step",
        "step_decay",
        kit.values_of(step_decay, "initial_val", "gamma", "step_size"),
        _START,
        kit.Parameter("step_size", kit.REQUIRED, kit.checks.steps),
        _GAMMA,
    ),
    _row("Lambda", "function", product_of_functions, _START, kit.Parameter("lambdas", None)),
    _row(
        "Multiplicative",
        "multiplicative",
        kit.values_of(multiplicative, "initial_val", "coefficient"),
        _START,
        kit.Parameter("coefficient", kit.REQUIRED, kit.checks.number),
    ),
    _row(
        "Cyclic",
        "cyclic",
        triangles,
        kit.Parameter("base_val", kit.REQUIRED, kit.checks.number),
        _HIGH,
        kit.Parameter("step_size_up", 2000, kit.checks.steps),
        kit.Parameter("step_size_down", None, kit.checks.at_least(0)),
        kit.Parameter("mode", "triangular"),
        kit.Parameter("gamma", 1.0, kit.checks.number),
        kit.Parameter("scale_mode", "cycle", kit.checks.choice(*SCALE_MODES)),
    ),
    _row(
        "OneCycle",
        "one_cycle",
        one_cycle_policy,
        _START,
        _HIGH,
        # torch's OneCycleLR has no default: it needs total_steps, or epochs and steps_per_epoch.
        kit.Parameter("total_steps", 1000),
        kit.Parameter("pct_start", 0.3, kit.checks.number),
        kit.Parameter("final_div_factor", 1e4, kit.checks.divisor),
        kit.Parameter("three_phase", False, kit.checks.flag),
        kit.Parameter("anneal_strategy", "cos"),
    ),
    _row(
        "PiecewiseConstant",
        "piecewise_constant",
        composites.values_between,
        kit.Parameter("vals", kit.REQUIRED, kit.checks.numbers),
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
    _row(
        "ScalePerParam",
        "scale",
        composites.scaled,
        kit.Parameter("scheduler"),
        children="scheduler",
    ),
    tuple(
        kit.ScheduleEntry(name, ("function",), _OWN, own_function)
        for name in ("LRScheduler", "WeightDecayScheduler", "Scheduler")
    ),
)
SCHEDULES = {entry.name: entry for row in _ROWS for entry in row}


def _note(
    text: str,
    place: str,
    stems: Sequence[str],
    concerns: Callable[[kit.Arguments], bool] = lambda arguments: True,
    documented: str | None = None,
) -> kit.Note[...]:
    """A defect of the classes of some formulas; without a documented formula, a convention."""
    classes = tuple(f"{stem}{end}" for stem in stems for end in ("LR", "WD", "Scheduler"))
    # name[:-2]: CosineAnnealingWarmRestarts, whose lr class lacks the ending.
    classes = tuple(name if name in SCHEDULES else name[:-2] for name in classes)

    def applies(specs: Sequence[kit.Arguments], optimizer: str) -> bool:
        return any(
            spec["class"] in classes and concerns(spec["kwargs"])
            for outer in specs
            for spec in _nested(outer)
        )

    upstream = f"cerebras/pytorch/optim/lr_scheduler.py, {place}"
    if documented is None:
        return kit.Convention(text, upstream, applies, classes)
    return kit.Defect(text, upstream, applies, classes, documented=documented)


def _nested(spec: kit.Arguments) -> Iterator[kit.Arguments]:
    """A scheduler, and those within it."""
    yield spec
    for member in _members(spec):
        yield from _nested(member)


def _members(spec: kit.Arguments) -> Sequence[kit.Arguments]:
    arguments = spec["kwargs"]
    inner = arguments.get("scheduler")
    members: Sequence[kit.Arguments] = arguments.get(
        "schedulers", () if inner is None else (inner,)
    )
    return members


def _is_frozen(spec: kit.Arguments, is_frozen: bool = False, is_halted: bool = False) -> bool:
    """Whether a scheduler within composites stays at step 0, or holds one that does."""
    name = spec["class"]
    is_sequence, is_chain = name.startswith("Sequential"), name.startswith("Chained")
    if is_frozen and (is_sequence or name in composites.SCALE_CLASSES):
        return True
    if is_halted and is_chain:
        return True
    inner = (is_sequence or is_chain, is_chain)
    return any(_is_frozen(member, *inner) for member in _members(spec))


DEFECTS: Mapping[str, kit.Note[[Any, Any]]] = {
    "restarts-are-constant": _note(
        "after the first period each period has one rate",
        "class CosineAnnealingWarmRestarts",
        ("CosineAnnealingWarmRestarts",),
        documented="a cosine in each period",
    ),
    "cycle-ignored": _note(
        "cycle has no effect",
        "class PolynomialLR",
        ("Linear", "Polynomial"),
        lambda arguments: bool(arguments.get("cycle")),
        documented="the polynomial over the time that is stretched to whole cycles",
    ),
    "initial-value-of-each-function": _note(
        "the initial value is a factor as often as there are functions",
        "class LambdaLR",
        ("Lambda",),
        lambda arguments: len(arguments.get("lambdas") or _DEFAULT_LAMBDAS) > 1,
        documented="the initial value times the functions",
    ),
    "last-epoch-of-the-sequence": _note(
        "last_epoch moves the milestones, but not the members",
        "class SequentialLR",
        ("Sequential",),
        lambda arguments: arguments.get("last_epoch", -1) != -1,
        documented="the sequence from last_epoch + 1 on",
    ),
    "members-of-members-stay": kit.Defect(
        "the members of a composite within a composite stay at step 0",
        "cerebras/pytorch/optim/lr_scheduler.py, classes SequentialLR and ChainedLR",
        lambda specs, optimizer: any(_is_frozen(spec) for spec in specs),
        documented="each member goes on from where it begins",
        classes=tuple(name for name, entry in SCHEDULES.items() if entry.children == "schedulers"),
    ),
    "unknown-mode": _note(
        "an unknown mode is exp_range",
        "class CyclicLR",
        ("Cyclic",),
        lambda arguments: arguments.get("mode", MODES[0]) not in MODES,
    ),
    "unknown-strategy": _note(
        "each anneal_strategy except cos is linear",
        "class OneCycleLR",
        ("OneCycle",),
        lambda arguments: arguments.get("anneal_strategy", "cos") not in tuple(ANNEALS),
    ),
    "surplus-values": _note(
        "of the values past the milestones the last one counts",
        "class PiecewiseConstantLR",
        ("PiecewiseConstant",),
        lambda arguments: (
            len(arguments.get("learning_rates", arguments.get("vals", ())))
            > len(arguments["milestones"]) + 1
        ),
    ),
    "doubled-factor": kit.Defect(
        "NAdam takes the momentum of the step once more in its second factor",
        "cerebras/pytorch/optim/NAdam.py, NAdam.step",
        lambda specs, optimizer: optimizer == "NAdam",
        documented="the formula of NAdam",
        classes=(),
    ),
    "lost-buffer": kit.Defect(
        "Muon never stores its momentum: there is none",
        "cerebras/pytorch/optim/Muon.py, Muon.step",
        lambda specs, optimizer: optimizer == "Muon",
        documented="the formula of Muon",
        classes=(),
    ),
}
