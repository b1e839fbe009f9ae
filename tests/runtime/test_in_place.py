"""In-place sessions: tiles and tensors against the flat graph, bit for bit, and their memory."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_init, compile_parts, compile_step
from closedform.errors import SessionError
from closedform.exporters.onnx_model import to_model
from closedform.language import RANK, Group, UpdateRule
from closedform.language.model import GlobalSum
from closedform.options import ModelSpec
from closedform.runtime import OptimizerSession
from closedform.runtime.in_place import InPlace
from closedform.runtime.tiles import (
    SMALLEST_TILE,
    TILE_WITH_SUMS,
    ParamGroup,
    bucket_tiles,
    largest_tile_bytes,
    tile_size,
)
from closedform.runtime.workers import ItemSessions, WorkItem
from tests.support.rules import accepts
from tests.test_library import OPTIMIZERS

SHAPES: dict[str, tuple[int, ...]] = {
    "w": (5, 7),
    "layer.0.bias": (3,),
    "all": (2, 2),
    "s": (),
    "none": (0, 2),
    "kernel": (3, 2, 2, 1),
}


def drawn(seed: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.normal(size=s), np.float32) for n, s in shapes.items()}


def of_graph(rule: UpdateRule, params: dict[str, Any], groups: list[Group]) -> OptimizerSession:
    """A session for the flat graph of the whole model."""
    shapes = {name: array.shape for name, array in params.items()}
    init, step = (
        compile_init(ModelSpec(rule, shapes, groups)),
        compile_step(ModelSpec(rule, shapes, groups)),
    )
    return OptimizerSession.from_models(to_model(init), to_model(step), params, threads=1)


def tiles(group: ParamGroup, size: int) -> tuple[dict[str, Any], list[WorkItem]]:
    """The arrays and tiles of an elementwise rule without sums."""
    (((step,),),) = compile_parts("tiles", [(group.rule, [("n",)])])
    return bucket_tiles(group, ItemSessions.of((step,), None, 1), size)


def contents(session: OptimizerSession) -> dict[str, Any]:
    states = {f"{s} {n}": a for s, by in session.states.items() for n, a in by.items()}
    return {"t": np.array(session.t), **session.params, **states, **session.shared}


MODELS: dict[str, tuple[Callable[[], UpdateRule], list[Group]]] = {
    **{name: (make, []) for name, make in OPTIMIZERS.items()},
    "clipped in groups": (
        lambda: transforms.clip_by_global_norm(optimizers.adamw(weight_decay=0.1), 0.5),
        [Group("*bias", changes={"weight_decay": 0})],
    ),
    "skipped": (lambda: transforms.skip_nonfinite(optimizers.adafactor()), []),
    "groups": (
        lambda: optimizers.adamw(schedules.cosine(0.1, 0, 9), weight_decay=0.1),
        [
            Group("*bias", changes={"weight_decay": 0}),
            Group("*", optimizers.muon(0.02), shapes=sp.Eq(RANK, 2)),
        ],
    ),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", MODELS)
def test_work_items_agree_with_the_flat_graph_bit_for_bit(name: str) -> None:
    make, groups = MODELS[name]
    rule = make()
    shapes = {key: shape for key, shape in SHAPES.items() if accepts(rule, shape)}
    params = drawn(1, shapes)
    sessions = (
        OptimizerSession(rule, params, groups=groups, threads=1),
        of_graph(rule, params, groups),
    )
    inputs = {label: drawn(7, shapes) for label in rule.inputs}
    for step in range(3):
        grads = drawn(10 + step, shapes)
        for session in sessions:
            session.step(grads, inputs)
    found, expected = map(contents, sessions)
    assert found.keys() == expected.keys()
    has_sums = any(expr.has(GlobalSum) for expr in rule.all_expressions())
    for key, array in expected.items():
        assert found[key].dtype == array.dtype
        if has_sums:  # added in another order, by tiles and not by tensors
            np.testing.assert_allclose(found[key], array, rtol=1e-5, atol=1e-7, err_msg=key)
        else:
            np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.parametrize("size", [1, 4, 16, 1000])
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_tiles_of_any_size_on_any_number_of_workers_agree_bit_for_bit(
    size: int, workers: int
) -> None:
    rule = optimizers.adamw(0.1, weight_decay=0.1)
    params = drawn(2, SHAPES)
    group = ParamGroup(rule, params)
    arrays, items = tiles(group, size)
    engine = InPlace("adamw", [group], list(params), arrays, [(items, workers)])
    whole = of_graph(rule, params, [])
    for step in range(3):
        grads = drawn(20 + step, SHAPES)
        engine.step({f"grad.{name}": grad for name, grad in grads.items()}, {})
        whole.step(grads)
    assert engine.arrays["step"] == 3
    for name, array in whole.params.items():
        np.testing.assert_array_equal(engine.views.params[name], array)


RULES: dict[str, Callable[[], UpdateRule]] = {
    "buckets": lambda: optimizers.adamw(0.1),
    "tensors": lambda: optimizers.adafactor(0.1),
}


def whole_graph(rule: UpdateRule, params: dict[str, Any]) -> OptimizerSession:
    return of_graph(rule, params, [])


@pytest.mark.parametrize("make", [OptimizerSession, whole_graph])
@pytest.mark.parametrize("name", RULES)
def test_a_parameter_without_a_gradient_does_not_change(name: str, make: Any) -> None:
    params, grads = drawn(3, SHAPES), drawn(4, SHAPES)
    session = make(RULES[name](), params)
    session.step(grads)
    before = session.state_dict()
    session.step({**drawn(5, SHAPES), "w": None, "s": None})
    after = session.state_dict()
    assert after["step"] == 2
    for key in SHAPES:
        is_unchanged = key in ("w", "s", "none")
        assert np.array_equal(after["params"][key], before["params"][key]) == is_unchanged
        for state, by_name in after["states"].items():
            if key in by_name:
                same = np.array_equal(by_name[key], before["states"][state][key])
                assert same == is_unchanged
    session.step(grads)
    assert session.t == 3
    assert not np.array_equal(session.params["w"], after["params"]["w"])


@pytest.mark.parametrize("name", RULES)
def test_a_gradient_that_aliases_a_parameter_is_refused(name: str) -> None:
    session = OptimizerSession(RULES[name](), drawn(3, {"w": (4,), "v": (4,)}))
    with pytest.raises(SessionError) as caught:
        session.step({"w": drawn(1, {"w": (4,)})["w"], "v": session.params["w"]})
    assert str(caught.value) == (
        f"the gradient of 'v' overlaps memory that this step writes (rule {session.rule_name!r}): "
        "parameters and states are updated in place; copy the array"
    )
    assert session.t == 0


def test_state_dicts_are_shared_by_both_engines() -> None:
    rule, params = optimizers.adam(0.1), drawn(3, SHAPES)
    in_place, whole = OptimizerSession(rule, params), of_graph(rule, params, [])
    in_place.step(drawn(4, SHAPES))
    whole.load_state_dict(in_place.state_dict())
    for session in (in_place, whole):
        session.step(drawn(5, SHAPES))
    for key, array in contents(whole).items():
        np.testing.assert_array_equal(contents(in_place)[key], array)


def test_a_model_of_empty_tensors_has_a_clock() -> None:
    empty = {"w": np.zeros((0, 3), np.float32)}
    for rule in (optimizers.adamw(), optimizers.adafactor()):
        session = OptimizerSession(rule, empty)
        session.step(empty)
        assert session.t == 1


def test_an_open_hyperparameter_is_given_with_each_step() -> None:
    rule = optimizers.sgd(None)
    session = OptimizerSession(rule, {"w": np.zeros(3, np.float32)})
    session.step({"w": np.ones(3, np.float32)}, lr=0.5)
    assert session.params["w"].tolist() == [-0.5] * 3


class Failing:
    """A work item whose run fails."""

    def __init__(self, item: Any, error: BaseException | None = None) -> None:
        self._item = item
        self._error = error or RuntimeError("no memory for 12345 bytes")
        self.is_failing = True

    def __getattr__(self, name: str) -> Any:
        if name == "gather" and self.is_failing:
            raise self._error
        return getattr(self._item, name)


@pytest.mark.parametrize(("place", "workers"), [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (3, 2)])
def test_a_step_that_fails_halfway_is_reported(place: int, workers: int) -> None:
    params, grads = drawn(3, {"w": (8,)}), drawn(4, {"w": (8,)})
    group = ParamGroup(optimizers.adam(), params)
    arrays, items = tiles(group, 2)
    failing: Any = Failing(items[place])
    items[place] = failing
    engine = InPlace("adam", [group], ["w"], arrays, [(items, workers)])
    start = engine.views.params["w"].copy()
    tensors = {"grad.w": grads["w"]}
    with pytest.raises(SessionError, match="failed in step 0: no memory for 12345 bytes"):
        engine.step(tensors, {})
    assert np.array_equal(engine.views.params["w"], start) == (place < workers)
    failing.is_failing = False
    if place >= workers:
        with pytest.raises(SessionError) as caught:
            engine.step(tensors, {})
        assert str(caught.value) == (
            "the last step failed halfway (rule 'adam'): load a state dict, such as that of the "
            "last checkpoint"
        )
        engine.write({"param.w": start})
    engine.step(tensors, {})
    assert engine.arrays["step"] == 1


def test_an_interrupt_halfway_breaks_the_session() -> None:
    params = drawn(3, {"w": (4,)})
    group = ParamGroup(optimizers.adam(), params)
    arrays, items = tiles(group, 2)
    failing: Any = Failing(items[1], KeyboardInterrupt())
    engine = InPlace("adam", [group], ["w"], arrays, [([items[0], failing], 1)])
    tensors = {"grad.w": params["w"]}
    with pytest.raises(KeyboardInterrupt):
        engine.step(tensors, {})
    with pytest.raises(SessionError, match="the last step failed halfway"):
        engine.step(tensors, {})


def test_a_work_item_without_a_step_is_refused() -> None:
    with pytest.raises(SessionError, match="a work item has no step model: this is a bug"):
        ItemSessions.of((None,), None, 1)


@pytest.mark.parametrize("threads", [0, True, 1.5])
def test_threads_must_be_positive_integers(threads: Any) -> None:
    with pytest.raises(SessionError, match=f"threads must be at least 1, got {threads}"):
        OptimizerSession(optimizers.sgd(), drawn(3, {"w": (4,)}), threads=threads)


def test_sums_are_the_same_in_any_number_of_threads() -> None:
    rule = transforms.clip_by_global_norm(optimizers.sgd(1.0), 1.0)
    shapes = {"a": (3, TILE_WITH_SUMS), "b": (100,), "c": (TILE_WITH_SUMS + 1,)}
    params, grads = drawn(3, shapes), drawn(4, shapes)
    sessions = [OptimizerSession(rule, params, threads=threads) for threads in (1, 2, 5)]
    for session in sessions:
        session.step(grads)
    for name in shapes:
        for session in sessions[1:]:
            np.testing.assert_array_equal(session.params[name], sessions[0].params[name])


@given(count=st.integers(0, 2**40), workers=st.integers(1, 200), itemsize=st.sampled_from([4, 8]))
def test_tiles_fit_the_cache_and_balance_the_workers(
    count: int, workers: int, itemsize: int
) -> None:
    size = tile_size(count, workers, itemsize)
    assert 1 <= size <= largest_tile_bytes() // itemsize
    in_all = -(-count // size)
    if size > SMALLEST_TILE:
        rounds = -(-in_all // workers)
        assert rounds == -(-count // (workers * (largest_tile_bytes() // itemsize)))  # the minimum
        assert workers * rounds * (size - 1) < count  # and tiles of equal size


def test_a_global_norm_covers_all_groups_and_tiles() -> None:
    rule = transforms.clip_by_global_norm(optimizers.sgd(1.0), 1.0)
    shapes = {"a": (3,), "b": (2, 2), "c": ()}
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    grads = {name: np.full(shape, 3, np.float32) for name, shape in shapes.items()}
    session = OptimizerSession(rule, zeros, groups=[Group("b", factors={"lr": 0.5})])
    session.step(grads)
    norm = 3 * np.sqrt(8)
    for name, factor in (("a", 1), ("b", 0.5), ("c", 1)):
        # The norm is divided by with 1e-6 more than itself, as torch does.
        np.testing.assert_allclose(session.params[name], -factor * 3 / (norm + 1e-6), rtol=1e-6)
    session.step({"a": grads["a"], "b": None, "c": None})
    moved = -3 / (norm + 1e-6) - 3 / (3 * np.sqrt(3) + 1e-6)
    np.testing.assert_allclose(session.params["a"], moved, rtol=1e-6)


def test_a_skipped_step_changes_nothing() -> None:
    rule = transforms.skip_nonfinite(optimizers.adamw())
    session = OptimizerSession(rule, drawn(3, SHAPES))
    session.step(drawn(4, SHAPES))
    before = contents(session)
    expected = {key: array.copy() for key, array in before.items()}
    bad = drawn(5, SHAPES)
    bad["layer.0.bias"][1] = np.nan
    session.step(bad)
    after = contents(session)
    for key, array in expected.items():
        if not key.startswith(("skipped", "num_")):
            np.testing.assert_array_equal(after[key], array, err_msg=key)


@pytest.mark.parametrize("name", RULES)
def test_a_session_stores_everything_once(name: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        f"layer.{i}": ((160, 160), (160,))[i % 2] for i in range(200)
    }
    params, grads = drawn(1, shapes), drawn(2, shapes)
    taken = sum(array.nbytes for array in params.values())
    OptimizerSession(RULES[name](), {"w": params["layer.0"]})  # loads libraries
    tracemalloc.start()
    session = OptimizerSession(RULES[name](), params)
    session.step(grads)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    states = sum(a.nbytes for by in session.states.values() for a in by.values())
    # In addition: three tiles of results and one of gradients, of 1 MiB each, the graphs, and a
    # view for each of 600 arrays.
    assert peak <= taken + states + 8 * 2**20
