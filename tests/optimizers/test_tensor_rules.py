"""Rules on whole tensors: beside public packages, their static structure, and what is refused.

``tests/reference/optimizers_tensor.npz`` holds ten float64 steps of each, written by
``make_optimizers_tensor.py`` from timm 1.0.31 and pytorch_optimizer 4.1.0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import frameworks, optimizers
from closedform.compiler import compile_init, compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime import OptimizerSession
from tests.reference.records import ROOT

Array = NDArray[Any]

with np.load(ROOT / "optimizers_tensor.npz") as file:
    TRAJECTORIES = dict(file)

RULES: dict[str, Callable[[], UpdateRule]] = {
    "lars": lambda: optimizers.lars(0.1, 0.8, 0.1),
    "lars_nesterov": lambda: optimizers.lars(0.1, 0.8, trust_coefficient=0.01, nesterov=True),
    "novograd": lambda: optimizers.novograd(0.01, (0.8, 0.9), weight_decay=0.1),
    "came": lambda: optimizers.came(0.01, betas=(0.9, 0.99, 0.999), weight_decay=0.1),
    "stable_adamw": lambda: optimizers.stable_adamw(0.01, (0.9, 0.99), weight_decay=0.1),
    "sm3": lambda: optimizers.sm3(0.1, (0, 1)),
}


# The parameters and gradients are those of ``optimizers_other.npz``.
with np.load(ROOT / "optimizers_other.npz") as file:
    START, GIVEN = file["start"], file["gradients"]
PACKAGE_SHAPES: dict[str, tuple[int, ...]] = {"p0": (2, 3), "p1": (4,), "p2": ()}


def split(flat: Array, prefix: str) -> dict[str, Array]:
    ends = np.cumsum([int(np.prod(shape)) for shape in PACKAGE_SHAPES.values()])[:-1]
    named = zip(PACKAGE_SHAPES.items(), np.split(flat, ends), strict=True)
    return {f"{prefix}.{name}": part.reshape(shape) for (name, shape), part in named}


@pytest.mark.parametrize("key", RULES)
def test_trajectory_is_that_of_the_package(key: str) -> None:
    rule = RULES[key]()
    graph = compile_step(ModelSpec(rule, PACKAGE_SHAPES), GraphOptions(dtype=DType.F64))
    first = evaluate(
        compile_init(ModelSpec(rule, PACKAGE_SHAPES), GraphOptions(dtype=DType.F64)), {}
    )
    feed: dict[str, Any] = {**split(START, "param"), **first}
    for gradient, theirs in zip(GIVEN, TRAJECTORIES[key], strict=True):
        results = evaluate(graph, {**feed, **split(gradient, "grad")})
        feed = {name.removeprefix("next."): value for name, value in results.items()}
        found = np.concatenate([np.ravel(feed[f"param.{name}"]) for name in PACKAGE_SHAPES])
        # Ten steps of about 20 roundings of 1.1e-16, on parameters near 1.
        np.testing.assert_allclose(found, theirs, rtol=1e-12, atol=1e-12)


def step_of(rule: UpdateRule, gradient: Array, start: Array) -> Array:
    """The parameter after the first step, in float64."""
    graph = compile_step(ModelSpec(rule, {"w": start.shape}), GraphOptions(dtype=DType.F64))
    feed: dict[str, Any] = {"step": np.int64(0), "param.w": start, "grad.w": gradient}
    feed |= evaluate(
        compile_init(ModelSpec(rule, {"w": start.shape}), GraphOptions(dtype=DType.F64)), {}
    )
    return np.asarray(evaluate(graph, feed)["next.param.w"])


def iterated(matrix: Array, steps: int) -> Array:
    """Newton-Schulz as the paper writes it, a matrix with no more rows than columns."""
    x: Array = matrix / np.linalg.norm(matrix)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_muon_makes_its_direction_orthogonal(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    start, gradient = rng.normal(size=shape), rng.normal(size=shape)
    rule = optimizers.muon(0.1, 0, nesterov=False)
    moved = (start - step_of(rule, gradient, start)) / 0.1
    scale = max(1, shape[0] / shape[1]) ** 0.5
    wide = gradient if shape[0] <= shape[1] else gradient.T
    expected = iterated(wide, 5)
    expected = expected if shape[0] <= shape[1] else expected.T
    # Five iterations of matrix products of float64 numbers near 1.
    np.testing.assert_allclose(moved, scale * expected, rtol=1e-12, atol=1e-13)
    values = np.linalg.svd(moved / scale, compute_uv=False)
    # The coefficients let singular values end between 0.68 and 1.21 (Jordan et al.).
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_muon_of_a_kernel_is_that_of_its_matrix_and_batches_are_apart() -> None:
    rng = np.random.default_rng(2)
    gradient = rng.normal(size=(4, 2, 3, 2))
    rule = optimizers.muon(0.1, 0)
    kernel = step_of(rule, gradient, np.zeros((4, 2, 3, 2)))
    matrix = step_of(rule, gradient.reshape(4, 12), np.zeros((4, 12)))
    # The scale takes the first two axes of the parameter: 4 over 2, and 4 over 12.
    np.testing.assert_allclose(kernel.reshape(4, 12), matrix * 2**0.5, rtol=1e-12)
    batch = rng.normal(size=(2, 3, 5))
    whole = step_of(rule, batch, np.zeros((2, 3, 5)))
    for place in range(2):
        alone = step_of(rule, batch[place], np.zeros((3, 5)))
        np.testing.assert_allclose(whole[place], alone, rtol=1e-12)


def test_muon_updates_its_momentum_except_in_cerebras() -> None:
    for as_implemented in (False, True):
        rule = frameworks.optimizer(
            "cerebras", "Muon", {"ns_steps": 1}, as_implemented=as_implemented
        )
        graph = compile_step(ModelSpec(rule, {"w": (3, 4)}))
        feed: dict[str, Any] = {
            "step": np.int64(0),
            "param.w": np.ones((3, 4), np.float32),
            "grad.w": np.ones((3, 4), np.float32),
            "state.w.momentum_buffer": np.zeros((3, 4), np.float32),
        }
        buffer = evaluate(graph, feed)["next.state.w.momentum_buffer"]
        np.testing.assert_allclose(buffer, 0 if as_implemented else 0.05, rtol=2e-7)  # float32


def test_adafactor_of_a_batch_is_that_of_its_matrices() -> None:
    rng = np.random.default_rng(3)
    gradient = rng.normal(size=(2, 3, 5))
    # Without the scale of the parameter and with no clipping nothing is over the whole tensor.
    rule = optimizers.adafactor(0.1, clip_threshold=1e6, scale_parameter=False)
    whole = step_of(rule, gradient, np.zeros((2, 3, 5)))
    for place in range(2):
        alone = step_of(rule, gradient[place], np.zeros((3, 5)))
        np.testing.assert_allclose(whole[place], alone, rtol=1e-13)


SHAPES = [(), (5,), (3, 4), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_states_of_adafactor_by_rank(shape: tuple[int, ...]) -> None:
    for clamped, (row, column, whole) in (
        (False, ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq")),
        (True, ("row_var", "col_var", "variance")),
    ):
        made = optimizers.adafactor(floor="clamped" if clamped else "added").for_shape(shape)
        found = {name: made.state_shape(name, shape) for name in made.states}
        if len(shape) < 2:
            assert found == {whole: shape}
            continue
        size = 1 if clamped else None
        rows = (*shape[:-1], size) if clamped else shape[:-1]
        columns = (*shape[:-2], size, shape[-1]) if clamped else (*shape[:-2], shape[-1])
        assert found == {row: rows, column: columns}


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "muon of a vector": (
        lambda: compile_step(ModelSpec(optimizers.muon(), {"bias": (7,)})),
        "the rule is only for shapes with shape.rank >= 2 (rule 'muon', shape [7] of parameter "
        "'bias'): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
    "muon of an empty axis": (
        lambda: compile_step(ModelSpec(optimizers.muon(), {"w": (3, 0)})),
        "a formula divides by a size, and the shape has an axis of size 0 (rule 'muon', shape "
        "[3, 0] of parameter 'w'): leave empty parameters out, or give them another rule",
    ),
    "torch's muon of a batch": (
        lambda: frameworks.optimizer("torch", "Muon", {}).for_shape((2, 3, 4)),
        "the rule is only for shapes with Eq(shape.rank, 2) (rule 'muon', shape [2, 3, 4]): give "
        "the other parameters another rule: groups=[Group('*.bias', rule=…), …]",
    ),
    "muon coefficients": (
        lambda: optimizers.muon(ns_coefficients=(1, 2)),
        "ns_coefficients must be three numbers, got (1, 2) (muon): try (3.4445, -4.775, 2.0315)",
    ),
    "muon steps": (
        lambda: optimizers.muon(ns_steps=-3),
        "ns_steps must be an integer >= 0, got -3 (muon)",
    ),
    "muon many steps": (
        lambda: optimizers.muon(ns_steps=10**6),
        "ns_steps must be at most 100, got 1000000 (muon)",
    ),
    "shampoo many steps": (
        lambda: optimizers.shampoo(root_steps=10**5000),
        "root_steps must be at most 100, got a number of 5001 digits (shampoo)",
    ),
    "muon precision": (
        lambda: optimizers.muon(precision="f8"),
        "precision must be one of parameter, bf16, bf16_fused, got 'f8' (muon): "
        "known are bf16, bf16_fused, parameter",
    ),
    "adafactor threshold": (
        lambda: optimizers.adafactor(clip_threshold=0),
        "clip_threshold must be above 0, got 0 (adafactor)",
    ),
    "adafactor eps": (
        lambda: optimizers.adafactor(eps=(1e-30,)),
        "eps must be two numbers, got (1e-30,) (adafactor): try (1e-30, 0.001)",
    ),
    "adafactor floor": (
        lambda: optimizers.adafactor(floor="none"),
        "floor must be one of added, clamped, got 'none' (adafactor): known are added, clamped",
    ),
    "adafactor of cerebras": (
        lambda: frameworks.optimizer("cerebras", "Adafactor", {"lr": 1, "warmup_init": True}),
        "Adafactor has no warmup_init, got True (cerebras > Adafactor): schedule lr: the step here "
        "reads nothing else",
    ),
    "adafactor of transformers with both": (
        lambda: frameworks.optimizer("huggingface", "Adafactor", {"lr": 0.25}),
        "with relative_step the step sets lr itself, got lr 0.25 (huggingface > Adafactor): omit "
        "lr, or give relative_step=False",
    ),
    "adafactor of transformers, warmup alone": (
        lambda: frameworks.optimizer(
            "huggingface", "Adafactor", {"relative_step": False, "warmup_init": True}
        ),
        "warmup_init needs relative_step, got False (huggingface > Adafactor): omit one of them",
    ),
    "came betas": (
        lambda: optimizers.came(betas=(0.9, 0.99)),
        "betas must be three numbers, got (0.9, 0.99) (came): try (0.9, 0.999, 0.9999)",
    ),
    "sm3 form": (
        lambda: optimizers.sm3(form="III"),
        "form must be one of I, II, got 'III' (sm3): did you mean 'II'?",
    ),
    "sm3 first beta": (
        lambda: optimizers.sm3(betas=(1, 0.5)),
        "betas[0] must be in [0, 1), got 1 (sm3)",
    ),
    "sm3 second beta": (
        lambda: optimizers.sm3(betas=(0.5, 1.5)),
        "betas[1] must be in [0, 1], got 1.5 (sm3)",
    ),
    "sm3 of nine axes": (
        lambda: compile_step(ModelSpec(optimizers.sm3(), {"w": (2,) * 9})),
        "the rule is only for shapes with shape.rank <= 8 (rule 'sm3', shape [2, 2, 2, 2, 2, 2, "
        "2, 2, 2] of parameter 'w'): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
    "lars rate": (lambda: optimizers.lars(lr=-2), "lr must be >= 0, got -2 (lars)"),
    "novograd flag": (
        lambda: optimizers.novograd(grad_averaging=3),  # type: ignore[arg-type]
        "grad_averaging must be True or False, got int 3 (novograd)",
    ),
    "stable_adamw betas": (
        lambda: optimizers.stable_adamw(betas=(0.5, 1)),
        "betas[1] must be in [0, 1), got 1 (stable_adamw)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message


OTHERS = [name for name in optimizers.__all__ if name != "muon"]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3)], ids=str)
def test_empty_parameters_take_a_step(name: str, shape: tuple[int, ...]) -> None:
    rule = getattr(optimizers, name)()
    empty = {"w": np.ones(shape, np.float32)}
    session = OptimizerSession(rule, empty, threads=1)
    numbers = {"loss": 1.0} if name == "momo" else {}
    session.step({**empty}, {label: {**empty} for label in rule.inputs}, **numbers)
    assert session.params["w"].shape == shape


@pytest.mark.parametrize("shape", [(30, 33), (128, 64), (64, 128)])
def test_the_default_of_shampoo_is_finite_in_float32(shape: tuple[int, int]) -> None:
    """The product of a tall matrix with its transpose has eigenvalues below 0, by rounding."""
    start = {"w": np.zeros(shape, np.float32)}
    gradient = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    session = OptimizerSession(optimizers.shampoo(lr=1), start)
    session.step({"w": gradient})
    left, values, right = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    # Both fourth roots together divide a singular value by the root of its square.
    exact = -(left * values / np.sqrt(values**2 + 1e-6)) @ right
    # A fourth root of the condition number that is left, 2**21 at most, times a rounding.
    np.testing.assert_allclose(session.params["w"], exact, rtol=0, atol=2e-3 * np.abs(exact).max())
