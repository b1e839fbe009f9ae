"""Values that a Python config determines are those of Python; everything else is left open."""

import ast
import random

import pytest

from closedform.errors import ConfigError
from closedform.recipes.documents.python.syntax import source_text
from closedform.recipes.documents.python_text import parsed_python
from closedform.recipes.documents.values import Unresolved
from tests.recipes import python_programs
from tests.recipes.python_programs import SIMPLE, Count, check, program, sweep


def test_a_random_config_has_the_values_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    result = sweep(400, seed=1)
    assert result.wrong == []
    assert result.determined > 10 * result.programs
    assert result.refused < result.programs / 4


@pytest.mark.parametrize("place", range(0, len(SIMPLE), 20))
def test_each_statement_has_the_values_of_python(
    place: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Count()
    for statement in SIMPLE[place : place + 20]:
        monkeypatch.setattr(python_programs, "SIMPLE", (statement,))
        for seed in range(4):
            check(program(random.Random(seed)), result)
    assert result.wrong == []


def read(text: str, name: str = "LR") -> object:
    return parsed_python(text, "config.py").names[name]


OPEN = {
    "a loop": "for LR in (5,): pass",
    "a walrus": "x = (LR := 5)",
    "a match": "match 5:\n    case LR: pass",
    "a context": "with f() as LR: pass",
    "a global": "def f():\n    global LR\n    LR = 5\nf()",
    "an exception": "try:\n    f()\nexcept E as LR:\n    pass",
    "a star": "*LR, x = f()",
}


@pytest.mark.parametrize("name", OPEN)
def test_the_error_names_the_line_and_the_name(name: str) -> None:
    value = read(f"LR = 0.1\n{OPEN[name]}\n")
    assert isinstance(value, Unresolved)
    line = 3 if name in ("a match", "a global") else 2
    assert value.text.startswith("LR, which line ")
    assert int(value.text.split()[3]) in (2, line, 3)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("exec('LR = 5')", "exec"),
        ("globals()['LR'] = 5", "globals"),
        ("import sys\nsys.modules['x'].LR = 5", "modules"),
        ("import builtins", "builtins"),
        ("f.__globals__['LR'] = 5", "__globals__"),
    ],
)
def test_code_that_may_change_any_name_is_refused(text: str, name: str) -> None:
    line = text.count("\n") + 2
    with pytest.raises(ConfigError) as caught:
        read(f"LR = 0.1\n{text}\n")
    message = str(caught.value)
    assert message.startswith(f"{name} may change any name, so that the file does not determine")
    assert f"config.py, line {line}" in message


def test_objects_are_shared_as_in_python() -> None:
    assert read("d = dict(a=1)\ne = d\ne['a'] = 5\nLR = d['a']") == 5
    assert read("d = dict(a=dict(b=1))\nd['a']['b'] = 5\nLR = d['a']['b']") == 5
    assert read("L = [1, 2]\nL[-1] = 5\nLR = L[1]") == 5
    assert read("d = dict(a=1)\ne = dict(d)\ne['a'] = 5\nLR = d['a']") == 1


def test_a_function_that_is_not_called_changes_nothing() -> None:
    assert read("LR = 0.1\ndef f():\n    global LR\n    LR = 5\n") == 0.1


def test_an_entry_of_an_unknown_object_has_two_names() -> None:
    names = parsed_python("o = f.SGD\np = f.SGD\no.lr = 1\np.lr = 5\n", "config.py").names
    assert isinstance(names["o"], Unresolved)
    assert names["p.lr"] == 5


def test_hostile_configs_are_refused_in_little_time() -> None:
    for text in (
        "a = [0]\n" + "a.extend(a)\n" * 60,
        "a = [0]\n" + "a = [a, a]\n" * 60,
        "a = {}\na['a'] = a\n",
    ):
        with pytest.raises(ConfigError):
            parsed_python(text, "config.py")


def test_the_text_of_an_integer_that_python_does_not_write() -> None:
    tree = ast.parse(f"[0x{'f' * 4000} for milestone in milestones]")
    assert source_text(tree) == "an integer of more than 4,300 digits"
