"""Every optimizer, transformation and schedule of optax: traced, exported, run beside the original.

Not collected with the tests, since jax and optax are not development dependencies. In an
environment that has them::

    python -m pytest -s tests/importers/compare_optax.py

The names are those that optax and optax.contrib export and that return a transformation or a
schedule; each that depends on gradients, parameters and count alone is traced. The files of a rule
run 50 steps in onnxruntime in float64 beside the genuine transformation, in which float32 is
float64, too; the largest difference is relative to the largest element of the parameter. The table
that is printed has a line for each, and the refused ones with their reason.
"""

import doctest
import inspect
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.optax.check import Original
from closedform.importers.optax.hypers import variables_of
from closedform.importers.optax.jaxprs import double_precision
from closedform.importers.tensors.check import without_rounding

pytestmark = pytest.mark.packages()
STEPS = 50
SHAPES: dict[str, tuple[int, ...]] = {"wide": (4, 6), "tall": (7, 5), "vector": (5,)}
RATE = 1e-2
# The sums of a step in another order, 50 times.
TOLERANCE = 1e-10
MEDIAN_SECONDS, MEDIAN_MILLISECONDS = 2.0, 50.0


def matrices(params: Any) -> Any:
    return jax.tree.map(lambda x: x.ndim > 1, params)


def adam() -> Any:
    return optax.adam(RATE)


def after(transformation: Any) -> Any:
    return optax.chain(transformation, optax.sgd(RATE))


# Those that are not built with their defaults, or with a learning rate.
BUILT: Mapping[str, Callable[[], Any]] = {
    "adafactor factored": lambda: optax.adafactor(RATE, min_dim_size_to_factor=4),
    "adamw masked": lambda: optax.adamw(RATE, weight_decay=0.1, mask=matrices),
    "adaptive_grad_clip": lambda: after(optax.adaptive_grad_clip(0.1)),
    "apply_every": lambda: optax.chain(adam(), optax.apply_every(4)),
    "apply_if_finite": lambda: optax.apply_if_finite(adam(), 3),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(RATE)),
    "clip": lambda: after(optax.clip(0.5)),
    "clip_by_block_rms": lambda: after(optax.clip_by_block_rms(0.5)),
    "clip_by_global_norm": lambda: after(optax.clip_by_global_norm(1.0)),
    "conditionally_mask": lambda: optax.conditionally_mask(adam(), lambda step: step % 2 == 0),
    "conditionally_transform": lambda: optax.conditionally_transform(
        adam(), lambda step: step % 2 == 0
    ),
    "ema": lambda: after(optax.ema(0.9)),
    "freeze": lambda: optax.chain(adam(), optax.freeze(matrices)),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adamw)(
        optax.warmup_cosine_decay_schedule(0.0, RATE, 10, 40), weight_decay=0.1
    ),
    "inject_stateful_hyperparams": lambda: optax.inject_stateful_hyperparams(optax.adam)(
        optax.exponential_decay(RATE, 10, 0.5)
    ),
    "keep_params_nonnegative": lambda: optax.chain(adam(), optax.keep_params_nonnegative()),
    "masked": lambda: optax.chain(
        optax.masked(optax.clip_by_global_norm(1.0), matrices), optax.sgd(RATE)
    ),
    "multi_transform": lambda: optax.multi_transform(
        {"matrix": adam(), "vector": optax.sgd(RATE, momentum=0.9)},
        lambda params: jax.tree.map(lambda x: "matrix" if x.ndim > 1 else "vector", params),
    ),
    "multi_transform with norms": lambda: optax.multi_transform(
        {label: after(optax.clip_by_global_norm(1.0)) for label in ("first", "rest")},
        {"wide": "first", "tall": "rest", "vector": "rest"},
    ),
    "MultiSteps": lambda: optax.MultiSteps(adam(), 3),
    "MultiSteps skip_not_finite": lambda: optax.MultiSteps(
        optax.sgd(RATE), 3, should_skip_update_fn=optax.skip_not_finite
    ),
    "named_chain": lambda: optax.named_chain(("a", optax.trace(0.9)), ("b", optax.scale(-RATE))),
    "normalize_by_update_norm": lambda: after(optax.normalize_by_update_norm()),
    "partition": lambda: optax.partition(
        {"matrix": adam(), "vector": optax.set_to_zero()},
        lambda params: jax.tree.map(lambda x: "matrix" if x.ndim > 1 else "vector", params),
    ),
    "scale": lambda: optax.scale(-RATE),
    "scale_by_schedule": lambda: optax.scale_by_schedule(optax.linear_schedule(-RATE, 0.0, 30)),
    "selective_transform": lambda: optax.selective_transform(adam(), freeze_mask=matrices),
    "sgd momentum": lambda: optax.sgd(RATE, momentum=0.9, nesterov=True),
    "adamw schedule": lambda: optax.adamw(optax.cosine_decay_schedule(RATE, 40)),
    "adamw bf16": lambda: optax.adamw(RATE, mu_dtype=jnp.bfloat16),
    "trace": lambda: after(optax.trace(0.9)),
    "zero_nans": lambda: after(optax.zero_nans()),
    "contrib.sam": lambda: optax.contrib.sam(
        optax.sgd(RATE), optax.chain(optax.contrib.normalize(), optax.sgd(0.05)), sync_period=2
    ),
    # The default scale of 1e-6 moves no parameter in 50 steps.
    "contrib.mechanize": lambda: optax.contrib.mechanize(optax.sgd(0.1), s_init=0.1),
    # optax itself raises an error without dimension numbers, which contrib.muon passes.
    "contrib.scale_by_muon": lambda: optax.chain(
        optax.masked(
            optax.contrib.scale_by_muon(
                weight_dimension_numbers=lambda params: jax.tree.map(
                    lambda _: optax.contrib.MuonDimensionNumbers(), params
                )
            ),
            matrices,
        ),
        optax.scale(-RATE),
    ),
    "contrib.schedule_free": lambda: optax.contrib.schedule_free(optax.sgd(RATE), RATE),
}

