"""JAX: every schedule and rule beside onnxruntime, optax's own rules, transformations, StableHLO.

jax is not a development dependency: these tests run where it is installed, as in the environment of
`make compare`.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.errors import ExportError, SessionError, UnprovedWarning, VerificationError
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language import (
    GRAD,
    PARAM,
    Schedule,
    State,
    UpdateRule,
    reduce_max,
    state,
)
from closedform.options import ANY_STEPS
from closedform.runtime import OptimizerSession
from closedform.schedules.examples import EXAMPLES
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.translation import validate
from tests.support.backends import tolerance
from tests.support.engines import run_onnxruntime
from tests.support.rules import SHAPES, draw, shapes_for
from tests.support.unproved import expect_unproved

jax: Any = importlib.import_module("jax")
optax: Any = importlib.import_module("optax")
jnp: Any = jax.numpy

SCHEDULES = sorted(set(EXAMPLES) - {"reduce_on_plateau"})
RULES = sorted(cf.optimizers.__all__)
BF16 = DType.BF16.numpy
WARMUP_COSINE = cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))

SIGNS = {
    "lion",
    "signum",
    "rprop",
    "tiger",
    "adamuon",
    "muon",
    "normuon",
    "scion",
    "decoupled_lionw",
}
"""Rules with a sign, or bfloat16 iterations: an ulp before it is a whole step after it."""
GROWING = {"prodigy", "d_adapt_adam", "d_adapt_sgd"}
"""Rules whose rate is a state, grown from sums over the model: an error there grows with it."""


UNPROVED = {"schedule_free_radam", "spam"}
"""Rules whose ONNX files are not proved, either."""


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def wide(request: pytest.FixtureRequest) -> Iterator[bool]:
    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def schedule(name: str) -> Schedule:
    made = EXAMPLES[name].make()
    assert isinstance(made, Schedule)
    return made


# --- ops: each is in tests/exporters/test_ops.py -----------------------------------------------


def test_quotients_of_subnormal_numbers_are_zero() -> None:
    """The powers of two of a double-float exponential go below those that XLA distinguishes."""
    with jax.enable_x64(False):
        value = cf.to_jax(schedule("chained"))
        assert np.asarray(jax.jit(value)(np.array([900, 2**20, 2**31 - 1], np.int32))).tolist() == [
            pytest.approx(schedule("chained")(900), rel=2e-7),
            0,
            0,
        ]


def test_subnormal_constants_are_zero() -> None:
    """As constants, in tables and as the ends of lines; XLA on CPUs takes them as zero, too."""
    table = cf.schedules.table([1e-40, 1e-3, -1e-41])
    with jax.enable_x64(False):
        assert np.asarray(cf.to_jax(cf.schedules.constant(1e-40))(0)) == 0
        line = cf.to_jax(cf.schedules.linear(1e-40, 1e-39, 10))
        assert np.asarray(line(np.arange(12))).tolist() == [0] * 12
        assert np.asarray(cf.to_jax(table)(np.arange(3))).tolist() == [0, np.float32(1e-3), 0]


LINE = cf.schedules.linear(1, 0, 100)
OUTSIDE = [-1, 2**31, 10**400, np.int64(2**32 + 5), np.array([3, 2**31]), np.array([-1], np.int8)]


@pytest.mark.parametrize("count", OUTSIDE, ids=lambda count: f"{count!r:.20}")
def test_a_count_outside_of_the_domain_is_an_error(count: Any) -> None:
    with (
        jax.enable_x64(False),
        pytest.raises(SessionError, match=r"must be in 0\.\.2147483647, got"),
    ):
        cf.to_jax(LINE)(count)


def test_a_traced_count_outside_of_the_domain_is_nan(wide: bool) -> None:
    value = cf.to_jax(LINE)
    counts = jnp.array([-1, 0, 5, -(2**31)], jnp.int32)
    expected = np.array([np.nan, 1, 0.95, np.nan], np.float32)
    for results in (jax.jit(value)(counts), jax.vmap(value)(counts)):
        np.testing.assert_allclose(np.asarray(results), expected, rtol=1e-7)
    assert np.isnan(jax.jit(cf.to_jax(cf.schedules.constant(1)))(jnp.int32(-1)))
    beyond = jax.jit(value)(jnp.array([2**31, 4], jnp.uint32))
    assert np.isnan(beyond[0]) == (not wide)
    if wide:
        assert np.isnan(jax.jit(value)(jnp.int64(2**50 + 1)))


def test_graphs_of_64_bits_need_them() -> None:
    from closedform.exporters.jax_ops import run_graph

    graph = cf.compile(WARMUP_COSINE)
    with jax.enable_x64(False), pytest.raises(ExportError) as caught:
        run_graph(graph, {"step": jnp.asarray(3)})
    assert str(caught.value) == (
        "the graph computes in f64 and i64, which JAX has switched off (graph 'sequential'): "
        'jax.config.update("jax_enable_x64", True), or compile it for 32 bits'
    )


# --- schedules ---------------------------------------------------------------------------------


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_beside_onnxruntime(name: str, wide: bool) -> None:
    made = schedule(name)
    far = [step for step in (2**24 + 1, 2**30 + 7, 2**31 - 1) if step <= (made.last_step or step)]
    counts = np.array([*range(EXAMPLES[name].steps + 1), *far])
    graph = compile_schedule(made, ANY_STEPS)
    expected = run_onnxruntime(graph, {"step": counts})["value"]
    value = cf.to_jax(made)
    actual = np.asarray(jax.jit(value)(counts.astype(np.int32)))
    assert actual.dtype == (np.float64 if wide else np.float32)
    if wide:
        near = tolerance(graph, float(np.abs(expected).max()), ANY_STEPS.value_dtype)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=near)
    else:
        # 0.501 ulp of float32, and what cancels in pairs; values below 2**-126 are zero.
        np.testing.assert_allclose(actual, expected, rtol=1.3e-7, atol=1e-13)
    # XLA's vector code of exp and pow is its own.
    assert float(jax.jit(value)(7)) == pytest.approx(float(actual[7]), rel=1e-14 if wide else 2e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_jitted_values_in_pairs_are_within_0_501_ulp(name: str) -> None:
    """XLA adds constants of sums first and contracts products, unless it is kept from it."""
    made = schedule(name)
    counts = np.arange(EXAMPLES[name].steps + 1)
    exact = run_onnxruntime(compile_schedule(made, ANY_STEPS), {"step": counts})["value"]
    with jax.enable_x64(False):
        actual = np.asarray(jax.jit(cf.to_jax(made))(counts.astype(np.int32)))
    assert actual.dtype == np.float32
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    # Pairs have 48 bits: where a value cancels to 0, it is that far from 0 at most.
    noise = 2.0**-48 * float(np.abs(exact).max())
    assert (np.abs(actual - exact) <= 0.501 * ulp + noise).all()


def test_counts_in_optax(wide: bool) -> None:
    value = cf.to_jax(WARMUP_COSINE)
    counts = jnp.arange(1990, 2010, dtype=jnp.int32).reshape(4, 5)
    together = value(counts)
    assert together.shape == (4, 5)
    each = jax.vmap(jax.vmap(jax.jit(value)))(counts)
    np.testing.assert_allclose(each, together, rtol=1e-14 if wide else 2e-7)
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=value)
    params = {"w": jnp.ones(3, jnp.float32)}
    state = optimizer.init(params)
    for count in range(3):
        grads = {"w": jnp.full(3, 2.0, jnp.float32)}
        updates, state = jax.jit(optimizer.update)(grads, state, params)
        wanted = -2 * np.float32(WARMUP_COSINE(count))
        assert np.asarray(updates["w"])[0] == pytest.approx(wanted, rel=1e-6)
    assert bool(wide) == (state.hyperparams["learning_rate"].dtype == jnp.float64)


def test_inputs_of_schedules(wide: bool) -> None:
    peak = cf.expr.hyper("peak")
    made = Schedule(peak / (cf.t + 1), name="open", peak=0.5)
    value = cf.to_jax(made, inputs=["peak"])
    assert float(value(1)) == 0.25
    assert float(jax.jit(value)(1, peak=jnp.asarray(3.0))) == 1.5
    slope = jax.grad(lambda p: value(3, peak=p))(1.0)
    assert float(slope) == pytest.approx(0.25, rel=1e-6)
    with pytest.raises(SessionError, match="unknown hyper input 'peek'"):
        value(1, peek=2.0)
    assert bool(wide) == (value(1).dtype == jnp.float64)


OPEN = Verdict(Status.UNKNOWN, reason="it is too large", proved_until=10)
WRONG = Verdict(Status.REFUTED, reason="value is 1, and its source 2")


def decide(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    monkeypatch.setattr(
        "closedform.verify.translation.verdicts.validate", lambda source, graph: verdict
    )


def test_the_verdict_on_a_schedule(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, OPEN)
    with pytest.warns(UnprovedWarning) as said:
        cf.to_jax(WARMUP_COSINE)
    assert [str(each.message) for each in said] == [
        "the function for JAX of schedule 'sequential' is not proved to be its source: "
        "UNKNOWN, proved for t < 10; open beyond: it is too large"
    ]
    assert said[0].filename == __file__
    cf.to_jax(WARMUP_COSINE, validate=False)
    decide(monkeypatch, WRONG)
    with pytest.raises(VerificationError, match="the model is not its source: value is 1"):
        cf.to_jax(WARMUP_COSINE)
    cf.to_jax(WARMUP_COSINE, validate=False)


def test_the_verdict_on_a_rule(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = cf.optimizers.adamw(lr=1e-3)
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(4), "c": jnp.ones(5)}

    def update(**options: bool) -> None:
        optimizer = cf.to_jax(rule, **options)
        state = optimizer.init(params)
        for _ in range(2):
            _, state = optimizer.update(params, state, params)

    decide(monkeypatch, OPEN)
    with pytest.warns(UnprovedWarning, match="JAX of rule 'adamw' is not proved") as said:
        update()
    assert len(said) == 1
    update(validate=False)
    decide(monkeypatch, WRONG)
    with pytest.raises(VerificationError, match="the model is not its source"):
        update()
    update(validate=False)


@pytest.mark.parametrize("name", ["lamb", "adafactor"])
def test_a_rule_is_validated_with_one_parameter_of_each_kind(
    name: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[Graph] = []

    def record(source: UpdateRule, graph: Graph) -> Verdict:
        graphs.append(graph)
        return validate(source, graph)

    monkeypatch.setattr("closedform.verify.translation.verdicts.validate", record)
    optimizer = cf.to_jax(getattr(cf.optimizers, name)())
    shapes = {"a": (2, 3), "b": (4,), "c": (2, 3), "d": (5, 6), "e": (4,)}
    params = {key: jnp.ones(shape) for key, shape in shapes.items()}
    optimizer.update(params, optimizer.init(params), params)
    (graph,) = graphs
    outputs = {output.name for output in graph.outputs}
    assert {key for key in shapes if f"next.param.{key}" in outputs} == {"a", "b", "d"}


def test_arguments_that_are_refused() -> None:
    value = cf.to_jax(WARMUP_COSINE)
    with pytest.raises(SessionError) as caught:
        value(0.5)
    assert str(caught.value) == (
        "the step must be an integer, got float64 (schedule 'sequential'): pass the number of "
        "optimizer steps performed so far, starting at 0"
    )
    with pytest.raises(SessionError) as caught:
        jax.jit(value)(0.5)
    assert str(caught.value).startswith("the step must be an integer, got float")
    with jax.enable_x64(False), pytest.raises(ExportError, match="float64 is switched off in JAX"):
        cf.to_jax(WARMUP_COSINE, dtype="f64")
    with pytest.raises(ExportError, match="dtype is an option of schedules, got 'f32' for a rule"):
        cf.to_jax(cf.optimizers.sgd(0.1), dtype="f32")  # type: ignore[call-overload]
    with pytest.raises(ExportError, match="the source must be a Schedule or an UpdateRule"):
        cf.to_jax(3)  # type: ignore[call-overload]


# --- rules -------------------------------------------------------------------------------------


@pytest.mark.sample(every=9)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_beside_onnxruntime(name: str, wide: bool) -> None:
    rule = getattr(cf.optimizers, name)()
    shapes = shapes_for(rule)
    start = draw(1, shapes)
    session = OptimizerSession(rule, start, threads=1)
    optimizer = cf.to_jax(rule)
    params: Any = {key: jnp.asarray(value) for key, value in start.items()}
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for seed in range(2, 5):
        grads = draw(seed, shapes)
        others = {label: draw(seed + 10, shapes) for label in rule.inputs}
        session.step({**grads}, {key: {**value} for key, value in others.items()})
        with expect_unproved(name in UNPROVED and seed == 2):
            updates, state = update(grads, state, params, **others)
        params = optax.apply_updates(params, updates)
    assert int(state.count) == session.t == 3
    # A step rounds some ten times. Scalars in float32 lose what 1 - beta**t cancels.
    near = 2e-6 if wide else 2e-5
    near = near if name not in GROWING else 1e-3
    for key, expected in session.params.items():
        actual = np.asarray(params[key])
        if name in SIGNS:
            assert np.mean(np.abs(actual - expected) <= 2e-6 + near * np.abs(expected)) > 0.9, key
        else:
            np.testing.assert_allclose(actual, expected, rtol=near, atol=near, err_msg=key)
    for label, by_name in session.states.items():
        for key, expected in by_name.items():
            assert state.states[label][key].shape == expected.shape, (label, key)


OWN: dict[str, tuple[Any, Any]] = {
    "adam": (lambda lr: optax.adam(lr), lambda lr: cf.optimizers.adam(lr)),
    "adamw": (
        lambda lr: optax.adamw(lr, weight_decay=0.1),
        lambda lr: cf.optimizers.adamw(lr, weight_decay=0.1),
    ),
    "sgd": (lambda lr: optax.sgd(lr), lambda lr: cf.optimizers.sgd(lr)),
    "momentum": (
        lambda lr: optax.sgd(lr, momentum=0.9),
        lambda lr: cf.optimizers.sgd(lr, momentum=0.9),
    ),
    "adabelief": (lambda lr: optax.adabelief(lr), lambda lr: cf.from_optax(optax.adabelief(lr))),
    "yogi": (lambda lr: optax.yogi(lr), lambda lr: cf.from_optax(optax.yogi(lr))),
    "rmsprop": (lambda lr: optax.rmsprop(lr), lambda lr: cf.from_optax(optax.rmsprop(lr))),
}


@pytest.mark.parametrize("name", OWN)
def test_rules_of_optax(name: str) -> None:
    """100 steps of parameters of the size of weights: at most 1e-6 apart, 20 roundings of them."""
    theirs, ours = OWN[name]
    with jax.enable_x64(False):
        transformations: list[Any] = [theirs(1e-3), cf.to_jax(ours(1e-3))]
        start = {key: jnp.asarray(value / 8) for key, value in draw(3, SHAPES).items()}
        params: list[Any] = [start, start]
        states = [one.init(start) for one in transformations]
        updates = [jax.jit(one.update) for one in transformations]
        for seed in range(100):
            grads = draw(100 + seed, SHAPES)
            for k in range(2):
                with expect_unproved(name == "yogi" and k == 1 and seed == 0):
                    change, states[k] = updates[k](grads, states[k], params[k])
                params[k] = optax.apply_updates(params[k], change)
    apart = max(float(jnp.abs(params[0][key] - params[1][key]).max()) for key in start)
    moved = max(float(jnp.abs(start[key] - params[1][key]).max()) for key in start)
    assert apart <= 1e-6
    assert moved > 1e-3


def test_chain_mask_and_clip() -> None:
    shapes = {"w": (2, 3), "b": (3,)}
    rule = cf.optimizers.sgd(0.5)
    ours = optax.chain(
        optax.clip_by_global_norm(1.0), optax.masked(cf.to_jax(rule), {"w": True, "b": False})
    )
    theirs = optax.chain(
        optax.clip_by_global_norm(1.0), optax.masked(optax.sgd(0.5), {"w": True, "b": False})
    )
    params = {key: jnp.asarray(value) for key, value in draw(4, shapes).items()}
    grads = draw(5, shapes)
    results = [one.update(grads, one.init(params), params)[0] for one in (ours, theirs)]
    for key in shapes:
        np.testing.assert_allclose(results[0][key], results[1][key], rtol=1e-6, atol=2e-7)


def test_nested_parameters_of_16_bits_keep_their_dtype() -> None:
    params = {"layer": [jnp.ones((2, 2), jnp.bfloat16), jnp.zeros(2, jnp.float32)]}
    optimizer = cf.to_jax(cf.optimizers.adamw(lr=0.5))
    state = optimizer.init(params)
    updates, state = optimizer.update(params, state, params)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(updates)]
    assert dtypes == [jnp.bfloat16, jnp.float32]
    assert {leaf.dtype for leaf in jax.tree.leaves(state.states)} == {jnp.dtype("float32")}
    assert jax.tree.structure(state.states["exp_avg"]) == jax.tree.structure(params)


LARGEST = reduce_max(sp.Abs(GRAD), (1,), keepdims=True)
ROUNDED = {
    # XLA multiplies by the reciprocal of a divisor that is broadcast.
    "a quotient by the maximum of a row": State(GRAD / LARGEST),
    "a quotient by the maximum of all": State(GRAD / reduce_max(sp.Abs(GRAD))),
    # LLVM contracts a * b + c, also through a choice that it can decide.
    "a product of a whole number and a sum": State(state("integer") * sp.Rational(1, 7) + 100),
    "a product in a choice": State(
        sp.Piecewise((GRAD * sp.Rational(1, 7) + 3, GRAD > 0), (GRAD * sp.Rational(1, 3) + 5, True))
    ),
}


# The bits are compared: the prover does not decide each of these quotients and choices.
@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")
@pytest.mark.parametrize("name", ROUNDED)
def test_each_operation_of_a_rule_in_16_bits_is_rounded(name: str, wide: bool) -> None:
    """The states have the bits of onnxruntime."""
    integer = State(GRAD * 40, stored="i8")
    states = {"value": ROUNDED[name], "integer": integer}
    rule = UpdateRule("rounded", PARAM, states, stored="bf16")
    session = OptimizerSession(rule, {"w": np.ones((64, 32), BF16)})
    transformation = cf.to_jax(rule)
    params = {"w": jnp.ones((64, 32), jnp.bfloat16)}
    carried, update = transformation.init(params), jax.jit(transformation.update)
    for seed in range(3):
        gradient = np.random.default_rng(seed).normal(size=(64, 32)).astype(BF16)
        session.step({"w": gradient})
        _, carried = update({"w": jnp.asarray(gradient)}, carried, params)
    for label in states:
        actual = np.asarray(carried.states[label]["w"])
        np.testing.assert_array_equal(actual, session.states[label]["w"], err_msg=label)


def test_hyperparameters_without_a_value_are_arguments() -> None:
    rule = UpdateRule("descent", PARAM - cf.expr.hyper("lr") * cf.expr.GRAD, {}, {"lr": None})
    optimizer = cf.to_jax(rule)
    params = jnp.ones(3)
    state = optimizer.init(params)
    updates, state = jax.jit(optimizer.update)(params, state, params, lr=0.25, other="x" and 1)
    assert np.asarray(updates).tolist() == [-0.25] * 3
    with pytest.raises(SessionError) as caught:
        optimizer.update(params, state, params)
    assert str(caught.value) == (
        "hyperparameter 'lr' missing (rule 'descent'): update(…, params, lr=…)"
    )
    with pytest.raises(SessionError) as caught:
        optimizer.update(params, state)
    assert str(caught.value) == (
        "the current parameters are needed, got none (rule 'descent'): update(grads, state, params)"
    )
    with pytest.raises(SessionError, match="there are no parameters"):
        optimizer.init({})


def test_stablehlo_of_adamw_with_a_warmup_and_a_cosine_runs() -> None:
    with jax.enable_x64(False):
        optimizer = cf.to_jax(cf.optimizers.adamw(lr=WARMUP_COSINE, weight_decay=0.1))
        params = {key: jnp.asarray(value) for key, value in draw(7, SHAPES).items()}
        grads = {key: jnp.asarray(value) for key, value in draw(8, SHAPES).items()}
        state = optimizer.init(params)

        def step(grads: Any, state: Any, params: Any) -> Any:
            updates, (count, states, _) = optimizer.update(grads, state_of(*state), params)
            return optax.apply_updates(params, updates), (count, states)

        def state_of(count: Any, states: Any) -> Any:
            return type(state)(count, states, {})

        from jax import export

        plain = state.count + 2500, state.states
        exported = export.export(jax.jit(step))(grads, plain, params)
        assert "stablehlo" in exported.mlir_module()
        loaded = export.deserialize(exported.serialize())
        after, (count, _) = loaded.call(grads, plain, params)
        assert int(count) == 2501
        wanted, _ = jax.jit(step)(grads, plain, params)
        for key, value in wanted.items():
            assert np.array_equal(np.asarray(after[key]), np.asarray(value))
            assert not np.array_equal(np.asarray(value), np.asarray(params[key]))
