"""The reader of MMEngine's configs, whose ``_base_`` files are merged already.

Of a config, ``optim_wrapper``, ``param_scheduler``, ``train_cfg`` and ``auto_scale_lr`` are read. A
scheduler's ``end`` is that of the training loop where it is not given. In an ``IterBasedTrainLoop``
no epoch ends, so that schedulers that count epochs do nothing after the first value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from closedform.frameworks import torch
from closedform.frameworks.mmengine.classes import split_name
from closedform.frameworks.mmengine.schedules import CLOCK, param_schedule
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

_KEYS = ("optim_wrapper", "param_scheduler", "train_cfg", "auto_scale_lr", "train_dataloader")
_OF_MMCV = ("lr_config", "momentum_config", "optimizer_config", "runner")
"""Keys of MMCV 1, which MMEngine does not read."""
_WRAPPER = (
    "type",
    "optimizer",
    "accumulative_counts",
    "clip_grad",
    "paramwise_cfg",
    "constructor",
    "loss_scale",
    "dtype",
    "use_fsdp",
    "cache_enabled",
    "bf16_enabled",
    "opt_level",
)
_LOOP = (
    "type",
    "by_epoch",
    "max_epochs",
    "max_iters",
    "val_begin",
    "val_interval",
    "dynamic_intervals",
)
_MULTIPLIERS = {
    "norm_decay_mult": ("norm", "weight_decay"),
    "bias_decay_mult": ("bias", "weight_decay"),
    "bias_lr_mult": ("bias", "lr"),
    "dwconv_decay_mult": ("dwconv", "weight_decay"),
    "flat_decay_mult": ("flat", "weight_decay"),
    "dcn_offset_lr_mult": ("dcn_offset", "lr"),
}
"""Options of ``paramwise_cfg``: the group that they make, and what they multiply."""
_PARAMWISE = (
    *_MULTIPLIERS,
    "custom_keys",
    "bypass_duplicate",
    "layer_decay_rate",
    "num_layers",
    "decay_rate",
    "decay_type",
    "_delete",  # of mmpretrain's Twins, for "_delete_": the constructor ignores it
)


def matches(document: kit.Document) -> bool:
    """Returns whether a config has the optimizer wrapper or the schedulers of MMEngine."""
    found = document.content
    return "param_scheduler" in found and ("optim_wrapper" in found or "train_cfg" in found)


@dataclass(frozen=True, slots=True)
class _Loop:
    """The training loop: its length in epochs or iterations, and the iterations of an epoch."""

    has_epochs: bool
    epochs: int | None
    iterations: int | None
    epoch_length: int | None

    @property
    def total(self) -> int | None:
        """The iterations of the run, None if they are not known."""
        if not self.has_epochs:
            return self.iterations
        if self.epochs is None or self.epoch_length is None:
            return None
        return self.epochs * self.epoch_length


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown, or a value is not valid.
        ArgumentError: The fact ``updates_per_epoch`` is missing.
    """
    top = kit.document_section(reading.document)
    _check(top)
    wrapper = top.section("optim_wrapper")
    if "optim_wrapper" not in top:
        raise top.error("optim_wrapper is missing", hint="the rate of the optimizer is in it")
    several = "optimizer" not in wrapper and all(
        isinstance(part, Mapping) and "optimizer" in part
        for key, part in wrapper.content.items()
        if key != "constructor"
    )
    names = [key for key in wrapper.content if key != "constructor"] if several else [""]
    groups: list[kit.ParamGroup] = []
    loops = []
    specs: list[dict[str, Any]] = []
    has_layers = False
    first = wrapper.section(names[0]) if several else wrapper
    for name in names:
        one = wrapper.section(name) if several else wrapper
        one.check(_WRAPPER)
        loop = _loop(reading, top, one)
        loops.append(loop)
        schedulers = _schedulers(top, name, loop, reading)
        groups += _groups(top, one, schedulers, loop, reading, name)
        specs += schedulers
        has_layers |= "layer_decay_rate" in one.section("paramwise_cfg")
    accumulation = first.integer("accumulative_counts", 1)
    total = loops[0].total
    return reading.recipe(
        groups,
        clock=kit.Clock(kit.Unit.MICRO_BATCH) if accumulation > 1 else CLOCK,
        horizon=None if total is None else total // accumulation,
        clipping=_clipping(first),
        accumulation=accumulation,
        values=(specs, loops[0].has_epochs, has_layers),
    )


def _check(top: kit.RawSection) -> None:
    """Refuses inheritance that is not merged, and other keys than those of MMEngine."""
    if "*" in top:
        raise top.error(
            "the config inherits by read_base", hint="merge it first: Config.fromfile(…).dump(…)"
        )
    if "_base_" in top:
        raise top.error(
            "the config inherits from _base_",
            "_base_",
            hint="give the files, as in load_recipe(…, files=directory)",
        )
    for key in _OF_MMCV:
        if key in top:
            raise top.error(f"{key} is a key of MMCV 1", key, hint="MMEngine has param_scheduler")
    for key, value in top.content.items():
        # Numbers and texts of a Python file are its own variables.
        is_section = isinstance(value, Mapping | list | tuple)
        if (
            key not in _KEYS
            and is_section
            and kit.RELATED.search(key)
            and top.document.python is None
        ):
            raise top.error(f"unknown key {key!r}", key)
    if "optimizer" in top and "optim_wrapper" not in top:
        raise top.error("optimizer is a key of MMCV 1", "optimizer", hint="write optim_wrapper")


