"""Parameters in shards (DTensor), stepped by two processes: the values of one process.

Both processes are begun once for all checks: each imports torch anew.
"""

import functools
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError, StateError
from closedform.language import UpdateRule
from closedform.torch import Optimizer, optim
from closedform.torch.engine.flat import FlatStep
from closedform.torch.engine.kernels import is_joint
from closedform.torch.shards import steps_by_shards
from tests.support.inputs import ROOT
from tests.torch.engines import LIBRARY
from tests.torch.processes import (
    ROUNDING,
    SIZES,
    Collectives,
    advance,
    begin,
    check_alike,
    difference,
    drawn,
    mesh_of,
    params_of,
    spread,
    together,
    whole,
)

STEPS = 3
# A step rounds some ten times numbers of about 1, in one order or another.
BOUND = 10 * STEPS * ROUNDING
MATRICES = ((7, 5), (1, 3), (2, 3, 4))
MOMENTUM = cf.optimizers.sgd(lr=0.1, momentum=0.9)
LARS = cf.optimizers.lars(lr=2.0, trust_coefficient=0.05)
CLIPPED = cf.transforms.clip_by_global_norm(MOMENTUM, 1)
FACTORED = cf.optimizers.adafactor(lr=0.05, relative_step=False)

COLLECTIVES: Mapping[str, tuple[UpdateRule, int]] = {
    "element by element": (MOMENTUM, 0),
    "norms of each parameter": (LARS, 1),
    "a norm of each parameter as a state": (cf.optimizers.novograd(lr=0.1), 1),
    "the norm of all": (CLIPPED, 1),
    "the norm of all, then those of each": (cf.transforms.clip_by_global_norm(LARS, 1), 2),
    "the norm of all, of which some are gathered": (
        cf.transforms.clip_by_global_norm(cf.transforms.clip_by_unit_norm(MOMENTUM, 0.5), 1),
        2,
    ),
}
"""Rules, and how many all_reduce a step takes, whatever the number of parameters."""

MUON = cf.optimizers.muon(lr=0.1)
PAGE = (ROOT / "docs" / "many_processes.md").read_text(encoding="utf-8")
RESUMED = {"factored": FACTORED, "clipped": CLIPPED}


def work(rank: int, folder: str) -> None:
    from torch.distributed.tensor import Shard

    shards = (mesh_of(2), [Shard(0)])
    for name, (rule, count) in COLLECTIVES.items():
        calls = _counted(lambda rule=rule: check_alike(rule, begin(rule, *shards), STEPS, BOUND))
        assert calls == count * STEPS, (name, calls)
    for rule in (cf.optimizers.muon(lr=0.1, ns_steps=2), FACTORED):
        check_alike(rule, begin(rule, *shards, MATRICES), STEPS, BOUND)
    _check_bits(*shards)
    _check_moved_parts(*shards)
    _check_collectives(*shards)
    _check_draws(shards[0])
    _check_late_weights()
    _check_back_ends(*shards)
    _check_states(*shards)
    _check_codes(*shards)
    _check_switches(*shards)
    _check_gradients(*shards)
    _check_points(*shards)
    _check_refusals(rank, *shards)
    _check_guards(rank, *shards)
    _check_flattened()
    _save(folder, *shards)


def _counted(do: Any, owner: Any = dist, name: str = "all_reduce") -> int:
    """How many times something calls a function of a module, or a method."""
    given, calls = getattr(owner, name), []

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return given(*args, **kwargs)

    with patch.object(owner, name, counting):
        do()
    return len(calls)


def _check_bits(mesh: Any, placements: Any) -> None:
    """Elementwise rules have the bits of one process, and their steps are replayed."""
    shapes = (*MATRICES, (300, 129), (5,))
    for name, make in LIBRARY.items():
        rule = make()
        if not steps_by_shards(rule) or is_joint(rule):
            continue
        optimizer = begin(rule, mesh, placements, shapes)
        plain = begin(rule, shapes=shapes)
        advance(optimizer, 0, 1)
        captured = optimizer._captured
        advance(optimizer, 1, STEPS)
        advance(plain, 0, STEPS)
        # A cube root depends on whether the element is in a vector of the processor.
        bound = BOUND if name == "madgrad" else 0
        assert difference(params_of(optimizer), params_of(plain)) <= bound, name
        assert plain._captured is not None
        if all(isinstance(step, FlatStep) for step in plain._captured._steps):
            assert captured is not None, name
            assert optimizer._captured is captured, name


