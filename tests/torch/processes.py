"""Work done by several processes together (gloo, CPU), and parameters that they share."""

import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn, start_processes
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.language import UpdateRule
from closedform.torch import Optimizer
from tests.support.compiled_once import Compilations
from tests.support.torch_linker import link_torch

ROUNDING = 6e-8
"""Half of an ulp of a float32 of about 1."""

SIZES = ((7, 5), (5,), (1, 3), (2, 3, 4), ())
"""Shapes that two and four processes cannot share evenly: some have less, or nothing."""


def together(work: Callable[..., None], world: int, *args: object) -> None:
    """Calls a function in so many processes of one group, each with its own rank first.

    They are forks of one new process, which imports the function's module, and torch with it.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(_fork, (work, world, port, args), nprocs=1)


def _fork(_: int, work: Callable[..., None], world: int, *others: object) -> None:
    start_processes(_begin, (work, world, *others), world, start_method="fork")


def _begin(
    rank: int, work: Callable[..., None], world: int, port: int, args: tuple[object, ...]
) -> None:
    link_torch()
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    with Compilations().used():
        work(rank, *args)
    dist.barrier()
    dist.destroy_process_group()


class Collectives(TorchDispatchMode):
    """Counts the collectives and messages of this process by kind, and the bytes they bring."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.distributed.tensor import DTensor

        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for kind in ("allreduce", "all_gather", "recv"):
            if func.namespace in ("c10d", "_c10d_functional") and kind in func.__name__:
                value = result if kind == "all_gather" else args[0][0]
                self.counts[kind] += 1
                self.bytes[kind] += value.nbytes
        return result


def mesh_of(*sizes: int) -> Any:
    """A mesh of all processes, with one axis or two."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", sizes, mesh_dim_names=("first", "second")[: len(sizes)])


def spread(value: Tensor, mesh: Any, placements: Sequence[Any]) -> Tensor:
    """A tensor over a mesh; one without the axes to cut along stays as it is."""
    from torch.distributed.tensor import distribute_tensor

    if value.dim() <= max(getattr(placement, "dim", 0) for placement in placements):
        return value.clone()
    return distribute_tensor(value.clone(), mesh, placements)


def whole(value: Any) -> Tensor:
    """A copy of all of a tensor, however it is spread."""
    given = value.detach()
    full: Tensor = given.full_tensor() if hasattr(given, "full_tensor") else given
    return full.clone()


def drawn(shapes: Sequence[tuple[int, ...]], seed: int) -> list[Tensor]:
    """Normally distributed tensors."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def advance(optimizer: Optimizer, first: int, last: int) -> None:
    """Does some steps of an optimizer of one group; the gradients depend on the step alone."""
    from torch.distributed.tensor import distribute_tensor

    params = optimizer.param_groups[0]["params"]
    for step in range(first, last):
        for param, grad in zip(params, drawn([p.shape for p in params], 100 + step), strict=True):
            param.grad = grad.to(param.dtype)
            if hasattr(param, "placements"):
                param.grad = distribute_tensor(param.grad, param.device_mesh, param.placements)
        optimizer.step()


def begin(
    rule: UpdateRule,
    mesh: Any = None,
    placements: Sequence[Any] = (),
    shapes: Sequence[tuple[int, ...]] = SIZES,
    backend: str = "eager",
) -> Optimizer:
    """An optimizer of parameters over a mesh, or of plain ones with the same values."""
    values = drawn(shapes, 0)
    if mesh is not None:
        values = [spread(value, mesh, placements) for value in values]
    named = [(f"w{number}", nn.Parameter(value)) for number, value in enumerate(values)]
    return Optimizer(named, rule, backend=backend)


def params_of(optimizer: Optimizer) -> list[Tensor]:
    """Copies of the whole parameters."""
    return [whole(param) for param in optimizer.param_groups[0]["params"]]


def difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The largest difference of tensors, of which some may have no elements."""
    pairs = zip(one, other, strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs if a.numel())


def check_alike(rule: UpdateRule, optimizer: Optimizer, steps: int, bound: float) -> float:
    """Steps an optimizer and one of plain parameters; returns how far they are from each other.

    What they move is more than a hundred times the bound: else it would be none.
    """
    shapes = [tuple(param.shape) for param in optimizer.param_groups[0]["params"]]
    plain = begin(rule, shapes=shapes)
    advance(optimizer, 0, steps)
    advance(plain, 0, steps)
    found = difference(params_of(optimizer), params_of(plain))
    moved = difference(params_of(plain), drawn(shapes, 0))
    assert found <= bound < moved / 100, (rule.name, found, bound, moved)
    return found
