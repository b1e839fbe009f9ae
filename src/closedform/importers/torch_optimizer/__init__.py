"""Update rules of torch optimizers, by running their own ``step`` with symbols."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeGuard

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.check import STEPS, RuleDeviation
from closedform.importers.tensors.values import Axes, Sizes
from closedform.importers.tensors.variants import Variant, rule_of
from closedform.importers.torch_optimizer.check import (
    PLACES,
    SEQUENCES,
    GraphCache,
    check_places,
    difference,
    has_vectors,
)
from closedform.importers.torch_optimizer.first_steps import check_states
from closedform.importers.torch_optimizer.groups import check_groups
from closedform.importers.torch_optimizer.reported import user_settings
from closedform.importers.torch_optimizer.rules import by_dtype, needs_phases, variant_of
from closedform.importers.torch_optimizer.subject import (
    Form,
    check_step,
    double_precision,
    forms_of,
    subject_of,
)
from closedform.importers.torch_optimizer.trace import Tracer, UnevenShapesError
from closedform.language.shapes import shape_values
from closedform.language.update_rule import UpdateRule

__all__ = ["is_optimizer", "trace"]

# Distinct primes: the size of an axis, and each product of sizes, has one factorization.
_PRIMES = {
    0: ((), ()),
    1: ((11,), (13,)),
    2: ((5, 7), (11, 13)),
    3: ((3, 5, 7), (11, 13, 17)),
    4: ((2, 3, 5, 7), (11, 13, 17, 19)),
}


def is_optimizer(source: object) -> TypeGuard[torch.optim.Optimizer]:
    """Returns whether an object is an optimizer of torch."""
    return isinstance(source, torch.optim.Optimizer)


def trace(optimizer: torch.optim.Optimizer, prover: Prover) -> UpdateRule | list[UpdateRule]:
    """Returns the update rule of an optimizer, or one for each of its param groups.

    Args:
        optimizer: The optimizer before its first step; it and its parameters are not changed.
        prover: Decides whether some step takes the decisions of a way through the step.

    Raises:
        TraceError: The step does something that has no expression, or the rule differs from the
            optimizer; the message names the operation, the file and the line.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TraceError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    check_step(optimizer)
    # The random numbers of torch go on after the trace as they would without it.
    fork = torch.random.fork_rng(devices=[])
    with _with_hint(), user_settings(), double_precision(), fork:
        groups = [_group(optimizer, place, prover) for place in range(len(optimizer.param_groups))]
        rules = [rule for rule, _, _ in groups]
        if len(rules) > 1:
            shapes, forms = [shape for _, shape, _ in groups], [form for _, _, form in groups]
            check_groups(optimizer, rules, shapes, forms)
    return rules[0] if len(rules) == 1 else rules


@contextmanager
def _with_hint() -> Iterator[None]:
    """Gives an error without a hint the way out that there always is."""
    try:
        yield
    except TraceError as error:
        if error.hint is not None:
            raise
        raise TraceError(error.what, where=error.where, hint=_WAY_OUT) from error.__cause__


_UNSEEN = "the step does something that the trace does not see"
_OF_VECTORS = (
    "signs of singular vectors, and vectors of equal values, are chosen by LAPACK: a step that "
    "depends on them has no rule"
)

_WAY_OUT = (
    "write the step with operations that are traced (docs/bring_your_own_optimizer.md), or write "
    "the rule as expressions, a closedform.UpdateRule"
)


