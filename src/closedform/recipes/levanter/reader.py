"""The reader of levanter's configs: the sections ``optimizer`` and ``trainer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.levanter.schedules import SCHEDULES, SECTION, SHAPES
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

_FRAMEWORK = "levanter"
_BASE = ("type", "weight_decay", "haps", "weight_decay_modules", "default_weight_decay_mask")
_ADAM = ("beta1", "beta2", "epsilon", "max_grad_norm")
_BLOCKS = (
    "merge_small_dims",
    "target_merged_dim_size",
    "partition_grads_into_blocks",
    "block_size",
)
_OPTIMIZERS: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "adam": (
        0.1,
        (
            *_ADAM,
            "nesterov",
            "update_rms_clipping",
            "clip_update_norm",
            "skip_bad_steps",
            "adamc_weight_decay",
        ),
    ),
    "adopt": (0.1, (*_ADAM, "schedule_list")),
    "cautious": (0.1, (*_ADAM, "gamma", "adamc_weight_decay")),
    "kron": (
        0.1,
        (
            "beta1",
            "max_grad_norm",
            "normalize_grads",
            "preconditioner_update_probability",
            "update_prob_flat_start",
            "max_size_triangular",
            "min_ndim_triangular",
            "memory_save_mode",
            "preconditioner_lr",
            "preconditioner_init_scale",
            "mu_dtype",
            "precond_dtype",
            "precond_update_precision",
            "precond_grads_precision",
            "lax_map_scanned_layers",
            "lax_map_batch_size",
            "params_sharding",
            "preconditioner_sharding",
            *_BLOCKS,
        ),
    ),
    "lion": (0.1, _ADAM),
    "mars": (0.1, (*_ADAM, "gamma")),
    "mini": (0.0, (*_ADAM, "lr", "nesterov")),
    "muon": (
        0.0,
        (
            *_ADAM,
            "lr",
            "adam_lr",
            "momentum",
            "nesterov",
            "backend_steps",
            "muon_epsilon",
            "use_kimi_scaling",
        ),
    ),
    "rmsprop": (0.1, ("beta1", "beta2", "eps", "max_grad_norm")),
    "scion": (
        0.0,
        (
            "lr",
            "scion_to_signum_lr",
            "momentum",
            "backend_steps",
            "beta1",
            "scion_epsilon",
            "max_grad_norm",
        ),
    ),
    "soap": (
        0.0,
        (
            *_ADAM,
            "shampoo_beta",
            "schedule_list",
            "precondition_frequency",
            "max_precond_dim",
            "one_diag",
            "mu_dtype",
            "precond_dtype",
            *_BLOCKS,
        ),
    ),
    "sophia-h": (
        0.1,
        ("beta1", "beta2", "epsilon", "clip_threshold", "rng_seed", "gamma", "update_interval"),
    ),
}
"""The optimizers: their default weight decay, and their own options."""
_SECOND = {"muon": ("adam_lr", 6e-4, "adamw"), "scion": ("scion_to_signum_lr", 0.25, "signum")}
"""Optimizers with a second group: the option of its rate, the default, the name of the group."""
_NOTES = {
    "lr-ignored": "the option lr has no effect: learning_rate counts",
    "inv-below-peak": "the decay begins below the peak",
    "timescale": "the timescale of inv_sqrt is 10000, whatever the warmup is",
    "skips-bad-steps": "updates with a large loss or gradient are skipped, and count as updates",
}


def matches(document: Document) -> bool:
    """Returns whether a config has the sections of levanter."""
    trainer, optimizer = (document.content.get(key) for key in ("trainer", "optimizer"))
    if not isinstance(optimizer, Mapping) or not isinstance(trainer, Mapping):
        return False
    return "num_train_steps" in trainer


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
        ArgumentError: The number of updates is missing.
    """
    top = whole(reading.document)
    optimizer, trainer = top.section("optimizer"), top.section("trainer")
    kind = optimizer.text("type", "adam")
    if kind not in _OPTIMIZERS:
        raise optimizer.error(
            f"levanter has no optimizer {kind!r}", "type", hint=nearest(kind, _OPTIMIZERS)
        )
    default, own = _OPTIMIZERS[kind]
    optimizer.check((*_BASE, *SECTION, *own))
    if "haps" in optimizer:
        raise optimizer.error("haps is not read", "haps", hint="write cycles")
    steps = trainer.integer("num_train_steps", None)
    if steps is None:
        place = reading.document.place("trainer.num_train_steps")
        (found,) = reading.facts.require("total_updates", where=place)
        steps = int(found)
    decay = constant(optimizer.number("weight_decay", default))
    plan = _plan(kind, optimizer)
    schedules = {"lr": _rate(optimizer, steps, {}), "weight_decay": decay}
    groups = [ParamGroup(schedules, plan, Role.DEFAULT)]
    if kind in _SECOND:
        option, value, name = _SECOND[kind]
        changes = {"learning_rate": optimizer.number(option, value)}
        second = planned(name, {}, where=reading.document.place(optimizer.path))
        rate = _rate(optimizer, steps, changes)
        schedules = {"lr": rate, "weight_decay": decay}
        groups.append(ParamGroup(schedules, second, Role.NAMED, name))
    threshold = optimizer.number("max_grad_norm", 1.0) if "max_grad_norm" in own else 0
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=tuple(groups),
        horizon=steps,
        version=reading.version,
        source=reading.document.source,
        clipping=Clipping(threshold) if threshold else None,
        accumulation=None,
        notes=_notes(optimizer),
        derived={"lr": optimizer.number("learning_rate", SECTION["learning_rate"])},
    )


