"""The reader of T5X's gin files; those that they include are not read."""

from __future__ import annotations

from typing import Any

from closedform.recipes.build import built
from closedform.recipes.document import Document, Form
from closedform.recipes.documents.gin_text import INCLUDES
from closedform.recipes.documents.values import Call, Reference, Unresolved
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.recipes.t5x.schedules import NAME, SCHEDULES

_FRAMEWORK = "t5x"
_RATE = f"{NAME}."
_TOTALS = ("TRAIN_STEPS", "train.total_steps", "train_script.train.total_steps")
_NOTES = {
    "least-rate": "the rate is at least min_learning_rate, in the warmup as well",
    "ignored-warmup": "the factor constant has no warmup: warmup_steps has no effect",
}


def matches(document: Document) -> bool:
    """Returns whether a gin file binds T5X's scheduler or trainer, or includes files of T5X."""
    if document.form is not Form.GIN:
        return False
    found = document.content
    included = [str(one) for one in found.get(INCLUDES, [])]
    return any(_RATE in key or key.startswith("trainer.Trainer.") for key in found) or any(
        one.startswith("t5x/") for one in included
    )


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a gin file.

    Raises:
        ConfigError: The rate is bound in a file that is included, a parameter is unknown, or a
            value is not valid.
    """
    top = whole(reading.document)
    _check_function(top)
    rate = _bound(top)
    known = {p.name: p.default for p in SCHEDULES[NAME].parameters}
    rate.check(known)
    if INCLUDES in top and ("factors" not in rate or "base_learning_rate" not in rate):
        raise top.error(
            f"the rate is bound in an included file: {NAME} needs factors and base_learning_rate",
            hint=f"merge {', '.join(str(one) for one in top.value(INCLUDES))} into the file",
        )
    if not rate.content:
        raise top.error(f"{NAME} has no bindings", hint="give the file that binds them")
    given = {
        key: (rate.text if key == "factors" else rate.number)(key, default)
        for key, default in known.items()
    }
    with rate.located():
        schedule = built(_FRAMEWORK, SCHEDULES, NAME, given)
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=(ParamGroup({"lr": schedule}, _plan(top), Role.DEFAULT),),
        horizon=_total(reading, top),
        version=reading.version,
        source=reading.document.source,
        accumulation=_microbatches(top),
        notes=_notes(given),
    )


def _check_function(top: Section) -> None:
    """Refuses another function of the rate than T5X's own."""
    for key, value in top.content.items():
        if key.endswith("learning_rate_fn"):
            name = value.name if isinstance(value, Call | Reference) else str(value)
            if name.rpartition(".")[2] != NAME:
                raise top.error(f"the function of the rate must be {NAME}, got {name}", key)
        if key.startswith("optax.") and key.endswith(".learning_rate"):
            raise top.error(
                "the optimizer has a schedule of optax of its own, which is not read",
                key,
                hint="read that schedule: closedform.frameworks.schedule('optax', …)",
            )


def _bound(top: Section) -> Section:
    """The parameters of the scheduler, from whichever module it is imported."""
    found: dict[str, Any] = {}
    for key, value in top.content.items():
        module, _, parameter = key.rpartition(".")
        if module.rpartition("/")[2].rpartition(".")[2] == NAME:
            found[parameter] = value
    return Section(top.document, found, NAME)


def _total(reading: Reading, top: Section) -> int | None:
    """The updates of the run, from the file or the facts; None if neither has them."""
    for key in _TOTALS:
        if key in top and not isinstance(top.content[key], Unresolved):
            return int(top.integer(key))
    return reading.facts.total_updates


def _microbatches(top: Section) -> int | None:
    found: int | None = top.integer("trainer.Trainer.num_microbatches", None)
    return found


def _plan(top: Section) -> OptimizerPlan:
    """The optimizer, which most files leave to the model that they include."""
    value = top.content.get("OPTIMIZER", top.content.get("train_script.optimizer_def"))
    name = value.name if isinstance(value, Call | Reference) else ""
    classes = sorted({key.rpartition(".")[0] for key in top.content if ".Adafactor." in key})
    name = name or (classes[0] if classes else "of an included file")
    plain = name.rpartition(".")[2]
    return planned(plain, {}, where=top.document.place("OPTIMIZER"))


def _notes(given: dict[str, Any]) -> dict[str, str]:
    factors = [one.strip() for one in str(given["factors"]).split("*")]
    names = ["least-rate"]
    if factors == ["constant"] and given["warmup_steps"]:
        names.append("ignored-warmup")
    return {name: _NOTES[name] for name in names}


READER = Reader(read, matches)
