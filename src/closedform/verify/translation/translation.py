"""Translation validation: the graph that is exported is its source.

The graph is read as terms (``from_graph``), with exact numbers for its float constants
(``constants``), and compared with the source at every step at which the graph may run: 0 to 2**50,
or to 2**31 - 1 where the step has 32 bits. Both are partitioned into segments on which no branch
changes (``partition``) and compared on each: as linear forms, as written, by normal forms and by
periods (``identity``), and where that is not enough by the prover.

PROVED: read over the real numbers, with each float constant replaced by an exact number
that rounds to it, the graph has the value of its source at every step at which the source has one.
The effect of rounding is measured by the certificate of numerics.

For an update rule: at every step, for all tensors for which the rule has a value, each output has
it; its counters are from 0 to the last step. That the graph has a value wherever its source has one
is proved by itself (``refinement``). A sum over a tensor and a matrix product are functions of
their operands: equal for equal operands.

REFUTED: at the point that it names the two differ, for all numbers that round to the constants of
the graph; for a graph that computes in pairs of float32, the computed value is further off than
rounding can explain. Anything else is UNKNOWN; of a schedule, with the range of steps from 0 for
which it is proved (``proved_range``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from flint import fmpq

from closedform.effort import Effort, OutOfEffort, Watch
from closedform.errors import ClosedFormError, VerificationError, shortened
from closedform.ir import DType, Graph, Node, Op, Role
from closedform.ir.analysis.interval import full
from closedform.ir.graph import with_outputs
from closedform.ir.types import LAST_STEP
from closedform.language import Schedule, UpdateRule
from closedform.verify.certificates.decisions import first_open_decision
from closedform.verify.identity.congruence import are_congruent, with_split_roots
from closedform.verify.identity.equality import StepRange, are_equal, is_defined
from closedform.verify.identity.normal import (
    has_trigonometry,
    normal,
    with_shared_cosines,
    without_special_angles,
)
from closedform.verify.prover import prove
from closedform.verify.terms import build, tree
from closedform.verify.terms.definedness import Obligation, obligations
from closedform.verify.terms.from_graph import Constant, terms_of_graph
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm
from closedform.verify.terms.partition import (
    Segments,
    SegmentValue,
    align_segments,
    as_term,
    partition,
)
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Term, walk
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.constants import Constants, with_split_constants
from closedform.verify.translation.proved_range import first_open_step
from closedform.verify.translation.refinement import settle, undefined_parts
from closedform.verify.translation.refutation import (
    CLOCK,
    FloatValues,
    Pair,
    computed_refutation,
    points_of,
    refutation,
    zeros_of,
)
from closedform.verify.translation.rule_reading import source_term
from closedform.verify.translation.rule_terms import Wanted, model_of

_READ = (
    "read over the real numbers, with each float constant at most half a unit in its last place "
    "from an exact number, "
)
MEANING = f"{_READ}the graph has the value of its source at every step from 0 to {{last}}"
MEANING_OF_RULES = (
    f"{_READ}each output has the value of its rule at every step from 0 to {{last}}, "
    f"for all tensors for which the rule has one and all counters up to {{last}}"
)
WHERE_BOTH = (
    "PROVED where both have a value; {name} of the graph is not shown to have one wherever its "
    "source has: {what}"
)
PAIRS = (
    "it computes in pairs of float32, whose second parts are the rounding errors of the first: "
    "read over the real numbers they say nothing, the certificate of numerics measures them"
)
DECISION = (
    "PROVED over the real numbers, and open in floats: it has a {decision}, where rounding may "
    "choose the other side of a threshold"
)
ONE_COMPARISON = "the terms of the graph are too large to be read or compared"
BY_PARTS = "parts of a run"
_SPLITTER = 4097.0


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run of steps on which two values were not shown to be equal, or not to be defined."""

    steps: StepRange
    source: SegmentValue
    computed: SegmentValue
    is_equal: bool


def validate(
    source: Schedule | UpdateRule, graph: Graph, *, effort: Effort | None = None
) -> Verdict:
    """Returns whether a graph is its source, at every step at which it may run.

    Args:
        source: The source of the graph.
        graph: The graph, as it will be exported.
        effort: The work that it may do; that of one validation if None.

    Example:
        >>> from closedform import compile, schedules
        >>> lr = schedules.cosine(3e-4, 3e-5, 1000)
        >>> validate(lr, compile(lr)).status
        <Status.PROVED: 'PROVED'>
        >>> validate(schedules.cosine(3e-4, 3e-5, 999), compile(lr)).status
        <Status.REFUTED: 'REFUTED'>
    """
    budget = Effort.of(LIMITS.validation_work) if effort is None else effort
    return time_verdict(lambda: _validate(source, graph, budget), budget)


