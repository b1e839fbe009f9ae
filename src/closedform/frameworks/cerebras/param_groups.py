"""Param groups of a model as cerebras configs make them: weight decay, factors by layer, tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from closedform.errors import ConfigError, nearest
from closedform.recipes import kit

Group = dict[str, Any]

LAYER_TYPES: Mapping[str, tuple[str, ...]] = {
    "embedding": ("*embedding*weight",),
    "decoder_kernel": ("*decoder*dense*weight", "*decoder*linear*weight"),
}
"""The layer types of ModelZoo: globs on the whole name of a parameter."""

_OLD_TYPES: Mapping[str, tuple[str, ...]] = {
    "decoder_kernel": ("linear", "dense"),
    "embedding": ("embedding",),
}
"""The layer types of cerebras.pytorch 2.2: the parts of the names of their weights."""


@kit.locate_errors("cerebras > configure_param_groups")
def configure_param_groups(
    params: Sequence[str],
    norms: Sequence[str],
    config: Mapping[str, Any],
    layer_types: Mapping[str, Sequence[str]] | None = None,
) -> list[Group]:
    """Returns the param groups of a model, as ModelZoo (from 2.3) makes them.

    Parameters are split by their tags, by whether they have weight decay, and by the factor of
    their layer type. No weight decay have biases, and parameters in whose name a norm's name occurs
    anywhere.

    Args:
        params: Names of the parameters that are trained, in the order of the model.
        norms: Names of its normalization modules.
        config: ``weight_decay`` (0.0 if left out), ``adjust_learning_rate`` {layer type: factor},
            ``params`` {"params": glob or globs, "tag": name}, one or a list of them.
        layer_types: The layer types of the model, {type: globs}; ``LAYER_TYPES`` if not given.

    Raises:
        ConfigError: A layer type is unknown, or the globs of a tag match nothing.

    Example:
        >>> names = ["embedding.weight", "decoder.linear.weight", "decoder.linear.bias"]
        >>> groups = configure_param_groups(names, [], {"adjust_learning_rate": {"embedding": 0.5}})
        >>> [(group["adjust_learning_rate"], group["params"]) for group in groups[:2]]
        [(0.5, ['embedding.weight']), (1.0, ['decoder.linear.weight'])]
    """
    factors = _factors(config)
    types = LAYER_TYPES if layer_types is None else layer_types
    for name in factors:
        if name not in types:
            raise ConfigError(f"there is no layer type {name!r}", hint=nearest(str(name), types))
    by_factor: dict[float, list[str]] = {}
    for name, globs in types.items():
        if name in factors and factors[name] != 1:
            by_factor.setdefault(factors[name], []).extend(globs)
    tags = _tags(params, config.get("params"))
    groups: list[Group] = []
    for tagged in dict.fromkeys(tags[name] for name in params):
        members = [name for name in params if tags[name] == tagged]
        for group in _by_decay(members, norms, config):
            parts = _by_factor(group, by_factor) if factors else [group]
            groups.extend({**part, "tags": list(tagged)} if tagged else part for part in parts)
    return [g for g in groups if g["params"]] if config.get("params") else groups


@kit.locate_errors("cerebras > configure_param_groups_2_2")
def configure_param_groups_2_2(
    params: Sequence[str], norms: Sequence[str], config: Mapping[str, Any]
) -> list[Group]:
    """Returns the param groups of a model, as cerebras.pytorch 2.2 makes them.

    Layer types are substrings of names, in the order of the config; an unknown one matches nothing,
    and a parameter of two types is in two groups.

    Args:
        params: As in ``configure_param_groups``.
        norms: As in ``configure_param_groups``.
        config: ``weight_decay`` and ``adjust_learning_rate``.

    Example:
        >>> configure_param_groups_2_2(["l.weight", "l.bias"], [], {"weight_decay": 0.1})[1]
        {'weight_decay': 0.0, 'params': ['l.bias']}
    """
    factors = _factors(config)
    halves = _by_decay(params, norms, config)
    if not factors:
        return halves
    groups = []
    for half in halves:
        rest = half["params"]
        for name, factor in factors.items():
            parts = _OLD_TYPES.get(name, ())
            found = [p for p in half["params"] if "weight" in p and any(x in p for x in parts)]
            groups.append(_part(half, factor, found))
            rest = [p for p in rest if p not in found]
        groups.append(_part(half, 1.0, rest))
    return [group for group in groups if group["params"]]


@kit.locate_errors("layer_decay_groups")
def layer_decay_groups(
    params: Sequence[str],
    layers: Sequence[str | Sequence[str]],
    decay: float,
    key: str = "adjust_learning_rate",
) -> list[Group]:
    r"""Returns a param group for each layer, with a factor that falls from the last to the first.

    .. math:: f_i = d^{\,n - 1 - i} \quad\text{for the layers } i = 0, \dots, n - 1

    Args:
        params: Names of the parameters, in the order of the model.
        layers: For each layer from the input to the output, a glob on the whole name of a
            parameter, or several; the first layer that matches has the parameter.
        decay: The factor d from each layer to the one before it, above 0.
        key: The entry of the group that holds the factor: ``adjust_learning_rate`` for the
            ScalePerParam classes of cerebras, ``lr_scale`` for the schedulers of timm.

    Raises:
        ConfigError: ``decay`` is not above 0, a parameter belongs to no layer, or a layer has none.

    Example:
        >>> groups = layer_decay_groups(
        ...     ["stem.w", "blocks.0.w", "head.w"], ["stem*", "blocks*", "head*"], 0.5
        ... )
        >>> [(group["adjust_learning_rate"], group["params"]) for group in groups]
        [(0.25, ['stem.w']), (0.5, ['blocks.0.w']), (1.0, ['head.w'])]

    Source: Clark et al., ELECTRA (2020), table 6; ``param_groups_layer_decay`` of timm 1.0.
    """
    if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 < decay:
        raise ConfigError(f"decay must be a number above 0, got {decay!r}")
    globs = [[layer] if isinstance(layer, str) else layer for layer in layers]
    found: list[list[str]] = [[] for _ in globs]
    for name in params:
        index = next((i for i, layer in enumerate(globs) if _matches(name, layer)), None)
        if index is None:
            raise ConfigError(
                f"parameter {name!r} belongs to no layer", hint="globs are on the whole name"
            )
        found[index].append(name)
    for layer, members in zip(layers, found, strict=True):
        if not members:
            raise ConfigError(f"layer {layer!r} has no parameter")
    last = len(globs) - 1
    return [{"params": members, key: float(decay) ** (last - i)} for i, members in enumerate(found)]


def _factors(config: Any) -> Mapping[str, Any]:
    """The factor of each layer type."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"the config must be a mapping, got {config!r}")
    factors = config.get("adjust_learning_rate") or {}
    if not isinstance(factors, Mapping):
        raise ConfigError(f"adjust_learning_rate must be {{layer type: factor}}, got {factors!r}")
    return factors


