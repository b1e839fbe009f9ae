"""The classes of torch and pytorch-accelerated, classes of one's own, and what is refused."""

from typing import Any

import pytest
import sympy as sp

from closedform import frameworks, schedules
from closedform.errors import ClosedFormError, DefinitionError
from closedform.frameworks import cerebras, pytorch_accelerated
from closedform.frameworks.torch.products import running_product
from closedform.language import Schedule
from closedform.language.exact import value_at
from closedform.language.symbols import t
from closedform.recipes.expressions import parse_function


def nested(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"class": name, "kwargs": kwargs}


PRODUCTS = (
    "0.9",
    "0.0",
    "1.0",
    "1 - 1/(t + 1)",
    "t/(t + 3)",
    "0.5*(t + 2.5)/(t + 0.5)",
    "where(t < 10, 1.1, 0.9)",
    "where(t <= 3, 0.5, where(t < 7, t/(t + 1), 1))",
    "where(t < 5, 0.0, 1.0)",
)


@pytest.mark.parametrize("text", PRODUCTS)
def test_running_product_is_the_product_of_the_factors(text: str) -> None:
    factor = parse_function({"expr": text}, "lr_lambda")
    product = running_product(factor, "lr_lambda")
    wanted = sp.Integer(1)
    for step in range(16):
        wanted *= value_at(factor, {t: sp.Integer(step)}) if step else 1
        assert sp.simplify(value_at(product, {t: sp.Integer(step)}) - wanted) == 0


def test_momentum_moves_against_the_rate() -> None:
    kwargs = {"max_lr": [1.0, 2.0], "total_steps": 20, "anneal_strategy": "linear"}
    groups: list[dict[str, Any]] = [{"lr": 1}, {"lr": 1}]
    rates = frameworks.schedules("torch", "OneCycleLR", kwargs, groups)
    momenta = frameworks.schedules("torch", "OneCycleLR", kwargs, groups, key="momentum")
    assert [rate.exact(5) for rate in rates if rate] == [1, 2]
    assert [momentum.exact(5) for momentum in momenta if momentum] == [sp.Rational(17, 20)] * 2


def test_momentum_that_is_not_cycled_is_left_alone() -> None:
    kwargs = {"max_lr": 1.0, "total_steps": 20, "cycle_momentum": False}
    built = frameworks.schedules("torch", "OneCycleLR", kwargs, [{"lr": 1}], key="momentum")
    assert built == [None]
    with pytest.raises(DefinitionError) as caught:
        frameworks.schedule("torch", "OneCycleLR", kwargs, key="momentum")
    assert str(caught.value) == (
        "OneCycleLR leaves momentum as it is with these arguments (torch > OneCycleLR)"
    )


def test_last_epoch_begins_in_mid_run() -> None:
    plain = frameworks.schedule("torch", "StepLR", {"step_size": 3}, base=1)
    resumed = frameworks.schedule("torch", "StepLR", {"step_size": 3, "last_epoch": 4}, base=1)
    assert [resumed.exact(step) for step in range(9)] == [plain.exact(s + 5) for s in range(9)]


def test_chain_as_implemented_is_overwritten_by_a_function() -> None:
    members = [
        nested("ExponentialLR", gamma=0.9),
        nested("LambdaLR", lr_lambda={"expr": "0.5**t"}),
        nested("StepLR", step_size=2, gamma=0.1),
    ]
    chain = {"schedulers": members}
    documented = frameworks.schedule(
        "torch", "ChainedScheduler", chain, base=1, as_implemented=False
    )
    implemented = frameworks.schedule(
        "torch", "ChainedScheduler", chain, base=1, as_implemented=True
    )
    assert documented.exact(3) == sp.Rational(9, 20) ** 3 / 10
    assert [implemented.exact(step) for step in (0, 1, 2, 3)] == [
        sp.Integer(1),
        sp.Rational(1, 2),
        sp.Rational(1, 40),
        sp.Rational(1, 8),
    ]