def time_verdict(decide: Callable[[], Verdict], effort: Effort) -> Verdict:
    """Returns a verdict with its time; UNKNOWN where the terms cannot be made or computed with."""
    watch = Watch()
    try:
        with effort.enforce():
            verdict = decide()
    except (ClosedFormError, ArithmeticError) as error:
        verdict = Verdict(Status.UNKNOWN, reason=str(error))
    except OutOfEffort:
        verdict = Verdict(Status.UNKNOWN, reason=f"{effort.why()}; {ONE_COMPARISON}")
    except RecursionError:
        verdict = Verdict(Status.UNKNOWN, reason="the terms are nested too deeply")
    return verdict.after(watch.seconds)


def _validate(source: Schedule | UpdateRule, graph: Graph, effort: Effort) -> Verdict:
    if isinstance(source, UpdateRule):
        return validate_outputs(list(model_of(source, graph).outputs()), graph, effort)
    inputs = {
        node.attribute("name") for node in graph.inputs if node.attribute("role") == Role.HYPER
    }
    step = _step(graph)
    shape = () if step is None else step.type.shape
    for output in graph.outputs:
        output_shape = graph.nodes[output.index].type.shape
        if output_shape != shape:
            reason = f"{output.name} has the shape {list(output_shape)}, and the step {list(shape)}"
            return Verdict(Status.REFUTED, reason=reason)
    root = source_term(source, inputs)
    expected = [Wanted(output.name, "", root, None, is_counter=False) for output in graph.outputs]
    return _compare_outputs(
        expected, [term(source.bound)], graph, effort, last_used=source.last_step
    )


def validate_outputs(
    expected: Sequence[Wanted], graph: Graph, effort: Effort, *, until: int | None = None
) -> Verdict:
    """Returns whether the outputs of a graph of tensors are as specified.

    Args:
        expected: What they have to be; the graph has these outputs and no others.
        graph: The graph.
        effort: The work that it may do.
        until: The last step that is considered; None for all at which the graph may run.
    """
    shapes = {output.name: graph.nodes[output.index].type.shape for output in graph.outputs}
    for entry in expected:
        if entry.name not in shapes:
            return Verdict(Status.REFUTED, reason=f"the graph has no output {entry.name!r}")
        if entry.shape != shapes[entry.name]:
            is_, has = list(shapes[entry.name]), list(entry.shape or ())
            return Verdict(
                Status.REFUTED, reason=f"{entry.name} has the shape {is_}, and its source {has}"
            )
    more = shapes.keys() - {entry.name for entry in expected}
    if more:
        raise VerificationError(f"the output {min(more)!r} is none of the rule's")
    return _compare_outputs(expected, (), graph, effort, until)


def _compare_outputs(
    expected: Sequence[Wanted],
    exact: Sequence[Term],
    graph: Graph,
    effort: Effort,
    until: int | None = None,
    last_used: int | None = None,
) -> Verdict:
    """The verdict on all outputs; decisions of floats are proved up to the last step of use."""
    verdict = _compare_over_reals(expected, exact, graph, effort, until)
    if not verdict.proved:
        return verdict
    last = last_step(graph, any(output.shape is not None for output in expected))
    ends = [end for end in (until, last_used) if end is not None]
    decision = first_open_decision(graph, min([last, *ends]))
    if decision is None:
        return verdict
    return replace(
        verdict,
        status=Status.UNKNOWN,
        reason=DECISION.format(decision=decision),
        proved_until=decision.step or None,
    )


def _compare_over_reals(
    expected: Sequence[Wanted],
    exact: Sequence[Term],
    graph: Graph,
    effort: Effort,
    until: int | None = None,
) -> Verdict:
    is_rule = any(output.shape is not None for output in expected)
    wrong = _other_kind(expected, graph, is_rule)
    if wrong is not None:
        return Verdict(Status.REFUTED, reason=wrong)
    last = last_step(graph, is_rule)
    last = last if until is None else min(last, until)
    split_outputs = _outputs_of(graph, _is_splitter)
    lookup_outputs = split_outputs & _outputs_of(graph, lambda node: node.op is Op.LOOKUP)
    if is_rule:
        # Over the real numbers a table with polynomials between its entries differs from its
        # source, and no point of all tensors is looked at.
        expected = [output for output in expected if output.name not in lookup_outputs]
        graph = with_outputs(graph, {output.name for output in expected})
    pairs = _pairs(expected, exact, graph, last, effort.check)
    has_tables = is_rule and bool(lookup_outputs)
    verdict = _compare_pairs(pairs, graph, last, effort, is_rule, split_outputs, has_tables)
    if not verdict.unknown or verdict.reason == PAIRS or not effort.left:
        return verdict
    # A proof may choose any numbers that round to the constants.
    long_pairs = _pairs(expected, exact, graph, last, effort.check, longest=True)
    if [pair.computed for pair in long_pairs] == [pair.computed for pair in pairs]:
        return verdict
    again = _compare_pairs(long_pairs, graph, last, effort, is_rule, split_outputs, has_tables)
    return verdict if again.unknown else again


