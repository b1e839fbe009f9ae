"""big_vision: the multiplier of ``create_learning_rate_schedule``, and configs in Python.

A config is the function ``get_config``. Nothing is run: its syntax tree is read with the defaults
of its arguments, including arguments that ``bvcc.parse_arg`` declares.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import sympy as sp

from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_cosine, along_inverse_root, along_line
from closedform.schedules.branches import stepwise

CLOCK = kit.Clock(kit.Unit.UPDATE)

# The suffixes of big_vision/utils.py: steps(), which accepts one of them for a duration.
_UNITS = ("steps", "examples", "epochs", "percent")


class Curve(kit.Section):
    # stair is the default of create_learning_rate_schedule: without steps it is a constant.
    decay_type: Literal["linear", "polynomial", "cosine", "rsqrt", "stair"] = "stair"
    mult: kit.Number = 1
    scale_with_batchsize: bool = False
    linear_end: kit.RateRatio = 0
    end: kit.Number | None = None
    power: kit.Power = 1
    timescale: kit.RealSteps = 10_000
    shift: kit.RealSteps = 0
    steps: kit.Numbers = ()
    mults: kit.Numbers = ()
    warmup_steps: kit.RealSteps | None = None
    warmup_examples: kit.RealSamples | None = None
    warmup_epochs: kit.RealEpochs | None = None
    warmup_percent: kit.RunRatio | None = None
    cooldown_steps: kit.RealSteps | None = None
    cooldown_examples: kit.RealSamples | None = None
    cooldown_epochs: kit.RealEpochs | None = None
    cooldown_percent: kit.RunRatio | None = None
    timescale_steps: kit.RealSteps | None = None
    timescale_examples: kit.RealSamples | None = None
    timescale_epochs: kit.RealEpochs | None = None
    timescale_percent: kit.RunRatio | None = None


def _schedules(config: kit.RawSection, key: str, default: Any) -> list[tuple[str, Curve | None]]:
    """The schedules by the patterns of their parameters, empty for all; None for frozen ones."""
    if not isinstance(config.value(key, {}), list | tuple):
        return [("", Curve.read(config.section(key)))]
    # None in place of a schedule freezes the parameters (big_vision/optax.py: make).
    return [
        (pattern, Curve.read(inner.section(place)) if place in inner else None)
        for pattern, place, inner in _pairs(config, key)
    ]


def _multipliers(config: kit.RawSection, key: str, default: Any) -> list[tuple[str, sp.Expr]]:
    """The multipliers by the patterns of their parameters."""
    return [
        (pattern, exact_number(inner.number(place)))
        for pattern, place, inner in _pairs(config, key)
    ]


def _pairs(config: kit.RawSection, key: str) -> Iterator[tuple[str, str, kit.RawSection]]:
    """The patterns of a list of pairs, and the place of the second entry in a section."""
    entries = config.value(key, ())
    if not isinstance(entries, list | tuple):
        raise config.error(f"{key} must be a list of pairs, got {entries!r:.60}", key)
    for index, entry in enumerate(entries):
        place = f"{key}[{index}]"
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise config.error("an entry must be a pair of a pattern and a value", place)
        # A section of one entry: the errors of a nested schedule then name lr_mults[2] and not only
        # its pattern.
        yield entry[0], place, kit.RawSection(config.document, {place: entry[1]}, config.path)


class Input(kit.OpenSection):
    batch_size: kit.BatchSize | None = None


class Config(
    kit.OpenSection,
    # Options of losses, and arguments of some files, with names that an optimizer could have.
    irrelevant="beta beta_percept ema_decay optim_name grad_clip_per_example total_percent "
    "warmup_steps weight_decay_decouple",
):
    lr: kit.Rate
    wd: kit.WeightDecay = 0
    schedule: list[tuple[str, Curve | None]] = kit.read_by(_schedules, None)
    lr_mults: list[tuple[str, sp.Expr]] = kit.read_by(_multipliers, None)
    wd_mults: list[tuple[str, sp.Expr]] = kit.read_by(_multipliers, None)
    optax: kit.RawSection
    optax_name: str
    grad_clip_norm: kit.Norm | None = None
    input: Input
    batch_size: kit.BatchSize | None = None
    total_steps: kit.Steps | None = None
    total_examples: kit.RealSamples | None = None
    total_epochs: kit.RealEpochs | None = None


def _duration(schedule: kit.Section, name: str, context: kit.Context) -> sp.Expr | None:
    """A length in updates, at least 1 unless it is 0; None where there is none."""
    # steps() of big_vision/utils.py asserts that one suffix is used.
    amounts = {unit: getattr(schedule, f"{name}_{unit}") for unit in _UNITS}
    # A negative amount counts as none.
    units = [unit for unit, amount in amounts.items() if amount is not None and amount >= 0]
    if not units:
        return None
    unit, *further = units
    if further:
        names = ", ".join(f"{name}_{unit}" for unit in units)
        raise schedule.error(f"only one of {names} may be given")
    if unit == "steps":
        return amounts[unit]
    facts = {
        "examples": ("global_batch_size",),
        "epochs": ("global_batch_size", "dataset_size"),
        "percent": ("total_updates",),
    }[unit]
    values = context.numbers.require(*facts, where=context.where)
    # Products and quotients are float64 as in Python, whose round() takes halves to even.
    amount, first = float(amounts[unit]), float(values[0])
    updates = {
        "examples": lambda: amount / first,
        "epochs": lambda: amount * (float(values[1]) / first),
        "percent": lambda: amount * first,
    }[unit]()
    if not math.isfinite(updates):
        raise schedule.error(f"{name}_{unit} is too large: {amounts[unit]}", f"{name}_{unit}")
    # A length that is given has at least one update: max(1, round(…)) in big_vision/utils.py at
    # 0127fb6.
    # An explicit 0 stays 0: it switches the warmup off.
    return sp.Integer(max(1, round(updates)) if updates else 0)


def _line(schedule: Curve, base: sp.Expr, rest: sp.Expr, context: kit.Context) -> sp.Expr:
    end = schedule.linear_end if schedule.end is None else schedule.end
    # The position is clipped before it is raised: a power of a negative number has no value.
    return along_line(end, base, rest**schedule.power)


def _root(schedule: Curve, base: sp.Expr, rest: sp.Expr, context: kit.Context) -> sp.Expr:
    """The inverse root, from the end of the warmup on."""
    # timescale without a suffix is a number of updates already.
    scale = _duration(schedule, "timescale", context) or schedule.timescale
    # The inverse root counts from the end of the warmup and is constant before it.
    position = sp.Max(0, t - (_duration(schedule, "warmup", context) or 0)) + schedule.shift
    return along_inverse_root(base, sp.S.Zero, position, scale)


def _stair(schedule: Curve, base: sp.Expr, rest: sp.Expr, context: kit.Context) -> sp.Expr:
    """The multipliers by the number of entries of ``steps`` that have passed."""
    steps, mults = schedule.steps, schedule.mults
    if len(steps) != len(mults):
        raise schedule.error(
            f"mults must have one entry for each of {len(steps)} steps, got {len(mults)}"
        )
    values = [base, *(base * mult for mult in mults)]
    # Upstream looks t + 1 up among the steps, so that a step counts from its own update on.
    return stepwise(values, [sp.Integer(kit.first_from(step)) for step in steps])


_CURVES: Mapping[str, Callable[[Curve, sp.Expr, sp.Expr, kit.Context], sp.Expr]] = {
    "linear": _line,
    "polynomial": _line,
    "cosine": lambda schedule, base, rest, context: along_cosine(base, sp.S.Zero, 1 - rest),
    "rsqrt": _root,
    "stair": _stair,
}


def _factor(context: kit.Context, schedule: Curve) -> Schedule:
    (total,) = context.numbers.require("total_updates", where=context.where)
    warmup = _duration(schedule, "warmup", context) or sp.S.Zero
    cooldown = _duration(schedule, "cooldown", context) or sp.S.Zero
    if warmup >= total:
        raise schedule.error(f"the warmup must be shorter than {total} updates, got {warmup}")
    base = schedule.mult
    if schedule.scale_with_batchsize:
        # The reference batch of big_vision has 256 samples.
        (batch,) = context.numbers.require("global_batch_size", where=context.where)
        base *= batch / 256
    # 1 - x, where x is (t - W) / (T - W) clipped to [0, 1].
    # max(0, T - t) / (T - W) is 1 - clip(x, 0, 1) without the cancellation of 1 - x near the end.
    rest = sp.Min(1, sp.Max(0, total - t) / (total - warmup))
    rate = _CURVES[schedule.decay_type](schedule, base, rest, context)
    if warmup > 0:
        rate *= sp.Min(1, t / warmup)
    if cooldown > 0:
        # Not clipped at 0: negative after the run (big_vision/utils.py:1139).
        rate *= sp.Min(1, (total - t) / cooldown)
    return Schedule(rate, name=schedule.decay_type)


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "decay-not-times-rate": kit.Convention(
        "the schedule multiplies the weight decay, which is not times the rate",
        "big_vision/optax.py:136",
        lambda config: config.wd != 0,
    ),
    "decays-kernels": kit.Convention(
        "without wd_mults only parameters named kernel are decayed",
        "big_vision/optax.py:133",
        lambda config: config.wd != 0 and "wd_mults" not in config,
    ),
    "default-arguments": kit.Convention(
        "get_config is read with the defaults of its arguments",
        "big_vision/configs/common.py:29",
        lambda config: True,
    ),
    "negative-after-the-run": kit.Convention(
        "a cooldown makes the rate negative after the run",
        "big_vision/utils.py:1139",
        lambda config: any(
            (getattr(schedule, f"cooldown_{unit}") or 0) > 0
            for _, schedule in config.schedule
            if schedule is not None
            for unit in _UNITS
        ),
    ),
}
_FUNCTION = "get_config"
_OPTIMIZERS = {
    "scale_by_adam": "adam",
    "big_vision.scale_by_adafactor": "adafactor",
    "big_vision.momentum_hp": "sgd",
    "big_vision.sgd": "sgd",
    "scale_by_lion": "lion",
    "identity": "sgd",
}
_ARGUMENTS = {"b1": "beta1", "b2": "beta2", "eps": "eps"}


def _matches(document: kit.Document) -> bool:
    if document.syntax is not kit.Syntax.PYTHON or document.python is None:
        return False
    return any(
        isinstance(statement, ast.FunctionDef) and statement.name == _FUNCTION
        for statement in document.python.tree.body
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read(_config(reading.document))
    batch = config.input.batch_size or config.batch_size or reading.facts.global_batch_size
    total = _total(reading, config, batch)
    context = reading.context.with_facts(total_updates=total, global_batch_size=batch)
    plan = _plan(config)
    groups: list[kit.ParamGroup] = []
    frozen: list[kit.ParamGroup] = []
    for pattern, schedule in config.schedule:
        if schedule is None:
            still = {"lr": constant(0), "weight_decay": constant(0)}
            frozen.append(kit.ParamGroup(still, plan, kit.Role.FROZEN, pattern, (pattern,)))
            continue
        with schedule.origin.locate_errors():
            factor = _factor(context, schedule)
        # big_vision/optax.py:136: the decay is added before the schedule multiplies, and is not
        # times the rate.
        schedules = {"lr": factor.scale(config.lr), "weight_decay": factor.scale(config.wd)}
        patterns = (pattern,) if pattern else ()
        groups.append(kit.ParamGroup(schedules, plan, kit.Role.of(pattern), pattern, patterns))
    if not groups:
        raise config.error("all parameters are frozen: every schedule is None", "schedule")
    # The first group that is not frozen is the default one.
    first = groups[0].schedules
    for key, mults in (("lr", config.lr_mults), ("weight_decay", config.wd_mults)):
        name = "lr_mults" if key == "lr" else "wd_mults"
        for pattern, mult in mults:
            schedules = {**first, key: first[key].scale(mult)}
            label = f"{pattern} ({name})"
            groups.append(kit.ParamGroup(schedules, plan, kit.Role.NAMED, label, (pattern,)))
    return reading.recipe(
        (*groups, *frozen),
        horizon=total,
        clipping=kit.Clipping(config.grad_clip_norm) if config.grad_clip_norm else None,
        accumulation=1,
        values=(config,),
        derived={"lr": config.lr, "weight_decay": config.wd},
    )


def _config(document: kit.Document) -> kit.RawSection:
    """The mapping that ``get_config`` returns."""
    module = document.python
    outer = kit.RawSection(document, document.content)
    body = None
    if module is not None:
        module = replace(module, convert=_known_call)
        body = kit.python_text.run_function(module, _FUNCTION, document.source)
    if body is None:
        raise outer.error(f"there is no function {_FUNCTION}")
    content = body.names.get("return")
    if not isinstance(content, Mapping):
        raise outer.error(f"{_FUNCTION} does not return a config that can be read", _FUNCTION)
    return kit.RawSection(document, content, _FUNCTION)


def _known_call(value: Any) -> Any:
    """The mapping that ``parse_arg`` or ``ConfigDict`` makes; other values are unchanged."""
    if not isinstance(value, kit.ConfigCall):
        return value
    name = value.name.rpartition(".")[2]
    if name == "ConfigDict":
        first = value.args[0] if value.args else value.kwargs.get("initial_dictionary", {})
        return dict(first) if isinstance(first, Mapping) else value
    if name == "parse_arg":
        text = value.args[0] if value.args else value.kwargs.get("arg")
        return _parse_arguments(
            text, {k: v for k, v in value.kwargs.items() if k not in ("arg", "lazy")}
        )
    return value


def _parse_arguments(text: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``parse_arg``: its defaults, and the text of ``get_config``'s own default.

    A default may be a pair of the value and the function that converts a text.
    """
    # arg of parse_arg("…", runlocal=(False, bool)): a pair of default and converter.
    plain = {k: v[0] if isinstance(v, tuple) and len(v) == 2 else v for k, v in spec.items()}
    if text is not None and not isinstance(text, str):
        return {key: kit.Unresolved(key) for key in plain}
    # get_config(arg=None): without an argument the defaults count.
    text = text or ""
    # parse_arg of configs/common.py: a single word sets the flag of that name, or the first
    # argument.
    if text and "," not in text and "=" not in text:
        text = f"{text}=True" if text in plain or not plain else f"{next(iter(plain))}={text}"
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        plain[key] = _convert(value if equals else "True", plain.get(key))
    return plain


