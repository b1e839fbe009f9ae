"""closedform: a compiler of training schedules and optimizer steps to static graphs.

One expression is the formula in the docs, the value in Python, the graph in ONNX, the module in
torch and the object of the proofs. Importing this package imports none of the heavy libraries;
each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from closedform import delegation
from closedform.deprecation import deprecated_names
from closedform.version import __version__ as __version__

if TYPE_CHECKING:
    from closedform import (
        errors,
        expr,
        optimizers,
        scaling,
        schedules,
        torch,
        training,
        transforms,
        units,
    )
    from closedform import frameworks as frameworks
    from closedform.analysis.difference import diff
    from closedform.analysis.inverse import solve
    from closedform.analysis.linting import lint
    from closedform.analysis.recovery import recover
    from closedform.analysis.resuming import resume
    from closedform.analysis.writing import write_recipe
    from closedform.api.c import to_c
    from closedform.api.compiling import compile
    from closedform.api.importing import from_optax, from_python, from_torch
    from closedform.api.jax import to_jax
    from closedform.api.keras import to_keras
    from closedform.api.mlx import to_mlx
    from closedform.api.onnx import from_onnx, to_onnx
    from closedform.api.torch import to_torch
    from closedform.api.verification import certify, verify_file
    from closedform.errors import ClosedFormError
    from closedform.language import (
        Group,
        Schedule,
        UpdateRule,
        t,
    )
    from closedform.laws import design, predict
    from closedform.plotting import plot
    from closedform.recipes import Recipe, load_recipe
    from closedform.runtime import OptimizerSession, ScheduleSession
    from closedform.verify import claims

_HOME = {
    "ClosedFormError": "closedform.errors",
    "certify": "closedform.api.verification",
    "compile": "closedform.api.compiling",
    "from_onnx": "closedform.api.onnx",
    "from_optax": "closedform.api.importing",
    "from_python": "closedform.api.importing",
    "from_torch": "closedform.api.importing",
    "to_c": "closedform.api.c",
    "to_jax": "closedform.api.jax",
    "to_keras": "closedform.api.keras",
    "to_mlx": "closedform.api.mlx",
    "to_onnx": "closedform.api.onnx",
    "to_torch": "closedform.api.torch",
    "verify_file": "closedform.api.verification",
    "design": "closedform.laws",
    "diff": "closedform.analysis.difference",
    "lint": "closedform.analysis.linting",
    "plot": "closedform.plotting",
    "predict": "closedform.laws",
    "recover": "closedform.analysis.recovery",
    "resume": "closedform.analysis.resuming",
    "solve": "closedform.analysis.inverse",
    "Recipe": "closedform.recipes",
    "load_recipe": "closedform.recipes",
    "write_recipe": "closedform.analysis.writing",
    "OptimizerSession": "closedform.runtime",
    "ScheduleSession": "closedform.runtime",
    **dict.fromkeys(
        (
            "Group",
            "Schedule",
            "UpdateRule",
            "t",
        ),
        "closedform.language",
    ),
}
_MODULES = {
    "claims": "closedform.verify.claims",
    "errors": "closedform.errors",
    "expr": "closedform.expr",
    "frameworks": "closedform.frameworks",
    "optimizers": "closedform.optimizers",
    "scaling": "closedform.scaling",
    "schedules": "closedform.schedules",
    "torch": "closedform.torch",
    "training": "closedform.training",
    "transforms": "closedform.transforms",
    "units": "closedform.units",
}

__all__ = [
    "ClosedFormError",
    "Group",
    "OptimizerSession",
    "Recipe",
    "Schedule",
    "ScheduleSession",
    "UpdateRule",
    "certify",
    "claims",
    "compile",
    "design",
    "diff",
    "errors",
    "expr",
    "frameworks",
    "from_onnx",
    "from_optax",
    "from_python",
    "from_torch",
    "lint",
    "load_recipe",
    "optimizers",
    "plot",
    "predict",
    "recover",
    "resume",
    "scaling",
    "schedules",
    "solve",
    "t",
    "to_c",
    "to_jax",
    "to_keras",
    "to_mlx",
    "to_onnx",
    "to_torch",
    "torch",
    "training",
    "transforms",
    "units",
    "verify_file",
    "write_recipe",
]


_resolve_deprecated = deprecated_names(
    __name__,
    {
        "UnprovedWarning": "closedform.errors:UnprovedWarning",
        "equivalent_states": "closedform.verify.equivalent_states:equivalent_states",
    },
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME:
        return _resolve_deprecated(name, __all__)
    public = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return public


def __dir__() -> list[str]:
    return sorted(__all__)


_FUNCTIONS = {
    "evaluate_schedule": "closedform.compiler",
    "from_python": "closedform.api.importing",
    "picture": "closedform.plotting",
    "plot": "closedform.plotting",
    "rescale": "closedform.analysis.rescaling",
    "resume": "closedform.analysis.resuming",
    "verify": "closedform.api.verification",
}


def _load_function(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"the language calls no function {name!r}")
    return getattr(importlib.import_module(_FUNCTIONS[name]), name)


delegation.register(_load_function)
