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
    from closedform import errors, optimizers, schedules, training, transforms
    from closedform.api import (
        certify,
        from_onnx,
        from_optax,
        from_python,
        from_torch,
        to_onnx,
        verify_file,
    )
    from closedform.compiler import compile
    from closedform.difference import diff
    from closedform.errors import ClosedFormError, UnprovedWarning
    from closedform.inverse import solve
    from closedform.language import (
        GRAD,
        PARAM,
        RANK,
        Group,
        Schedule,
        Shared,
        State,
        UpdateRule,
        chained,
        counter,
        floor_div,
        floor_mod,
        global_sum,
        hyper,
        matmul,
        non_finite,
        reduce_sum,
        sequential,
        shared,
        state,
        t,
        tensor_input,
        transpose,
    )
    from closedform.plotting import plot
    from closedform.recipes import Recipe, frameworks, load_recipe, load_schedules
    from closedform.recipes.clock import epochs, fraction, micro_batches, samples, tokens
    from closedform.recovery import recover
    from closedform.resuming import resume
    from closedform.runtime import OptimizerSession, ScheduleSession
    from closedform.targets import to_c, to_jax, to_keras, to_mlx, to_torch
    from closedform.verify import claims
    from closedform.verify.certificates.certificate import Certificate
    from closedform.verify.equivalent_states import equivalent_states
    from closedform.writing import write_recipe

_HOME = {
    "ClosedFormError": "closedform.errors",
    "UnprovedWarning": "closedform.errors",
    "compile": "closedform.compiler",
    **dict.fromkeys(
        (
            "certify",
            "from_onnx",
            "from_optax",
            "from_python",
            "from_torch",
            "to_onnx",
            "verify_file",
        ),
        "closedform.api",
    ),
    "diff": "closedform.difference",
    "plot": "closedform.plotting",
    "recover": "closedform.recovery",
    "resume": "closedform.resuming",
    "solve": "closedform.inverse",
    "Recipe": "closedform.recipes",
    "load_recipe": "closedform.recipes",
    "load_schedules": "closedform.recipes",
    **dict.fromkeys(
        ("epochs", "fraction", "micro_batches", "samples", "tokens"), "closedform.recipes.clock"
    ),
    "Certificate": "closedform.verify.certificates.certificate",
    "to_c": "closedform.targets",
    "to_jax": "closedform.targets",
    "to_keras": "closedform.targets",
    "to_mlx": "closedform.targets",
    "to_torch": "closedform.targets",
    "write_recipe": "closedform.writing",
    "equivalent_states": "closedform.verify.equivalent_states",
    "OptimizerSession": "closedform.runtime",
    "ScheduleSession": "closedform.runtime",
    **dict.fromkeys(
        (
            "GRAD",
            "PARAM",
            "RANK",
            "Group",
            "Schedule",
            "Shared",
            "State",
            "UpdateRule",
            "chained",
            "counter",
            "floor_div",
            "floor_mod",
            "global_sum",
            "hyper",
            "matmul",
            "non_finite",
            "reduce_sum",
            "sequential",
            "shared",
            "state",
            "t",
            "tensor_input",
            "transpose",
        ),
        "closedform.language",
    ),
}
_MODULES = {
    "claims": "closedform.verify.claims",
    "errors": "closedform.errors",
    "frameworks": "closedform.recipes.frameworks",
    "optimizers": "closedform.optimizers",
    "schedules": "closedform.schedules",
    "training": "closedform.training",
    "transforms": "closedform.transforms",
}

__all__ = [
    "GRAD",
    "PARAM",
    "RANK",
    "Certificate",
    "ClosedFormError",
    "Group",
    "OptimizerSession",
    "Recipe",
    "Schedule",
    "ScheduleSession",
    "Shared",
    "State",
    "UnprovedWarning",
    "UpdateRule",
    "certify",
    "chained",
    "claims",
    "compile",
    "counter",
    "diff",
    "epochs",
    "equivalent_states",
    "errors",
    "floor_div",
    "floor_mod",
    "fraction",
    "frameworks",
    "from_onnx",
    "from_optax",
    "from_python",
    "from_torch",
    "global_sum",
    "hyper",
    "load_recipe",
    "load_schedules",
    "matmul",
    "micro_batches",
    "non_finite",
    "optimizers",
    "plot",
    "recover",
    "reduce_sum",
    "resume",
    "samples",
    "schedules",
    "sequential",
    "shared",
    "solve",
    "state",
    "t",
    "tensor_input",
    "to_c",
    "to_jax",
    "to_keras",
    "to_mlx",
    "to_onnx",
    "to_torch",
    "tokens",
    "training",
    "transforms",
    "transpose",
    "verify_file",
    "write_recipe",
]


_deprecated = deprecated_names(
    __name__,
    {
        "dialects": "closedform.recipes.frameworks",
        "lift": "closedform.api:from_onnx",
        "load_config": "closedform.recipes:load_recipe",
    },
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME:
        return _deprecated(name, __all__)
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _load_api() -> Any:
    return importlib.import_module("closedform.api")


def _load_compiler() -> Any:
    return importlib.import_module("closedform.compiler")


delegation.register(_load_api, _load_compiler)
