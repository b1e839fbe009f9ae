"""Claims about the graph of a schedule as engines run it, in floats.

The other claims are about the formula, over the real numbers. These are about the graph that it is
compiled to: they hold on every engine that rounds as IEEE 754 says and whose other functions are as
near as the op table states, and are refuted at a step in the evaluator of the graph language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.ir.analysis.directions import Direction, directions
from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.step_check import (
    GraphSteps,
    Subdivision,
    changes_of,
    joins_steps,
    samples_of,
)
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import MAX_STEP, DType, TensorType
from closedform.language import Schedule, exact_number
from closedform.options import GraphOptions
from closedform.verify.certificates.certificate import certify
from closedform.verify.certificates.decisions import first_open_decision
from closedform.verify.certificates.errors import bound_error
from closedform.verify.certificates.floats import TACTIC, schedule_floats
from closedform.verify.claims.core import Claim
from closedform.verify.claims.statements import as_texts
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status, Verdict

DISTANCES = "distances from thresholds"
"""The ground of proofs by the distance of each number from the thresholds of its floor."""

DIRECTIONS = "directions of floats"
"""The ground of proofs by the direction of each node."""


def float_finite(
    lr: Schedule, *, dtype: DType | str | None = None, scalar_dtype: DType | str = DType.F64
) -> Claim:
    """Claims that no value of the graph overflows or is NaN, up to the last step of the domain.

    Args:
        lr: The schedule, without open hyperparameters.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed.

    Raises:
        VerificationError: A hyperparameter is open.

    Example:
        >>> from closedform import Schedule, t
        >>> print(float_finite(Schedule(2**t)).verify().counterexample)
        {'t': 1024}
    """
    return _finite(lr, *_compile_subject(lr, dtype, scalar_dtype))


def standard_float_claims(lr: Schedule) -> list[Claim]:
    """Returns the claims about one graph of a schedule that its report asks of every schedule."""
    subject = _compile_subject(lr, None, DType.F64)
    return [_finite(lr, *subject), _decided(lr, *subject)]


def _finite(lr: Schedule, graph: Graph, last: int) -> Claim:
    def decide(effort: Effort) -> Verdict:
        return schedule_floats(graph, last=last, effort=effort).verdict

    return _claim(lr, "float_finite", "no value overflows or is NaN", graph, last, decide)


def float_decides(
    lr: Schedule, *, dtype: DType | str | None = None, scalar_dtype: DType | str = DType.F64
) -> Claim:
    """Claims that floors and comparisons choose in floats as they do for the exact numbers.

    Args:
        lr: The schedule, without open hyperparameters.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed.

    Raises:
        VerificationError: A hyperparameter is open.

    Example:
        >>> import sympy as sp
        >>> from closedform import Schedule, t
        >>> halvings = sp.floor(sp.log(t + 1) / sp.log(2))
        >>> float_decides(Schedule(2**-halvings)).verify().status.value
        'PROVED'
        >>> print(float_decides(Schedule(1 + sp.floor(sp.sin(t)))).verify().proved_until)
        None
    """
    return _decided(lr, *_compile_subject(lr, dtype, scalar_dtype))


def _decided(lr: Schedule, graph: Graph, last: int) -> Claim:
    def decide(_: Effort) -> Verdict:
        decision = first_open_decision(graph, last)
        if decision is None:
            return Verdict(Status.PROVED, (DISTANCES,))
        return Verdict(Status.UNKNOWN, reason=str(decision), proved_until=decision.step or None)

    sentence = "floors and comparisons decide as those of the exact numbers"
    return _claim(lr, "float_decides", sentence, graph, last, decide)


def float_bounded(
    lr: Schedule,
    low: Any = None,
    high: Any = None,
    *,
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
) -> Claim:
    """Claims that the rounded value is between two numbers, both included.

    Args:
        lr: The schedule, without open hyperparameters.
        low: The lower bound, an exact number; None leaves it open.
        high: The upper bound.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed.

    Raises:
        VerificationError: A hyperparameter is open, or neither bound is given.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.linear(0, 1, 10)
        >>> float_bounded(lr, 0, 1).verify().status.value
        'PROVED'
    """
    if low is None and high is None:
        raise VerificationError(
            "a bound is needed, got neither low nor high",
            where=f"schedule {lr.name!r}",
            hint="give one of them",
        )
    return _bounded_claim(lr, *_compile_subject(lr, dtype, scalar_dtype), low=low, high=high)


def _bounded_claim(
    lr: Schedule, graph: Graph, last: int, low: Any = None, high: Any = None
) -> Claim:
    least, most = (None if side is None else _fraction(side) for side in (low, high))

    def fits(interval: Interval) -> bool:
        if interval.maybe_nan or interval.has_infinity:
            return False
        is_above = least is None or Fraction(interval.low) >= least
        return is_above and (most is None or Fraction(interval.high) <= most)

    def decide(effort: Effort) -> Verdict:
        def is_shown(first: int, end: int) -> bool:
            return fits(_output(graph, first, end))

        def is_false(value: float) -> bool:
            return not fits(Interval(value, value, np.isnan(value)))

        return _on_parts(graph, last, effort, is_shown, is_false)

    sides = [f"{sign} {bound}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None]
    sentence = f"the rounded value is {' and '.join(sides)}"
    return _claim(lr, "float_bounded", sentence, graph, last, decide, low=low, high=high)


def float_monotone(
    lr: Schedule,
    direction: Literal["increasing", "decreasing"],
    *,
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
) -> Claim:
    """Claims that the rounded value never changes against a direction from a step to the next.

    It is shown for operations that IEEE 754 rounds; an engine's own exp or cosine may fall by an
    ulp where the formula rises, and is UNKNOWN.

    Args:
        lr: The schedule, without open hyperparameters.
        direction: The direction; a value that stays the same has both.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed.

    Raises:
        VerificationError: A hyperparameter is open, or the direction is another word.

    Example:
        >>> from closedform import schedules
        >>> float_monotone(schedules.linear(0, 1, 10), "increasing").verify().status.value
        'PROVED'
    """
    return _in_direction(lr, *_compile_subject(lr, dtype, scalar_dtype), direction=direction)


def _in_direction(lr: Schedule, graph: Graph, last: int, direction: str) -> Claim:
    if direction not in ("increasing", "decreasing"):
        raise VerificationError(
            f"direction must be increasing or decreasing, got {direction!r}",
            where=f"schedule {lr.name!r}",
        )
    direction_wanted = Direction.RISING if direction == "increasing" else Direction.FALLING

    def decide(effort: Effort) -> Verdict:
        return _monotone(graph, last, direction_wanted, effort)

    sentence = f"the rounded value is {direction}"
    return _claim(lr, "float_monotone", sentence, graph, last, decide, direction=direction)


def float_within(
    lr: Schedule,
    ulp: Any,
    *,
    until: int | None = None,
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
) -> Claim:
    """Claims that the value is within some units in the last place of that of the formula.

    Args:
        lr: The schedule, without open hyperparameters.
        ulp: The number of units, each the distance of the floats at the exact value.
        until: The last step; the length of the schedule if not given, or the last of its domain.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed.

    Raises:
        VerificationError: A hyperparameter is open, or ``ulp`` is below 0.

    Example:
        >>> from closedform import schedules
        >>> float_within(schedules.linear(1, 2, 10), 4).verify().status.value
        'PROVED'
    """
    graph, last = _compile_subject(lr, dtype, scalar_dtype)
    length = last if lr.length is None else min(last, int(lr.length))
    end = length if until is None else until
    return _near(lr, graph, end, ulp=ulp)


def _near(lr: Schedule, graph: Graph, end: int, ulp: Any) -> Claim:
    most = _fraction(ulp)
    if most < 0:
        raise VerificationError(f"ulp must be at least 0, got {ulp!r}")

    def decide(_: Effort) -> Verdict:
        return _within(lr, graph, end, most)

    sentence = f"the value is within {ulp} ulp of the formula"
    return _claim(lr, "float_within", sentence, graph, end, decide, ulp=ulp)


FLOAT_CLAIMS: Mapping[str, Callable[..., Claim]] = {
    "float_finite": _finite,
    "float_decides": _decided,
    "float_bounded": _bounded_claim,
    "float_monotone": _in_direction,
    "float_within": _near,
}
"""By name, the functions that make a claim about a graph and its last step."""


def about_graph(name: str, graph: Graph, lr: Schedule, *, last: int, **arguments: Any) -> Claim:
    """Returns a claim about a graph that was read from a file.

    Args:
        name: The name of the claim, one of ``FLOAT_CLAIMS``.
        graph: The graph.
        lr: Its formula.
        last: The last step.
        **arguments: The other arguments of the claim.

    Raises:
        ValueError: The last step is below 0 or above ``MAX_STEP``.
    """
    if not 0 <= last <= MAX_STEP:
        raise ValueError(f"expected a last step from 0 to {MAX_STEP}, got {last}")
    if name == "float_within":
        graph = _of_steps(graph)
    return FLOAT_CLAIMS[name](lr, graph, last, **arguments)


def _of_steps(graph: Graph) -> Graph:
    """The same operations on an array of steps, which a certificate runs at once."""
    if any(node.type.shape for node in graph.inputs):
        return graph
    builder = Builder(graph.name)
    values: list[Value] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            name, role = str(node.attribute("name")), Role(node.attribute("role"))
            values.append(builder.input(name, TensorType(node.type.dtype, ("n",)), role))
            continue
        operands = (values[operand] for operand in node.operands)
        values.append(builder.emit(node.op, *operands, **dict(node.attributes)))
    for output in graph.outputs:
        builder.output(output.name, values[output.index])
    return builder.build()


def _compile_subject(
    lr: Schedule, dtype: DType | str | None, scalar_dtype: DType | str
) -> tuple[Graph, int]:
    """The graph of a schedule, and the last step at which it is used."""
    if not isinstance(lr, Schedule) or lr.open:
        actual = lr.open[0] if isinstance(lr, Schedule) else type(lr).__name__
        raise VerificationError(
            "a claim about floats is about a Schedule whose hyperparameters have values, "
            f"got {actual}",
            hint="bind them first",
        )
    options = GraphOptions(dtype=dtype, scalar_dtype=scalar_dtype, step_shape=("n",))
    last = MAX_STEP if lr.last_step is None else min(MAX_STEP, lr.last_step)
    return compile_schedule(lr, options), last


def _claim(
    lr: Schedule,
    name: str,
    sentence: str,
    graph: Graph,
    last: int,
    decide: Callable[[Effort], Verdict],
    **arguments: Any,
) -> Claim:
    dtypes = {str(node.type.dtype) for node in graph.nodes if node.type.dtype.is_float}
    place = f"in {' and '.join(sorted(dtypes, reverse=True))}, to step {last}"
    arguments_as_texts = as_texts(**arguments, last=last)
    return Claim(name, f"{sentence} ({place})", lr, (), arguments=arguments_as_texts, decide=decide)


def _fraction(number: Any) -> Fraction:
    exact = exact_number(number, "a bound")
    if exact.is_Rational:
        return Fraction(int(exact.p), int(exact.q))
    raise VerificationError(f"a bound of floats must be rational, got {exact}")


def _output(graph: Graph, first: int, last: int) -> Interval:
    table = Ranges(graph.nodes, last, step_min=first, flushes=True)
    return table.of(graph.outputs[0].index)


def _values(steps: GraphSteps, at: Any) -> Any:
    values = steps.values(np.asarray(at, np.int64))[steps.graph.outputs[0].index]
    return np.broadcast_to(values, (len(at),))


def _on_parts(
    graph: Graph,
    last: int,
    effort: Effort,
    is_shown: Callable[[int, int], bool],
    is_false: Callable[[float], bool],
) -> Verdict:
    """Shown on all parts of the steps, or false at a step in the evaluator."""
    steps = GraphSteps(graph)
    samples = samples_of(0, last)
    for step, value in zip(samples, _values(steps, samples), strict=True):
        if is_false(float(value)):
            return _refutation_at(int(step), f"the value is {value}")
    if joins_steps(graph):
        return Verdict(Status.UNKNOWN, reason="the value at a step depends on other steps")
    partition = Subdivision(steps, LIMITS.float_segments, effort)
    first_part = partition.first(0, last, is_shown)
    if first_part is None:
        return Verdict(Status.PROVED, (TACTIC,))
    step, end = first_part
    if step == end:
        value = float(_values(steps, [step])[0])
        if is_false(value):
            return _refutation_at(step, f"the value is {value}")
    return Verdict(Status.UNKNOWN, reason=f"it is not decided from t = {step} on")


def _refutation_at(step: int, reason: str) -> Verdict:
    return Verdict(
        Status.REFUTED, ("evaluation",), counterexample={"t": sp.Integer(step)}, reason=reason
    )


def _monotone(graph: Graph, last: int, direction: Direction, effort: Effort) -> Verdict:
    steps = GraphSteps(graph)
    index = graph.outputs[0].index
    samples = samples_of(0, last)
    # Each sample with its next step, and that with the one after it.
    for at in (samples, np.minimum(samples + 1, last)):
        before, after = _values(steps, at), _values(steps, np.minimum(at + 1, last))
        wrong_steps = np.flatnonzero(direction * (after.astype(np.float64) - before) < 0)
        if len(wrong_steps):
            place = wrong_steps[0]
            reason = f"the value is {before[place]}, and {after[place]} at the next step"
            return _refutation_at(int(at[place]), reason)
    if joins_steps(graph):
        return Verdict(Status.UNKNOWN, reason="the value at a step depends on other steps")
    # Between changes of conditions all branches are fixed, and directions are those of the branch
    # taken.
    starts = sorted({0, *changes_of(steps, 0, last, effort)})
    ends = [*(start - 1 for start in starts[1:]), last]
    for start, end in zip(starts, ends, strict=True):
        table = Ranges(graph.nodes, end, step_min=start, flushes=True)
        if directions(graph, table)[index] not in (direction, Direction.CONSTANT):
            return Verdict(
                Status.UNKNOWN,
                reason=f"it is not decided from t = {start} to {end}: not all operations there "
                "are rounded as IEEE 754 says, or they have different directions",
            )
    # From part to part, the value at the last step against that at the first of the next one.
    for end in ends[:-1]:
        value, next_value = _output(graph, end, end), _output(graph, end + 1, end + 1)
        if (
            # Both ends of both intervals are against the direction: certain, whatever the values
            # are.
            direction * (next_value.low - value.high) < 0
            and direction * (next_value.high - value.low) < 0
        ):
            return _refutation_at(
                end, f"the value is {value.low}, and {next_value.low} at the next step"
            )
        is_ordered = (
            next_value.low >= value.high
            if direction is Direction.RISING
            else next_value.high <= value.low
        )
        if not is_ordered:
            return Verdict(Status.UNKNOWN, reason=f"it is not decided at t = {end}")
    return Verdict(Status.PROVED, (DIRECTIONS,))


def _within(lr: Schedule, graph: Graph, last: int, most: Fraction) -> Verdict:
    dtype = graph.nodes[graph.outputs[0].index].type.dtype
    certificate = certify(lr, graph, range(last + 1))
    worst = certificate.measured.ulp
    if Fraction(worst.value) > most:
        return _refutation_at(worst.step, f"the value is off by {worst.value:.4g} ulp")
    bound = certificate.bound or bound_error(graph, 0, last)
    bits = np.finfo(dtype.numpy).nmant + 1
    # A value is below two to its exponent, so a part of it is at most that many units.
    if bound.relative is not None and Fraction(bound.relative) * 2**bits <= most:
        return Verdict(Status.PROVED, ("error analysis",))
    if certificate.is_exhaustive:
        reason = f"it is so in the evaluator, where it is off by {worst.value:.4g} ulp at most"
    else:
        reason = f"it is so at {certificate.measured.steps:,} steps"
    return Verdict(Status.UNKNOWN, reason=f"{reason}; no bound for all engines was found")
