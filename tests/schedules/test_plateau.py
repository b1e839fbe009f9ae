"""The rule that waits for a metric, beside torch's own class."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import closedform as cf
from closedform import frameworks, schedules
from closedform.compiler import compile_step
from closedform.errors import ClosedFormError, DefinitionError, DomainError
from closedform.options import ModelSpec
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.metrics import run_metric_rule
from tests.support.sampling import examples

KINDS = list(itertools.product(("min", "max"), ("rel", "abs")))
NUMBERS = st.floats(-10, 10) | st.sampled_from([0.0, 1.0, float("inf"), -float("inf"), np.nan])
ARGUMENTS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["min", "max"]),
        "threshold_mode": st.sampled_from(["rel", "abs"]),
        "factor": st.floats(0, 0.99),
        "patience": st.integers(0, 4),
        "threshold": st.sampled_from([0, 1e-4, 0.1, 0.5]),
        "cooldown": st.integers(0, 4),
        "min_lr": st.floats(0, 0.5),
        "eps": st.sampled_from([0, 1e-8, 0.01]),
    }
)


def of_torch(arguments: dict[str, Any], start: float, metrics: list[float]) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=start)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
    values = []
    for metric in metrics:
        scheduler.step(metric)
        values.append(float(optimizer.param_groups[0]["lr"]))
    return values


@settings(max_examples=examples(150))
@given(ARGUMENTS, st.floats(0.01, 2), st.lists(NUMBERS, min_size=1, max_size=40))
def test_values_are_those_of_torch(
    arguments: dict[str, Any], start: float, metrics: list[float]
) -> None:
    rule = frameworks.metric_rule("torch", "ReduceLROnPlateau", arguments)
    # The same float64 operations in the same order: not one unit in the last place.
    assert run_metric_rule(rule, start, metrics) == of_torch(arguments, start, metrics)


@pytest.mark.parametrize(("mode", "threshold_mode"), KINDS)
def test_session_runs_it_as_torch_does(mode: str, threshold_mode: str) -> None:
    arguments = {"mode": mode, "threshold_mode": threshold_mode, "patience": 1, "cooldown": 2}
    rule = schedules.reduce_on_plateau(mode, 0.5, 1, 0.05, threshold_mode, 2)
    session = cf.OptimizerSession(rule, params={"lr": np.array(0.25)})
    metrics = np.random.default_rng(3).normal(size=60).cumsum().tolist()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.25)
    arguments |= {"factor": 0.5, "threshold": 0.05}
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)  # type: ignore[arg-type]
    values = set()
    for metric in metrics:
        session.step({"lr": np.array(metric)})
        scheduler.step(metric)
        assert session.params["lr"] == optimizer.param_groups[0]["lr"]
        for name in session.states:
            assert session.states[name]["lr"] == getattr(scheduler, name), name
        values.add(float(session.params["lr"]))
    assert len(values) > 3


@pytest.mark.parametrize(("mode", "threshold_mode"), KINDS)
def test_engines_agree_on_a_rate_for_each_group(mode: str, threshold_mode: str) -> None:
    rule = schedules.reduce_on_plateau(mode, 0.5, 1, 0.05, threshold_mode, 2, 0.1)
    graph = compile_step(ModelSpec(rule, {"lr": (64,)}))
    assert not {node.op for node in graph.nodes} & {"if", "loop", "scan"}
    rng = np.random.default_rng(0)
    draws = {
        "step": np.array(3),
        "param.lr": rng.uniform(0, 1, 64).astype(np.float32),
        "grad.lr": rng.normal(size=64).astype(np.float32),
        "state.lr.best": rng.normal(size=64).astype(np.float32),
        "state.lr.num_bad_epochs": rng.integers(0, 4, 64).astype(np.float32),
        "state.lr.cooldown_counter": rng.integers(0, 3, 64).astype(np.float32),
    }
    expected = run_evaluator(graph, draws)
    for results in (run_onnxruntime(graph, draws), run_torch(graph, draws)):
        for name, value in expected.items():
            assert np.array_equal(results[name], value), name


def test_model_names_the_metric_and_the_states(tmp_path: Any) -> None:
    rule = schedules.reduce_on_plateau()
    models = cf.to_onnx(rule, tmp_path, params={"lr": ()}, dtype="f64")
    assert isinstance(models, dict)
    step = onnx.load(tmp_path / "step.onnx")
    states = ["state.lr.best", "state.lr.num_bad_epochs", "state.lr.cooldown_counter"]
    assert [port.name for port in step.graph.input] == ["step", "param.lr", "grad.lr", *states]
    assert not {node.op_type for node in step.graph.node} & {"If", "Loop", "Scan"}


BAD: dict[str, tuple[dict[str, Any], type[ClosedFormError], str]] = {
    "mode": (
        {"mode": "mini"},
        DefinitionError,
        "mode must be one of min, max, got 'mini' (reduce_on_plateau): did you mean 'min'?",
    ),
    "threshold mode": (
        {"threshold_mode": "relative"},
        DefinitionError,
        "threshold_mode must be one of rel, abs, got 'relative' (reduce_on_plateau): did you mean "
        "'rel'?",
    ),
    "factor": (
        {"factor": 1.25},
        DomainError,
        "factor must be at least 0 and below 1, got 1.25 (reduce_on_plateau)",
    ),
    "patience": (
        {"patience": -2},
        DomainError,
        "patience must be an integer >= 0, got -2 (reduce_on_plateau)",
    ),
    "cooldown": (
        {"cooldown": 2.5},
        DomainError,
        "cooldown must be an integer >= 0, got 2.5 (reduce_on_plateau)",
    ),
    "eps": ({"eps": -0.5}, DomainError, "eps must be at least 0, got -0.5 (reduce_on_plateau)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    arguments, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        schedules.reduce_on_plateau(**arguments)
    assert str(caught.value) == message


OF_FRAMEWORKS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "factor of torch": (
        "torch",
        "ReduceLROnPlateau",
        {"factor": 1},
        "factor must be below 1, got 1 (torch > ReduceLROnPlateau)",
    ),
    "factor of timm": (
        "timm",
        "PlateauLRScheduler",
        {"decay_rate": 1},
        "decay_rate must be below 1, got 1 (timm > PlateauLRScheduler)",
    ),
    "noise of timm": (
        "timm",
        "PlateauLRScheduler",
        {"noise_range_t": 7},
        "noise is not modelled: the value that it changes is put back one step later "
        "(timm > PlateauLRScheduler): leave noise_range_t out",
    ),
    "function of the step": (
        "torch",
        "LinearLR",
        {},
        "LinearLR is driven by the step, not by a metric (torch > LinearLR): build it with "
        "closedform.frameworks.schedule",
    ),
    "patience of transformers": (
        "huggingface",
        "reduce_lr_on_plateau",
        {"patience": 1.5},
        "patience must be an integer >= 0, got 1.5 (huggingface > reduce_lr_on_plateau)",
    ),
    "a bound short": (
        "torch",
        "ReduceLROnPlateau",
        {"min_lr": []},
        "min_lr must hold one for each group, got 0 (torch > ReduceLROnPlateau)",
    ),
}


@pytest.mark.parametrize("name", OF_FRAMEWORKS)
def test_bad_argument_of_a_class_is_refused(name: str) -> None:
    system, class_name, kwargs, message = OF_FRAMEWORKS[name]
    with pytest.raises(ClosedFormError) as caught:
        frameworks.metric_rule(system, class_name, kwargs)
    assert str(caught.value) == message


def test_bound_of_each_group() -> None:
    kwargs = {"min_lr": [0.25, 0.5]}
    rules = [
        frameworks.metric_rule("torch", "ReduceLROnPlateau", kwargs, group_index=index)
        for index in (0, 1)
    ]
    assert [float(rule.hyperparameters["minimum"]) for rule in rules] == [0.25, 0.5]


def test_warmup_of_timm_looks_at_no_metric() -> None:
    kwargs = {"warmup_t": 4, "warmup_lr_init": 0.25, "patience_t": 0, "decay_rate": 0.5}
    rule = frameworks.metric_rule("timm", "PlateauLRScheduler", kwargs, base=0.5)
    assert run_metric_rule(rule, 0.25, [9, 9, 9, 9, 1, 1, 2, 1]) == [
        *(0.3125, 0.375, 0.4375, 0.5),
        *(0.5, 0.25, 0.25, 0.125),
    ]