def _compare_pairs(
    pairs: Sequence[Pair],
    graph: Graph,
    last: int,
    effort: Effort,
    is_rule: bool,
    split_outputs: frozenset[str],
    has_tables: bool,
) -> Verdict:
    grounds: dict[str, None] = {}
    open_runs: list[tuple[Pair, OpenRun]] = []
    for pair in pairs:
        steps = StepRange(CLOCK, 0, last)
        # Pairs of float32 equal their source only up to rounding: over the reals the error terms
        # vanish and nothing is left to compare, so that only points of the graph as it is run
        # refute.
        if pair.name in split_outputs and not is_rule:
            open_runs.append((pair, OpenRun(steps, pair.source, pair.computed, False)))
        else:
            runs = _compare(pair, steps, grounds, effort, is_rule)
            open_runs += [(pair, run) for run in runs]
    for pair, run in open_runs:
        points = points_of(pair, run.steps)
        if pair.name not in split_outputs:
            outcome = refutation(pair, points, effort)
        else:
            outcome = None if is_rule else computed_refutation(graph, pair, points)
        if outcome is not None:
            return outcome
    if has_tables or any(pair.name in split_outputs for pair, _ in open_runs):
        return Verdict(Status.UNKNOWN, reason=PAIRS)
    for pair, run in open_runs:
        verdict = _prove(pair, run, effort, is_rule)
        if verdict.unknown and not is_rule:
            verdict = _in_part(verdict, run)
        if not verdict.proved:
            return verdict
        grounds.update(dict.fromkeys(verdict.grounds))
    if is_rule:
        for pair in pairs:
            partial = _check_refinement(pair, StepRange(CLOCK, 0, last), effort)
            if partial is not None:
                return partial
    meaning = MEANING_OF_RULES if is_rule else MEANING
    return Verdict(Status.PROVED, tuple(grounds), reason=meaning.format(last=last))


def _other_kind(expected: Sequence[Wanted], graph: Graph, is_rule: bool) -> str | None:
    """The value that is an integer in only the graph or only its source, or None."""
    types = {output.name: graph.nodes[output.index].type for output in graph.outputs}
    for entry in expected:
        is_integer = types[entry.name].dtype.is_integer
        if entry.is_counter is not None and is_integer is not entry.is_counter:
            kind = "an integer" if entry.is_counter else "a float"
            return f"{entry.name} is {types[entry.name]}, and its source {kind}"
    symbols = tree.symbols(*(entry.term for entry in expected))
    for node in graph.inputs:
        name, type_ = str(node.attribute("name")), node.type
        if name not in symbols:
            continue
        needs_integer = symbols[name].value.integer
        if type_.dtype.is_integer and not needs_integer:
            return f"the input {name!r} is {type_}, and its source takes any number"
        if is_rule and needs_integer and not type_.dtype.is_integer:
            return f"the input {name!r} is {type_}, and its source takes integers"
    return None


def last_step(graph: Graph, is_rule: bool) -> int:
    """Returns the last step at which a graph may run; a rule has a next one."""
    step = _step(graph)
    dtype = DType.I64 if step is None else step.type.dtype
    last = LAST_STEP[dtype]
    # t + 1 must not wrap.
    return last - 1 if is_rule and last == full(dtype).high else last


def _is_splitter(node: Node) -> bool:
    """Whether a node is Dekker's splitter of float32: then sums and products are in pairs."""
    is_single = node.op is Op.CONST and node.type.dtype is DType.F32
    return is_single and node.array().tolist() == _SPLITTER


def _outputs_of(graph: Graph, is_source: Callable[[Node], bool]) -> frozenset[str]:
    """The outputs that need a node of some kind."""
    needs: list[bool] = []
    for node in graph.nodes:
        needs.append(is_source(node) or any(needs[operand] for operand in node.operands))
    return frozenset(output.name for output in graph.outputs if needs[output.index])


def _step(graph: Graph) -> Node | None:
    return next((node for node in graph.inputs if node.attribute("role") == Role.STEP), None)


