"""Keras: schedules and rules as its classes, beside its own, saved and loaded.

keras is not a development dependency: these tests run where it is installed, as in the environment
of `make compare`, on the backend that KERAS_BACKEND names.
"""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.errors import ExportError, SessionError
from closedform.language import PARAM, UpdateRule
from closedform.runtime import OptimizerSession
from tests.support.rules import draw

os.environ.setdefault("KERAS_BACKEND", "torch")
keras: Any = importlib.import_module("keras")
# Keras 3.15 reads tensors of torch by np.array, of which NumPy 2 warns.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

LR = cf.schedules.linear(0, 3e-4, 20).then(cf.schedules.cosine(3e-4, 3e-5, 980))
SHAPES: dict[str, tuple[int, ...]] = {"w": (6, 4), "b": (4,), "s": ()}
SIGNS = {"lion", "signum", "rprop", "tiger", "decoupled_lionw"}


def numpy(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor))


def test_a_schedule_is_a_learning_rate() -> None:
    rate = cf.to_keras(LR)
    assert isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
    for step in (0, 7, 20, 500, 2**24 + 1, 2**31 - 1):
        wanted = np.float32(LR(step))
        assert abs(float(numpy(rate(step))) - wanted) <= np.spacing(wanted), step
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(rate))
    assert type(loaded) is type(rate)
    assert float(numpy(loaded(300))) == float(numpy(rate(300)))
    steps = keras.ops.convert_to_tensor(11, dtype="int32")
    assert float(numpy(rate(steps))) == pytest.approx(LR(11), rel=1e-7)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (0,)])
@pytest.mark.parametrize(
    "schedule", [LR, cf.schedules.constant(0.5), cf.schedules.linear(0.5, 0.5, 10)]
)
def test_values_have_the_shape_of_the_steps(schedule: cf.Schedule, shape: tuple[int, ...]) -> None:
    steps = np.arange(np.prod(shape, dtype=np.int64), dtype=np.int32).reshape(shape)
    wanted = np.vectorize(schedule, otypes=[np.float32])(steps) if steps.size else steps
    for given in (steps, keras.ops.convert_to_tensor(steps)):
        values = numpy(cf.to_keras(schedule)(given))
        assert values.shape == shape
        np.testing.assert_allclose(values, wanted, rtol=1e-6)


def stepped(optimizer: Any, count: int) -> dict[str, np.ndarray]:
    """The variables after some steps with drawn gradients."""
    variables = [keras.Variable(value, name=name) for name, value in draw(1, SHAPES).items()]
    optimizer.build(variables)
    for seed in range(2, 2 + count):
        grads = [keras.ops.convert_to_tensor(value) for value in draw(seed, SHAPES).values()]
        optimizer.apply(grads, variables)
    return {name: numpy(variable) for name, variable in zip(SHAPES, variables, strict=True)}


REASONS = {
    "this one looks at shapes or at whole tensors": (
        "adafactor", "adam_mini", "adamp", "adamuon", "asgd", "came", "dion", "fromage", "kron",
        "lamb", "lars", "mars", "muon", "nadam", "normuon", "novograd", "scion", "sgdp", "shampoo",
        "sm3", "soap", "stable_adamw",
    ),
    "this one has states of the whole model": (
        "d_adapt_adam", "d_adapt_sgd", "dog", "dowg", "momo", "prodigy", "schedule_free_adamw",
        "schedule_free_radam", "schedule_free_sgd",
    ),
    "this one takes sums over all parameters": ("adams",),
    "this one takes or returns other tensors than the gradient": ("sophia",),
    "has a learning rate, and the rule has no hyperparameter lr": ("rprop",),
}  # fmt: skip
"""Rules that are not optimizers of Keras, by the reason."""
REFUSED = {name: reason for reason, names in REASONS.items() for name in names}


