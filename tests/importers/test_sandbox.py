"""The sandbox that traced functions and traced optimizers share."""

import ast
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.python.rebuild import Environment as FunctionSandbox
from closedform.importers.python.sandbox import Sandbox
from closedform.importers.torch_optimizer.environment import Environment as OptimizerSandbox
from closedform.language.symbols import GRAD, PARAM, hyper

IMPORTERS = Path(__file__).parents[2] / "src" / "closedform" / "importers"
SANDBOX = IMPORTERS / "python" / "sandbox.py"
POLICIES = {
    FunctionSandbox: IMPORTERS / "python" / "rebuild.py",
    OptimizerSandbox: IMPORTERS / "torch_optimizer" / "environment.py",
}
HOOKS = Sandbox.__abstractmethods__ | {"check_unchanged", "variable", "cell_content", "_import"}
"""The methods of the sandbox that state a policy."""


def definitions(file: Path) -> set[str]:
    """The classes, functions, methods and module variables that a file defines."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    targets = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = {node.name for node in nodes} | {n.id for n in targets if isinstance(n, ast.Name)}
    return {name for name in names if not (name.startswith("__") and name.endswith("__"))}


def made_functions(file: Path) -> Iterator[str]:
    """The calls of a file that make a function of a code, or a variable of a closure."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        function = node.func if isinstance(node, ast.Call) else None
        name = function.attr if isinstance(function, ast.Attribute) else ""
        if function is not None and name in ("FunctionType", "CellType"):
            yield f"{file.name}:{function.lineno}"


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_defines_nothing_of_the_sandbox_but_its_hooks(kind: type[Sandbox]) -> None:
    common_names = definitions(POLICIES[kind]) & definitions(SANDBOX)
    assert common_names <= HOOKS
    assert issubclass(kind, Sandbox)


def test_the_policies_share_no_other_definition() -> None:
    first, second = map(definitions, POLICIES.values())
    assert first & second <= HOOKS | {"Environment"}


def test_only_the_sandbox_makes_functions() -> None:
    # optax/hypers.py copies closures with other numbers; JAX runs the copies.
    folders = (IMPORTERS / "python", IMPORTERS / "torch_optimizer")
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    calls = [call for file in files for call in made_functions(file)]
    assert calls
    assert {call.partition(":")[0] for call in calls} == {SANDBOX.name}


def test_a_second_sandbox_is_found(tmp_path: Path) -> None:
    file = tmp_path / "second.py"
    file.write_text("import types\nMISSING = 1\nclass Module:\n    def wrap(self): pass\n")
    assert definitions(file) & definitions(SANDBOX) - HOOKS == {"MISSING", "Module", "wrap"}
    file.write_text("import types\nclone = types.FunctionType(code, {})\n")
    assert list(made_functions(file)) == ["second.py:2"]


NAMES = list(itertools.permutations(("first", "second", "scale")))
"""Names of two functions and a variable: closures list them in the order of the alphabet."""


def closure_of(order: tuple[str, ...]) -> Callable[[Any], Any]:
    """A function that calls another one, which reads the same variable of a closure."""
    outer, inner, scale = order
    text = (
        f"def make({scale}):\n"
        f"    def {outer}(step): return {inner}(step) + {scale}\n"
        f"    def {inner}(step): return {scale} * step\n"
        f"    return {outer}\n"
    )
    namespace: dict[str, Any] = {}
    exec(compile(text, "closures.py", "exec"), namespace)
    function: Callable[[Any], Any] = namespace["make"](0.25)
    return function


class Scaled(torch.optim.Optimizer):
    """Steps by a function of a number."""

    def __init__(self, params: Any, scale: Callable[[Any], Any]) -> None:
        super().__init__(params, {"lr": 0.5})
        self.scale = scale

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.data.sub_(param.grad, alpha=self.scale(group["lr"]))


@pytest.mark.parametrize("order", NAMES, ids=" ".join)
def test_functions_share_the_variable_of_a_closure(order: tuple[str, ...]) -> None:
    function = closure_of(order)
    assert [cf.from_python(function)(step) for step in range(3)] == [0.25, 0.5, 0.75]
    rule = cf.from_torch(Scaled([torch.nn.Parameter(torch.zeros(2, 3))], function))
    assert isinstance(rule, cf.UpdateRule)
    assert rule.param - (PARAM - GRAD * (hyper("lr") / 4 + sp.Rational(1, 4))) == 0


TOTAL = 0.0


def counts_in_closure() -> Callable[[Any], Any]:
    count = 0

    def add(step: Any) -> Any:
        nonlocal count
        count += 1
        return step

    def scale(step: Any) -> Any:
        return add(step)

    return scale


def counts_in_module(step: Any) -> Any:
    global TOTAL
    TOTAL += 1
    return step


def changes_a_list() -> Callable[[Any], Any]:
    seen: list[int] = []

    def scale(step: Any) -> Any:
        seen.append(1)
        return step

    return scale


CHANGES = {
    "closure": (counts_in_closure(), "assigns 'count', a variable outside of", "count += 1"),
    "module": (counts_in_module, "assigns 'TOTAL', a variable outside of", "TOTAL += 1"),
    "list": (changes_a_list(), "changes a list that exists outside of", "seen.append(1)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_outside_is_refused_at_its_line(name: str) -> None:
    function, message, source = CHANGES[name]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.strip() == source)
    with pytest.raises(TraceError) as of_function:
        cf.from_python(function)
    assert message in str(of_function.value)
    assert f"test_sandbox.py, line {line}" in str(of_function.value)
    with pytest.raises(TraceError) as of_step:
        cf.from_torch(Scaled([torch.nn.Parameter(torch.zeros(2, 3))], function))
    assert message in str(of_step.value)
    assert f"test_sandbox.py:{line}" in str(of_step.value)


@pytest.mark.parametrize("values", [np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])])
def test_an_assignment_beside_an_array_is_refused_at_its_line(values: Any) -> None:
    count = 0

    def counting(step: int) -> float:
        nonlocal count
        count += 1
        return float(values[0]) * step

    with pytest.raises(TraceError, match=r"assigns 'count', a variable outside of it.*count \+= 1"):
        cf.from_python(counting)