def _by_decay(
    params: Sequence[str], norms: Sequence[str], config: Mapping[str, Any]
) -> list[Group]:
    free = [name for name in params if "bias" in name or any(norm in name for norm in norms)]
    decayed = [name for name in params if name not in free]
    return [
        {"weight_decay": config.get("weight_decay", 0.0), "params": decayed},
        {"weight_decay": 0.0, "params": free},
    ]


def _by_factor(group: Group, by_factor: Mapping[float, Sequence[str]]) -> list[Group]:
    rest = group["params"]
    parts = []
    for factor, globs in by_factor.items():
        found = [name for name in rest if _matches(name, globs)]
        parts.append(_part(group, factor, found))
        rest = [name for name in rest if name not in found]
    return [part for part in (*parts, _part(group, 1.0, rest)) if part["params"]]


def _part(group: Group, factor: float, params: list[str]) -> Group:
    return {**group, "adjust_learning_rate": factor, "params": params}


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _tags(params: Sequence[str], entries: Any) -> dict[str, tuple[str, ...]]:
    """The tags of each parameter, sorted."""
    tags: dict[str, set[str]] = {name: set() for name in params}
    for entry in _tag_entries(entries):
        globs = [entry["params"]] if isinstance(entry["params"], str) else entry["params"]
        found = [name for name in params if _matches(name, globs)]
        if not found:
            raise ConfigError(f"{globs} match no parameter", hint="globs are on the whole name")
        for name in found:
            tags[name].add(entry["tag"])
    return {name: tuple(sorted(found)) for name, found in tags.items()}


def _tag_entries(entries: Any) -> list[Mapping[str, Any]]:
    """The argument that gives parameters their tags, checked."""
    listed = [entries] if isinstance(entries, Mapping) else entries or []
    for entry in listed if isinstance(listed, list | tuple) else [listed]:
        is_entry = isinstance(entry, Mapping) and set(entry) == {"params", "tag"}
        globs = [entry["params"]] if is_entry and isinstance(entry["params"], str) else None
        globs = entry["params"] if is_entry and globs is None else globs
        is_list = isinstance(globs, list | tuple) and all(isinstance(g, str) for g in globs)
        if not is_list or not isinstance(entry["tag"], str):
            raise ConfigError(f'tags must be {{"params": globs, "tag": name}}, got {entry!r}')
    return list(listed)