def _loop(reading: kit.Reading, top: kit.RawSection, wrapper: kit.RawSection) -> _Loop:
    train = top.section("train_cfg")
    if not reading.document.python:
        train.check_related(_LOOP)
    kind = _class_name(train.value("type", ""))
    by_epoch = train.flag("by_epoch", True) if not kind else kind != "IterBasedTrainLoop"
    counts = wrapper.integer("accumulative_counts", 1)
    length = reading.facts.updates_per_epoch
    if length is None and reading.facts.dataset_size and reading.facts.global_batch_size:
        # The last batch of an epoch may be a smaller one.
        length = -(-reading.facts.dataset_size // reading.facts.global_batch_size)
    return _Loop(
        by_epoch,
        train.integer("max_epochs", None),
        train.integer("max_iters", None),
        None if length is None else int(length) * counts,
    )


def _class_name(value: Any) -> str:
    """The class of ``type``: a text, or a name that is imported."""
    text = value.name if isinstance(value, kit.Reference) else str(value)
    return text.rpartition(".")[2]


def _schedulers(
    top: kit.RawSection, name: str, loop: _Loop, reading: kit.Reading
) -> list[dict[str, Any]]:
    """The schedulers of an optimizer, each with its end."""
    given = top.value("param_scheduler", [])
    if name and isinstance(given, Mapping) and "type" not in given:
        given = given.get(name, [])
    if not isinstance(given, Mapping | list | tuple):
        raise top.error(
            f"param_scheduler must be a list of mappings, got {given!s:.60}", "param_scheduler"
        )
    specs = [given] if isinstance(given, Mapping) else list(given)
    if loop.has_epochs and loop.epoch_length is None and specs:
        reading.facts.require("updates_per_epoch", where=top.document.place("param_scheduler"))
    made = []
    for index, spec in enumerate(specs):
        place = f"param_scheduler[{index}]"
        if not isinstance(spec, Mapping):
            raise top.error(f"a param scheduler must be a mapping, got {spec!r:.60}", place)
        entry = {key: value for key, value in spec.items() if value is not None or key != "end"}
        entry["type"] = _class_name(entry.get("type", ""))
        if "end" not in entry:
            end = _default_end(loop, bool(entry.get("by_epoch", True)))
            if end is None:
                raise top.error(
                    "the end of the scheduler is that of the run, which is not known",
                    place,
                    hint="give max_epochs or max_iters in train_cfg",
                )
            entry["end"] = end
        made.append(entry)
    return made


def _default_end(loop: _Loop, by_epoch: bool) -> int | None:
    """The end of the run in the unit of the scheduler; an endless epoch is one."""
    if by_epoch:
        return loop.epochs if loop.has_epochs else 1
    return loop.total


def _groups(
    top: kit.RawSection,
    wrapper: kit.RawSection,
    schedulers: list[dict[str, Any]],
    loop: _Loop,
    reading: kit.Reading,
    name: str,
) -> list[kit.ParamGroup]:
    """The param groups of an optimizer: that of all parameters, and those of ``paramwise_cfg``."""
    given = wrapper.section("optimizer")
    kind = _class_name(given.value("type", kit.REQUIRED))
    values = {key: _value(given, key, default) for key, default in _defaults(kind).items()}
    scale = _scale(top, reading, wrapper.integer("accumulative_counts", 1)) if "lr" in values else 1
    values = {key: value * scale if key == "lr" else value for key, value in values.items()}
    arguments = {key: v for key, v in given.content.items() if key not in ("type", *_KEYED)}
    plan = kit.plan_optimizer(kind, arguments, where=reading.document.place(given.path))
    keys = {"lr", "weight_decay"} & values.keys() | _keys(schedulers)
    counts = wrapper.integer("accumulative_counts", 1)

    def group(label: str, own: Mapping[str, Any], patterns: tuple[str, ...] = ()) -> kit.ParamGroup:
        made = {
            key: _schedule(
                reading, {**given.content, **values}, schedulers, loop, key, own, counts, wrapper
            )
            for key in sorted(keys)
        }
        return kit.ParamGroup(made, plan, kit.Role.of(label), label, patterns)

    first = group(name, values)
    rest = [
        group(f"{name}.{label}" if name else label, {**values, **changes}, patterns)
        for label, changes, patterns in _paramwise(wrapper, values)
    ]
    return [first, *rest]


_KEYED = ("lr", "weight_decay", "momentum")


def _defaults(kind: str) -> dict[str, Any]:
    """The defaults of rate, weight decay and momentum of a class of torch; of others, only 0."""
    known = torch.FRAMEWORK.optimizers.get(kind)
    if known is None:
        return {"lr": kit.REQUIRED, "weight_decay": 0}
    found = {p.name: p.default for p in known.parameters if p.name in _KEYED}
    return {"lr": kit.REQUIRED, **found}


def _value(given: kit.RawSection, key: str, default: Any) -> Any:
    return exact_number(given.number(key, default), given.at(key))


def _keys(schedulers: list[dict[str, Any]]) -> set[str]:
    """The entries of a param group that are scheduled."""
    found = (split_name(spec["type"]) for spec in schedulers)
    named = {one[1] for one in found if one is not None and one[1] is not None}
    return named | {str(spec["param_name"]) for spec in schedulers if "param_name" in spec}


def _schedule(
    reading: kit.Reading,
    optimizer: Mapping[str, Any],
    schedulers: list[dict[str, Any]],
    loop: _Loop,
    key: str,
    own: Mapping[str, Any],
    counts: int,
    wrapper: kit.RawSection,
) -> Schedule:
    facts: dict[str, Any] = {"param_groups": [own], "group_index": 0}
    if loop.epoch_length is not None:
        facts["updates_per_epoch"] = loop.epoch_length
    context = replace(reading.context, key=key, path=(key,)).with_facts(**facts)
    plain = {name: v for name, v in optimizer.items() if name in ("betas", *_KEYED)}
    config = {"optimizer": plain, "param_scheduler": schedulers}
    with wrapper.locate_errors():
        made = param_schedule(config, context, has_epochs=loop.has_epochs)
    # Schedulers step after every micro-batch; an update is made at the last one of ``counts``.
    return made if counts == 1 else every(made, counts)


def every(schedule: Schedule, counts: int) -> Schedule:
    """Returns a schedule of micro-batches at the last one of each ``counts``.

    Example:
        >>> from closedform.schedules import linear
        >>> every(linear(0, 8, steps=8), 4).exact(0)
        3
    """
    moved = schedule.bound.xreplace({t: counts * t + counts - 1})
    return Schedule(moved, name=schedule.name)


def _scale(top: kit.RawSection, reading: kit.Reading, counts: int) -> Any:
    """The factor of ``auto_scale_lr``, which is off unless it is enabled.

    The runner divides the samples of one step of all processes, without the accumulation, by
    ``base_batch_size`` (mmengine/runner/runner.py:957).
    """
    section = top.section("auto_scale_lr")
    section.check(("enable", "base_batch_size"))
    if not section.flag("enable", False):
        return 1
    base, facts = exact_number(section.integer("base_batch_size")), reading.facts
    size, where = facts.global_batch_size, top.document.place(section.path)
    loader = top.section("train_dataloader")
    if "batch_size" not in loader or (size is not None and facts.world_size is None):
        (size,) = facts.require("global_batch_size", where=where)
        return size / (base * counts)
    batch = loader.integer("batch_size")
    (processes,) = facts.require("world_size", where=where)
    if size not in (None, batch * processes * counts):
        raise section.error(
            f"an update must have {batch} * {processes} * {counts} samples, got the fact "
            f"global_batch_size {size}",
            hint="leave the fact out",
        )
    return batch * processes / base


def _paramwise(
    wrapper: kit.RawSection, values: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """The groups of ``paramwise_cfg``: name, values that differ, patterns."""
    section = wrapper.section("paramwise_cfg")
    section.check(_PARAMWISE)
    made: dict[str, dict[str, Any]] = {}
    for option, (label, key) in _MULTIPLIERS.items():
        if option in section and key in values:
            made.setdefault(label, {})[key] = values[key] * _exact(section, option)
    groups: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        (label, changes, ()) for label, changes in made.items()
    ]
    custom = section.section("custom_keys")
    for name in custom.content:
        one = custom.section(name)
        changes = {
            key: values[key] * _exact(one, option)
            for option, key in (("lr_mult", "lr"), ("decay_mult", "weight_decay"))
            if option in one and key in values
        }
        # Further entries replace the group's.
        for key in _KEYED:
            if key in one:
                changes[key] = _exact(one, key)
        groups.append((name, changes, (name,)))
    return groups


def _exact(section: kit.RawSection, key: str) -> Any:
    return exact_number(section.number(key), section.at(key))


def _clipping(wrapper: kit.RawSection) -> kit.Clipping | None:
    section = wrapper.section("clip_grad")
    if not section.content:
        return None
    section.check(("type", "max_norm", "norm_type", "clip_value", "error_if_nonfinite", "foreach"))
    kind = section.text("type", "norm")
    if kind not in ("norm", "value"):
        raise section.error(f"type must be norm or value, got {kind!r}", "type")
    if kind == "value":
        return kit.Clipping(section.number("clip_value"), kit.ClippingKind.VALUE)
    return kit.Clipping(section.number("max_norm"))


READER = kit.Reader(read, matches)