def test_multiplicative_member_as_implemented_continues_from_the_current_value() -> None:
    spec = {
        "schedulers": [
            nested("ConstantLR", factor=0.5, total_iters=100),
            nested("MultiplicativeLR", lr_lambda={"expr": "0.5"}),
        ],
        "milestones": [4],
    }
    documented = frameworks.schedule("torch", "SequentialLR", spec, base=1, as_implemented=False)
    implemented = frameworks.schedule("torch", "SequentialLR", spec, base=1, as_implemented=True)
    assert [documented.exact(step) for step in (3, 4, 5)] == [sp.Rational(1, 2), 1, sp.S.Half]
    # torch 2.13 multiplies by the factor at step 0, too
    expected = [sp.Rational(1, 2), sp.Rational(1, 4), sp.Rational(1, 8)]
    assert [implemented.exact(step) for step in (3, 4, 5)] == expected


@pytest.mark.parametrize(
    "factor",
    [
        "where(t % 2 == 0, 2, 1/2)",
        "where(t % 3 == 1, 9/10, 1)",
        "1 - (t % 4)/10",
        "where(t % 2 == 0, 3, 1) / (1 + t % 3)",
        "where(t % 64 < 63, 1, 1/2)",
    ],
)
def test_factors_with_a_period_have_a_product(factor: str) -> None:
    config = {"lr_lambda": {"expr": factor}}
    schedule = frameworks.schedule("torch", "MultiplicativeLR", config, base=1)
    function = frameworks.schedule("torch", "LambdaLR", config, base=1)
    product = sp.Integer(1)
    for step in range(150):
        product *= function.exact(step) if step else 1
        assert schedule.exact(step) == product


@pytest.mark.parametrize("factor", ["t % 3", "where(t % 65 == 0, 2, 1)"])
def test_factors_with_a_zero_or_a_long_period_are_refused(factor: str) -> None:
    with pytest.raises(DefinitionError, match=r"is 0 from step 3 on|has no closed form"):
        frameworks.schedule("torch", "MultiplicativeLR", {"lr_lambda": {"expr": factor}}, base=1)


def test_wsd_plan_tells_its_phases() -> None:
    plan = pytorch_accelerated.wsd_plan({"total_steps": 100, "num_checkpoints": 3})
    assert plan.get_checkpoint_steps() == [25, 50, 100]
    assert plan.get_decay_info()[2] == {
        "period_start": 50,
        "period_end": 100,
        "decay_steps": 5,
        "pre_decay_step": 95,
    }
    assert plan.get_phase_info(25) == plan.get_decay_info()[0]
    assert plan.get_phase_info(26) == plan.get_decay_info()[1]
    assert plan.get_phase_info(999) == plan.get_decay_info()[2]


def test_lengths_of_decays_are_products_of_floats() -> None:
    """0.29 · 100 is 28.999999999999996: values of pytorch-accelerated 0.1.61."""
    kwargs = {
        "total_steps": 400,
        "num_checkpoints": 3,
        "decay_phase_ratio": 0.29,
        "num_warmup_steps": 0,
    }
    plan = pytorch_accelerated.wsd_plan(kwargs)
    assert [period["decay_steps"] for period in plan.get_decay_info()] == [28, 28, 57]
    rate = frameworks.schedule("pytorch_accelerated", "WSDLrScheduler", kwargs, base=1)
    values = {
        71: 1.0,
        72: 1.0,
        73: 0.8110179524776229,
        99: 0.01802047591854032,
        172: 1.0,
        173: 0.8110179524776229,
        343: 1.0,
        344: 0.8675468967467314,
    }
    # The lowest rate is 1e-6 by default; the tolerance is some roundings of the framework.
    assert [rate(step) for step in values] == pytest.approx(list(values.values()), rel=1e-13)


