"""icefall: Eden and Eden2, which count batches and epochs, and the flags of its scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_div, t
from closedform.recipes import kit
from closedform.schedules.branches import stepwise

CLOCK = kit.Clock(kit.Unit.UPDATE, offset=1)


class Scheduler(kit.Section):
    base_lr: kit.Rate = 0.045
    lr_batches: kit.RealSteps = 7500
    lr_epochs: kit.RealEpochs = 3.5
    warmup_batches: kit.RealSteps = 500
    warmup_start: kit.Number = 0.5


class Flags(kit.FlagSection):
    base_lr: kit.Rate | None = None
    initial_lr: kit.StartRate | None = None
    lr_batches: kit.RealSteps | None = None
    lr_epochs: kit.RealEpochs | None = None
    num_epochs: kit.Epochs = 30
    warmup_start: kit.Number | None = None
    warmup_batches: kit.RealSteps | None = None


_OF_CLASS = {
    "Eden": frozenset(Scheduler.keys),
    "Eden2": frozenset(Scheduler.keys) - {"lr_epochs"},
    "Eden-2022": frozenset({"base_lr", "lr_batches", "lr_epochs"}),
}
"""The arguments of each class; the version of 2022 has no warmup."""
_FACTS = ("defaults_of_the_script", "warmup_batches", "warmup_start")

DEFECTS: Mapping[str, kit.Note[[bool, bool]]] = {
    "start-of-the-warmup": kit.Convention(
        "the scripts choose where the warmup starts, as in the fact warmup_start: most at half of "
        "the rate, librispeech's zipformer at a tenth",
        "egs/librispeech/ASR/zipformer/train.py:1351",
        lambda is_complete, has_start: not has_start,
        classes=(),
    ),
    "defaults-of-the-script": kit.Convention(
        "the defaults of base-lr, lr-batches and lr-epochs differ by script: without the fact "
        "defaults_of_the_script, the defaults of librispeech's zipformer count",
        "egs/librispeech/ASR/zipformer/train.py:387",
        lambda is_complete, has_start: not is_complete,
        classes=(),
    ),
    "rate-not-reached": kit.Convention(
        "the rate is never reached: the schedule falls from the first batch on, and at each epoch",
        "egs/librispeech/ASR/zipformer/optim.py:887",
    ),
}


def _decay(count: sp.Expr, scale: sp.Expr, power: sp.Expr) -> sp.Expr:
    if scale == 0:
        raise DefinitionError("lr_batches and lr_epochs must not be 0: they divide")
    return ((count**2 + scale**2) / scale**2) ** -power


def _rate(context: kit.Context, name: str, values: Scheduler) -> Schedule:
    for key in Scheduler.keys:
        is_known = key in _OF_CLASS[name] or key not in values
        kit.refuse_unless(is_known, f"{name} has no argument {key!r}", context.where)
    rate = context.of_group("lr", values.base_lr)
    batch = CLOCK.position(context.numbers)
    if name == "Eden2":
        # Eden2 has one factor, the square root; Eden has two, each a fourth root (optim.py:887).
        falling = rate * _decay(batch, values.lr_batches, sp.S.Half)
    else:
        (updates,) = context.numbers.require("updates_per_epoch", where=context.where)
        # step_epoch is called at the start of an epoch, with epochs counted from 0.
        epoch = floor_div(t, updates)
        quarter = sp.Rational(1, 4)
        falling = rate * _decay(batch, values.lr_batches, quarter)
        falling *= _decay(epoch, values.lr_epochs, quarter)
    if name == "Eden-2022":
        return Schedule(falling, name=name)
    start, warmup = values.warmup_start, values.warmup_batches
    kit.refuse_unless(0 <= start <= 1, f"warmup_start must be in 0..1, got {start}", context.where)
    # The warmup ends where the batch n = t + 1 reaches warmup_batches.
    rise, end = falling * (start + (1 - start) * batch / warmup), kit.first_from(warmup - 1)
    return Schedule(stepwise([rise, falling], [end]), name=name)


def _of_class(context: kit.Context, values: Scheduler) -> Schedule:
    return _rate(context, context.path[-1], values)


_TYPICAL = {"base-lr", "lr-batches", "lr-epochs"}


def _matches(document: kit.Document) -> bool:
    flags = set(document.content)
    return document.syntax is kit.Syntax.ARGUMENTS and (
        len(_TYPICAL & flags) > 1
        or not ({"lr-batches", "lr-epochs"}.isdisjoint(flags))
        or {"max-duration", "num-epochs"} <= flags
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    flags, context = Flags.read_whole(reading.document), reading.context
    # Eve was the optimizer of 2022, whose scripts call the rate initial-lr.
    is_of_2022 = "initial_lr" in flags
    defaults = context.facts.get("defaults_of_the_script", {})
    if not isinstance(defaults, dict):
        raise DefinitionError(f"defaults_of_the_script must be a mapping, got {defaults!r:.60}")
    content: dict[str, Any] = {
        key.removeprefix("--").replace("-", "_"): value for key, value in defaults.items()
    }
    if is_of_2022:
        # The scripts of 2022 have 5000 and 6 by default; the zipformer's 7500 and 3.5 came later.
        content = {"lr_batches": 5000, "lr_epochs": 6, **content, "base_lr": flags.initial_lr}
    for key in Scheduler.keys:
        value = getattr(flags, key)
        if value is None and key in _FACTS:
            value = context.facts.get(key)
        if value is not None:
            content[key] = value
    name = "Eden-2022" if is_of_2022 else "Eden"
    content = {key: value for key, value in content.items() if key in _OF_CLASS[name]}
    values = Scheduler.read(type(flags.origin)(flags.origin.document, content))
    with flags.origin.locate_errors():
        rate = _rate(context, name, values)
        (updates,) = context.numbers.require("updates_per_epoch", where=context.where)
    plan = kit.plan_optimizer("Eve" if is_of_2022 else "ScaledAdam", {}, by_name=False)
    return reading.recipe(
        [kit.ParamGroup({"lr": rate}, plan, kit.Role.DEFAULT)],
        # Eden has no end: only the flags limit the run.
        horizon=flags.num_epochs * int(updates),
        clipping=None,
        accumulation=1,
        values=(
            set(content) >= {"base_lr", "lr_batches", "lr_epochs"},
            is_of_2022 or "warmup_start" in content,
        ),
    )


FRAMEWORK = kit.Framework(
    "icefall",
    kit.section_entries(dict.fromkeys(_OF_CLASS, _of_class), {"": Scheduler}),
    versions=("36e0420c7e3e",),
    repository="https://github.com/k2-fsa/icefall",
    upstream="egs/librispeech/ASR/zipformer/optim.py, egs/*/*/*/train.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("group_index", "group_lrs", *_FACTS),
)