@pytest.mark.parametrize("name", sorted(set(cf.optimizers.__all__) - REFUSED.keys()))
def test_every_rule_beside_onnxruntime(name: str) -> None:
    optimizer = cf.to_keras(getattr(cf.optimizers, name)())
    actual = stepped(optimizer, 3)
    session = OptimizerSession(getattr(cf.optimizers, name)(), draw(1, SHAPES), threads=1)
    for seed in range(2, 5):
        session.step(draw(seed, SHAPES))
    assert int(optimizer.iterations) == 3
    for key, expected in session.params.items():
        # The learning rate is rounded to float32 before the other scalars, not after.
        if name in SIGNS:
            assert np.mean(np.abs(actual[key] - expected) <= 2e-6) > 0.9, key
        else:
            np.testing.assert_allclose(actual[key], expected, rtol=2e-6, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_are_not_optimizers_say_why(name: str) -> None:
    with pytest.raises(ExportError, match=f"an optimizer of Keras .*{REFUSED[name]}"):
        cf.to_keras(getattr(cf.optimizers, name)())


OWN: dict[str, tuple[Any, Any]] = {
    "sgd": (
        lambda: keras.optimizers.SGD(0.01),
        lambda: cf.optimizers.sgd(0.01),
    ),
    "adamax": (
        lambda: keras.optimizers.Adamax(0.01, epsilon=1e-8),
        lambda: cf.optimizers.adamax(0.01),
    ),
    "lion": (
        lambda: keras.optimizers.Lion(0.01, beta_1=0.9, beta_2=0.99),
        lambda: cf.optimizers.lion(0.01, (0.9, 0.99), weight_decay=0),
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_rules_of_keras(name: str) -> None:
    theirs, ours = OWN[name]
    wanted, actual = stepped(theirs(), 20), stepped(cf.to_keras(ours()), 20)
    start = draw(1, SHAPES)
    for key, value in wanted.items():
        assert np.abs(value - start[key]).max() > 1e-2
        np.testing.assert_allclose(actual[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


def model_of(optimizer: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def test_a_model_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype("float32")
    y = x @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")
    model = model_of(cf.to_keras(cf.optimizers.adamw(lr=0.03, weight_decay=0.01), clipnorm=1.0))
    losses = model.fit(x, y, batch_size=16, epochs=8, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < losses[0] / 4
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for one in (model, again):
        one.fit(x, y, batch_size=16, epochs=1, verbose=0, shuffle=False)
    for first, second in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(numpy(first), numpy(second), rtol=1e-6, atol=1e-7)


def test_the_learning_rate_is_that_of_keras() -> None:
    optimizer = cf.to_keras(cf.optimizers.sgd(0.5))
    assert float(optimizer.learning_rate) == 0.5
    optimizer.learning_rate = 0.25
    variable = keras.Variable(np.ones(3, "float32"))
    optimizer.apply([keras.ops.ones(3)], [variable])
    assert numpy(variable).tolist() == [0.75] * 3
    scheduled = cf.to_keras(cf.optimizers.sgd(cf.schedules.linear(1, 0, 4)))
    variable = keras.Variable(np.ones(3, "float32"))
    for value in (0.0, -0.75, -1.25):
        scheduled.apply([keras.ops.ones(3)], [variable])
        assert numpy(variable).tolist() == [value] * 3


@pytest.mark.parametrize(
    "step",
    [-1, 10**400, np.int64(2**50 + 1), np.array([3, -1]), True, 3.7],
    ids=lambda s: f"{s!r:.20}",
)
def test_a_step_outside_of_the_domain_is_an_error(step: Any) -> None:
    with pytest.raises(SessionError, match="the step must be"):
        cf.to_keras(LR)(step)


def test_steps_of_tensors_and_variables() -> None:
    schedule = cf.to_keras(cf.schedules.linear(1, 0, 4))
    assert float(schedule(keras.Variable(3, dtype="int32", trainable=False))) == 0.25
    assert numpy(schedule(keras.ops.convert_to_tensor([0, 1]))).tolist() == [1, 0.75]
    with pytest.raises(SessionError, match=r"must be in 0\.\.\d+, got -1"):
        schedule(keras.ops.convert_to_tensor(-1))
    with pytest.raises(SessionError, match="must be an integer, got float32"):
        schedule(keras.ops.convert_to_tensor(1.5))


@pytest.mark.skipif(os.environ["KERAS_BACKEND"] != "jax", reason="jax traces")
def test_a_traced_step_outside_of_the_domain_is_nan() -> None:
    import jax

    schedule = cf.to_keras(cf.schedules.linear(1, 0, 4))
    assert np.isnan(jax.jit(lambda step: schedule(step))(-1))
    assert jax.jit(lambda step: schedule(step))(1) == 0.75


def test_a_clock_below_zero_does_not_wrap() -> None:
    optimizer = cf.to_keras(cf.optimizers.sgd(0.5))
    variable = keras.Variable(np.ones(3, "float32"))
    optimizer.build([variable])
    optimizer.iterations.assign(-(2**31))
    optimizer.apply([keras.ops.ones(3)], [variable])
    assert np.isnan(numpy(variable)).all()


def test_what_is_refused() -> None:
    with pytest.raises(ExportError) as caught:
        cf.to_keras(cf.optimizers.muon())
    assert str(caught.value) == (
        "an optimizer of Keras updates each tensor by itself, and this one looks at shapes or at "
        "whole tensors (rule 'muon')"
    )
    rate = cf.expr.hyper("lr")
    rooted = UpdateRule("rooted", PARAM - sp.sqrt(1 - rate) * cf.expr.GRAD, {}, {"lr": 0.5})
    with pytest.raises(ExportError, match="Keras allows any learning rate, but this rule does not"):
        cf.to_keras(rooted)
    with pytest.raises(ExportError, match="a schedule takes no options, got clipnorm"):
        cf.to_keras(LR, clipnorm=1.0)  # type: ignore[call-overload]
    still = UpdateRule("still", PARAM - cf.expr.GRAD, {}, {})
    with pytest.raises(ExportError, match="and the rule has no hyperparameter lr"):
        cf.to_keras(still)
    unbound = UpdateRule("unbound", PARAM - cf.expr.hyper("lr") * cf.expr.GRAD, {}, {"lr": None})
    with pytest.raises(ExportError, match="the rule has no value of lr"):
        cf.to_keras(unbound)
    assert float(cf.to_keras(unbound, learning_rate=0.5).learning_rate) == 0.5
