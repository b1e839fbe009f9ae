"""Generated classes: their arguments and signatures, and the public modules that hold them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, nearest
from closedform.recipes.entries import REQUIRED, Parameter
from closedform.torch.compat.arguments import annotation_of

Argument = object
"""The value of an argument of another library's class, which the table of the class checks."""


def class_namespace(
    module: str, classes: Mapping[str, type], names: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__``, which finds generated classes, and ``__dir__`` of a module.

    Args:
        module: The name of the module, for errors.
        classes: The classes by name.
        names: The other public names of the module.
    """
    public = sorted({*classes, *names})

    def find(name: str) -> Any:
        if name in classes:
            return classes[name]
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}: {nearest(name, public)}"
        )

    return find, lambda: public


def bound_arguments(
    owner: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Returns the arguments of a class by name; unknown names are not checked here.

    Args:
        owner: The name of the class, for errors.
        names: The names of its arguments, in order.
        args: The arguments given by position.
        kwargs: The arguments given by name.
        where: The location in error messages.

    Raises:
        ArgumentError: There are too many arguments, or one is given twice.
    """
    if len(args) > len(names):
        raise ArgumentError(
            f"{owner} takes at most {len(names)} arguments, got {len(args)}", where=where
        )
    arguments = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name in arguments:
            raise ArgumentError(f"argument {name!r} is given twice", where=where)
    return {**arguments, **kwargs}


def shown_parameters(parameters: Iterable[Parameter]) -> list[inspect.Parameter]:
    """Returns arguments for a signature; the default of one that is exact is shown as a float."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature_parameters = []
    for parameter in parameters:
        is_exact = isinstance(parameter.default, sp.Expr)
        value = float(parameter.default) if is_exact else parameter.default
        default = inspect.Parameter.empty if value is REQUIRED else value
        annotation = annotation_of(parameter)
        signature_parameters.append(
            inspect.Parameter(parameter.name, kind, default=default, annotation=annotation)
        )
    return signature_parameters


def keyword_only(**defaults: object) -> list[inspect.Parameter]:
    """Returns keyword-only arguments for a signature."""
    signature_parameters = shown_parameters(
        Parameter(name, value) for name, value in defaults.items()
    )
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in signature_parameters
    ]
