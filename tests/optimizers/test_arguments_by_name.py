"""Unknown keywords and names of rules and transforms are answered with the name that is meant."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from closedform import optimizers, transforms
from closedform.errors import ArgumentError

FUNCTIONS = [
    (module, name)
    for module in (optimizers, transforms)
    for name in module.__all__
    if not inspect.isclass(getattr(module, name))
]
IDS = [name for _, name in FUNCTIONS]
# The keywords of other libraries, and the arguments that they may mean, the likeliest first.
FOREIGN = {
    "learning_rate": ("lr",),
    "wd": ("weight_decay",),
    "adam_betas": ("betas",),
    "beta_1": ("beta1", "betas"),
    "adam_epsilon": ("eps",),
}


def refusal(function: Callable[..., Any], keyword: str) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        function(**{keyword: 0.1})
    assert f"there is no argument {keyword!r}" in caught.value.what
    assert caught.value.where == function.__name__
    return caught.value


def swapped(name: str) -> str:
    """A name with its first two different neighbours in the other order."""
    at = next((at for at in range(1, len(name) - 1) if name[at] != name[at + 1]), 0)
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=IDS)
def test_a_misspelled_argument_is_answered(module: ModuleType, name: str) -> None:
    function = getattr(module, name)
    parameters = inspect.signature(function).parameters
    misspelled = {swapped(word): word for word in parameters}.items()
    for keyword, word in misspelled:
        if keyword not in parameters and len(word) > 3:
            assert refusal(function, keyword).hint == f"did you mean {word!r}?"


@pytest.mark.parametrize("name", optimizers.__all__)
def test_a_keyword_of_another_library_is_answered(name: str) -> None:
    function = getattr(optimizers, name)
    parameters = inspect.signature(function).parameters
    for keyword, words in FOREIGN.items():
        expected = next((word for word in words if word in parameters), None)
        if expected is not None and keyword not in parameters:
            assert refusal(function, keyword).hint == f"its name here is {expected!r}"


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=IDS)
def test_a_misspelled_name_is_answered(module: ModuleType, name: str) -> None:
    for word in (name.title().replace("_", ""), f"{name}s"):
        if word not in module.__all__:
            with pytest.raises(AttributeError, match=f"no attribute '{word}': did you mean"):
                getattr(module, word)
