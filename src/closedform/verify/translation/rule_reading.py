"""The expressions of an update rule as terms, in the names of the graph of a step.

Functions of whole tensors are as in ``tensor_functions``, with the shapes that the rule's own
expressions have. The caller, who knows all parameters, gives the terms of sums over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp

from closedform.errors import VerificationError
from closedform.ir import DType, Shape, broadcast, naming
from closedform.language import GRAD, PARAM, Schedule, State, UpdateRule, state
from closedform.language import functions as language
from closedform.language.definitions import taken_by
from closedform.language.model import GlobalSum, NonFinite, tensor_input
from closedform.language.partitions import Layout
from closedform.language.shapes import EPSILON, other_axes
from closedform.language.symbols import local, t
from closedform.verify.terms import build, conversions
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.sympy_io import Reader, term
from closedform.verify.terms.tree import Term, symbols

Read = Callable[[sp.Basic], Term]
SumKey = tuple[sp.Expr, tuple[tuple[str, sp.Expr], ...]]
"""A sum over all parameters: its expression, and the definitions that it takes."""


def source_term(schedule: Schedule, inputs: frozenset[str] | set[str] = frozenset()) -> Term:
    """Returns the term of a schedule with its numbers put in, but for those that are inputs.

    The numbers are put in where SymPy cannot rewrite what comes out.
    """
    root = term(schedule.expr)
    numbers = {
        node: term(schedule.hyperparameters[name])
        for name, node in symbols(root).items()
        if name in schedule.hyperparameters and name not in inputs
    }
    return build.substitute(root, numbers)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The dtypes that tensors and numbers of the whole model are computed in."""

    tensor: DType = DType.F32
    scalar: DType = DType.F64


def is_integer_state(spec: State) -> bool:
    """Returns whether a state is stored as integers."""
    return spec.stored is not None and DType(spec.stored).is_integer


def stored_value(value: Term, dtype: str | None) -> Term:
    """Returns what a number is between steps; None is the dtype that is computed in."""
    if dtype is None:
        return value
    if DType(dtype).is_integer:
        return conversions.nearest_in(value, DType(dtype))
    return functions.round_to(value, dtype)


def sum_key(rule: UpdateRule, total: GlobalSum) -> SumKey:
    """Returns the key under which two sums over all parameters are one."""
    (expr,) = total.args
    return expr, tuple(taken_by([expr], rule.definitions).items())


def _without_sums(rule: UpdateRule) -> tuple[UpdateRule, dict[sp.Symbol, SumKey]]:
    """A rule with a symbol for each sum over all parameters, and the sums by symbol."""
    keys: dict[SumKey, sp.Symbol] = {}

    def name_sums(expr: sp.Basic) -> sp.Basic:
        # A sum may stand in another one and next to it: those that stand in none go first.
        while expr.has(GlobalSum):
            totals = sorted(expr.atoms(GlobalSum), key=sp.default_sort_key)
            inner = {part for total in totals for part in total.args[0].atoms(GlobalSum)}
            symbols = {}
            for total in totals:
                if total not in inner:
                    key = sum_key(rule, total)
                    symbols[total] = keys.setdefault(
                        key, sp.Symbol(naming.total(len(keys)), real=True)
                    )
            expr = expr.xreplace(symbols)
        return expr

    left: set[str] = set()

    def replace_sums(expr: sp.Basic) -> sp.Basic:
        result = name_sums(expr)
        left.update(symbol.name for symbol in result.free_symbols)
        return result

    expressions = rule.expressions_by(replace_sums)
    numbers = {**rule.hyperparameters, **{s.name: None for s in keys.values()}}
    hyperparameters = {key: number for key, number in numbers.items() if key in left}
    return replace(rule, **expressions, hyperparameters=hyperparameters), {
        symbol: key for key, symbol in keys.items()
    }


