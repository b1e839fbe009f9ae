"""Work done by several processes together (gloo, CPU), and models that they share."""

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn


def together(work: Callable[..., None], world: int, *args: object) -> None:
    """Calls a function in so many processes of one group, each with its own rank first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(_begin, args=(work, world, port, args), nprocs=world, join=True)


def _begin(
    rank: int, work: Callable[..., None], world: int, port: int, args: tuple[object, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        work(rank, world, *args)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def mesh(*sizes: int) -> Any:
    """A mesh of all processes."""
    from torch.distributed.device_mesh import init_device_mesh

    names = ("replicas", "shards") if len(sizes) == 2 else ("shards",)
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def spread(values: list[Tensor], over: Any, placements: list[Any]) -> list[nn.Parameter]:
    """Parameters over a mesh; a tensor without the axis to cut along is a plain one."""
    from torch.distributed.tensor import distribute_tensor

    made = []
    for value in values:
        axes = [getattr(placement, "dim", 0) for placement in placements]
        if value.dim() <= max(axes):
            made.append(nn.Parameter(value.clone()))
        else:
            made.append(nn.Parameter(distribute_tensor(value.clone(), over, placements)))
    return made


def whole(value: Any) -> Tensor:
    """A copy of all of a tensor, however it is spread."""
    full: Tensor = value.detach()
    return (full.full_tensor() if hasattr(full, "full_tensor") else full).clone()


def step_alike(
    one: torch.optim.Optimizer,
    ours: list[Any],
    other: torch.optim.Optimizer,
    plain: list[Any],
    count: int,
    seed: int = 1,
) -> None:
    """Steps spread parameters and plain ones with the same gradients."""
    from torch.distributed.tensor import distribute_tensor

    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for mine, beside in zip(ours, plain, strict=True):
            grad = torch.randn(beside.shape, generator=generator)
            beside.grad = grad
            is_spread = hasattr(mine, "placements")
            mine.grad = (
                distribute_tensor(grad.clone(), mine.device_mesh, mine.placements)
                if is_spread
                else grad.clone()
            )
        one.step()
        other.step()
