"""States in checkpoints of DeepSpeed and Megatron: genuine files, every direction, what is refused.

universal_checkpoint.zip was written by DeepSpeed's own converter (make_universal_checkpoint.py,
which also lets DeepSpeed's loader read files of ours). Megatron's keys are as read in its source.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

import closedform as cf
from closedform import optimizers, transforms
from closedform.errors import StateError
from closedform.language import UpdateRule
from closedform.torch import Optimizer
from closedform.torch.checkpoints import (
    load_megatron,
    megatron_states,
    read_universal,
    write_universal,
)
from tests.torch.make_universal_checkpoint import FILE, SHAPES, STEPS, advance, trained

Params = dict[str, nn.Parameter]
MATRICES = {"up.weight": (4, 6), "down.weight": (6, 4)}
RULES: dict[str, Callable[[], UpdateRule]] = {
    "adamw": lambda: optimizers.adamw(0.05, weight_decay=0.1),
    "lion": lambda: optimizers.lion(0.05),
    "muon": lambda: optimizers.muon(0.05),
    "adagrad": lambda: optimizers.adagrad(0.05),
    "masters": lambda: transforms.master_weights(optimizers.adamw(0.05)),
    "kahan": lambda: transforms.kahan(optimizers.adamw(0.05)),
    "moments of 16 bits": lambda: transforms.sixteen_bit_states(
        optimizers.adamw(0.05), rounding="stochastic"
    ),
}


def fresh(shapes: dict[str, Any] = MATRICES, dtype: torch.dtype = torch.float32) -> Params:
    return {name: nn.Parameter(torch.zeros(shape, dtype=dtype)) for name, shape in shapes.items()}


def stepped(rule: UpdateRule, count: int = 3) -> tuple[Params, Optimizer]:
    dtype = torch.bfloat16 if rule.stored else torch.float32
    generator = torch.Generator().manual_seed(1)
    params = fresh(dtype=dtype)
    for param in params.values():
        param.data.copy_(torch.randn(param.shape, generator=generator))
    optimizer = Optimizer(params.values(), rule)
    for step in range(count):
        advance_stored(params, optimizer, step)
    return params, optimizer


def advance_stored(params: Params, optimizer: torch.optim.Optimizer, step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for param in params.values():
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)
    optimizer.step()


def over_deepspeed(first: Any, second: Any, params: Params, others: Params, folder: Path) -> None:
    write_universal(folder, first, params.items())
    read_universal(folder, second, others.items())


def over_megatron(first: Any, second: Any, params: Params, others: Params, folder: Path) -> None:
    """Through files of torch.distributed.checkpoint, Megatron's format ``torch_dist``."""
    states = megatron_states(first, params.items())
    save(states, checkpoint_id=str(folder), no_dist=True)
    read = {key: torch.zeros_like(value) for key, value in states.items()}
    load(read, checkpoint_id=str(folder), no_dist=True)
    load_megatron(second, others.items(), read, step=3)


@pytest.mark.filterwarnings("ignore")  # of torch.distributed without processes
@pytest.mark.parametrize("way", [over_deepspeed, over_megatron])
@pytest.mark.parametrize("name", RULES)
def test_a_run_goes_on(name: str, way: Callable[..., None], tmp_path: Path) -> None:
    params, first = stepped(RULES[name]())
    others = fresh(dtype=next(iter(params.values())).dtype)
    # Parameters in another order: names decide.
    second = Optimizer(reversed(others.values()), RULES[name]())
    way(first, second, params, others, tmp_path)
    for step in (3, 4):
        advance_stored(params, first, step)
        advance_stored(others, second, step)
    for key, param in params.items():
        assert torch.equal(param, others[key]), key
        for label, state in first.state[param].items():
            assert torch.equal(state, second.state[others[key]][label]), (key, label)
            assert state.dtype == second.state[others[key]][label].dtype


def genuine(folder: Path) -> Path:
    with zipfile.ZipFile(FILE) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("make", [cf.torch.optim.AdamW, torch.optim.AdamW])
def test_a_checkpoint_of_deepspeed_goes_on(make: Any, tmp_path: Path) -> None:
    """Written by its converter from two tensor-parallel ranks with two partitions each."""
    expected, theirs = trained()
    params = fresh(SHAPES)
    optimizer = make(params.values(), lr=0.05, weight_decay=0.1)
    read_universal(genuine(tmp_path), optimizer, params.items())
    for name, param in params.items():
        assert torch.equal(param, expected[name])
    for step in (STEPS, STEPS + 1):
        advance(params, optimizer, step)
        advance(expected, theirs, step)
    for name, param in params.items():
        # Two steps of 0.05 on numbers near 1, each of some ten roundings.
        torch.testing.assert_close(param, expected[name], rtol=2e-6, atol=2e-7)


def test_the_files_are_those_of_deepspeed(tmp_path: Path) -> None:
    expected, theirs = trained()
    write_universal(tmp_path / "ours", theirs, expected.items())
    for file in sorted((genuine(tmp_path) / "zero").glob("**/*.pt")):
        ours, its = (
            torch.load(path, weights_only=True)
            for path in (tmp_path / "ours" / file.relative_to(tmp_path), file)
        )
        if isinstance(its, dict):
            assert set(its) <= set(ours)
            ours, its = ours["param"], its["param"]
        assert torch.equal(ours, its), file
    content = torch.load(tmp_path / "ours/zero/optimizer_state.pt", weights_only=True)
    assert content["param_groups"][0]["lr"] == 0.05
    assert content["optimizer_state_dict"]["state"][0]["step"] == STEPS
    assert content["ds_version"]


