"""Schedules of optax, and functions of a count in JAX, as expressions in t."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.extend.core import ClosedJaxpr
from sympy.core.relational import Relational

from closedform.errors import ClosedFormError, TraceError
from closedform.importers.optax.control import RULES
from closedform.importers.optax.interpreter import Interpreter
from closedform.importers.optax.jaxprs import double_precision, in_double, jaxpr_of, place_of
from closedform.importers.optax.tables import firsts_of, in_branches
from closedform.importers.python.compare import compare_graph
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.steps import STEPS, values_at
from closedform.importers.tensors.values import Axes, Definitions, Value
from closedform.language.schedule import Schedule
from closedform.language.symbols import t

# A value is some dozen roundings of 1.1e-16 and a cosine of an argument up to some hundred.
TOLERANCE = 1e-12
_LARGEST_STEP = 2**31 - 2
_POINTS = 512
_LISTED_POLES = 16
_INFINITIES = (sp.oo, -sp.oo, sp.nan, sp.zoo, sp.AccumBounds)


def trace_schedule(function: Callable[[Any], Any], prover: Prover, name: str | None) -> Schedule:
    """Returns the schedule that a function of the count computes.

    Raises:
        TraceError: It has no expression, or the expression differs from it.
    """
    label = name or str(getattr(function, "__name__", type(function).__name__))
    where = f"schedule {label!r}"
    jaxpr, is_wide, count = _jaxpr(function, where)
    with double_precision():
        if len(jaxpr.out_avals) != 1 or jaxpr.out_avals[0].shape != ():
            raise TraceError("a schedule returns one number", where=where)
        expr, infinite = _trace(jaxpr, prover, where, has_infinities=True)
        if expr.has(*_INFINITIES):  # the expression has no value there
            expr, _ = _trace(jaxpr, prover, where, has_infinities=False)
        schedule = Schedule(expr, name=label if label.isidentifier() else "schedule")
        with jax.enable_x64(is_wide):
            evaluate = in_double(function, count, is_exact=True)
        _check(evaluate, count.dtype, expr, [*_poles(expr, prover), *infinite], prover, where)
    compare_graph(schedule, steps_of(expr), lambda step: prover.value(expr, step), where)
    return schedule


_PRECISIONS = (True, jnp.int32), (True, jnp.int64), (False, jnp.int32)
"""Whether floats of Python are float64, and the dtype of the count, as they are tried.