OTHER_ARGUMENTS = {
    "add_noise": "random numbers",
    "noisy_sgd": "random numbers",
    "contrib.dpsgd": "random numbers",
    "contrib.differentially_private_aggregate": "random numbers",
    "contrib.galore": "the projections are those of decompositions at some steps",
    "contrib.scale_by_galore": "the projections are those of decompositions at some steps",
    "polyak_sgd": "takes the value of the loss",
    "scale_by_polyak": "takes the value of the loss",
    "contrib.momo": "takes the value of the loss",
    "contrib.momo_adam": "takes the value of the loss",
    "contrib.reduce_on_plateau": "takes the value of the loss",
    "lbfgs": "takes the function of the loss",
    "scale_by_backtracking_linesearch": "takes the function of the loss",
    "scale_by_zoom_linesearch": "takes the function of the loss",
    "contrib.sophia": "takes the function of the loss",
    "lookahead": "takes pairs of parameters",
    "measure_with_ema": "is for values that are read from the state",
    "snapshot": "is for values that are read from the state",
    "contrib.split_real_and_imaginary": "is for complex parameters",
    "stateless": "is a function of a function",
    "stateless_with_tree_map": "is a function of a function",
    "with_extra_args_support": "is a function of a transformation",
}
"""Those that are not functions of gradients, parameters and count."""

REFUSED: Mapping[str, str] = {
    "flatten": "tensors are concatenated",
    "scale_by_lbfgs": "rows of a tensor are replaced at an index",
}
"""Those that are refused, and a part of the reason that is given."""

