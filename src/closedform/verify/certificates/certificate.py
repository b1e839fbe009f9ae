"""Certificates of numerics: how far a compiled schedule is from its exact value.

Up to a million steps every step is compared with ball arithmetic: for the engine that ran, the
largest error is then proved. Of longer ranges some 25,000 steps are compared, among them both ends,
every milestone and its neighbours, and powers of two; and a bound for all steps is proved by
forward error analysis of the graph on intervals of the step (``errors``). A certificate
says which of its numbers are proved, and of what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform import markup
from closedform.compiler import compile_schedule
from closedform.errors import VerificationError, describe
from closedform.ir.evaluate import STEP_MAX, evaluate
from closedform.ir.graph import Graph, Role
from closedform.ir.types import DType
from closedform.language.schedule import Schedule
from closedform.options import ANY_STEPS
from closedform.verify.certificates.decisions import OpenDecision, first_open_decision
from closedform.verify.certificates.errors import Bound, bound_error
from closedform.verify.certificates.measure import Measured, measure, unit_in_last_place
from closedform.verify.certificates.values import ExactValues
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term

_DTYPES = {np.dtype(np.float64): DType.F64, np.dtype(np.float32): DType.F32}

Engine = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far an engine is from the exact values of a schedule over a range of steps.

    Attributes:
        schedule: Name of the schedule.
        engine: What ran the graph.
        dtype: Dtype of the values.
        first: The first step.
        last: The last step.
        count: How many steps there are.
        scale: The largest size of an exact value among the compared steps.
        measured: Errors at the steps that were compared.
        bound: A bound of the error at every step from ``first`` to ``last``, proved for every
            engine whose operations are as near as the op table says and for a graph that means
            the schedule over the reals; None if every step was compared.
        open_decision: The first floor or comparison at which rounding may choose another side of
            a threshold than the exact number; None if there is none.
    """

    schedule: str
    engine: str
    dtype: DType
    first: int
    last: int
    count: int
    scale: float
    measured: Measured
    bound: Bound | None
    open_decision: OpenDecision | None = None

    @property
    def is_exhaustive(self) -> bool:
        """True if every step was compared: then the measured errors are proved for the engine."""
        return self.measured.steps == self.count

    def __str__(self) -> str:
        errors = self.measured
        share = f"{100 * errors.rounded_share:.4f} %"
        lines = [
            f"schedule {self.schedule!r} in {self.engine}, {self.dtype}, "
            f"{self.count:,} steps from {self.first} to {self.last}",
            self._basis(),
            f"  {errors.ulp.value:.5g} ulp of the value, at t = {errors.ulp.step}",
            f"  {errors.ulp_of_scale.value:.5g} ulp of scale ({self.scale:.4g}), "
            f"at t = {errors.ulp_of_scale.step}",
            f"  {errors.relative.value:.3g} relative, at t = {errors.relative.step}",
            f"  correctly rounded: {share} ({errors.steps - errors.rounded:,} are not)",
        ]
        if self.bound is not None:
            lines += [*self._bound_text(self.bound)]
        if self.open_decision is not None:
            lines.append(f"  open: {self.open_decision}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        kind = "proved" if self.is_exhaustive else "measured"
        return (
            f"<Certificate of {self.schedule!r} in {self.engine}, {self.dtype}: "
            f"{self.measured.ulp.value:.5g} ulp, {kind}>"
        )

    def _repr_html_(self) -> str:
        errors = self.measured
        rows = [
            ("ulp of the value", f"{errors.ulp.value:.5g}", f"{errors.ulp.step:,}"),
            ("ulp of scale", f"{errors.ulp_of_scale.value:.5g}", f"{errors.ulp_of_scale.step:,}"),
            ("relative", f"{errors.relative.value:.3g}", f"{errors.relative.step:,}"),
            ("correctly rounded", f"{100 * errors.rounded_share:.4f} %", ""),
        ]
        title, *_ = str(self).splitlines()
        bound = [] if self.bound is None else [" ".join(self._bound_text(self.bound))]
        return markup.block(
            title,
            markup.paragraph(self._basis()),
            markup.table(rows, ("largest error", "", "at t")),
            *map(markup.paragraph, bound),
        )

    def _basis(self) -> str:
        if self.is_exhaustive:
            return f"proved, each of these {self.count:,} steps compared with ball arithmetic:"
        return f"measured at {self.measured.steps:,} of them, not proved at the others:"

    def _bound_text(self, bound: Bound) -> Sequence[str]:
        unit = float(unit_in_last_place(np.array([self.scale]), np.zeros(1), self.dtype)[0])
        if not bound.absolute < self.scale:
            return (f"no bound below the values was found, on {bound.intervals:,} intervals",)
        relative = "" if bound.relative is None else f", {bound.relative:.3g} relative"
        return (
            f"proved at every step, by error analysis on {bound.intervals:,} intervals:",
            f"  {bound.absolute / unit:.5g} ulp of scale{relative}",
            "  provided that each operation is as near as the op table says, and that the graph",
            "  means the schedule over the reals",
        )


def certify(
    schedule: Schedule,
    graph: Graph | None = None,
    steps: range | Sequence[int] | NDArray[Any] | None = None,
    *,
    engine: str | Engine = "evaluate",
) -> Certificate:
    """Returns how far a compiled schedule is from its exact value.

    Arguments, errors and an example are as in :func:`closedform.api.verification.certify`; a graph
    that is not given is compiled with the default options.
    """
    where = f"schedule {schedule.name!r}"
    if schedule.open:
        raise VerificationError(
            f"the symbol {schedule.open[0]} has no value", where=where, hint="bind it first"
        )
    all_steps = _steps(schedule, steps, where)
    graph = _graph(schedule, graph, where)
    run = _engine(graph, engine)
    values = ExactValues(term(schedule.bound))
    compared_steps = _steps_to_compare(all_steps, values.starts)
    high, low = values.at([int(step) for step in compared_steps])
    outputs = _run(run, compared_steps, graph, where)
    first, last = _ends(all_steps)
    is_exhaustive = len(compared_steps) == len(all_steps)
    return Certificate(
        schedule.name,
        engine if isinstance(engine, str) else getattr(engine, "__name__", repr(engine)),
        _DTYPES[outputs.dtype],
        first,
        last,
        len(all_steps),
        float(np.abs(high).max()),
        measure(compared_steps, outputs, high, low, _DTYPES[outputs.dtype], values.at_step),
        None if is_exhaustive else bound_error(graph, first, last, values.starts),
        first_open_decision(graph, last),
    )


def _steps(schedule: Schedule, steps: Any, where: str) -> Any:
    if steps is None:
        steps = range(int(schedule.length) + 1 if schedule.length is not None else 10**6)
    if isinstance(steps, bool | int | float | str) or not hasattr(steps, "__len__"):
        raise VerificationError(
            f"steps must be a range or a list of steps, got {describe(steps)}",
            where=where,
            hint="give range(1000), such as for the first thousand",
        )
    if not len(steps):
        raise VerificationError(f"steps must not be empty, got {steps!r}", where=where)
    for step in _ends(steps):
        if not 0 <= step <= STEP_MAX:
            raise VerificationError(f"steps must be in 0..2**53, got {step}", where=where)
    return steps if isinstance(steps, range) else np.unique(np.asarray(steps, np.int64))


def _ends(steps: Any) -> tuple[int, int]:
    """The first and the last step; a range is not walked."""
    ends = (steps[0], steps[-1]) if isinstance(steps, range) else (min(steps), max(steps))
    return int(min(ends)), int(max(ends))


def _graph(schedule: Schedule, graph: Graph | None, where: str) -> Graph:
    if graph is None:
        return compile_schedule(schedule, ANY_STEPS)
    step = graph.inputs[0].type if graph.inputs else None
    if len(graph.inputs) != 1 or graph.inputs[0].attribute("role") is not Role.STEP:
        names = [node.attribute("name") for node in graph.inputs]
        raise VerificationError(f"the step must be the one input, got {names}", where=where)
    if step is not None and not (step.rank == 1 and isinstance(step.shape[0], str)):
        raise VerificationError(
            f"the graph must take an array of steps, got {step}",
            where=where,
            hint='compile it with step_shape=("n",)',
        )
    return graph


def _engine(graph: Graph, engine: str | Engine) -> Engine:
    if callable(engine):
        return engine
    if engine == "evaluate":
        return lambda steps: evaluate(graph, {"step": steps})["value"]
    if engine != "onnxruntime":
        raise VerificationError(
            f"the engine must be evaluate, onnxruntime or a function, got {engine!r}"
        )
    return _onnxruntime(graph)


def _onnxruntime(graph: Graph) -> Engine:
    import onnxruntime

    from closedform.exporters.onnx_model import serialize, to_model

    session = onnxruntime.InferenceSession(
        serialize(to_model(graph)), providers=["CPUExecutionProvider"]
    )
    return lambda steps: session.run(None, {"step": steps})[0]


def _run(run: Engine, steps: NDArray[np.int64], graph: Graph, where: str) -> NDArray[Any]:
    dtype = graph.inputs[0].type.dtype.numpy
    chunks = [
        np.asarray(run(steps[start : start + LIMITS.certificate_chunk].astype(dtype)))
        for start in range(0, len(steps), LIMITS.certificate_chunk)
    ]
    outputs = np.concatenate(chunks)
    if outputs.dtype not in _DTYPES or outputs.shape != steps.shape:
        raise VerificationError(
            f"the engine must return float32 or float64 of shape {steps.shape}, "
            f"got {outputs.dtype} of shape {outputs.shape}",
            where=where,
        )
    return outputs


def _steps_to_compare(steps: Any, starts: Sequence[int]) -> NDArray[np.int64]:
    """The steps that are compared: all, or ends, milestones, powers of two and random ones."""
    if not isinstance(steps, range):
        return np.asarray(steps)
    if len(steps) <= LIMITS.exhaustive_steps:
        return np.array(steps, np.int64)
    # A fixed seed: a certificate is a function of the schedule and the engine.
    rng = np.random.default_rng(0)
    count = len(steps)
    marks = [*starts, *(2**power for power in range(54))]
    near = {step + offset for step in marks for offset in range(-3, 4)}
    places = [
        np.arange(LIMITS.end_steps),
        np.arange(count - LIMITS.end_steps, count),
        rng.integers(0, count, LIMITS.random_steps),
        # Also uniform in the logarithm: most of what happens is early.
        np.exp(rng.uniform(0, np.log(count), LIMITS.random_steps // 5)).astype(np.int64),
        np.array([steps.index(step) for step in sorted(near) if step in steps], np.int64),
    ]
    places_in_order = np.unique(np.minimum(np.concatenate(places), count - 1))
    return np.sort(np.array([steps[int(place)] for place in places_in_order], np.int64))
