"""The trace of a gradient transformation: its states, and what one update makes of them.

``init`` and ``update`` are traced to jaxprs with the parameters of the model, of which two are
seen: the one whose rule is wanted, and another one, which shows what is summed over all of them.
The sizes of both are distinct primes. All other parameters and gradients are 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.optax.control import RULES
from closedform.importers.optax.interpreter import Interpreter, Known, as_array
from closedform.importers.optax.leaves import Leaf, Path, dotted_name, element_names, names_of
from closedform.importers.optax.sizes import check_sizes
from closedform.importers.optax.structure import fill_array
from closedform.importers.optax.subject import Jaxprs
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.algebra import as_number
from closedform.importers.tensors.integers import Width, check_growth
from closedform.importers.tensors.values import (
    Axes,
    Definitions,
    Sizes,
    Value,
    as_shape_rule,
    inline_definitions,
    renumber,
    twin_of,
)
from closedform.importers.tensors.variants import Variant
from closedform.language.model import counter, shared
from closedform.language.schedule import Schedule
from closedform.language.symbols import GRAD, PARAM, hyper, state, t

Hypers = Mapping[str, "float | sp.Expr | Schedule"]

_MOST_NUMBERS = 64
"""The most elements of an array of the whole model, each of which is a state."""


@dataclass(eq=False)
class Kinds:
    """The kinds of the numbers of the whole model, by path; each is found by tracing.

    Attributes:
        shared_states: Numbers that are states of the rule.
        vectors: Small arrays of numbers that are states, each of its own.
        reals: Integers of which that is not known after an update.
        constants: Numbers that never change, with their values; floats are hyperparameters.
        schedules: Numbers that follow from only the step, with their schedules.
    """

    shared_states: set[Path] = field(default_factory=set)
    vectors: set[Path] = field(default_factory=set)
    reals: set[Path] = field(default_factory=set)
    constants: dict[Path, sp.Expr] = field(default_factory=dict)
    schedules: dict[Path, Schedule] = field(default_factory=dict)


class _Reclassified(Exception):  # noqa: N818
    """A number of the whole model is of another kind than it was taken for."""


@dataclass(frozen=True, slots=True)
class ParameterTrace:
    """The rule of one parameter.

    Attributes:
        variant: Its expressions, for the shapes for which they hold.
        hypers: Values of hyperparameters by name.
        names: The names of states by path.
        starts: The numbers of steps that counters begin with, by path.
        is_structural: Whether the rule is only for this number of axes.
    """

    variant: Variant
    hypers: Hypers
    names: Mapping[Path, str]
    starts: Mapping[Path, int]
    is_structural: bool


def trace_parameter(
    jaxprs: Jaxprs, path: Path, second: Path | None, prover: Prover, where: str
) -> ParameterTrace:
    """Returns the rule of one parameter.

    Args:
        jaxprs: The jaxprs, for shapes of distinct primes.
        path: The path of the parameter.
        second: That of another one; None if there is none.
        prover: Finds exact constants, and decides conditions on the step.
        where: What is traced, for errors.
    """
    kinds = Kinds()
    while True:
        try:
            return _Tracer(jaxprs, path, second, prover, kinds, where).trace()
        except _Reclassified:
            continue


@dataclass(eq=False)
class _Tracer:
    jaxprs: Jaxprs
    path: Path
    second: Path | None
    prover: Prover
    kinds: Kinds
    where: str

    def __post_init__(self) -> None:
        shapes = self.jaxprs.shapes
        self.axes = Axes(shapes[self.path], () if self.second is None else shapes[self.second])
        self.definitions = Definitions()
        numbers = {variable.name: variable.value for variable in self.jaxprs.variables}
        self.definitions.hypers = numbers
        self.run = Interpreter(self.axes, self.definitions, self.prover, RULES)
        self.run.sizes = self.jaxprs.sizes(self.path, self.second)
        leaves = self.jaxprs.leaves
        self.own_leaves = [leaf for leaf in leaves if leaf.param == self.path]
        self.common = [leaf for leaf in leaves if leaf.param is None]
        self.names = names_of([leaf.path for leaf in (*self.own_leaves, *self.common)])

    def trace(self) -> ParameterTrace:
        count = len(self.jaxprs.params)
        numbers = [Value(variable.expr) for variable in self.jaxprs.variables]
        params = [self._param(path, PARAM) for path in self.jaxprs.params]
        gradients = [self._param(path, GRAD) for path in self.jaxprs.params]
        self.initial = self._initial(params)
        before = [self._before(leaf) for leaf in self.jaxprs.leaves]
        places = [self.jaxprs.params.index(self.path)]
        places += [count + leaf.place for leaf in (*self.own_leaves, *self.common)]
        schedules = {
            count + leaf.place: Value(hyper(self._hyper_name(leaf)))
            for leaf in self.common
            if leaf.path in self.kinds.schedules
        }
        outputs = self.run.run(
            self.jaxprs.update, [*numbers, *gradients, *before, *params], places, schedules
        )
        after = dict(enumerate(outputs[count:]))
        self._classify(before, after)
        results = {"param": self._expression(outputs[places[0]], "the parameter")}
        for leaf in self.own_leaves:
            results[self.names[leaf.path]] = self._expression(
                after[leaf.place], dotted_name(leaf.path)
            )
        return self._build_trace(results, after)

    # --- inputs ----------------------------------------------------------------------------------

    def _param(self, path: Path, symbol: sp.Symbol) -> Value:
        if path not in (self.path, self.second):
            return Value(sp.Integer(0))
        return self._tensor(symbol, self.jaxprs.shapes[path], is_own=path == self.path)

    def _tensor(self, symbol: sp.Symbol, shape: Sizes, *, is_own: bool) -> Value:
        symbol_of_tensor = symbol if is_own else twin_of(symbol)
        inner = shape if any(size != 1 for size in shape) or shape == self.axes.shape else ()
        self.definitions.shapes[symbol_of_tensor] = inner
        return Value(symbol_of_tensor, inner)

    def _initial(self, params: Sequence[Value]) -> dict[int, Known]:
        """The values of the state before the first update, by place."""
        values = self.run.run(self.jaxprs.init, params)
        return {place: value for place, value in enumerate(values) if value is not None}

    def _before(self, leaf: Leaf) -> Known | None:
        """The value of a leaf of the state before an update."""
        initial = self.initial.get(leaf.place)
        if leaf.param is not None:
            if leaf.param not in (self.path, self.second):
                return initial
            return self._state_before(leaf, initial)
        if leaf.path in self.kinds.constants and not self._is_float(leaf):
            return Value(self.kinds.constants[leaf.path])
        if leaf.path in self.kinds.constants or leaf.path in self.kinds.schedules:
            return Value(hyper(self._hyper_name(leaf)))
        if leaf.path in self.kinds.vectors:
            return as_array(
                [shared(name) for name in element_names(self.names[leaf.path], leaf)], leaf.shape
            )
        if leaf.shape != ():
            return initial
        if leaf.path in self.kinds.shared_states:
            return self._shared_before(leaf)
        if self._is_count(leaf):
            return Value(t + self._start(leaf))
        return self._shared_before(leaf)

    def _state_before(self, leaf: Leaf, initial: Known | None) -> Value:
        symbol = state(self.names.get(leaf.path, dotted_name(leaf.path)))
        value = self._tensor(symbol, leaf.shape, is_own=leaf.param == self.path)
        if not isinstance(initial, Value):
            raise TraceError(
                f"the state {dotted_name(leaf.path)!r} begins with an array of constants"
            )
        if leaf.dtype == "bool":
            value = Value(sp.Ne(value.expr, 0), value.shape)
        if self._is_start(initial.expr):
            return value
        if initial.shape != value.shape:
            initial = self.run.algebra.whole(initial, leaf.shape)
        first = sp.Piecewise((initial.expr, sp.Eq(t, 0)), (value.expr, True))
        return self.run.algebra.define(first, value.shape, "start")

    def _is_start(self, expr: sp.Basic) -> bool:
        """Whether a state can begin with it."""
        is_param = isinstance(expr, sp.Symbol) and expr.name.removeprefix("other.") == PARAM.name
        return is_param or not isinstance(expr, sp.Expr) or bool(expr.is_number and expr.is_finite)

    def _is_float(self, leaf: Leaf) -> bool:
        return "float" in leaf.dtype

    def _is_count(self, leaf: Leaf) -> bool:
        return np.issubdtype(np.dtype(leaf.dtype), np.integer)

    def _initial_number(self, leaf: Leaf) -> sp.Expr:
        """The value of a number of the whole model before the first update."""
        initial = self.initial[leaf.place]
        if not isinstance(initial, Value):
            raise TraceError(f"the state {dotted_name(leaf.path)!r} begins with an array")
        return as_number(initial.expr)

    def _start(self, leaf: Leaf) -> sp.Expr:
        """The number that a state begins with; 0 where the first update computes it."""
        start = self._initial_number(leaf)
        return start if start.is_number else sp.Integer(0)

    def _shared_before(self, leaf: Leaf) -> Value:
        symbol, start = self._symbol(leaf), self._initial_number(leaf)
        if leaf.dtype == "bool":
            return Value(sp.Ne(symbol, 0))
        if start.is_number:
            return Value(symbol)
        first = sp.Piecewise((start, sp.Eq(t, 0)), (symbol, True))
        return Value(self.definitions.define(first, (), "start"))

    def _symbol(self, leaf: Leaf) -> sp.Symbol:
        name = self.names[leaf.path]
        return counter(name) if self._counts(leaf) else shared(name)

    def _counts(self, leaf: Leaf) -> bool:
        is_whole = self._is_count(leaf) and leaf.path not in self.kinds.reals
        return is_whole and bool(self._start(leaf) >= 0)

    def _hyper_name(self, leaf: Leaf) -> str:
        name = self.names[leaf.path]
        return f"{name}_" if name in ("t", "step", "param", "grad") else name

    # --- what the numbers of the whole model are -------------------------------------------------

    def _classify(self, before: Sequence[Known | None], after: Mapping[int, Known | None]) -> None:
        for leaf in self.common:
            if leaf.path in self.kinds.constants or leaf.path in self.kinds.schedules:
                continue
            old, new = before[leaf.place], after[leaf.place]
            if leaf.path in self.kinds.vectors:
                continue
            if leaf.shape != ():
                if new is not old:
                    self._check_vector(leaf)
                    self.kinds.vectors.add(leaf.path)
                    raise _Reclassified
                continue
            if not isinstance(old, Value) or not isinstance(new, Value):
                raise TraceError(f"the state {dotted_name(leaf.path)!r} has no expression")
            if new == old and self._initial_number(leaf).is_number:
                self.kinds.constants[leaf.path] = self._start(leaf)
                raise _Reclassified
            is_counter = self._is_count(leaf) and leaf.path not in self.kinds.shared_states
            if is_counter and sp.expand(new.expr - old.expr) != 1:
                self.kinds.shared_states.add(leaf.path)
                raise _Reclassified

    def _check_vector(self, leaf: Leaf) -> None:
        """Refuses an array that is not a few floats, each of which begins with a number.

        Raises:
            TraceError: It is one.
        """
        is_small = math.prod(leaf.shape) <= _MOST_NUMBERS and self._is_float(leaf)
        if not is_small or not all(number.is_number for number in self._initial_elements(leaf)):
            raise TraceError(
                f"the state {dotted_name(leaf.path)!r} of shape {list(leaf.shape)} belongs "
                "to no parameter, and changes",
                where=self.where,
                hint=f"up to {_MOST_NUMBERS} floats that begin with numbers are states of a model",
            )

    def _initial_elements(self, leaf: Leaf) -> list[sp.Expr]:
        """The values of the elements of a small array before the first update."""
        array = fill_array(self.initial[leaf.place], leaf.shape)
        return [as_number(element) for element in array.reshape(-1)]

    def _add_schedules(
        self, read_symbols: set[sp.Symbol], after: Mapping[int, Known | None]
    ) -> None:
        """Numbers that follow from only the step, and that nothing else reads, are schedules."""
        for leaf in self.common:
            new = after[leaf.place]
            is_shared = leaf.shape == () and not self._is_settled(leaf)
            if not is_shared or not isinstance(new, Value) or self._symbol(leaf) in read_symbols:
                continue
            expr = self.definitions.expand(new.expr)
            if isinstance(expr, sp.Expr) and expr.free_symbols == {t}:
                self.kinds.schedules[leaf.path] = Schedule(expr, name=self._hyper_name(leaf))
                raise _Reclassified

    def _is_settled(self, leaf: Leaf) -> bool:
        is_counter = self._is_count(leaf) and leaf.path not in self.kinds.shared_states
        return is_counter or leaf.path in self.kinds.constants or leaf.path in self.kinds.schedules

    # --- results ---------------------------------------------------------------------------------

    def _expression(self, value: Known | None, subject: str) -> sp.Expr:
        if not isinstance(value, Value):
            raise TraceError(f"{subject} is an array of elements that differ", where=self.where)
        return self.run.algebra.real(value).expr

    def _build_trace(
        self, results: Mapping[str, sp.Expr], after: Mapping[int, Known | None]
    ) -> ParameterTrace:
        definitions = self.definitions
        common = [leaf for leaf in self.common if leaf.shape == () and not self._is_settled(leaf)]
        with_sums = {label: definitions.sum_over_params(expr) for label, expr in results.items()}
        nexts: dict[str, sp.Expr] = {}
        for leaf in common:
            expr = self._expression(after[leaf.place], dotted_name(leaf.path))
            nexts[self.names[leaf.path]] = definitions.expand(definitions.sum_over_params(expr))
            if self._counts(leaf) and not nexts[self.names[leaf.path]].is_integer:
                self.kinds.reals.add(leaf.path)
                raise _Reclassified
        elements: dict[str, sp.Expr] = {}
        for leaf in self.common:
            if leaf.path not in self.kinds.vectors:
                continue
            names = element_names(self.names[leaf.path], leaf)
            elements |= dict(zip(names, self._initial_elements(leaf), strict=True))
            array = after[leaf.place]
            if array is None:
                raise TraceError(f"the state {dotted_name(leaf.path)!r} has no expression")
            for name, element in zip(names, fill_array(array, leaf.shape).flat, strict=True):
                expr = as_number(element)
                nexts[name] = definitions.expand(definitions.sum_over_params(expr))
        self._check_integers(common, {**with_sums, **nexts})
        definitions_used = definitions.definitions_of([*with_sums.values(), *nexts.values()])
        parts = [*with_sums.values(), *definitions_used.values(), *nexts.values()]
        check_sizes(parts, self.where)
        read_symbols = {symbol for expr in parts for symbol in expr.free_symbols}
        self._add_schedules(read_symbols, after)
        short, remaining = renumber(*inline_definitions({**with_sums, **nexts}, definitions_used))
        leaves_by_name = {self.names[leaf.path]: leaf for leaf in self.own_leaves}
        variant = Variant(
            sp.true,
            short,
            {symbol.name.removeprefix("local."): expr for symbol, expr in remaining.items()},
            {label: self._first(leaf) for label, leaf in leaves_by_name.items()}
            | {self.names[leaf.path]: self._start(leaf) for leaf in common}
            | elements,
            {
                label: as_shape_rule(self.axes, self._shape(leaf))
                for label, leaf in leaves_by_name.items()
            },
            frozenset(nexts),
            sp.true,
            frozenset(self.names[leaf.path] for leaf in common if self._counts(leaf)),
        )
        floats = [leaf for leaf in self.common if self._is_float(leaf)]
        constants = self.kinds.constants
        numbers: dict[str, float | sp.Expr] = {
            self._hyper_name(leaf): constants[leaf.path]
            for leaf in floats
            if leaf.path in constants
        }
        numbers |= self.definitions.hypers
        hypers: dict[str, float | sp.Expr | Schedule] = {
            self._hyper_name(leaf): self.kinds.schedules[leaf.path]
            for leaf in self.common
            if leaf.path in self.kinds.schedules
        }
        hypers |= {key: value for key, value in numbers.items() if hyper(key) in read_symbols}
        starts = {
            leaf.path: int(self._start(leaf))
            for leaf in self.common
            if self._is_count(leaf)
            and self._is_settled(leaf)
            and leaf.path not in self.kinds.constants
        }
        return ParameterTrace(variant, hypers, self.names, starts, self.run.algebra.is_structural)

    def _check_integers(self, common: Sequence[Leaf], nexts: Mapping[str, sp.Expr]) -> None:
        """Refuses a state in integers of 32 or 64 bits that may wrap.

        Raises:
            TraceError: One may.
        """
        symbols = {
            self.names[leaf.path]: self._symbol(leaf)
            if leaf in common
            else state(self.names[leaf.path])
            for leaf in (*common, *self.own_leaves)
            if self._is_count(leaf)
        }
        for leaf in (*common, *self.own_leaves):
            name, width = self.names[leaf.path], Width.of(leaf.dtype)
            if width is not None and not width.is_short:
                check_growth(
                    nexts[name], width, symbols.values(), self.definitions, name, self._start(leaf)
                )

    def _first(self, leaf: Leaf) -> sp.Expr:
        expr = self._initial_number(leaf)
        return expr if self._is_start(expr) else sp.Integer(0)

    def _shape(self, leaf: Leaf) -> Sizes:
        is_scalar = all(size == 1 for size in leaf.shape) and leaf.shape != self.axes.shape
        return () if is_scalar else leaf.shape
