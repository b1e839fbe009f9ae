"""Translation validation: the graph that is exported is its source.

The graph is lifted (``lift``), its float constants become exact numbers (``constants``), and what
comes out is compared with the source at every step at which the graph may run: 0 to 2**50, or to
2**31 - 1 where the step has 32 bits. Both are divided into runs of steps on which no branch changes
(``pieces``), and compared run by run: as lines, as written, by the identity engine, by periods
(``identity``), and where that is not enough by the prover.

What PROVED says: read over the real numbers, with each float constant replaced by an exact number
that rounds to it, the graph has the value of its source at every step at which the source has one.
It does not say how far rounding goes; that is measured by the certificate of numerics.

Of an update rule it says that at every step, for all numbers in the tensors for which rule and
graph both have a value, each output has the value of the rule. A sum over a tensor and a product of
matrices are functions of what is under them: equal where that is.

What REFUTED says: at the point that it names the two differ, whatever numbers that round to the
constants of the graph are put in their places; of a graph that computes in pairs of float32, that
its value as computed is further off than rounding can bring it. Anything else is UNKNOWN.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
from flint import arb, ctx, fmpq

from closedform.errors import VerificationError
from closedform.ir import DType, Graph, Op, Role, evaluate
from closedform.language import Schedule, UpdateRule, t
from closedform.lowering.domain import LAST_STEP
from closedform.verify import terms
from closedform.verify.constants import Constants, rounding_interval
from closedform.verify.exact import Undefined
from closedform.verify.exact import value as value_of
from closedform.verify.identity import Steps, are_equal, is_defined
from closedform.verify.lift import Constant, lift_graph
from closedform.verify.pieces import Line, Runs, Value, aligned, as_term, runs_of
from closedform.verify.sources import rule_terms, source_term
from closedform.verify.split_constants import with_split_constants
from closedform.verify.terms import Sign, Term
from closedform.verify.verdict import Status, Verdict

CLOCK = terms.term(t)
BUDGET = 5.0
"""Seconds for one validation, if nothing else is said."""

MEANING = (
    "read over the real numbers, with each float constant at most half a unit in its last place "
    "from an exact number, the graph has the value of its source at every step from 0 to {last}"
)

MEANING_OF_RULES = (
    "read over the real numbers, with each float constant at most half a unit in its last place "
    "from an exact number, each output has the value of its rule at every step from 0 to {last}, "
    "for all tensors for which both have one"
)
PAIRS = (
    "it computes in pairs of float32, whose second parts are the rounding errors of the first: "
    "read over the real numbers they say nothing, the certificate of numerics measures them"
)
_SPLITTER = 4097.0
# Of the largest value that is seen: far more than float32 rounds, far less than a fault changes.
_LARGEST_ERROR = 2.0**-18
_POINTS = 24
# The paths through more undecided branches than this are too many to be listed.
_MOST_BRANCHES = 24


@dataclass(frozen=True, slots=True)
class Pair:
    """An output of a graph and what it has to be.

    Attributes:
        name: The name of the output.
        source: What it has to be.
        lifted: What it is, with exact constants.
        stored: What it is, with a symbol for each float constant.
        balls: The numbers that round to each of these constants, by the name of its symbol.
    """

    name: str
    source: Term
    lifted: Term
    stored: Term
    balls: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run of steps on which two values were not shown to be equal, or not to be defined."""

    steps: Steps
    source: Value
    lifted: Value
    is_equal: bool


