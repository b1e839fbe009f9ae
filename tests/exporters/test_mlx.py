"""MLX: schedules as learning rates and rules as optimizers, beside its own, compiled, and saved.

mlx is not a development dependency: these tests run where it is installed, as in the environment
of `make compare`, on CPUs.
"""

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closedform as cf
from closedform.errors import ClosedFormError, ExportError, SessionError
from closedform.language import PARAM, Schedule, UpdateRule
from closedform.runtime import OptimizerSession
from closedform.schedules.examples import EXAMPLES
from tests.support.rules import SHAPES, draw, shapes_for

mx: Any = importlib.import_module("mlx.core")
nn: Any = importlib.import_module("mlx.nn")
optim: Any = importlib.import_module("mlx.optimizers")
utils: Any = importlib.import_module("mlx.utils")

LR = cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))
SCHEDULES = sorted(set(EXAMPLES) - {"reduce_on_plateau"})
RULES = sorted(cf.optimizers.__all__)
SIGNS = {"lion", "signum", "tiger", "decoupled_lionw", "adamuon", "muon", "normuon", "scion"}
"""Rules with a sign, or bfloat16 iterations: an ulp before it is a whole step after it."""
ROUNDED_BASES = {"soap"}
"""Rules with an orthogonal factor of a dependent matrix: the first g gᵀ of a gradient of 6 x 4 has
rank 4, so that the roundings decide on the last two columns of a basis of 6, and on the steps in
it."""
ROUNDED_RUNS = 8


@pytest.fixture(autouse=True, scope="module")
def cpu() -> None:
    mx.set_default_device(mx.cpu)


def arrays(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: mx.array(value) for name, value in values.items()}


