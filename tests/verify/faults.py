"""Faults planted in the compiler, and the one judge of what becomes of the graphs that they make.

A source (a schedule or a rule) is compiled with a fault of the code in place, and its graph is
validated without it. What is proved is evaluated beside the right graph, by the evaluator of the
graph language, which shares nothing with the prover. Likewise the graph of a rule is validated
against the rule with a fault in one of its expressions.

=========================  =========================================  =========================
what is mutated            how                                        where
=========================  =========================================  =========================
code of the compiler       ``tests.support.mutation``: syntax trees   ``OF_SCHEDULES``, ``OF_RULES``
code of the library        ``tests.support.mutation``: syntax trees   ``library_faults.SOURCES``
expressions of rules       ``faulty``: SymPy                          ``OF_RULES.sources``
expressions of schedules   ``library_faults.faults_of``: terms        ``library_faults.originals``
=========================  =========================================  =========================
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import ModuleType
from typing import Any

import numpy as np
import sympy as sp

from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_schedule, compile_step
from closedform.effort import Effort
from closedform.errors import ClosedFormError
from closedform.ir import Array, DType, Graph, evaluate, program, simplification
from closedform.language import GRAD, PARAM, UpdateRule, state
from closedform.lowering import (
    arithmetic,
    conditions,
    context,
    guard,
    lower,
    model,
    piecewise,
    rule,
    schedule,
    simplify,
    sums,
    tensors,
    trigonometry,
)
from closedform.lowering.analysis import annotate, domain
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.terms.verdict import Verdict
from closedform.verify.translation.translation import validate
from tests.support.mutation import Mutant, TooSlowError, at_most, lines_run, mutants_of, planted
from tests.test_library import OPTIMIZERS, POSITIVE, SCHEDULES

HANDLERS = (arithmetic, conditions, lower, piecewise, trigonometry)
PASSES = (simplification,)
FACTS = (annotate, context, domain, guard, schedule, simplify)
RULE_HANDLERS = (arithmetic, conditions, lower, model, rule, sums, tensors, program)

# Matrices and, where a rule takes them, vectors; no two sizes are equal, so axes are distinguished.
MATRICES = {"w": (3, 4), "v": (2, 5)}
SHAPES = {**MATRICES, "b": (7,)}
STEPS = np.unique(
    [*range(401), *(2**power + offset for power in range(9, 50) for offset in (-1, 0, 1))]
)
STEPS_OF_RULES = (0, 1, 2, 6, 19, 20, 150)


class Outcome(StrEnum):
    """The outcome of a fault, from the worst to the best known."""

    MISSED = "proved, and another function"
    FALSE_REFUTATION = "refuted, and true there"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    REJECTED = "not compiled"
    COARSER = "proved, and the same function in float32"
    EQUIVALENT = "proved, and the same function"
    SAME = "the same graph"
    UNREACHED = "not run"


WRONG = (Outcome.MISSED, Outcome.FALSE_REFUTATION)


def judged(verdict: Verdict, proved: Callable[[], Outcome], refuted: Outcome) -> Outcome:
    """The one judge: what a verdict on something faulty comes to.

    Args:
        verdict: What the prover says of it.
        proved: The outcome where it is proved: an evaluation that shares nothing with the prover.
        refuted: The outcome where it is refuted.
    """
    if verdict.proved:
        return proved()
    return refuted if verdict.refuted else Outcome.UNKNOWN


def table(outcomes: Iterable[Outcome]) -> str:
    """The number of faults by outcome."""
    listed = list(outcomes)
    return ", ".join(f"{one}: {listed.count(one)}" for one in Outcome if one in listed)


# --- faults in the code of the compiler ----------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A source, its right graph, and the lines that are run when it is compiled."""

    name: str
    source: Any
    graph: Graph
    lines: frozenset[tuple[str, int]]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Faults of the code that compiles one kind of source.

    Attributes:
        modules: The code that is mutated.
        sources: The sources that are compiled with it, those that compile fast.
        compile: Makes the graph of a source.
        agree: Whether two graphs have the same values to a tolerance.
        tolerance: Two graphs in float64 of one function round differently.
        coarse: The same for graphs that hold a float32. What a proof says of float32 holds as well;
            the certificates say how far it rounds.
        work: The work of a validation.
        tried: Sources that a fault is tried on, of those whose compilation runs its line.
    """

    modules: tuple[ModuleType, ...]
    sources: Mapping[str, Callable[[], Any]]
    compile: Callable[[Any], Graph]
    agree: Callable[[Graph, Graph, float], bool]
    tolerance: float
    coarse: float
    work: int
    tried: int
    _samples: dict[str, Sample] = field(default_factory=dict)

    def sample(self, name: str) -> Sample:
        """One source, compiled once."""
        if name not in self._samples:
            source = self.sources[name]()
            with lines_run({str(module.__file__) for module in self.modules}) as lines:
                graph = self.compile(source)
            self._samples[name] = Sample(name, source, graph, frozenset(lines))
        return self._samples[name]

    def samples(self, every: int = 1) -> list[Sample]:
        """The sources, or each so many-th of them."""
        return [self.sample(name) for name in list(self.sources)[::every]]

    def mutants(self, module: ModuleType, every: int = 1) -> list[Mutant]:
        """The mutants of a module, without those that no source runs."""
        lines = frozenset().union(*(one.lines for one in self.samples(every)))
        return [mutant for mutant in mutants_of(module) if (mutant.path, mutant.line) in lines]

    def judge(self, mutant: Mutant, every: int = 1) -> tuple[Outcome, str]:
        """The worst outcome of a mutant, and of which source."""
        running = [one for one in self.samples(every) if (mutant.path, mutant.line) in one.lines]
        chosen = random.Random(str(mutant)).sample(running, min(self.tried, len(running)))
        outcomes = [(self.outcome(mutant, one), one.name) for one in chosen]
        order = list(Outcome)
        return min(outcomes, key=lambda pair: order.index(pair[0]), default=(Outcome.UNREACHED, ""))

    def outcome(self, mutant: Mutant, sample: Sample) -> Outcome:
        """Returns the outcome of one source."""
        try:
            with planted(mutant), at_most(5):
                graph = self.compile(sample.source)
        except (Exception, TooSlowError, RecursionError):  # a fault may raise anything
            return Outcome.REJECTED
        if graph == sample.graph:
            return Outcome.SAME
        return self.outcome_of_graph(sample.source, graph, sample.graph)

    def outcome_of_graph(self, source: Any, graph: Graph, right: Graph) -> Outcome:
        """Returns the verdict on a graph, beside the right one."""
        is_coarse = any(node.type.dtype is DType.F32 for node in graph.nodes)

        def proved() -> Outcome:
            if not self.agree(graph, right, self.coarse if is_coarse else self.tolerance):
                return Outcome.MISSED
            return Outcome.COARSER if is_coarse else Outcome.EQUIVALENT

        verdict = validate(source, graph, effort=Effort.of(self.work))
        return judged(verdict, proved, Outcome.REFUTED)

    def missed(self, mutants: Sequence[Mutant], every: int = 1) -> tuple[list[str], str]:
        """The faults that are missed, and the number of faults by outcome."""
        results = [(mutant, *self.judge(mutant, every)) for mutant in mutants]
        wrong = [f"{mutant} ({name})" for mutant, one, name in results if one in WRONG]
        return wrong, table(one for _, one, _ in results)


def drawn(sweep: Sweep, module: ModuleType, count: int, seed: int, every: int) -> list[Mutant]:
    """So many mutants of a module, the same each time."""
    run = sweep.mutants(module, every)
    return random.Random(seed).sample(run, min(count, len(run)))


def same_values(graph: Graph, other: Graph, tolerance: float) -> bool:
    """Whether two graphs of schedules have the same values at every step of STEPS.

    Where a value is zero, a sum rounds by a few ulp of its operands, which are at most of the size
    of the largest value.
    """
    one, two = (
        np.array([evaluate(each, {"step": int(step)})["value"] for step in STEPS], np.float64)
        for each in (graph, other)
    )
    if one.shape != two.shape:
        return False
    rounding = 64 * np.finfo(np.float64).eps * np.max(np.abs(two))
    relative = tolerance * np.maximum(1, STEPS >> 20) * np.abs(two)
    return bool(np.all(np.abs(one - two) <= relative + rounding))


def same_steps(graph: Graph, other: Graph, tolerance: float) -> bool:
    """Whether two graphs of rules have the same values at some points."""
    draw = np.random.default_rng(3)
    for step in STEPS_OF_RULES:
        inputs: dict[str, Array] = {}
        for node in other.inputs:
            name, type_ = node.attribute("name"), node.type
            if not type_.dtype.is_float:
                inputs[name] = np.asarray(step if name == "step" else 3)
                continue
            values = draw.normal(size=[int(size) for size in type_.shape]).astype(type_.dtype.numpy)
            inputs[name] = np.abs(values) if POSITIVE.search(name) or "shared" in name else values
        with np.errstate(all="ignore"):
            try:
                one, two = (evaluate(each, _typed(each, inputs)) for each in (graph, other))
            except (ClosedFormError, KeyError):
                return False
        for name, value in two.items():
            wanted = np.asarray(value, np.float64)
            found = np.asarray(one[name], np.float64)
            scale = max(1e-300, float(np.nanmax(np.abs(wanted), initial=0.0)))
            same = np.isclose(found, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
            # Where the rule has no value, nothing is said.
            if found.shape != wanted.shape or not np.all(same | ~np.isfinite(wanted)):
                return False
    return True


def _typed(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array]:
    """The inputs in the dtypes of a graph."""
    types = {node.attribute("name"): node.type.dtype for node in graph.inputs}
    return {name: value.astype(types[name].numpy) for name, value in inputs.items()}


def compiled(rule: UpdateRule) -> Graph:
    """The graph of a step in float64."""
    shapes = SHAPES if rule.requires == sp.true else MATRICES
    return compile_step(ModelSpec(rule, shapes), GraphOptions(dtype="f64"))


RATE = schedules.linear(0, 3e-3, 20)
TRANSFORMED: dict[str, Callable[[], UpdateRule]] = {
    "clipped": lambda: transforms.clip_by_global_norm(optimizers.sgd(RATE, momentum=0.9), 0.5),
    "clipped by rows": lambda: transforms.clip_by_unit_norm(optimizers.sgd(RATE), 0.1),
    "skipped": lambda: transforms.skip_nonfinite(optimizers.adamw(RATE)),
    "scaled": lambda: transforms.dynamic_loss_scaling(optimizers.adamw(RATE)),
    "accumulated": lambda: transforms.accumulate(optimizers.sgd(RATE, momentum=0.9), 4),
    "averaged": lambda: transforms.lookahead(optimizers.lion(RATE)),
    "masters": lambda: transforms.master_weights(optimizers.sgd(RATE, momentum=0.9)),
}

# Left out: 0.2 s and 0.7 s to compile, and their code is run by others.
OF_SCHEDULES = Sweep(
    (*HANDLERS, *PASSES, *FACTS),
    {name: make for name, make in SCHEDULES.items() if name != "warm_restarts"},
    compile_schedule,
    same_values,
    # The largest library graph has 40 ops of a few ulp, and a phase in float64 is off by t ulp at
    # step t where it is not reduced in integers.
    tolerance=1e-9,
    coarse=1e-4,
    work=2_000_000,
    tried=4,
)
OF_RULES = Sweep(
    (*RULE_HANDLERS, *PASSES, context, guard, simplify),
    {
        name: make
        for name, make in {**OPTIMIZERS, **TRANSFORMED}.items()
        if name != "schedule_free_radam"
    },
    compiled,
    same_steps,
    tolerance=1e-7,  # powers of a beta lose a few digits
    coarse=1e-3,
    work=1_000_000,
    tried=3,
)


# --- faults in the expressions of rules ---------------------------------------------------------


def changes_of(expr: sp.Basic, others: tuple[sp.Symbol, ...]) -> Iterator[sp.Basic]:
    """Yields an expression with one node changed: a sign, a factor, a power, a symbol, an axis."""
    for node in sp.preorder_traversal(expr):
        for other in _changed(node, others):
            if other != node:
                yield expr.xreplace({node: other})


def _changed(node: sp.Basic, others: tuple[sp.Symbol, ...]) -> Iterator[sp.Basic]:
    if isinstance(node, sp.Add):
        first, *rest = node.args
        yield sp.Add(-first, *rest)
        yield sp.Add(*rest)
    elif isinstance(node, sp.Mul):
        first, *rest = node.args
        yield sp.Mul(*rest)
        yield sp.Mul(first, first, *rest)
    elif isinstance(node, sp.Pow):
        yield node.base ** (-node.exp)
        yield node.base ** (node.exp + 1)
        yield (node.base + sp.Rational(1, 1000)) ** node.exp
    elif isinstance(node, sp.Max | sp.Min):
        yield (sp.Min if isinstance(node, sp.Max) else sp.Max)(*node.args)
    elif isinstance(node, sp.StrictGreaterThan | sp.StrictLessThan):
        yield node.rhs < node.lhs if isinstance(node, sp.StrictLessThan) else node.lhs < node.rhs
    elif isinstance(node, sp.Tuple) and node.args and all(axis.is_Integer for axis in node.args):
        yield type(node)(*(-1 - axis for axis in node.args))
    elif isinstance(node, sp.Symbol):
        yield from (other for other in others if other != node)


def faulty(rule: UpdateRule) -> Iterator[tuple[str, UpdateRule]]:
    """Yields a rule with one fault in one of its expressions, and what the fault is."""
    numbers = tuple(
        symbol
        for symbol in sorted(rule.param.free_symbols, key=str)
        if symbol.name in rule.hyperparameters
    )
    own = (PARAM, GRAD, *map(state, rule.states), *numbers)
    for label, expr in rule.expressions().items():
        for changed in changes_of(expr, own):
            what = f"{label}: {changed}"
            try:
                if label == "param":
                    yield what, replace(rule, param=changed)
                else:
                    spec = replace(rule.states[label], next=changed)
                    yield what, replace(rule, states={**rule.states, label: spec})
            except (ClosedFormError, TypeError, ValueError):  # no rule any more
                continue
    for name, expr in rule.definitions.items():
        for changed in changes_of(expr, (PARAM, GRAD)):
            try:
                yield (
                    f"{name}: {changed}",
                    replace(rule, definitions={**rule.definitions, name: changed}),
                )
            except (ClosedFormError, TypeError, ValueError):
                continue