lax takes operands of equal dtypes only: ``lax.le(9, count)`` has two int32 in a run, and Python's
integers are int64 here; ``lax.div(x, 3.0)`` has two float32.
"""


def _jaxpr(
    function: Callable[[Any], Any], where: str
) -> tuple[ClosedJaxpr, bool, jax.ShapeDtypeStruct]:
    """The jaxpr of a function of the count, and the precision in which it has one."""
    for is_wide, dtype in _PRECISIONS:
        count = jax.ShapeDtypeStruct((), dtype)
        with jax.enable_x64(is_wide):
            try:
                return jaxpr_of(function, count, where=where), is_wide, count
            except TraceError as error:
                if "same dtypes" not in str(error):
                    raise
                refusal = error
    raise refusal


def _trace(
    jaxpr: ClosedJaxpr, prover: Prover, where: str, *, has_infinities: bool
) -> tuple[sp.Expr, list[int]]:
    """The expression of a jaxpr of the count, and steps next to infinite values."""
    run = Interpreter(Axes((), ()), Definitions(), prover, RULES)
    run.has_infinities = has_infinities
    try:
        (result,) = run.run(jaxpr, [Value(t)])
        if not isinstance(result, Value):
            raise TraceError("a schedule returns one number", where=where)
        expr = in_branches(run.algebra.real(result).expr)
    except (TypeError, ValueError) as error:  # of SymPy, for a comparison of an infinity
        if isinstance(error, ClosedFormError):
            raise
        raise TraceError(
            f"the schedule compares a value that is not a number: {error}",
            where=where,
            hint="select with jnp.where on the count",
        ) from error
    if not expr.free_symbols <= {t}:
        raise TraceError(
            "the choices of the schedule are too many for one expression",
            where=where,
            hint="select with jnp.where on the count, or on count % period",
        )
    conditions = {condition for value in run.infinite for condition in value.atoms(Relational)}
    steps = [step for c in conditions for step in firsts_of([c]) or changes(c)]
    return expr, [step for step in steps if step <= _LARGEST_STEP]


def _poles(expr: sp.Basic, prover: Prover) -> list[int]:
    """Steps at which an expression may divide by 0: the first ones of each interval of them."""
    bases = {
        power.base
        for power in expr.atoms(sp.Pow)
        if power.base.free_symbols == {t} and power.exp.is_negative is not False
    }
    bases |= {log.args[0] for log in expr.atoms(sp.log) if log.free_symbols == {t}}
    steps: list[int] = []
    for base in sorted(bases, key=str):
        try:
            parts = prover.split(sp.Eq(base, 0), 0, None)
        except ClosedFormError:  # it holds a function that the prover does not know
            continue
        for part in parts:
            if part.truth is not False:
                end = part.first + _LISTED_POLES if part.end is None else part.end
                steps += range(part.first, min(end, part.first + _LISTED_POLES))
    return [step for step in steps if step <= _LARGEST_STEP]


def steps_of(*expressions: sp.Basic) -> list[int]:
    """Returns steps at which expressions are compared: first ones, later ones, and at branches."""
    steps = {int(step) for step in STEPS}
    for expr in expressions:
        for condition in expr.atoms(Relational):
            steps |= set(changes(condition))
        for bound in expr.atoms(sp.Max, sp.Min):
            for a, b in zip(bound.args, bound.args[1:], strict=False):
                steps |= set(changes(sp.Lt(a, b, evaluate=False)))
    return sorted(steps)


def changes(condition: sp.Basic) -> list[int]:
    """Returns steps next to the changes of a condition on the step."""
    if condition.free_symbols != {t}:
        return []
    try:
        truths = values_at(condition, STEPS, {}).astype(bool)
    except TraceError:
        return []
    steps = []
    for place in np.flatnonzero(truths[1:] != truths[:-1]):
        low, high = int(STEPS[place]), int(STEPS[place + 1])
        while high - low > 1:
            middle = (low + high) // 2
            is_same = bool(values_at(condition, np.array([middle]), {})[0]) == bool(truths[place])
            low, high = (middle, high) if is_same else (low, middle)
        steps += [max(low - 1, 0), low, high, high + 1]
    return steps


def _pad(steps: list[int], poles: Sequence[int]) -> np.ndarray[Any, Any]:
    """As many steps for all schedules: JAX compiles each operation for each length."""
    poles = poles[: _POINTS // 2]
    remaining = _POINTS - len(poles)
    distinct = sorted({*steps[:: -(-len(steps) // remaining)], *poles})
    return np.array([*distinct, *(_POINTS - len(distinct)) * [distinct[-1]]])


def _check(
    evaluate: Callable[[Any], Any],
    dtype: Any,
    expr: sp.Expr,
    poles: Sequence[int],
    prover: Prover,
    where: str,
) -> None:
    steps = _pad(sorted({*steps_of(expr), *poles}), poles)
    try:
        schedule_values = jax.vmap(evaluate)(jnp.asarray(steps, dtype=dtype))
    except Exception as error:
        raise TraceError(
            f"{type(error).__name__}: {error}", where=place_of(error, where)
        ) from error
    expected = np.broadcast_to(np.asarray(schedule_values, dtype=np.float64), steps.shape)
    traced_values = values_at(expr, steps, {})
    size = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0))
    is_defined = np.isfinite(expected) | np.isfinite(traced_values)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(traced_values - expected) <= TOLERANCE * size
    is_far = is_defined & ~is_near
    for place in np.flatnonzero(np.isin(steps, poles) & np.isfinite(expected)):
        if prover.value(expr, int(steps[place])) is None:
            raise TraceError(
                f"the schedule divides by 0 at step {steps[place]} and returns "
                f"{expected[place]!r}, the value of a function of an infinity",
                where=where,
                hint="select the value of that step with jnp.where",
            )
    for place in np.flatnonzero(is_far):
        # A floor may round to another number in float64 than it is.
        exact = prover.value(expr, int(steps[place]))
        if exact is not None and abs(exact - expected[place]) <= TOLERANCE * size:
            continue
        raise TraceError(
            f"the traced value differs from the schedule: at step {steps[place]} it is "
            f"{traced_values[place]!r}, and the schedule returns {expected[place]!r}",
            where=where,
            hint="the schedule must be a pure function of the count",
        )