def _convert(text: str, default: Any) -> Any:
    """A text as the type of a default."""
    try:
        # bool("False") is True: the texts of flags have a table.
        if isinstance(default, bool):
            return {"True": True, "true": True, "False": False, "false": False, "": False}[text]
        return type(default)(text) if isinstance(default, int | float) else text
    except (KeyError, ValueError):
        return kit.Unresolved(text)


def _total(reading: kit.Reading, config: Config, batch: int | None) -> int:
    """The updates of the run."""
    if config.total_steps is not None:
        return int(config.total_steps)
    place = reading.document.place(config.origin.at("total_steps"))
    if config.total_examples is not None and batch:
        amount = float(config.total_examples) / batch
    elif config.total_epochs is not None and batch:
        (size,) = reading.facts.require("dataset_size", where=place)
        amount = float(config.total_epochs) * int(size) / batch
    else:
        (updates,) = reading.facts.require("total_updates", where=place)
        return int(updates)
    # The length of the run is rounded as the lengths of a schedule are.
    # max(1, round(…)) as in _duration.
    return max(1, round(amount)) if amount else 0


def _plan(config: Config) -> kit.OptimizerPlan:
    name = config.optax_name
    arguments = {_ARGUMENTS.get(key, key): value for key, value in config.optax.content.items()}
    place = config.origin.document.place(config.origin.at("optax_name"))
    return kit.plan_optimizer(_OPTIMIZERS.get(name, name), arguments, where=place)


