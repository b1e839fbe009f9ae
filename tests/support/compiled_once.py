"""Compilations by their arguments: the tests of optimizers in torch step the same rules often.

Compiling a rule is most of the time of a test that takes a few steps with it. What is remembered is
frozen; errors are not remembered. Tests of the compiler itself and of faults in it do without.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TypeVar
from unittest import mock

import sympy as sp

from closedform import compiler
from closedform.language import Schedule
from closedform.torch.distributed import shard_steps
from closedform.torch.engine import hyper_inputs, kernels

T = TypeVar("T")


def content(value: object) -> object:
    """Returns a key of a value: equal for equal content, with the types of numbers and the order.

    Raises:
        TypeError: The content of the value is not known.
    """
    match value:
        case None | bool() | int() | float() | str() | Enum() | sp.Basic():
            return type(value), value
        case Mapping():
            return tuple((key, content(each)) for key, each in value.items())
        case Schedule():
            return type(value), content(value.__getstate__())
        case list() | tuple():
            return tuple(map(content, value))
        case _ if is_dataclass(value):
            compared = (each.name for each in fields(value) if each.compare)
            return type(value), *(content(getattr(value, name)) for name in compared)
    raise TypeError(f"no key of {type(value).__name__} is known")


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """A function that is called once for arguments with the same content."""
    known: dict[object, T] = {}

    @functools.wraps(function)
    def found(*arguments: object, **named: object) -> T:
        key = content((arguments, named))
        if key not in known:
            known[key] = function(*arguments, **named)
        return known[key]

    return found


class Compilations:
    """The programs that the optimizers in torch have compiled in this session."""

    def __init__(self) -> None:
        self.assignments = remembered(compiler.compile_assignments)
        self.step = remembered(compiler.compile_step)
        self.init = remembered(compiler.compile_init)
        self.compiles = remembered(hyper_inputs._compiles)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Takes compilations from those remembered, until the block ends."""
        with (
            mock.patch.object(compiler, "compile_assignments", self.assignments),
            mock.patch.object(shard_steps, "compile_assignments", self.assignments),
            mock.patch.object(kernels, "compile_step", self.step),
            mock.patch.object(kernels, "compile_init", self.init),
            mock.patch.object(hyper_inputs, "_compiles", self.compiles),
        ):
            yield
