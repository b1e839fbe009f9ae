"""The optimizer configs of cerebras.pytorch 2.3: each as a class and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.deprecation import renamed_keywords
from closedform.errors import ConfigError, nearest
from closedform.recipes.cerebras.optimizers import OPTIMIZERS
from closedform.recipes.entries import OptimizerEntry, Required

FRAMEWORK = "cerebras"
_DEFAULT_RATE = 0.1
_ALIASES = {
    "weight_decay": ("weight_decay_rate",),
    "betas": ("beta1", "beta2"),
    "eps": ("eps1", "eps2"),
    "etas": ("eta1", "eta2"),
    "step_sizes": ("step_size_min", "step_size_max"),
}


@renamed_keywords(as_shipped="as_implemented")
def configure_optimizer_params(
    optimizer_type: str, kwargs: Mapping[str, Any], as_implemented: bool = False
) -> tuple[str, dict[str, Any]]:
    """Returns the class and arguments of an optimizer config.

    ``learning_rate`` becomes ``lr``, where it is a number or its text; a schedule does not count.
    Without it, ``lr`` is the class's default, or 0.1. Arguments that the class has not are left
    out.

    Args:
        optimizer_type: The class name in any letter case.
        kwargs: The config of the optimizer, which is not changed.
        as_implemented: Whether to ignore a Python int as ``learning_rate``, against the documents.

    Raises:
        ConfigError: The class is unknown, or an argument has a former name.

    Example:
        >>> configure_optimizer_params("sgd", {"learning_rate": "0.3"})
        ('SGD', {'lr': 0.3})
    """
    where = f"{FRAMEWORK} > configure_optimizer_params"
    entry = _class(optimizer_type, where)
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"an optimizer config must be a mapping, got {kwargs!r}", where=where)
    given = dict(kwargs)
    rate = _rate(given.pop("learning_rate", None), as_implemented, where)
    made: dict[str, Any] = {}
    for parameter in entry.parameters:
        name = parameter.name
        if name in given:
            made[name] = given[name]
        elif name == "lr":
            default = parameter.default
            made[name] = rate if rate is not None else default
            if made[name] is None or isinstance(made[name], Required):
                made[name] = _DEFAULT_RATE
        for alias in _ALIASES.get(name, ()):
            if alias in given and name not in given:
                raise ConfigError(
                    f"{alias!r} is no longer the name of an argument",
                    where=where,
                    hint=f"write {name!r}",
                )
    return entry.name, made


@renamed_keywords(as_shipped="as_implemented")
def configure_optimizer(
    optimizer_type: str, kwargs: Mapping[str, Any], as_implemented: bool = False
) -> tuple[str, dict[str, Any]]:
    """Returns the class of an optimizer config and the entries of its param groups.

    These are its arguments, defaults filled in; Adam and AdamW hold two entries more, or others.

    Raises:
        ConfigError: As ``configure_optimizer_params``.

    Example:
        >>> configure_optimizer("SGD", {"momentum": 0.9})[1]["lr"]
        0.1
    """
    name, made = configure_optimizer_params(optimizer_type, kwargs, as_implemented)
    defaults = {parameter.name: parameter.default for parameter in OPTIMIZERS[name].parameters}
    entries = {**defaults, **made}
    if name == "AdamW":
        entries["l2_regularization_rate"] = 0.0
    if name == "Adam":
        rate = entries["weight_decay"]
        entries |= {"l2_regularization_rate": rate, "weight_decay": 0.0, "correct_bias": True}
    return name, entries


def _class(optimizer_type: str, where: str) -> OptimizerEntry:
    known = {name.lower(): entry for name, entry in OPTIMIZERS.items()}
    lower = str(optimizer_type).lower()
    if lower not in known:
        raise ConfigError(
            f"{FRAMEWORK} has no optimizer {optimizer_type!r}",
            where=where,
            hint=nearest(str(optimizer_type), OPTIMIZERS),
        )
    return known[lower]


def _rate(value: Any, as_implemented: bool, where: str) -> float | None:
    """The number of a learning rate; None for a schedule, or for none."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, float | str) and (as_implemented or not is_int):
        return None
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"learning_rate must be a number, got {value!r}", where=where) from error