_NAMES = {
    "adafactor": "big_vision.scale_by_adafactor",
    "lion": "scale_by_lion",
    "sgd": "big_vision.sgd",
}


def _sections(form: kit.WarmupDecayForm) -> Iterator[dict[str, Any]]:
    warmup = kit.native(form.warmup())
    curve: dict[str, Any] = {"warmup_steps": warmup} if warmup else {}
    has_whole_run = kit.nearest_integer(form.end) == form.total
    match form.curve:
        # The cosine of upstream ends at 0: another minimum has no key.
        case kit.CurveName.COSINE if form.low == 0 and has_whole_run:
            yield {**curve, "decay_type": "cosine"}
        case kit.CurveName.LINEAR | kit.CurveName.POWER if has_whole_run and not form.has_plateau:
            low = form.low_ratio
            power = kit.native(form.power)
            yield {**curve, "decay_type": "polynomial", "end": low, "power": power}
        # linear with a plateau has no key: a constant multiplier with a cooldown is the same curve.
        case kit.CurveName.LINEAR if form.low == 0 and has_whole_run:
            # A constant rate times a cooldown at the end.
            cooldown = {"cooldown_steps": form.total - kit.nearest_integer(form.begin)}
            yield {**curve, **cooldown, "decay_type": "stair"}
        case kit.CurveName.CONSTANT:
            yield {**curve, "decay_type": "stair"}
        case kit.CurveName.STEPS:
            mults = [kit.native(value / form.peak) for _, value in form.marks[1:]]
            yield {**curve, "decay_type": "stair", "steps": form.milestones, "mults": mults}
        case kit.CurveName.INVERSE_ROOT | kit.CurveName.SEQUENCE:
            yield from _inverse_root(form, curve)
        case _:
            return