def test_megatron_has_these_keys() -> None:
    params, optimizer = stepped(optimizers.muon(0.1))
    states = megatron_states(optimizer, params.items())
    assert list(states) == [
        f"optimizer.state.{key}.{name}"
        for name in params
        for key in ("fp32_param", "momentum_buffer")
    ]
    # The fully reshardable form has ``param`` for the value, and files hold the model, too.
    other = {key.replace("fp32_param", "param"): value for key, value in states.items()}
    others = fresh()
    second = Optimizer(others.values(), optimizers.muon(0.1))
    load_megatron(second, others.items(), {**other, "up.weight": torch.ones(1)}, 3)
    assert torch.equal(params["up.weight"], others["up.weight"])


def test_flat_tensors_of_stage_3_are_read(tmp_path: Path) -> None:
    params, optimizer = stepped(optimizers.lion(0.1))
    write_universal(tmp_path, optimizer, params.items())
    for file in (tmp_path / "zero").glob("*/*.pt"):
        if file.stem != "step":
            torch.save(torch.load(file)["param"].flatten(), file)
    others = fresh()
    read_universal(tmp_path, Optimizer(others.values(), RULES["lion"]()), others.items())
    assert torch.equal(params["up.weight"], others["up.weight"])


@pytest.mark.parametrize(
    ("name", "state", "shape"), [("soap", "GG_0", [4, 4]), ("adafactor", "row_var", [4, 1])]
)
def test_states_of_other_shapes_are_refused(
    name: str, state: str, shape: list[int], tmp_path: Path
) -> None:
    rule = optimizers.soap(0.1) if name == "soap" else cf.optimizers.adafactor(0.1, floor="clamped")
    params, optimizer = stepped(rule)
    for write in (
        lambda: write_universal(tmp_path, optimizer, params.items()),
        lambda: megatron_states(optimizer, params.items()),
    ):
        with pytest.raises(StateError) as caught:
            write()
        assert str(caught.value) == (
            f"state {state!r} of parameter 'up.weight' has shape {shape}, and these checkpoints "
            "have a place only for states of its shape [4, 6]: keep it in a state dict"
        )
    assert not list(tmp_path.iterdir())


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "state": (
        lambda zero: Path.unlink(zero / "up.weight" / "exp_avg_sq.pt"),
        "state 'exp_avg_sq' is missing (Optimizer, param group 0, parameter 0 of shape [4, 6])",
    ),
    "value": (
        lambda zero: Path.unlink(zero / "up.weight" / "fp32.pt"),
        "the value 'fp32' of parameter 'up.weight' is missing",
    ),
    "step": (
        lambda zero: Path.unlink(zero / "down.weight" / "step.pt"),
        "state 'step' is missing (Optimizer, param group 0, parameter 1 of shape [6, 4]): this "
        "rule depends on the number of steps",
    ),
    "parameter": (
        lambda zero: (zero / "up.weight").rename(zero / "module.up.weight"),
        "there are no states of parameter 'up.weight': did you mean 'module.up.weight'?",
    ),
    "shape": (
        lambda zero: torch.save({"param": torch.ones(3, 4)}, zero / "up.weight" / "exp_avg.pt"),
        "state 'exp_avg' of parameter 'up.weight' must have shape [4, 6], got [3, 4]",
    ),
    "no tensor": (
        lambda zero: torch.save(3, zero / "up.weight" / "exp_avg.pt"),
        "state 'exp_avg' of parameter 'up.weight' must have shape [4, 6], got int",
    ),
    "unknown": (
        lambda zero: torch.save(torch.ones(4, 6), zero / "up.weight" / "momentum_buffer.pt"),
        "unknown state 'momentum_buffer' (Optimizer, param group 0, parameter 0 of shape [4, 6]): "
        "known are exp_avg, exp_avg_sq, step",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_folder_are_named_and_change_nothing(fault: str, tmp_path: Path) -> None:
    params, optimizer = stepped(optimizers.adamw(0.1))
    write_universal(tmp_path, optimizer, params.items())
    damage, message = FAULTS[fault]
    damage(tmp_path / "zero")
    others = fresh()
    second = Optimizer(others.values(), optimizers.adamw(0.1))
    with pytest.raises(StateError) as caught:
        read_universal(tmp_path, second, others.items())
    assert str(caught.value) == message
    assert not any(param.any() for param in others.values())
    assert not any("exp_avg" in second.state[param] for param in others.values())


class Sub:
    """An object that a file of sub-parameters holds next to the tensor."""


def test_objects_in_files_are_not_made(tmp_path: Path) -> None:
    params, optimizer = stepped(optimizers.lion(0.1))
    write_universal(tmp_path, optimizer, params.items())
    file = tmp_path / "zero" / "up.weight" / "exp_avg.pt"
    torch.save({"param": torch.ones(4, 6), "sub_param_shape": Sub()}, file)
    with pytest.raises(StateError, match="holds other than tensors and numbers"):
        read_universal(tmp_path, optimizer, params.items())


def test_what_has_no_names_or_states_is_refused(tmp_path: Path) -> None:
    params, optimizer = stepped(optimizers.lion(0.1))
    with pytest.raises(StateError) as caught:
        megatron_states(optimizer, [("up.weight", params["up.weight"])])
    assert str(caught.value) == (
        "parameter 1 of param group 0 has no name: give all of model.named_parameters()"
    )
    others = fresh()
    second = torch.optim.AdamW(others.values())
    with pytest.raises(StateError) as caught:
        write_universal(tmp_path, second, others.items())
    assert str(caught.value) == "parameter 'up.weight' has no states: take a step before"
    with pytest.raises(StateError) as caught:
        read_universal(tmp_path / "absent", second, others.items())
    assert str(caught.value) == (
        f"there is no zero/NAME/fp32.pt in {str(tmp_path / 'absent')!r}: convert the checkpoint "
        "with ds_to_universal.py of DeepSpeed"
    )
