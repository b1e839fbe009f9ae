"""The reader of big_vision's configs: the function ``get_config``, whose statements are read.

Nothing is run: its body is walked with the defaults of its arguments, also of those that
``bvcc.parse_arg`` declares. The weight decay is multiplied by the schedule, not by the rate.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closedform.language import Schedule, exact_number
from closedform.recipes.big_vision.schedules import SCHEDULES, SECTION
from closedform.recipes.build import built
from closedform.recipes.document import Document, Form
from closedform.recipes.documents.python_text import run_function
from closedform.recipes.documents.values import Call, Unresolved
from closedform.recipes.entries import REQUIRED
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section
from closedform.schedules import constant

_FRAMEWORK = "big_vision"
_FUNCTION = "get_config"
_TOTALS = ("total_steps", "total_examples", "total_epochs", "total_percent")
_RELATED = (
    "beta",
    "beta_percept",
    "ema_decay",
    "lr",
    "lr_mults",
    "optax",
    "optax_name",
    "optim_name",
    "schedule",
    "wd",
    "wd_mults",
    "grad_clip_norm",
    "grad_clip_per_example",
    "warmup_steps",
    "weight_decay_decouple",
)
"""Keys of the optimizer, and others with such names: of losses, and arguments of some files."""
_OPTIMIZERS = {
    "scale_by_adam": "adam",
    "big_vision.scale_by_adafactor": "adafactor",
    "big_vision.momentum_hp": "sgd",
    "big_vision.sgd": "sgd",
    "scale_by_lion": "lion",
    "identity": "sgd",
}
_ARGUMENTS = {"b1": "beta1", "b2": "beta2", "eps": "eps"}
_NOTES = {
    "decay-not-times-rate": "the weight decay is multiplied by the schedule, but not by the rate",
    "decays-kernels": "without wd_mults only parameters named kernel are decayed",
    "default-arguments": "get_config was read with the defaults of its arguments",
}


def matches(document: Document) -> bool:
    """Returns whether a Python file has a function ``get_config``."""
    if document.form is not Form.PYTHON or document.python is None:
        return False
    return any(
        isinstance(one, ast.FunctionDef) and one.name == _FUNCTION
        for one in document.python.tree.body
    )


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: There is no ``get_config``, a value that is needed cannot be read from its
            statements, or a key is unknown.
        ArgumentError: A fact is missing.
    """
    config = _config(reading.document)
    config.check_related({*_RELATED, *_TOTALS})
    batch = config.section("input").integer("batch_size", None) if "input" in config else None
    if batch is None:
        batch = config.integer("batch_size", reading.facts.global_batch_size)
    total = _total(reading, config, batch)
    rate = exact_number(config.number("lr"), "lr")
    decay = exact_number(config.number("wd", 0) if "wd" in config else 0, "wd")
    facts = {"total_steps": total, "batch_size": batch, "data_size": reading.facts.dataset_size}
    plan = _plan(config)
    groups: list[ParamGroup] = []
    frozen: list[ParamGroup] = []
    for pattern, section in _schedules(config):
        if section is None:
            still = {"lr": constant(0), "weight_decay": constant(0)}
            frozen.append(ParamGroup(still, plan, Role.FROZEN, pattern, (pattern,)))
            continue
        factor = _factor(section, facts)
        made = {"lr": factor.scale(rate), "weight_decay": factor.scale(decay)}
        patterns = (pattern,) if pattern else ()
        groups.append(ParamGroup(made, plan, Role.of(pattern), pattern, patterns))
    if not groups:
        raise config.error("all parameters are frozen: every schedule is None", "schedule")
    # The first group whose multiplier is not given is the default one.
    first = groups[0]
    for pattern, mult in _multipliers(config, "lr_mults"):
        own = {**first.schedules, "lr": first.schedules["lr"].scale(mult)}
        groups.append(ParamGroup(own, plan, Role.NAMED, f"{pattern} (lr_mults)", (pattern,)))
    for pattern, mult in _multipliers(config, "wd_mults"):
        own = {**first.schedules, "weight_decay": first.schedules["weight_decay"].scale(mult)}
        groups.append(ParamGroup(own, plan, Role.NAMED, f"{pattern} (wd_mults)", (pattern,)))
    threshold = config.number("grad_clip_norm", None)
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=(*groups, *frozen),
        horizon=total,
        version=reading.version,
        source=reading.document.source,
        clipping=Clipping(threshold) if threshold else None,
        accumulation=1,
        notes=_notes(config, decay),
        derived={"lr": config.number("lr"), "weight_decay": decay},
    )