def _group(
    optimizer: torch.optim.Optimizer, place: int, prover: Prover
) -> tuple[UpdateRule, Sizes, Form]:
    """The rule of a param group, and the shape and form in which it was traced."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(optimizer).__name__)
    where = f"{type(optimizer).__name__}, param group {place}"
    shapes = [tuple(param.shape) for param in optimizer.param_groups[place]["params"]]
    if not shapes:
        raise TraceError("the param group has no parameters", where=where)
    _check_parameters(optimizer.param_groups[place]["params"], where)
    source = _Source(optimizer, place, where, prover)
    form, traces = source.traces_in_a_form(shapes)
    singles: list[Tracer] = []
    is_of_both = form.dtype == torch.float64
    if is_of_both and any(tracer.is_of_dtype for tracer in traces):
        singles = source.traces(shapes, torch.float32, form)

    def rule_of_all(*, with_phases: bool) -> UpdateRule:
        rule = _rule(name.lower(), traces, with_phases=with_phases)
        if not singles:
            return rule
        return by_dtype(_rule(name.lower(), singles, with_phases=with_phases), rule, where)

    rule = rule_of_all(with_phases=False)
    gaps = [source.difference(rule, tracer) for tracer in traces]
    if not all(gap.is_small for gap in gaps):
        # The formula of later steps is not that of the first ones.
        rule = rule_of_all(with_phases=True)
        gaps = [source.difference(rule, tracer) for tracer in traces]
    for tracer, gap in zip(traces, gaps, strict=True):
        gap.check(where, "optimizer", _OF_VECTORS if has_vectors(rule) else _UNSEEN)
        shapes_of_places = [tracer.axes.twin] * PLACES
        check_places(subject_of(optimizer, place, shapes_of_places, 5, form), where)
    return rule, traces[0].axes.shape, form


def _check_parameters(params: Sequence[torch.Tensor], where: str) -> None:
    """Refuses parameters whose steps are not steps of dense tensors of floats.

    Raises:
        TraceError: A parameter is one.
    """
    for index, param in enumerate(params):
        kind = str(param.dtype) if not param.is_floating_point() else str(param.layout)
        if not param.is_floating_point() or param.layout is not torch.strided:
            raise TraceError(
                f"expected dense parameters of floats, got {kind.removeprefix('torch.')} at place "
                f"{index}",
                where=where,
                hint="a rule steps real numbers, each element of a parameter",
            )


@dataclass(frozen=True, slots=True)
class _Source:
    """A param group of an optimizer, its name in errors, and what decides on its steps."""

    optimizer: torch.optim.Optimizer
    place: int
    where: str
    prover: Prover

    def traces_in_a_form(self, shapes: Sequence[Sizes]) -> tuple[Form, list[Tracer]]:
        """The first form in which a step can be taken, and traces in it."""
        errors: list[TraceError] = []
        for form in forms_of(self.optimizer.param_groups[self.place]):
            try:
                check_states(self.optimizer, self.place, _candidates(shapes[0])[0].both, form)
                return form, self.traces(shapes, form.dtype, form)
            except TraceError as error:
                errors.append(error)
                # An exception of the step itself: it may insist on another form.
                if not isinstance(error.__cause__, Exception):
                    break
        raise errors[0]

    def traces(self, shapes: Sequence[Sizes], dtype: torch.dtype, form: Form) -> list[Tracer]:
        """Traces that together are valid for all shapes."""
        traces: list[Tracer] = []
        for shape in shapes:
            if not any(_fits(tracer, shape) for tracer in traces):
                traces.append(self._trace(shape, dtype, form))
        return traces

    def _trace(self, shape: Sizes, dtype: torch.dtype, form: Form) -> Tracer:
        """Traces for a small shape on which the step goes the way that it goes on this one."""
        for axes in _candidates(shape):
            subject = subject_of(self.optimizer, self.place, axes.both, 3, form)
            tracer = Tracer(axes, subject, seed=17, prover=self.prover, dtype=dtype)
            try:
                tracer.trace()
            except UnevenShapesError as uneven_error:
                error: TraceError = uneven_error
                continue
            if _fits(tracer, shape):
                return tracer
            error = TraceError(
                f"the step decides on the shape {list(shape)} as on no shape of primes",
                where=self.where,
                hint=f"conditions are {tracer.conditions}",
            )
        raise error

    def difference(self, rule: UpdateRule, tracer: Tracer) -> RuleDeviation:
        """The largest difference on two and on three shapes, at first steps and at later ones."""
        axes = tracer.axes
        slots = list(tracer.slots.values())
        subject, counters = tracer.subject, tracer.counters
        cache: GraphCache = {}
        compare = functools.partial(difference, rule, subject, axes.both, slots=slots, cache=cache)
        gaps = [compare(counters=counters)]
        if not gaps[0].is_small:
            return gaps[0]
        # The trace has two parameters: what counts them, or takes their places, is seen with three.
        second_shapes = _other_shapes(tracer)
        subject_of_others = subject_of(self.optimizer, self.place, second_shapes, 4, subject.form)
        gaps.append(difference(rule, subject_of_others, second_shapes, seed=11, slots=slots))
        gaps += [compare(seed=19, special=special) for special in SEQUENCES]
        later = [time for time in tracer.times if time >= STEPS]
        if later:
            gaps.append(compare(steps=[*range(3), *later], seed=7, counters=counters))
        # An infinite one is the largest; with NaN, max() would depend on its place.
        return max(gaps, key=lambda gap: math.inf if math.isnan(gap.gap) else gap.gap)


def _rule(name: str, traces: Sequence[Tracer], *, with_phases: bool) -> UpdateRule:
    variants: list[Variant] = [
        variant_of(tracer, with_phases=with_phases or needs_phases(tracer)) for tracer in traces
    ]
    hypers = {key: value for tracer in traces for key, value in tracer.hypers.items()}
    return rule_of(name, variants, hypers)


def _other_shapes(tracer: Tracer) -> tuple[Sizes, ...]:
    """Three other shapes than the traced ones, on which the step goes the same way."""
    shapes: list[Sizes] = []
    axes = tracer.axes
    for shape in (axes.shape, axes.shape, axes.twin):
        # Even sizes, where the traced ones are odd primes: a formula with their numbers in it
        # shows. All differ, which shows for which parameter random numbers are.
        larger = (tuple(n if n == 1 else n + more for n in shape) for more in (1, 3, 5))
        other = next((sizes for sizes in larger if sizes not in shapes), shape)
        shapes.append(other if _fits(tracer, other) else shape)
    return tuple(shapes)


def _fits(tracer: Tracer, shape: Sizes) -> bool:
    """Whether a trace is valid for a shape."""
    if tracer.is_structural:
        trace_shape = tracer.axes.shape
        if len(trace_shape) != len(shape):
            return False
        if [size == 1 for size in trace_shape] != [size == 1 for size in shape]:
            return False
    return bool(sp.And(*tracer.conditions).xreplace(dict(shape_values(shape))) == sp.true)


def _candidates(shape: Sizes) -> list[Axes]:
    """Shapes of distinct primes whose order is that of the sizes; small ones, then near ones."""
    rank = len(shape)
    if rank not in _PRIMES:
        raise TraceError(f"parameters of {rank} axes are not traced", hint="up to four axes are")
    candidates = []
    for is_near, sign in itertools.product((False, True), (1, -1)):
        # A step may compare sizes (rows > columns): equal ones are tried in both orders.
        order = sorted(range(rank), key=lambda axis: (shape[axis], sign * axis))
        pair = []
        for primes in _PRIMES[rank]:
            sizes = dict(zip(order, primes, strict=True))
            if is_near:
                sizes = {k: _prime_from(max(shape[k], 2) + n, set()) for k, n in sizes.items()}
            pair.append(tuple(1 if n == 1 else sizes[k] for k, n in enumerate(shape)))
        candidates.append(Axes(*pair))
    return [*candidates, *_in_proportion(shape)]


def _in_proportion(shape: Sizes) -> Iterator[Axes]:
    """Shapes of distinct primes in nearly the same proportions: a step may compare ratios."""
    for factors in ((1, 2), (4, 7), (16, 23)):
        if math.prod(shape) * factors[1] ** len(shape) > _MOST_ELEMENTS:
            return
        used_primes: set[int] = set()
        pair = []
        for factor in factors:
            sizes = [n if n == 1 else _prime_from(max(n * factor, 2), used_primes) for n in shape]
            pair.append(tuple(sizes))
        yield Axes(*pair)


_MOST_ELEMENTS = 1_000_000
"""Of a parameter on which a step is tried."""


def _prime_from(number: int, used_primes: set[int]) -> int:
    """The first prime from a number on that is not used, which it is from then on."""
    prime = next(k for k in itertools.count(number) if sp.isprime(k) and k not in used_primes)
    used_primes.add(prime)
    return prime
