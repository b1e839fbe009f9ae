"""The reader of detectron2's configs: YAML files with a section SOLVER, and LazyConfigs.

LazyConfigs are read by :mod:`closedform.recipes.detectron2.lazy_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from closedform.errors import UnknownNameError, nearest
from closedform.language import exact_number
from closedform.recipes.build import built
from closedform.recipes.detectron2.lazy_config import read_lazy
from closedform.recipes.detectron2.schedules import SCHEDULES, SECTION
from closedform.recipes.document import Document, Form
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import (
    Clipping,
    ClippingKind,
    OptimizerPlan,
    ParamGroup,
    Recipe,
    Role,
)
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

_FRAMEWORK = "detectron2"
_NOTES = {
    "step-hides-peak": "the warmup ends at a rate that has already been decayed",
    "clip-each": "gradients are clipped for each parameter on its own, not all together",
    "steps-dropped": "STEPS beyond MAX_ITER are dropped",
}


def matches(document: Document) -> bool:
    """Returns whether a config has the section SOLVER, or is a LazyConfig."""
    found = document.content
    return isinstance(found.get("SOLVER"), Mapping) or (
        document.form is Form.PYTHON and ("lr_multiplier" in found or "train.max_iter" in found)
    )


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown, a value is not valid, or it is in a file that is
            imported and not known.
        ArgumentError: A fact is missing.
    """
    if reading.document.form is Form.PYTHON:
        return read_lazy(reading)
    return _read_section(reading)


_OTHERS: Mapping[str, Any] = {
    "MOMENTUM": 0.9,
    "NESTEROV": False,
    "WEIGHT_DECAY": 0.0001,
    "WEIGHT_DECAY_NORM": 0.0,
    "WEIGHT_DECAY_BIAS": None,
    "BIAS_LR_FACTOR": 1.0,
    "CLIP_GRADIENTS": None,
    "IMS_PER_BATCH": 16,
    "REFERENCE_WORLD_SIZE": 0,
    "CHECKPOINT_PERIOD": 5000,
    "AMP": None,
    "OPTIMIZER": "SGD",
    "BACKBONE_MULTIPLIER": None,
    "WEIGHT_DECAY_EMBED": None,
    "POLY_LR_POWER": 0.9,
    "POLY_LR_CONSTANT_ENDING": 0.0,
}
"""Options beside those of the rate, with their defaults; the last ones are of projects."""


def _read_section(reading: Reading) -> Recipe:
    top = whole(reading.document)
    if "_BASE_" in top:
        raise top.error(
            "the config inherits from _BASE_",
            "_BASE_",
            hint="give the files, as in load_recipe(…, files=directory)",
        )
    solver = top.section("SOLVER")
    solver.check({**SECTION, **_OTHERS})
    silent = {k: v for k, v in reading.facts.defaults.items() if k not in solver}
    solver = Section(reading.document, {**solver.content, **silent}, solver.path)
    options = _options(solver, reading)
    name = options["LR_SCHEDULER_NAME"]
    if name not in SCHEDULES:
        raise UnknownNameError(
            f"detectron2 has no scheduler {name!r}",
            where=reading.document.place(solver.at("LR_SCHEDULER_NAME")),
            hint=nearest(name, SCHEDULES),
        )
    plan = _plan(solver)
    decay = solver.number("WEIGHT_DECAY", _OTHERS["WEIGHT_DECAY"])

    def group(label: str, rate: Any, own: Any) -> ParamGroup:
        facts = {"param_groups": [{"lr": rate}], "group_index": 0}
        with solver.located():
            made = built(_FRAMEWORK, SCHEDULES, name, {"SOLVER": options}, facts=facts)
        return ParamGroup({"lr": made, "weight_decay": constant(own)}, plan, Role.of(label), label)

    base = options["BASE_LR"]
    groups = [group("", base, decay)]
    groups.append(group("norm", base, solver.number("WEIGHT_DECAY_NORM", 0.0)))
    factor = exact_number(solver.number("BIAS_LR_FACTOR", 1.0))
    if factor != 1 or "WEIGHT_DECAY_BIAS" in solver:
        groups.append(
            group("bias", exact_number(base) * factor, solver.number("WEIGHT_DECAY_BIAS", decay))
        )
    if "BACKBONE_MULTIPLIER" in solver:
        scaled = exact_number(base) * exact_number(solver.number("BACKBONE_MULTIPLIER"))
        groups.append(group("backbone", scaled, decay))
    if "WEIGHT_DECAY_EMBED" in solver:
        groups.append(group("embedding", base, solver.number("WEIGHT_DECAY_EMBED")))
    clipping = _clipping(solver.section("CLIP_GRADIENTS"))
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=tuple(groups),
        horizon=options["MAX_ITER"],
        version=reading.version,
        source=reading.document.source,
        clipping=clipping,
        accumulation=1,
        notes=_section_notes(options, clipping),
        derived={"lr": base},
    )


