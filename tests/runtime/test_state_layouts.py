"""State dicts of other frameworks: runs resumed in either one, powers as recorded."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from closedform import frameworks, optimizers
from closedform.errors import StateError
from closedform.runtime import OptimizerSession
from closedform.runtime.state_layouts import from_layout, to_layout
from tests.reference.records import optimizer_records

SHAPES: dict[str, tuple[int, ...]] = {"w": (3, 4), "b": (4,), "s": ()}
KWARGS: dict[str, Any] = {"lr": 0.01, "betas": (0.8, 0.95), "amsgrad": True}
KINDS = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}


def drawn(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.normal(size=s), np.float32) for n, s in SHAPES.items()}


def torch_run(kind: str) -> tuple[dict[str, Any], Any]:
    params = {name: torch.nn.Parameter(torch.tensor(a)) for name, a in drawn(0).items()}
    return params, KINDS[kind](params.values(), **KWARGS)


def torch_step(params: Mapping[str, Any], optimizer: Any, seed: int) -> None:
    for name, grad in drawn(seed).items():
        params[name].grad = torch.tensor(grad)
    optimizer.step()


def close(session: OptimizerSession, params: Mapping[str, Any]) -> None:
    for name, array in session.params.items():
        # Six steps of about ten float32 roundings each, on parameters near 1 and steps of 0.01.
        np.testing.assert_allclose(array, params[name].detach().numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_torch_resumes_in_a_session_and_back(kind: str) -> None:
    params, optimizer = torch_run(kind)
    for seed in (1, 2, 3):
        torch_step(params, optimizer, seed)
    rule = frameworks.optimizer("torch", kind, KWARGS)
    now = {name: param.detach().numpy().copy() for name, param in params.items()}
    session = OptimizerSession(rule, now)
    taken = from_layout(optimizer.state_dict(), "torch", session.state_dict())
    session.load_state_dict(taken)
    assert session.t == 3
    for seed in (4, 5):
        torch_step(params, optimizer, seed)
        session.step(drawn(seed))
    close(session, params)

    fresh, second = torch_run(kind)
    for name, array in session.params.items():
        fresh[name].data = torch.tensor(array)
    given = to_layout(session.state_dict(), "torch", second.state_dict(), convert=torch.as_tensor)
    second.load_state_dict(given)
    torch_step(fresh, second, 6)
    session.step(drawn(6))
    close(session, fresh)
    assert all(float(state["step"]) == 6 for state in second.state.values())


CEREBRAS = [
    record
    for record in optimizer_records()
    if record.row["class"] in ("Adam", "AdamW")
    and record.row["system"] == "cerebras"
    and "beta1_power" in record.row["states"]
    and "groups" not in record.row
    and record.row["dtype"] == "float32"
]


@pytest.mark.parametrize("record", CEREBRAS, ids=lambda record: str(record.id))
def test_powers_of_cerebras_agree_with_its_records(record: Any) -> None:
    kwargs = {"lr": 1e-3, **record.row["kwargs"]}
    rule = frameworks.optimizer("cerebras", record.row["class"], kwargs)
    names = [f"p{index}" for index in range(len(record.shapes))]
    start = dict(zip(names, [a.astype(np.float32) for a in record.initial()], strict=True))
    session = OptimizerSession(rule, start)
    betas = kwargs.get("betas", (0.9, 0.999))
    groups = [{"params": list(range(len(names))), "betas": betas}]
    step = record.row["state_steps"][-1]
    own = {
        place: {name: record.state(name, step)[place] for name in record.row["states"]}
        for place in range(len(names))
    }
    foreign = {"state": own, "param_groups": groups}
    is_decayed = betas[1] > 0
    taken = from_layout(
        foreign, "cerebras", session.state_dict(), step=None if is_decayed else step
    )
    assert taken["step"] == step
    back = to_layout(taken, "cerebras", foreign)
    for place, states in own.items():
        for name, value in states.items():
            # A running product of up to 100 float32 factors.
            np.testing.assert_allclose(back["state"][place][name], value, rtol=1e-5)


def test_the_layout_of_transformers_stores_integers() -> None:
    session = OptimizerSession(optimizers.adamw(), drawn(0))
    session.step(drawn(1))
    groups = {"state": {}, "param_groups": [{"params": [0, 1]}, {"params": [2]}]}
    made = to_layout(session.state_dict(), "huggingface", groups)
    assert [made["state"][place]["step"] for place in range(3)] == [1, 1, 1]
    assert isinstance(made["state"][0]["step"], int)
    assert made["state"][2]["exp_avg"].shape == ()
    again = from_layout(made, "huggingface", session.state_dict())
    assert again["step"] == 1
    np.testing.assert_array_equal(again["states"]["exp_avg"]["w"], session.states["exp_avg"]["w"])


def test_names_give_the_order_of_the_parameters() -> None:
    session = OptimizerSession(optimizers.adam(), drawn(0))
    session.step(drawn(1))
    template = {"param_groups": [{"params": [7, 8, 9]}]}
    made = to_layout(session.state_dict(), "torch", template, names=["s", "w", "b"])
    np.testing.assert_array_equal(made["state"][8]["exp_avg"], session.states["exp_avg"]["w"])
    again = from_layout(made, "torch", session.state_dict(), names=["s", "w", "b"])
    np.testing.assert_array_equal(again["states"]["exp_avg"]["b"], session.states["exp_avg"]["b"])


def moved(step: Any = 5.0, **more: Any) -> dict[str, Any]:
    states = {"exp_avg": np.zeros(2), "exp_avg_sq": np.zeros(2), "step": step, **more}
    return {"state": {0: states}, "param_groups": [{"params": [0], "betas": (0.5, 0.75)}]}


def template(rule: str = "adam") -> dict[str, Any]:
    arrays = {"w": np.zeros(2, np.float32)}
    states = {"exp_avg": arrays, "exp_avg_sq": arrays}
    return {"rule": rule, "step": 0, "params": arrays, "states": states}


def without(key: str) -> dict[str, Any]:
    made = moved()
    del made["state"][0][key]
    return made


BAD: list[tuple[Any, str]] = [
    (
        lambda: from_layout(moved(), "flax", template()),
        "unknown layout 'flax': known are cerebras",
    ),
    (
        lambda: from_layout(moved(), "torch", template("lion")),
        "only state dicts of adam and adamw can be converted, got rule 'lion': read its states",
    ),
    (
        lambda: from_layout({**moved(), "param_groups": [{"params": [3, 4]}]}, "torch", template()),
        "the param groups have 2 parameters, the session has 1: 'w' (torch state dict): give",
    ),
    (
        lambda: from_layout({**moved(), "state": {}}, "torch", template()),
        "parameter 0 ('w') has no state (torch state dict): an optimizer has no state before",
    ),
    (
        lambda: from_layout(without("exp_avg_sq"), "torch", template()),
        "parameter 0 ('w') has no state 'exp_avg_sq' (torch state dict): it has exp_avg, step",
    ),
    (
        lambda: from_layout(without("step"), "huggingface", template()),
        "the state has no 'step' (huggingface state dict, parameter 'w'): pass step=…",
    ),
    (
        lambda: from_layout(moved(2.5), "torch", template()),
        "'step' must be an integer >= 0, got 2.5 (torch state dict, parameter 'w')",
    ),
    (
        lambda: from_layout(moved(beta2_power=1e-44), "cerebras", template()),
        "beta2_power 1e-44 of beta 0.75 does not determine the step (cerebras state dict, "
        "parameter 'w'): pass step=…",
    ),
    (
        lambda: from_layout(moved(beta1_power=0.125, beta2_power=0.75**5), "cerebras", template()),
        "the powers of the betas disagree: step 2 (beta1_power) and step 4 (beta2_power) (cerebras "
        "state dict, parameter 'w'): pass step=…",
    ),
    (
        lambda: to_layout(template(), "cerebras", {"param_groups": [{"params": [0]}]}),
        "a param group has no betas (cerebras state dict)",
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_invalid_state_dict(make: Any, message: str) -> None:
    with pytest.raises(StateError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_parameters_at_different_steps_are_refused() -> None:
    arrays = {"w": np.zeros(2, np.float32), "v": np.zeros(2, np.float32)}
    states = {"exp_avg": arrays, "exp_avg_sq": arrays}
    two = {**template(), "params": arrays, "states": states}
    foreign = moved()
    foreign["state"][1] = {**foreign["state"][0], "step": 9}
    foreign["param_groups"] = [{"params": [0, 1]}]
    with pytest.raises(StateError) as caught:
        from_layout(foreign, "torch", two)
    assert str(caught.value) == (
        "the parameters are at different steps: 'w' at 5, 'v' at 9 (torch state dict): a session "
        "has one clock for all parameters"
    )
