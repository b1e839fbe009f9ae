"""The curves of frameworks: plain functions of the count, with the place of their originals."""

import ast
import re
from pathlib import Path

import pytest
import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import t
from closedform.recipes import kit
from closedform.recipes.clock import Facts

FRAMEWORKS = Path(kit.__file__).parents[1] / "frameworks"
FILES = sorted(FRAMEWORKS.glob("*/curves.py"))


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_curves_are_plain_functions(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    curves = r"math|itertools|typing|collections.abc|closedform\.frameworks\.(\w+\.)?curves"
    assert {name for name in imported(tree) if not re.fullmatch(curves, name)} == set()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        arguments = [*function.args.args, *function.args.kwonlyargs]
        assert all(argument.annotation is not None for argument in arguments), function.name
        if not function.name.startswith("_"):
            assert arguments[0].arg in ("count", "x"), function.name
            assert ast.get_docstring(function), function.name
    # The repository, its commit or version, and the file.
    assert re.search(r"\bat (commit|version) \S+ of \S+", ast.get_docstring(tree) or "")


def rising(count: int, *, rate: float, warmup: int) -> float:
    return rate * count / warmup if count < warmup else rate


def test_a_curve_takes_the_keys_of_sections_by_their_names() -> None:
    class Scheduler(kit.Section):
        rate: kit.Rate
        warmup: kit.Steps = 4
        decay: kit.Steps = 0

    config = Scheduler.read_whole(kit.Document({"rate": 0.1}, "run.yaml"))
    count = kit.Clock(kit.Unit.SAMPLE).count(Facts(global_batch_size=2)).n
    schedule = kit.curve("rising", rising, count, config)
    assert schedule.bound == sp.Piecewise((t / 20, t < 2), (sp.Rational(1, 10), True))
    assert kit.curve("rising", rising, count, config, rate=1).exact(1) == sp.S.Half


def test_an_argument_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="warmup"):
        kit.curve("rising", rising, rate=1)


def quotient(count: int, *, total: int) -> float:
    return 1 / (total - count)


def test_a_run_ends_at_an_exception() -> None:
    schedule = kit.curve("quotient", quotient, total=3)
    assert (schedule.last_step, schedule.ending) == (2, "division by zero")
    with pytest.raises(DefinitionError) as raised:
        kit.curve("quotient", quotient, total=0)
    assert str(raised.value) == "update 0 has no value: division by zero (quotient)"
