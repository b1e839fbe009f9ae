"""The numbers that traced functions and traced optimizers share."""

import ast
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError

SOURCE = Path(__file__).parents[2] / "src" / "closedform"
WITH_OPERATORS = {
    ("number.py", "Number"),
    ("number.py", "Truth"),
    ("exact.py", "_kind"),
    ("exact.py", "ExactInt"),  # constants, which also know their exact value
    ("shapes.py", "Shape"),  # a tuple
    ("sandbox.py", "Refused"),  # refuses each
    ("schedule.py", "Schedule"),  # sums and products of schedules
    # Curves of frameworks are our own functions, read whenever a config is: without the sandbox
    # and the prover that functions of strangers need, and whose import takes longer than a curve.
    ("curves.py", "_Number"),
}
"""The classes with the operators of a number."""


def bound_names(body: list[ast.stmt]) -> set[str]:
    """The names that the statements of a class bind."""
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def classes_with_operators(file: Path) -> Iterator[tuple[str, str]]:
    """The classes that define an addition from both sides, or get operators by name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name, body=body) if {"__add__", "__radd__"} <= bound_names(body):
                yield file.name, name
            case ast.Call(
                func=ast.Name(id="setattr"),
                args=[
                    ast.Name(id=name),
                    ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]),
                    _,
                ],
            ) if text.startswith("__"):
                yield file.name, name


def test_one_class_has_the_operators_of_traced_numbers() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert {pair for file in files for pair in classes_with_operators(file)} == WITH_OPERATORS


@pytest.mark.parametrize(
    "text",
    [
        "class Second:\n    def __add__(self, x): pass\n    def __radd__(self, x): pass\n",
        "class Second:\n    __add__, __radd__ = operators(add)\n",
        "class Second(float):\n    __add__ = __radd__ = add\n",
        "class Second: pass\nfor name in NAMES:\n    setattr(Second, f'__{name}__', add)\n",
    ],
)
def test_a_second_class_is_found(text: str, tmp_path: Path) -> None:
    file = tmp_path / "second.py"
    file.write_text(text)
    assert list(classes_with_operators(file)) == [("second.py", "Second")]


def _by_handler(x: float, pole: float = 3) -> float:
    try:
        return 1 / (x - pole)
    except ZeroDivisionError:
        return 0.5


def _by_root(x: float, end: float = 3) -> float:
    try:
        return math.sqrt(x - end)
    except ValueError:
        return 0.25


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "round": lambda x: round(x * 0.7),
    "digits": lambda x: round(x * 0.373, 1),
    "floor": lambda x: math.floor(x * 0.7) + math.ceil(x * 0.3) - math.trunc(x * 0.9),
    "quotient": lambda x: x // 3 + x % 3 + divmod(x, 4)[1],
    "bits": lambda x: (x & 5) + (x | 2) - (x ^ 1) + (x << 1) - (x >> 2),
    "remainder": lambda x: math.fmod(x + 0.5, 3) + math.remainder(x + 0.4, 3),
    "sign": lambda x: math.copysign(0.5, x - 3.5) + np.sign(x),
    "norm": lambda x: math.hypot(x, 2) + math.log(x + 2, 10) + math.pow(x, 1.5),
    "elementary": lambda x: math.sinh(x / 9) + np.log1p(x) + math.expm1(-x),
    "extrema": lambda x: max(x, 3) - min(0.5, x, 2) + np.clip(x, 2, 5),
    # An int at some counts, a float at others.
    "int of an extremum": lambda x: int(max(4, 0.7 * x)) + int(min(x, 6.5)),
    "floor of an extremum": lambda x: max(4, 0.7 * x) // 1 + math.floor(max(3, min(x, 6.5))),
    "remainder of an extremum": lambda x: max(4, 0.7 * x) % 1 + math.trunc(min(x, 6.5)),
    "choice": lambda x: np.where(x > 3, 0.5, x) + (1 if math.isclose(x, 4) else 0),
    "kind": lambda x: (x / 2).is_integer() + isinstance(x, int) + 2 * isinstance(x / 2, float),
    "members": lambda x: float.__add__(x / 2, 1.0) + int.__mul__(x, 2) + x.real,
    "sum": lambda x: sum([x, 1, x / 2]) + math.prod([x, 0.5]),
    "finite": lambda x: 0.5 if math.isfinite(x / 3) and not np.isnan(x) else 2.0,
    "scalars": lambda x: np.float64(0.5) / (x + 1) + np.sqrt(x).item() + np.asarray(x).item(),
    "handler": _by_handler,
    "root": _by_root,
}
"""Functions of a count, of Python and of NumPy."""


class Scaled(torch.optim.Optimizer):
    """Steps by a function of the number of steps."""

    def __init__(self, params: Any, scale: Callable[[Any], Any]) -> None:
        super().__init__(params, {"lr": 0.5})
        self.scale = scale

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                count = state.get("count", 0)
                state["count"] = count + 1
                param.sub_(param.grad, alpha=group["lr"] * self.scale(count))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_count_is_traced_in_schedules_and_in_steps(name: str) -> None:
    function = FUNCTIONS[name]
    schedule = cf.from_python(function)
    expected = [float(function(count)) for count in range(9)]
    # A few roundings of each function.
    np.testing.assert_allclose([schedule(count) for count in range(9)], expected, rtol=1e-14)
    params = [torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    rule = cf.from_torch(Scaled(params, function))
    assert isinstance(rule, cf.UpdateRule)
    session = cf.OptimizerSession(rule, {"w": np.zeros(2)})
    values = np.zeros(2)
    for value in expected:
        session.step({"w": np.ones(2)})
        values -= 0.5 * value
        np.testing.assert_allclose(session.params["w"], values, rtol=1e-12, atol=1e-14)


def test_an_integer_that_numpy_wraps_is_refused() -> None:
    """39**12 is beyond an int64."""
    params = [torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    rule = cf.from_torch(Scaled(params, lambda x: 1e-18 * float(np.int64(x) ** 2)))
    assert isinstance(rule, cf.UpdateRule)
    with pytest.raises(TraceError, match=r"wrapped to a narrow type of NumPy"):
        cf.from_torch(Scaled(params, lambda x: 1e-18 * float(np.int64(x) ** 12)))


READERS: dict[str, Callable[[Any], Any]] = {
    "percent d": lambda x: len("%d" % (100 * x)),  # noqa: UP031
    "percent f": lambda x: len("%f" % x),  # noqa: UP031
    "complex": lambda x: abs(complex(x)),
    "array": lambda x: np.asarray([x]).item(),
    "float32": lambda x: x * np.float32(0.1),
    "arcsinh": lambda x: np.arcsinh(x),
    "hex": lambda x: len(float.hex(x)),
}
"""Functions in C that read a number past its expression."""


@pytest.mark.parametrize("name", READERS)
def test_a_hyperparameter_that_c_reads_is_refused(name: str) -> None:
    def scale(x: Any) -> Any:
        try:
            return READERS[name](x)
        except Exception:
            return 0.5

    class Read(Scaled):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for param in group["params"]:
                    param.sub_(param.grad, alpha=self.scale(group["lr"]))

    params = [torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    with pytest.raises(TraceError, match=r"test_numbers\.py:\d+") as caught:
        cf.from_torch(Read(params, scale))
    assert "differs" not in str(caught.value)


OF_DATA: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: max(x, 0.5) - min(2.0, x),
    "maximum": lambda x: np.maximum(x, 0.5),
    "clip": lambda x: np.clip(x, 0.25, 2.0),
    "digits": lambda x: round(x, 1),
    "whole": lambda x: 1.0 if (x * 8).is_integer() else 0.5,
    "handler": lambda x: _by_handler(x, 1),
    "root": lambda x: _by_root(x, 1),
    "integer": lambda x: _integer(x),
}
"""Functions of the norm of a gradient."""


def _integer(x: float) -> float:
    try:
        return int(x * 4) / 8
    except (ValueError, OverflowError):
        return 0.125


class Measuring(Scaled):
    """Steps by a function of the norm of the gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                factor = self.scale(param.grad.norm().item())
                param.sub_(torch.ones_like(param), alpha=group["lr"] * factor)


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("name", OF_DATA)
def test_a_function_of_data_is_that_of_floats(name: str) -> None:
    param = parameter()
    optimizer = Measuring([param], OF_DATA[name])
    rule = cf.from_torch(Measuring([parameter()], OF_DATA[name]))
    assert isinstance(rule, cf.UpdateRule)
    for size in (0.0, 0.3, 1.0, 1.375, 40.0, math.inf, math.nan):
        gradient = np.array([size, 0.0])
        session = cf.OptimizerSession(rule, {"w": param.detach().numpy().copy()})
        session.step({"w": gradient})
        param.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(session.params["w"], param.detach().numpy(), rtol=1e-14)
        param.detach().zero_()


@pytest.mark.parametrize("name", ["fmod", "remainder", "hypot", "isclose"])
def test_a_formula_of_finite_numbers_is_refused_for_data(name: str) -> None:
    with pytest.raises(TraceError, match=f"{name} of a number of data, which may be NaN"):
        cf.from_torch(Measuring([parameter()], lambda x: getattr(math, name)(x, 2.0) + 0.0))