SCHEDULES: Mapping[str, Callable[[], Any]] = {
    "constant_schedule": lambda: optax.constant_schedule(0.1),
    "cosine_decay_schedule": lambda: optax.cosine_decay_schedule(0.1, 1000, 0.1, 1.5),
    "cosine_onecycle_schedule": lambda: optax.cosine_onecycle_schedule(1000, 0.1),
    "exponential_decay": lambda: optax.exponential_decay(0.1, 100, 0.5, 20, True, 1e-3),
    "join_schedules": lambda: optax.join_schedules(
        [optax.linear_schedule(0.0, 0.1, 50), optax.cosine_decay_schedule(0.1, 200)], [50]
    ),
    "linear_onecycle_schedule": lambda: optax.linear_onecycle_schedule(1000, 0.1),
    "linear_schedule": lambda: optax.linear_schedule(0.1, 0.0, 100, 7),
    "piecewise_constant_schedule": lambda: optax.piecewise_constant_schedule(
        0.1, {50: 0.5, 100: 0.2}
    ),
    "piecewise_interpolate_schedule": lambda: optax.piecewise_interpolate_schedule(
        "cosine", 0.1, {50: 0.5, 100: 0.2}
    ),
    "polynomial_schedule": lambda: optax.polynomial_schedule(0.1, 0.01, 2, 100, 10),
    "sgdr_schedule": lambda: optax.sgdr_schedule(
        [
            {
                "init_value": 0.0,
                "peak_value": 0.1,
                "decay_steps": 100,
                "warmup_steps": 10,
                "end_value": 0.01,
            }
        ]
        * 3
    ),
    "warmup_constant_schedule": lambda: optax.warmup_constant_schedule(0.0, 0.1, 30),
    "warmup_cosine_decay_schedule": lambda: optax.warmup_cosine_decay_schedule(
        0.0, 0.1, 30, 300, 0.01
    ),
    "warmup_exponential_decay_schedule": lambda: optax.warmup_exponential_decay_schedule(
        0.0, 0.1, 30, 100, 0.5, 10, True, 0.001
    ),
}


def public(module: Any, prefix: str) -> Iterator[str]:
    """The public functions of a module that return a transformation."""
    for name in sorted(dir(module)):
        found = getattr(module, name)
        if name.startswith("_") or not inspect.isfunction(found):
            continue
        if "GradientTransformation" in str(inspect.signature(found).return_annotation):
            yield f"{prefix}{name}"


TRANSFORMATIONS = [*public(optax, ""), *public(optax.contrib, "contrib.")]
NAMES = sorted({*TRANSFORMATIONS, *BUILT} - set(OTHER_ARGUMENTS))


def built(name: str) -> Any:
    if name in BUILT:
        return BUILT[name]()
    module = optax.contrib if name.startswith("contrib.") else optax
    make: Any = getattr(module, name.removeprefix("contrib."))
    known = inspect.signature(make).parameters
    needs_rate = "learning_rate" in known and known["learning_rate"].default is inspect._empty
    options = {"learning_rate": RATE} if needs_rate else {}
    if any(p.default is inspect._empty and key not in options for key, p in known.items()):
        if "inner" in known:
            options["inner"] = optax.sgd(RATE)
        if "base_optimizer" in known:
            options["base_optimizer"] = optax.sgd(RATE)
    return make(**options)


def largest_difference(
    traced: cf.UpdateRule | list[cf.Group], transformation: Any, folder: Path
) -> float:
    """The largest relative difference between the files of the rule and the transformation."""
    groups = traced if isinstance(traced, list) else []
    rule: Any = groups[0].rule if isinstance(traced, list) else traced
    exact = without_rounding(rule)
    cf.to_onnx(exact, folder, params=SHAPES, groups=groups[1:], dtype="f64", validate=False)
    rng = np.random.default_rng(9)
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    session = cf.OptimizerSession.from_files(folder, {k: v.copy() for k, v in start.items()})
    worst = 0.0
    with double_precision():
        original = Original(
            transformation,
            {name: jnp.asarray(value) for name, value in start.items()},
            variables_of(transformation.update),
            is_exact=exact is not rule,
        )
        for _ in range(STEPS):
            gradients = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
            original.step({name: jnp.asarray(value) for name, value in gradients.items()})
            session.step(gradients)
            for name, param in original.params.items():
                expected = np.asarray(param)
                gap = np.max(np.abs(session.params[name] - expected)) / np.max(np.abs(expected))
                worst = max(worst, float(gap) if np.isfinite(gap) else np.inf)
    return worst


