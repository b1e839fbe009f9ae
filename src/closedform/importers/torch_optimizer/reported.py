"""The settings of torch that a traced step sees.

A step runs in float64, whatever the dtype of the parameters in the exported graph is. A question
about that dtype is answered for the reported one, and the answer is noted: a step that asks is
traced for each dtype. The default dtype is that of the user, and nothing is compiled.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from closedform.importers.python.place import UserValue
from closedform.importers.python.sandbox import MISSING
from closedform.importers.tensors.values import Operand
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.place import TORCH_FILES
from closedform.language.shapes import EPSILON

_FINFO = torch.finfo
_DEFAULT_DTYPE, _COMPILE = torch.get_default_dtype, torch.compile


class Reported:
    """A dtype, and whether the step has asked for it.

    Args:
        dtype: The dtype of the parameters, float32 or float64.
        run: The run that asks.
        is_only: Whether the step is for this dtype only, so that its epsilon is a number.

    Attributes:
        is_read: Whether the step has asked for the dtype.
    """

    def __init__(self, dtype: torch.dtype, run: Run, *, is_only: bool = False) -> None:
        self.dtype = dtype
        self.run = run
        self.is_only = is_only
        self.is_read = False

    def read(self) -> torch.dtype:
        """Returns the dtype, and notes that the step has asked for it."""
        self.is_read = True
        return self.dtype

    def of(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the dtype of a tensor that has this one in the trace."""
        return self.read() if dtype == torch.float64 else dtype

    def finfo(self, dtype: torch.dtype | None = None) -> Any:
        """Returns ``torch.finfo``; the epsilon of the parameters' dtype is a symbol."""
        float_type = self.read() if dtype is None else dtype
        if float_type != self.dtype or self.is_only:
            return _FINFO(float_type)
        self.is_read = True
        limits = _FINFO(float_type)
        members = {name: getattr(limits, name) for name in dir(limits) if name[0] != "_"}
        return types.SimpleNamespace(**members | {"eps": self.run.number(limits.eps, EPSILON)})


def _compile(model: Any = None, **_: Any) -> Any:
    """``torch.compile``: the function itself, which is traced."""
    return (lambda function: function) if model is None else model


@contextlib.contextmanager
def user_settings() -> Iterator[None]:
    """Answers questions of a step about the default dtype as before, and compiles nothing."""
    dtype = torch.get_default_dtype()

    def default_dtype() -> torch.dtype:
        # torch.optim keeps its numbers in the default dtype, here float64.
        is_of_torch = sys._getframe(1).f_code.co_filename in TORCH_FILES
        return _DEFAULT_DTYPE() if is_of_torch else dtype

    # Importing torch._dynamo takes a second; where it is not imported nothing is compiled yet.
    is_compiling = "torch._dynamo" in sys.modules
    eager = torch.compiler.set_stance("force_eager") if is_compiling else contextlib.nullcontext()
    with replace_members(torch, {"get_default_dtype": default_dtype, "compile": _compile}), eager:
        yield


@contextlib.contextmanager
def replace_members(owner: Any, members: Mapping[str, Any]) -> Iterator[None]:
    """Gives a module or class other members; what it has itself is there again in the end."""
    before = {name: vars(owner).get(name, MISSING) for name in members}
    try:
        for name, value in members.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is not MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


def settings() -> dict[int, Callable[..., Any]]:
    """Returns the functions in the place of those that :func:`user_settings` replaces, by id."""
    return {id(_DEFAULT_DTYPE): torch.get_default_dtype, id(_COMPILE): torch.compile}


def original_of(function: Any) -> Any:
    """Returns the function of Python that torch has compiled; any other value as it is."""
    if isinstance(function, torch.jit.ScriptFunction):
        return getattr(function, "_torchdynamo_inline", function)
    # functools.wraps copies the attribute to functions of users.
    is_of_torch = (
        isinstance(function, types.FunctionType) and function.__code__.co_filename in TORCH_FILES
    )
    return vars(function).get("_torchdynamo_orig_callable", function) if is_of_torch else function


class Shown(TorchFunctionMode):
    """Shows a plain step tensors of float64 as tensors of another dtype.

    Args:
        dtype: The dtype, float32 or float64.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        options = kwargs or {}
        name = function_name(func)
        if self.dtype == torch.float64:
            return func(*args, **options)
        if name == "type":
            args = with_dtypes(args)
            if len(args) == 1 and not options and args[0].dtype == torch.float64:
                return TYPE_NAMES[self.dtype]
        if name == "dtype.__get__":
            dtype = func(*args)
            return self.dtype if dtype == torch.float64 else dtype
        # A cast to the dtype that a tensor has already is the tensor itself.
        if target_of_cast(name, args, options) == self.dtype and args[0].dtype == torch.float64:
            return args[0].clone() if options.get("copy") else args[0]
        return func(*args, **options)


def function_name(func: UserValue) -> str:
    """Returns the name of a function of torch; that of an attribute with ``__get__``."""
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return f"{getattr(func.__self__, '__name__', '')}.{name}"
    return str(name)


TYPE_NAMES = {
    torch.float64: "torch.DoubleTensor",
    torch.float32: "torch.FloatTensor",
    torch.float16: "torch.HalfTensor",
    torch.bfloat16: "torch.BFloat16Tensor",
}
"""Dtypes as ``Tensor.type`` names them."""


def with_dtypes(args: Operand) -> list[Any]:
    """Returns the arguments of ``Tensor.type`` with dtypes in the places of their names."""
    dtypes = {name: dtype for dtype, name in TYPE_NAMES.items()}
    return [dtypes.get(arg, arg) if isinstance(arg, str) else arg for arg in args]


def target_of_cast(name: str, args: Operand, options: Operand) -> torch.dtype | None:
    """Returns the dtype that a call casts a tensor to, float32 or float64; None for other calls."""
    if name in _CASTS:
        return _CASTS[name]
    dtypes = [arg for arg in (*args, *options.values()) if isinstance(arg, torch.dtype)]
    is_cast = name in ("to", "type") and dtypes and dtypes[0] in _CASTS.values()
    return dtypes[0] if is_cast else None


_CASTS = {"double": torch.float64, "float": torch.float32}