def validate(source: Schedule | UpdateRule, graph: Graph, *, budget: float = BUDGET) -> Verdict:
    """Returns whether a graph is its source, at every step at which it may run.

    Args:
        source: What the graph was made of.
        graph: The graph, as it will be exported.
        budget: The seconds that it may take.

    Example:
        >>> from closedform import compile, schedules
        >>> lr = schedules.cosine(3e-4, 3e-5, 1000)
        >>> validate(lr, compile(lr)).status
        <Status.PROVED: 'PROVED'>
        >>> validate(schedules.cosine(3e-4, 3e-5, 999), compile(lr)).status
        <Status.REFUTED: 'REFUTED'>
    """
    begun = time.monotonic()
    try:
        verdict = _validate(source, graph, begun + budget)
    except VerificationError as error:
        verdict = Verdict(Status.UNKNOWN, reason=str(error))
    except RecursionError:
        verdict = Verdict(Status.UNKNOWN, reason="the terms are nested too deeply")
    return verdict.after(time.monotonic() - begun)


def _validate(source: Schedule | UpdateRule, graph: Graph, deadline: float) -> Verdict:
    last = LAST_STEP[_step_dtype(graph)]
    tactics: dict[str, None] = {}
    open_runs: list[tuple[Pair, OpenRun]] = []
    is_paired = _computes_in_pairs(graph)
    is_rule = isinstance(source, UpdateRule)
    for pair in _pairs(source, graph, last):
        if is_paired:
            open_runs.append(
                (pair, OpenRun(Steps(CLOCK, 0, last), pair.source, pair.lifted, False))
            )
            continue
        runs = _compare(pair, Steps(CLOCK, 0, last), tactics, deadline, is_rule)
        open_runs += [(pair, run) for run in runs]
    for pair, run in open_runs:
        points = _points(pair, run.steps)
        found = _computed(graph, pair, points) if is_paired else _refutation(pair, points)
        if found is not None:
            return found
    if is_paired:
        return Verdict(Status.UNKNOWN, reason=PAIRS)
    for pair, run in open_runs:
        verdict = _prove(pair, run, deadline, is_rule)
        if not verdict.proved:
            return verdict
        tactics.update(dict.fromkeys(verdict.tactics))
    meaning = MEANING_OF_RULES if is_rule else MEANING
    return Verdict(Status.PROVED, tuple(tactics), reason=meaning.format(last=last))


def _computes_in_pairs(graph: Graph) -> bool:
    """Whether Dekker's splitter of float32 is among the constants: sums and products in pairs."""
    return any(
        node.op is Op.CONST and node.type.dtype is DType.F32 and node.array().tolist() == _SPLITTER
        for node in graph.nodes
    )


def _step_dtype(graph: Graph) -> DType:
    steps = [node for node in graph.inputs if node.attribute("role") == Role.STEP]
    return steps[0].type.dtype if steps else DType.I64


def _pairs(source: Schedule | UpdateRule, graph: Graph, last: int) -> list[Pair]:
    """The outputs of a graph; those that differ in the name of their parameter alone once."""
    inputs = {
        node.attribute("name") for node in graph.inputs if node.attribute("role") == Role.HYPER
    }
    if isinstance(source, Schedule):
        wanted = [(output.name, "", source_term(source, inputs)) for output in graph.outputs]
        exact = [terms.term(source.bound)]
    else:
        wanted, exact = list(rule_terms(source, graph)), []
    roots = [root for _, _, root in wanted]
    symbols = {name: node for name, node in terms.symbols(*roots).items() if name in inputs}
    runs = [run for root in dict.fromkeys(roots) for run in runs_of(root, CLOCK, 0, last)]
    on_runs = (run.value for run in runs if isinstance(run.value, Term))
    looked_at = dict.fromkeys((*roots, *exact, *on_runs))
    constants = Constants(looked_at, _ends_of_lines(runs))
    read = with_split_constants(constants, graph)
    lifted = lift_graph(graph, constant=read, symbols=symbols, last=last)
    balls: dict[str, Any] = {}
    ball_symbol = _ball_symbol(balls, constants)
    stored = lift_graph(graph, constant=ball_symbol, symbols=symbols, last=last)
    found: dict[tuple[Term, Term], Pair] = {}
    for name, param, root in wanted:
        sides = root, lifted[name]
        found.setdefault(
            tuple(_without_name(side, param) for side in sides),  # type: ignore[arg-type]
            Pair(name, *sides, stored[name], balls),
        )
    return list(found.values())


