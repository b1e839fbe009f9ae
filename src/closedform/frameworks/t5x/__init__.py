"""T5X: ``create_learning_rate_scheduler``, a product of named factors, and its gin files.

Files that a gin file includes are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.language import Schedule, floor_div, floor_mod
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
NAME = "create_learning_rate_scheduler"


class Scheduler(kit.Section):
    factors: str = "constant * linear_warmup * rsqrt_decay"
    base_learning_rate: kit.Rate = 0.5
    warmup_steps: kit.RealSteps = 1000
    decay_factor: kit.Number = 0.5
    steps_per_decay: kit.RealSteps = 20_000
    steps_per_cycle: kit.RealSteps = 100_000
    step_offset: kit.Number = 0
    min_learning_rate: kit.EndRate = 1e-8


_TOTALS = ("TRAIN_STEPS", "train.total_steps", "train_script.train.total_steps")


def _warmup(scheduler: Scheduler, n: sp.Expr) -> sp.Expr:
    return sp.Min(1, n / scheduler.warmup_steps)


def _linear_decay(scheduler: Scheduler, n: sp.Expr) -> sp.Expr:
    warmup = scheduler.warmup_steps
    fall = 1 + scheduler.decay_factor * (warmup - n)
    return scheduler.base_learning_rate * sp.Min(n / warmup, fall)


def _root(scheduler: Scheduler, n: sp.Expr) -> sp.Expr:
    return 1 / sp.sqrt(sp.Max(n, scheduler.warmup_steps))


def _cosine(scheduler: Scheduler, n: sp.Expr) -> sp.Expr:
    steps = sp.Max(0, n - scheduler.warmup_steps)
    part = floor_mod(steps, scheduler.steps_per_cycle) / scheduler.steps_per_cycle
    return (1 + sp.cos(sp.pi * part)) / 2


_FACTORS: Mapping[str, Callable[[Scheduler, sp.Expr], sp.Expr]] = {
    "constant": lambda scheduler, n: scheduler.base_learning_rate,
    "linear_warmup": _warmup,
    "linear_decay": _linear_decay,
    "rsqrt_decay": _root,
    "rsqrt_normalized_decay": lambda scheduler, n: (
        sp.sqrt(scheduler.warmup_steps) * _root(scheduler, n)
    ),
    "decay_every": lambda scheduler, n: (
        scheduler.decay_factor ** floor_div(n, scheduler.steps_per_decay)
    ),
    "cosine_decay": _cosine,
}

DEFECTS: Mapping[str, kit.Note[[Scheduler]]] = {
    "least-rate": kit.Convention(
        "the rate is at least min_learning_rate, 1e-8 by default, in the warmup as well",
        "t5x/utils.py:920",
        lambda scheduler: True,
    ),
    "ignored-warmup": kit.Convention(
        "the factor constant has no warmup: warmup_steps has no effect",
        "t5x/utils.py:896",
        lambda scheduler: _names(scheduler) == ["constant"] and "warmup_steps" in scheduler,
        classes=(),
    ),
    "no-number": kit.Convention(
        "a warmup of 0 updates gives a value that is not a number",
        "t5x/utils.py:899",
    ),
}


def _names(scheduler: Scheduler) -> list[str]:
    return [name.strip() for name in scheduler.factors.split("*")]


def _rate(context: kit.Context, scheduler: Scheduler) -> Schedule:
    names = _names(scheduler)
    for name in names:
        if name not in _FACTORS:
            hint = nearest(name, _FACTORS)
            raise scheduler.error(f"there is no factor {name!r}", "factors", hint)
    if scheduler.warmup_steps <= 0 and names != ["constant"]:
        raise scheduler.error(
            "warmup_steps must be above 0 (the rate of update 0 is not a number), got "
            f"{scheduler.warmup_steps}",
            "warmup_steps",
        )
    offset = scheduler.step_offset
    n = CLOCK.position(context.numbers) - offset
    n = sp.Max(0, n) if offset > 0 else n
    rate = sp.Mul(*(_FACTORS[name](scheduler, n) for name in names))
    return Schedule(sp.Max(rate, scheduler.min_learning_rate), name=NAME)


def _matches(document: kit.Document) -> bool:
    if document.syntax is not kit.Syntax.GIN:
        return False
    content = document.content
    files = [str(file) for file in content.get(kit.gin_text.INCLUDES, [])]
    is_bound = any(f"{NAME}." in key or key.startswith("trainer.Trainer.") for key in content)
    return is_bound or any(file.startswith("t5x/") for file in files)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = kit.document_section(reading.document)
    _check_function(config)
    bindings = _bindings(config)
    scheduler = Scheduler.read(bindings)
    if kit.gin_text.INCLUDES in config and not {"factors", "base_learning_rate"} <= set(
        bindings.content
    ):
        raise config.error(
            f"the rate is bound in an included file: {NAME} needs factors and base_learning_rate",
            hint=f"merge {', '.join(map(str, config.value(kit.gin_text.INCLUDES)))} into the file",
        )
    if not bindings.content:
        raise config.error(f"{NAME} has no bindings", hint="give the file that binds them")
    with bindings.locate_errors():
        rate = _rate(reading.context, scheduler)
    return reading.recipe(
        [kit.ParamGroup({"lr": rate}, _plan(config), kit.Role.DEFAULT)],
        horizon=_updates(reading, config),
        clipping=None,
        accumulation=config.integer("trainer.Trainer.num_microbatches", None),
        values=(scheduler,),
    )


def _check_function(config: kit.RawSection) -> None:
    """Refuses another function of the rate than T5X's own."""
    for key, value in config.content.items():
        if key.endswith("learning_rate_fn"):
            name = value.name if isinstance(value, kit.ConfigCall | kit.Reference) else str(value)
            if name.rpartition(".")[2] != NAME:
                raise config.error(f"the function of the rate must be {NAME}, got {name}", key)
        if key.startswith("optax.") and key.endswith(".learning_rate"):
            raise config.error(
                "the optimizer has a schedule of optax of its own, which is not read",
                key,
                hint="read that schedule: closedform.frameworks.schedule('optax', …)",
            )


