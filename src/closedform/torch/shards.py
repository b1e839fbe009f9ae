"""Parameters that are spread over processes (DTensor): the part that lies here, and states like it.

Nothing of torch.distributed is imported: a DTensor brings what is needed with it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from closedform.language import UpdateRule


def local(value: Tensor) -> Tensor:
    """Returns the part of a tensor that lies in this process; a plain tensor as it is."""
    to_local = getattr(value, "to_local", None)
    if to_local is None:
        return value
    part: Tensor = to_local()
    return part


def is_sharded(value: Tensor) -> bool:
    """Returns whether this process has a part of the tensor alone."""
    placements = getattr(value, "placements", ())
    return any(not placement.is_replicate() for placement in placements)


def steps_by_shards(rule: UpdateRule) -> bool:
    """Returns whether each element steps by itself, so that parts of a tensor may."""
    return rule.is_elementwise and rule.is_for_all_shapes


def spread_like(state: Tensor, param: Tensor) -> Tensor:
    """Returns a state of the local part's shape as a tensor that is spread as the parameter is."""
    kind: Any = type(param)
    given: Any = param
    if not hasattr(param, "to_local") or state.shape != local(param).shape or not state.dim():
        return state
    spread: Tensor = kind.from_local(
        state,
        device_mesh=given.device_mesh,
        placements=given.placements,
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )
    return spread
