"""Parameters over two and four processes (gloo, CPU): every rule, FSDP2, meshes of two axes,
backends, and checkpoints that go on with another number of processes.

Not collected with the tests: each process imports torch anew. ``make compare``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch
from torch import nn

import closedform as cf
from closedform.language import UpdateRule
from closedform.torch import Optimizer, ParamScheduler
from tests.support.rules import accepts
from tests.torch.engines import ESTIMATES, LIBRARY
from tests.torch.processes import (
    ROUNDING,
    SIZES,
    advance,
    begin,
    check_alike,
    difference,
    mesh_of,
    params_of,
    together,
    whole,
)

STEPS = 4
ADAMW = cf.optimizers.adamw(lr=0.05, weight_decay=0.1)
RATE = cf.schedules.linear(0, 0.05, 2).then(cf.schedules.cosine(0.05, 0, 10))
Layout = tuple[tuple[int, ...], str]
"""The sizes of a mesh, and what is along each of its axes: see ``placements_of``."""

MATRICES = tuple(shape for shape in SIZES if len(shape) > 1)

# The rates of some grow from d0, from 1e-6 too slowly to be told apart; one waits for five steps.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"d0": 0.01} for name in ESTIMATES},
    "dog": {"first_value": 0.01},
    "schedule_free_radam": {"silent_sgd_phase": False},
}
RULES: Mapping[str, UpdateRule] = {
    **{name: make(**OPTIONS.get(name, {})) for name, make in LIBRARY.items()},
    "clipped adamw": cf.transforms.clip_by_global_norm(ADAMW, 0.5),
    "clipped lamb": cf.transforms.clip_by_global_norm(cf.optimizers.lamb(lr=0.1), 0.5),
    "clipped adafactor": cf.transforms.clip_by_global_norm(cf.optimizers.adafactor(), 0.5),
    "clipped muon": cf.transforms.clip_by_global_norm(cf.optimizers.muon(lr=0.1), 0.5),
    "clipped by units": cf.transforms.clip_by_unit_norm(cf.optimizers.sgd(lr=0.5), 0.01),
    "skipping lamb": cf.transforms.skip_nonfinite(cf.optimizers.lamb(lr=0.1)),
    "averaged adamw": cf.transforms.weight_average(ADAMW, 0.9),
}
KINDS = ("adamw", "lamb", "novograd", "adafactor", "muon", "prodigy", "clipped lamb")
"""A rule of each kind: by elements, sums of one, a scalar state, gathered, sums of all, both."""

# A step rounds some ten times numbers of about 1, in one order or another.
BOUND = 10 * STEPS * ROUNDING


def shapes_of(name: str) -> tuple[tuple[int, ...], ...]:
    shapes = SIZES if RULES[name].requires == sp.true else MATRICES
    return tuple(shape for shape in shapes if accepts(RULES[name], shape))


def sweep(rank: int, names: Sequence[str], layouts: Sequence[Layout], backend: str) -> None:
    """Each rule in each layout; the first process prints how far it is from one process."""
    for sizes, words in layouts:
        for name in names:
            rule, over = RULES[name], (mesh_of(*sizes), placements_of(words))
            optimizer = begin(rule, *over, shapes_of(name), backend)
            found = check_alike(rule, optimizer, STEPS, BOUND)
            if rank == 0:
                print(f"{name}, {backend}, mesh {sizes}, {words}: {found:.1e}", flush=True)


def placements_of(words: str) -> list[Any]:
    """ "0" for shards of the first axis, "1" of the second, "r" for copies; one a mesh axis."""
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate() if word == "r" else Shard(int(word)) for word in words]


@pytest.mark.parametrize("world", [2, 4])
def test_every_rule_steps_shards_as_one_process(world: int) -> None:
    together(sweep, world, list(RULES), [((world,), "0")], "eager")


def test_shards_lie_along_any_axis_of_a_mesh_and_a_tensor() -> None:
    layouts = [((4,), "1"), ((2, 2), "r0"), ((2, 2), "0r"), ((2, 2), "01"), ((2, 2), "00")]
    together(sweep, 4, KINDS, layouts, "eager")


def test_compiled_shards_step_as_others() -> None:
    together(sweep, 2, ("lamb", "adafactor"), [((2,), "0")], "compile")


# --- checkpoints -------------------------------------------------------------------------------


def saved(optimizer: Optimizer) -> dict[str, Any]:
    params = {str(i): p.detach() for i, p in enumerate(optimizer.param_groups[0]["params"])}
    return {"params": params, "optimizer": optimizer.state_dict()}


def save_all(_: int, world: int, folder: str) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    for name in KINDS:
        optimizer = begin(RULES[name], mesh_of(world), placements_of("0"), shapes_of(name))
        advance(optimizer, 0, STEPS)
        save(saved(optimizer), checkpoint_id=f"{folder}/{name}")


def load_all(rank: int, world: int, folder: str) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load

    mesh = mesh_of(world) if world > 1 else None
    for name in KINDS:
        optimizer = begin(RULES[name], mesh, placements_of("0"), shapes_of(name))
        advance(optimizer, 0, 1)  # makes the states that are loaded
        content = saved(optimizer)
        load(content, checkpoint_id=f"{folder}/{name}", no_dist=world == 1)
        optimizer.load_state_dict(content["optimizer"])
        advance(optimizer, STEPS, 2 * STEPS)
        plain = begin(RULES[name], shapes=shapes_of(name))
        advance(plain, 0, 2 * STEPS)
        found = difference(params_of(optimizer), params_of(plain))
        assert found <= 2 * BOUND, (name, found)
        if rank == 0:
            print(f"{name}, loaded by {world}: {found:.1e}", flush=True)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_another_number_of_processes_goes_on(tmp_path: Path, before: int, after: int) -> None:
    together(save_all, before, before, str(tmp_path))
    together(load_all, after, after, str(tmp_path))
    load_all(0, 1, str(tmp_path))


# --- FSDP2 -------------------------------------------------------------------------------------


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    built = model()
    for layer in built:  # type: ignore[attr-defined]
        fully_shard(layer)
    fully_shard(built)
    return built


Run = tuple[nn.Module, Optimizer, ParamScheduler]


def started(built: nn.Module, rule: UpdateRule) -> Run:
    optimizer = Optimizer(built.named_parameters(), rule)
    return built, optimizer, ParamScheduler(optimizer, RATE)


def train(run: Run, first: int, last: int) -> None:
    built, optimizer, scheduler = run
    generator = torch.Generator().manual_seed(1)
    batches = torch.randn(4 * STEPS, 8, 6, generator=generator)
    for step in range(first, last):
        optimizer.zero_grad()
        built(batches[step]).square().mean().backward()
        optimizer.step()
        scheduler.step()


def fully_sharded(rank: int, folder: str) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    for name in ("adamw", "lamb", "adafactor", "clipped adamw"):
        rule = RULES[name]
        run = started(sharded(), rule)
        train(run, 0, STEPS)
        parts, states = get_state_dict(run[0], run[1])
        save({"model": parts, "optimizer": states}, checkpoint_id=f"{folder}/{name}")
        train(run, STEPS, 2 * STEPS)

        second = started(sharded(), rule)
        parts, states = get_state_dict(second[0], second[1])
        load({"model": parts, "optimizer": states}, checkpoint_id=f"{folder}/{name}")
        set_state_dict(second[0], second[1], model_state_dict=parts, optim_state_dict=states)
        second[2].load_state_dict({**run[2].state_dict(), "last_epoch": STEPS})
        train(second, STEPS, 2 * STEPS)

        plain = started(model(), rule)
        train(plain, 0, 2 * STEPS)
        each = [[whole(param) for param in one[0].parameters()] for one in (run, second, plain)]
        found = difference(each[0], each[2])
        # The mean over processes of equal batches rounds once more; Adam divides by what it is.
        assert found <= 1e-5, (name, found)
        assert difference(each[0], each[1]) == 0
        if rank == 0:
            print(f"FSDP2, {name}: {found:.1e}, resumed: 0", flush=True)


@pytest.mark.parametrize("world", [2, 4])
def test_fsdp2_trains_and_resumes_as_one_process(tmp_path: Path, world: int) -> None:
    together(fully_sharded, world, str(tmp_path))


def two_ways(rank: int) -> None:
    """FSDP2 over tensor parallelism: one axis of a parameter is cut along both axes of the mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensors"))
    for name in ("adamw", "lamb", "adafactor", "clipped lamb"):
        built = model()
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(built, mesh["tensors"], plan)
        for layer in built:  # type: ignore[attr-defined]
            fully_shard(layer, mesh=mesh["data"])
        fully_shard(built, mesh=mesh["data"])
        runs = [started(one, RULES[name]) for one in (built, model())]
        for run in runs:
            train(run, 0, 2 * STEPS)
        one, plain, before = (
            [whole(param) for param in owner.parameters()]
            for owner in (runs[0][0], runs[1][0], model())
        )
        found = difference(one, plain)
        # As with FSDP2 alone.
        assert found <= 1e-5 < difference(plain, before) / 100, (name, found)
        if rank == 0:
            print(f"FSDP2 and tensor parallelism, {name}: {found:.1e}", flush=True)


def test_fsdp2_over_tensor_parallelism_trains_as_one_process() -> None:
    together(two_ways, 4)