def test_continuation_has_no_warmup_by_its_documents() -> None:
    first = {"total_steps": 100, "num_warmup_steps": 10}
    kwargs = {
        "total_steps": 50,
        "is_continuation_from_checkpoint": True,
        "continuation": {"first": first, "load_state": True},
    }
    build = frameworks.schedule
    documented = build(
        "pytorch_accelerated", "WSDLrScheduler", kwargs, base=1, as_implemented=False
    )
    implemented = build(
        "pytorch_accelerated", "WSDLrScheduler", kwargs, base=1, as_implemented=True
    )
    assert documented.exact(5) == 1
    assert implemented.exact(5) < sp.Rational(51, 100)


def make_own(rate: float, factor: float) -> Schedule:
    return schedules.constant(rate).scale(factor)


OWN = (frameworks.own_schedule("HalvedLR", make_own, rate=frameworks.REQUIRED, factor=0.5),)


def test_classes_of_your_own_are_found_by_name() -> None:
    alone = frameworks.schedule("cerebras", "HalvedLR", {"rate": 4}, own=OWN)
    member = {"schedulers": [nested("HalvedLR", rate=4)], "milestones": []}
    inside = frameworks.schedule("cerebras", "SequentialLR", member, own=OWN)
    assert alone.exact(0) == inside.exact(0) == 2
    assert cerebras.configure_lr_scheduler({"scheduler": "halved", "rate": 4}, own=OWN) == (
        "HalvedLR",
        {"rate": 4},
    )
    configured = {"config": {"HalvedLR": {"rate": 4, "factor": 3}}}
    built = frameworks.schedules("cerebras", "configure_scheduler", configured, [{}], own=OWN)
    assert built[0] is not None
    assert built[0].exact(0) == 12


def test_class_of_your_own_that_returns_no_schedule_is_refused() -> None:
    broken = frameworks.own_schedule("BrokenLR", lambda rate: rate, rate=1)
    with pytest.raises(DefinitionError) as caught:
        frameworks.schedule("cerebras", "BrokenLR", {}, own=[broken])
    assert str(caught.value) == (
        "a class of your own must return a Schedule, got int (cerebras > BrokenLR)"
    )


def test_config_of_no_schedule() -> None:
    nothing = {"config": None}
    assert frameworks.schedules("cerebras", "configure_lr_scheduler", nothing, [{}, {}]) == [
        None,
        None,
    ]
    with pytest.raises(DefinitionError) as caught:
        frameworks.schedule("cerebras", "configure_lr_scheduler", nothing)
    assert str(caught.value) == (
        "the config asks for no schedule (cerebras > configure_lr_scheduler)"
    )


