"""The bound of the distance in floats of a file from the exported rule, next to onnxruntime."""

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from closedform.ir import DType, naming
from closedform.options import GraphOptions, ModelSpec
from closedform.referee.float_difference import Box, FloatDifference
from closedform.referee.judgement import Judgement, bound_floats, judge_step
from closedform.verify.certificates import error_rules
from tests.referee import foreign
from tests.support.rules import compiled_models

PARAMS = {"b": (4,), "w": (6, 4)}
DRAWS = 36
"""Runs of 28 elements: 1,008 random inputs."""


def judged(name: str) -> tuple[foreign.Foreign, Judgement]:
    step = foreign.load(name)
    judgement = judge_step(step.model, step.rule, ports=step.ports)
    assert judgement.verdict.proved
    return step, judgement


def session_of(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def sized(draw: np.random.Generator, shape: tuple[int, ...], least: float) -> np.ndarray:
    """Numbers of both signs whose sizes are from ``least`` to 1, the ends among them."""
    sizes = np.exp(draw.uniform(np.log(least), 0, shape))
    ends = draw.choice([least, 1.0, 0.0], shape, p=[0.1, 0.1, 0.8])
    numbers = np.where(ends, ends, sizes) * draw.choice([-1, 1], shape)
    return np.asarray(numbers, np.float32)


def measured(step: foreign.Foreign, box: Box) -> Iterator[float]:
    """The largest differences of the parameters of a file and of the rule, by step."""
    models = compiled_models(ModelSpec(step.rule, PARAMS), GraphOptions())
    file, rule, init = (session_of(m) for m in (step.model, models["step"], models["init"]))
    dtypes = {value.name: value.type for value in file.get_inputs()}
    for seed in range(DRAWS):
        draw = np.random.default_rng(seed)
        params = {name: sized(draw, shape, 2.0**-20) for name, shape in PARAMS.items()}
        states = {value.name: params[value.name[6:]] for value in init.get_inputs()}
        outputs = [value.name for value in init.get_outputs()]
        state = dict(zip(outputs, init.run(None, states), strict=True))
        state |= {naming.param(name): value for name, value in params.items()}
        file_state = {}
        for name, text in step.ports["inputs"].items():
            stated = step.ports["initial_states"].get(text)
            begins_as_param = stated is not None and np.unique(stated).size > 1
            if text.startswith("param") or begins_as_param:
                file_state[text] = params[text.partition("['")[2][:-2]]
            elif stated is not None:
                dtype = np.float32 if "float" in dtypes[name] else np.int32
                file_state[text] = np.asarray(stated, dtype)
        for _ in range(box.steps):
            grads = {name: sized(draw, shape, box.least_grad) for name, shape in PARAMS.items()}
            feeds = state | {naming.grad(name): value for name, value in grads.items()}
            needed = [value.name for value in rule.get_inputs()]
            results = rule.run(None, {name: feeds[name] for name in needed})
            state = {
                value.name.removeprefix(naming.NEXT): result
                for value, result in zip(rule.get_outputs(), results, strict=True)
            }
            texts = step.ports["inputs"]
            file_feeds = {
                name: grads[text.partition("['")[2][:-2]]
                if text.startswith("grad")
                else file_state[text]
                for name, text in texts.items()
            }
            results = file.run(None, file_feeds)
            file_state |= {
                step.ports["outputs"][value.name]: result
                for value, result in zip(file.get_outputs(), results, strict=True)
            }
            yield max(
                float(np.max(np.abs(state[naming.param(name)].astype(float) - value)))
                for name in PARAMS
                for text, value in file_state.items()
                if text == f"param['{name}']"
            )


# Measured: 8 to 70 times. The bound takes every error at its worst, and the average and its square
# as if they were of different gradients.
LOOSENESS = {"adagrad": 40, "adamax": 60, "adamw": 150, "nadam": 150, "rmsprop": 60}


@pytest.mark.parametrize("name", sorted(LOOSENESS))
def test_the_bound_holds_in_onnxruntime(name: str) -> None:
    step, judgement = judged(name)
    difference = bound_floats(judgement, step.rule)
    largest = max(measured(step, difference.box))
    assert largest <= difference.absolute <= LOOSENESS[name] * largest


def test_without_rounding_the_bound_is_less_than_what_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_rules, "unit_of_largest", lambda size, _: np.zeros_like(size))
    step, judgement = judged("nadam")
    difference = bound_floats(judgement, step.rule)
    assert difference.absolute < max(measured(step, difference.box))


def test_a_wider_box_has_a_larger_bound() -> None:
    step, judgement = judged("adamw")
    sizes = [
        bound_floats(judgement, step.rule, box).absolute
        for box in (Box(steps=1), Box(), Box(param=64.0), Box(least_grad=2.0**-6))
    ]
    assert sizes[0] < sizes[1] < min(sizes[2:])
    assert max(sizes) < np.inf


def test_the_bound_is_given_in_a_unit() -> None:
    difference = FloatDifference(2.0**-22, DType.F32, Box())
    assert difference.ulp == 2
    assert str(difference) == (
        "at most 2.4e-07 (2 ulp of f32 at 1) after up to 4 steps with |param| <= 1 before them and "
        "0.125 <= |grad| <= 1"
    )


def test_sums_of_any_sign_have_gradients_of_any_size() -> None:
    step, judgement = judged("lamb")
    difference = bound_floats(judgement, step.rule)
    assert difference.box.least_grad == 0
    assert str(difference).startswith("no bound")
