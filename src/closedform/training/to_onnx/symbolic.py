"""Traces with symbols for the free sizes: operators of aten without writes."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import sympy as sp
import torch
from sympy.logic.boolalg import BooleanAtom
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from closedform.code_files import files_of
from closedform.errors import TrainingExportError
from closedform.ir import naming
from closedform.training import index_ranges, size_conditions
from closedform.training.index_ranges import IndexRange
from closedform.training.progress import phase
from closedform.training.size_conditions import SizeCondition
from closedform.training.to_onnx.batch import Batch
from closedform.training.to_onnx.complex_numbers import RealInterpreter, has_complex
from closedform.training.to_onnx.decompositions import decompositions
from closedform.training.to_onnx.forms import forms_of_operators
from closedform.training.to_onnx.forward import Forward
from closedform.training.to_onnx.index_reads import IndexReads
from closedform.training.to_onnx.onnx_program import Tensors
from closedform.training.to_onnx.onnx_registry import onnx_decompositions, quiet
from closedform.training.to_onnx.places import current_place
from closedform.training.to_onnx.random_operators import Distribution, Drawn, Sizes
from closedform.training.to_onnx.same_masks import SameMasks
from closedform.training.to_onnx.size_formulas import UnwrittenError, relation
from closedform.training.to_onnx.tensor_accesses import OutsideReads

TrainFunction = Callable[[Tensors, Tensors, Tensors, Tensors], list[torch.Tensor]]
"""Of parameters, buffers, the batch, and states of the model."""


class _Environment(ShapeEnv):
    """Symbols for sizes, without the lines of the user's code that introduce them.

    To tell those from its own lines, torch would import its compiler: a third of a second.
    """

    def _get_user_frame(self) -> FrameType | None:
        return None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.branches: dict[sp.Basic, str] = {}
        self.fixed_in: dict[sp.Symbol, str] = {}

    def evaluate_sym_node(self, sym_node: Any, *options: Any, **keywords: Any) -> Any:
        """Returns the value of an expression; a branch on it is noted, with its place.

        torch asks for each branch anew, also for what follows from earlier ones.
        """
        value = super().evaluate_sym_node(sym_node, *options, **keywords)
        # A branch that holds for all sizes has no symbol left.
        if isinstance(value, BooleanAtom) and sym_node.expr.free_symbols:
            place = _branch_place()
            if place is None and _is_of_result():
                place = ""
            if place is not None:
                condition = sym_node.expr if value else sp.Not(sym_node.expr)
                # A conjunction is several conditions, each with a separate message.
                for part in sp.And.make_args(condition):
                    self.branches.setdefault(part, place)
        return value

    def _set_replacement(self, a: sp.Symbol, tgt: sp.Expr, *options: Any, **keywords: Any) -> None:
        if tgt.is_number:
            self.fixed_in.setdefault(a, current_place())
        super()._set_replacement(a, tgt, *options, **keywords)

    def is_implied(self, condition: sp.Basic) -> bool:
        """Whether a condition holds for all sizes of one or more."""
        ranges = tuple((symbol, ValueRanges(1, int_oo)) for symbol in condition.free_symbols)
        # Without axioms: the condition itself may be one.
        return self._maybe_evaluate_static(condition, axioms=(), var_to_range=ranges) is not None


_TORCH_FILES = files_of("torch")
_MODULES = ("nn", "signal")
_DEPTH = 4
"""Calls between ``SymBool.__bool__`` and the environment, and one more."""


def _branch_place() -> str | None:
    """The line that branches on a size; None if it is in an operator of torch.

    Operators in C++ ask without ``SymBool``. Modules and windows of torch branch like user code.
    """
    # Frame 0 is this function, 1 evaluate_sym_node.
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEPTH):
        if frame is not None and frame.f_code is not torch.SymBool.__bool__.__code__:
            frame = frame.f_back
    if frame is None or frame.f_code is not torch.SymBool.__bool__.__code__:
        return None
    # SymBool and its callers stand in torch/__init__.py.
    parts = _TORCH_FILES.parts_of(frame.f_code.co_filename)
    while frame.f_back is not None and parts == ("__init__.py",):
        frame = frame.f_back
        parts = _TORCH_FILES.parts_of(frame.f_code.co_filename)
    if parts is not None and parts[0] not in _MODULES:
        return None
    file = Path(frame.f_code.co_filename).name
    return f"line {frame.f_lineno} of {frame.f_code.co_name} ({file})"


_UNROLLED = "torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.rnn_relu"
"""Functions with a step for each place of an axis: a graph without loops has a fixed number."""

_OF_RESULTS = frozenset({"_compute_slice_index", "slice_forward", "_check_with"})
"""Functions of torch that compare sizes: a slice with its bounds, and what an operator requires."""


def _is_of_result() -> bool:
    """Whether an operator of torch asks, and its result depends on the answer.

    Others ask for strides and for the order of their loops.
    """
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEPTH + 2):
        if frame is None or frame.f_code.co_name in _OF_RESULTS:
            return frame is not None
        frame = frame.f_back
    return False


class Symbols:
    """The free sizes of a batch in a trace.

    Attributes:
        mode: Makes tensors without data.
        names: Names of the free sizes by their symbols in the trace.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # Without duck shapes: two sizes that are equal in the example stay two symbols.
        self._environment = _Environment(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self._environment, allow_non_fake_inputs=True)
        self._sizes: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        for name, value in batch.symbols.items():
            source = ConstantSource(f"size_{name}")
            symbol = self._environment.create_symbol(value, source, DimDynamic.DYNAMIC)
            self._sizes[name] = self._environment.create_symintnode(
                symbol, hint=value, source=source
            )
            self.names[str(symbol)] = name

    def fake(self, tensors: Tensors, kind: str) -> list[torch.Tensor]:
        """Returns tensors without data; tensors of a batch have symbols for sizes."""
        free = self._batch.sizes if kind == naming.BATCH else {}
        return [
            self.empty(
                tuple(
                    self._sizes[free[name][axis]] if axis in free.get(name, {}) else size
                    for axis, size in enumerate(tensor.shape)
                ),
                tensor.dtype,
            )
            for name, tensor in tensors.items()
        ]

    def empty(self, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor without data."""
        with self.mode:
            return torch.empty(shape, dtype=dtype)

    def sizes_by_data(self) -> AbstractContextManager[None]:
        """Accepts sizes that depend on data, such as the number of entries of a mask."""
        # Symbols of an earlier trace, which torch's translation to ONNX runs once more.
        self._environment.pending_fresh_unbacked_symbols.clear()
        return self._environment.ignore_fresh_unbacked_symbols()

    def split(self, shape: Sizes) -> Sizes:
        """Returns a shape with as many elements, whose sizes are symbols and numbers.

        A size 4·batch becomes batch, 4. A sum stays as it is.
        """
        by_symbol = {s.node.expr: s for s in self._sizes.values()}
        result: list[int | torch.SymInt] = []
        for size in shape:
            if not isinstance(size, torch.SymInt):
                result.append(size)
                continue
            expression = self._environment.simplify(size.node.expr)
            # 4·batch is {4: 1, batch: 1}.
            powers = expression.as_powers_dict()
            rest = {base: power for base, power in powers.items() if not base.is_Integer}
            # A quotient or a floor of sizes has no sizes that it is made of.
            is_product = all(b in by_symbol and p == int(p) > 0 for b, p in rest.items())
            coefficient = math.prod(base**p for base, p in powers.items() if base.is_Integer)
            if not rest:
                result.append(int(expression))
            elif is_product and coefficient == int(coefficient):
                result += [
                    by_symbol[base] for base, power in rest.items() for _ in range(int(power))
                ]
                result += [int(coefficient)] if coefficient != 1 else []
            else:
                result.append(size)
        return tuple(result)

    def check_free(self, where: str) -> None:
        """Raises ExportError where the traces fix a size."""
        for name, size in self._sizes.items():
            symbol = size.node._expr
            # An equality of two sizes replaces one by the other.
            value = self._environment.replace(symbol)
            bound = self._environment.bound_sympy(value)
            # Fixed by an equation, or by two inequalities.
            if value.is_number or bound.lower == bound.upper:
                place = self._environment.fixed_in.get(symbol, "the model")
                why = f"{place} fixes it to {value}"
                if place.startswith(_UNROLLED):
                    why += ", the steps of the example, which it is unrolled to"
                raise self._fixed_size_error({name}, why, where)
        conditions = [guard.expr for guard in self._environment.guards]
        equal = _equal_parts(conditions)
        for condition in conditions:
            self._check_guard(condition, equal, where)

    def conditions(self, inputs: Iterable[str], where: str) -> tuple[SizeCondition, ...]:
        """Returns what the traces so far restrict sizes of these inputs to.

        These are the branches of the model, equal sizes, bounds of slices, and what operators of
        torch require. Other branches of these are left out: their result does not depend on them.

        Raises:
            ExportError: A condition has operations that ``size_formulas`` has no text for.
        """
        free = {name for tensor in inputs for name in self._batch.sizes.get(tensor, {}).values()}
        equal = (guard.expr for guard in self._environment.guards if _is_equation(guard.expr))
        # Equations of operators have no place in the model.
        places = {**dict.fromkeys(equal, ""), **self._environment.branches}
        conditions: dict[SizeCondition, None] = {}
        for condition, place in places.items():
            names = {self.names.get(str(symbol), "") for symbol in condition.free_symbols}
            if not names <= free or self._environment.is_implied(condition):
                continue
            try:
                conditions[SizeCondition(*relation(condition, self.names))] = None
            except UnwrittenError as error:
                if place:
                    why = f"the model branches on {error}, in {place}"
                    raise self._fixed_size_error(names, why, where) from None
        return tuple(conditions)

    def _check_guard(self, condition: Any, equal: Mapping[Any, Any], where: str) -> None:
        """Raises ExportError where a trace is only for sizes that make an expression one number.

        A loop over a size runs as often as in the example, so that the trace is of that length.
        """
        # A divisibility holds for many sizes: it is a condition of the file, not an error.
        if getattr(condition, "rel_op", "") != "==" or condition.has(Mod, PythonMod):
            return
        numbers = [side for side in condition.args if side.is_number]
        # Without axioms: the condition itself is one.
        static = self._environment._maybe_evaluate_static(condition, axioms=())
        if not numbers or static is not None:
            return
        (side,) = (side for side in condition.args if not side.is_number)
        if side.xreplace(equal) == numbers[0]:
            return  # by another condition, such as of maps that are joined
        text = re.sub(r"\w+", lambda word: self.names.get(word[0], word[0]), str(side))
        fixed_names = {self.names[str(symbol)] for symbol in condition.free_symbols}
        why = f"a size that the model computes from it must be {numbers[0]}: {text}"
        raise self._fixed_size_error(fixed_names, why, where)

    def _fixed_size_error(self, names: set[str], why: str, where: str) -> TrainingExportError:
        """The error for sizes that a model fixes, with the sizes that are left to be free."""
        sizes_text = ", ".join(map(repr, sorted(names)))
        rest = {
            tensor: {axis: name for axis, name in axes.items() if name not in names}
            for tensor, axes in self._batch.sizes.items()
        }
        rest = {tensor: axes for tensor, axes in rest.items() if axes}
        text = str(rest).replace("'", '"')
        return TrainingExportError(
            f"the size {sizes_text} is not free: {why}",
            where=where,
            hint="compute with x.shape (x.shape[0], not len(x)) instead of a number, or with other "
            f"functions of torch, or leave it out of dynamic_axes: dynamic_axes={text}",
        )


def _is_equation(condition: sp.Basic) -> bool:
    """Whether a condition compares two sizes, as operators do for their operands."""
    return isinstance(condition, sp.Eq) and not any(side.is_number for side in condition.args)


def traced_operators(
    function: TrainFunction,
    kinds: Mapping[str, Tensors],
    symbols: Symbols,
    of: Forward,
    opset: int,
    *,
    drawing: TrainFunction | None = None,
    has_draws: bool | None = None,
) -> tuple[torch.fx.GraphModule, list[str], dict[str, str]]:
    """Returns the operators of a function, names of their inputs, and the metadata of its inputs.

    These are the ranges of integer inputs, and the conditions on sizes.

    Args:
        function: The function.
        kinds: Its arguments, by the prefix of their names.
        symbols: The free sizes.
        of: The forward that it calls.
        opset: The ONNX opset whose operators need no decomposition.
        drawing: The part of the function that may draw random numbers; None for all of it.
        has_draws: Whether it draws numbers, for the example; None if no run has told.
    """
    arguments = [symbols.fake(tensors, kind) for kind, tensors in kinds.items()]
    names = [f"{kind}{name}" for kind, tensors in kinds.items() for name in tensors]
    drawing = drawing or function
    if has_draws is None:
        has_draws = _has_draws(drawing, kinds, of)
    # A separate run: make_fx needs all inputs before it begins.
    draws = _draws(drawing, arguments, kinds, symbols, of) if has_draws else {}
    names += [f"{naming.RANDOM}{label}" for label in draws]
    flat = [*(value for values in arguments for value in values), *draws.values()]
    left: list[torch.Tensor] = []

    def draw(distribution: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        del distribution, dtype
        # In the order of the first run: the trace draws in the same order.
        return left.pop(0).reshape(shape)

    table = decompositions(draw)
    memory = {**kinds[naming.PARAM], **kinds[naming.BUFFER]}

    ranges: tuple[IndexRange, ...] = ()

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        nonlocal ranges
        rest = iter(tensors)
        tensors_by_kind = {
            kind: {name: next(rest) for name in of_kind} for kind, of_kind in kinds.items()
        }
        left[:] = rest
        integers = {
            name: value
            for name, value in tensors_by_kind[naming.BATCH].items()
            if not value.dtype.is_floating_point and value.dtype is not torch.bool
        }
        outside_reads = OutsideReads(memory, of.places, of.outside_reads)
        with IndexReads(integers, symbols.names) as reads, SameMasks(), outside_reads:
            result = function(*tensors_by_kind.values())
        ranges = reads.ranges
        return result

    with (
        quiet(),
        forms_of_operators(),
        traceback.preserve_node_meta(),
        symbols.sizes_by_data(),
    ):
        with phase("trace"):
            # The second trace decomposes what autograd has recorded in the first one.
            first = make_fx(call, tracing_mode="symbolic", decomposition_table=table)(*flat)
            first.graph.eliminate_dead_code()
        with phase("decompose"):
            interpreter = torch.fx.Interpreter(first)
            if has_complex(first):
                without_writes = make_fx(
                    functionalize(interpreter.run),
                    tracing_mode="symbolic",
                    decomposition_table=table,
                )(*flat)
                interpreter = RealInterpreter(without_writes, of.where)
            second = make_fx(
                # Writes in place become values.
                functionalize(interpreter.run),
                tracing_mode="symbolic",
                decomposition_table={**onnx_decompositions(opset), **table},
            )(*flat)
            _expand_element_counts(second)
            second.graph.eliminate_dead_code()
    result: torch.fx.GraphModule = second
    conditions = symbols.conditions(kinds[naming.BATCH], of.where)
    properties = {**index_ranges.metadata_of(ranges), **size_conditions.metadata_of(conditions)}
    return result, names, properties


def _expand_element_counts(graph_module: torch.fx.GraphModule) -> None:
    """Replaces the number of elements of a tensor, which has no ONNX form, by that of its sizes."""
    graph = graph_module.graph
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sym_numel.default):
        (tensor,) = node.args
        count: Any = 1
        value: Any = 1
        with graph.inserting_before(node):
            for axis, size in enumerate(tensor.meta["val"].shape):
                factor: Any = size
                if isinstance(size, torch.SymInt):
                    factor = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
                    factor.meta = {**node.meta, "val": size}
                value = value * size
                if isinstance(count, int) and isinstance(factor, int):
                    count *= factor
                    continue
                count = graph.call_function(operator.mul, (count, factor))
                count.meta = {**node.meta, "val": value}
        if isinstance(count, int):
            continue
        node.replace_all_uses_with(count)
        graph.erase_node(node)
    graph_module.recompile()


def _draws(
    function: TrainFunction,
    arguments: list[list[torch.Tensor]],
    kinds: Mapping[str, Tensors],
    symbols: Symbols,
    of: Forward,
) -> Tensors:
    """Inputs for the random draws of a function, by name."""
    draw_inputs: Tensors = {}

    def draw(distribution: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        kind = "" if distribution is Distribution.UNIFORM else f"{distribution}."
        draw_inputs[f"{kind}{len(draw_inputs)}"] = symbols.empty(symbols.split(shape), dtype)
        return symbols.empty(shape, dtype)

    tensors_by_kind = [
        dict(zip(tensors, values, strict=True))
        for tensors, values in zip(kinds.values(), arguments, strict=True)
    ]
    recorder = Drawn(draw, of.places, of.where)
    with (
        quiet(),
        forms_of_operators(),
        symbols.sizes_by_data(),
        symbols.mode,
        enable_python_dispatcher(),
        recorder,
        SameMasks(),
    ):
        function(*tensors_by_kind)
    return draw_inputs


def _has_draws(function: TrainFunction, kinds: Mapping[str, Tensors], of: Forward) -> bool:
    """Whether a function draws random numbers, for the example."""
    has_draws = False

    def draw(_: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        nonlocal has_draws
        has_draws = True
        return torch.full(shape, 0.5, dtype=dtype)

    # Copies: a model in evaluation mode may write to other parameters than in a step.
    copies = [{name: value.clone() for name, value in kind.items()} for kind in kinds.values()]
    with Drawn(draw, of.places, of.where):
        function(*copies)
    return has_draws


def drop_unchanged(
    graph_module: torch.fx.GraphModule,
    inputs: list[str],
    outputs: list[str],
    sources: Mapping[str, str],
) -> list[str]:
    """Removes outputs that are the input named in ``sources``; returns the names that remain."""
    graph = graph_module.graph
    of = dict(zip(graph.find_nodes(op="placeholder"), inputs, strict=True))
    (result,) = graph.find_nodes(op="output")
    # An output that only copies its input would be written back over it at each step.
    remaining = [
        (name, node)
        for name, node in zip(outputs, result.args[0], strict=True)
        if name not in sources or of.get(_origin(node)) != sources[name]
    ]
    result.args = (tuple(node for _, node in remaining),)
    graph.eliminate_dead_code()
    graph_module.recompile()
    return [name for name, _ in remaining]


_COPIES = frozenset(
    {
        torch.ops.aten.clone.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.alias.default,
        torch.ops.aten._to_copy.default,
        torch.ops.aten.lift_fresh_copy.default,
    }
)


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """The node that a node is a copy of, in another dtype or the same."""
    while node.op == "call_function" and node.target in _COPIES:
        node = node.all_input_nodes[0]
    return node


def _equal_parts(conditions: Sequence[Any]) -> dict[Any, Any]:
    """Quotients of sizes by what they are equal to, where two sizes have to be one."""
    parts: dict[Any, Any] = {}
    for condition in conditions:
        if not _is_equation(condition):
            continue
        first, second = condition.args
        excess = (first - second).xreplace(parts).expand()
        for quotient in sorted(excess.atoms(FloorDiv), key=str):
            factor = excess.coeff(quotient)
            rest = (excess - factor * quotient).expand()
            if abs(factor) == 1 and not rest.has(quotient):
                parts = {
                    part: of.xreplace({quotient: -rest / factor}) for part, of in parts.items()
                }
                parts[quotient] = -rest / factor
                break
    return parts
