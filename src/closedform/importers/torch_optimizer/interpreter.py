"""Interpretation of a step beside its execution: two modes of torch.

The function mode sees Python arguments as they are: symbolic numbers, sizes, ``item()`` and truth
values of tensors. The dispatch mode sees aten operators, into which torch decomposes everything
else, and gives each result its value. A number reaches it without its expression, and finds it
again by its value among the numbers of the current call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import sympy as sp
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import TraceError
from closedform.importers.tensors.algebra import stacked
from closedform.importers.tensors.values import Operand, Value
from closedform.importers.torch_optimizer.algebra import ROUNDED, TorchAlgebra
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.operators import RULES, UNINITIALIZED, VIEWS
from closedform.importers.torch_optimizer.scalars import (
    SYMBOLIC,
    Float,
    SymbolicFloat,
    expression,
    plain,
    symbolic,
)
from closedform.importers.torch_optimizer.subject import in_double

TorchFunction: TypeAlias = Callable[..., Any]
_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_OPTIMIZERS = str(Path(torch.__file__).parent / "optim")


class Operators(TorchDispatchMode):
    """Executes aten operators and gives their results values."""

    def __init__(self, algebra: TorchAlgebra) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.algebra = algebra

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operator."""
        options = dict(kwargs or {})
        try:
            return self._run(func, args, options)
        except TraceError as error:
            raise located(error, str(func)) from error.__cause__

    def _run(self, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        options = in_double(options)
        name = func._schema.name.removeprefix("aten::")
        if name.startswith("profiler::"):
            return func(*args, **options)
        if name in _COLLECTIVES:
            return self._collective(func, args, options)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise TraceError("random numbers have no expression")
        is_list = name.startswith("_foreach_")
        name = name.removeprefix("_foreach_")
        in_place = name.endswith("_") and not name.endswith("__")
        base = name.removesuffix("_") if in_place else name
        if base in UNINITIALIZED:
            result = func(*args, **options)
            self.algebra.storages.create(result, None)
            return result
        if base in VIEWS and not in_place:
            return self._view(base, func, args, options)
        rule = RULES.get(base)
        if rule is None:
            if base in ("_local_scalar_dense", "allclose"):  # the function mode has their values
                return func(*args, **options)
            if not any(isinstance(arg, torch.Tensor | list | tuple) for arg in args):
                result = func(*args, **options)
                if not isinstance(result, torch.Tensor):
                    return result
            raise TraceError("the operation has no expression in the language")
        if is_list:
            return self._list(rule, func, args, options, in_place=in_place)
        targets = options.get("out", args[0] if in_place else None)
        semantic = {key: v for key, v in options.items() if key not in _WITHOUT_VALUE}
        value = rule(self.algebra, *args, **semantic)
        result = func(*args, **options)
        self._assign(targets if targets is not None else result, value)
        return result

    def _collective(self, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """Gathers the tensors of a group of one process: each output is the input."""
        count = torch.distributed.get_world_size()
        if count != 1:
            raise TraceError(
                f"the step communicates among {count} processes",
                hint="trace it in a process group of one",
            )
        (outputs,), (source,) = args[:2]
        value = self.algebra.value(source)
        result = func(*args, **options)
        for target in outputs:
            self._assign(target, value)
        return result

    def _list(
        self,
        rule: Callable[..., Any],
        func: Any,
        args: Sequence[Any],
        options: dict[str, Any],
        *,
        in_place: bool,
    ) -> Any:
        count = next(len(arg) for arg in args if isinstance(arg, list | tuple))

        def element(arg: Any, place: int) -> Any:
            return arg[place] if isinstance(arg, list | tuple) else arg

        values = []
        for place in range(count):
            self.algebra.place = place
            values.append(
                rule(
                    self.algebra,
                    *(element(arg, place) for arg in args),
                    **{key: element(arg, place) for key, arg in options.items()},
                )
            )
        self.algebra.place = None
        result = func(*args, **options)
        targets = args[0] if in_place else result
        for target, value in zip(targets, values, strict=True):
            self._assign(target, value)
        return result

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, list | tuple):
            for one, own in zip(target, value, strict=True):
                self._assign(one, own)
            return
        if isinstance(target, torch.Tensor):
            if isinstance(value, Value) and target.dtype in ROUNDED:
                value = self.algebra.rounded(value, ROUNDED[target.dtype])
            self.algebra.storages.create(target, value)

    def _view(self, base: str, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        source = args[0]
        views = VIEWS[base](self.algebra, *args, **options)
        result = func(*args, **options)
        storages = self.algebra.storages
        if storages.of(source) is None:
            return result
        results = result if isinstance(result, list | tuple) else [result]
        for view, one in zip(views, results, strict=True):
            if storages.of(one) is storages.of(source):
                storages.view(source, one, view)
            else:
                storages.create(one, view.read(self.algebra.value(source)))
        return result


_COLLECTIVES = frozenset({"c10d::allgather_"})
"""Collective operators of torch.distributed that have a value in a group of one process."""

_WITHOUT_VALUE = frozenset(
    {"out", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"}
)


class Functions(TorchFunctionMode):
    """Gives Python the symbolic numbers of tensors, and operators those of Python."""

    def __init__(self, algebra: TorchAlgebra, run: Run) -> None:
        super().__init__()
        self.algebra = algebra
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        options = dict(kwargs or {})
        name = _name(func)
        special = _SPECIAL.get(name)
        try:
            if special is not None:
                return special(self, func, args, options)
            return self._call(func, args, options)
        except TraceError as error:
            raise located(error, name) from error.__cause__

    def _call(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        algebra = self.algebra
        numbers = list(_numbers((args, options)))
        found: dict[float, sp.Expr | None] = {}
        plain_floats = {float(n) for n in numbers if type(n) is float}
        for number in numbers:
            if isinstance(number, SYMBOLIC):
                value = float(plain(number))
                is_other = found.get(value, number.expr) != number.expr
                found[value] = None if is_other or value in plain_floats else number.expr
        for tensor in _scalars([options.get(key) for key in ("alpha", "beta", "value")]):
            known = algebra.storages.read(tensor)
            if known is not None and known.items is None and not known.is_bool:
                expr = algebra.reshape(known, known.shape, ()).expr
                found.setdefault(float(tensor), expr)
        algebra.numbers, algebra.used = found, set()
        algebra.by_place = {
            (float(plain(number)), place): number.expr
            for arg in (*args, *options.values())
            if isinstance(arg, list | tuple)
            for place, number in enumerate(arg)
            if isinstance(number, SYMBOLIC)
        }
        try:
            result = func(*args, **options)
        finally:
            algebra.numbers = {}
        floats = {float(plain(n)) for n in numbers if isinstance(n, SymbolicFloat)}
        lost = floats - algebra.used
        if lost:
            raise TraceError(f"the operation loses the expression {found[lost.pop()]}")
        return result

    # --- numbers of tensors --------------------------------------------------------------------

    def item(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the only element as a Python number."""
        tensor = args[0]
        number = func(*args, **options)
        if not isinstance(number, bool | int | float):
            raise TraceError(f"a number of type {type(number).__name__} has no expression")
        value = self.algebra.value(tensor)
        if value.items is not None:
            value = value.items[0]
        if value.is_bool:
            return self.run.decide(value.expr, bool(number))
        expr = self.algebra.reshape(value, value.shape, ()).expr
        if isinstance(number, bool):
            return self.run.decide(sp.Ne(expr, 0), number)
        return symbolic(number, expr, self.run)

    def truth(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the truth of the only element."""
        holds = func(*args, **options)
        value = self.algebra.value(args[0])
        if value.items is not None:
            value = value.items[0]
        expr = self.algebra.reshape(value, value.shape, ()).expr if value.shape else value.expr
        return self.run.decide(expr if value.is_bool else sp.Ne(expr, 0), bool(holds))

    def close(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns whether all elements of two tensors are close."""
        holds = func(*args, **options)
        first, second, *rest = args
        relative, absolute = (
            rest[place] if len(rest) > place else options.get(name, default)
            for place, (name, default) in enumerate((("rtol", 1e-5), ("atol", 1e-8)))
        )

        def excess(x: sp.Expr, y: sp.Expr) -> sp.Expr:
            return sp.Abs(x - y) - expression(absolute) - expression(relative) * sp.Abs(y)

        gap = self.algebra.map(excess, first, second, name="gap")
        largest = self.algebra.reduce("max", gap, tuple(first.shape), None)
        return self.run.decide(sp.Le(largest.expr, 0), bool(holds))

    def as_float(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the only element as a float."""
        return Float(self.item(torch.Tensor.item, args, options))

    def made(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns a tensor made of Python numbers."""
        data = args[0]
        if isinstance(data, torch.Tensor):
            return self._call(func, args, options)
        result = func(*args, **options)
        if isinstance(data, SYMBOLIC):
            self.algebra.storages.create(result, Value(data.expr))
        elif isinstance(data, list | tuple) and any(isinstance(n, SYMBOLIC) for n in data):
            self.algebra.storages.create(result, stacked([Value(expression(n)) for n in data]))
        return result

    # --- shapes --------------------------------------------------------------------------------

    def _size(self, number: int) -> Any:
        return symbolic(number, self.algebra.axes.size(number), self.run, is_size=True)

    def _is_of_param(self, tensor: torch.Tensor) -> bool:
        return tensor.dim() > 0

    def shape(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the shape, or the size along an axis."""
        result = func(*args, **options)
        if self._is_of_param(args[0]):
            self.algebra.is_structural = True
        if isinstance(result, int):
            return self._size(result)
        return torch.Size([self._size(number) for number in result])

    def rank(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the number of axes."""
        if self._is_of_param(args[0]):
            self.algebra.is_structural = True
        return func(*args, **options)

    def count(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the number of elements."""
        number = func(*args, **options)
        return symbolic(number, self.algebra.axes.size(number), self.run)


_SPECIAL: Mapping[str, Callable[..., Any]] = {
    "item": Functions.item,
    "__float__": Functions.as_float,
    "__int__": Functions.item,
    "__index__": Functions.item,
    "__bool__": Functions.truth,
    "is_nonzero": Functions.truth,
    "allclose": Functions.close,
    "tensor": Functions.made,
    "as_tensor": Functions.made,
    "shape.__get__": Functions.shape,
    "size": Functions.shape,
    "__len__": Functions.shape,
    "ndim.__get__": Functions.rank,
    "dim": Functions.rank,
    "ndimension": Functions.rank,
    "numel": Functions.count,
    "nelement": Functions.count,
}


def _name(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return f"{getattr(func.__self__, '__name__', '')}.{name}"
    return str(name)


def _numbers(given: Any) -> Iterator[Any]:
    if isinstance(given, list | tuple):
        for one in given:
            yield from _numbers(one)
    elif isinstance(given, dict):
        yield from _numbers(list(given.values()))
    elif isinstance(given, float | int) and not isinstance(given, bool):
        yield given


def _scalars(given: Any) -> Iterator[torch.Tensor]:
    """Tensors of one element, which torch takes where it takes numbers."""
    if isinstance(given, list | tuple):
        for one in given:
            yield from _scalars(one)
    elif isinstance(given, dict):
        yield from _scalars(list(given.values()))
    elif isinstance(given, torch.Tensor) and given.dim() == 0 and given.is_floating_point():
        yield given


def located(error: TraceError, operation: str) -> TraceError:
    """Returns an error that names the operation, the file and the line of the optimizer."""
    if error.where is not None:
        return error
    return TraceError(error.what, where=f"{operation} in {place()}", hint=error.hint)


def place() -> str:
    """Returns the file and line of the innermost frame of an optimizer."""
    frame = sys._getframe(1)
    found = "unknown code"
    while frame is not None:
        file = frame.f_code.co_filename
        is_own = file.startswith(_HERE)
        if not is_own and (not file.startswith(_TORCH) or file.startswith(_OPTIMIZERS)):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return found
