"""Arguments of schedules: names of other frameworks are answered, old names still work."""

import inspect

import pytest

from closedform import schedules
from closedform.errors import ArgumentError
from closedform.language.config_names import NAMES, suggest_argument

FUNCTIONS = sorted(set(schedules.__all__) - {"reduce_on_plateau"})
# One meaning for each of the names that most schedules share.
SHARED_NAMES = ("start", "peak", "end", "steps", "warmup", "warmup_start", "decay")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_keyword_that_a_schedule_does_not_take_is_answered(name: str) -> None:
    function = getattr(schedules, name)
    parameters = inspect.signature(function).parameters
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        with pytest.raises(TypeError):  # the keywords are hyperparameters, of a missing definition
            function(num_training_steps=100)
        return
    with pytest.raises(ArgumentError) as caught:
        function(num_training_steps=100)
    assert "'num_training_steps'" in str(caught.value)
    if "steps" in parameters:
        assert str(caught.value).endswith("its name here is 'steps'")


@pytest.mark.parametrize(
    ("keyword", "parameters", "expected"),
    [
        ("T_max", ["start", "end", "steps"], "steps"),
        ("eta_min", ["start", "end", "steps"], "end"),
        ("maxLr", ["peak", "end", "steps"], "peak"),
        ("num_warmup_steps", ["peak", "end", "warmup"], "warmup"),
        ("warmup_init_lr", ["peak", "warmup", "warmup_start"], "warmup_start"),
        ("lr_gamma", ["value", "gamma", "milestones"], "gamma"),
        ("mielstones", ["value", "gamma", "milestones"], "milestones"),
    ],
)
def test_suggestion(keyword: str, parameters: list[str], expected: str) -> None:
    assert repr(expected) in suggest_argument(keyword, parameters)


def test_no_schedule_has_the_name_of_another_framework() -> None:
    parameters = {
        parameter
        for name in FUNCTIONS
        for parameter in inspect.signature(getattr(schedules, name)).parameters
    }
    ours = {*SHARED_NAMES, "gamma", "milestones", "power", "schedule"}
    assert not (parameters & NAMES.keys()) - ours


@pytest.mark.parametrize("name", ["wsd", "trapezoidal", "tri_stage", "wsd_checkpoints"])
def test_the_old_name_of_the_start_of_a_warmup(name: str) -> None:
    lengths = {"warmup": 10, "decay": 20} | ({"hold": 30} if name == "tri_stage" else {"steps": 90})
    if name == "wsd_checkpoints":
        del lengths["decay"]
    function = getattr(schedules, name)
    schedule = function(1, 0.5, **lengths, warmup_start=0.25)
    with pytest.warns(DeprecationWarning, match="use 'warmup_start'"):
        assert function(1, 0.5, **lengths, start=0.25) == schedule
    assert float(schedule.exact(0)) == 0.25