def _pairs(
    expected: Sequence[Wanted],
    exact: Sequence[Term],
    graph: Graph,
    last: int,
    check: Callable[[], None],
    *,
    longest: bool = False,
) -> list[Pair]:
    """The outputs of a graph; those that differ only in the name of their parameter once."""
    roots = [output.term for output in expected]
    inputs = {node.attribute("name") for node in graph.inputs if node != _step(graph)}
    symbols = {name: node for name, node in tree.symbols(*roots).items() if name in inputs}
    segments = {
        root: partition(root, CLOCK, 0, last + 1, check=check) for root in dict.fromkeys(roots)
    }
    all_segments = list(chain.from_iterable(segments.values()))
    curved = (segment.value for segment in all_segments if isinstance(segment.value, Term))
    on_segments = map(without_special_angles, curved)
    looked_at = dict.fromkeys((*roots, *exact, *on_segments, *_inverses(roots)))
    check()
    # A float of the graph is matched with the exact constants that its source may have produced:
    # those in it, at ends of its lines, and their inverses.
    ends = _ends_of_lines(all_segments)
    constants = Constants(looked_at, ends, longest=longest, check=check)

    def outputs(constant: Constant) -> Mapping[str, Term]:
        return terms_of_graph(graph, constant=constant, symbols=symbols, last=last)

    terms = terms_of_graph(
        graph,
        constant=with_split_constants(constants, graph),
        symbols=symbols,
        last=last,
        is_strict=True,
    )
    floats = FloatValues(constants, outputs, graph)
    has_several = len({output.param for output in expected if output.param}) > 1
    pairs: dict[tuple[Term, ...], Pair] = {}
    for output in expected:
        sides = output.term, terms[output.name]
        key = tuple(_without_name(side, output.param) for side in sides) if has_several else sides
        # Outputs with equal terms share a proof: fifty layers of one rule need one.
        pairs.setdefault(key, Pair(output.name, *sides, floats, segments[output.term]))
    return list(pairs.values())


def _inverses(roots: Sequence[Term]) -> Iterator[Term]:
    """The inverses of the constant factors of divisors, since a lowering multiplies with them."""
    for node in walk(*roots):
        if node.op is tree.Op.DIVIDE:
            below = node.args[1]
            factors = below.args if below.op is tree.Op.MULTIPLY else (below,)
            constant = [part for part in factors if part.args and not tree.symbols(part)]
            yield from (build.divide(build.ONE, part) for part in constant)


def _without_name(side: Term, param: str) -> Term:
    """A term with the symbols of only one parameter, under names without it."""
    substitutions = {
        node: build.symbol(name.replace(f".{param}", ".", 1))
        for name, node in tree.symbols(side).items()
        if param and f"{name}.".find(f".{param}.") > 0
    }
    return build.substitute(side, substitutions)


def _ends_of_lines(segments: Segments[int]) -> Iterator[fmpq]:
    """Slopes of lines and their values at both ends and nearest to 0: constants of their graph."""
    for segment in segments:
        form = segment.value
        if isinstance(form, LinearForm):
            slope = form.slope(CLOCK)
            zero = form.root(CLOCK) if slope != 0 else fmpq(0)
            steps = (segment.first, segment.end - 1, int(zero.floor()), int(zero.ceil()))
            yield slope
            yield from (form.at(CLOCK, step) for step in steps)


def _compare(
    pair: Pair, steps: StepRange, grounds: dict[str, None], effort: Effort, is_rule: bool
) -> Iterator[OpenRun]:
    """Yields the runs that stay open; records the evidence for the others."""
    computed_segments = partition(pair.computed, steps.clock, steps.first, steps.last + 1)
    for first, end, (expected, computed) in align_segments(pair.segments, computed_segments):
        run = StepRange(steps.clock, first, end - 1)
        way = None if not effort.left else _way(expected, computed, run, is_rule)
        # Equal where both are defined: of a schedule the graph must also have a value everywhere.
        if way is None or not (is_rule or is_defined(computed, run)):
            yield OpenRun(run, expected, computed, way is not None)
        if way is not None:
            grounds[way] = None


def _way(
    expected: SegmentValue, computed: SegmentValue, run: StepRange, is_rule: bool
) -> str | None:
    """The name of the cheapest way in which two values are shown to be equal."""
    if is_rule and not (isinstance(expected, LinearForm) and isinstance(computed, LinearForm)):
        first, second = as_term(expected, run.clock), as_term(computed, run.clock)
        if first == second:
            return "structure"
        if has_trigonometry(first, second):
            first, second = _with_cosines(first, second, run)
        if are_congruent(first, second, run.sign_of):
            return "congruence"
        split = tuple(with_split_roots(side, run.clock, run.sign_of) for side in (first, second))
        if split != (first, second) and are_congruent(split[0], split[1], run.sign_of):
            return "congruence"
    return are_equal(expected, computed, run)