def _config(document: Document) -> Section:
    """The mapping that ``get_config`` returns."""
    module = document.python
    outer = Section(document, document.content)
    body = None
    if module is not None:
        module = replace(module, convert=_known_call)
        body = run_function(module, _FUNCTION, document.source)
    if body is None:
        raise outer.error(f"there is no function {_FUNCTION}")
    found = body.names.get("return")
    if not isinstance(found, Mapping):
        raise outer.error(f"{_FUNCTION} does not return a config that can be read", _FUNCTION)
    return Section(document, found, _FUNCTION)


def _known_call(value: Any) -> Any:
    """The mapping that ``parse_arg`` or ``ConfigDict`` makes; other values are unchanged."""
    if not isinstance(value, Call):
        return value
    name = value.name.rpartition(".")[2]
    if name == "ConfigDict":
        first = value.args[0] if value.args else value.kwargs.get("initial_dictionary", {})
        return dict(first) if isinstance(first, Mapping) else value
    if name == "parse_arg":
        text = value.args[0] if value.args else value.kwargs.get("arg")
        return _parsed(text, {k: v for k, v in value.kwargs.items() if k not in ("arg", "lazy")})
    return value


def _parsed(text: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``parse_arg``: its defaults, and the text of ``get_config``'s own default.

    A default may be a pair of the value and the function that converts a text.
    """
    plain = {k: v[0] if isinstance(v, tuple) and len(v) == 2 else v for k, v in spec.items()}
    if text is not None and not isinstance(text, str):
        return {key: Unresolved(key) for key in plain}
    text = text or ""
    if text and "," not in text and "=" not in text:
        text = f"{text}=True" if text in plain or not plain else f"{next(iter(plain))}={text}"
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        plain[key] = _converted(value if equals else "True", plain.get(key))
    return plain


def _converted(text: str, default: Any) -> Any:
    """A text as the type of a default."""
    try:
        if isinstance(default, bool):
            return {"True": True, "true": True, "False": False, "false": False, "": False}[text]
        return type(default)(text) if isinstance(default, int | float) else text
    except (KeyError, ValueError):
        return Unresolved(text)


def _total(reading: Reading, config: Section, batch: int | None) -> int:
    """The updates of the run."""
    if "total_steps" in config:
        return int(config.integer("total_steps"))
    place = reading.document.place(config.at("total_steps"))
    if "total_examples" in config and batch:
        amount = config.number("total_examples") / batch
    elif "total_epochs" in config and batch:
        (size,) = reading.facts.require("dataset_size", where=place)
        amount = config.number("total_epochs") * int(size) / batch
    else:
        (found,) = reading.facts.require("total_updates", where=place)
        return int(found)
    return max(1, round(amount)) if amount else 0


def _schedules(config: Section) -> list[tuple[str, Section | None]]:
    """The schedules by the patterns of their parameters, empty for all; None for frozen ones."""
    given = config.value("schedule", {})
    if not isinstance(given, list | tuple):
        return [("", config.section("schedule"))]
    made: list[tuple[str, Section | None]] = []
    for index, entry in enumerate(given):
        place = f"schedule[{index}]"
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise config.error("an entry must be a pair of a pattern and a schedule", place)
        pattern, content = entry
        inner = Section(config.document, {place: content}, config.path)
        made.append((pattern, None if content is None else inner.section(place)))
    return made


def _factor(section: Section, facts: Mapping[str, Any]) -> Schedule:
    section.check(SECTION)
    kind = section.text("decay_type", "stair")
    given = {key: section.value(key) for key in section.content if key in section}
    given["decay_type"] = kind
    with section.located():
        return built(_FRAMEWORK, SCHEDULES, kind, {"schedule": given}, facts=facts)


def _multipliers(config: Section, key: str) -> list[tuple[str, Any]]:
    entries = config.value(key, [])
    if not isinstance(entries, list | tuple):
        raise config.error(f"{key} must be a list of pairs, got {entries!r:.60}", key)
    made = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise config.error(
                "an entry must be a pair of a pattern and a factor", f"{key}[{index}]"
            )
        inner = Section(config.document, {f"{key}[{index}]": entry[1]}, config.path)
        made.append((str(entry[0]), exact_number(inner.number(f"{key}[{index}]"))))
    return made


def _plan(config: Section) -> OptimizerPlan:
    name = config.text("optax_name", REQUIRED)
    options = config.section("optax").content
    arguments = {_ARGUMENTS.get(key, key): value for key, value in options.items()}
    place = config.document.place(config.at("optax_name"))
    return planned(_OPTIMIZERS.get(name, name), arguments, where=place)


def _notes(config: Section, decay: Any) -> dict[str, str]:
    names = ["default-arguments"]
    if decay != 0:
        names.append("decay-not-times-rate")
        if "wd_mults" not in config:
            names.append("decays-kernels")
    return {name: _NOTES[name] for name in names}


READER = Reader(read, matches)
