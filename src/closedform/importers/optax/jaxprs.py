"""Jaxprs of JAX functions, and their evaluation in float64.

A jaxpr is the straight-line program that JAX makes of a Python function. Everything here is traced
with 64-bit numbers, and computes in float64 where the code asks for narrower floats: a rule has one
dtype for its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from closedform.code_files import files_of
from closedform.errors import ClosedFormError, TraceError
from closedform.importers.python.place import origin
from closedform.language.literals import literal

Tree: TypeAlias = Any
"""A pytree."""

Equation: TypeAlias = Any
"""An equation of a jaxpr."""

_INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CONTROL = frozenset({"cond", "scan", "while"})
NARROW = frozenset({"float32", "bfloat16", "float16"})
_JAX_AND_TRACER = files_of("jax", "jaxlib", "closedform.importers")


@contextmanager
def double_precision() -> Iterator[None]:
    """Makes float64 and int64 legal dtypes, and float64 that of Python's floats."""
    with jax.enable_x64(True):
        yield


def jaxpr_of(function: Callable[..., Any], *args: Tree, where: str) -> ClosedJaxpr:
    """Returns the jaxpr of a function.

    Args:
        function: The function.
        *args: Its arguments, as arrays or their shapes and dtypes.
        where: What it is, for errors.

    Raises:
        TraceError: The function cannot be traced; the message has the reason that JAX gives.
    """
    try:
        return jax.make_jaxpr(function)(*args)
    except ClosedFormError:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise TraceError(
            "Python's control flow depends on a traced value: "
            f"{str(error).strip().splitlines()[0]}",
            where=place_of(error, where),
            hint="write it with jax.lax.cond or jnp.where",
        ) from error
    except Exception as error:
        is_extra = isinstance(error, TypeError) and "required keyword-only" in str(error)
        raise TraceError(
            f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}",
            where=place_of(error, where),
            hint="an update depends only on gradients, state and parameters" if is_extra else None,
        ) from error


def place_of(error: BaseException, where: str) -> str:
    """Returns the file and line of the innermost frame of an exception that is not of JAX."""
    return origin(error, where, lambda file: file not in _JAX_AND_TRACER)


def source_of(equations: Sequence[Equation]) -> str:
    """Returns the file and line that the first equation with one outside of JAX comes from."""
    for equation in equations:
        for frame in getattr(getattr(equation.source_info, "traceback", None), "frames", ()):
            if frame.file_name not in _JAX_AND_TRACER:
                return f"{frame.file_name}:{frame.line_num}"
    return "unknown code"


def callee_of(equation: Equation) -> ClosedJaxpr | None:
    """Returns the jaxpr that an equation calls, such as that of ``jax.jit``; None for others."""
    if equation.primitive.name in _CONTROL:
        return None
    for name in _INLINED:
        callee = equation.params.get(name)
        if isinstance(callee, ClosedJaxpr):
            return callee
        if isinstance(callee, Jaxpr):
            return ClosedJaxpr(callee, ())
    return None


def equations_behind(jaxpr: Jaxpr, places: Sequence[int]) -> list[Equation]:
    """Returns the equations on which some outputs depend, in order."""
    variables = {jaxpr.outvars[place] for place in places if not is_literal(jaxpr.outvars[place])}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if any(variable in variables for variable in equation.outvars):
            equations.append(equation)
            variables.update(operand for operand in equation.invars if not is_literal(operand))
    return equations[::-1]


def is_literal(variable: object) -> bool:
    """Returns whether an operand is a constant."""
    return isinstance(variable, Literal)


# --- evaluation in float64 -----------------------------------------------------------------------


def in_double(
    function: Callable[..., Tree], *like: Tree, is_exact: bool = False
) -> Callable[..., Tree]:
    """Returns a function that computes in float64 where the given one asks for float32.

    Args:
        function: A function of arrays.
        *like: Its arguments as it is given them, or their shapes and dtypes.
        is_exact: Whether floats of 16 bits are float64, too.
    """
    narrow = NARROW if is_exact else frozenset({"float32"})
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*like)
    structure = jax.tree.structure(shape)

    def compute(*args: Tree) -> Tree:
        return jax.tree.unflatten(structure, _evaluate(jaxpr, jax.tree.leaves(args), narrow))

    return compute


