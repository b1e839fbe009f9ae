"""Sessions of 16-bit parameters with float32 masters: step, save, load, and states by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from closedform import optimizers, schedules, transforms
from closedform.errors import SessionError, StateError
from closedform.ir.types import DType
from closedform.language import Group, UpdateRule
from closedform.runtime import OptimizerSession
from closedform.runtime.state_layouts import from_layout, to_layout

Arrays = dict[str, NDArray[Any]]
SHAPES: dict[str, tuple[int, ...]] = {"w": (3, 4), "v": (3, 4), "b": (4,), "s": (), "e": (0, 2)}
LINE = schedules.linear(0.01, 0, 20)
RULES: dict[str, Callable[[], UpdateRule]] = {
    "adamw": lambda: optimizers.adamw(LINE, weight_decay=0.1),  # in buckets
    "adafactor": lambda: optimizers.adafactor(LINE, weight_decay=0.01),  # states by rank
    "prodigy": lambda: optimizers.prodigy(1),  # sums over the model, a state that begins as p
    "clipped": lambda: transforms.clip_by_global_norm(optimizers.lion(LINE), 0.5),
    "averaged": lambda: transforms.weight_average(optimizers.sgd(LINE, momentum=0.9), 0.9),
}
SUMMED = ("prodigy", "clipped")
STORED = ("bf16", "f16")


def drawn(seed: int, stored: str) -> Arrays:
    rng = np.random.default_rng(seed)
    kind = DType(stored).numpy
    return {name: np.asarray(rng.normal(size=shape)).astype(kind) for name, shape in SHAPES.items()}


def wide(arrays: Arrays) -> Arrays:
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def with_masters(name: str, stored: str) -> OptimizerSession:
    return OptimizerSession(transforms.master_weights(RULES[name](), stored), drawn(0, stored))


def assert_stepped_alike(
    session: OptimizerSession, plain: OptimizerSession, stored: str, name: str
) -> None:
    """The masters are the float32 run, bit for bit if it has no sums, the parameters those rounded.

    Sums over the model are in another order where parameters share a bucket.
    """
    rtol, atol = (1e-5, 1e-7) if name in SUMMED else (0, 0)
    for key, array in plain.params.items():
        master = session.states["master"][key]
        np.testing.assert_allclose(master, array, rtol=rtol, atol=atol)
        assert session.params[key].dtype == DType(stored).numpy
        np.testing.assert_array_equal(session.params[key], master.astype(DType(stored).numpy))
    for state, by_name in plain.states.items():
        for key, array in by_name.items():
            found = session.states[state][key]
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, array, rtol=rtol, atol=atol)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", RULES)
def test_masters_are_the_float32_run(name: str, stored: str) -> None:
    session = with_masters(name, stored)
    plain = OptimizerSession(RULES[name](), wide(drawn(0, stored)))
    for seed in range(1, 6):
        given = drawn(seed, stored)
        session.step(given)
        plain.step(wide(given))
    assert session.t == plain.t == 5
    assert_stepped_alike(session, plain, stored, name)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", RULES)
def test_a_saved_run_goes_on(name: str, stored: str) -> None:
    first, second = with_masters(name, stored), with_masters(name, stored)
    for seed in range(1, 4):
        first.step(drawn(seed, stored))
    second.load_state_dict(first.state_dict())
    for session in (first, second):
        session.step(drawn(9, stored))
    assert second.t == 4
    saved, loaded = first.state_dict(), second.state_dict()
    for key in SHAPES:
        assert saved["params"][key].tobytes() == loaded["params"][key].tobytes()
        assert saved["states"]["master"][key].tobytes() == loaded["states"]["master"][key].tobytes()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", RULES)
def test_a_float32_run_becomes_one_with_masters_by_name_and_back(name: str, stored: str) -> None:
    plain = OptimizerSession(RULES[name](), wide(drawn(0, stored)))
    for seed in range(1, 4):
        plain.step(wide(drawn(seed, stored)))
    done = plain.state_dict()
    kind = DType(stored).numpy
    params = {key: array.astype(kind) for key, array in done["params"].items()}
    session = with_masters(name, stored)
    states = {**done["states"], "master": done["params"]}
    session.load_state_dict({**done, "params": params, "states": states})
    assert_stepped_alike(session, plain, stored, name)
    given = drawn(9, stored)
    session.step(given)
    plain.step(wide(given))
    assert_stepped_alike(session, plain, stored, name)
    saved = session.state_dict()
    masters = saved["states"].pop("master")
    plain.load_state_dict({**saved, "params": masters})
    assert_stepped_alike(session, plain, stored, name)


@pytest.mark.parametrize("stored", STORED)
def test_torch_on_masters_goes_on_in_a_session_and_back(stored: str) -> None:
    kwargs: dict[str, Any] = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}
    masters = {k: torch.nn.Parameter(torch.tensor(a)) for k, a in wide(drawn(0, stored)).items()}
    theirs = torch.optim.AdamW(masters.values(), **kwargs)

    def step(seed: int) -> None:
        for key, gradient in wide(drawn(seed, stored)).items():
            masters[key].grad = torch.tensor(gradient)
        theirs.step()

    for seed in (1, 2, 3):
        step(seed)
    rule = transforms.master_weights(optimizers.adamw(**kwargs), stored)
    kind = DType(stored).numpy
    now = {key: master.detach().numpy().copy() for key, master in masters.items()}
    session = OptimizerSession(rule, {key: array.astype(kind) for key, array in now.items()})
    own = session.state_dict()
    own["states"]["master"] = now
    session.load_state_dict(from_layout(theirs.state_dict(), "torch", own))
    for seed in (4, 5):
        step(seed)
        session.step(drawn(seed, stored))
    assert session.t == 5
    for key, master in masters.items():
        # Five steps of about ten float32 roundings each, on parameters near 1 and steps of 0.01.
        found = session.states["master"][key]
        np.testing.assert_allclose(found, master.detach().numpy(), rtol=1e-5, atol=1e-7)

    layout = to_layout(session.state_dict(), "torch", theirs.state_dict(), convert=torch.as_tensor)
    theirs.load_state_dict(layout)
    assert {key for state in theirs.state.values() for key in state} == {
        "step",
        "exp_avg",
        "exp_avg_sq",
    }
    for place, key in enumerate(masters):
        moment = theirs.state_dict()["state"][place]["exp_avg"].numpy()
        np.testing.assert_array_equal(moment, session.states["exp_avg"][key])


def test_states_of_torch_in_bf16_are_widened() -> None:
    given = drawn(0, "bf16")
    params = {k: torch.nn.Parameter(torch.tensor(a).bfloat16()) for k, a in wide(given).items()}
    theirs = torch.optim.AdamW(params.values(), lr=0.01)
    for key, gradient in wide(drawn(1, "bf16")).items():
        params[key].grad = torch.tensor(gradient).bfloat16()
    theirs.step()
    session = OptimizerSession(transforms.master_weights(optimizers.adamw(0.01)), given)
    session.load_state_dict(from_layout(theirs.state_dict(), "torch", session.state_dict()))
    assert session.t == 1
    for place, key in enumerate(params):
        saved = theirs.state_dict()["state"][place]["exp_avg_sq"]
        assert saved.dtype == torch.bfloat16
        found = session.states["exp_avg_sq"][key]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, saved.float().numpy())
        np.testing.assert_array_equal(session.states["master"][key], given[key].astype(np.float32))


def test_groups_have_masters_of_their_own() -> None:
    rule = transforms.master_weights(optimizers.adamw(0.1))
    bias = transforms.master_weights(optimizers.sgd(0.5))
    given = drawn(0, "bf16")
    session = OptimizerSession(rule, given, groups=[Group(("b", "s"), bias)])
    session.step(drawn(1, "bf16"))
    moved = given["b"].astype(np.float32) - 0.5 * drawn(1, "bf16")["b"].astype(np.float32)
    np.testing.assert_array_equal(session.states["master"]["b"], moved)
    assert set(session.states["exp_avg"]) == {"w", "v", "e"}
    assert set(session.states["master"]) == set(SHAPES)


BAD: dict[str, tuple[UpdateRule, Any, str]] = {
    "no masters": (
        optimizers.sgd(0.1),
        np.float16,
        "parameter 'v' must be a NumPy array of float32 or float64, got dtype float16 (rule "
        "'sgd'): convert it with numpy.asarray(…, numpy.float32), or wrap the rule: "
        "transforms.master_weights(rule, 'f16')",
    ),
    "other masters": (
        transforms.master_weights(optimizers.lion(0.1), "f16"),
        DType.BF16.numpy,
        "parameter 'v' must be a NumPy array of float16, got dtype bfloat16 (rule 'lion'): convert "
        "it with .astype('float16')",
    ),
    "masters for float32": (
        transforms.master_weights(optimizers.adam(0.1)),
        np.float32,
        "parameter 'v' must be a NumPy array of bfloat16, got dtype float32 (rule 'adam'): convert "
        "it with .astype('bfloat16')",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_parameters_that_the_rule_is_not_for_are_refused(name: str) -> None:
    rule, dtype, message = BAD[name]
    with pytest.raises(SessionError) as caught:
        OptimizerSession(rule, {"v": np.ones(3).astype(dtype)})
    assert str(caught.value) == message


def test_a_state_dict_without_masters_or_of_another_dtype_is_refused() -> None:
    session = with_masters("adamw", "bf16")
    saved = session.state_dict()
    without = {key: value for key, value in saved["states"].items() if key != "master"}
    with pytest.raises(StateError) as caught:
        session.load_state_dict({**saved, "states": without})
    assert "'master'" in str(caught.value)
    with pytest.raises(StateError) as caught:
        session.load_state_dict({**saved, "params": saved["states"]["master"]})
    assert "bfloat16" in str(caught.value)
    assert "float32" in str(caught.value)
