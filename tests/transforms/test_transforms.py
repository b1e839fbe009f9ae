"""Each transform beside another implementation, in every engine, and what it refuses."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from numpy.typing import NDArray
from torch.optim import swa_utils

from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_evaluation, compile_init, compile_step
from closedform.errors import DefinitionError
from closedform.frameworks import cerebras
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, RANK, UpdateRule, hyper
from closedform.options import GraphOptions, ModelSpec
from tests.optimizers.test_others import SHAPES, TRAJECTORIES, joined, split
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.trajectories import trajectory

Array = NDArray[np.float64]
GRADIENTS = [split(gradient) for gradient in TRAJECTORIES["gradients"]]
START = split(TRAJECTORIES["start"])

# Ten float64 steps of about 20 roundings of 1.1e-16, on parameters near 1.
TOLERANCE = 1e-12

Carried = dict[str, Any]


def run(rule: UpdateRule, gradients: Any = None) -> list[Carried]:
    return list(trajectory(rule, START, GRADIENTS if gradients is None else gradients))


def params(carried: Carried) -> Array:
    return joined(carried, "param.")


def evaluated(rule: UpdateRule, carried: Carried) -> Array:
    graph = compile_evaluation(ModelSpec(rule, SHAPES), GraphOptions(dtype=DType.F64))
    names = [node.attribute("name") for node in graph.inputs]
    return joined(evaluate(graph, {name: carried[name] for name in names}), "evaluation.")


# --- trajectories of packages --------------------------------------------------------------------

TRAJECTORY_OF: dict[str, Callable[[], UpdateRule]] = {
    "clipped_by_norm": lambda: transforms.clip_by_global_norm(optimizers.sgd(0.1), 1.5, eps=0),
    "agc": lambda: transforms.clip_by_unit_norm(optimizers.sgd(0.1), 0.1, units="last"),
    "accumulated": lambda: transforms.accumulate(optimizers.adam(0.1), 3),
    "lookahead": lambda: transforms.lookahead(optimizers.sgd(0.1, momentum=0.9), 3, 0.5),
    "adamw_cautious": lambda: transforms.cautious(optimizers.adamw(0.01, weight_decay=0.1)),
    "lion_cautious": lambda: transforms.cautious(optimizers.lion(0.01, weight_decay=0.1)),
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", TRAJECTORY_OF)
def test_trajectory_is_that_of_the_package(name: str) -> None:
    for carried, wanted in zip(run(TRAJECTORY_OF[name]()), TRAJECTORIES[name], strict=True):
        np.testing.assert_allclose(params(carried), wanted, rtol=TOLERANCE)


def test_slow_parameters_are_those_of_optax() -> None:
    rule = TRAJECTORY_OF["lookahead"]()
    for carried, wanted in zip(run(rule), TRAJECTORIES["lookahead/slow"], strict=True):
        np.testing.assert_allclose(evaluated(rule, carried), wanted, rtol=TOLERANCE)


# --- beside torch, live ------------------------------------------------------------------------


def torch_steps(
    make: Callable[[list[torch.nn.Parameter]], Any],
    prepare: Callable[[list[torch.nn.Parameter]], Any],
) -> Iterator[tuple[list[torch.nn.Parameter], Array]]:
    tensors = [torch.nn.Parameter(torch.tensor(array)) for array in START.values()]
    optimizer = make(tensors)
    for gradient in GRADIENTS:
        for tensor, array in zip(tensors, gradient.values(), strict=True):
            tensor.grad = torch.tensor(array)
        prepare(tensors)
        optimizer.step()
        yield tensors, np.concatenate([t.detach().numpy().ravel() for t in tensors])


def test_clips_are_those_of_torch() -> None:
    def sgd(tensors: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(tensors, 0.1, momentum=0.9)

    inner = optimizers.sgd(0.1, momentum=0.9)
    by_norm = transforms.clip_by_global_norm(inner, 1.5)
    by_value = transforms.clip_by_value(inner, 0.7)
    pairs: list[tuple[UpdateRule, Callable[[Any], Any]]] = [
        (by_norm, lambda tensors: torch.nn.utils.clip_grad_norm_(tensors, 1.5)),
        (by_value, lambda tensors: torch.nn.utils.clip_grad_value_(tensors, 0.7)),
    ]
    for rule, prepare in pairs:
        for carried, (_, wanted) in zip(run(rule), torch_steps(sgd, prepare), strict=True):
            np.testing.assert_allclose(params(carried), wanted, rtol=TOLERANCE)


AVERAGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "swa": ({}, {}),
    "ema": ({"decay": 0.8}, {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.8)}),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize(("start", "every"), [(0, 1), (3, 2)])
def test_averages_are_those_of_torch(name: str, start: int, every: int) -> None:
    ours, theirs = AVERAGES[name]
    rule = transforms.weight_average(optimizers.sgd(0.1), **ours, start=start, every=every)
    averaged: Any = None
    steps = torch_steps(lambda tensors: torch.optim.SGD(tensors, 0.1), lambda _: None)
    for step, (carried, (tensors, now)) in enumerate(zip(run(rule), steps, strict=True)):
        if averaged is None:
            averaged = swa_utils.AveragedModel(torch.nn.ParameterList(tensors), **theirs)
        if step >= start and (step - start) % every == 0:
            averaged.update_parameters(torch.nn.ParameterList(tensors))
        wanted = np.concatenate([t.detach().numpy().ravel() for t in averaged.parameters()])
        wanted = now if step < start else wanted
        np.testing.assert_allclose(evaluated(rule, carried), wanted, rtol=TOLERANCE)


def test_average_from_the_first_parameters_on() -> None:
    rule = transforms.weight_average(optimizers.sgd(0.1), 0.8, first="blend")
    average, p = TRAJECTORIES["start"], TRAJECTORIES["start"]
    for carried, gradient in zip(run(rule), TRAJECTORIES["gradients"], strict=True):
        p = p - 0.1 * gradient
        average = 0.8 * average + 0.2 * p
        np.testing.assert_allclose(evaluated(rule, carried), average, rtol=TOLERANCE)


def test_loss_scale_is_that_of_torch() -> None:
    rule = transforms.dynamic_loss_scaling(optimizers.adam(0.1), 64, interval=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=64, growth_interval=2)
    tensors = [torch.nn.Parameter(torch.tensor(array)) for array in START.values()]
    adam = torch.optim.Adam(tensors, 0.1)
    scale, gradients, wanted, scales = 64.0, [], [], []
    for step, gradient in enumerate(GRADIENTS):
        given = {name: array * scale for name, array in gradient.items()}
        if step in (2, 6):
            given["p1"] = given["p1"] * [1, np.nan if step == 2 else np.inf, 1, 1]
        for tensor, array in zip(tensors, given.values(), strict=True):
            tensor.grad = torch.tensor(array)
        scaler.scale(torch.zeros(1))  # makes the scale a tensor
        scaler.step(adam)
        scaler.update()
        scale = scaler.get_scale()
        gradients.append(given)
        scales.append(scale)
        wanted.append(np.concatenate([t.detach().numpy().ravel() for t in tensors]))
    steps = run(rule, gradients)
    assert [float(carried["shared.loss_scale"]) for carried in steps] == scales
    assert [int(carried["step"]) for carried in steps] == [1, 2, 2, 3, 4, 5, 5, 6, 7, 8]
    assert int(steps[-1]["shared.skipped_steps"]) == 2
    for carried, values in zip(steps, wanted, strict=True):
        np.testing.assert_allclose(params(carried), values, rtol=TOLERANCE)


def test_decay_by_shape_is_that_of_groups_in_torch() -> None:
    rule = transforms.mask_weight_decay(optimizers.adamw(0.1, weight_decay=0.5))

    def groups(tensors: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        decaying: list[dict[str, Any]] = [{"params": [x for x in tensors if x.ndim >= 2]}]
        others = [{"params": [x for x in tensors if x.ndim < 2], "weight_decay": 0}]
        return torch.optim.AdamW(decaying + others, 0.1, weight_decay=0.5)

    for carried, (_, wanted) in zip(run(rule), torch_steps(groups, lambda _: None), strict=True):
        np.testing.assert_allclose(params(carried), wanted, rtol=TOLERANCE)


# --- steps that count for nothing ----------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_step_leaves_no_trace(bad: float) -> None:
    lr = schedules.linear(1, 0, 20)
    inner = transforms.weight_average(optimizers.nadam(lr), 0.9)
    rule = transforms.skip_nonfinite(transforms.clip_by_global_norm(inner, 1))
    spoilt = [dict(gradient) for gradient in GRADIENTS]
    spoilt[3] = {**spoilt[3], "p2": np.array(bad)}
    spoilt.insert(0, {**spoilt[0], "p0": np.full((2, 3), bad)})
    good = [gradient for step, gradient in enumerate(spoilt) if step not in (0, 4)]
    with_bad, without = run(rule, spoilt), run(rule, good)
    assert int(with_bad[-1]["shared.skipped_steps"]) == 2
    for name, value in without[-1].items():
        if name != "shared.skipped_steps":
            np.testing.assert_array_equal(with_bad[-1][name], value)


def test_the_norm_leaves_out_what_overflows() -> None:
    huge = {"w": np.array([1e20, 1.0])}
    for test, moved in (("elements", True), ("norm", False)):
        rule = transforms.skip_nonfinite(optimizers.sgd(1e-20), test=test)
        (carried,) = trajectory(rule, {"w": np.zeros(2)}, [huge], DType.F32)
        assert (carried["param.w"][0] != 0) == moved
        assert int(carried["step"]) == int(moved)


def test_steps_are_counted_once_in_accumulation() -> None:
    lr = schedules.linear(1, 0, 10)
    rule = transforms.accumulate(optimizers.sgd(lr), 2)
    steps = run(rule)
    assert [int(carried["step"]) for carried in steps] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert [int(carried["shared.micro_step"]) for carried in steps] == [1, 0] * 5
    p = TRAJECTORIES["start"]
    for step in range(5):
        p = p - (1 - step / 10) * TRAJECTORIES["gradients"][2 * step : 2 * step + 2].mean(axis=0)
    np.testing.assert_allclose(params(steps[-1]), p, rtol=TOLERANCE)


def test_a_flush_applies_the_mean_of_the_gradients_so_far() -> None:
    rule = transforms.accumulate(optimizers.sgd(0.5), 3, flush=True)
    graph = compile_step(ModelSpec(rule, {"w": (2,)}), GraphOptions(dtype=DType.F64))
    feed: dict[str, Any] = {
        "step": np.array(0),
        "param.w": np.array([1.0, 2.0]),
        "state.w.accumulated": np.zeros(2),
        "shared.micro_step": np.array(0),
    }
    gradients = np.arange(12.0).reshape(6, 2)
    flushed = [0, 1, 0, 0, 0, 1]  # after two gradients; by the count after three more; after one
    for gradient, flush in zip(gradients, flushed, strict=True):
        after = evaluate(graph, {**feed, "grad.w": gradient, "flush": np.array(float(flush))})
        feed = {name: after[f"next.{name}"] for name in feed}
    means = gradients[:2].mean(0), gradients[2:5].mean(0), gradients[5]
    np.testing.assert_allclose(feed["param.w"], [1.0, 2.0] - 0.5 * sum(means), rtol=TOLERANCE)
    assert int(feed["step"]) == 3
    assert int(feed["shared.micro_step"]) == 0
    with pytest.raises(DefinitionError, match="hyperparameter 'flush' already"):
        transforms.accumulate(rule, 2, flush=True)


def test_pruned_elements_stay_pruned() -> None:
    rule = transforms.sparsify(optimizers.adamw(0.1))
    assert transforms.states_to_sparsify(optimizers.adamw()) == ("exp_avg", "exp_avg_sq")
    graph = compile_step(ModelSpec(rule, {"w": (3,)}), GraphOptions(dtype=DType.F64))
    feed: dict[str, Any] = {
        "step": np.array(4),
        "param.w": np.array([1.0, 2.0, 3.0]),
        "grad.w": np.array([1.0, np.nan, 1.0]),
        "state.w.exp_avg": np.ones(3),
        "state.w.exp_avg_sq": np.ones(3),
        "state.w.mask": np.array([1.0, 0.0, 1.0]),
    }
    after = evaluate(graph, feed)
    for name in ("param.w", "state.w.exp_avg", "state.w.exp_avg_sq"):
        values = after[f"next.{name}"]
        assert values[1] == 0
        assert (values[[0, 2]] != 0).all()
    np.testing.assert_array_equal(after["next.state.w.mask"], feed["state.w.mask"])


def test_fixed_scale_is_divided_out() -> None:
    rule = transforms.loss_scaling(optimizers.sgd(0.1), 16)
    scaled = [{name: 16 * array for name, array in gradient.items()} for gradient in GRADIENTS]
    for ours, plain in zip(run(rule, scaled), run(optimizers.sgd(0.1)), strict=True):
        np.testing.assert_array_equal(params(ours), params(plain))


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_masters_keep_what_the_parameters_round_off(stored: str) -> None:
    rule = transforms.master_weights(optimizers.sgd(1e-4, momentum=0.5), stored)
    kind = DType(stored).numpy
    graph = compile_step(ModelSpec(rule, {"w": (3,)}))
    start = compile_init(ModelSpec(rule, {"w": (3,)}))
    given = np.array([1.0, -2.0, 0.5]).astype(kind)
    feed: dict[str, Any] = {"param.w": given} | evaluate(start, {"param.w": given})
    gradient = np.array([0.5, 0.25, -1.0]).astype(kind)
    plain = optimizers.sgd(1e-4, momentum=0.5)
    masters = {"w": given.astype(np.float32)}
    wide = [{"w": gradient.astype(np.float32)}] * 40
    for carried in trajectory(plain, masters, wide, DType.F32):
        outputs = evaluate(graph, {**feed, "grad.w": gradient})
        feed = {name.removeprefix("next."): value for name, value in outputs.items()}
        assert feed["param.w"].dtype == kind
        assert feed["state.w.master"].dtype == np.float32
        np.testing.assert_array_equal(feed["state.w.master"], carried["param.w"])
        np.testing.assert_array_equal(feed["param.w"], carried["param.w"].astype(kind))
    # A step of 1e-4 is below half a unit of 1 and of 0.5 in bf16, and forty of them are not.
    assert (feed["param.w"] != given)[[0, 2]].all()


def test_averages_of_masters_are_stored_as_parameters_are() -> None:
    rule = transforms.master_weights(transforms.weight_average(optimizers.sgd(0.1), 0.5), "f16")
    graph = compile_evaluation(ModelSpec(rule, {"w": (2,)}))
    average = np.array([1.0001, -3], np.float32)
    point = evaluate(graph, {"step": np.array(1), "state.w.average": average})["evaluation.w"]
    np.testing.assert_array_equal(point, average.astype(np.float16))


def test_a_norm_of_zero_stops_the_model() -> None:
    rule = transforms.clip_by_global_norm(optimizers.sgd(0.1), 0)
    np.testing.assert_array_equal(params(run(rule)[-1]), TRAJECTORIES["start"])


# --- every transform in every engine -----------------------------------------------------------

ADAM = optimizers.adam(schedules.linear(0.1, 0, 40), weight_decay=0.01)
RULES: dict[str, Callable[[], UpdateRule]] = {
    "accumulate": lambda: transforms.accumulate(ADAM, 4),
    "cautious": lambda: transforms.cautious(ADAM),
    "cerebras_loss_scaling": lambda: cerebras.dynamic_loss_scaling(ADAM),
    "clip_by_global_norm": lambda: transforms.clip_by_global_norm(ADAM, 1),
    "hyperball": lambda: transforms.hyperball(ADAM),
    "clip_by_unit_norm": lambda: transforms.clip_by_unit_norm(ADAM),
    "clip_by_value": lambda: transforms.clip_by_value(ADAM, 0.5),
    "dynamic_loss_scaling": lambda: transforms.dynamic_loss_scaling(ADAM, 8),
    "eight_bit_states": lambda: transforms.eight_bit_states(ADAM, block=2, least_size=1),
    "four_bit_states": lambda: transforms.four_bit_states(ADAM, block=2, least_size=1),
    "grokfast": lambda: transforms.grokfast(ADAM),
    "kahan": lambda: transforms.kahan(ADAM, "f16"),
    "lookahead": lambda: transforms.lookahead(ADAM),
    "loss_scaling": lambda: transforms.loss_scaling(ADAM, 8),
    "mask_weight_decay": lambda: transforms.mask_weight_decay(ADAM),
    "master_weights": lambda: transforms.master_weights(ADAM, "f16"),
    "sam": lambda: transforms.sam(ADAM),
    "sixteen_bit_states": lambda: transforms.sixteen_bit_states(ADAM, "f16", rounding="stochastic"),
    "skip_nonfinite": lambda: transforms.skip_nonfinite(ADAM),
    "sparsify": lambda: transforms.sparsify(ADAM),
    "stochastic_rounding": lambda: transforms.stochastic_rounding(ADAM, stored="f16"),
    "weight_average": lambda: transforms.weight_average(ADAM, 0.99, start=3, every=2),
}
NO_TRANSFORMS = {"states_to_sparsify", "Partition", "partition"}
"""No rules, and the rule for shapes that tests/language/test_partitions.py tests."""
SPECIAL = [0.0, 1.0, -2.5, 1e20, -1e-20, np.inf, -np.inf, np.nan, 3e38, 1e-40]


OF_FRAMEWORKS = {"cerebras_loss_scaling"}
"""Transforms of one framework, tested here with the others."""


def test_every_transform_is_here() -> None:
    assert set(RULES) | NO_TRANSFORMS == {*transforms.__all__, *OF_FRAMEWORKS}


def inputs_of(graph: Any, fill: Callable[[str, tuple[int, ...]], Any]) -> dict[str, Any]:
    feed: dict[str, Any] = {}
    for node in graph.inputs:
        name = node.attribute("name")
        shape = tuple(int(dim) for dim in node.type.shape)
        with np.errstate(over="ignore"):
            feed[name] = np.asarray(fill(name, shape)).astype(node.type.dtype.numpy)
    return feed


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("kind", ["normal", "special"])
@pytest.mark.parametrize("name", RULES)
def test_transform_in_every_engine(name: str, kind: str) -> None:
    shapes = {"w": (5, 2), "b": (), "empty": (0, 3)}
    graph = compile_step(ModelSpec(RULES[name](), shapes))
    rng = np.random.default_rng(1)

    def fill(key: str, shape: tuple[int, ...]) -> Any:
        if key == "step" or key.startswith("shared."):
            return 8 if key == "shared.loss_scale" else 3
        if kind == "special" and key == "grad.w":
            return np.array(SPECIAL).reshape(shape)
        return np.abs(rng.normal(size=shape)) + 0.1

    feed = inputs_of(graph, fill)
    expected = run_evaluator(graph, feed)
    for results in (run_onnxruntime(graph, feed), run_torch(graph, feed)):
        for key, value in expected.items():
            # Sums of ten elements, square roots and quotients: a few roundings of 6e-8 of values
            # within 100 of each other; smaller ones are denormal or of that sum.
            rtol = 2e-3 if value.dtype == np.float16 else 5e-6  # two units in its last place
            np.testing.assert_allclose(results[key], value, rtol=rtol, atol=1e-7, err_msg=key)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", RULES)
def test_start_of_a_transform_in_every_engine(name: str) -> None:
    shapes = {"w": (3, 2), "b": ()}
    graph = compile_init(ModelSpec(RULES[name](), shapes))
    feed = inputs_of(graph, lambda _, shape: np.full(shape, 2.0))
    expected = run_evaluator(graph, feed)
    for results in (run_onnxruntime(graph, feed), run_torch(graph, feed)):
        for key, value in expected.items():
            np.testing.assert_array_equal(results[key], value)


def test_transforms_compose() -> None:
    inner = transforms.weight_average(optimizers.adamw(0.1), 0.9)
    # The outer clip comes first: it sees the mean gradient, and the inner one what it makes of it.
    clipping = transforms.clip_by_value(transforms.clip_by_global_norm(inner, 1), 2)
    rule = transforms.dynamic_loss_scaling(transforms.accumulate(clipping, 2), 1)
    plain = transforms.weight_average(optimizers.adamw(0.1), 0.9)
    means = [
        {n: (a[n] + b[n]) / 2 for n in a}
        for a, b in zip(GRADIENTS[::2], GRADIENTS[1::2], strict=True)
    ]
    clipped = []
    for gradient in means:
        total = np.sqrt(sum((np.clip(g, -2, 2) ** 2).sum() for g in gradient.values()))
        factor = min(1, 1 / (total + 1e-6))
        clipped.append({name: np.clip(g, -2, 2) * factor for name, g in gradient.items()})
    final, wanted = run(rule)[-1], run(plain, clipped)[-1]
    for name, value in wanted.items():
        np.testing.assert_allclose(final[name], value, rtol=TOLERANCE)


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "no rule": (
        lambda: transforms.clip_by_value("adam", 1),  # type: ignore[arg-type]
        "a transform takes an UpdateRule, got str 'adam' (clip_by_value)",
    ),
    "negative value": (
        lambda: transforms.clip_by_value(ADAM, -2),
        "value must be >= 0, got -2 (clip_by_value)",
    ),
    "norm in text": (
        lambda: transforms.clip_by_global_norm(ADAM, "1"),
        "max_norm of clip_by_global_norm must be a number, got str '1': give an int, a float, a "
        "Fraction or a SymPy number",
    ),
    "units": (
        lambda: transforms.clip_by_unit_norm(ADAM, units="rows"),
        "units must be one of first, last, got 'rows' (clip_by_unit_norm): known are first, last",
    ),
    "test": (
        lambda: transforms.skip_nonfinite(ADAM, test="nan"),
        "test must be one of elements, norm, got 'nan' (skip_nonfinite): known are elements, norm",
    ),
    "twice": (
        lambda: transforms.skip_nonfinite(transforms.skip_nonfinite(ADAM)),
        "rule 'adam' has a state 'skipped_steps' already (skip_nonfinite): a transform is applied "
        "once",
    ),
    "no scale": (
        lambda: transforms.loss_scaling(ADAM, 0),
        "scale must be above 0, got 0 (loss_scaling)",
    ),
    "backoff": (
        lambda: transforms.dynamic_loss_scaling(ADAM, backoff=1.5),
        "backoff must be in [0, 1], got 1.5 (dynamic_loss_scaling)",
    ),
    "interval": (
        lambda: transforms.dynamic_loss_scaling(ADAM, interval=0),
        "interval must be an integer >= 1, got 0 (dynamic_loss_scaling)",
    ),
    "no gradients": (
        lambda: transforms.accumulate(ADAM, 0),
        "steps must be an integer >= 1, got 0 (accumulate)",
    ),
    "first average": (
        lambda: transforms.weight_average(ADAM, 0.5, first="zero"),
        "first must be one of copy, blend, got 'zero' (weight_average): known are blend, copy",
    ),
    "start": (
        lambda: transforms.weight_average(ADAM, start=-1),
        "start must be an integer >= 0, got -1 (weight_average)",
    ),
    "two points": (
        lambda: transforms.lookahead(optimizers.schedule_free_sgd()),
        "rule 'schedule_free_sgd' is evaluated at a separate point already (lookahead): average "
        "the parameters of a rule without one",
    ),
    "no step": (
        lambda: transforms.cautious(transforms.skip_nonfinite(ADAM)),
        "the next parameter of rule 'adam' is not the parameter less a step (cautious): apply "
        "cautious before other transforms",
    ),
    "least": (
        lambda: transforms.cautious(ADAM, 0),
        "least must be above 0, got 0 (cautious)",
    ),
    "no decay": (
        lambda: transforms.mask_weight_decay(optimizers.sgd(0.1)),
        "rule 'sgd' has no weight decay (mask_weight_decay): give it a weight_decay above 0",
    ),
    "other dtype": (
        lambda: transforms.master_weights(ADAM, "f32"),
        "stored must be one of bf16, f16, got 'f32' (master_weights): known are bf16, f16",
    ),
    "stored twice": (
        lambda: transforms.kahan(transforms.master_weights(ADAM)),
        "rule 'adam' stores its parameters in bf16 already (kahan): use one of master_weights, "
        "kahan and stochastic_rounding",
    ),
    "no such state": (
        lambda: transforms.sparsify(ADAM, ["exp_average"]),
        "rule 'adam' has no state 'exp_average' (sparsify): did you mean 'exp_avg'?",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message


def test_a_condition_of_your_own() -> None:
    rule = transforms.mask_weight_decay(ADAM, sp.Eq(RANK, 1))
    assert hyper("weight_decay") not in rule.for_shape((2, 2)).param.free_symbols
    assert "weight_decay" in rule.for_shape((2,)).hyperparameters
    assert transforms.accumulate(ADAM, 1) is ADAM
    ascending = UpdateRule("up", PARAM + GRAD)
    cautious = transforms.cautious(ascending, maximize=True)
    (carried,) = trajectory(cautious, {"w": np.zeros(2)}, [{"w": np.array([1.0, -2.0])}])
    np.testing.assert_array_equal(carried["param.w"], [1.0, -2.0])


VARIED: dict[str, Callable[[UpdateRule, Any], UpdateRule]] = {
    "clip_by_global_norm.max_norm": lambda rule, value: transforms.clip_by_global_norm(rule, value),
    "clip_by_global_norm.eps": lambda rule, value: transforms.clip_by_global_norm(
        rule, 1, eps=value
    ),
    "clip_by_unit_norm.clipping": lambda rule, value: transforms.clip_by_unit_norm(rule, value),
    "clip_by_unit_norm.eps": lambda rule, value: transforms.clip_by_unit_norm(rule, eps=value),
    "clip_by_value": lambda rule, value: transforms.clip_by_value(rule, value),
    "cautious.least": lambda rule, value: transforms.cautious(rule, value),
    "loss_scaling": lambda rule, value: transforms.loss_scaling(rule, value),
    "dynamic_loss_scaling": lambda rule, value: transforms.dynamic_loss_scaling(
        rule, growth=1 + value, backoff=value
    ),
    "sam.rho": lambda rule, value: transforms.sam(rule, value),
    "sam.eps": lambda rule, value: transforms.sam(rule, eps=value),
    "weight_average": lambda rule, value: transforms.weight_average(rule, value),
}


@pytest.mark.parametrize("name", VARIED)
def test_a_number_may_be_a_schedule(name: str) -> None:
    rule = optimizers.sgd(0.1)
    fixed = run(VARIED[name](rule, 0.5), GRADIENTS[:4])
    constant = run(VARIED[name](rule, schedules.constant(0.5)), GRADIENTS[:4])
    changing = schedules.piecewise_constant([0.5, 0.25], [1])
    varied = run(VARIED[name](rule, changing), GRADIENTS[:4])
    assert set(fixed[0]) == set(constant[0]) == set(varied[0])
    for key in fixed[0]:
        for one, other in zip(fixed, constant, strict=True):
            # A constant of the graph is folded, a schedule is evaluated: an ulp.
            np.testing.assert_allclose(one[key], other[key], rtol=1e-15, atol=0)
        np.testing.assert_allclose(fixed[0][key], varied[0][key], rtol=1e-15, atol=0)


def test_initial_values_of_states_are_numbers() -> None:
    with pytest.raises(DefinitionError) as caught:
        transforms.dynamic_loss_scaling(optimizers.sgd(0.1), schedules.constant(8))
    assert str(caught.value) == (
        "initial must be a number, got a Schedule (dynamic_loss_scaling): "
        "it has one value for the whole run"
    )