def _with_cosines(first: Term, second: Term, run: StepRange) -> tuple[Term, Term]:
    """Two terms with cosines in their normal form or, where these differ, as symbols."""
    span = run.clock, run.first, run.last
    first, second = (normal(without_special_angles(side), *span) for side in (first, second))
    if are_congruent(first, second, is_by_form=True):
        return first, second
    middle = (run.first + run.last) // 2
    return with_shared_cosines(
        first, second, run.clock, middle, lambda a, b: are_equal(a, b, run) is not None
    )


def _prove(pair: Pair, run: OpenRun, effort: Effort, is_rule: bool) -> Verdict:
    clock, steps = run.steps.clock, run.steps
    expected, computed = (as_term(value, clock) for value in (run.source, run.computed))
    assumptions = (
        build.less_equal(build.rational(steps.first), clock),
        build.less_equal(clock, build.rational(steps.last)),
        # A rule is compared where it has a value.
        *(obligation.claim for obligation in (obligations(expected) if is_rule else ())),
    )

    def goals() -> Iterator[Term]:
        if not run.is_equal:
            yield build.equal(expected, computed)
        if not is_rule:
            yield from (obligation.claim for obligation in obligations(computed))

    # The prover splits into the branches of choices, which so many do not leave effort for.
    if sum(node.op is tree.Op.ITE for node in walk(computed)) > LIMITS.listed_branches:
        return _unknown(pair, steps, None, effort)
    grounds: dict[str, None] = {}
    for goal in goals():
        verdict = prove(goal, assume=assumptions, effort=effort) if effort.left else None
        if verdict is None or not verdict.proved:
            refutation_verdict = refutation(pair, _exact_point(verdict))
            return (
                _unknown(pair, steps, verdict, effort)
                if refutation_verdict is None
                else refutation_verdict
            )
        grounds.update(dict.fromkeys(verdict.grounds))
    return Verdict(Status.PROVED, tuple(grounds))


def _in_part(verdict: Verdict, run: OpenRun) -> Verdict:
    """The verdict with the range that is proved; PROVED where that is the whole run."""
    steps = run.steps
    step = first_open_step(run.source, run.computed, steps)
    if step > steps.last:
        return Verdict(Status.PROVED, (BY_PARTS,))
    return replace(verdict, proved_until=step or None)


def _check_refinement(pair: Pair, steps: StepRange, effort: Effort) -> Verdict | None:
    """The verdict on a graph that may have no value where its source has one; None if it has."""
    for part in _undefined_parts(pair, steps, effort):
        counterexample = refutation(
            pair, chain(zeros_of(pair, steps), points_of(pair, steps)), effort
        )
        text = shortened(part.text)
        unknown = Verdict(Status.UNKNOWN, reason=WHERE_BOTH.format(name=pair.name, what=text))
        return unknown if counterexample is None else counterexample
    return None


def _undefined_parts(pair: Pair, steps: StepRange, effort: Effort) -> list[Obligation]:
    """The operations that are not shown to be defined: at all steps, or segment by segment."""
    parts = list(undefined_parts(pair.source, pair.computed, steps, effort))
    if not parts:
        return []
    computed_segments = partition(pair.computed, steps.clock, steps.first, steps.last + 1)
    segments = list(align_segments(pair.segments, computed_segments))
    if not 1 < len(segments) <= _MOST_SEGMENTS:
        return parts
    for first, end, _ in segments:
        run = StepRange(steps.clock, first, end - 1)
        source, computed = settle(pair.source, run), settle(pair.computed, run)
        open_parts = list(undefined_parts(source, computed, run, effort))
        if open_parts:
            return open_parts
    return []


_MOST_SEGMENTS = 16


def _exact_point(verdict: Verdict | None) -> list[dict[str, fmpq]]:
    """The point at which the prover refutes the values with the chosen constants."""
    if verdict is None or verdict.counterexample is None:
        return []
    return [{name: build.exact(value) for name, value in verdict.counterexample.items()}]


def _unknown(pair: Pair, steps: StepRange, verdict: Verdict | None, effort: Effort) -> Verdict:
    explanation = f"the prover says {verdict}"
    if verdict is None:
        explanation = "it is too large for the prover" if effort.left else effort.why()
    return Verdict(
        Status.UNKNOWN,
        reason=f"{pair.name} at the steps from {steps.first} to {steps.last}: {explanation}",
    )