def _rate(optimizer: Section, steps: int, changes: Mapping[str, Any]) -> Schedule:
    given = {key: _length(optimizer, key) for key in SECTION if key in optimizer}
    shape = given.get("lr_schedule", SECTION["lr_schedule"])
    name = shape.get("type") if isinstance(shape, Mapping) else shape
    if name not in SHAPES:
        raise optimizer.error(
            f"levanter has no lr_schedule {name!r}",
            "lr_schedule",
            hint=nearest(str(name), [str(one) for one in SHAPES]),
        )
    with optimizer.located():
        config = {"optimizer": {**given, **changes}}
        facts = {"num_train_steps": steps}
        return built(_FRAMEWORK, SCHEDULES, str(name), config, facts=facts)


def _length(optimizer: Section, key: str) -> Any:
    """The value of an option of the rate: a number, but for the shape and lists of cycles."""
    value = optimizer.value(key)
    if key == "lr_schedule":
        return dict(optimizer.section(key).content) if isinstance(value, Mapping) else value
    if isinstance(value, list):
        return [int(one) for one in optimizer.numbers(key)]
    return optimizer.number(key)


def _plan(kind: str, optimizer: Section) -> OptimizerPlan:
    place = optimizer.document.place(optimizer.path)
    if kind in ("adam", "lion"):
        arguments: dict[str, Any] = {
            "betas": (optimizer.number("beta1", 0.9), optimizer.number("beta2", 0.95))
        }
        if kind == "adam":
            arguments["eps"] = optimizer.number("epsilon", 1e-8)
        return planned("adamw" if kind == "adam" else kind, arguments, where=place)
    known = _OPTIMIZERS[kind][1]
    left_out = ("lr", "adam_lr", "max_grad_norm")
    own = {k: v for k, v in optimizer.content.items() if k in known and k not in left_out}
    return planned(kind, own, where=place)


def _notes(optimizer: Section) -> dict[str, str]:
    names = ["lr-ignored"] if "lr" in optimizer else []
    shape = optimizer.value("lr_schedule", "cosine")
    kind = shape.get("type") if isinstance(shape, Mapping) else shape
    if kind == "inv":
        names.append("inv-below-peak")
    if kind == "inv_sqrt":
        names.append("timescale")
    if optimizer.value("skip_bad_steps", False):
        names.append("skips-bad-steps")
    return {name: _NOTES[name] for name in names}


READER = Reader(read, matches)
