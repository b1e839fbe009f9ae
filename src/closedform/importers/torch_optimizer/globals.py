"""The functions that the modules of an optimizer use, replaced while it is traced.

``math``, ``max``, ``float`` and their like would return plain numbers. Their names in the modules
of the optimizer's package refer to the versions for symbolic numbers during a trace, and to what
they were afterwards.
"""

from __future__ import annotations

import builtins
import math
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from closedform.importers.torch_optimizer.scalars import FUNCTIONS, MathModule

_BUILTINS = {name: FUNCTIONS[getattr(builtins, name)] for name in ("max", "min", "float", "int")}
_MATH = MathModule()


@contextmanager
def symbolic_functions(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Replaces functions of numbers in the modules of an optimizer."""
    changed: list[tuple[dict[str, object], str, object]] = []
    missing = object()
    try:
        for module in _modules(optimizer):
            names = vars(module)
            wanted: dict[str, object] = {
                name: value for name, value in _BUILTINS.items() if name not in names
            }
            for name, value in names.items():
                if value is math:
                    wanted[name] = _MATH
                elif _is_known(value):
                    wanted[name] = FUNCTIONS[value]
            for name, value in wanted.items():
                changed.append((names, name, names.get(name, missing)))
                names[name] = value
        yield
    finally:
        for names, name, value in reversed(changed):
            if value is missing:
                del names[name]
            else:
                names[name] = value


def _is_known(value: object) -> bool:
    is_function = isinstance(value, types.BuiltinFunctionType | type)
    return is_function and value in FUNCTIONS


def _modules(optimizer: torch.optim.Optimizer) -> list[types.ModuleType]:
    """The modules of the packages that the classes of an optimizer come from."""
    roots = set()
    for kind in type(optimizer).__mro__:
        name = kind.__module__
        if name == "builtins" or name in ("abc", "typing"):
            continue
        root = name.split(".")[0]
        roots.add("torch.optim" if root == "torch" else name if root == "__main__" else root)
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)
        and any(name == root or name.startswith(f"{root}.") for root in roots)
        and not name.startswith("closedform.")
    ]
