"""FSDP2 on two processes (gloo, CPU): shards step as one process does, and checkpoints resume.

Not collected with the tests: each process imports torch anew. ``make compare``.
"""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

import closedform as cf
from closedform.errors import ArgumentError
from closedform.torch import Optimizer, ParamScheduler

WORLD, STEPS = 2, 6
RULE = cf.optimizers.adamw(lr=0.05, weight_decay=0.1)
RATE = cf.schedules.linear(0, 0.05, 2).then(cf.schedules.cosine(0.05, 0, 10))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def train(built: nn.Module, optimizer: Optimizer, scheduler: Any, first: int, last: int) -> None:
    generator = torch.Generator().manual_seed(1)
    batches = torch.randn(2 * STEPS, 8, 6, generator=generator)
    for step in range(first, last):
        optimizer.zero_grad()
        built(batches[step]).square().mean().backward()
        optimizer.step()
        scheduler.step()


def begin(built: nn.Module) -> tuple[nn.Module, Optimizer, ParamScheduler]:
    optimizer = Optimizer(built.named_parameters(), RULE)
    return built, optimizer, ParamScheduler(optimizer, RATE)


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    built = model()
    for layer in built:  # type: ignore[attr-defined]
        fully_shard(layer)
    fully_shard(built)
    return built


def work(rank: int, port: int, folder: str) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    run = begin(sharded())
    weight = run[0].get_parameter("0.weight")
    assert run[1].state[weight]["exp_avg"].placements == weight.placements  # type: ignore[attr-defined]
    train(*run, 0, STEPS)
    parts, states = get_state_dict(run[0], run[1])
    save({"model": parts, "optimizer": states}, checkpoint_id=folder)
    train(*run, STEPS, 2 * STEPS)

    second = begin(sharded())
    parts, states = get_state_dict(second[0], second[1])
    load({"model": parts, "optimizer": states}, checkpoint_id=folder)
    set_state_dict(second[0], second[1], model_state_dict=parts, optim_state_dict=states)
    second[2].load_state_dict({**run[2].state_dict(), "last_epoch": STEPS})
    train(*second, STEPS, 2 * STEPS)

    whole = begin(model())
    train(*whole, 0, 2 * STEPS)
    for one, two, plain in zip(
        run[0].parameters(), second[0].parameters(), whole[0].parameters(), strict=True
    ):
        full: Any = one
        resumed: Any = two
        # The mean over two processes of equal batches rounds once more: 6e-8, 12 steps of Adam.
        torch.testing.assert_close(full.full_tensor(), plain, rtol=0, atol=1e-5)
        assert torch.equal(full.full_tensor(), resumed.full_tensor())
    with pytest.raises(ArgumentError, match="must be elementwise, 'lamb' is not"):
        Optimizer(sharded().parameters(), cf.optimizers.lamb())
    clipped = cf.transforms.clip_by_global_norm(RULE, 1)
    with pytest.raises(ArgumentError, match=f"must be elementwise, {clipped.name!r} is not"):
        Optimizer(sharded().parameters(), clipped)
    dist.destroy_process_group()


def test_two_processes_are_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(work, args=(port, str(tmp_path)), nprocs=WORLD, join=True)