def _inverse_root(form: kit.WarmupDecayForm, curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An inverse root after the warmup, perhaps with a cooldown to 0 at the end."""
    if form.curve is kit.CurveName.INVERSE_ROOT:
        yield {
            **curve,
            "decay_type": "rsqrt",
            "timescale": kit.native(form.end),
            "shift": kit.native(-form.begin - kit.nearest_integer(form.warmup())),
        }


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    options: dict[str, Any] = {}
    if optimizer.betas():
        options = {"b1": optimizer.betas()[0], "b2": optimizer.betas()[1]}
        if "eps" in optimizer.values:
            options["eps"] = kit.native(optimizer.values["eps"])
    config: dict[str, Any] = {
        "total_steps": form.total,
        # All lengths are written in steps, so the batch size has no effect.
        "input": {"batch_size": 1},
        "optax_name": _NAMES.get(optimizer.argument(optimizer.name), "scale_by_adam"),
        "optax": options | optimizer.arguments("lr", "weight_decay"),
        "lr": kit.native(form.peak),
        "wd": kit.native(_decay(form, optimizer)),
    }
    config |= optimizer.clip("grad_clip_norm")
    mults = [
        [pattern, kit.native(group.factor)]
        for group in optimizer.groups
        for pattern in group.patterns
        if group.name.endswith("(lr_mults)") and group.factor is not None
    ]
    if mults:
        config["lr_mults"] = mults
    for curve in _sections(form):
        frozen = [
            pattern
            for group in optimizer.groups
            if group.factor == 0 and not group.name.endswith("_mults)")
            for pattern in group.patterns
        ]
        schedule: Any = curve
        if frozen:
            schedule = [*([pattern, None] for pattern in frozen), [".*", curve]]
        yield {**config, "schedule": schedule}


def _decay(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Any:
    """The weight decay that the schedule multiplies."""
    changing = optimizer.schedules.get("weight_decay")
    if changing is not None:
        return changing.peak
    return (
        optimizer.weight_decay or sp.S.Zero if form.curve is kit.CurveName.CONSTANT else sp.S.Zero
    )


def _text(config: kit.Config) -> str:
    lines = [f"  config.{key} = {kit.literal(value)}\n" for key, value in config.items()]
    return (
        "import ml_collections as mlc\n\n\n"
        "def get_config(arg=None):\n"
        "  config = mlc.ConfigDict()\n" + "".join(lines) + "  return config\n"
    )


FRAMEWORK = kit.Framework(
    "big_vision",
    kit.section_entries(
        dict.fromkeys(_CURVES, _factor),
        {"schedule": Curve},
        style=lambda schedule: str(schedule.decay_type),
    ),
    versions=("0127fb6b337e",),
    repository="https://github.com/google-research/big_vision",
    upstream="big_vision/utils.py, big_vision/optax.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".py", _configs, {}, ("adam", "sgd", "lion"), text=_text),
)