def perturb(values: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Returns the values with each number changed by at most a rounding of float32."""
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(value + rng.integers(-1, 2, value.shape) * np.spacing(value), np.float32)
        for name, value in values.items()
    }


def session_after(rule: UpdateRule, steps: int, seed: int | None = None) -> OptimizerSession:
    """Returns a session after steps with drawn gradients, which a seed perturbs."""
    shapes = shapes_for(rule)
    session = OptimizerSession(rule, draw(1, shapes), threads=1)
    for step in range(steps):
        gradients = draw(2 + step, shapes)
        session.step(gradients if seed is None else perturb(gradients, 100 * seed + step))
    return session


def amplified_roundings(rule: UpdateRule, steps: int) -> dict[str, float]:
    """Returns the largest distance between runs of onnxruntime with perturbed gradients."""
    runs = [session_after(rule, steps, seed).params for seed in range(ROUNDED_RUNS)]
    return {
        name: max(float(np.abs(a[name] - b[name]).max()) for a in runs for b in runs)
        for name in runs[0]
    }


# --- schedules ---------------------------------------------------------------------------------


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_beside_float64(name: str) -> None:
    made = EXAMPLES[name].make()
    assert isinstance(made, Schedule)
    far = [step for step in (2**24 + 1, 2**30 + 7, 2**31 - 1) if step <= (made.last_step or step)]
    steps = [*range(EXAMPLES[name].steps + 1), *far]
    actual = np.asarray(cf.to_mlx(made)(mx.array(steps)))
    assert actual.dtype == np.float32
    # 0.501 ulp of float32, and what cancels in pairs, whose precision is 48 bits.
    wanted = np.asarray(made(np.array(steps)))
    near = 0.502 * np.spacing(np.abs(wanted).astype(np.float32))
    near += 2.0**-47 * np.abs(wanted).max()
    assert (np.abs(actual - wanted) <= near).all()


def test_steps_of_every_kind() -> None:
    value = cf.to_mlx(LR)
    steps = [0, 1, 1999, 2000, 2001, 100_000, 2**24 + 1]
    wanted = [np.float32(LR(step)) for step in steps]
    assert [value(step).item() for step in steps] == wanted
    assert [value(mx.array(step, mx.uint64)).item() for step in steps] == wanted
    compiled = mx.compile(value)
    assert [compiled(mx.array(step)).item() for step in steps] == wanted
    several = value(mx.array([[0, 2000, 2001], [1, 1, 1]]))
    assert several.shape == (2, 3)
    assert several[0, 1].item() == np.float32(3e-4)
    with pytest.raises(SessionError) as caught:
        value(mx.array(0.5))
    assert str(caught.value) == (
        "the step must be an integer, got mlx.core.float32 (schedule 'sequential'): count the "
        "updates done"
    )


OUTSIDE = [-1, 2**31, 10**400, np.int64(2**32 + 5), np.array([3, 2**31]), mx.array([2**31, 4])]


@pytest.mark.parametrize("step", [*OUTSIDE, mx.array(-1)], ids=lambda step: f"{step!r:.20}")
def test_a_step_outside_of_the_domain_is_an_error(step: Any) -> None:
    with pytest.raises(SessionError, match=r"must be in 0\.\.2147483647, got"):
        cf.to_mlx(LR)(step)


@pytest.mark.parametrize(
    ("step", "dtype"), [(-1, mx.int32), (2**33, mx.int64), (-5, mx.int64), (2**31, mx.uint32)]
)
def test_a_traced_step_outside_of_the_domain_is_nan(step: int, dtype: Any) -> None:
    assert math.isnan(mx.compile(cf.to_mlx(LR))(mx.array(step, dtype)).item())


def test_a_clock_beyond_32_bits_does_not_wrap() -> None:
    optimizer = cf.to_mlx(cf.optimizers.sgd(0.1))
    params = {"w": mx.ones(3)}
    optimizer.init(params)
    optimizer.state["step"] = mx.array(2**31, mx.uint64)
    assert mx.isnan(optimizer.apply_gradients({"w": mx.ones(3)}, params)["w"]).all().item()


def test_a_schedule_is_a_learning_rate() -> None:
    optimizer = optim.SGD(learning_rate=cf.to_mlx(cf.schedules.linear(1, 0, 4)))
    params = {"w": mx.ones(3)}
    for wanted in (0.0, -0.75, -1.25):
        params = optimizer.apply_gradients({"w": mx.ones(3)}, params)
        assert params["w"].tolist() == [wanted] * 3


# --- rules -------------------------------------------------------------------------------------


REASONS = {
    "this one has states of the whole model": (
        "d_adapt_adam", "d_adapt_sgd", "dog", "dowg", "momo", "prodigy", "schedule_free_adamw",
        "schedule_free_radam", "schedule_free_sgd",
    ),
    "this one takes sums over all parameters": ("adams",),
    "this one takes or returns other tensors than the gradient": ("kron", "sophia"),
    "has a learning rate, and the rule has no hyperparameter lr": ("rprop",),
    "MLX allows any learning rate, but this rule does not": ("asgd",),
}  # fmt: skip
"""Rules that are not optimizers of MLX, by the reason."""
REFUSED = {name: reason for reason, names in REASONS.items() for name in names}


@pytest.mark.sample(every=9)
@pytest.mark.parametrize("name", sorted(set(RULES) - REFUSED.keys()))
def test_every_rule_beside_onnxruntime(name: str) -> None:
    optimizer = cf.to_mlx(getattr(cf.optimizers, name)())
    rule = getattr(cf.optimizers, name)()
    shapes = shapes_for(rule)
    params = arrays(draw(1, shapes))
    session = session_after(rule, 3)
    for seed in range(2, 5):
        params = optimizer.apply_gradients(arrays(draw(seed, shapes)), params)
    assert optimizer.step.item() == session.t == 3
    amplified = amplified_roundings(rule, 3) if name in ROUNDED_BASES else {}
    # The learning rate is rounded to float32 before the other scalars, not after.
    for key, expected in session.params.items():
        actual = np.asarray(params[key])
        near = 3e-6 + amplified.get(key, 0)
        if name in SIGNS:
            assert np.mean(np.abs(actual - expected) <= 2e-6) > 0.9, key
        else:
            np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=near, err_msg=key)
    for label, by_name in session.states.items():
        for key, expected in by_name.items():
            assert optimizer.state[key][label].shape == expected.shape, (label, key)


@pytest.mark.parametrize("name", sorted(ROUNDED_BASES))
def test_each_step_in_the_bases_of_onnxruntime(name: str) -> None:
    rule = getattr(cf.optimizers, name)(precondition_frequency=1)
    shapes = shapes_for(rule)
    session = session_after(rule, 0)
    optimizer = cf.to_mlx(rule)
    optimizer.init(arrays(session.params))
    for seed in range(2, 7):
        for label, by_name in session.states.items():
            for key, value in by_name.items():
                optimizer.state[key][label] = mx.array(value)
        gradients = draw(seed, shapes)
        params = optimizer.apply_gradients(arrays(gradients), arrays(session.params))
        session.step(gradients)
        for key, expected in session.params.items():
            np.testing.assert_allclose(np.asarray(params[key]), expected, rtol=3e-6, atol=3e-6)
        for label, by_name in session.states.items():
            for key, expected in by_name.items():
                actual, message = np.asarray(optimizer.state[key][label]), f"{label} of {key}"
                if seed == 2 and label in ("Q_0", "Q_1"):
                    rank = min(shapes[key])
                    actual, expected = actual[:, :rank], expected[:, :rank]
                np.testing.assert_allclose(
                    actual, expected, rtol=3e-6, atol=3e-6, err_msg=f"{message}, step {seed - 1}"
                )


@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_are_not_optimizers_say_why(name: str) -> None:
    with pytest.raises(ExportError, match=REFUSED[name]):
        cf.to_mlx(getattr(cf.optimizers, name)())


OWN: dict[str, tuple[Any, Any]] = {
    "sgd": (
        lambda: optim.SGD(1e-2, momentum=0.9),
        lambda: cf.optimizers.sgd(1e-2, momentum=0.9),
    ),
    "adam": (
        lambda: optim.Adam(1e-2, bias_correction=True),
        lambda: cf.optimizers.adam(1e-2),
    ),
    "adamw": (
        lambda: optim.AdamW(1e-2, weight_decay=0.1, bias_correction=True),
        lambda: cf.optimizers.adamw(1e-2, weight_decay=0.1),
    ),
    "lion": (
        lambda: optim.Lion(1e-2, betas=[0.9, 0.99], weight_decay=0.1),
        lambda: cf.optimizers.lion(1e-2, (0.9, 0.99), weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_rules_of_mlx(name: str) -> None:
    theirs, ours = OWN[name]
    start = draw(3, SHAPES)
    found = []
    for optimizer in (theirs(), cf.to_mlx(ours())):
        params = arrays(start)
        for seed in range(20):
            params = optimizer.apply_gradients(arrays(draw(100 + seed, SHAPES)), params)
        found.append({key: np.asarray(value) for key, value in params.items()})
    for key, wanted in found[0].items():
        assert np.abs(wanted - start[key]).max() > 1e-2
        np.testing.assert_allclose(found[1][key], wanted, rtol=1e-5, atol=2e-6, err_msg=key)


def test_a_model_is_trained_compiled_and_resumed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = mx.array(rng.normal(size=(64, 4)).astype(np.float32))
    y = x @ mx.array(np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32))
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    rule = cf.optimizers.adamw(lr=cf.schedules.cosine(0.05, 0, 60), weight_decay=0.01)
    optimizer = cf.to_mlx(rule)

    def loss(x: Any, y: Any) -> Any:
        return mx.mean((model(x) - y) ** 2)

    value_and_grad = nn.value_and_grad(model, loss)
    optimizer.init(model.trainable_parameters())
    state = [model.state, optimizer.state]

    def step(x: Any, y: Any) -> Any:
        found, grads = value_and_grad(x, y)
        optimizer.update(model, grads)
        return found

    compiled = mx.compile(step, inputs=state, outputs=state)
    losses = []
    for _ in range(40):
        losses.append(compiled(x, y).item())
        mx.eval(state)
    assert losses[-1] < losses[0] / 10
    assert optimizer.step.item() == 40
    assert optimizer.learning_rate.item() == np.float32(cf.schedules.cosine(0.05, 0, 60)(39))

    mx.save_safetensors(str(tmp_path / "a"), dict(utils.tree_flatten(optimizer.state)))
    weights = {key: mx.array(value) for key, value in utils.tree_flatten(model.parameters())}
    after = step(x, y).item(), dict(utils.tree_flatten(model.parameters()))
    model.update(utils.tree_unflatten(list(weights.items())))
    optimizer = cf.to_mlx(rule)
    loaded = mx.load(str(tmp_path / "a.safetensors"))
    optimizer.state = utils.tree_unflatten(list(loaded.items()))
    assert step(x, y).item() == after[0]
    for key, value in utils.tree_flatten(model.parameters()):
        assert np.array_equal(np.asarray(value), np.asarray(after[1][key])), key


def test_parameters_of_16_bits_keep_their_dtype() -> None:
    optimizer = cf.to_mlx(cf.optimizers.adamw(lr=0.5))
    params = {"layer": [mx.ones((2, 2), mx.bfloat16), mx.zeros(2, mx.float16)]}
    params = optimizer.apply_gradients(params, params)
    assert [one.dtype for one in params["layer"]] == [mx.bfloat16, mx.float16]
    assert optimizer.state["layer"][0]["exp_avg"].dtype == mx.float32
    with pytest.raises(SessionError) as caught:
        cf.to_mlx(cf.optimizers.sgd(0.1)).init({"w": mx.zeros(2, mx.float64)})
    assert str(caught.value) == (
        "parameters must be float32, float16 or bfloat16, got mlx.core.float64 (rule 'sgd')"
    )


def test_the_learning_rate_is_that_of_mlx() -> None:
    optimizer = cf.to_mlx(cf.optimizers.sgd(0.5))
    assert optimizer.learning_rate.item() == 0.5
    optimizer.learning_rate = 0.25
    assert optimizer.apply_gradients({"w": mx.ones(2)}, {"w": mx.ones(2)})["w"].tolist() == [
        0.75,
        0.75,
    ]
    halved = cf.to_mlx(cf.optimizers.sgd(0.5), learning_rate=cf.schedules.linear(1, 0, 4))
    assert halved.learning_rate.item() == 1
    theirs = cf.to_mlx(cf.optimizers.sgd(0.5), learning_rate=optim.step_decay(0.5, 0.5, 1))
    for wanted in (0.5, 0.25):
        theirs.apply_gradients({"w": mx.ones(2)}, {"w": mx.ones(2)})
        assert theirs.learning_rate.item() == wanted


def test_what_is_refused() -> None:
    with pytest.raises(ExportError) as caught:
        cf.to_mlx(cf.optimizers.prodigy())
    assert str(caught.value) == (
        "an optimizer of MLX updates each tensor by itself, and this one has states of the whole "
        "model (rule 'prodigy')"
    )
    with pytest.raises(ExportError, match="a schedule has no learning rate"):
        cf.to_mlx(LR, learning_rate=0.5)  # type: ignore[call-overload]
    unbound = UpdateRule("unbound", PARAM - cf.expr.hyper("lr") * cf.expr.GRAD, {}, {"lr": None})
    with pytest.raises(ExportError, match="the rule has no value of lr"):
        cf.to_mlx(unbound)
    assert cf.to_mlx(unbound, learning_rate=0.5).learning_rate.item() == 0.5
    muon = cf.to_mlx(cf.optimizers.muon())
    with pytest.raises(ClosedFormError, match="rule 'muon'"):
        muon.init({"b": mx.zeros(3)})


def test_graphs_of_float64_are_refused() -> None:
    from closedform.exporters.mlx_ops import run_graph

    with pytest.raises(ExportError) as caught:
        run_graph(cf.compile(LR), {"step": mx.array(3)})
    assert str(caught.value) == (
        "the graph computes in f64, which MLX has only on CPUs, and whose exp, sin and cos have "
        "the precision of f32 (graph 'sequential'): compile it with dtype=\"f32\", "
        'scalar_dtype="f32" and precision="double-float"'
    )
