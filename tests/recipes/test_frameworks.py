"""Frameworks: names, arguments, groups, tags and errors."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sympy as sp

from closedform import frameworks, schedules
from closedform.errors import ArgumentError, ClosedFormError, DefinitionError, UnknownNameError
from closedform.language import Schedule

LINEAR = {"initial_learning_rate": 0.0, "end_learning_rate": 1.0, "total_iters": 4}
COSINE = {"initial_learning_rate": 1.0, "end_learning_rate": 0.0, "total_iters": 4}


def nested(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"class": name, "kwargs": kwargs}


def test_systems_and_names() -> None:
    of_classes = [
        name
        for name, framework in frameworks.FRAMEWORKS.items()
        if any(entry.builds for entry in framework.schedules.values())
    ]
    assert of_classes == [
        *("cerebras", "huggingface", "keras", "optax", "pytorch_accelerated", "timm", "torch"),
    ]
    names = frameworks.names("cerebras")
    assert names.optimizers[:4] == ("SGD", "Adam", "AdamW", "RMSprop")
    assert len(names.optimizers) == 15
    assert names.schedules[:3] == ("ConstantLR", "ConstantWD", "ConstantScheduler")
    assert len(names.schedules) == 60
    assert frameworks.names("torch").schedules == (
        "LambdaLR",
        "MultiplicativeLR",
        "StepLR",
        "MultiStepLR",
        "ConstantLR",
        "LinearLR",
        "ExponentialLR",
        "SequentialLR",
        "PolynomialLR",
        "CosineAnnealingLR",
        "ChainedScheduler",
        "ReduceLROnPlateau",
        "CyclicLR",
        "CosineAnnealingWarmRestarts",
        "OneCycleLR",
    )
    assert frameworks.names("pytorch_accelerated").schedules[:2] == (
        "CosineLrScheduler",
        "WSDLrScheduler",
    )


@pytest.mark.parametrize("system", frameworks.FRAMEWORKS)
def test_entries_have_their_own_names(system: str) -> None:
    framework = frameworks.FRAMEWORKS[system]
    for table in (framework.schedules, framework.optimizers):
        assert all(name == entry.name for name, entry in table.items())


def test_lr_wd_and_generic_class_are_one_formula() -> None:
    generic = {"initial_val": 0.0, "end_val": 1.0, "total_iters": 4}
    built = [
        frameworks.schedule("cerebras", "LinearLR", LINEAR),
        frameworks.schedule("cerebras", "LinearWD", generic, key="weight_decay"),
        frameworks.schedule("cerebras", "LinearScheduler", generic, key="momentum"),
    ]
    assert built == [schedules.linear(0, 1, 4)] * 3


def test_sequential_runs_in_local_time_all_the_way_down() -> None:
    inner = {"schedulers": [nested("LinearLR", LINEAR), nested("CosineDecayLR", COSINE)]}
    spec = {
        "schedulers": [
            nested("ConstantLR", {"learning_rate": 9}),
            nested("SequentialLR", {**inner, "milestones": [4]}),
        ],
        "milestones": [10],
    }
    documented = frameworks.schedule("cerebras", "SequentialLR", spec, as_implemented=False)
    implemented = frameworks.schedule("cerebras", "SequentialLR", spec)
    steps = (9, 10, 12, 14, 16, 18)
    half = sp.Rational(1, 2)
    assert [documented.exact(step) for step in steps] == [9, 0, half, 1, half, 0]
    assert [implemented.exact(step) for step in steps] == [9, 0, 0, 1, 1, 1]


LIST_ORDER = {
    "sorted": ([5, 9], {4: 1, 5: 2, 9: 3}),
    "twice": ([5, 5], {4: 1, 5: 3}),
    "unsorted": ([9, 5], {4: 1, 5: 3, 9: 3}),
    "from the start": ([0, 5], {0: 2, 5: 3}),
    "before the start": ([-3, 5], {0: 2, 5: 3}),
    "all before": ([-3, -5], {0: 3, 9: 3}),
}


@pytest.mark.parametrize("name", LIST_ORDER)
def test_last_milestone_in_list_order_decides(name: str) -> None:
    milestones, wanted = LIST_ORDER[name]
    constants = {"learning_rates": [1, 2, 3], "milestones": milestones}
    members = [nested("ConstantLR", {"learning_rate": value}) for value in (1, 2, 3)]
    spec = {"schedulers": members, "milestones": milestones}
    for class_name, kwargs in (("PiecewiseConstantLR", constants), ("SequentialLR", spec)):
        schedule = frameworks.schedule("cerebras", class_name, kwargs)
        assert {step: schedule.exact(step) for step in wanted} == wanted


GROUPS: list[dict[str, Any]] = [
    {"tags": "a", "adjust_learning_rate": 0.5},
    {"tags": ["a", "b"], "adjust_val": 0.25},
    {"tags": {"b"}, "adjust_learning_rate": 2, "adjust_val": 3},
    {},
    {"tags": []},
]
TAGS: dict[str, tuple[Any, list[bool]]] = {
    "all": (None, [True, True, True, True, True]),
    "one": ("a", [True, True, False, False, False]),
    "two": (["a", "b"], [True, True, True, False, False]),
    "untagged": ([None], [False, False, False, True, False]),
    "one or untagged": (("b", None), [False, True, True, True, False]),
}


@pytest.mark.parametrize("name", TAGS)
def test_tags_choose_groups(name: str) -> None:
    tags, wanted = TAGS[name]
    kwargs = {"learning_rate": 0.1, "param_group_tags": tags}
    built = frameworks.schedules("cerebras", "ConstantLR", kwargs, GROUPS)
    assert [schedule is not None for schedule in built] == wanted


def test_scale_per_param_takes_the_factor_of_its_group() -> None:
    kwargs = {"scheduler": nested("ConstantLR", {"learning_rate": 1})}
    built = frameworks.schedules("cerebras", "ScalePerParamLR", kwargs, GROUPS)
    values = [schedule.exact(0) for schedule in built if schedule is not None]
    assert values == [sp.Rational(1, 2), sp.Rational(1, 4), 2, 1, 1]


def test_torch_starts_from_the_group() -> None:
    groups: list[dict[str, Any]] = [{"lr": 0.5}, {"lr": 7, "initial_lr": 1}]
    built = frameworks.schedules("torch", "LinearLR", {"start_factor": 0.5}, groups)
    values = [schedule.exact(0) for schedule in built if schedule is not None]
    assert values == [sp.Rational(1, 4), sp.Rational(1, 2)]


def test_torch_function_for_each_group() -> None:
    kwargs = {"lr_lambda": [{"expr": "t"}, {"expr": "t**2"}]}
    built = frameworks.schedules("torch", "LambdaLR", kwargs, [{"lr": 1}, {"lr": 2}])
    assert [schedule.exact(3) for schedule in built if schedule is not None] == [3, 18]


def test_optimizers_take_their_own_defaults() -> None:
    cerebras = frameworks.optimizer("cerebras", "AdamW", {})
    torch = frameworks.optimizer("torch", "AdamW", {})
    assert cerebras.hyperparameters["eps"] == sp.Rational(1, 10**6)
    assert torch.hyperparameters["eps"] == sp.Rational(1, 10**8)
    assert "weight_decay" not in cerebras.hyperparameters
    assert torch.hyperparameters["weight_decay"] == sp.Rational(1, 100)
    assert cerebras.param != torch.param


def test_arguments_of_execution_change_nothing() -> None:
    plain = frameworks.optimizer("torch", "Adam", {"lr": 0.1})
    chosen = {"lr": 0.1, "foreach": True, "fused": False, "capturable": True}
    assert frameworks.optimizer("torch", "Adam", chosen) == plain


def sequence(*milestones: Any, system: str = "cerebras") -> Schedule:
    member = nested("ConstantLR", {"learning_rate": 1} if system == "cerebras" else {})
    spec = {"schedulers": [member, member], "milestones": list(milestones)}
    return frameworks.schedule(system, "SequentialLR", spec, base=1, as_implemented=False)


def deep(levels: int) -> Schedule:
    spec = nested("ConstantLR", {"learning_rate": 1})
    for _ in range(levels):
        spec = nested("SequentialLR", {"schedulers": [spec], "milestones": []})
    return frameworks.schedule("cerebras", spec["class"], spec["kwargs"])


BAD: dict[str, tuple[Callable[[], object], type[ClosedFormError], str]] = {
    "unknown framework": (
        lambda: frameworks.schedule("touch", "LinearLR", {}),
        UnknownNameError,
        "there is no framework 'touch': did you mean 'torch'?",
    ),
    "mistyped class": (
        lambda: frameworks.schedule("cerebras", "CosineDecyLR", {}),
        UnknownNameError,
        "cerebras has no scheduler 'CosineDecyLR': did you mean 'CosineDecayLR'?",
    ),
    "mistyped class for groups": (
        lambda: frameworks.schedules("torch", "LinearLr", {}, [{"lr": 1}]),
        UnknownNameError,
        "torch has no scheduler 'LinearLr': did you mean 'LinearLR'?",
    ),
    "mistyped optimizer": (
        lambda: frameworks.optimizer("torch", "Adamw", {}),
        UnknownNameError,
        "torch has no optimizer 'Adamw': did you mean 'AdamW'?",
    ),
    "mistyped member": (
        lambda: frameworks.schedule(
            "cerebras", "SequentialLR", {"schedulers": [nested("LinerLR", {})], "milestones": []}
        ),
        UnknownNameError,
        "cerebras has no scheduler 'LinerLR' (cerebras > SequentialLR): did you mean 'LinearLR'?",
    ),
    "mistyped argument": (
        lambda: frameworks.schedule("cerebras", "LinearLR", {**LINEAR, "total_iter": 1}),
        ArgumentError,
        "unknown argument 'total_iter' (cerebras > LinearLR): did you mean 'total_iters'?",
    ),
    "generic name in an lr class": (
        lambda: frameworks.schedule("cerebras", "ConstantLR", {"val": 1}),
        ArgumentError,
        "unknown argument 'val' (cerebras > ConstantLR): known are learning_rate, "
        "param_group_tags, total_iters",
    ),
    "missing argument": (
        lambda: frameworks.schedule("cerebras", "CosineDecayWD", {"initial_val": 1, "end_val": 0}),
        ArgumentError,
        "missing argument 'total_iters' (cerebras > CosineDecayWD): it needs initial_val, "
        "end_val, total_iters",
    ),
    "no arguments": (
        lambda: frameworks.optimizer("cerebras", "SGD", {}),
        ArgumentError,
        "missing argument 'lr' (cerebras > SGD): it needs lr",
    ),
    "arguments in a list": (
        lambda: frameworks.schedule("cerebras", "LinearLR", [1, 2, 3]),  # type: ignore[arg-type]
        ArgumentError,
        "arguments must be a mapping of names to values, got list (cerebras > LinearLR)",
    ),
    "sub-schedule of another form": (
        lambda: frameworks.schedule("cerebras", "ScalePerParamLR", {"scheduler": {"name": "x"}}),
        ArgumentError,
        "a sub-schedule must be {\"class\": name, \"kwargs\": {...}}, got {'name': 'x'} "
        "(cerebras > ScalePerParamLR)",
    ),
    "no base": (
        lambda: frameworks.schedule("torch", "PolynomialLR", {}, key="momentum"),
        ArgumentError,
        "a torch scheduler starts from the momentum of its group, got none "
        "(torch > PolynomialLR): give base, or a group that holds it",
    ),
    "no groups": (
        lambda: frameworks.schedules("torch", "PolynomialLR", {}, []),
        DefinitionError,
        "groups must hold at least one param group, got none (torch)",
    ),
    "tags of no group": (
        lambda: frameworks.schedules(
            "cerebras", "ConstantLR", {"learning_rate": 1, "param_group_tags": "c"}, GROUPS
        ),
        DefinitionError,
        "param_group_tags ['c'] match no param group (cerebras > ConstantLR): "
        "the groups carry ['None', 'a', 'b']",
    ),
    "no tags": (
        lambda: frameworks.schedule(
            "cerebras", "ConstantLR", {"learning_rate": 1, "param_group_tags": []}
        ),
        DefinitionError,
        "param_group_tags must name at least one tag, got [] (cerebras > ConstantLR): "
        "leave it out for all groups",
    ),
    "number of milestones": (
        lambda: sequence(3, 6),
        DefinitionError,
        "milestones must be one fewer than schedulers: expected 1, got 2 (cerebras > SequentialLR)",
    ),
    "fractional milestone": (
        lambda: sequence(2.5),
        DefinitionError,
        "milestones[0] must be an integer, got 2.5 (cerebras > SequentialLR)",
    ),
    "negative milestone of torch": (
        lambda: sequence(-4, system="torch"),
        DefinitionError,
        "milestones must be >= 0 and must not decrease, got -4 after 0 (torch > SequentialLR): "
        "sort them",
    ),
    "no members": (
        lambda: frameworks.schedule(
            "cerebras", "SequentialWD", {"schedulers": [], "milestones": []}
        ),
        DefinitionError,
        "schedulers must hold at least one schedule (cerebras > SequentialWD)",
    ),
    "text for a number": (
        lambda: frameworks.schedule("cerebras", "ConstantWD", {"val": "0.1"}),
        DefinitionError,
        "val of cerebras > ConstantWD must be a number, got str '0.1': give an int, a float, a "
        "Fraction or a SymPy number",
    ),
    "length 0": (
        lambda: frameworks.schedule("cerebras", "CosineDecayLR", {**LINEAR, "total_iters": 0}),
        DefinitionError,
        "total_iters must be above 0, got 0 (cerebras > CosineDecayLR): a schedule over no steps "
        "has no value; use constant(end)",
    ),
    "negative power of torch": (
        lambda: frameworks.schedule("torch", "PolynomialLR", {"power": -2}, base=1),
        DefinitionError,
        "power must be >= 0, got -2: the value at t = total_iters would be infinite "
        "(torch > PolynomialLR)",
    ),
    "too deep": (
        lambda: deep(40),
        DefinitionError,
        "schedules must not be nested deeper than 32 (cerebras > SequentialLR > …)",
    ),
    "scale of scale": (
        lambda: frameworks.schedule(
            "cerebras", "ScalePerParamLR", {"scheduler": nested("ScalePerParamLR", {})}
        ),
        DefinitionError,
        "a ScalePerParamLR cannot scale another one (cerebras > ScalePerParamLR): "
        "scale once, around the whole schedule",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        build()
    assert str(caught.value) == message


_ADAM = {"type": "AdamW", "params": {"lr": 0.01}}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"param_groups": [], "optimizer_lr": 0.01}, "each of 0 param groups, got 2"),
        ({"group_lrs": [0.1, 0.2], "group_index": 2}, r"must be in 0\.\.1, got 2"),
    ],
)
def test_a_group_that_is_not_there_is_refused(facts: dict[str, Any], message: str) -> None:
    numbers = {"warmup_num_steps": 4, "warmup_min_lr": [0, 0.01]}
    config = {"optimizer": _ADAM, "scheduler": {"type": "WarmupLR", "params": numbers}}
    with pytest.raises(DefinitionError, match=message):
        frameworks.schedule("deepspeed", "WarmupLR", config, facts=facts)


def test_the_argument_that_selects_a_curve_is_named_as_it_is_given() -> None:
    arguments = {"--lr_scheduler": "cosine", "--learning_rate": 1e-3, "--max_train_steps": 100}
    with pytest.raises(DefinitionError, match="give --lr_scheduler='linear'"):
        frameworks.schedule("kohya", "linear", arguments)