def _without_name(side: Term, param: str) -> Term:
    """A term with the symbols of one parameter, and of it alone, under names without it."""
    own = {
        node: terms.symbol(name.replace(f".{param}", ".", 1))
        for name, node in terms.symbols(side).items()
        if param and f"{name}.".find(f".{param}.") > 0
    }
    return terms.substitute(side, own)


def _ends_of_lines(runs: Runs) -> Iterator[fmpq]:
    """Slopes of lines and their values at both ends and nearest to 0: constants of their graph."""
    for run in runs:
        if isinstance(run.value, Line):
            slope, height = run.value.slope, run.value.height
            zero = -height / slope if slope != 0 else fmpq(0)
            nearest = (int(zero.floor()), int(zero.ceil()))
            yield slope
            yield from (run.value.at(step) for step in (run.first, run.last, *nearest))


def _ball_symbol(balls: dict[str, Any], exact: Constant) -> Constant:
    """Names each float constant by a symbol, and notes the numbers that round to it.

    A whole number stands for itself, if the source has no other number that rounds to it.
    """

    def constant(number: float, dtype: DType) -> Term:
        found = exact(number, dtype)
        if terms.is_rational(found) and found.value.q == 1 and found.value == terms.exact(number):
            return found
        name = f"constant {number!r} of {dtype}"
        if name not in balls:
            low, high = rounding_interval(number, dtype)
            with ctx.workprec(128):
                balls[name] = arb(low).union(arb(high))
        return terms.symbol(name)

    return constant


def _compare(
    pair: Pair, steps: Steps, tactics: dict[str, None], deadline: float, is_rule: bool
) -> Iterator[OpenRun]:
    """Yields the runs that stay open; notes what showed the others."""
    both = [
        runs_of(side, steps.clock, steps.first, steps.last) for side in (pair.source, pair.lifted)
    ]
    for first, last, (wanted, lifted) in aligned(*both):
        run = Steps(steps.clock, first, last)
        is_late = time.monotonic() > deadline
        way = None if is_late else are_equal(wanted, lifted, run)
        if way is None or not (is_rule or is_defined(lifted, run)):
            yield OpenRun(run, wanted, lifted, way is not None)
        if way is not None:
            tactics[way] = None


# --- what is open is refuted at a point, or proved by the prover ----------------------------------


def _refutation(pair: Pair, points: Iterable[Mapping[str, fmpq]]) -> Verdict | None:
    """A point at which no numbers that round to the constants make the graph its source."""
    for point in points:
        wanted = value_of(pair.source, point)
        found = value_of(pair.stored, {**point, **pair.balls})
        if isinstance(wanted, Undefined) or not _differ(wanted, found):
            continue
        return _refuted(pair, point, _text(found), wanted)
    return None


def _computed(graph: Graph, pair: Pair, points: Iterable[Mapping[str, fmpq]]) -> Verdict | None:
    """A step at which the value of a graph is further off than rounding to float32 can bring it."""
    found = []
    for point in points:
        wanted = value_of(pair.source, point)
        if not isinstance(wanted, Undefined) and set(point) == {CLOCK.value.name}:
            step = int(point[CLOCK.value.name].p)
            found.append((point, wanted, float(evaluate(graph, {"step": step})[pair.name])))
    scale = max((abs(float(arb(wanted))) for _, wanted, _ in found), default=0.0)
    for point, wanted, computed in found:
        if not abs(computed - float(arb(wanted))) <= scale * _LARGEST_ERROR:
            return _refuted(pair, point, f"computed as {computed}", wanted)
    return None


def _refuted(
    pair: Pair, point: Mapping[str, fmpq], found: str, wanted: fmpq | arb | Undefined
) -> Verdict:
    shown = {name: sp.Rational(int(value.p), int(value.q)) for name, value in point.items()}
    reason = f"{pair.name} is {found}, and its source {_text(wanted)}"
    return Verdict(Status.REFUTED, ("points",), shown, reason)


