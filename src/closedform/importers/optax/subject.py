"""Gradient transformations as jaxprs, for parameters of some shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import sympy as sp
from jax.extend.core import ClosedJaxpr

from closedform.errors import TraceError
from closedform.importers.optax.hypers import Variable, variables_of, with_values
from closedform.importers.optax.jaxprs import Equation, Tree, is_literal, needed, traced
from closedform.importers.optax.leaves import (
    Leaf,
    Path,
    spelled,
    state_leaves,
    with_shapes,
)
from closedform.importers.optax.sizes import called, differing, size_expression
from closedform.importers.tensors.values import (
    Sizes,
)

_STATIC = (
    "name",
    "axes",
    "dimension",
    "permutation",
    "dimension_numbers",
    "broadcast_dimensions",
)
"""Parameters of primitives that tell operations apart."""


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
        others: The jaxprs for other shapes, where they are known.
    """

    params: list[Path]
    leaves: list[Leaf]
    init: ClosedJaxpr
    update: ClosedJaxpr
    shapes: Mapping[Path, Sizes]
    variables: Sequence[Variable]
    others: Jaxprs | None = None

    def varying(self) -> set[int]:
        """Returns the identities of the literals that depend on shapes."""
        if self.others is None:
            return set()
        return {id(mine) for mine, _ in differing(self.update.jaxpr, self.others.update.jaxpr)}

    def sizes(self, own: Path, second: Path | None) -> dict[int, sp.Expr]:
        """Returns the constants that depend on shapes, as expressions in sizes.

        They are those that differ between two traces for different primes. Their keys are the
        identities of the literals.
        """
        if self.others is None:
            return {}
        found: dict[int, sp.Expr] = {}
        for mine, theirs in ((self.init, self.others.init), (self.update, self.others.update)):
            for literal, other_literal in differing(mine.jaxpr, theirs.jaxpr):
                pair = float(literal.val), float(other_literal.val)
                expr = size_expression(pair, own, second, (self.shapes, self.others.shapes))
                if expr is not None:
                    found[id(literal)] = expr
        return found


def symbolic_variables(
    transformation: Transformation, params: Tree, shapes: Mapping[Path, Sizes], where: str
) -> list[Variable]:
    """Returns the variables of the closure that may be symbols; Python decides on the others."""
    found = variables_of(transformation.update)
    if _is_traceable(transformation, params, shapes, where, found):
        return found
    return [
        variable
        for variable in found
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
) -> Jaxprs:
    """Returns the jaxprs of a transformation.

    Args:
        transformation: The transformation.
        params: Its parameters.
        shapes: The shapes that they have in its place.
        where: What is traced, for errors.
        variables: The variables of the closure that are symbols.
    """
    given = with_shapes(params, shapes, jnp.float64)
    init = traced(transformation.init, given, where=f"init of {where}")
    start = jax.eval_shape(transformation.init, given)

    numbers = [weak_number() for _ in variables]
    step = stepping(transformation, variables)
    update = traced(step, numbers, given, start, given, where=f"update of {where}")
    paths = list(shapes)
    leaves = state_leaves(start, paths)
    if len(update.jaxpr.outvars) != len(paths) + len(leaves):
        raise TraceError("the state changes its structure in the first update", where=where)
    return Jaxprs(paths, leaves, init, update, shapes, variables)


@dataclass(frozen=True, slots=True)
class Signature:
    """The features that tell apart the updates of two parameters.

    Attributes:
        operations: The operations on which an update depends, without shapes.
        states: The paths of the parameter's states.
        gradients: The parameters on whose gradients it depends; empty if it is its own alone.
    """

    operations: tuple[Any, ...]
    states: tuple[str, ...]
    gradients: frozenset[Path]


def _operation(equation: Equation, varying: Collection[int]) -> tuple[Any, ...]:
    """An operation without shapes: its name, parameters, constants, and those of what it calls."""
    return (
        equation.primitive.name,
        tuple(str(equation.params.get(key)) for key in _STATIC),
        tuple(
            "size" if id(one) in varying else str(one.val)
            for one in equation.invars
            if is_literal(one)
        ),
        tuple(
            _operation(inner, varying) for jaxpr in called(equation.params) for inner in jaxpr.eqns
        ),
    )


def signature(jaxprs: Jaxprs, path: Path) -> Signature:
    """Returns the signature of the update of one parameter."""
    jaxpr, count = jaxprs.update.jaxpr, len(jaxprs.params)
    own = [leaf for leaf in jaxprs.leaves if leaf.param == path]
    wanted = [jaxprs.params.index(path), *(count + leaf.place for leaf in own)]
    first = len(jaxprs.variables)
    numbers = {variable: place for place, variable in enumerate(jaxpr.invars[:first])}
    gradients = dict(zip(jaxpr.invars[first : first + count], jaxprs.params, strict=True))
    varying = jaxprs.varying()
    used: set[Path] = set()
    operations: list[Any] = []
    for equation in needed(jaxpr, wanted):
        operands = [one for one in equation.invars if not is_literal(one)]
        used |= {gradients[one] for one in operands if one in gradients}
        taken = tuple(numbers.get(one) for one in operands)
        operations.append((_operation(equation, varying), taken))
    return Signature(
        tuple(operations),
        tuple(spelled(leaf.path) for leaf in own),
        frozenset() if used <= {path} else frozenset(used),
    )