BAD: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "peak at step 0": (
        "torch",
        "OneCycleLR",
        {"max_lr": 1, "total_steps": 20, "pct_start": 0.05},
        "pct_start * total_steps must not be 1, got 1/20 * 20: the first phase has no steps "
        "(torch > OneCycleLR): change one of them by a little",
    ),
    "a part of the cycle beyond it": (
        "cerebras",
        "OneCycleLR",
        {"initial_learning_rate": 1, "max_lr": 2, "pct_start": 1.5},
        "pct_start must be a rational number from 0 to 1, got 3/2 (cerebras > OneCycleLR)",
    ),
    "half a step": (
        "cerebras",
        "OneCycleLR",
        {"initial_learning_rate": 1, "max_lr": 2, "total_steps": 2.5},
        "total_steps must be an integer >= 1, got 2.5 (cerebras > OneCycleLR)",
    ),
    "strategy": (
        "cerebras",
        "OneCycleLR",
        {"initial_learning_rate": 1, "max_lr": 2, "anneal_strategy": "linaer"},
        "anneal_strategy must be one of cos, linear, got 'linaer' (cerebras > OneCycleLR): "
        "did you mean 'linear'?",
    ),
    "root of a negative rate": (
        "keras",
        "ExponentialDecay",
        {"initial_learning_rate": 1, "decay_rate": -0.25, "decay_steps": 4},
        "decay_rate must be at least 0 where decay_steps is 4, got -1/4 "
        "(keras > ExponentialDecay): a fractional power of a negative number is not real; set "
        "staircase",
    ),
    "root of a negative rate in optax": (
        "optax",
        "exponential_decay",
        {"init_value": 1, "decay_rate": -0.5, "transition_steps": 7},
        "decay_rate must be at least 0 where transition_steps is 7, got -1/2 "
        "(optax > exponential_decay): a fractional power of a negative number is not real; set "
        "staircase",
    ),
    "pole": (
        "keras",
        "InverseTimeDecay",
        {"initial_learning_rate": 1, "decay_rate": -0.25, "decay_steps": 4},
        "decay_rate must be at least 0, got -1/4 (keras > InverseTimeDecay): below 0 the value "
        "has a pole",
    ),
    "fractional cycle": (
        "cerebras",
        "PolynomialWD",
        {"initial_val": 1, "end_val": 0, "total_iters": 2.5, "cycle": True},
        "total_iters must be an integer where cycle is set, got 5/2 (cerebras > PolynomialWD)",
    ),
    "growth of periods": (
        "cerebras",
        "CosineAnnealingWarmRestarts",
        {"initial_learning_rate": 1, "T_0": 5, "T_mult": 1.5},
        "T_mult must be an integer >= 1, got 3/2 (cerebras > CosineAnnealingWarmRestarts)",
    ),
    "a fall before the start": (
        "torch",
        "CyclicLR",
        {"base_lr": 0, "max_lr": 1, "step_size_down": -3},
        "step_size_down must be at least 0, got -3 (torch > CyclicLR)",
    ),
    "values of an lr class": (
        "cerebras",
        "PiecewiseConstantLR",
        {"learning_rates": [1], "milestones": [2, 4]},
        "learning_rates must be one more than milestones: expected 3, got 1 "
        "(cerebras > PiecewiseConstantLR)",
    ),
    "values of a wd class": (
        "cerebras",
        "PiecewiseConstantWD",
        {"vals": [1, 2, 3, 4], "milestones": [2, 4]},
        "vals must be one more than milestones: expected 3, got 4 (cerebras > PiecewiseConstantWD)",
    ),
    "joints out of order": (
        "optax",
        "join_schedules",
        {
            "schedules": [nested("constant_schedule", value=v) for v in (1, 2, 3)],
            "boundaries": [9, 4],
        },
        "boundaries must increase from above 0, got 4 after 9 (optax > join_schedules)",
    ),
    "too few joints": (
        "optax",
        "join_schedules",
        {"schedules": [nested("constant_schedule", value=v) for v in (1, 2, 3)], "boundaries": [9]},
        "boundaries must be one fewer than schedules: expected 2, got 1 (optax > join_schedules)",
    ),
    "joints that are not a list": (
        "optax",
        "join_schedules",
        {"schedules": [nested("constant_schedule", value=1)], "boundaries": 9},
        "boundaries must be a sequence of steps, got int 9 (optax > join_schedules): give a list, "
        "[] for none",
    ),
    "unknown mode": (
        "cerebras",
        "CyclicLR",
        {"base_lr": 0, "max_lr": 1, "mode": "triangle"},
        "mode must be one of triangular, triangular2, exp_range, got 'triangle' "
        "(cerebras > CyclicLR): did you mean 'triangular'?",
    ),
    "divisor 0": (
        "torch",
        "OneCycleLR",
        {"max_lr": 1, "total_steps": 10, "final_div_factor": 0},
        "final_div_factor must be another number than 0, got 0 (torch > OneCycleLR)",
    ),
    "lambdas of another form": (
        "cerebras",
        "LambdaLR",
        {"initial_learning_rate": 1, "lambdas": "t"},
        "lambdas must be a list of functions, got str 't' (cerebras > LambdaLR)",
    ),
    "name of the clock in scale_fn": (
        "torch",
        "CyclicLR",
        {"base_lr": 0, "max_lr": 1, "scale_fn": {"expr": "1/t"}},
        "unknown name 't' (scale_fn of torch > CyclicLR: '1/t'): did you mean 'x'?",
    ),
    "no closed form": (
        "torch",
        "MultiplicativeLR",
        {"lr_lambda": {"expr": "exp(-t)"}},
        "the product of exp(-t) has no closed form (lr_lambda of torch > MultiplicativeLR): "
        "constants, functions of t % n, quotients such as 1 - 1/(t + 1), and where(t < n, …) of "
        "them have one; give the product itself as a LambdaLR",
    ),
    "a factor of 0 on the way": (
        "torch",
        "MultiplicativeLR",
        {"lr_lambda": {"expr": "(t - 3)/(t - 2)"}},
        "the product of (t - 3)/(t - 2) has a zero or a pole at step 3 "
        "(lr_lambda of torch > MultiplicativeLR): constants, functions of t % n, quotients such as "
        "1 - 1/(t + 1), and where(t < n, …) of them have one; give the product itself as a "
        "LambdaLR",
    ),
    "branch from 0 on": (
        "torch",
        "MultiplicativeLR",
        {"lr_lambda": {"expr": "where(t > 3, 1, 2)"}},
        "the product over the steps where t > 3 has no closed form here "
        "(lr_lambda of torch > MultiplicativeLR): write thresholds as t < n, the smallest first",
    ),
    "one function short": (
        "torch",
        "LambdaLR",
        {"lr_lambda": []},
        "lr_lambda must hold one for each group, got 0 (torch > LambdaLR)",
    ),
    "no length": (
        "torch",
        "OneCycleLR",
        {"max_lr": 1, "epochs": 3},
        "the length is missing (torch > OneCycleLR): give total_steps, or epochs and "
        "steps_per_epoch",
    ),
    "a metric": (
        "torch",
        "ReduceLROnPlateau",
        {"patience": 3},
        "ReduceLROnPlateau is driven by a metric: its value is not a function of the step "
        "(torch > ReduceLROnPlateau): build its update rule with "
        "closedform.frameworks.metric_rule",
    ),
    "no cosine left": (
        "pytorch_accelerated",
        "CosineLrScheduler",
        {
            "total_num_epochs": 4,
            "num_update_steps_per_epoch": 5,
            "num_warmup_epochs": 3,
            "num_cooldown_epochs": 2,
        },
        "warmup and cooldown must fit into the epochs, got 15 + 10 of 20 steps "
        "(pytorch_accelerated > CosineLrScheduler)",
    ),
    "start above the base": (
        "pytorch_accelerated",
        "WSDLrScheduler",
        {"total_steps": 100, "num_warmup_steps": 5, "warmup_starting_lr": 3},
        "warmup_starting_lr must be at most the largest base value 1, got 3 "
        "(pytorch_accelerated > WSDLrScheduler)",
    ),
    "length twice": (
        "pytorch_accelerated",
        "WSDLrScheduler",
        {"total_steps": 70, "num_epochs": 2, "num_update_steps_per_epoch": 35},
        "total_steps must be left out where epochs and steps per epoch are given, got 70 "
        "(pytorch_accelerated > WSDLrScheduler)",
    ),
    "no length of a run": (
        "pytorch_accelerated",
        "WSDLrScheduler",
        {"num_epochs": 2},
        "missing argument 'total_steps' (pytorch_accelerated > WSDLrScheduler): give it, or "
        "num_epochs and num_update_steps_per_epoch",
    ),
    "continuation of another form": (
        "pytorch_accelerated",
        "WSDLrScheduler",
        {"total_steps": 70, "continuation": 7},
        'continuation must be {"first": {…}, "load_state": bool}, got 7 '
        "(pytorch_accelerated > WSDLrScheduler)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_of_a_class_is_refused(name: str) -> None:
    system, class_name, kwargs, message = BAD[name]
    with pytest.raises(ClosedFormError) as caught:
        frameworks.schedule(system, class_name, kwargs, base=1, as_implemented=False)
    assert str(caught.value) == message
