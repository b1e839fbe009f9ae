"""Gradient transformations as jaxprs, for parameters of some shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.extend.core import ClosedJaxpr

from closedform.errors import TraceError
from closedform.importers.optax.hypers import Variable, variables_of, with_values
from closedform.importers.optax.jaxprs import (
    Equation,
    Tree,
    callee_of,
    equations_behind,
    is_literal,
    jaxpr_of,
)
from closedform.importers.optax.leaves import Leaf, Path, dotted_name, state_leaves, with_shapes
from closedform.importers.optax.sizes import closed_jaxprs, differing, size_expression, unknown_size
from closedform.importers.tensors.values import Sizes

_OF_SHAPES = frozenset({"shape", "new_sizes", "dimensions", "sharding", "out_sharding"})
"""Parameters of primitives that follow from the shapes of operands."""

_COMMUTATIVE = frozenset({"add", "add_any", "mul", "max", "min", "and", "or", "xor"})

_FLOATS = ("float32", "float64")


@runtime_checkable
class Transformation(Protocol):
    """A GradientTransformation of optax; extra arguments of ``update`` are not passed."""

    @property
    def init(self) -> Callable[..., Any]:
        """From parameters to the state."""

    @property
    def update(self) -> Callable[..., Any]:
        """From gradients, state and parameters to what is added, and the state."""


@dataclass(eq=False)
class Jaxprs:
    """The jaxprs of a transformation for parameters of some shapes.

    Attributes:
        params: The paths of the parameters.
        leaves: The leaves of the state.
        init: From parameters to the state.
        update: From hyperparameters, gradients, state and parameters to parameters and the state.
        shapes: The shapes of the parameters by path.
        variables: The variables that are symbols, the first inputs of ``update``.
        alternative: The jaxprs for other shapes, where they are known.
    """

    params: list[Path]
    leaves: list[Leaf]
    init: ClosedJaxpr
    update: ClosedJaxpr
    shapes: Mapping[Path, Sizes]
    variables: Sequence[Variable]
    alternative: Jaxprs | None = None

    def varying(self) -> set[int]:
        """Returns the identities of the literals that depend on shapes."""
        if self.alternative is None:
            return set()
        return {
            id(literal)
            for literal, _ in differing(self.update.jaxpr, self.alternative.update.jaxpr)
        }

    def sizes(self, path: Path, second: Path | None) -> dict[int, sp.Expr]:
        """Returns the constants that depend on shapes, as expressions in sizes.

        They are those that differ between two traces for different primes. Their keys are the
        identities of the literals.
        """
        if self.alternative is None:
            return {}
        expressions: dict[int, sp.Expr] = {}
        for first_jaxpr, second_jaxpr in (
            (self.init, self.alternative.init),
            (self.update, self.alternative.update),
        ):
            for literal, other_literal in differing(first_jaxpr.jaxpr, second_jaxpr.jaxpr):
                pair = float(literal.val), float(other_literal.val)
                shapes = (self.shapes, self.alternative.shapes)
                is_double = str(literal.aval.dtype) != "float32"
                expr = size_expression(pair, path, second, shapes, is_double=is_double)
                expressions[id(literal)] = unknown_size() if expr is None else expr
        return expressions


def symbolic_variables(
    transformation: Transformation, params: Tree, shapes: Mapping[Path, Sizes], where: str
) -> list[Variable]:
    """Returns the variables of the closure that may be symbols; Python decides on the others."""
    variables = variables_of(transformation.update)
    if _is_traceable(transformation, params, shapes, where, variables):
        return variables
    return [
        variable
        for variable in variables
        if _is_traceable(transformation, params, shapes, where, [variable])
    ]


def _is_traceable(
    transformation: Transformation,
    params: Tree,
    shapes: Mapping[Path, Sizes],
    where: str,
    variables: Sequence[Variable],
) -> bool:
    try:
        jaxprs_of(transformation, params, shapes, where, variables)
    except TraceError:
        return False
    return True


def stepping(transformation: Transformation, variables: Sequence[Variable]) -> Callable[..., Tree]:
    """Returns one step: from numbers, gradients, state and parameters to parameters and state."""

    def step(numbers: list[Any], gradients: Tree, before: Tree, params: Tree) -> tuple[Tree, Tree]:
        update = with_values(transformation.update, variables, numbers)
        updates, after = update(gradients, before, params)
        return jax.tree.map(lambda p, u: p + u, params, updates), after

    return step


def weak_number() -> Any:
    """Returns the type that JAX gives Python's floats."""
    return jax.ShapeDtypeStruct((), jnp.float64, weak_type=True)