def _bindings(config: kit.RawSection) -> kit.RawSection:
    """The parameters of the scheduler, from whichever module it is imported."""
    content: dict[str, Any] = {}
    for key, value in config.content.items():
        module, _, parameter = key.rpartition(".")
        if module.rpartition("/")[2].rpartition(".")[2] == NAME:
            content[parameter] = value
    return kit.RawSection(config.document, content, NAME)


def _updates(reading: kit.Reading, config: kit.RawSection) -> int | None:
    """The updates of the run, from the file or the facts; None if neither has them."""
    for key in _TOTALS:
        if key in config and not isinstance(config.content[key], kit.Unresolved):
            return int(config.integer(key))
    return reading.facts.total_updates


def _plan(config: kit.RawSection) -> kit.OptimizerPlan:
    """The optimizer, which most files leave to the model that they include."""
    value = config.content.get("OPTIMIZER", config.content.get("train_script.optimizer_def"))
    name = value.name if isinstance(value, kit.ConfigCall | kit.Reference) else ""
    classes = sorted({key.rpartition(".")[0] for key in config.content if ".Adafactor." in key})
    name = name or (classes[0] if classes else "of an included file")
    return kit.plan_optimizer(name.rpartition(".")[2], {}, where=config.document.place("OPTIMIZER"))


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    del optimizer
    for values in _products(form):
        yield {
            "TRAIN_STEPS": form.total,
            **{
                f"utils.{NAME}.{key}": kit.native(value)
                for key, value in values.items()
                if key != "factors"
            },
            f"utils.{NAME}.factors": values["factors"],
        }


def _products(form: kit.WarmupDecayForm) -> Iterator[dict[str, Any]]:
    warmup = max(1, kit.nearest_integer(form.warmup()))
    least = {"min_learning_rate": form.after or sp.Rational(1, 10**8)}
    match form.curve:
        case kit.CurveName.CONSTANT if form.rise is None:
            yield {"factors": "constant", "base_learning_rate": form.peak, **least}
        case kit.CurveName.CONSTANT:
            yield {
                "factors": "constant * linear_warmup",
                "base_learning_rate": form.peak,
                "warmup_steps": warmup,
                "min_learning_rate": form.at() or sp.Rational(1, 10**8),
            }
        case kit.CurveName.INVERSE_ROOT if form.begin == 0:
            base = form.peak * sp.sqrt(form.end)
            length = form.end
            if form.rise is None:
                factors = {"factors": "constant * rsqrt_decay", "base_learning_rate": base}
                yield {**factors, "warmup_steps": length, **least}
            else:
                names = "constant * linear_warmup * rsqrt_decay"
                for steps in (warmup, form.first):
                    yield {
                        "factors": names,
                        "base_learning_rate": base,
                        "warmup_steps": steps,
                        **least,
                    }
        case kit.CurveName.LINEAR if form.rise is not None and form.peak != 0:
            share = (form.peak - form.low) / (form.end - form.begin) / form.peak
            yield {
                "factors": "linear_decay",
                "base_learning_rate": form.peak,
                "warmup_steps": warmup,
                "decay_factor": share,
                **least,
            }
        case _:
            return


FRAMEWORK = kit.Framework(
    "t5x",
    kit.section_entries({NAME: _rate}, {"": Scheduler}),
    versions=("cc342d419ec3",),
    repository="https://github.com/google-research/t5x",
    upstream="t5x/utils.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".gin", _configs, {}, ()),
)
