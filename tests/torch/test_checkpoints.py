"""Checkpoints of torch.distributed.checkpoint: each class from torch's to ours and back.

Processes are begun once for all classes: each imports torch anew.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from closedform.torch import optim
from tests.torch.processes import advance, difference, params_of, together

STEPS = 2
OPTIONS: dict[str, dict[str, Any]] = {"SGD": {"lr": 0.1, "momentum": 0.9}}
# Products of bfloat16 and their order; what NAdam keeps in float32; else roundings of float64.
BOUNDS = {"Muon": 1e-2, "NAdam": 1e-7, "ASGD": 1e-7}


def begun(owner: Any, name: str, *, is_sharded: bool = False) -> tuple[nn.Module, Any]:
    """A model of float64, in shards of FSDP2 or whole, and its optimizer."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.Linear(6, 8, bias=False), nn.Linear(8, 3, bias=False)]
    model = nn.Sequential(*layers).double()
    if is_sharded:
        fully_shard(model)
    return model, getattr(owner, name)(model.parameters(), **OPTIONS.get(name, {"lr": 0.01}))


def save(folder: Path, model: nn.Module, optimizer: Any, **options: Any) -> None:
    from torch.distributed.checkpoint import state_dict_saver
    from torch.distributed.checkpoint.state_dict import get_state_dict

    parts, states = get_state_dict(model, optimizer)
    state_dict_saver.save({"model": parts, "optimizer": states}, checkpoint_id=folder, **options)


def load(folder: Path, model: nn.Module, optimizer: Any, **options: Any) -> None:
    from torch.distributed.checkpoint import state_dict_loader
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    parts, states = get_state_dict(model, optimizer)
    content = {"model": parts, "optimizer": states}
    state_dict_loader.load(content, checkpoint_id=folder, **options)
    set_state_dict(model, optimizer, model_state_dict=parts, optim_state_dict=states)


def work(_: int, before: str, after: str, first: int) -> None:
    """Each class goes on from a folder of checkpoints to another one, from a step on."""
    for name in optim.OPTIMIZERS:
        model, optimizer = begun(optim, name, is_sharded=True)
        load(Path(before, name), model, optimizer)
        advance(optimizer, first, first + STEPS)
        save(Path(after, name), model, optimizer)


# It says so of every checkpoint in one process.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_every_class_goes_on_from_torch_in_four_processes_two_and_back(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("torch", "four", "two")]
    unbroken: dict[str, list[Tensor]] = {}
    for name in optim.OPTIMIZERS:
        model, theirs = begun(torch.optim, name)
        advance(theirs, 0, STEPS)
        save(tmp_path / "torch" / name, model, theirs, no_dist=True)
        advance(theirs, STEPS, 4 * STEPS)
        unbroken[name] = params_of(theirs)
    together(work, 4, *folders[:2], STEPS)
    together(work, 2, *folders[1:], 2 * STEPS)
    for name, wanted in unbroken.items():
        model, theirs = begun(torch.optim, name)
        load(tmp_path / "two" / name, model, theirs, no_dist=True)
        advance(theirs, 3 * STEPS, 4 * STEPS)
        assert difference(params_of(theirs), wanted) <= BOUNDS.get(name, 1e-12), name


def test_the_state_dicts_of_sgd_and_muon_have_the_keys_of_torch() -> None:
    for name, options in (("SGD", {"lr": 0.1}), ("SGD", OPTIONS["SGD"]), ("Muon", {"lr": 0.01})):
        keys = []
        for owner in (torch.optim, optim):
            params = [nn.Parameter(torch.ones(3, 2))]
            optimizer = getattr(owner, name)(params, **options)
            advance(optimizer, 0, 1)
            keys.append(
                {key for states in optimizer.state_dict()["state"].values() for key in states}
            )
        assert keys[0] == keys[1], name