def _options(solver: Section, reading: Reading) -> dict[str, Any]:
    """The options that decide on the rate, defaults filled in, scaled to the number of workers."""
    keys = dict(SECTION)
    name = solver.text("LR_SCHEDULER_NAME", SECTION["LR_SCHEDULER_NAME"])
    if name == "WarmupPolyLR":
        keys |= {key: _OTHERS[key] for key in ("POLY_LR_POWER", "POLY_LR_CONSTANT_ENDING")}
    kinds: Mapping[type, Callable[[str, Any], Any]] = {
        bool: solver.flag,
        int: solver.integer,
        float: solver.number,
        str: solver.text,
        tuple: solver.numbers,
    }
    found = {key: kinds[type(default)](key, default) for key, default in keys.items()}
    workers = solver.integer("REFERENCE_WORLD_SIZE", 0)
    if workers:
        (given,) = reading.facts.require("world_size", where=reading.document.place(solver.path))
        scale = int(given) / workers
        found["BASE_LR"] *= scale
        for key in ("MAX_ITER", "WARMUP_ITERS"):
            found[key] = round(found[key] / scale)
        found["STEPS"] = tuple(round(step / scale) for step in found["STEPS"])
    return found


def _plan(solver: Section) -> OptimizerPlan:
    name = solver.text("OPTIMIZER", "SGD")
    place = solver.document.place(solver.at("OPTIMIZER"))
    if name.upper() != "SGD":
        return planned(name, {}, where=place)
    arguments = {
        "momentum": solver.number("MOMENTUM", 0.9),
        "nesterov": solver.flag("NESTEROV", False),
    }
    return planned("SGD", arguments, where=place)


def _clipping(section: Section) -> Clipping | None:
    section.check(("ENABLED", "CLIP_TYPE", "CLIP_VALUE", "NORM_TYPE"))
    if not section.flag("ENABLED", False):
        return None
    kinds = {
        "value": ClippingKind.VALUE,
        "norm": ClippingKind.PARAM_NORM,
        "full_model": ClippingKind.NORM,
    }
    name = section.text("CLIP_TYPE", "value")
    if name not in kinds:
        raise section.error(
            f"CLIP_TYPE must be value, norm or full_model, got {name!r}", "CLIP_TYPE"
        )
    return Clipping(section.number("CLIP_VALUE", 1.0), kinds[name])


def _section_notes(options: Mapping[str, Any], clipping: Clipping | None) -> dict[str, str]:
    names = []
    if options["LR_SCHEDULER_NAME"] == "WarmupMultiStepLR":
        steps = [step for step in options["STEPS"] if step <= options["MAX_ITER"]]
        if len(steps) < len(options["STEPS"]):
            names.append("steps-dropped")
        if steps and options["WARMUP_ITERS"] >= steps[0]:
            names.append("step-hides-peak")
    if clipping is not None and clipping.kind is ClippingKind.PARAM_NORM:
        names.append("clip-each")
    return {name: _NOTES[name] for name in names}


READER = Reader(read, matches)
