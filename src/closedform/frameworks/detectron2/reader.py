"""The reader of detectron2's configs: YAML files with a section SOLVER, and LazyConfigs.

LazyConfigs are read by :mod:`closedform.frameworks.detectron2.lazy_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.frameworks.detectron2.lazy_config import read_lazy
from closedform.frameworks.detectron2.schedules import (
    Clipping,
    Solver,
    at_workers,
    rate_of,
)
from closedform.recipes import kit
from closedform.schedules import constant

_CLIPPINGS = {
    "value": kit.ClippingKind.VALUE,
    "norm": kit.ClippingKind.PARAM_NORM,
    "full_model": kit.ClippingKind.NORM,
}


def matches(document: kit.Document) -> bool:
    """Returns whether a config has the section SOLVER, or is a LazyConfig."""
    content = document.content
    return isinstance(content.get("SOLVER"), Mapping) or (
        document.syntax is kit.Syntax.PYTHON
        and ("lr_multiplier" in content or "train.max_iter" in content)
    )


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown, a value is not valid, or it is in a file that is
            imported and not known.
        ArgumentError: A fact is missing.
    """
    if reading.document.syntax is kit.Syntax.PYTHON:
        return read_lazy(reading)
    return _read_section(reading)


def _read_section(reading: kit.Reading) -> kit.Recipe:
    top = kit.document_section(reading.document)
    if "_BASE_" in top:
        raise top.error(
            "the config inherits from _BASE_",
            "_BASE_",
            hint="give the files, as in load_recipe(…, files=directory)",
        )
    place = top.section("SOLVER")
    Solver.check(place)
    silent = {key: v for key, v in reading.facts.defaults.items() if key not in place}
    solver = Solver.read(kit.RawSection(reading.document, {**place.content, **silent}, place.path))
    solver = at_workers(solver, reading.facts, reading.document.place(place.path))
    plan = _plan(solver)
    base, decay = solver.BASE_LR, solver.WEIGHT_DECAY

    def group(label: str, rate: Any, weight_decay: Any) -> kit.ParamGroup:
        context = reading.context.with_facts(param_groups=[{"lr": rate}])
        with place.locate_errors():
            schedule = rate_of(context, solver)
        schedules = {"lr": schedule, "weight_decay": constant(weight_decay)}
        return kit.ParamGroup(schedules, plan, kit.Role.of(label), label)

    groups = [group("", base, decay), group("norm", base, solver.WEIGHT_DECAY_NORM)]
    if solver.BIAS_LR_FACTOR != 1 or "WEIGHT_DECAY_BIAS" in solver:
        of_biases = solver.WEIGHT_DECAY_BIAS
        of_biases = decay if of_biases is None else of_biases
        groups.append(group("bias", base * solver.BIAS_LR_FACTOR, of_biases))
    if "BACKBONE_MULTIPLIER" in solver:
        groups.append(group("backbone", base * solver.BACKBONE_MULTIPLIER, decay))
    if "WEIGHT_DECAY_EMBED" in solver:
        groups.append(group("embedding", base, solver.WEIGHT_DECAY_EMBED))
    return reading.recipe(
        groups,
        horizon=solver.MAX_ITER,
        clipping=_clipping(solver.CLIP_GRADIENTS),
        accumulation=1,
        values=(solver, None),
        derived={"lr": base},
    )


def _plan(solver: Solver) -> kit.OptimizerPlan:
    place = solver.origin.document.place(solver.origin.at("OPTIMIZER"))
    if solver.OPTIMIZER.upper() != "SGD":
        return kit.plan_optimizer(solver.OPTIMIZER, {}, where=place)
    arguments = {"momentum": solver.MOMENTUM, "nesterov": solver.NESTEROV}
    return kit.plan_optimizer("SGD", arguments, where=place)


def _clipping(clipping: Clipping) -> kit.Clipping | None:
    if not clipping.ENABLED:
        return None
    return kit.Clipping(clipping.CLIP_VALUE, _CLIPPINGS[clipping.CLIP_TYPE])