def jaxprs_of(
    transformation: Transformation,
    params: Tree,
    shapes: Mapping[Path, Sizes],
    where: str,
    variables: Sequence[Variable] = (),
    dtype: str | None = "float64",
) -> Jaxprs:
    """Returns the jaxprs of a transformation.

    Args:
        transformation: The transformation.
        params: Its parameters.
        shapes: The shapes that they have in its place.
        where: What is traced, for errors.
        variables: The variables of the closure that are symbols.
        dtype: The dtype of the parameters; None for their own.
    """
    shaped_params = with_shapes(params, shapes, dtype)
    init = jaxpr_of(transformation.init, shaped_params, where=f"init of {where}")
    start = jax.eval_shape(transformation.init, shaped_params)

    numbers = [weak_number() for _ in variables]
    step = stepping(transformation, variables)
    update = jaxpr_of(
        step, numbers, shaped_params, start, shaped_params, where=f"update of {where}"
    )
    paths = list(shapes)
    leaves = state_leaves(start, paths)
    if len(update.jaxpr.outvars) != len(paths) + len(leaves):
        raise TraceError("the state changes its structure in the first update", where=where)
    return Jaxprs(paths, leaves, init, update, shapes, variables)


@dataclass(frozen=True, slots=True)
class Signature:
    """The features that tell apart the updates of two parameters.

    Two updates of one parameter's own tensors are equal if their signatures are. Of operations
    that take tensors of other parameters, the order of operands of sums is not compared.

    Attributes:
        operations: The operations on the parameter's own tensors, without shapes, each with the
            places of its operands.
        mixed_operations: The operations that take tensors of other parameters, in any order.
        results: The places of the results.
        states: The paths of the parameter's states.
        gradients: The parameters on whose gradients it depends; empty if it is only its own.
    """

    operations: tuple[Any, ...]
    mixed_operations: tuple[Any, ...]
    results: tuple[Any, ...]
    states: tuple[str, ...]
    gradients: frozenset[Path]


def signatures(jaxprs: Jaxprs, *, is_of_any_dtype: bool = False) -> dict[Path, Signature]:
    """Returns the signatures of the updates of all parameters.

    Args:
        jaxprs: The jaxprs of the model.
        is_of_any_dtype: Whether float32 and float64 are one dtype: constants are rounded to
            float32, and casts between the two left out.
    """
    reader = _Reader(jaxprs.varying(), is_of_any_dtype)
    return {path: _signature(jaxprs, path, reader) for path in jaxprs.params}


