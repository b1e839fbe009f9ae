"""Interpretation of a step during its execution: two modes of torch.

The function mode sees Python arguments as they are: symbolic numbers, sizes, ``item()`` and truth
values of tensors. The dispatch mode sees aten operators, into which torch decomposes everything
else, and gives each result its value. A number reaches it without its expression, and finds it
again by its value among the numbers of the current call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sympy as sp
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import TraceError
from closedform.importers.python.number import Number
from closedform.importers.tensors.algebra import stack_values, truth
from closedform.importers.tensors.comparisons import is_of_data
from closedform.importers.tensors.integers import Width
from closedform.importers.tensors.values import Operand, Value, twin_of
from closedform.importers.torch_optimizer.algebra import ROUNDED, TorchAlgebra
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.inputs import (
    DISTRIBUTIONS,
    Draws,
    input_label,
    shift_and_scale,
)
from closedform.importers.torch_optimizer.matrices import refusal
from closedform.importers.torch_optimizer.operators import RULES, UNINITIALIZED, VIEWS
from closedform.importers.torch_optimizer.place import code_place
from closedform.importers.torch_optimizer.positions import check_positions, items_within
from closedform.importers.torch_optimizer.reported import (
    TYPE_NAMES,
    Reported,
    function_name,
    target_of_cast,
    with_dtypes,
)
from closedform.importers.torch_optimizer.shapes import shape_of
from closedform.importers.torch_optimizer.stand_ins import expression, plain
from closedform.importers.torch_optimizer.subject import in_double
from closedform.language.model import non_finite, tensor_input
from closedform.language.symbols import t

TorchFunction: TypeAlias = Callable[..., Any]


class Operators(TorchDispatchMode):
    """Executes aten operators and gives their results values."""

    def __init__(self, algebra: TorchAlgebra, run: Run, draws: Draws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.algebra = algebra
        self.run = run
        self.draws = draws
        self._counts: dict[tuple[str, int], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operator."""
        options = dict(kwargs or {})
        try:
            return self._run(func, args, options)
        except TraceError as error:
            raise self.run.record(with_place(error, str(func))) from error.__cause__

    def _run(self, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        options = in_double(options)
        name = func._schema.name.removeprefix("aten::")
        # torch.optim wraps each step in record_function, whose operators compute nothing.
        if name.startswith("profiler::"):
            return func(*args, **options)
        if name in _COLLECTIVES:
            return self._collective(func, args, options)
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._draw(func, name, args, options)
        is_list = name.startswith("_foreach_")
        name = name.removeprefix("_foreach_")
        # `__and__` and `__or__` end with two underscores and are not in place.
        in_place = name.endswith("_") and not name.endswith("__")
        base = name.removesuffix("_") if in_place else name
        if base in UNINITIALIZED:
            result = func(*args, **options)
            self.algebra.storages.create(result, None)
            return result
        if base in VIEWS:
            return self._view(base, func, args, options, in_place=in_place)
        rule = RULES.get(base)
        if rule is None:
            if base == "_local_scalar_dense":
                return self._number(func, args[0])
            if base == "allclose":  # the function mode has its value
                return func(*args, **options)
            if not any(isinstance(arg, torch.Tensor | list | tuple) for arg in args):
                result = func(*args, **options)
                if not isinstance(result, torch.Tensor):
                    return result
            raise refusal(base)
        if is_list:
            return self._list(rule, func, args, options, in_place=in_place)
        targets = options.get("out", args[0] if in_place else None)
        semantic = {key: v for key, v in options.items() if key not in _WITHOUT_VALUE}
        # The rule before the operator: in place, the operator overwrites an operand.
        value = rule(self.algebra, *args, **semantic)
        result = func(*args, **options)
        self._assign(targets if targets is not None else result, value)
        if targets is None:
            self._widen(result, args)
        return result

    def _draw(self, func: Any, name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """Draws random numbers: in the shape of a parameter they are an input of the rule."""
        algebra = self.algebra
        if name not in DISTRIBUTIONS:
            raise TraceError(
                f"random numbers of {name} have no expression",
                hint="draw standard numbers by torch.randn_like or torch.rand_like",
            )
        shift, scale = shift_and_scale(name, args, options)
        result = self.draws.run(func, name, args, options)
        shape, shapes = tuple(result.shape), algebra.axes.both
        if shapes.count(shape) != 1:
            raise TraceError(
                f"random numbers of the shape {list(shape)} have no expression",
                hint="drawn in the shape of a parameter of several elements, they are an input",
            )
        kind, place = DISTRIBUTIONS[name], shapes.index(shape)
        count = self._counts[kind, place] = self._counts.get((kind, place), 0) + 1
        symbol = tensor_input(input_label(kind, count))
        symbol = twin_of(symbol) if place else symbol
        algebra.definitions.shapes[symbol] = shape
        numbers = Value(symbol, shape)
        value = algebra.map(lambda z, m, s: m + s * z, numbers, shift, scale, name="drawn")
        self._assign(result, value)
        return result

    def _widen(self, result: Any, operands: Sequence[Any]) -> None:
        """Notes that new tensors are float64 where one of their operands is."""
        storages = self.algebra.storages
        if any(tensor.dim() and storages.is_wide(tensor) for tensor in _tensors(list(operands))):
            for tensor in _tensors(result):
                storage = storages.of(tensor)
                if storage is not None and tensor.dtype == torch.float64:
                    storage.is_wide = True

    def _number(self, func: Any, tensor: torch.Tensor) -> Any:
        """Reads the only element of a tensor, which an operation takes as a number."""
        number = func(tensor)
        stored_value = self.algebra.storages.read(tensor)
        # `add(alpha=tensor)` reads a number in C++; only item() and float() ask for it in Python.
        if stored_value is not None and not self.algebra.is_asked:
            if stored_value.is_bool or stored_value.items is not None:
                raise TraceError("an operation takes an element of a tensor as a number")
            expr = self.algebra.element(stored_value).expr
            if not expr.is_number:
                value = float(number)
                numbers = self.algebra.numbers
                # None where two expressions have the same value: then which one is meant is
                # unknown.
                numbers[value] = expr if numbers.get(value, expr) == expr else None
                self.algebra.floats_to_read.add(value)
        return number

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
        # `_foreach_mul_(tensors, 0.9)` has one number for all, `_foreach_mul_(tensors, scalars)` a
        # list.
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
        if not in_place:
            for place, target in enumerate(targets):
                self._widen(target, [element(arg, place) for arg in args])
        return result

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, list | tuple):
            for item, target_item in zip(target, value, strict=True):
                self._assign(item, target_item)
            return
        if isinstance(target, torch.Tensor):
            if isinstance(value, Value) and target.dtype in ROUNDED:
                value = self.algebra.round_to(value, ROUNDED[target.dtype])
            width = Width.of(str(target.dtype))
            if width is not None and width.is_short and isinstance(value, Value):
                value = self.algebra.map(
                    width.wrap(self.algebra.definitions), value, name="wrapped"
                )
            self.algebra.storages.create(target, value)

    def _view(
        self, base: str, func: Any, args: Sequence[Any], options: dict[str, Any], *, in_place: bool
    ) -> Any:
        # `unsqueeze_` changes the shape of its operand; a detached alias keeps the old one.
        source = args[0].detach() if in_place else args[0]
        views = VIEWS[base](self.algebra, *args, **options)
        result = func(*args, **options)
        storages = self.algebra.storages
        if storages.of(source) is None:
            return result
        results = result if isinstance(result, list | tuple) else [result]
        for view, part in zip(views, results, strict=True):
            # reshape copies where strides do not allow a view.
            if storages.of(part) is storages.of(source):
                storages.view(source, part, view)
            else:
                storages.create(part, view.read(self.algebra.value(source)))
        return result


_COLLECTIVES = frozenset({"c10d::allgather_"})
"""Collective operators of torch.distributed that have a value in a group of one process."""

_WITHOUT_VALUE = frozenset(
    {"out", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"}
)


class Functions(TorchFunctionMode):
    """Gives Python the symbolic numbers of tensors, and operators the numbers of Python."""

    def __init__(self, algebra: TorchAlgebra, run: Run, precision: Reported) -> None:
        super().__init__()
        self.algebra = algebra
        self.run = run
        self.reported = precision

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        options = in_double(kwargs or {})
        name = function_name(func)
        arguments = args = with_dtypes(args) if name == "type" else args
        # A cast to float32 would round: the trace is in float64. promote_types asks about dtypes
        # only.
        if name != "promote_types":
            args = [torch.float64 if arg is torch.float32 else arg for arg in args]
        special = _SPECIAL.get(name)
        target = target_of_cast(name, arguments, kwargs or {})
        if name == "type" and len(args) == 1 and not kwargs:
            special = Functions.type_name
        if target is not None and self.reported.dtype != torch.float64:
            special = functools.partial(Functions.cast, target=target)
        try:
            if special is not None:
                return special(self, func, args, options)
            result = self._call(func, args, options)
            self._check(name, args, options, result)
            return result
        except TraceError as error:
            raise self.run.record(with_place(error, name)) from error.__cause__

    def _check(self, name: str, args: Operand, options: Operand, result: Any) -> None:
        """Refuses what reaches Python without its expression.

        Raises:
            TraceError: The result is something other than tensors with values.
        """
        if name in _PLAIN:
            return
        tensors = list(_tensors(result))
        if not tensors and not _is_nothing(result):
            raise TraceError(f"{name} gives Python a value of the type {type(result).__name__}")
        storages = self.algebra.storages
        has_operands = any(storages.of(tensor) is not None for tensor in _tensors((args, options)))
        unknown = [tensor for tensor in tensors if storages.of(tensor) is None]
        if has_operands and any(tensor.numel() for tensor in unknown):
            raise TraceError(f"{name} makes a tensor outside of the traced operations")

    def _call(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        algebra = self.algebra
        numbers = list(_numbers((args, options)))
        expressions: dict[float, sp.Expr | None] = {}
        plain_floats = {float(n) for n in numbers if type(n) is float}
        for number in numbers:
            if isinstance(number, Number):
                check_positions(self.run, number.expr, "an operation of tensors")
                value = float(plain(number))
                # Operators get floats, not symbols: a value is found again only if one expression
                # has it.
                is_other = expressions.get(value, number.expr) != number.expr
                expressions[value] = None if is_other or value in plain_floats else number.expr
        for tensor in _scalars([options.get(key) for key in ("alpha", "beta", "value")]):
            stored_value = algebra.storages.read(tensor)
            if stored_value is not None and stored_value.items is None and not stored_value.is_bool:
                expressions.setdefault(float(tensor), algebra.element(stored_value).expr)
        algebra.numbers, algebra.read_floats, algebra.floats_to_read = expressions, set(), set()
        algebra.by_place = {
            (float(plain(number)), place): number.expr
            for arg in (*args, *options.values())
            if isinstance(arg, list | tuple)
            for place, number in enumerate(arg)
            if isinstance(number, Number)
        }
        try:
            result = func(*map(plain, args), **{key: plain(arg) for key, arg in options.items()})
        finally:
            # The next call has other numbers: an equal one there has another expression.
            algebra.numbers = {}
        floats = {float(plain(n)) for n in numbers if _has_a_place(n)}
        # A float that no rule has asked for was replaced on the way: the result would miss its
        # expression.
        unread = (floats | algebra.floats_to_read) - algebra.read_floats
        if unread:
            raise TraceError(f"the operation loses the expression {expressions[unread.pop()]}")
        return result

    def _ask(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the number that a tensor is; its expression is that of the tensor."""
        self.algebra.is_asked = True
        try:
            return func(*args, **options)
        finally:
            self.algebra.is_asked = False

    # --- numbers of tensors --------------------------------------------------------------------

    def item(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the only element as a Python number."""
        tensor = args[0]
        number = self._ask(func, args, options)
        if not isinstance(number, bool | int | float):
            raise TraceError(f"a number of type {type(number).__name__} has no expression")
        value = self.algebra.element(tensor)
        if value.is_bool or isinstance(number, bool):
            return self.run.decide(truth(value.expr), bool(number))
        return self.run.number(number, value.expr)

    def truth(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the truth of the only element."""
        holds = self._ask(func, args, options)
        return self.run.decide(truth(self.algebra.element(args[0]).expr), bool(holds))

    def close(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns whether all elements of two tensors are close."""
        holds = func(*args, **options)
        first, second, *rest = args
        relative, absolute = (
            rest[place] if len(rest) > place else options.get(name, default)
            # The defaults of torch.allclose.
            for place, (name, default) in enumerate((("rtol", 1e-5), ("atol", 1e-8)))
        )

        def excess(x: sp.Expr, y: sp.Expr) -> sp.Expr:
            # Relative to the second operand: allclose is not symmetric.
            return sp.Abs(x - y) - expression(absolute) - expression(relative) * sp.Abs(y)

        gap = self.algebra.map(excess, first, second, name="gap")
        largest = self.algebra.reduce("max", gap, tuple(first.shape), None)
        return self.run.decide(sp.Le(largest.expr, 0), bool(holds))

    def number_in_c(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the only element as an int or float, which a function in C asks for."""
        number = self.item(torch.Tensor.item, args, options)
        # A TypeError of C for such a number could be caught by the step.
        if isinstance(number, Number):
            raise TraceError("a function in C reads a tensor as a number")
        return func(*args, **options)

    def create_tensor(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns a tensor made of Python numbers."""
        data = args[0]
        if isinstance(data, torch.Tensor):
            return self._call(func, args, options)
        if any(True for _ in _tensors(data)):
            raise TraceError("a tensor is made of the numbers of tensors")
        result = func(*map(plain, args), **options)
        if isinstance(data, Number):
            self.algebra.storages.create(result, Value(expression(data)))
        elif isinstance(data, list | tuple) and any(isinstance(n, Number) for n in data):
            self.algebra.storages.create(result, stack_values([Value(expression(n)) for n in data]))
        return result

    def finite(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns which elements are finite; torch compares their sizes with infinity."""
        result = func(*args, **options)
        value = self.algebra.map(lambda x: sp.Eq(non_finite(x), 0), args[0], name="mask")
        self.algebra.storages.create(result, value)
        return result

    def dtype(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the dtype of a tensor: that of the export for the parameters' own."""
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if any(map(self.algebra.storages.is_wide, tensors)):
            return torch.float64
        return self.reported.of(func(*args, **options))

    def type_name(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the name of the dtype of a tensor."""
        dtype = self.dtype(torch.Tensor.dtype.__get__, args, options)  # type: ignore[attr-defined]
        return TYPE_NAMES.get(dtype) or func(*args)

    def cast(
        self, func: TorchFunction, args: Operand, options: Operand, *, target: torch.dtype
    ) -> Any:
        """Returns a tensor in float32 or float64; one of the other dtype is copied.

        In the trace it is float64, and torch would return the tensor itself.
        """
        source, storages = args[0], self.algebra.storages
        is_wide = target == torch.float64
        if not source.is_floating_point() or storages.is_wide(source) == is_wide:
            return self._call(func, args, options)
        is_double = source.dtype == torch.float64
        result = (
            self._call(torch.clone, [source], {}) if is_double else self._call(func, args, options)
        )
        storage = storages.of(result)
        if storage is not None:
            storage.is_wide = is_wide
        return result

    def element_size(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the bytes of an element."""
        return self.reported.of(args[0].dtype).itemsize

    # --- shapes --------------------------------------------------------------------------------

    def _size(self, number: int) -> Any:
        return self.run.number(number, self.algebra.axes.size(number))

    def _ask_rank(self, tensor: torch.Tensor) -> None:
        if tensor.dim() > 0:
            # A step that asks for the rank may have another formula for another one: the rule is
            # for this rank.
            self.algebra.is_structural = True
            owner = self.algebra.owner(tensor)
            if owner is not None:
                self.algebra.ranks.add(owner)

    def shape(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the shape, or the size along an axis."""
        result = func(*args, **options)
        self._ask_rank(args[0])
        if isinstance(result, int):
            return self._size(result)
        return shape_of(map(self._size, result))

    def rank(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the number of axes."""
        self._ask_rank(args[0])
        return func(*args, **options)

    def count(self, func: TorchFunction, args: Operand, options: Operand) -> Any:
        """Returns the number of elements."""
        number = func(*args, **options)
        return self.run.number(number, self.algebra.axes.size(number))


_SPECIAL: Mapping[str, Callable[..., Any]] = {
    "item": Functions.item,
    **dict.fromkeys(("__float__", "__int__", "__index__"), Functions.number_in_c),
    **dict.fromkeys(("__bool__", "is_nonzero"), Functions.truth),
    "__iter__": lambda _, func, args, options: iter(args[0].unbind(0)),
    "allclose": Functions.close,
    "isfinite": Functions.finite,
    **dict.fromkeys(("dtype.__get__", "result_type"), Functions.dtype),
    "promote_types": lambda _, func, args, options: func(*args, **options),
    **dict.fromkeys(("element_size", "itemsize.__get__"), Functions.element_size),
    **dict.fromkeys(("tensor", "as_tensor"), Functions.create_tensor),
    **dict.fromkeys(("shape.__get__", "size", "__len__"), Functions.shape),
    **dict.fromkeys(("ndim.__get__", "dim", "ndimension"), Functions.rank),
    **dict.fromkeys(("numel", "nelement"), Functions.count),
}


_PLAIN = frozenset({
    "_record_function_enter_new", "_RecordFunction", "device", "device.__get__", "get_device",
    "grad_fn.__get__", "is_complex", "is_conj", "is_cpu.__get__", "is_cuda.__get__",
    "is_distributed", "is_floating_point", "is_inference", "is_leaf.__get__", "is_meta.__get__",
    "is_mkldnn.__get__", "is_mps.__get__", "is_mtia.__get__", "is_neg", "is_nested.__get__",
    "is_quantized.__get__", "is_same_size", "is_signed", "is_sparse.__get__",
    "is_sparse_csr.__get__", "is_xla.__get__", "is_xpu.__get__", "layout.__get__",
    "requires_grad.__get__", "retains_grad.__get__",
})  # fmt: skip
"""Attributes of a tensor that Python may ask for: the answer is the same in every step."""


def _has_a_place(number: Any) -> bool:
    """Whether an operation must use a number: it is not a size."""
    if not isinstance(number, Number) or not number.is_int:
        return isinstance(number, Number)
    return t in number.expr.free_symbols or is_of_data(number.expr)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in items_within(values) if isinstance(value, torch.Tensor))


def _is_nothing(result: Any) -> bool:
    is_empty = isinstance(result, list | tuple) and all(map(_is_nothing, result))
    return result is None or result is NotImplemented or is_empty


def _numbers(values: Any) -> Iterator[Any]:
    for value in items_within(values):
        if isinstance(value, float | int | Number) and not isinstance(value, bool):
            yield value


def _scalars(values: Any) -> Iterator[torch.Tensor]:
    """Tensors of one element, which torch takes where it takes numbers."""
    for tensor in _tensors(values):
        if tensor.dim() == 0 and tensor.is_floating_point():
            yield tensor


def with_place(error: TraceError, operation: str) -> TraceError:
    """Returns an error that names the operation, the file and the line of the optimizer."""
    if error.where is not None:
        return error
    return TraceError(error.what, where=f"{operation} in {code_place()}", hint=error.hint)
