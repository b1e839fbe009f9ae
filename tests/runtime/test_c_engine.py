"""Sessions in compiled C beside sessions in onnxruntime, and what C refuses."""

from collections.abc import Mapping

import numpy as np
import pytest

import closedform as cf
from closedform.errors import SessionError
from closedform.expr import GRAD, PARAM, hyper
from closedform.ir.graph import Array
from closedform.language import Group, UpdateRule
from closedform.runtime import OptimizerSession
from closedform.runtime.c_library import c_compiler
from tests.runtime.sessions import AVERAGED, SHAPES, draw, snapshot

needs_compiler = pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler")

WARMUP = cf.schedules.linear(0, 0.1, 3).then(cf.schedules.cosine(0.1, 0, 10))
CLIPPED = cf.transforms.clip_by_global_norm(cf.optimizers.adamw(lr=WARMUP), 0.5)


def trained(
    rule: UpdateRule,
    backend: str,
    *,
    groups: tuple[Group, ...] = (),
    threads: int = 1,
    missing: str | None = None,
) -> OptimizerSession:
    session = OptimizerSession(rule, draw(50), groups=groups, threads=threads, backend=backend)
    for seed in range(51, 55):
        grads: dict[str, Array | None] = {**draw(seed)}
        if missing is not None:
            grads[missing] = None
        session.step(grads)
    return session


def assert_near(actual: OptimizerSession, expected: OptimizerSession) -> None:
    """Equal but for scalars in whose last place libm and onnxruntime differ, over four steps."""
    assert actual.t == expected.t
    both = [(actual.params, expected.params)]
    both += [(actual.states[name], expected.states[name]) for name in expected.states]
    for ours, theirs in both:
        compare(ours, theirs)
    compare(actual.shared, expected.shared)


def compare(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        np.testing.assert_allclose(ours[name], value, rtol=3e-6, atol=1e-6, err_msg=name)


@needs_compiler
@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        (CLIPPED, None),
        (CLIPPED, "w"),
        (cf.optimizers.prodigy(), "layer.0.bias"),
        (cf.optimizers.schedule_free_adamw(0.1), None),
        (AVERAGED, None),
    ],
    ids=["clipped", "clipped-missing", "prodigy", "schedule_free", "averaged"],
)
def test_c_steps_as_onnxruntime_does(rule: UpdateRule, missing: str | None) -> None:
    actual = trained(rule, "c", missing=missing)
    expected = trained(rule, "onnxruntime", missing=missing)
    assert_near(actual, expected)
    compare(actual.evaluated(), expected.evaluated())


@needs_compiler
def test_groups_share_their_sums() -> None:
    groups = (Group(("*bias",), cf.transforms.clip_by_global_norm(cf.optimizers.sgd(0.5), 0.5)),)
    actual = trained(CLIPPED, "c", groups=groups)
    assert_near(actual, trained(CLIPPED, "onnxruntime", groups=groups))


@needs_compiler
def test_threads_do_not_change_bits() -> None:
    rng = np.random.default_rng(56)
    params = {"a": rng.normal(size=150_000).astype(np.float32), "b": np.ones(3, np.float32)}
    grads: dict[str, Array | None] = {
        name: rng.normal(size=array.shape).astype(np.float32) for name, array in params.items()
    }
    sessions = [OptimizerSession(CLIPPED, params, backend="c", threads=n) for n in (1, 3)]
    for session in sessions:
        session.step(grads)
        session.step(grads)
    assert snapshot(sessions[0]) == snapshot(sessions[1])
    assert not np.array_equal(sessions[0].params["a"], params["a"])


@needs_compiler
def test_a_state_dict_moves_between_backends() -> None:
    rule = cf.optimizers.prodigy()
    first = trained(rule, "onnxruntime")
    second = OptimizerSession(rule, draw(60), backend="c")
    second.load_state_dict(first.state_dict())
    assert snapshot(second) == snapshot(first)
    second.step({**draw(61)})
    first.step({**draw(61)})
    assert_near(second, first)


@needs_compiler
def test_hyperparameters_and_float64() -> None:
    rule = UpdateRule("descent", PARAM - hyper("lr") * GRAD, {}, {"lr": None})
    params = {"w": np.array([1.0, 2.0])}
    session = OptimizerSession(rule, params, backend="c")
    session.step({"w": np.array([1.0, -1.0])}, lr=0.25)
    assert session.params["w"].tolist() == [0.75, 2.25]
    assert params["w"].tolist() == [1.0, 2.0]
    with pytest.raises(SessionError, match="'lr' missing"):
        session.step({"w": np.zeros(2)})


@needs_compiler
def test_a_gradient_that_is_written_is_refused() -> None:
    session = OptimizerSession(AVERAGED, draw(62), backend="c")
    grads: dict[str, Array | None] = {**draw(63), "w": session.params["w"]}
    with pytest.raises(SessionError, match="the gradient of 'w' overlaps memory"):
        session.step(grads)


INVALID = (
    (
        lambda: OptimizerSession(AVERAGED, draw(1), backend="fortran"),
        "backend must be one of onnxruntime, c, got 'fortran' (rule 'averaged')",
    ),
    (
        lambda: OptimizerSession(AVERAGED, draw(1), backend="c", providers=["X"]),
        "providers are those of onnxruntime, got ['X'] with the backend 'c' (rule 'averaged'): "
        "leave them out",
    ),
    (
        lambda: OptimizerSession(
            cf.optimizers.lamb(), {"w": np.zeros((2, 2), np.float32)}, backend="c"
        ),
        "C functions are called for parts of tensors, and this rule looks at shapes or at whole "
        "tensors (rule 'lamb'): run it with backend=\"onnxruntime\"",
    ),
)


@pytest.mark.parametrize(("action", "message"), INVALID, ids=[m[:24] for _, m in INVALID])
def test_invalid_sessions(action: object, message: str) -> None:
    assert callable(action)
    with pytest.raises(SessionError) as caught:
        action()
    assert str(caught.value) == message


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "there-is-none --flag")
    with pytest.raises(SessionError) as caught:
        OptimizerSession(AVERAGED, draw(1), backend="c")
    assert str(caught.value) == (
        "a C compiler is needed, and there-is-none --flag is not in the path: install one, or set "
        "CC to its command"
    )


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SessionError, match="the C compiler false failed"):
        OptimizerSession(AVERAGED, {n: a for n, a in draw(1).items() if n in SHAPES}, backend="c")