def line(row: tuple[Any, ...]) -> str:
    name, outcome, seconds, reason = row
    shown = f"{outcome:.1e}" if isinstance(outcome, float) else outcome
    return f"{name:34} {shown:10} {seconds:6.2f} s  {reason[:160]}"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def params() -> Any:
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in SHAPES.items()}


def test_the_transformations_of_optax_are_traced(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = []
    cf.from_optax(optax.sgd(RATE))  # imports
    for place, name in enumerate(NAMES):
        transformation = built(name)
        begin = time.perf_counter()
        try:
            traced = cf.from_optax(transformation, params(), name="traced")
        except TraceError as error:
            rows.append((name, "refused", time.perf_counter() - begin, str(error)))
        else:
            seconds = time.perf_counter() - begin
            gap = largest_difference(traced, transformation, tmp_path / str(place))
            rows.append((name, gap, seconds, ""))
        print(line(rows[-1]), flush=True)
    for name, reason in OTHER_ARGUMENTS.items():
        print(f"{name:34} not counted: {reason}")
    traced_rows = [row for row in rows if isinstance(row[1], float) and row[1] <= TOLERANCE]
    seconds = statistics.median(row[2] for row in traced_rows)
    print(f"{len(traced_rows)} of {len(rows)} traced, {seconds:.2f} s median")
    assert not [row for row in rows if isinstance(row[1], float) and not row[1] <= TOLERANCE]
    refused = [row for row in rows if isinstance(row[1], str)]
    assert not [row for row in refused if REFUSED.get(row[0], "?") not in row[3]]
    assert seconds <= MEDIAN_SECONDS


def test_all_names_that_are_refused_or_not_counted_exist() -> None:
    assert set(REFUSED) <= set(NAMES)
    assert set(OTHER_ARGUMENTS) <= set(TRANSFORMATIONS)


def test_the_schedules_of_optax_are_traced(tmp_path: Path) -> None:
    exported = {name for name in dir(optax.schedules) if not name.startswith("_")}
    makers = {name for name in exported if "schedule" in name or name.endswith("_decay")}
    assert makers == set(SCHEDULES)
    for make in SCHEDULES.values():
        cf.from_optax(make())  # XLA compiles each operation once in a process
    times = []
    for name, make in SCHEDULES.items():
        original = make()
        begin = time.process_time()
        schedule = cf.from_optax(original)
        times.append(1000 * (time.process_time() - begin))
        cf.to_onnx(schedule, tmp_path / f"{name}.onnx")
        session = cf.ScheduleSession(tmp_path / f"{name}.onnx")
        steps = [0, 1, 7, 29, 30, 31, 49, 50, 51, 99, 100, 101, 299, 300, 301, 849, 850, 999, 5000]
        with double_precision():
            expected = [float(original(jnp.asarray(step, dtype=jnp.int32))) for step in steps]
        largest = max(map(abs, expected))
        pairs = zip(steps, expected, strict=True)
        gap = max(abs(float(session(step)) - value) for step, value in pairs) / largest
        print(f"{name:34} {gap:.1e} {times[-1]:8.1f} ms")
        # Some constructors compute in float32.
        assert gap <= 1e-6
    print(f"{statistics.median(times):.1f} ms median")
    assert statistics.median(times) <= MEDIAN_MILLISECONDS


@pytest.mark.parametrize("power", [0.5, 1.5])
@pytest.mark.parametrize("steps", [13, 17, 20])
def test_an_update_with_a_power_of_what_is_left_of_the_run_is_read(
    power: float, steps: int
) -> None:
    schedule = optax.polynomial_schedule(0.1, 0.0, power, steps, 3)
    rule = cf.from_optax(optax.sgd(schedule))
    assert isinstance(rule, cf.UpdateRule)


def test_the_example_of_from_optax_runs() -> None:
    text = (cf.from_optax.__doc__ or "").replace("# doctest: +SKIP", "")
    test = doctest.DocTestParser().get_doctest(text, {}, "from_optax", None, None)
    found = doctest.DocTestRunner().run(test)
    assert (found.attempted, found.failed) == (5, 0)
