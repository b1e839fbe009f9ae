"""The curves of frameworks: plain functions of the count, with the place of their originals."""

import ast
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy as sp

from closedform import claims
from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_div, floor_mod, t
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
    # Python itself computes 0.97 - 0.9, in floats.
    operations = (node for node in ast.walk(tree) if isinstance(node, ast.BinOp))
    assert not [
        ast.unparse(node)
        for node in operations
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)
    ]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        arguments = [*function.args.args, *function.args.kwonlyargs]
        assert all(argument.annotation is not None for argument in arguments), function.name
        if not function.name.startswith("_"):
            assert arguments[0].arg in ("count", "x"), function.name
            assert ast.get_docstring(function), function.name
    # The repository, its commit or version, and the file.
    assert re.search(r"\bat (commit|version) \S+ of \S+", ast.get_docstring(tree) or "")


PEAK = 0.1
"""A number of a module, which is exact as well."""
TENTH = sp.Rational(1, 10)


def rising(count: int, *, rate: float, warmup: int) -> float:
    return rate * count / warmup if count < warmup else rate


def cosine(count: int, *, total: int) -> float:
    return PEAK * wave(min(count / total, 1))


def wave(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def stairs(count: int, *, every: int, ratio: float) -> float:
    factor: float = ratio ** int(count / every)
    return PEAK * factor


def table(count: int, *, marks: tuple[int, ...]) -> float:
    return PEAK / 3.0 ** sum(count >= mark for mark in marks)


def inverse_root(count: int, *, low: float) -> float:
    return max(1 / math.sqrt(count + 1), low)


def fractions(count: int) -> float:
    high, low = 0.97, 0.9
    return count * (high - low) + len("abc") / 9


def remainder(count: int, *, every: int) -> float:
    return count % every - -abs(count - every) // 2


@pytest.mark.parametrize(
    ("function", "count", "numbers", "expected"),
    [
        (rising, t, {"rate": TENTH, "warmup": 4}, sp.Piecewise((t / 40, t < 4), (TENTH, True))),
        (rising, 8 * t + 8, {"rate": 0.1, "warmup": 20}, sp.Min((t + 1) / 25, TENTH)),
        (cosine, t, {"total": 30}, (sp.cos(sp.pi * sp.Min(t / 30, 1)) + 1) / 20),
        (stairs, t, {"every": 5, "ratio": 0.5}, sp.Rational(1, 2) ** sp.floor(t / 5) / 10),
        (table, t, {"marks": (2,)}, sp.Piecewise((TENTH, t < 2), (TENTH / 3, True))),
        (inverse_root, t, {"low": 0.2}, sp.Max(TENTH * 2, 1 / sp.sqrt(t + 1))),
        (fractions, t, {}, 7 * t / 100 + sp.Rational(1, 3)),
        (remainder, t, {"every": 4}, floor_mod(t, 4) - floor_div(-sp.Abs(t - 4), 2)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_curve_is_an_expression_at_every_step(
    function: Callable[..., Any], count: sp.Expr, numbers: dict[str, Any], expected: sp.Expr
) -> None:
    schedule = kit.curve("curve", function, count, **numbers)
    assert schedule.length is None
    assert claims.equal(schedule, Schedule(expected)).verify().status.value == "PROVED"
    place = sp.lambdify(t, count)
    for step in (0, 1, 3, 4, 19, 29, 31):
        assert schedule(step) == pytest.approx(function(place(step), **numbers), rel=1e-14)


def test_lines_that_meet_change_where_they_meet() -> None:
    def rising(count: int) -> float:
        return min(max(0, count / 10), 1)

    def falling(count: int) -> float:
        return max(0, min(1, 2 - count / 10))

    rise, fall = kit.curve("rising", rising), kit.curve("falling", falling)
    assert rise.bound == sp.Piecewise((t / 10, t < 10), (1, True))
    assert fall.bound == sp.Piecewise((1, t < 10), (2 - t / 10, t < 20), (0, True))


def test_a_curve_takes_the_keys_of_sections_by_their_names() -> None:
    class Scheduler(kit.Section):
        rate: kit.Rate
        warmup: kit.Steps = 4
        decay: kit.Steps = 0

    config = Scheduler.read_whole(kit.Document({"rate": 0.1}, "run.yaml"))
    count = kit.Clock(kit.Unit.SAMPLE).position(Facts(global_batch_size=2))
    schedule = kit.curve("rising", rising, count, config)
    assert schedule.bound == sp.Piecewise((t / 20, t < 2), (TENTH, True))
    assert kit.curve("rising", rising, count, config, rate=1).exact(1) == sp.S.Half


def test_an_argument_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="argument: 'warmup'"):
        kit.curve("rising", rising, rate=1)


def pole(count: int, *, total: int) -> float:
    return 1 / (total - count)


def check(count: int) -> float:
    if count == 3:
        raise ValueError("the table has 3 rows")
    return math.log(5 - count)


def test_a_run_ends_at_an_exception() -> None:
    schedule = kit.curve("pole", pole, total=7)
    assert (schedule.last_step, schedule.ending) == (6, "division by zero")
    assert schedule.bound == 1 / (7 - sp.Min(t, 6))
    assert kit.curve("check", check).last_step == 2
    assert kit.curve("root", lambda count: math.sqrt(8 - count)).last_step == 8
    assert kit.curve("power", lambda count, e: (5 - count) ** e, e=0.5).last_step == 5
    assert kit.curve("power", lambda count, e: (5 - count) ** e, e=-0.5).last_step == 4
    with pytest.raises(DefinitionError) as raised:
        kit.curve("pole", pole, total=0)
    assert str(raised.value) == "update 0 has no value: division by zero (pole)"


def test_a_closure_takes_exact_numbers_and_curves() -> None:
    warmup, tenth, parts = 4, 0.1, [(9, 0.7), (12, 0.3)]

    def rise(count: float) -> float:
        return tenth * count / warmup

    def value(count: float) -> float:
        if count < warmup:
            return rise(count)
        return next((rise(mark) - part for mark, part in parts if count < mark), rise(warmup))

    schedule = kit.curve("closure", value)
    assert [schedule.exact(step) for step in (1, 4, 9, 99)] == [
        sp.Rational(1, 40),
        sp.Rational(9, 40) - sp.Rational(7, 10),
        0,
        TENTH,
    ]


def test_an_error_of_a_config_is_not_the_end_of_a_run() -> None:
    def value(count: float) -> float:
        kit.refuse_unless(count < 3, "the config is refused", "x")
        return 1

    with pytest.raises(DefinitionError, match="the config is refused"):
        kit.curve("value", value)


def test_a_power_of_zero_is_that_of_python() -> None:
    assert kit.curve("power", lambda count: (count - 2) ** 2.0).exact(2) == 0
    assert kit.curve("power", lambda count, e: abs(count) ** e, e=0).exact(0) == 1
    assert kit.curve("power", lambda count, e: (3 - count) ** (e - e), e=2).exact(3) == 1
    assert kit.curve("power", lambda count: (3 - count) ** -1).last_step == 2


def test_a_comparison_that_is_not_of_lines_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"a curve compares .* with 0, which is not a line"):
        kit.curve("square", lambda count: 1 if count**2 < 9 else 0)


def test_a_loop_that_the_count_does_not_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closedform.recipes.curves._MOST_PARTS", 32)

    def endless(count: int) -> float:
        total = 0
        while total <= count:
            total += 1
        return total

    with pytest.raises(DefinitionError, match="more than 32 parts of the run"):
        kit.curve("endless", endless)


def test_a_curve_needs_neither_numpy_nor_the_prover() -> None:
    program = """
import sys
from closedform.recipes import kit
kit.curve("line", lambda count: 1 if count < 9 else count / 9)
print({"numpy", "closedform.verify", "closedform.importers"} & set(sys.modules))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "set()\n"
