"""``is`` and literal patterns of traced functions, judged by calling each function.

CPython asks no object for its identity, so a traced truth is never the object ``True``: each
function here changes at one step beyond those at which a schedule is compared with it.
"""

import enum
import itertools
import operator
import typing
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.language import GRAD, PARAM, t
from closedform.language.update_rule import UpdateRule
from tests.support.torch_optimizers import Counting

STEPS = (0, 1, 5, 6, 54_320, 54_321, 54_322, 10**9 + 5)

TRUTHS = (
    "(step == 54321)",
    "(not step < 54321)",
    "bool(step // 54321)",
    "np.bool_(step == 54321)",
    "(step > 5 and step == 54321)",
    "any(step == last for last in (3, 54321))",
)
OTHERS = ("True", "False", "None", "np.True_", "np.False_", "(step > 5)", "1.5", "'x'")
TESTS = (
    "{left} is {right}",
    "{right} is {left}",
    "{left} is not {right}",
    "operator.is_({left}, {right})",
    "(3 > 2) is not ({left} is {right})",
    "{{'done': {left}}}['done'] is {right}",
)


def function_of(body: str) -> Callable[[int], Any]:
    """The function of a step whose body is a text."""
    names: dict[str, Any] = {"np": np, "operator": operator}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "is" with a literal
        exec("def function(step):\n" + body, names)
    result: Callable[[int], Any] = names["function"]
    return result


def wrong_steps(function: Callable[[int], Any]) -> list[int]:
    """The steps at which the schedule of a function has another value."""
    schedule = cf.from_python(function)
    return [step for step in STEPS if float(schedule.exact(step)) != float(function(step))]


@pytest.mark.sample(every=7)
@pytest.mark.parametrize(("left", "right", "test"), [*itertools.product(TRUTHS, OTHERS, TESTS)])
def test_the_identity_of_a_truth_is_that_of_the_function(left: str, right: str, test: str) -> None:
    condition = test.format(left=left, right=right)
    assert not wrong_steps(function_of(f"    return 0.5 if {condition} else 0.25\n"))


PATTERNS = {
    "case True": "{truth}",
    "case False | None": "{truth}",
    "case {'done': True}": "{{'done': {truth}, 'n': step}}",
    "case (True, bool())": "({truth}, step > 3)",
    "case [True, *_]": "[{truth}, step, step]",
    "case True if step > 3": "{truth}",
}


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_literal_pattern_matches_as_in_the_function(pattern: str, truth: str) -> None:
    subject = PATTERNS[pattern].format(truth=truth)
    body = f"    match {subject}:\n        {pattern}: return 0.5\n        case _: return 0.25\n"
    assert not wrong_steps(function_of(body))


def raises_by_identity(step: int) -> float:
    try:
        if (step == 54_321) is not False:
            raise LookupError(step)
    except LookupError:
        return 0.5
    return 0.25


class Mode(enum.Enum):
    WARM = 1
    COLD = 2


SENTINEL = object()
READ: dict[str, Callable[..., Any]] = {
    "in a handler": raises_by_identity,
    "of None": lambda step, end=None: 0.5 if end is None and step is not None else 0.25,
    "of a member of an enum": lambda step, mode=Mode.WARM: step if mode is Mode.WARM else 0.25,
    "of a type": lambda step: 0.5 if type(step) is int and type(step * 1.0) is float else 0.25,
    "of an object": lambda step, end=SENTINEL: 0.5 if end is SENTINEL else step,
    "of a type of typing": lambda step, ends=(7,): (
        step if isinstance(ends, typing.List) or isinstance(step, typing.Sized) else 0.25  # noqa: UP006
    ),
    "of a flag": lambda step, flag=True: 0.5 if flag is True and flag is not step else 0.25,
}


@pytest.mark.parametrize("name", READ)
def test_what_is_not_a_number_has_the_identity_that_it_has(name: str) -> None:
    assert not wrong_steps(READ[name])


LAST = 7
NUMBERS: dict[str, Callable[..., Any]] = {
    "of the step": function_of("    return 0.5 if step // 54321 is 1 else 0.25\n"),
    "of the step and itself": lambda step: 0.5 if step is step + 0 else 0.25,
    "of constants": lambda step, last=LAST: 0.5 if last is LAST else step,
    "as a function": lambda step: 0.5 if operator.is_not(step, LAST) else 0.25,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_identity_of_numbers_is_refused(name: str) -> None:
    with pytest.raises(TraceError, match=r"'is' between two numbers.*use =="):
        cf.from_python(NUMBERS[name])


def _updates(body: str) -> Callable[[Any], torch.optim.Optimizer]:
    names: dict[str, Any] = {"operator": operator}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(f"def update(p, g, own):\n    p.sub_(g if {body} else g / 4)\n", names)
    return lambda params: Counting(params, names["update"])


@pytest.mark.parametrize("body", [
    "(own['step'] == 54321) is True",
    "True is not (own['step'] < 54321)",
    "(lambda last: (own['step'] >= last) is True)(54321)",
])  # fmt: skip
def test_the_identity_of_truths_of_an_optimizer_is_that_of_its_step(body: str) -> None:
    rule = cf.from_torch(_updates(body)([torch.zeros(3, 4)]))
    assert isinstance(rule, UpdateRule)
    # The step is 1 in the first update, at t = 0.
    before, after = (rule.param.subs(t, step) for step in (54_319, 54_320))
    assert before == PARAM - GRAD / 4
    assert after == PARAM - GRAD


@pytest.mark.parametrize("body", ["own['step'] // 54321 is 1", "own['step'] is not own['step']"])
def test_the_identity_of_numbers_of_an_optimizer_is_refused(body: str) -> None:
    with pytest.raises(TraceError, match=r"'is' between two numbers.*use =="):
        cf.from_torch(_updates(body)([torch.zeros(3, 4)]))


def test_a_function_of_too_many_names_is_refused() -> None:
    names = "".join(f"    if step == 0 and n{index}: return 1\n" for index in range(255))
    function = function_of(names + "    return (step == 54321) is True\n")
    with pytest.raises(TraceError, match=r"a function with 'is' and 255 names.*use =="):
        cf.from_python(function)


class Phase(enum.IntEnum):
    FIRST = 1
    SECOND = 2


class Flags(enum.Flag):
    FIRST = 1
    SECOND = 2


def constant_member(step: int, mode: Phase = Phase.FIRST) -> float:
    return 0.5 * step if mode is Phase.FIRST else 0.25


def member_by_step(step: int) -> float:
    mode = Phase.FIRST if step < 54_321 else Phase.SECOND
    return 1.0 if mode is Phase.FIRST else 0.5


def combined_flags(step: int) -> float:
    return 0.5 * step if Flags.FIRST in Flags.FIRST | Flags.SECOND else 0.25


@pytest.mark.parametrize("function", [constant_member, member_by_step, combined_flags])
def test_members_of_an_enum_are_single_objects(function: Callable[[int], float]) -> None:
    schedule = cf.from_python(function)
    for step in (0, 7, 54_320, 54_321):
        assert schedule(step) == function(step)
