"""State dicts of Adam and AdamW in the layouts of torch, transformers and cerebras, both ways.

Those frameworks index states by the position of a parameter, sessions by its name. They store the
clock once per parameter: as ``step`` or, in cerebras, as the powers of the betas that the next
step divides by, which are β^(k+1) after k steps. (When cerebras converts such a dict it stores
β^k, which repeats the bias correction of a step; that defect is not reproduced here.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from closedform.errors import StateError, nearest
from closedform.ir.graph import Array
from closedform.lowering.analysis.domain import MAX_STEP

RULES = ("adam", "adamw")
_MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
MASTER = "master"
"""The parameter in full precision: a state here, the parameter itself in those frameworks."""
POWERS = ("beta1_power", "beta2_power")
"""The states of cerebras that determine the step."""

_SMALLEST_POWER = 1e-30


class StateLayout(StrEnum):
    """The framework whose layout a state dict has."""

    TORCH = "torch"
    HUGGINGFACE = "huggingface"
    CEREBRAS = "cerebras"


def to_layout(
    state_dict: Mapping[str, Any],
    layout: StateLayout | str,
    template: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    convert: Callable[[Array], Any] | None = None,
) -> dict[str, Any]:
    """Returns a session's state dict in the layout of another framework's optimizer.

    Args:
        state_dict: The result of ``OptimizerSession.state_dict()`` for rule adam or adamw.
        layout: The framework.
        template: The state dict of that optimizer, which provides the param groups; load the result
            into the same optimizer.
        names: The names of its parameters in their order; the session's order if None.
        convert: Converts an array to that framework's tensor, such as ``torch.as_tensor``.

    Raises:
        StateError: The rule is not adam or adamw, the template has a different number of
            parameters, or its groups have no betas.
    """
    kind = _layout(layout)
    _check_rule(state_dict)
    places = _places(template, list(names or state_dict["params"]), state_dict["params"], kind)
    make = convert if convert is not None else lambda array: array
    step = int(state_dict["step"])
    states: dict[int, dict[str, Any]] = {}
    for name, (place, group) in places.items():
        moments = {
            key: make(np.array(state_dict["states"][key][name]))
            for key in _MOMENTS
            if key in state_dict["states"]
        }
        clock: dict[str, Any]
        match kind:
            case StateLayout.TORCH:
                # torch.optim counts in float32 (`_get_scalar_dtype`), which is exact up to 2**24.
                clock = {"step": make(np.array(step, np.float32))}
            case StateLayout.HUGGINGFACE:
                clock = {"step": step}
            case StateLayout.CEREBRAS:
                powers = zip(POWERS, _betas(group, kind), strict=True)
                # There a power is a running product of betas that are rounded to float32.
                clock = {
                    key: make(np.array(float(np.float32(beta)) ** (step + 1), np.float32))
                    for key, beta in powers
                }
        states[place] = {**clock, **moments}
    groups = [dict(group) for group in template["param_groups"]]
    return {"state": states, "param_groups": groups}


def from_layout(
    foreign: Mapping[str, Any],
    layout: StateLayout | str,
    template: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    step: int | None = None,
) -> dict[str, Any]:
    """Returns the state dict of another framework's optimizer in the layout of a session.

    Args:
        foreign: The state dict of that optimizer.
        layout: The framework.
        template: ``OptimizerSession.state_dict()`` of the target session, which provides the
            parameters and their master weights; the other dict does not contain them.
        names: The names of its parameters in their order; the session's order if None.
        step: The number of steps performed, for a dict that does not determine it: after many steps
            the powers of the betas underflow.

    Raises:
        StateError: The rule is not adam or adamw, parameters or states are missing, or the
            parameters are at different steps.
    """
    kind = _layout(layout)
    _check_rule(template)
    places = _places(foreign, list(names or template["params"]), template["params"], kind)
    states: dict[str, dict[str, Array]] = {key: {} for key in template["states"] if key != MASTER}
    steps = {}
    for name, (place, group) in places.items():
        entry = foreign["state"].get(place)
        if entry is None:
            raise StateError(
                f"parameter {place} ({name!r}) has no state",
                where=f"{kind} state dict",
                hint="an optimizer has no state before its first step, so there is nothing to load",
            )
        for key, by_name in states.items():
            if key not in entry:
                raise StateError(
                    f"parameter {place} ({name!r}) has no state {key!r}",
                    where=f"{kind} state dict",
                    hint=f"it has {', '.join(entry)}",
                )
            like = template["states"][key][name]
            by_name[name] = np.array(_array(entry[key]), like.dtype).reshape(like.shape)
        steps[name] = step if step is not None else _step(entry, group, name, kind)
    if len(set(steps.values())) > 1:
        first, last = min(steps, key=lambda n: steps[n]), max(steps, key=lambda n: steps[n])
        raise StateError(
            f"the parameters are at different steps: {first!r} at {steps[first]}, {last!r} at "
            f"{steps[last]}",
            where=f"{kind} state dict",
            hint="a session has one clock for all parameters",
        )
    if MASTER in template["states"]:
        states[MASTER] = template["states"][MASTER]
    return {**template, "step": next(iter(steps.values()), 0), "states": states}


def _layout(layout: StateLayout | str) -> StateLayout:
    if layout not in list(StateLayout):
        raise StateError(
            f"unknown layout {layout!r}", hint=nearest(str(layout), map(str, StateLayout))
        )
    return StateLayout(layout)


def _check_rule(state_dict: Mapping[str, Any]) -> None:
    if state_dict.get("rule") not in RULES:
        raise StateError(
            f"only state dicts of {' and '.join(RULES)} can be converted, got rule "
            f"{state_dict.get('rule')!r}",
            hint="read its states by name",
        )


def _places(
    foreign: Mapping[str, Any], names: list[str], param_names: Mapping[str, Any], kind: StateLayout
) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """The position of each parameter in the other dict, and its group."""
    entries = [(place, group) for group in foreign["param_groups"] for place in group["params"]]
    unknown = [name for name in names if name not in param_names]
    if len(entries) != len(names) or unknown or len(names) != len(param_names):
        raise StateError(
            f"the param groups have {len(entries)} parameters, the session has {len(param_names)}: "
            f"{', '.join(map(repr, list(param_names)[:6]))}",
            where=f"{kind} state dict",
            hint="give names=[…] in the order of the param groups",
        )
    return dict(zip(names, entries, strict=True))


def _betas(group: Mapping[str, Any], kind: StateLayout) -> tuple[float, float]:
    if "betas" not in group:
        raise StateError("a param group has no betas", where=f"{kind} state dict")
    first, second = (float(beta) for beta in group["betas"])
    return first, second


def _step(entry: Mapping[str, Any], group: Mapping[str, Any], name: str, kind: StateLayout) -> int:
    """The number of steps performed on one parameter."""
    where = f"{kind} state dict, parameter {name!r}"
    if kind is not StateLayout.CEREBRAS:
        if "step" not in entry:
            raise StateError("the state has no 'step'", where=where, hint="pass step=…")
        count = float(_array(entry["step"]))
        if not count.is_integer() or not 0 <= count <= MAX_STEP:
            raise StateError(f"'step' must be an integer >= 0, got {count}", where=where)
        return int(count)
    return step_of_powers(entry, _betas(group, kind), where, hint="pass step=…")


def step_of_powers(
    entry: Mapping[str, Any], betas: Sequence[float], where: str, *, hint: str
) -> int:
    """Returns the number of steps performed, from the powers that the next step divides by.

    Args:
        entry: The states of one parameter in the layout of cerebras.
        betas: The decay rates of the first moment and, if it has a power, of the second.
        where: The location in error messages.
        hint: The hint for a state that does not determine the step.

    Raises:
        StateError: No power is above 1e-30 with a beta above 0, or two powers disagree.

    Example:
        >>> step_of_powers(
        ...     {"beta1_power": 0.729, "beta2_power": 0.970299}, (0.9, 0.99), "w", hint=""
        ... )
        2
    """
    betas_by_key = {key: beta for beta, key in zip(betas, POWERS, strict=False) if key in entry}
    steps = {}
    for key, beta in betas_by_key.items():
        power = float(_array(entry[key]))
        if _SMALLEST_POWER < power < 1 and 0 < beta < 1:
            # A running product of k float32 factors errs by far less than a factor up to here.
            steps[key] = round(math.log(power) / math.log(float(np.float32(beta)))) - 1
    if not steps:
        beta, key = (
            max((beta, key) for key, beta in betas_by_key.items())
            if betas_by_key
            else (0.0, POWERS[0])
        )
        power = float(_array(entry[key])) if betas_by_key else 0.0
        raise StateError(
            f"{key} {power} of beta {beta} does not determine the step", where=where, hint=hint
        )
    if len(set(steps.values())) > 1:
        text = " and ".join(f"step {step} ({key})" for key, step in steps.items())
        raise StateError(f"the powers of the betas disagree: {text}", where=where, hint=hint)
    return next(iter(steps.values()))


def _array(value: Any) -> Array:
    """An array from an array or a torch tensor; bfloat16 tensors become float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.asarray(value)