class RuleReading:
    """Reads the expressions of a rule as terms, for one parameter or for the whole model.

    Attributes:
        rule: The rule for the parameter's shape, with symbols for sums over all parameters.
        shape: The parameter's shape.

    Args:
        rule: The rule.
        kinds: The dtypes of the computation.
        total: The terms of sums over all parameters.
        param: The parameter; "" for expressions of the whole model.
        shape: Its shape.
    """

    def __init__(
        self,
        rule: UpdateRule,
        kinds: Kinds,
        total: Callable[[SumKey], Term],
        param: str = "",
        shape: Shape = (),
    ) -> None:
        self.kinds = kinds
        self.param = param
        self.shape = shape
        has_sums = any(expr.has(GlobalSum) for expr in rule.all_expressions())
        rule_without_sums, sums = _without_sums(rule) if has_sums else (rule, {})
        self.rule = rule_without_sums.for_shape(shape, param) if param else rule_without_sums
        inputs = map(tensor_input, self.rule.inputs)
        self._tensors = {PARAM, GRAD, *map(state, self.rule.states), *inputs}
        self._shapes: dict[sp.Basic, Shape] = {}
        self._values: dict[Term, Term] = {}
        self._table = self._readers()
        for symbol in {s for expr in self.rule.all_expressions() for s in expr.free_symbols}:
            value = total(sums[symbol]) if symbol in sums else self._value(symbol)
            if value is not None:
                self._values[term(symbol)] = value
        self._shapes |= self._input_shapes()
        for name, expr in self.rule.definitions.items():
            is_of_tensors = not expr.free_symbols.isdisjoint(self._tensors)
            if is_of_tensors:
                self._tensors.add(local(name))
            if param or not is_of_tensors:
                self._shapes[local(name)] = self.shape_of(expr)
                self._values[term(local(name))] = self.read(expr)

    def read(self, expr: sp.Basic) -> Term:
        """Returns an expression or condition as a term in the names of the graph."""
        return build.substitute(term(expr, self._table), self._values)

    def _value(self, symbol: sp.Symbol) -> Term | None:
        """The term of a symbol of the rule in the graph; None if it is an input."""
        if symbol == EPSILON:
            return build.rational(float(np.finfo(self.kinds.tensor.numpy).eps))
        if symbol == PARAM:
            return build.symbol(naming.param(self.param))
        if symbol == GRAD:
            return build.symbol(naming.grad(self.param))
        for name, spec in self.rule.states.items():
            if symbol == state(name):
                dtype = self.kinds.tensor if spec.stored is None else DType(spec.stored)
                number = build.symbol(naming.state(self.param, name), integer=dtype.is_integer)
                return conversions.number_in(number, dtype)
        for name in self.rule.inputs:
            if symbol == tensor_input(name):
                return build.symbol(naming.tensor_input(self.param, name))
        value = self.rule.hyperparameters.get(symbol.name)
        if isinstance(value, Schedule):
            return source_term(value)
        return None if value is None else term(value)

    def _input_shapes(self) -> dict[sp.Symbol, Shape]:
        if not self.param:
            return {}
        states = {state(name): self.rule.state_shape(name, self.shape) for name in self.rule.states}
        inputs = {tensor_input(name): self.shape for name in self.rule.inputs}
        return {PARAM: self.shape, GRAD: self.shape, **states, **inputs}

    def shape_of(self, expr: sp.Basic) -> Shape:
        """Returns the shape of an expression, by the shapes of the tensors in it."""
        if expr not in self._shapes:
            self._shapes[expr] = self._shape_of(expr)
        return self._shapes[expr]

    def _shape_of(self, expr: sp.Basic) -> Shape:
        match expr:
            case language.ReduceSum() | language.ReduceMean() | language.ReduceMax():
                axes, keepdims = self._axes(expr)
                shape = self.shape_of(expr.args[0])
                sizes = [1 if axis in axes else size for axis, size in enumerate(shape)]
                return tuple(
                    size for axis, size in enumerate(sizes) if keepdims or axis not in axes
                )
            case language.MatMul():
                left, right = map(self.shape_of, expr.args)
                return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
            case language.Transpose():
                shape = self.shape_of(expr.args[0])
                return (*shape[:-2], shape[-1], shape[-2])
            case language.ExpandDims():
                return self._expanded_shape(self.shape_of(expr.args[0]), int(expr.args[1]))
            case language.Permute():
                shape = self.shape_of(expr.args[0])
                return tuple(shape[int(axis)] for axis in expr.args[1].args)
            case language.Positions():
                axis, shape = int(expr.args[1]), self.shape_of(expr.args[0])
                return tuple(
                    size if place == axis % len(shape) else 1 for place, size in enumerate(shape)
                )
            case language.Reshape() | language.BroadcastTo():
                return tuple(int(size) for size in expr.args[1].args)
            case language.LikeParam() | language.Joined():
                return self.shape
            case language.Block() | language.LikeBlock():
                return self._layout(expr).block(int(expr.args[1]))
            case _:
                shape = ()
                for arg in expr.args:
                    if isinstance(arg, sp.Basic):
                        shape = broadcast(shape, self.shape_of(arg))
                return shape

    @staticmethod
    def _expanded_shape(shape: Shape, axis: int) -> Shape:
        place = axis % (len(shape) + 1)
        return (*shape[:place], 1, *shape[place:])

    def _axes(self, expr: sp.Basic) -> tuple[tuple[int, ...], bool]:
        """The axes of a reduction from the first, and whether they stay."""
        rank = len(self.shape_of(expr.args[0]))
        if len(expr.args) == 1:
            return tuple(range(rank)), False
        if isinstance(expr.args[1], language.AllBut):
            return tuple(sorted(other_axes(expr.args[1], rank))), expr.args[2] == sp.true
        axes = {int(axis) % rank for axis in expr.args[1].args}
        return tuple(sorted(axes)), expr.args[2] == sp.true

    def _readers(self) -> dict[type, Reader]:
        return {
            language.ReduceSum: self._sum,
            language.ReduceMax: self._maximum,
            language.ReduceMean: self._mean,
            language.MatMul: self._product,
            language.Transpose: self._transpose,
            language.Permute: self._permute,
            # A broadcast tensor is read at its last axes, and is its operand.
            language.BroadcastTo: lambda expr, read: read(expr.args[0]),
            **dict.fromkeys(
                (language.ExpandDims, language.Reshape, language.LikeParam, language.LikeBlock),
                self._reshape,
            ),
            language.Block: self._block,
            language.Joined: self._join_blocks,
            language.Rounded: self._round,
            language.Positions: lambda expr, _: functions.positions(
                self.shape_of(expr.args[0]), int(expr.args[1])
            ),
            language.Uniform: lambda expr, read: functions.uniform(
                read(t), self.shape_of(expr.args[0]), int(expr.args[1])
            ),
            NonFinite: self._non_finite,
        }

    def _round(self, expr: sp.Basic, read: Read) -> Term:
        """A rounding; one to a dtype that is computed in is left out, as casts of graphs are."""
        operand, dtype = read(expr.args[0]), expr.args[1].name
        return functions.round_to(operand, dtype) if dtype in language.STORED else operand

    def _reduce(self, kind: str, expr: sp.Basic, operand: Term) -> Term:
        axes, keepdims = self._axes(expr)
        shape = self.shape_of(expr.args[0])
        return functions.reduce_axes(kind, operand, shape, axes, keepdims=keepdims)

    def _count(self, expr: sp.Basic) -> int:
        """The number of elements that become one."""
        shape = self.shape_of(expr.args[0])
        sizes = [shape[axis] for axis in self._axes(expr)[0]]
        if not all(isinstance(size, int) for size in sizes):
            raise VerificationError(f"{expr} is over sizes that are not known")
        return math.prod(int(size) for size in sizes)

    def _sum(self, expr: sp.Basic, read: Read) -> Term:
        return self._reduce(functions.REDUCE_SUM, expr, read(expr.args[0]))

    def _mean(self, expr: sp.Basic, read: Read) -> Term:
        total = self._reduce(functions.REDUCE_SUM, expr, read(expr.args[0]))
        # The mean of no elements is 0 and not 0 / 0.
        return build.divide(total, build.rational(max(self._count(expr), 1)))

    def _maximum(self, expr: sp.Basic, read: Read) -> Term:
        kind = functions.REDUCE_MAX if self._count(expr) else functions.REDUCE_SUM
        return self._reduce(kind, expr, read(expr.args[0]))

    def _product(self, expr: sp.Basic, read: Read) -> Term:
        left, right = expr.args
        shapes = self.shape_of(left), self.shape_of(right)
        return functions.product(read(left), read(right), shapes)

    def _transpose(self, expr: sp.Basic, read: Read) -> Term:
        shape = self.shape_of(expr.args[0])
        rank = len(shape)
        order = (*range(rank - 2), rank - 1, rank - 2)
        return functions.transpose(read(expr.args[0]), shape, order)

    def _permute(self, expr: sp.Basic, read: Read) -> Term:
        order = tuple(int(axis) for axis in expr.args[1].args)
        return functions.transpose(read(expr.args[0]), self.shape_of(expr.args[0]), order)

    def _reshape(self, expr: sp.Basic, read: Read) -> Term:
        return functions.reshape(
            read(expr.args[0]), self.shape_of(expr.args[0]), self.shape_of(expr)
        )

    def _layout(self, expr: sp.Basic) -> Layout:
        return Layout.of(expr.args[-1], self.shape)

    def _block(self, expr: sp.Basic, read: Read) -> Term:
        layout, place = self._layout(expr), int(expr.args[1])
        shape, places = layout.with_groups(sum(layout.sizes)), layout.ends(place)
        value = functions.reshape(read(expr.args[0]), layout.shape, shape)
        value = functions.slice_of(value, shape, (layout.joint_axis, *places))
        size = layout.sizes[place]
        return functions.reshape(value, layout.with_groups(size), layout.block(place))

    def _join_blocks(self, expr: sp.Basic, read: Read) -> Term:
        layout = self._layout(expr)
        shapes = [layout.with_groups(size) for size in layout.sizes]
        parts = [
            functions.reshape(read(part), layout.block(place), shapes[place])
            for place, part in enumerate(expr.args[:-1])
        ]
        value = functions.concat(parts, shapes, layout.joint_axis)
        return functions.reshape(value, layout.with_groups(sum(layout.sizes)), layout.shape)

    def _non_finite(self, expr: sp.Basic, read: Read) -> Term:
        """1 above the largest number of the dtype; over the reals nothing else is not finite."""
        is_of_tensors = not expr.free_symbols.isdisjoint(self._tensors)
        dtype = self.kinds.tensor if is_of_tensors else self.kinds.scalar
        largest = build.rational(float(np.finfo(dtype.numpy).max))
        is_finite = build.less_equal(build.absolute(read(expr.args[0])), largest)
        return build.ite(is_finite, build.ZERO, build.ONE)
