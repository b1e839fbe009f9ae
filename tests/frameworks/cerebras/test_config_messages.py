"""The messages of the config functions, and what their results come to."""

from collections.abc import Callable

import pytest

from closedform import frameworks
from closedform.errors import ArgumentError, ClosedFormError, ConfigError, UnknownNameError
from closedform.frameworks import cerebras

LINE = {"scheduler": "Linear", "initial_learning_rate": 0, "end_learning_rate": 1}
BAD: dict[str, tuple[Callable[[], object], type[ClosedFormError], str]] = {
    "text": (
        lambda: cerebras.configure_lr_scheduler("fast"),
        ConfigError,
        "a learning rate must be a number, got 'fast' (cerebras > configure_lr_scheduler)",
    ),
    "a list of numbers": (
        lambda: cerebras.configure_lr_scheduler([0.1, 0.2]),
        ConfigError,
        "a learning rate must be a number, a scheduler or a list of schedulers, got [0.1,"
        " 0.2] (cerebras > configure_lr_scheduler)",
    ),
    "an int as implemented": (
        lambda: cerebras.configure_lr_scheduler(3, as_implemented=True),
        ConfigError,
        "a learning rate must be a float, got 3 (cerebras > configure_lr_scheduler)",
    ),
    "main schedulers that differ": (
        lambda: cerebras.configure_lr_scheduler(
            [{**LINE, "main_scheduler": "a"}, {**LINE, "main_scheduler": "B"}]
        ),
        ConfigError,
        "values of main_scheduler differ: ['a', 'B'] (cerebras > configure_lr_scheduler)",
    ),
    "no length before the last": (
        lambda: cerebras.configure_lr_scheduler(
            [
                {"scheduler": "Constant", "learning_rate": 1},
                {"scheduler": "constantlr", "learning_rate": 2},
            ]
        ),
        ConfigError,
        "every scheduler but the last needs total_iters, ConstantLR has none (cerebras > "
        "configure_lr_scheduler): the next one begins there",
    ),
    "chained and adjusted": (
        lambda: cerebras.configure_lr_scheduler(
            [{"scheduler": "Constant", "learning_rate": 1, "main_scheduler": "CHAINED"}],
            {"embedding": 2},
        ),
        ConfigError,
        "a chained learning rate cannot be adjusted (cerebras > configure_lr_scheduler): "
        "leave adjust_learning_rate out",
    ),
    "no scheduler": (
        lambda: cerebras.configure_scheduler_params({"total_iters": 4}),
        UnknownNameError,
        "the config has no 'scheduler' (cerebras > configure_scheduler_params): name its "
        "class there",
    ),
    "no mapping": (
        lambda: cerebras.configure_scheduler_params(["Linear"]),  # type: ignore[arg-type]
        ConfigError,
        "a scheduler must be a mapping, got ['Linear'] (cerebras > configure_scheduler_params)",
    ),
    "unknown class": (
        lambda: cerebras.configure_scheduler_params({"scheduler": "liner"}),
        ConfigError,
        "cerebras has no learning rate scheduler 'liner' (cerebras > "
        "configure_scheduler_params): did you mean 'LinearLR'?",
    ),
    "a chain by name": (
        lambda: cerebras.configure_scheduler_params({"scheduler": "Chained"}),
        ConfigError,
        "ChainedLR cannot be named here: it takes no optimizer (cerebras > "
        "configure_scheduler_params): set main_scheduler to chained in a list of "
        "schedulers",
    ),
    "argument in lower case": (
        lambda: cerebras.configure_scheduler_params({"scheduler": "CosineAnnealing", "t_max": 4}),
        ConfigError,
        "'t_max' is not an argument (cerebras > configure_scheduler_params): write 'T_max'",
    ),
    "old name of an argument": (
        lambda: cerebras.configure_scheduler_params({"scheduler": "Linear", "decay_steps": 4}),
        ConfigError,
        "'decay_steps' is no longer the name of an argument (cerebras > "
        "configure_scheduler_params): write 'total_iters'",
    ),
    "unknown argument": (
        lambda: cerebras.configure_scheduler_params({"scheduler": "Linear", "total_iter": 4}),
        ConfigError,
        "LinearLR has no argument 'total_iter' (cerebras > configure_scheduler_params): "
        "did you mean 'total_iters'?",
    ),
    "nested form": (
        lambda: cerebras.configure_scheduler([]),  # type: ignore[arg-type]
        ConfigError,
        "a scheduler must be {class name: {arguments}}, got [] (cerebras > configure_scheduler)",
    ),
    "nested class": (
        lambda: cerebras.configure_scheduler({"linearlr": {}}),
        ConfigError,
        "cerebras has no scheduler 'linearlr' (cerebras > configure_scheduler): did you "
        "mean 'LinearLR'?",
    ),
    "generic class": (
        lambda: cerebras.configure_scheduler({"StepScheduler": {}}),
        ArgumentError,
        "StepScheduler is a generic class, which schedules no key (cerebras > "
        "configure_scheduler): name its LR or WD class, such as StepLR",
    ),
    "nested arguments": (
        lambda: cerebras.configure_scheduler({"StepWD": [1]}),
        ArgumentError,
        "arguments of StepWD must be a mapping, got [1] (cerebras > configure_scheduler)",
    ),
    "tags of a member": (
        lambda: cerebras.configure_scheduler(
            {
                "ChainedWD": {
                    "param_group_tags": "a",
                    "schedulers": [{"ConstantWD": {"val": 1, "param_group_tags": "b"}}],
                }
            }
        ),
        ConfigError,
        "a member has tags of its own: 'b' (cerebras > configure_scheduler > ConstantWD):"
        " give them to the composite alone",
    ),
    "milestones": (
        lambda: cerebras.configure_scheduler(
            {"SequentialWD": {"milestones": [2], "schedulers": [{"ConstantWD": {"val": 1}}]}}
        ),
        ArgumentError,
        "milestones follow from total_iters of the members (cerebras > "
        "configure_scheduler > SequentialWD): leave them out",
    ),
    "unknown optimizer": (
        lambda: cerebras.configure_optimizer_params("adamm", {}),
        ConfigError,
        "cerebras has no optimizer 'adamm' (cerebras > configure_optimizer_params): did "
        "you mean 'Adam'?",
    ),
    "old name in an optimizer": (
        lambda: cerebras.configure_optimizer_params("AdamW", {"beta2": 1}),
        ConfigError,
        "'beta2' is no longer the name of an argument (cerebras > "
        "configure_optimizer_params): write 'betas'",
    ),
    "learning rate of an optimizer": (
        lambda: cerebras.configure_optimizer_params("SGD", {"learning_rate": "x"}),
        ConfigError,
        "learning_rate must be a number, got 'x' (cerebras > configure_optimizer_params)",
    ),
    "optimizer in a list": (
        lambda: cerebras.configure_optimizer("SGD", [7]),  # type: ignore[arg-type]
        ConfigError,
        "an optimizer config must be a mapping, got [7] (cerebras > configure_optimizer_params)",
    ),
    "param groups in a list": (
        lambda: cerebras.configure_param_groups(["a"], [], [6]),  # type: ignore[arg-type]
        ConfigError,
        "the config must be a mapping, got [6] (cerebras > configure_param_groups)",
    ),
    "one factor for all": (
        lambda: cerebras.configure_param_groups_2_2(["a"], [], {"adjust_learning_rate": 5}),
        ConfigError,
        "adjust_learning_rate must be {layer type: factor}, got 5 "
        "(cerebras > configure_param_groups_2_2)",
    ),
    "tags of another form": (
        lambda: cerebras.configure_param_groups(["a"], [], {"params": [{"params": "a"}]}),
        ConfigError,
        "tags must be {\"params\": globs, \"tag\": name}, got {'params': 'a'} "
        "(cerebras > configure_param_groups)",
    ),
    "layer type": (
        lambda: cerebras.configure_param_groups(
            ["a"], [], {"adjust_learning_rate": {"embeding": 2}}
        ),
        ConfigError,
        "there is no layer type 'embeding' (cerebras > configure_param_groups): did you "
        "mean 'embedding'?",
    ),
    "globs of a tag": (
        lambda: cerebras.configure_param_groups(
            ["a"], [], {"params": {"params": "b*", "tag": "t"}}
        ),
        ConfigError,
        "['b*'] match no parameter (cerebras > configure_param_groups): globs are on the "
        "whole name",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_config_is_refused(name: str) -> None:
    call_bad, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        call_bad()
    assert str(caught.value) == message


def test_result_is_a_class_and_arguments_for_schedule() -> None:
    config = [{**LINE, "total_iters": 4}, {"scheduler": "Constant", "learning_rate": 1}]
    made = cerebras.configure_lr_scheduler(config)
    assert made is not None
    schedule = frameworks.schedule("cerebras", *made)
    same = frameworks.schedule("cerebras", "configure_lr_scheduler", {"config": config})
    assert [schedule.exact(step) for step in (0, 2, 4, 9)] == [0, same.exact(2), 1, 1]
    assert config[0]["scheduler"] == "Linear"


def test_numbers_are_constants() -> None:
    wanted = ("ConstantLR", {"learning_rate": 2.0})
    assert [cerebras.configure_lr_scheduler(value) for value in (2, 2.0, "2")] == [wanted] * 3
