"""Faults planted in the lowering of rules, and in rules themselves.

A rule is compiled with the fault in place, and its graph validated without it. What is proved is
evaluated beside the right graph, by the evaluator of the graph language, which shares nothing with
the prover. A fault in a rule is one change of one expression: the graph of the rule is then no
graph of the changed one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import numpy as np
import sympy as sp

from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_step
from closedform.errors import ClosedFormError
from closedform.ir import Array, DType, Graph, evaluate, program
from closedform.ir.passes import algebra, fold, rewrite, select, share
from closedform.language import GRAD, PARAM, UpdateRule, state
from closedform.lowering import (
    arithmetic,
    body,
    conditions,
    context,
    guard,
    lower,
    model,
    rule,
    simplify,
    sums,
    tensors,
)
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.terms.verdict import Status
from closedform.verify.translation.translation import validate
from tests.support.mutation import Mutant, TooSlowError, at_most, lines_run, mutants_of, planted
from tests.test_library import OPTIMIZERS, POSITIVE
from tests.verify.planted_faults import Outcome

MODULES = (
    arithmetic,
    body,
    conditions,
    lower,
    model,
    rule,
    sums,
    tensors,
    program,
    algebra,
    fold,
    rewrite,
    select,
    share,
    context,
    guard,
    simplify,
)
# Matrices and, where a rule takes them, vectors; no two sizes are one, so that axes are told apart.
MATRICES = {"w": (3, 4), "v": (2, 5)}
SHAPES = {**MATRICES, "b": (7,)}
STEPS = (0, 1, 2, 6, 19, 20, 150)
# Graphs in float64 of one function round differently; powers of a beta lose a few digits.
TOLERANCE = 1e-7
# Rules that a mutant is tried on, of those whose compilation runs its line.
TRIED = 3

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


@dataclass(frozen=True)
class Sample:
    """A rule, its right graph, and the lines that are run when it is compiled."""

    name: str
    rule: UpdateRule
    graph: Graph
    lines: frozenset[tuple[str, int]]


def compiled(rule: UpdateRule) -> Graph:
    """The graph of a step in float64."""
    shapes = MATRICES if rule.name.startswith("muon") else SHAPES
    return compile_step(ModelSpec(rule, shapes), GraphOptions(dtype="f64"))


@cache
def samples() -> tuple[Sample, ...]:
    """The rules of the library and transformed ones, those that compile fast."""
    paths = {str(module.__file__) for module in MODULES}
    found = []
    for name, make in {**OPTIMIZERS, **TRANSFORMED}.items():
        if name == "schedule_free_radam":  # 0.7 s to compile, and its code is run by others
            continue
        built = make()
        with lines_run(paths) as lines:
            graph = compiled(built)
        found.append(Sample(name, built, graph, frozenset(lines)))
    return tuple(found)


def judge(mutant: Mutant) -> tuple[Outcome, str]:
    """What becomes of the graphs that a mutant makes: the worst outcome, and of which rule."""
    running = [one for one in samples() if (mutant.path, mutant.line) in one.lines]
    chosen = random.Random(str(mutant)).sample(running, min(TRIED, len(running)))
    outcomes = [(outcome_of(mutant, one), one.name) for one in chosen]
    order = list(Outcome)
    return min(outcomes, key=lambda pair: order.index(pair[0]), default=(Outcome.UNREACHED, ""))


def outcome_of(mutant: Mutant, sample: Sample) -> Outcome:
    """What becomes of one rule."""
    try:
        with planted(mutant), at_most(5):
            graph = compiled(sample.rule)
    except (Exception, TooSlowError, RecursionError):  # a fault may raise anything
        return Outcome.REJECTED
    if graph == sample.graph:
        return Outcome.SAME
    return outcome_of_graph(sample.rule, graph, sample.graph)


def outcome_of_graph(rule: UpdateRule, graph: Graph, right: Graph) -> Outcome:
    """What is said of a graph, beside the right one."""
    status = validate(rule, graph, budget=1.0).status
    if status is Status.REFUTED:
        return Outcome.REFUTED
    if status is Status.UNKNOWN:
        return Outcome.UNKNOWN
    is_narrow = any(node.type.dtype is DType.F32 for node in graph.nodes)
    if not are_one_function(graph, right, 1e-3 if is_narrow else TOLERANCE):
        return Outcome.MISSED
    return Outcome.COARSER if is_narrow else Outcome.EQUIVALENT


def are_one_function(graph: Graph, other: Graph, tolerance: float) -> bool:
    """Whether two graphs have the same values at some points, but for rounding."""
    draw = np.random.default_rng(3)
    for step in STEPS:
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


def drawn(modules: Iterable[ModuleType], count: int, seed: int) -> list[Mutant]:
    """So many mutants of each module, those that no rule runs left out."""
    lines = frozenset().union(*(one.lines for one in samples()))
    found = []
    for module in modules:
        run = [mutant for mutant in mutants_of(module) if (mutant.path, mutant.line) in lines]
        found += random.Random(seed).sample(run, min(count, len(run)))
    return found


# --- faults in the rules -------------------------------------------------------------------------


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