def _check_draws(mesh: Any) -> None:
    """Random numbers are those of the whole tensor; a shard of rows gathers nothing."""
    from torch.distributed.tensor import DTensor, Shard

    rule = cf.transforms.stochastic_rounding(cf.optimizers.adamw(lr=0.1), seed=3)
    values = [value.bfloat16() for value in drawn(((7, 5), (3, 2), (64, 9)), 0)]
    plain = Optimizer([nn.Parameter(value.clone()) for value in values], rule)
    advance(plain, 0, STEPS)
    for axis in (0, 1):
        shards = [spread(value, mesh, [Shard(axis)]) for value in values]
        optimizer = Optimizer([nn.Parameter(shard) for shard in shards], rule)
        step = functools.partial(advance, optimizer, 0, STEPS)
        assert (_counted(step, DTensor, "full_tensor") > 0) == (axis == 1)
        assert difference(params_of(optimizer), params_of(plain)) == 0, axis


def _check_collectives(mesh: Any, placements: Any) -> None:
    """The collectives of a step of a matrix, and their bytes, are those of the page."""
    adamw, lamb = cf.optimizers.adamw(lr=0.1), cf.optimizers.lamb(lr=0.1)
    clip = cf.transforms.clip_by_global_norm
    coded = cf.transforms.eight_bit_states(adamw, least_size=256)
    rules = [
        adamw,
        lamb,
        clip(adamw, 1),
        clip(lamb, 1),
        MUON,
        clip(MUON, 1),
        cf.optimizers.adafactor(),
    ]
    rows = re.findall(r"^\| .+? \| (\d) \| ([\d,]+) \| (\d+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == len(rules)
    for rule, row in zip([*rules, coded], [*rows, rows[0]], strict=True):
        optimizer = begin(rule, mesh, placements, ((64, 64),))
        advance(optimizer, 0, 1)
        with Collectives() as collectives:
            optimizer.step()
        counted = [
            number
            for kind in ("allreduce", "recv")
            for number in (collectives.counts[kind], collectives.bytes[kind])
        ]
        # The first process owns the matrix.
        assert dist.get_rank() or counted == [int(cell.replace(",", "")) for cell in row], (
            rule.name,
            counted,
        )


def _check_moved_parts(mesh: Any, placements: Any) -> None:
    """A local part that lies in other memory, and a gradient with other placements, are seen."""
    from torch.distributed.tensor import Replicate

    for count, change in itertools.product((1, 3), ("memory", "placements")):
        optimizer = begin(MOMENTUM, mesh, placements, MATRICES[:count])
        plain = begin(MOMENTUM, shapes=MATRICES[:count])
        for each in (optimizer, plain):
            advance(each, 0, 2)
        for param in optimizer.param_groups[0]["params"]:
            if change == "memory":
                param._local_tensor = param._local_tensor.clone()
            else:
                param.grad = param.grad.redistribute(placements=[Replicate()])
        optimizer.step()
        plain.step()
        for each in (optimizer, plain):
            advance(each, 3, 5)
        assert difference(params_of(optimizer), params_of(plain)) == 0, (count, change)


def _check_back_ends(mesh: Any, placements: Any) -> None:
    """Each optimizer runs in its own back end, whichever ran a rule for equal shapes before."""
    for rule, order in (
        (cf.optimizers.lamb(), ("eager", "compile")),
        (FACTORED, ("compile", "eager")),
    ):
        for backend in order:
            optimizer = begin(rule, mesh, placements, MATRICES, backend=backend)
            runs = _counted(
                lambda optimizer=optimizer: advance(optimizer, 0, 1),
                torch,
                "compile",
            )
            assert (runs > 0) == (backend == "compile"), (rule.name, backend, runs)


def _check_late_weights() -> None:
    """Weights that FSDP2 gets after the optimizer is made are trained, also from meta devices."""
    from torch.distributed.fsdp import fully_shard

    adamw = cf.optimizers.adamw(lr=0.01)
    for rule in (
        cf.optimizers.schedule_free_adamw(lr=0.01),
        cf.transforms.lookahead(adamw, 1),
        cf.transforms.weight_average(adamw, 0.9),
        cf.optimizers.prodigy(),
        cf.optimizers.dog(),
    ):
        weights = drawn(((5, 7), (5,)), 3)
        results = []
        for device, is_sharded in (("cpu", False), ("cpu", True), ("meta", True)):
            model = nn.Linear(7, 5, device=device)
            if is_sharded:
                fully_shard(model)
            optimizer = Optimizer(model.parameters(), rule)
            model.to_empty(device="cpu")
            for param, value in zip(model.parameters(), weights, strict=True):
                given: Any = param.data
                given.copy_(_like(value, given))
            advance(optimizer, 0, STEPS)
            results.append(params_of(optimizer))
        for sharded in results[1:]:
            assert difference(results[0], sharded) <= BOUND, rule.name
        assert difference(results[0], weights) <= 0.1, rule.name


def _like(value: Any, like: Any) -> Any:
    """A tensor spread like another one."""
    is_spread = hasattr(like, "placements")
    return spread(value, like.device_mesh, like.placements) if is_spread else value


def _check_states(mesh: Any, placements: Any) -> None:
    """States lie where their parameter does, and others in shards of their own rows."""
    from torch.distributed.tensor import Replicate

    optimizer = begin(cf.optimizers.adafactor(beta1=0.9), mesh, placements, MATRICES)
    advance(optimizer, 0, 1)
    for param, states in optimizer.state.items():
        given: Any = param
        found: Any = states
        assert found["exp_avg"].placements == given.placements
        assert found["exp_avg"].to_local().shape == given.to_local().shape
        assert found["exp_avg_sq_row"].placements == given.placements
        assert found["exp_avg_sq_row"].shape == param.shape[:-1]
        assert type(found["step"]) is torch.Tensor
    # A state dict of plain tensors is cut; one of another placement is sent.
    saved = begin(cf.optimizers.adafactor(beta1=0.9), shapes=MATRICES)
    advance(saved, 0, 2)
    optimizer.load_state_dict(saved.state_dict())
    names = ("exp_avg", "exp_avg_sq_row", "step")
    for ours, theirs in zip(optimizer.state.values(), saved.state.values(), strict=True):
        for name in names:
            full: Any = ours[name]
            full = full.full_tensor() if hasattr(full, "full_tensor") else full
            assert torch.equal(full, theirs[name])
    across = optimizer.state_dict()
    moment = across["state"][0]["exp_avg"]
    across["state"][0]["exp_avg"] = moment.redistribute(placements=[Replicate()])
    optimizer.load_state_dict(across)
    again: Any = next(iter(optimizer.state.values()))["exp_avg"]
    assert again.placements == moment.placements
    assert torch.equal(again.to_local(), moment.to_local())


def _check_switches(mesh: Any, placements: Any) -> None:
    """Switches that training scripts pass for torch's kernels are taken, and change nothing."""
    results = []
    switches: tuple[dict[str, Any], ...] = ({}, {"fused": True}, {"foreach": True})
    for options in switches:
        values = [spread(value, mesh, placements) for value in drawn(MATRICES, 0)]
        optimizer = optim.AdamW([nn.Parameter(value) for value in values], **options)
        advance(optimizer, 0, STEPS)
        optimizer.load_state_dict(optimizer.state_dict())
        advance(optimizer, STEPS, STEPS + 1)
        results.append(params_of(optimizer))
    assert all(difference(results[0], other) == 0 for other in results)


def _check_codes(mesh: Any, placements: Any) -> None:
    """Codes of states are those of one process, in shards."""
    from torch.distributed.tensor import DTensor

    # Eight blocks in each process; an odd number of rows; a block and a half in each; not coded.
    shapes = ((64, 64), (63, 256), (2, 384), (7, 5))
    for transform in (cf.transforms.eight_bit_states, cf.transforms.four_bit_states):
        rule = transform(cf.optimizers.adamw(lr=0.1), block=256, least_size=256)
        optimizer, plain = begin(rule, mesh, placements, shapes), begin(rule, shapes=shapes)
        for each in (optimizer, plain):
            advance(each, 0, STEPS)
        optimizer.load_state_dict(optimizer.state_dict())
        advance(optimizer, STEPS, STEPS + 1)
        advance(plain, STEPS, STEPS + 1)
        assert difference(params_of(optimizer), params_of(plain)) == 0
        pairs = list(zip(optimizer.state.values(), plain.state.values(), strict=True))
        for ours, theirs in pairs:
            assert {n: v.dtype for n, v in ours.items()} == {n: v.dtype for n, v in theirs.items()}
            assert all(torch.equal(whole(ours[name]), theirs[name]) for name in theirs)
        for ours, theirs in pairs[:3]:
            assert isinstance(ours["exp_avg_code"], DTensor)
            rows, most = len(ours["exp_avg_code"].to_local()), -(-len(theirs["exp_avg_code"]) // 2)
            assert rows in (most, len(theirs["exp_avg_code"]) - most)


def _check_gradients(mesh: Any, placements: Any) -> None:
    """A gradient that is placed otherwise is sent first: here one summand is in each process."""
    from torch.distributed.tensor import DTensor, Partial

    for rule in (MOMENTUM, LARS):
        optimizer, plain = begin(rule, mesh, placements, MATRICES), begin(rule, shapes=MATRICES)
        ours, theirs = (one.param_groups[0]["params"] for one in (optimizer, plain))
        for param, beside, grad in zip(ours, theirs, drawn(MATRICES, 7), strict=True):
            param.grad = DTensor.from_local(grad / 2, mesh, [Partial()])
            beside.grad = grad
        optimizer.step()
        plain.step()
        assert difference(params_of(optimizer), params_of(plain)) <= BOUND


def _check_points(mesh: Any, placements: Any) -> None:
    """The point of evaluation is that of one process, and the other comes back to the bit."""
    units = cf.transforms.clip_by_unit_norm(MOMENTUM, 0.5)
    for rule in (
        cf.optimizers.schedule_free_sgd(lr=0.1),
        cf.transforms.weight_average(units, 0.9),
    ):
        optimizer, plain = begin(rule, mesh, placements, MATRICES), begin(rule, shapes=MATRICES)
        advance(optimizer, 0, STEPS)
        advance(plain, 0, STEPS)
        before = params_of(optimizer)
        optimizer.eval()
        plain.eval()
        found = difference(params_of(optimizer), params_of(plain))
        assert found <= BOUND < difference(before, params_of(plain)) / 100
        for param, states in optimizer.state.items():
            given, saved = param, states["training_point"]
            assert saved.placements == given.placements  # type: ignore[attr-defined]
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.train()
        assert difference(before, params_of(optimizer)) == 0


def _check_refusals(rank: int, mesh: Any, placements: Any) -> None:
    """Each process refuses, before any has begun to wait for the others."""
    from torch.distributed.tensor import DTensor, Partial

    partial = nn.Parameter(DTensor.from_local(torch.ones(3, 2), mesh, [Partial()]))
    good = nn.Parameter(spread(torch.ones(4), mesh, placements))
    groups: list[Any] = [{"params": [good]}, {"params": [good.detach().clone(), partial]}]
    with pytest.raises(ArgumentError) as caught:
        Optimizer(groups, LARS)
    assert "must be sharded or replicated, got Partial(sum) along axis 0" in str(caught.value)
    assert "param group 1, parameter 1 of shape [3, 2]" in str(caught.value)

    optimizer = begin(CLIPPED, mesh, placements)
    before = params_of(optimizer)
    params = optimizer.param_groups[0]["params"]
    for param, grad in zip(params, drawn(SIZES, 5), strict=True):
        param.grad = spread(grad, mesh, placements)
    params[2].grad = drawn(SIZES, 5)[2]
    with pytest.raises(ArgumentError) as caught:
        optimizer.step()
    assert "must be a DTensor like its parameter, got a plain tensor" in str(caught.value)
    assert "param group 0, parameter 'w2' of shape [1, 3]" in str(caught.value)
    params[2].grad = None
    with pytest.raises(ArgumentError, match=r"parameter 'w2' of shape \[1, 3\]"):
        optimizer.step()
    assert difference(before, params_of(optimizer)) == 0

    across = begin(LARS, mesh_of(1, 2), [placements[0], placements[0]])
    advance(across, 0, 1)
    state = across.state_dict()
    other = begin(LARS, mesh, placements)
    with pytest.raises(StateError, match=r"'momentum_buffer' .* on different device meshes"):
        other.load_state_dict(state)


def _check_guards(rank: int, mesh: Any, placements: Any) -> None:
    """No process steps, or waits, if they have other gradients or one of them raises an error."""
    rules = (LARS, CLIPPED, cf.optimizers.muon(lr=0.1, ns_steps=2), FACTORED, cf.optimizers.dog())
    for rule, is_late in itertools.product(rules, (False, True)):
        for case in ("another one", "another number", "an error"):
            optimizer = begin(rule, mesh, placements, MATRICES)
            advance(optimizer, 0, is_late)
            before = params_of(optimizer)
            params = optimizer.param_groups[0]["params"]
            for param, grad in zip(params, drawn(MATRICES, 5), strict=True):
                param.grad = spread(grad, mesh, placements)
            if case == "an error":
                params[1].grad = drawn(MATRICES, 5)[1] if rank else params[1].grad
            elif rank or case == "another one":
                params[2 * rank].grad = None
            with pytest.raises((ArgumentError, StateError)) as caught:
                optimizer.step()
            own = "must be a DTensor like its parameter" if rank else "or one has raised an error"
            assert case != "an error" or own in str(caught.value), (rule.name, caught.value)
            assert difference(before, params_of(optimizer)) == 0, (rule.name, case)
            for param in params:
                param.grad = torch.zeros_like(param)
            optimizer.step()


def _check_flattened() -> None:
    """Parts of parameters, which FSDP1 makes plain tensors, are refused but element by element."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    cpu = torch.device("cpu")
    model: Any = FullyShardedDataParallel(nn.Linear(7, 5), use_orig_params=True, device_id=cpu)
    Optimizer(model.parameters(), MOMENTUM)
    for rule in (LARS, CLIPPED, FACTORED, cf.optimizers.dog()):
        with pytest.raises(ArgumentError, match=rf"{rule.name}.* has flattened .*parameter 0"):
            Optimizer(model.parameters(), rule)


def _save(folder: str, mesh: Any, placements: Any) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    for name, rule in RESUMED.items():
        optimizer = begin(rule, mesh, placements, MATRICES)
        advance(optimizer, 0, STEPS)
        save(_saved(optimizer), checkpoint_id=f"{folder}/{name}")


def _saved(optimizer: Optimizer) -> dict[str, Any]:
    params = {str(i): p.detach() for i, p in enumerate(optimizer.param_groups[0]["params"])}
    return {"params": params, "optimizer": optimizer.state_dict()}


# It says so of every load in one process.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_two_processes_are_one(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load

    together(work, 2, str(tmp_path))
    # One process goes on with the state that two have saved.
    for name, rule in RESUMED.items():
        resumed, unbroken = begin(rule, shapes=MATRICES), begin(rule, shapes=MATRICES)
        advance(resumed, 0, 1)  # load reads the states that there are, as for torch's optimizers
        saved = _saved(resumed)
        load(saved, checkpoint_id=tmp_path / name, no_dist=True)
        resumed.load_state_dict(saved["optimizer"])
        advance(resumed, STEPS, 2 * STEPS)
        advance(unbroken, 0, 2 * STEPS)
        assert difference(params_of(resumed), params_of(unbroken)) <= 2 * BOUND
