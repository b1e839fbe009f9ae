"""The frameworks beside the installed packages over drawn arguments: every step, and past the end.

Not collected with the tests, since its packages are not development dependencies; `make compare`
makes an environment with them and runs it. Each test draws arguments for one class, runs the class
itself and the schedule that the framework builds, and counts the values that were compared.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optax
import pytest
import pytorch_accelerated.schedulers as accelerated
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import optimization

from closedform import frameworks
from tests.recipes.installed import timm_scheduler
from tests.support.metrics import run_metric_rule

# The warnings are of the packages: deprecations, step order.
pytestmark = [pytest.mark.packages(JAX_ENABLE_X64="1"), pytest.mark.filterwarnings("ignore")]

TIMM_SCHEDULER = timm_scheduler()
STEPS = 75
COMPARED: Counter[str] = Counter()

Kwargs = dict[str, Any]
Drawn = st.SearchStrategy[Kwargs]


def drawn(**arguments: Any) -> Drawn:
    """Arguments by name; one under the name None_<name> may be left out."""
    required = {k: v for k, v in arguments.items() if not k.startswith("None_")}
    optional = {k[5:]: v for k, v in arguments.items() if k.startswith("None_")}
    return st.fixed_dictionaries(required, optional=optional)


def rates(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high) | st.sampled_from([low, high])


def counts(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


BASES = rates(0.01, 2)
METRICS = st.lists(rates(-3, 3) | st.just(float("nan")), min_size=10, max_size=40)


def compare(
    system: str,
    name: str,
    kwargs: Kwargs,
    theirs: Sequence[float],
    *,
    tolerance: float,
    as_implemented: bool = False,
    **context: Any,
) -> None:
    """Holds ours to theirs at the steps from 0 on; the tolerance is of the largest value."""
    schedule = frameworks.schedule(system, name, kwargs, as_implemented=as_implemented, **context)
    expected = np.array(theirs, dtype=np.float64)
    bound = tolerance * max(np.abs(expected).max(), float(context.get("base") or 0))
    computed = schedule(np.arange(len(expected)))
    np.testing.assert_allclose(computed, expected, rtol=0, atol=bound)
    COMPARED[f"{system} {name}"] += len(expected)


def optimizer_of(base: float, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1)], lr=base, momentum=momentum)


# --- torch ------------------------------------------------------------------------------------

GAMMA = rates(0.3, 1.1)
FACTORS: dict[str, Drawn] = {
    "StepLR": drawn(step_size=counts(1, 20), None_gamma=GAMMA),
    "MultiStepLR": drawn(milestones=st.lists(counts(0, 70), max_size=6), None_gamma=GAMMA),
    "ConstantLR": drawn(None_factor=rates(0.05, 1), None_total_iters=counts(1, 90)),
    "LinearLR": drawn(
        None_start_factor=rates(0.05, 1),
        None_end_factor=rates(0, 1),
        None_total_iters=counts(1, 90),
    ),
    "ExponentialLR": drawn(gamma=rates(0.8, 1.05)),
    "PolynomialLR": drawn(None_total_iters=counts(1, 90), None_power=rates(0.2, 4)),
}
TORCH: dict[str, Drawn] = {
    **FACTORS,
    "CosineAnnealingLR": drawn(T_max=counts(1, 50), None_eta_min=rates(0, 0.5)),
    "CosineAnnealingWarmRestarts": drawn(
        T_0=counts(1, 20), None_T_mult=counts(1, 4), None_eta_min=rates(0, 0.5)
    ),
    "CyclicLR": drawn(
        base_lr=rates(0.01, 1),
        max_lr=rates(0.01, 2),
        None_step_size_up=counts(1, 20),
        None_step_size_down=counts(1, 20),
        None_mode=st.sampled_from(["triangular", "triangular2", "exp_range"]),
        None_gamma=rates(0.9, 1),
        cycle_momentum=st.booleans(),
    ),
    "OneCycleLR": drawn(
        max_lr=rates(0.01, 2),
        total_steps=counts(4, 70),
        None_pct_start=rates(0.05, 0.95),
        None_anneal_strategy=st.sampled_from(["cos", "linear"]),
        None_three_phase=st.booleans(),
        None_div_factor=rates(2, 30),
        None_final_div_factor=rates(2, 1e4),
    ),
}
# Recursions: each step() rounds, and adds to what the steps before have rounded.
RECURSIVE = 1e-9


def torch_values(
    scheduler: Any, optimizer: torch.optim.Optimizer, steps: int, key: str = "lr"
) -> list[float]:
    values = [float(optimizer.param_groups[0][key])]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        values.append(float(optimizer.param_groups[0][key]))
    return values


def make_torch(name: str, optimizer: torch.optim.Optimizer, kwargs: Kwargs) -> Any:
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **kwargs)


def torch_steps(name: str, kwargs: Kwargs) -> int:
    """torch raises beyond one step after the last one of a one-cycle."""
    return int(kwargs["total_steps"]) if name == "OneCycleLR" else STEPS


@pytest.mark.parametrize("name", TORCH)
@settings(max_examples=60)
@given(data=st.data(), base=BASES)
def test_torch(name: str, data: st.DataObject, base: float) -> None:
    kwargs = data.draw(TORCH[name])
    if name == "OneCycleLR":
        # A first phase of no steps divides by zero; phases beyond the end run backwards.
        part = kwargs.get("pct_start", 0.3)
        assume(abs(part * kwargs["total_steps"] - 1) > 1e-6)
        assume(not kwargs.get("three_phase") or part <= 0.5)
    optimizer = optimizer_of(base)
    scheduler = make_torch(name, optimizer, kwargs)
    theirs = torch_values(scheduler, optimizer, torch_steps(name, kwargs))
    compare("torch", name, kwargs, theirs, base=base, tolerance=RECURSIVE)


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
@settings(max_examples=40)
@given(data=st.data(), momenta=st.tuples(rates(0.5, 0.8), rates(0.8, 0.99)))
def test_torch_momentum(name: str, data: st.DataObject, momenta: tuple[float, float]) -> None:
    low, high = momenta
    kwargs = {**data.draw(TORCH[name]), "base_momentum": low, "max_momentum": high}
    kwargs["cycle_momentum"] = True
    if name == "OneCycleLR":
        part = kwargs.get("pct_start", 0.3)
        assume(abs(part * kwargs["total_steps"] - 1) > 1e-6 and part <= 0.5)
    optimizer = optimizer_of(0.1)
    scheduler = make_torch(name, optimizer, kwargs)
    theirs = torch_values(scheduler, optimizer, torch_steps(name, kwargs), "momentum")
    compare("torch", name, kwargs, theirs, key="momentum", base=0.9, tolerance=RECURSIVE)


FUNCTIONS: dict[str, Callable[[int], float]] = {
    "1/(t + 1)": lambda n: 1 / (n + 1),
    "0.95**t": lambda n: 0.95**n,
    "where(t < 10, t/10, 0.5)": lambda n: n / 10 if n < 10 else 0.5,
    "min(t, 20)/20": lambda n: min(n, 20) / 20,
}


@pytest.mark.parametrize("text", FUNCTIONS)
@settings(max_examples=5)
@given(base=BASES)
def test_torch_function(text: str, base: float) -> None:
    optimizer = optimizer_of(base)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, FUNCTIONS[text])
    theirs = torch_values(scheduler, optimizer, STEPS)
    kwargs = {"lr_lambda": {"expr": text}}
    compare("torch", "LambdaLR", kwargs, theirs, base=base, tolerance=RECURSIVE)


@settings(max_examples=20)
@given(base=BASES, factor=rates(0.5, 1.05))
def test_torch_running_product(base: float, factor: float) -> None:
    optimizer = optimizer_of(base)
    scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda _: factor)
    theirs = torch_values(scheduler, optimizer, STEPS)
    kwargs = {"lr_lambda": {"expr": repr(factor)}}
    compare("torch", "MultiplicativeLR", kwargs, theirs, base=base, tolerance=RECURSIVE)


@st.composite
def members(draw: st.DrawFn) -> list[tuple[str, Kwargs]]:
    names = draw(st.lists(st.sampled_from(sorted(FACTORS)), min_size=1, max_size=4))
    return [(name, draw(FACTORS[name])) for name in names]


def nested(drawn_members: Sequence[tuple[str, Kwargs]]) -> list[Kwargs]:
    return [{"class": name, "kwargs": kwargs} for name, kwargs in drawn_members]


@settings(max_examples=60)
@given(drawn_members=members(), base=BASES, gaps=st.lists(counts(1, 25), min_size=3, max_size=3))
def test_torch_sequence(
    drawn_members: list[tuple[str, Kwargs]], base: float, gaps: list[int]
) -> None:
    marks = [sum(gaps[: index + 1]) for index in range(len(drawn_members) - 1)]
    optimizer = optimizer_of(base)
    made = [make_torch(name, optimizer, kwargs) for name, kwargs in drawn_members]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, made, marks)
    theirs = torch_values(scheduler, optimizer, STEPS)
    kwargs = {"schedulers": nested(drawn_members), "milestones": marks}
    compare("torch", "SequentialLR", kwargs, theirs, base=base, tolerance=RECURSIVE)


@settings(max_examples=60)
@given(drawn_members=members(), base=BASES)
def test_torch_chain(drawn_members: list[tuple[str, Kwargs]], base: float) -> None:
    optimizer = optimizer_of(base)
    made = [make_torch(name, optimizer, kwargs) for name, kwargs in drawn_members]
    theirs = torch_values(torch.optim.lr_scheduler.ChainedScheduler(made), optimizer, STEPS)
    kwargs = {"schedulers": nested(drawn_members)}
    compare("torch", "ChainedScheduler", kwargs, theirs, base=base, tolerance=RECURSIVE)


PLATEAU = drawn(
    None_mode=st.sampled_from(["min", "max"]),
    None_factor=rates(0, 0.9),
    None_patience=counts(0, 5),
    None_threshold=rates(0, 0.5),
    None_threshold_mode=st.sampled_from(["rel", "abs"]),
    None_cooldown=counts(0, 5),
    None_min_lr=rates(0, 0.5),
    None_eps=rates(0, 0.01),
)


@pytest.mark.parametrize(
    ("system", "name"),
    [("torch", "ReduceLROnPlateau"), ("huggingface", "reduce_lr_on_plateau")],
)
@settings(max_examples=60)
@given(kwargs=PLATEAU, base=BASES, metrics=METRICS)
def test_plateau(system: str, name: str, kwargs: Kwargs, base: float, metrics: list[float]) -> None:
    optimizer = optimizer_of(base)
    if system == "torch":
        scheduler = make_torch(name, optimizer, kwargs)
    else:
        scheduler = optimization.get_scheduler(name, optimizer, scheduler_specific_kwargs=kwargs)
    theirs = []
    for metric in metrics:
        scheduler.step(metric)
        theirs.append(optimizer.param_groups[0]["lr"])
    rule = frameworks.metric_rule(system, name, kwargs)
    assert run_metric_rule(rule, base, metrics) == theirs
    COMPARED[f"{system} {name}"] += len(theirs)


# --- pytorch-accelerated ----------------------------------------------------------------------


@settings(max_examples=80)
@given(
    kwargs=drawn(
        total_num_epochs=counts(4, 12),
        num_update_steps_per_epoch=counts(1, 9),
        None_k_decay=rates(0.3, 3),
        None_lr_min=rates(0, 0.01),
        None_min_lr_ratio=rates(0, 0.5),
        None_num_warmup_epochs=counts(0, 2),
        None_warmup_starting_lr=rates(0, 0.01),
        None_warmup_starting_lr_ratio=rates(0, 0.9),
        None_num_cooldown_epochs=counts(0, 1),
    ),
    base=BASES,
)
def test_accelerated_cosine(kwargs: Kwargs, base: float) -> None:
    made = accelerated.CosineLrScheduler(optimizer_of(base), **kwargs)
    steps = kwargs["total_num_epochs"] * kwargs["num_update_steps_per_epoch"] + 20
    theirs = [made.get_updated_values(n)[0] for n in range(steps)]
    system, name = "pytorch_accelerated", "CosineLrScheduler"
    compare(system, name, kwargs, theirs, base=base, tolerance=1e-12, as_implemented=True)
    if not kwargs.get("num_warmup_epochs"):  # With one, the cosine is cut short as implemented.
        compare(system, name, kwargs, theirs, base=base, tolerance=1e-12)


@settings(max_examples=80)
@given(
    kwargs=drawn(
        total_steps=counts(24, 90),
        None_num_warmup_steps=counts(0, 9),
        decay_phase_ratio=rates(0.2, 0.33),
        lr_min=rates(0.001, 0.5),
        None_warmup_starting_lr=rates(0, 0.01),
        None_use_inverse_sqrt_decay=st.booleans(),
        None_num_checkpoints=counts(1, 4),
        None_is_continuation_from_checkpoint=st.booleans(),
    ),
    base=BASES,
)
def test_accelerated_wsd(kwargs: Kwargs, base: float) -> None:
    made = accelerated.WSDLrScheduler(optimizer_of(base), **kwargs)
    theirs = [made.get_updated_values(n)[0] for n in range(kwargs["total_steps"] + 20)]
    name = "WSDLrScheduler"
    compare("pytorch_accelerated", name, kwargs, theirs, base=base, tolerance=1e-12)


# --- transformers -----------------------------------------------------------------------------

RUN = {"num_warmup_steps": counts(0, 15), "num_training_steps": counts(20, 60)}
SHAPES = ["linear", "cosine", "1-sqrt"]
HUGGINGFACE: dict[str, Drawn] = {
    "constant": drawn(),
    "constant_with_warmup": drawn(num_warmup_steps=counts(0, 15)),
    "linear": drawn(**RUN),
    "cosine": drawn(**RUN, None_num_cycles=rates(0.25, 4)),
    "cosine_with_restarts": drawn(**RUN, None_num_cycles=counts(1, 5)),
    "polynomial": drawn(**RUN, None_power=rates(0.3, 3), None_lr_end=rates(0, 1e-3)),
    "inverse_sqrt": drawn(num_warmup_steps=counts(0, 15), None_timescale=counts(1, 50)),
    "cosine_with_min_lr": drawn(**RUN, None_num_cycles=rates(0.25, 4), min_lr_rate=rates(0, 0.9)),
    "cosine_warmup_with_min_lr": drawn(
        **RUN,
        None_num_cycles=rates(0.25, 4),
        min_lr_rate=rates(0, 0.9),
        None_warmup_lr_rate=rates(0, 0.9),
    ),
    "warmup_stable_decay": drawn(
        **RUN,
        num_decay_steps=counts(1, 5),
        None_warmup_type=st.sampled_from(SHAPES),
        None_decay_type=st.sampled_from(SHAPES),
        None_min_lr_ratio=rates(0, 0.9),
        None_num_cycles=rates(0.25, 2),
    ),
}


@pytest.mark.parametrize("name", HUGGINGFACE)
@settings(max_examples=50)
@given(data=st.data(), base=BASES)
def test_huggingface(name: str, data: st.DataObject, base: float) -> None:
    kwargs = data.draw(HUGGINGFACE[name])
    make = optimization.TYPE_TO_SCHEDULER_FUNCTION[optimization.SchedulerType(name)]
    factor = make(optimizer_of(base), **kwargs).lr_lambdas[0]
    theirs = [factor(step) * base for step in range(STEPS)]
    compare("huggingface", name, kwargs, theirs, base=base, tolerance=1e-12)


# --- timm -------------------------------------------------------------------------------------

WARMUP = {"None_warmup_t": counts(0, 12), "None_warmup_lr_init": rates(0, 0.01)}
CYCLES = {
    "t_initial": counts(13, 50),
    "None_lr_min": rates(0, 0.009),
    "None_cycle_mul": counts(1, 3).map(float),
    "None_cycle_decay": rates(0.3, 1),
    "None_cycle_limit": counts(1, 4),
    "None_warmup_prefix": st.booleans(),
    **WARMUP,
}
TIMM: dict[str, Drawn] = {
    "CosineLRScheduler": drawn(**CYCLES, None_k_decay=rates(0.5, 2)),
    "TanhLRScheduler": drawn(**CYCLES, None_lb=rates(-8, -2), None_ub=rates(1, 5)),
    "PolyLRScheduler": drawn(**CYCLES, None_k_decay=rates(0.5, 2), None_power=rates(0.3, 3)),
    "StepLRScheduler": drawn(decay_t=counts(1, 30), None_decay_rate=rates(0.1, 1), **WARMUP),
    "MultiStepLRScheduler": drawn(
        decay_t=st.lists(counts(0, 70), max_size=5).map(sorted),
        None_decay_rate=rates(0.1, 1),
        **WARMUP,
    ),
    "WSDLRScheduler": drawn(
        t_initial=counts(20, 50),
        decay_t=counts(1, 19),
        None_lr_min=rates(0, 0.009),
        None_stable_fn=st.sampled_from(["constant", "rsqrt", "power"]),
        stable_timescale=counts(1, 30),
        None_stable_power=rates(0.2, 1),
        None_decay_fn=st.sampled_from(["linear", "1-sqrt", "cosine", "power", "exp"]),
        None_decay_power=rates(0.3, 2),
        None_decay_ratio=rates(0.05, 0.9),
        **WARMUP,
    ),
}


@pytest.mark.parametrize("name", TIMM)
@settings(max_examples=50)
@given(data=st.data(), base=BASES, scale=st.none() | rates(0.1, 2))
def test_timm(name: str, data: st.DataObject, base: float, scale: float | None) -> None:
    kwargs = data.draw(TIMM[name])
    optimizer = optimizer_of(base)
    group = {"lr": base} if scale is None else {"lr": base, "lr_scale": scale}
    optimizer.param_groups[0].update(group)
    made = getattr(TIMM_SCHEDULER, name)(optimizer, **kwargs)
    theirs = []
    for step in range(STEPS):
        made.step(step)
        theirs.append(optimizer.param_groups[0]["lr"])
    schedule = frameworks.schedules("timm", name, kwargs, [group])[0]
    assert schedule is not None
    computed = schedule(np.arange(STEPS))
    np.testing.assert_allclose(computed, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    COMPARED[f"timm {name}"] += STEPS


@settings(max_examples=50)
@given(
    kwargs=drawn(
        None_decay_rate=rates(0.1, 0.9),
        None_patience_t=counts(0, 4),
        None_threshold=rates(0, 0.5),
        None_cooldown_t=counts(0, 4),
        None_lr_min=rates(0, 0.1),
        None_mode=st.sampled_from(["min", "max"]),
        **WARMUP,
    ),
    base=BASES,
    metrics=METRICS,
)
def test_timm_plateau(kwargs: Kwargs, base: float, metrics: list[float]) -> None:
    optimizer = optimizer_of(base)
    made = TIMM_SCHEDULER.PlateauLRScheduler(optimizer, **kwargs)
    start = optimizer.param_groups[0]["lr"]
    theirs = []
    for epoch, metric in enumerate(metrics, 1):
        made.step(epoch, metric)
        theirs.append(optimizer.param_groups[0]["lr"])
    rule = frameworks.metric_rule("timm", "PlateauLRScheduler", kwargs, base=base)
    ours = run_metric_rule(rule, start, metrics)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)  # the warmup rounds in another order
    COMPARED["timm PlateauLRScheduler"] += len(theirs)


# --- optax ------------------------------------------------------------------------------------

VALUE = rates(0.01, 2)
LENGTH = counts(1, 60)
BEGIN = {"None_transition_begin": counts(0, 20)}
SCALES = st.dictionaries(counts(1, 70), rates(0.1, 3), min_size=1, max_size=4)
DECAY = {
    "transition_steps": LENGTH,
    "decay_rate": rates(0.1, 1.5),
    **BEGIN,
    "None_staircase": st.booleans(),
}
ONE_CYCLE = {
    "transition_steps": counts(10, 60),
    "peak_value": VALUE,
    "None_pct_start": rates(0.2, 0.4),
    "None_div_factor": rates(2, 30),
    "None_final_div_factor": rates(2, 1e4),
}
OPTAX: dict[str, Drawn] = {
    "constant_schedule": drawn(value=VALUE),
    "linear_schedule": drawn(init_value=VALUE, end_value=VALUE, transition_steps=LENGTH, **BEGIN),
    "polynomial_schedule": drawn(
        init_value=VALUE, end_value=VALUE, power=rates(0.3, 3), transition_steps=LENGTH, **BEGIN
    ),
    "exponential_decay": drawn(init_value=VALUE, **DECAY),
    "cosine_decay_schedule": drawn(
        init_value=VALUE, decay_steps=LENGTH, None_alpha=rates(0, 0.9), None_exponent=rates(0.5, 2)
    ),
    "piecewise_constant_schedule": drawn(init_value=VALUE, boundaries_and_scales=SCALES),
    "piecewise_interpolate_schedule": drawn(
        interpolate_type=st.sampled_from(["linear", "cosine"]),
        init_value=VALUE,
        boundaries_and_scales=SCALES,
    ),
    "linear_onecycle_schedule": drawn(**ONE_CYCLE, None_pct_final=rates(0.6, 0.9)),
    "cosine_onecycle_schedule": drawn(**ONE_CYCLE),
    "warmup_constant_schedule": drawn(init_value=VALUE, peak_value=VALUE, warmup_steps=LENGTH),
    "warmup_cosine_decay_schedule": drawn(
        init_value=VALUE,
        peak_value=VALUE,
        warmup_steps=counts(0, 15),
        decay_steps=counts(16, 60),
        None_end_value=rates(0, 0.01),
        None_exponent=rates(0.5, 2),
    ),
    "warmup_exponential_decay_schedule": drawn(
        init_value=VALUE, peak_value=VALUE, warmup_steps=counts(0, 15), **DECAY
    ),
}


@pytest.mark.parametrize("name", OPTAX)
@settings(max_examples=25)
@given(data=st.data())
def test_optax(name: str, data: st.DataObject) -> None:
    kwargs = data.draw(OPTAX[name])
    made = getattr(optax, name)(**kwargs)
    theirs = [float(made(step)) for step in range(STEPS)]
    compare("optax", name, kwargs, theirs, tolerance=1e-12)


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one: how much was compared. In one process, so that nothing is left out."""
    by_system: Counter[str] = Counter()
    for name, count in COMPARED.items():
        by_system[name.partition(" ")[0]] += count
    with capsys.disabled():
        print()
        for name, count in sorted(COMPARED.items()):
            print(f"{count:>8,} values  {name}")
        for name, count in sorted(by_system.items()):
            print(f"{count:>8,} values  {name}, all classes")
    classes = {name.partition(" ")[2] for name in COMPARED}
    assert {*TORCH, *HUGGINGFACE, *TIMM, *OPTAX} <= classes