def decimals(array: Any) -> Any:
    """Returns an array of floats in float64, each the number that ``literal`` reads it as."""
    numbers = np.asarray(array)
    dtype = str(numbers.dtype)
    values, places = np.unique(numbers.reshape(-1).astype(np.float64), return_inverse=True)
    read = [
        float(literal(number, dtype)) if math.isfinite(number) else number
        for number in values.tolist()
    ]
    return np.array(read, dtype=np.float64)[places].reshape(numbers.shape)


def _wide(value: Any, narrow: frozenset[str]) -> Any:
    if str(getattr(value, "dtype", "")) not in narrow:
        return value
    is_constant = not isinstance(value, jax.core.Tracer)
    return decimals(value) if is_constant else jnp.asarray(value, dtype=jnp.float64)


def _evaluate(closed_jaxpr: ClosedJaxpr, args: Sequence[Any], narrow: frozenset[str]) -> list[Any]:
    jaxpr = closed_jaxpr.jaxpr
    values: dict[Any, Any] = {}

    def read(variable: Any) -> Any:
        value = variable.val if is_literal(variable) else values[variable]
        return _wide(value, narrow)

    values |= dict(zip(jaxpr.constvars, closed_jaxpr.consts, strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        operands = [read(variable) for variable in equation.invars]
        results = _execute(equation, operands, narrow)
        values |= dict(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _execute(equation: Equation, operands: list[Any], narrow: frozenset[str]) -> list[Any]:
    callee = callee_of(equation)
    params = equation.params
    name = equation.primitive.name
    if callee is not None:
        return _evaluate(callee, operands, narrow)
    if name == "cond":
        index, *rest = operands
        branches = [_as_function(branch, narrow) for branch in params["branches"]]
        return list(jax.lax.switch(index, branches, *rest))
    if name == "scan":
        return _scan(params, operands, narrow)
    if name == "while":
        return _repeat(params, operands, narrow)
    wide = {key: _wide_dtype(value, narrow) for key, value in params.items()}
    result = equation.primitive.bind(*operands, **wide)
    return list(result) if equation.primitive.multiple_results else [result]


def _wide_dtype(value: Any, narrow: frozenset[str]) -> Any:
    is_dtype = isinstance(value, np.dtype) or hasattr(value, "dtype")
    return np.dtype("float64") if is_dtype and str(value) in narrow else value


def _as_function(closed_jaxpr: ClosedJaxpr, narrow: frozenset[str]) -> Callable[..., list[Any]]:
    return lambda *args: _evaluate(closed_jaxpr, args, narrow)


def _scan(params: Mapping[str, Any], operands: list[Any], narrow: frozenset[str]) -> list[Any]:
    consts, carries = params["num_consts"], params["num_carry"]
    body = _as_function(params["jaxpr"], narrow)

    def step(carry: Any, rows: Any) -> tuple[Any, Any]:
        results = body(*operands[:consts], *carry, *rows)
        return results[:carries], results[carries:]

    carry, rows = jax.lax.scan(
        step,
        operands[consts : consts + carries],
        operands[consts + carries :],
        length=params["length"],
        reverse=params["reverse"],
    )
    return [*carry, *rows]


def _repeat(params: Mapping[str, Any], operands: list[Any], narrow: frozenset[str]) -> list[Any]:
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = operands[:first], operands[first : first + second]
    condition = _as_function(params["cond_jaxpr"], narrow)
    body = _as_function(params["body_jaxpr"], narrow)
    return list(
        jax.lax.while_loop(
            lambda carry: condition(*of_condition, *carry)[0],
            lambda carry: body(*of_body, *carry),
            operands[first + second :],
        )
    )