def _signature(jaxprs: Jaxprs, path: Path, reader: _Reader) -> Signature:
    closed_jaxpr, count = jaxprs.update, len(jaxprs.params)
    own_leaves = [leaf for leaf in jaxprs.leaves if leaf.param == path]
    common = [leaf for leaf in jaxprs.leaves if leaf.param is None]
    place = jaxprs.params.index(path)
    output_places = [place, *(count + leaf.place for leaf in (*own_leaves, *common))]
    first = len(jaxprs.variables)
    inputs: dict[int, Any] = {index: ("number", index) for index in range(first)}
    inputs[first + place] = "gradient"
    inputs |= {first + count + leaf.place: ("state", dotted_name(leaf.path)) for leaf in own_leaves}
    inputs |= {first + count + leaf.place: ("shared", leaf.path) for leaf in common}
    inputs[len(closed_jaxpr.jaxpr.invars) - count + place] = "param"
    operations, mixed_operations, results = reader.read(closed_jaxpr, inputs, output_places)
    gradients = dict(
        zip(closed_jaxpr.jaxpr.invars[first : first + count], jaxprs.params, strict=True)
    )
    operands = {
        operand
        for equation in equations_behind(closed_jaxpr.jaxpr, output_places[: 1 + len(own_leaves)])
        for operand in equation.invars
        if not is_literal(operand)
    }
    gradient_paths = {gradients[operand] for operand in operands if operand in gradients}
    return Signature(
        operations,
        mixed_operations,
        results,
        tuple(dotted_name(leaf.path) for leaf in own_leaves),
        frozenset() if gradient_paths <= {path} else frozenset(gradient_paths),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads jaxprs as operations with the places of their operands.

    Attributes:
        varying: The identities of literals that depend on shapes.
        is_of_any_dtype: Whether float32 and float64 are one dtype.
        operations: The operations that were read, by the identity of the equation.
    """

    varying: Collection[int]
    is_of_any_dtype: bool
    operations: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def read(
        self, closed_jaxpr: ClosedJaxpr, inputs: Mapping[int, Any], output_places: Sequence[int]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Returns the operations on known inputs, the others, and the results."""
        jaxpr = closed_jaxpr.jaxpr
        places = {jaxpr.invars[index]: token for index, token in inputs.items()}
        for variable, constant in zip(jaxpr.constvars, closed_jaxpr.consts, strict=True):
            places[variable] = self._constant(constant)
        operations: list[Any] = []
        mixed_operations: list[Any] = []
        for equation in equations_behind(jaxpr, output_places):
            operands = tuple(self._operand(operand, places) for operand in equation.invars)
            if self._is_cast(equation):
                places[equation.outvars[0]] = operands[0]
                continue
            operation = self._operation(equation)
            if None in operands:
                name = equation.primitive.name
                mixed_operations.append((operation, () if name in _COMMUTATIVE else operands))
                continue
            for index, variable in enumerate(equation.outvars):
                places[variable] = ("value", len(operations), index)
            operations.append((operation, operands))
        results = tuple(self._operand(jaxpr.outvars[index], places) for index in output_places)
        return tuple(operations), tuple(sorted(mixed_operations, key=repr)), results

    def _is_cast(self, equation: Equation) -> bool:
        """Whether an equation changes nothing but float32 to float64 or back."""
        if not self.is_of_any_dtype or equation.primitive.name != "convert_element_type":
            return False
        dtypes = (equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype)
        return all(str(dtype) in _FLOATS for dtype in dtypes)

    def _operand(self, variable: Any, places: Mapping[Any, Any]) -> Any:
        """The place of an operand; None if it depends on another parameter."""
        if not is_literal(variable):
            return places.get(variable)
        if id(variable) in self.varying:
            return "size"
        return self._constant(np.asarray(variable.val, dtype=variable.aval.dtype))

    def _constant(self, value: Any) -> Any:
        array = np.asarray(value)
        if self.is_of_any_dtype and str(array.dtype) in _FLOATS:
            with np.errstate(over="ignore", under="ignore"):
                array = array.astype(np.float32)
            array = np.where(np.isnan(array), np.float32(np.nan), array)
        return ("constant", str(array.dtype), array.shape, array.tobytes())

    def _operation(self, equation: Equation) -> tuple[Any, ...]:
        """An operation without shapes: its name, its parameters, and the jaxprs that it calls."""
        if id(equation) in self.operations:
            return self.operations[id(equation)]
        inner = []
        for jaxpr in closed_jaxprs(equation.params):
            inputs = {index: index for index in range(len(jaxpr.jaxpr.invars))}
            inner.append(self.read(jaxpr, inputs, range(len(jaxpr.jaxpr.outvars))))
        operation = (
            equation.primitive.name,
            () if callee_of(equation) is not None else self._parameters(equation.params),
            tuple(inner),
        )
        self.operations[id(equation)] = operation
        return operation

    def _parameters(self, params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        items = []
        for key in sorted(params):
            text = str(params[key])
            is_code = " at 0x" in text or any(closed_jaxprs({key: params[key]}))
            if key in _OF_SHAPES or is_code:
                continue
            if self.is_of_any_dtype:
                text = text.replace("float32", "float64")
            items.append((key, text))
        return tuple(items)
