"""Parameters that are spread over processes (DTensor): parts that lie here, and tensors like them.

A DTensor is spread over a mesh of processes, along each axis of the mesh as one placement says:
cut into shards along an axis of the tensor, or repeated. Shards may be of different sizes, and
empty. What is imported of torch.distributed is imported where a DTensor is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from closedform.errors import ArgumentError
from closedform.language import UpdateRule


def is_spread(value: Tensor) -> bool:
    """Returns whether a tensor is a DTensor, however it is spread."""
    return hasattr(value, "placements")


def is_sharded(value: Tensor) -> bool:
    """Returns whether this process has a part of the tensor alone."""
    placements = getattr(value, "placements", ())
    return any(not placement.is_replicate() for placement in placements)


def local(value: Tensor) -> Tensor:
    """Returns the part of a tensor that lies in this process; a plain tensor as it is."""
    given: Any = value
    part: Tensor = given.to_local() if is_spread(value) else value
    return part


def whole(value: Tensor) -> Tensor:
    """Returns the whole tensor, gathered from all processes that have a part of it."""
    given: Any = value
    full: Tensor = given.full_tensor() if is_spread(value) else value
    return full


def part_of(full: Tensor, like: Tensor) -> Tensor:
    """Returns what this process keeps of a whole tensor that is spread like another one."""
    if not is_spread(like):
        return full
    given: Any = _repeated(full, like)
    return local(given.redistribute(placements=_placements(like)))


def spread_like(part: Tensor, param: Tensor) -> Tensor:
    """Returns a tensor spread as a parameter is, from the part that lies here."""
    if not is_spread(param):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part,
        _mesh(param),
        _placements(param),
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )


def repeated_like(full: Tensor, param: Tensor) -> Tensor:
    """Returns a tensor that every process of a parameter's mesh has; a number as it is."""
    return _repeated(full, param) if is_spread(param) and full.dim() else full


def is_placeable(value: Tensor, like: Tensor) -> bool:
    """Returns whether ``placed_like`` serves: two spread tensors must be on one mesh."""
    return not (is_spread(value) and is_spread(like)) or _mesh(value) == _mesh(like)


def placed_like(value: Tensor, like: Tensor) -> Tensor:
    """Returns a tensor spread as another one is, on its mesh; what is not whole here is sent."""
    if not is_spread(like):
        return whole(value)
    if not is_spread(value):
        return spread_like(part_of(value, like), like)
    given: Any = value
    placed: Tensor = given.redistribute(placements=_placements(like))
    return placed


def gradient_of(param: Tensor) -> Tensor:
    """Returns the gradient of a parameter, spread as it is; the parameter itself if it has none."""
    given = (param if param.grad is None else param.grad).detach()
    if not is_spread(param) or _placements(given) == _placements(param):
        return given
    return placed_like(given, param)


def check_placement(param: Tensor, where: str) -> None:
    """Raises ArgumentError for a parameter that is neither whole nor cut into shards.

    It decides by what all processes know alike, so that none of them waits for the others.
    """
    for axis, placement in enumerate(_placements(param) if is_spread(param) else ()):
        if placement.is_partial():
            raise ArgumentError(
                f"a parameter must be sharded or replicated, got {placement!r} along axis {axis} "
                "of its mesh",
                where=where,
                hint="redistribute it before the optimizer is made",
            )


def is_plain(value: Tensor) -> bool:
    """Returns whether a tensor is dense and lies in this process alone."""
    return value.layout is torch.strided and not is_spread(value)


def check_gradient(param: Tensor, grad: Tensor, where: str) -> None:
    """Raises ArgumentError where a gradient is sparse, or not spread as its parameter is."""
    if grad.layout is not torch.strided:
        raise ArgumentError(
            f"the gradient must be dense, got {grad.layout}",
            where=where,
            hint="make the layer with sparse=False",
        )
    kinds = ["a DTensor" if is_spread(value) else "a plain tensor" for value in (param, grad)]
    if kinds[0] != kinds[1]:
        raise ArgumentError(
            f"the gradient must be {kinds[0]} as its parameter, got {kinds[1]}", where=where
        )
    if is_spread(param) and _mesh(param) != _mesh(grad):
        raise ArgumentError(
            f"the gradient must be on the parameter's mesh {_mesh(param)}, got {_mesh(grad)}",
            where=where,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """The processes that the shards of a tensor lie in.

    Attributes:
        mesh: Their mesh; None for a tensor that is whole here.
        axes: The axes of the mesh along which the tensor is cut.
    """

    mesh: Any = None
    axes: tuple[int, ...] = ()

    def add_up(self, parts: Tensor) -> Tensor:
        """Returns the sums over these processes: one all_reduce for each axis."""
        for axis in self.axes:
            torch.distributed.all_reduce(parts, group=self.mesh.get_group(axis))
        return parts


def span_of(param: Tensor) -> Span:
    """Returns the processes that the shards of a tensor lie in."""
    if not is_sharded(param):
        return Span()
    cut = (axis for axis, one in enumerate(_placements(param)) if not one.is_replicate())
    return Span(_mesh(param), tuple(cut))


def steps_by_shards(rule: UpdateRule) -> bool:
    """Returns whether each element steps by itself, so that parts of a tensor may."""
    return rule.is_elementwise and rule.is_for_all_shapes


def full_states(rule: UpdateRule, param: Tensor, dtype: torch.dtype) -> Mapping[str, Tensor]:
    """Returns the states of another shape than the parameter's, before the first step.

    Those of rank 0 are plain tensors; others are repeated in every process.
    """
    device, sizes = local(param.detach()).device, tuple(param.shape)
    made = {}
    for name, spec in rule.states.items():
        if spec.shape != "param":
            shape = [int(size) for size in rule.state_shape(name, sizes)]
            full = torch.full(shape, float(spec.initial), dtype=dtype, device=device)
            made[name] = repeated_like(full, param)
    return made


def _repeated(full: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    mesh = _mesh(like)
    return DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _mesh(value: Any) -> Any:
    return value.device_mesh


def _placements(value: Any) -> Sequence[Any]:
    placements: Sequence[Any] = value.placements
    return placements
