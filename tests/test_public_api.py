"""The public interface: names that ``dir`` shows, and types of public parameters."""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api as mypy_api

import closedform as cf

SOURCE = Path(cf.__file__).parent
MOST_ANY = 0.05
"""Largest share of the public parameters of a package that may be annotated with a bare ``Any``."""

NAMESPACES = [
    "closedform",
    "closedform.errors",
    "closedform.expr",
    "closedform.ir",
    "closedform.language",
    "closedform.laws",
    "closedform.optimizers",
    "closedform.recipes",
    "closedform.frameworks",
    "closedform.runtime",
    "closedform.scaling",
    "closedform.schedules",
    "closedform.torch",
    "closedform.training",
    "closedform.transforms",
    "closedform.units",
    "closedform.verify.claims",
]


@pytest.mark.parametrize("name", NAMESPACES)
def test_dir_shows_only_the_public_names(name: str) -> None:
    module = importlib.import_module(name)
    # The namespaces of closedform.torch are modules that a star import does not load.
    assert dir(module) == sorted((*module.__all__, *getattr(module, "_NAMESPACES", ())))
    assert [shown for shown in dir(module) if shown.startswith("_")] == []
    for shown in dir(module):
        assert getattr(module, shown) is not None


@pytest.mark.parametrize("name", NAMESPACES)
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'unknown_name'"):
        importlib.import_module(name).unknown_name  # noqa: B018 - the name is looked up


MOST_NAMES = 42
"""The largest number of public names at the top."""


def test_the_top_has_few_names() -> None:
    assert len(cf.__all__) <= MOST_NAMES


@pytest.mark.parametrize(
    ("module", "name", "nearest"),
    [
        ("closedform", "to_onx", "to_onnx"),
        ("closedform.errors", "ExportErrors", "ExportError"),
        ("closedform.expr", "gradd", "GRAD"),
        ("closedform.optimizers", "AdamW", "adamw"),
        ("closedform.schedules", "cosin", "cosine"),
        ("closedform.training", "exports", "export"),
        ("closedform.units", "token", "tokens"),
        ("closedform.verify.claims", "equals", "equal"),
    ],
)
def test_the_nearest_name_is_suggested(module: str, name: str, nearest: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}': did you mean '{nearest}'\\?$"):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("former", "home"),
    [
        ("UnprovedWarning", "closedform.errors"),
        ("equivalent_states", "closedform.verify.equivalent_states"),
    ],
)
def test_names_that_moved_warn(former: str, home: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"use {home}.{former}$"):
        value = getattr(cf, former)
    assert value is getattr(importlib.import_module(home), former)


def test_namespaces_of_the_package() -> None:
    assert cf.errors.DefinitionError.__module__ == "closedform.errors"
    assert cf.frameworks.__name__ == "closedform.frameworks"


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yields the public functions of a module, and those of its public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, ast.FunctionDef) and (
            not node.name.startswith("_") or node.name == "__init__"
        ):
            yield node


def annotations(function: ast.FunctionDef) -> list[ast.expr | None]:
    """Returns the annotations of the parameters, without self and cls."""
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [
        argument.annotation
        for argument in listed
        if argument is not None and argument.arg not in ("self", "cls")
    ]


def shares_of_any(source: Path) -> dict[str, float]:
    """Returns the share of public parameters that are annotated with a bare Any, by package.

    The modules that are in no package count as one.
    """
    total: Counter[str] = Counter()
    untyped: Counter[str] = Counter()
    for path in source.rglob("*.py"):
        package = path.relative_to(source).parts[0] if path.parent != source else "modules"
        for function in public_functions(ast.parse(path.read_text(encoding="utf-8")).body):
            for annotation in annotations(function):
                total[package] += 1
                untyped[package] += isinstance(annotation, ast.Name) and annotation.id == "Any"
    return {package: untyped[package] / count for package, count in total.items()}


def test_public_parameters_have_types() -> None:
    shares = shares_of_any(SOURCE)
    assert {"schedules", "optimizers", "torch", "verify"} <= set(shares)
    assert {package: share for package, share in shares.items() if share > MOST_ANY} == {}


def test_a_bare_any_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "def f(x: Any, y: int, *args: Any) -> Any: ...\n"
        "def _g(x: Any): ...\n"
        "class C:\n    def h(self, x: dict[str, Any], **options: Any): ...\n"
    )
    assert shares_of_any(tmp_path) == {"modules": 3 / 5}


@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("cf.to_torch(cf.schedules.cosine(1, 0, 10))", "ExportError: torch is not installed"),
        ("cf.from_torch(3)", "ExportError: torch is not installed"),
        ("cf.torch", "ModuleNotFoundError: closedform.torch needs torch, which is not installed"),
    ],
)
def test_missing_torch_names_the_extra_and_a_build_for_cpus(use: str, error: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import closedform as cf; {use}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.removeprefix("closedform.errors.").startswith(error)
    assert 'pip install "closedform[torch]"' in last
    assert "https://download.pytorch.org/whl/cpu" in last


def test_a_value_at_a_step_is_a_float_for_type_checkers(tmp_path: Path) -> None:
    path = tmp_path / "use.py"
    path.write_text(
        "import numpy as np\n"
        "from closedform import schedules\n"
        "lr = schedules.cosine(1, 0, 10)\n"
        "value: float = lr(3)\n"
        "values = lr(np.arange(3)).tolist()\n"
    )
    output, problems, status = mypy_api.run([str(path), "--strict"])
    assert status == 0, output + problems
