"""State dicts of Adam and AdamW in the layouts of torch, transformers and cerebras, both ways.

Theirs hold states by the place of a parameter, ours by its name; the clock is theirs once for each
parameter, as ``step`` or, in cerebras, as the powers of the betas that the next step divides by:
after k steps β^(k+1). (cerebras itself stores β^k when it converts such a dict, and so repeats a
step's bias correction; that is not done here.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from closedform.errors import StateError, nearest
from closedform.lowering.domain import MAX_STEP
from closedform.runtime.buffers import Array

RULES = ("adam", "adamw")
_MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
MASTER = "master"
"""The parameter in full precision: theirs is a parameter, so no state dict of theirs has it."""
POWERS = ("beta1_power", "beta2_power")
"""States of cerebras from which the step follows."""

_SMALLEST_POWER = 1e-30


class StateLayout(StrEnum):
    """Whose state dict it is."""

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
    """Returns a session's state dict as that of an optimizer of another system.

    Args:
        state_dict: What ``OptimizerSession.state_dict()`` gives, of rule adam or adamw.
        layout: The system.
        template: The state dict of that optimizer, of which the param groups are kept: load the
            result into it.
        names: The names of its parameters in their order; the session's order if None.
        convert: From an array to that system's tensor, such as ``torch.as_tensor``.

    Raises:
        StateError: The rule is another one, the template has another number of parameters, or its
            groups have no betas.
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
    """Returns the state dict of another system's optimizer as one of a session.

    Args:
        foreign: The state dict of that optimizer.
        layout: The system.
        template: ``OptimizerSession.state_dict()`` of the session that it is for: its parameters
            and their masters are kept, since the other dict has none.
        names: The names of its parameters in their order; the session's order if None.
        step: The number of steps done, where the dict does not tell: the powers of the betas are
            too small after many steps.

    Raises:
        StateError: The rule is another one, parameters or states are missing, or the parameters
            are not at the same step.
    """
    kind = _layout(layout)
    _check_rule(template)
    places = _places(foreign, list(names or template["params"]), template["params"], kind)
    states: dict[str, dict[str, Array]] = {key: {} for key in template["states"] if key != MASTER}
    steps = {}
    for name, (place, group) in places.items():
        own = foreign["state"].get(place)
        if own is None:
            raise StateError(
                f"there is no state of parameter {place}, {name!r} here",
                where=f"{kind} state dict",
                hint="an optimizer that has not stepped has none: there is nothing to load",
            )
        for key, by_name in states.items():
            if key not in own:
                raise StateError(
                    f"parameter {place}, {name!r} here, has no state {key!r}",
                    where=f"{kind} state dict",
                    hint=f"it has {', '.join(own)}",
                )
            like = template["states"][key][name]
            by_name[name] = np.array(_array(own[key]), like.dtype).reshape(like.shape)
        steps[name] = step if step is not None else _step(own, group, name, kind)
    if len(set(steps.values())) > 1:
        first, other = min(steps, key=lambda n: steps[n]), max(steps, key=lambda n: steps[n])
        raise StateError(
            f"the parameters are not at one step: {first!r} at {steps[first]}, {other!r} at "
            f"{steps[other]}",
            where=f"{kind} state dict",
            hint="a session has one clock",
        )
    kept = {key: held for key, held in template["states"].items() if key == MASTER}
    return {**template, "step": next(iter(steps.values()), 0), "states": {**states, **kept}}


def _layout(layout: StateLayout | str) -> StateLayout:
    if layout not in list(StateLayout):
        raise StateError(
            f"there is no layout {layout!r}", hint=nearest(str(layout), map(str, StateLayout))
        )
    return StateLayout(layout)


def _check_rule(state_dict: Mapping[str, Any]) -> None:
    if state_dict.get("rule") not in RULES:
        raise StateError(
            f"only state dicts of {' and '.join(RULES)} have other layouts, got rule "
            f"{state_dict.get('rule')!r}",
            hint="read its states by name",
        )


def _places(
    foreign: Mapping[str, Any], names: list[str], known: Mapping[str, Any], kind: StateLayout
) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """The place of each parameter in the other dict, and its group."""
    found = [(place, group) for group in foreign["param_groups"] for place in group["params"]]
    unknown = [name for name in names if name not in known]
    if len(found) != len(names) or unknown or len(names) != len(known):
        raise StateError(
            f"the param groups have {len(found)} parameters, the session {len(known)}: "
            f"{', '.join(map(repr, list(known)[:6]))}",
            where=f"{kind} state dict",
            hint="give names=[…] in the order of the param groups",
        )
    return dict(zip(names, found, strict=True))


def _betas(group: Mapping[str, Any], kind: StateLayout) -> tuple[float, float]:
    if "betas" not in group:
        raise StateError("a param group has no betas", where=f"{kind} state dict")
    first, second = (float(beta) for beta in group["betas"])
    return first, second


def _step(own: Mapping[str, Any], group: Mapping[str, Any], name: str, kind: StateLayout) -> int:
    """The number of steps done by one parameter."""
    where = f"{kind} state dict, parameter {name!r}"
    if kind is not StateLayout.CEREBRAS:
        if "step" not in own:
            raise StateError("there is no 'step'", where=where, hint="pass step=…")
        count = float(_array(own["step"]))
        if not count.is_integer() or not 0 <= count <= MAX_STEP:
            raise StateError(f"'step' must be an integer >= 0, got {count}", where=where)
        return int(count)
    return step_of_powers(own, _betas(group, kind), where, hint="pass step=…")


def step_of_powers(own: Mapping[str, Any], betas: Sequence[float], where: str, *, hint: str) -> int:
    """Returns the number of steps done, from the powers of the betas that the next one divides by.

    Args:
        own: The states of one parameter in cerebras's layout.
        betas: The decay rates of the first moment and, where it has a power, of the second.
        where: For errors.
        hint: What to do where they do not tell.

    Raises:
        StateError: There is none that is above 1e-30 and has a beta above 0, or two disagree.

    Example:
        >>> step_of_powers(
        ...     {"beta1_power": 0.729, "beta2_power": 0.970299}, (0.9, 0.99), "w", hint=""
        ... )
        2
    """
    known = {key: beta for beta, key in zip(betas, POWERS, strict=False) if key in own}
    steps = {}
    for key, beta in known.items():
        power = float(_array(own[key]))
        if _SMALLEST_POWER < power < 1 and 0 < beta < 1:
            # A running product of k float32 factors errs by far less than a factor up to here.
            steps[key] = round(math.log(power) / math.log(float(np.float32(beta)))) - 1
    if not steps:
        beta, key = max((beta, key) for key, beta in known.items()) if known else (0.0, POWERS[0])
        power = float(_array(own[key])) if known else 0.0
        raise StateError(
            f"{key} {power} of beta {beta} does not tell the step", where=where, hint=hint
        )
    if len(set(steps.values())) > 1:
        told = " and ".join(f"{key} {step}" for key, step in steps.items())
        raise StateError(f"the powers of the betas tell two steps: {told}", where=where, hint=hint)
    return next(iter(steps.values()))


def _array(value: Any) -> Array:
    """An array of what may be a tensor of torch; float32 for bf16, which it gives no NumPy."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.asarray(value)