def _differ(wanted: fmpq | arb, found: fmpq | arb | Undefined) -> bool:
    if isinstance(found, Undefined):
        return True
    return not arb(wanted).overlaps(arb(found))


def _text(value: fmpq | arb | Undefined) -> str:
    if isinstance(value, Undefined):
        return f"undefined ({value.reason})"
    return arb(value).str(12, radius=False) if isinstance(value, arb) else str(value)


def _points(pair: Pair, steps: Steps) -> Iterator[dict[str, fmpq]]:
    """The ends of the run and what is beside them first, then steps between, near and far."""
    draw = random.Random(f"{steps.first}..{steps.last}")
    width = steps.last - steps.first
    near = [*range(min(width, 6) + 1), *(width - back for back in range(min(width, 3) + 1))]
    spread = [width * part // 16 for part in range(17)]
    doubling = [2**power for power in range(width.bit_length()) if 2**power <= width]
    drawn = [draw.randint(0, width) for _ in range(_POINTS)]
    others = {**terms.symbols(pair.source), **terms.symbols(pair.lifted)}
    others.pop(steps.clock.value.name, None)
    for offset in dict.fromkeys((*near, *spread, *doubling, *drawn)):
        values = {name: _drawn(node, draw) for name, node in others.items()}
        yield {**values, steps.clock.value.name: fmpq(steps.first + offset)}


def _drawn(symbol: Term, draw: random.Random) -> fmpq:
    """A number that the declaration of a symbol admits."""
    size = fmpq(draw.choice((1, 2, 3, 7, 10, 100, 1000)))
    if not symbol.value.integer:
        size /= draw.choice((1, 2, 5, 100, 1000))
    if symbol.value.sign in (Sign.NEGATIVE, Sign.NONPOSITIVE):
        return -size
    return -size if symbol.value.sign is Sign.ANY and draw.random() < 0.4 else size


def _prove(pair: Pair, run: OpenRun, deadline: float, is_rule: bool) -> Verdict:
    # Few graphs come here, and the solvers behind the prover take longer to load than to validate.
    from closedform.verify.definedness import obligations
    from closedform.verify.prover import prove

    clock, steps = run.steps.clock, run.steps
    wanted, lifted = (as_term(value, clock) for value in (run.source, run.lifted))
    taken = (
        terms.less_equal(terms.rational(steps.first), clock),
        terms.less_equal(clock, terms.rational(steps.last)),
    )

    def goals() -> Iterator[Term]:
        if not run.is_equal:
            yield terms.equal(wanted, lifted)
        if not is_rule:
            yield from (obligation.claim for obligation in obligations(lifted))

    if sum(node.op is terms.Op.ITE for node in terms.walk(lifted)) > _MOST_BRANCHES:
        return _unknown(pair, steps, None)
    tactics: dict[str, None] = {}
    for goal in goals():
        left = deadline - time.monotonic()
        verdict = prove(goal, assume=taken, budget=left) if left > 0 else None
        if verdict is None or not verdict.proved:
            refuted = _refutation(pair, _exact_point(verdict))
            return _unknown(pair, steps, verdict) if refuted is None else refuted
        tactics.update(dict.fromkeys(verdict.tactics))
    return Verdict(Status.PROVED, tuple(tactics))


def _exact_point(verdict: Verdict | None) -> list[dict[str, fmpq]]:
    """Where the prover refutes: with the numbers that were found; what others do is to be seen."""
    if verdict is None or verdict.counterexample is None:
        return []
    return [{name: terms.exact(value) for name, value in verdict.counterexample.items()}]


def _unknown(pair: Pair, steps: Steps, verdict: Verdict | None) -> Verdict:
    said = "it is too large for the budget" if verdict is None else f"the prover says {verdict}"
    return Verdict(
        Status.UNKNOWN,
        reason=f"{pair.name} at the steps from {steps.first} to {steps.last}: {said}",
    )
