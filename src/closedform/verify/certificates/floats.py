"""Verdicts on floats: no value of a graph overflows or is NaN on engines that follow IEEE 754.

Translation validation is about the formula, over the real numbers. These verdicts are about the
graph as engines run it: every operation is rounded, ``exp`` and its like are off by as much as the
op table allows (``ir/ops.py``), and subnormal numbers may be flushed to zero.
``ir/analysis/obligations.py`` says what has to hold; this module asks it of schedules for all
steps, and of rules for all inputs in stated ranges.

Step 0 of a rule starts from its first states; those of all other steps have the ranges that the
rule itself keeps: from the states after step 0 on, ranges are widened until one step leads from
them into them. Where none is found, a range is assumed, and the verdict says so. Obligations that
intervals leave open are analysed by cases of the conditions (``ir/analysis/cases.py``), then tried
in runs (``rule_runs.py``), which refute them where a state becomes NaN or infinite.

A file that equals a rule over the real numbers may still differ from it where one of its values
overflows and a later operation hides that: ``min(1e60 * x * 1e-60, 5)`` in float32 is 5 for any x
above 0. ``faults_of_file`` finds such values, in the ranges that the rule keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sympy as sp

from closedform.effort import Effort, Watch
from closedform.ir import naming
from closedform.ir.analysis.cases import bound_by_cases, faults_by_cases
from closedform.ir.analysis.interval import Interval, full, hull
from closedform.ir.analysis.obligations import Fault, ObligationKind, faults
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.step_check import Answer, StepCheck, check_steps
from closedform.ir.graph import Graph, Node, Role
from closedform.ir.ops import OPS
from closedform.ir.program import Program, SumStage, split
from closedform.ir.types import LAST_STEP, DType
from closedform.verify.certificates.rule_runs import RunFailure, find_failure
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status, Verdict

SIZE = 2.0**24
"""The size of parameters, gradients and other inputs for which rules are proved."""

STATE_SIZE = 2.0**64
"""The size that is assumed of states for which no range is found that the rule keeps."""

TACTIC = "intervals of floats"

MEANING = (
    "in floats, on engines that round as IEEE 754 says and are off in other functions by at most "
    "the listed ulp, no value that an output needs overflows or is NaN at any step from {first} to "
    "{last}{inputs}"
)

# Powers of two to which ranges of states are widened; a few sizes, so that the search for an
# invariant ends.
_EXPONENTS = (0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96)


_NOT_FINITE = frozenset({ObligationKind.OVERFLOW, ObligationKind.NAN, ObligationKind.CONVERSION})


@dataclass(frozen=True, slots=True)
class FloatVerdict:
    """A verdict on the floats of a graph.

    Attributes:
        verdict: PROVED where every value that an output needs is a finite number; REFUTED at a
            step at which the evaluator of the graph language confirms that one is not.
        first: The first step.
        last: The last step.
        check: The check of the steps, for the graph of a schedule without other inputs.
        ranges: The ranges of the inputs other than the step, by name.
        invariant: The inputs whose range every step maps into itself: states.
    """

    verdict: Verdict
    first: int
    last: int
    check: StepCheck | None = None
    ranges: Mapping[str, Interval] = field(default_factory=dict)
    invariant: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """The proved statement, or the part that failed or is open."""
        if not self.verdict.proved:
            return self.verdict.reason
        inputs = ", for all inputs in the listed ranges" if self.ranges else ""
        inputs += ", at step 0 with the first states" if self.invariant else ""
        return MEANING.format(first=self.first, last=self.last, inputs=inputs)

    def as_data(self) -> dict[str, Any]:
        """Returns it as data for JSON, without times."""
        verdict = self.verdict
        data: dict[str, Any] = {
            "status": str(verdict.status),
            "reason": self.reason,
            "steps": [self.first, self.last],
            "ulp": ulp_table(),
        }
        if verdict.counterexample is not None:
            data["counterexample"] = {name: str(n) for name, n in verdict.counterexample.items()}
        if self.ranges:
            data["ranges"] = {
                name: {
                    "low": float(interval.low),
                    "high": float(interval.high),
                    "is": "an invariant of the step" if name in self.invariant else "assumed",
                }
                for name, interval in sorted(self.ranges.items())
            }
        return data


def ulp_table() -> dict[str, float]:
    """Returns how far engines may be off by op, in units in the last place; others are rounded."""
    return {str(op): row.ulp for op, row in OPS.items() if row.ulp}


def schedule_floats(
    graph: Graph, *, last: int | None = None, effort: Effort | None = None
) -> FloatVerdict:
    """Returns whether the graph of a schedule is finite at every step, in floats.

    Args:
        graph: The graph; inputs other than the step are assumed to be of size ``SIZE`` at most.
        last: The last step at which it is used; the last one at which it may run if not given.
        effort: The work that it may do; that of the floats of one graph if None.

    Example:
        >>> from closedform import Schedule, compile, t
        >>> import sympy as sp
        >>> schedule_floats(compile(Schedule(1 / (1 + sp.exp(t))))).verdict.status
        <Status.PROVED: 'PROVED'>
        >>> found = schedule_floats(compile(Schedule(2**t)))
        >>> found.verdict.status, found.verdict.counterexample
        (<Status.REFUTED: 'REFUTED'>, {'t': 1024})
    """
    watch = Watch()
    steps = [node for node in graph.inputs if node.attribute("role") is Role.STEP]
    end = LAST_STEP[steps[0].type.dtype] if steps else 0
    end = end if last is None else min(last, end)
    inputs = [node for node in graph.inputs if node.attribute("role") is not Role.STEP]
    if inputs or not steps:
        ranges = {str(node.attribute("name")): _size_of(node.type.dtype, SIZE) for node in inputs}
        # An engine may flush a subnormal divisor to 0.
        open_ = faults(graph, Ranges(graph.nodes, end, input_ranges=ranges, flushes=True))
        proof = Verdict(Status.PROVED, (TACTIC,))
        verdict = _by_intervals(graph, open_[0]) if open_ else proof
        return FloatVerdict(verdict.after(watch.seconds), 0, end, ranges=ranges)
    allowance = Effort.of(LIMITS.float_work) if effort is None else effort
    check = check_steps(graph, 0, end, segments=LIMITS.float_segments, effort=allowance)
    verdict = _of_check(graph, check)
    return FloatVerdict(verdict.after(watch.seconds), 0, end, check)


def faults_of_schedule_file(graph: Graph, last: int) -> tuple[Fault, ...]:
    """Returns the values of the file of a schedule that may overflow or be NaN at a step.

    An infinity in the place of a large number counts as a fault, too, as in ``faults_of_file``.

    Args:
        graph: The file; inputs other than the step are assumed to be of size ``SIZE`` at most.
        last: The last step.
    """
    inputs = [node for node in graph.inputs if node.attribute("role") is not Role.STEP]
    ranges = {str(node.attribute("name")): _size_of(node.type.dtype, SIZE) for node in inputs}

    def find(first: int, end: int) -> list[Fault]:
        table = Ranges(graph.nodes, end, step_min=first, input_ranges=ranges, flushes=True)
        open_ = faults(graph, table, all_finite=True)
        return [fault for fault in open_ if fault.kind in _NOT_FINITE]

    if not find(0, last):
        return ()
    # Powers and exponentials of all steps at once are in too wide intervals.
    starts = [0, *(2**power for power in range(last.bit_length()))]
    ends = [*(start - 1 for start in starts[1:]), last]
    spans = zip(starts, ends, strict=True)
    return tuple(fault for first, end in spans for fault in find(first, end))


def _size_of(dtype: DType, size: float) -> Interval:
    unknown = full(dtype)
    if not dtype.is_float:
        return unknown if dtype is DType.BOOL else Interval(-(2**24), 2**24)
    # The largest float16 is 65504.
    size = min(size, 2.0**15) if dtype is DType.F16 else size
    return Interval(-size, size)


def _by_intervals(graph: Graph, fault: Fault) -> Verdict:
    return Verdict(
        Status.UNKNOWN, reason=f"{describe_fault(graph, fault)}, as far as intervals say"
    )


def _of_run(failure: RunFailure) -> Verdict:
    engines = " on engines that flush subnormal numbers to zero" if failure.flushes else ""
    return Verdict(
        Status.REFUTED,
        ("evaluation",),
        counterexample={"t": sp.Integer(failure.step)},
        reason=(
            f"{failure.output} is {failure.value}{engines}, from parameters of 0 with "
            f"{failure.inputs}"
        ),
    )


def describe_fault(graph: Graph, fault: Fault) -> str:
    """Returns in words how an obligation fails."""
    return f"{graph.nodes[fault.index].op} {fault.kind}"


def _of_check(graph: Graph, check: StepCheck) -> Verdict:
    if check.answer is Answer.MET:
        return Verdict(Status.PROVED, (TACTIC,))
    place = "" if check.fault is None else f"{describe_fault(graph, check.fault)}"
    if check.answer is Answer.OPEN:
        reason = f"from t = {check.step} on it is not decided: {place}, as far as intervals say"
        return Verdict(Status.UNKNOWN, reason=reason)
    value = "" if check.value is None else f"the value is {check.value}: "
    order = "the first step at which it happens" if check.is_first else "possibly not the first"
    return Verdict(
        Status.REFUTED,
        (TACTIC, "evaluation"),
        counterexample={"t": sp.Integer(check.step or 0)},
        reason=f"{value}{place}, {order}",
    )


# --- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """Parameters of one rule and shape, and the graphs of the first of them."""

    params: tuple[str, ...]
    parts: tuple[Graph | None, ...]

    @property
    def count(self) -> int:
        return len(self.params)

    @property
    def inputs(self) -> Iterator[Node]:
        """The inputs of the graphs, but the step."""
        for part in self.parts:
            for node in () if part is None else part.inputs:
                if node.attribute("role") is not Role.STEP:
                    yield node


def rule_floats(
    program: Program,
    init: Graph,
    *,
    evaluation: Graph | None = None,
    effort: Effort | None = None,
) -> FloatVerdict:
    """Returns whether one step of a rule is finite, in floats, for all inputs in stated ranges.

    Args:
        program: The step.
        init: The first states, of all parameters or of one of each kind.
        evaluation: The point of evaluation, if it is another one than the parameters.
        effort: The work that it may do; that of the floats of one graph if None.
    """
    watch = Watch()
    allowance = Effort.of(LIMITS.float_work) if effort is None else effort
    kinds = _kinds(program)
    # Half of the work is for the run that refutes, where there is one.
    states = _Invariants(program, kinds, init, allowance.portion(allowance.left / 2))
    graphs = [part for kind in kinds for part in kind.parts if part is not None]
    graphs += [] if evaluation is None else [evaluation]
    open_ = states.find(graphs)
    ranges = states.ranges
    verdict = Verdict(Status.PROVED, (TACTIC,))
    if open_:
        failure = find_failure(program, init, SIZE, allowance) if allowance.left else None
        verdict = _by_intervals(*open_[0]) if failure is None else _of_run(failure)
    invariant = frozenset(states.invariant)
    return FloatVerdict(
        verdict.after(watch.seconds), 0, states.last, ranges=ranges, invariant=invariant
    )


def faults_of_file(
    graph: Graph, program: Program, init: Graph, *, effort: Effort | None = None
) -> tuple[Fault, ...]:
    """Returns the values of a file that may overflow or be NaN in the ranges that its rule keeps.

    An infinity in the place of a large number counts as a fault, too: the operations of a file that
    follow may turn it into any number.

    Args:
        graph: The file, with the names of inputs that the rule has.
        program: The compiled step, which keeps the ranges of the states.
        init: The compiled first states.
        effort: The work that it may do; that of the floats of one graph if None.
    """
    allowance = Effort.of(LIMITS.float_work) if effort is None else effort
    states = _Invariants(program, _kinds(program), init, allowance)
    open_ = states.find([graph], all_finite=True)
    return tuple(fault for _, fault in open_ if fault.kind in _NOT_FINITE)


def _kinds(program: Program) -> list[_Kind]:
    """The parameters of a program by what is computed of them."""
    names_of_calls: dict[tuple[tuple[int, int], ...], list[str]] = {}
    parts: list[SumStage | Program] = [*program.stages, program]
    for call in program.calls:
        # Parameters with the same bodies in all stages need one check.
        key = tuple(
            (place, call_of_part.body)
            for place, part in enumerate(parts)
            for call_of_part in part.calls
            if call_of_part.param == call.param
        )
        names_of_calls.setdefault(key, []).append(call.param)
    return [
        _Kind(tuple(params), split(program, params[0], params[0]))
        for params in names_of_calls.values()
    ]


@dataclass(slots=True)
class _Span:
    """Steps, and the ranges of the inputs before each of them.

    Attributes:
        first: The first step.
        last: The last step.
        given: The ranges of all inputs but the step and the sums over parameters.
        totals: The ranges of these sums.
    """

    first: int
    last: int
    given: dict[str, Interval]
    totals: dict[str, Interval] = field(default_factory=dict)

    def table(self, graph: Graph, other_names: Mapping[str, str] | None = None) -> Ranges:
        """Returns the intervals of a graph; ``other_names`` have the range of another input."""
        names = {} if other_names is None else other_names
        all_ranges = {alias: self.given[name] for alias, name in names.items()}
        all_ranges |= {**self.given, **self.totals}
        # A file may count its steps in a narrower dtype than the compiled rule.
        steps = [n.type.dtype for n in graph.inputs if n.attribute("role") is Role.STEP]
        last = min([self.last, *(int(full(dtype).high) - 1 for dtype in steps)])
        return Ranges(graph.nodes, last, step_min=self.first, input_ranges=all_ranges, flushes=True)


@dataclass(slots=True)
class _Invariants:
    """Ranges of the states of a rule that every step keeps.

    The first step starts from the first states, all others from states in the ranges that the
    first step leads into and the others keep.

    Attributes:
        program: The step.
        kinds: Its parameters.
        init: The first states.
        effort: The work after which no wider range is looked for.
        begin: The first step.
        rest: All others.
        invariant: The states whose range is invariant.
        in_cases: Whether states are bounded in cases where they leave their range.
    """

    program: Program
    kinds: Sequence[_Kind]
    init: Graph
    effort: Effort
    begin: _Span = field(init=False)
    rest: _Span = field(init=False)
    invariant: set[str] = field(default_factory=set)
    in_cases: bool = False

    @property
    def last(self) -> int:
        """The last step at which the rule may run; there is one after it."""
        steps = [n for n in self.program.scalars.inputs if n.attribute("role") is Role.STEP]
        dtype = steps[0].type.dtype if steps else DType.I64
        return min(LAST_STEP[dtype], int(full(dtype).high) - 1)

    @property
    def ranges(self) -> dict[str, Interval]:
        """The ranges of all inputs but the step and the sums over parameters, at any step."""
        return {
            name: hull([self.begin.given[name], interval])
            for name, interval in self.rest.given.items()
        }

    def find(
        self, graphs: Sequence[Graph], *, all_finite: bool = False
    ) -> list[tuple[Graph, Fault]]:
        """Widens the ranges of the states until a step keeps them; in cases, if that is needed.

        Args:
            graphs: Graphs of the inputs of any parameter.
            all_finite: Whether no infinity may stand in for a large number.

        Returns:
            The obligations of the graphs that are open at the first step or at another one.
        """
        by_cases = partial(faults_by_cases, all_finite=all_finite)
        self._find()
        open_ = self._open(graphs, partial(faults, all_finite=all_finite))
        if open_:
            # Cases cost far more than intervals: only for what these leave open.
            open_ = self._open(graphs, by_cases)
        if open_:
            self.in_cases = True
            self._find()
            open_ = self._open(graphs, by_cases)
        return open_

    def _open(
        self, graphs: Sequence[Graph], look: Callable[[Graph, Ranges], tuple[Fault, ...]]
    ) -> list[tuple[Graph, Fault]]:
        # All parameters of a kind have the ranges of the first one.
        other_names = {
            _name_of(name, kind.params[0], param): name
            for kind in self.kinds
            for name in {str(node.attribute("name")) for node in kind.inputs}
            for param in kind.params[1:]
            if name in self.rest.given
        }
        return [
            (graph, fault)
            for graph in graphs
            for span in (self.begin, self.rest)
            for fault in look(graph, span.table(graph, other_names))
        ]

    def _find(self) -> None:
        dtypes = {
            str(node.attribute("name")): node.type.dtype
            for kind in self.kinds
            for node in kind.inputs
        }
        names = [name for name in dtypes if not name.startswith(naming.TOTAL)]
        ranges = {name: _size_of(dtypes[name], SIZE) for name in names}
        first = self._outputs(self.init, _Span(0, 0, ranges))
        states = [name for name in names if name.startswith((naming.STATE, naming.SHARED))]
        self.begin = _Span(0, 0, ranges | {name: first.get(name, ranges[name]) for name in states})
        self.invariant = set(states)
        after = self._step(self.begin)
        self.rest = _Span(1, self.last, dict(ranges))
        for name in states:
            self.rest.given[name] = self._range_after(name, dtypes[name], after[name])
        for count in range(LIMITS.invariant_rounds):
            following = self._step(self.rest)
            has_changed = False
            for name in states:
                now = self.rest.given[name]
                # Exact hulls in the first rounds, which often are invariant; powers of two then end
                # the search.
                wider = self._wider(name, dtypes[name], now, following[name], is_exact=count < 2)
                has_changed = has_changed or wider != now
                self.rest.given[name] = wider
            if not has_changed:
                return
            if not self.effort.left:
                break
        for name in states:
            self.rest.given[name] = _assume_range(self.rest.given[name], dtypes[name])
            self.invariant.discard(name)

    def _range_after(self, name: str, dtype: DType, after: Interval) -> Interval:
        """The range after the first step, if it is one of numbers; else an assumed one."""
        if not after.maybe_nan and not after.has_infinity:
            return after
        self.invariant.discard(name)
        return _assume_range(after, dtype)

    def _wider(
        self, name: str, dtype: DType, now: Interval, following: Interval, *, is_exact: bool
    ) -> Interval:
        """A range that holds both: their hull, or one of few ends that are tried in turn."""
        if now.low <= following.low and following.high <= now.high and not following.maybe_nan:
            return now
        if name not in self.invariant or following.maybe_nan:
            self.invariant.discard(name)
            return _assume_range(hull([now, following]), dtype)
        union = hull([now, following])
        if is_exact and not union.maybe_nan and not union.has_infinity:
            return union
        ends = [2.0**exponent for exponent in _EXPONENTS]
        low = next((end for end in (0.0, *(-end for end in ends)) if end <= union.low), None)
        high = next((end for end in (0.0, *ends) if end >= union.high), None)
        limit = _assume_range(union, dtype)
        if low is None or high is None or union.maybe_nan or not limit.contains(high):
            self.invariant.discard(name)
            return Interval(limit.low if low is None else low, limit.high if high is None else high)
        if dtype.is_float:
            return Interval(low, high)
        return Interval(int(low), int(high))

    def _step(self, span: _Span) -> dict[str, Interval]:
        """The ranges of the states after a step, by the names that they have before it."""
        span.totals = {}
        for place in range(len(self.program.stages)):
            sums: dict[str, list[Interval]] = {}
            for kind in self.kinds:
                part = kind.parts[place]
                for name, term in {} if part is None else self._outputs(part, span).items():
                    sums.setdefault(name, []).append(_times(term, kind.count))
            span.totals |= {name: _sum_ranges(terms) for name, terms in sums.items()}
        next_ranges: dict[str, Interval] = {}
        for kind in self.kinds:
            part = kind.parts[-1]
            if part is not None:
                next_ranges |= self._outputs(part, span)
        return {name.removeprefix(naming.NEXT): interval for name, interval in next_ranges.items()}

    def _outputs(self, graph: Graph, span: _Span) -> dict[str, Interval]:
        table = span.table(graph)
        ranges = {}
        for output in graph.outputs:
            if output.name.startswith(naming.SCALAR):
                continue
            interval = table.of(output.index)
            name = output.name.removeprefix(naming.NEXT)
            if (
                self.in_cases
                and name in self.invariant
                and not interval.is_within(span.given[name])
            ):
                interval = bound_by_cases(table, output.index)
            ranges[output.name] = interval
        return ranges


def _name_of(name: str, first: str, param: str) -> str:
    """The name of an input of the first parameter of a kind, of another parameter of it."""
    for prefix in (naming.PARAM, naming.GRAD, naming.STATE, naming.INPUT):
        own_name = f"{prefix}{first}"
        if name == own_name or name.startswith(f"{own_name}."):
            return f"{prefix}{param}{name.removeprefix(own_name)}"
    return name


def _assume_range(interval: Interval, dtype: DType) -> Interval:
    """The range that is assumed of a state without an invariant; of one sign, if it has one."""
    if not dtype.is_float:
        return Interval(max(interval.low, 0), 2**50)
    limit = _size_of(dtype, STATE_SIZE)
    return Interval(0.0 if interval.low >= 0 else limit.low, limit.high)


def _times(term: Interval, count: int) -> Interval:
    """The range of the sum of so many terms of one range, rounded."""
    # A sum of n float32 in any order is off by about n 2^-24 of its terms; sixteen times as much.
    slack = 1 + count * 2.0**-20
    low, high = term.low * count, term.high * count
    low = low * slack if low < 0 else low / slack
    high = high * slack if high > 0 else high / slack
    return Interval(low, high, term.maybe_nan)


def _sum_ranges(terms: Sequence[Interval]) -> Interval:
    low, high = sum(term.low for term in terms), sum(term.high for term in terms)
    return _times(Interval(low, high, any(term.maybe_nan for term in terms)), 1)
