"""Runs of a rule over exact numbers: what refutes a claim about its steps.

The prover looks for a false point among all states that the premises admit, and no run has most of
these. A claim about steps is refuted by a run: it begins with the first states, takes gradients
that are listed, and comes to a step at which the claim is false by exact evaluation. The runs that
are tried, the cheapest first: the point of the prover, if it is a first step; gradients of some
patterns and sizes; and a point that the prover finds for the states after a few steps, which are
functions of the gradients before.

The parameter has one element, and the model one parameter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import sympy as sp
from flint import fmpq

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.language import GRAD, PARAM, Schedule, state
from closedform.language.model import tensor_input
from closedform.language.shapes import EPSILON, shape_values
from closedform.verify.claims.core import Goal, Refutation
from closedform.verify.claims.step import Step
from closedform.verify.prover import prove
from closedform.verify.samples import examine
from closedform.verify.terms.build import (
    ZERO,
    add,
    both,
    equal,
    exact,
    ite,
    less_equal,
    negate,
    own_symbol,
    rational,
    substitute,
)
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import CLOCK, term
from closedform.verify.terms.tree import Term, symbols, walk
from closedform.verify.terms.verdict import Run, Verdict

RUN = "a run of the rule"
"""The ground of refutations of claims about steps."""

_CLOCK = CLOCK.value.name
_SHAPES = ((1,), (1, 1), (1, 1, 1))
# A binary32 parameter, where the claim does not fix the dtype.
_EPSILON = fmpq(1, 2**23)

Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class System:
    """The steps of a rule as terms.

    Attributes:
        first: What each carried symbol is before the first step, by name; the parameter is not in
            it, since it may be any number.
        following: What each is after a step.
        inputs: The symbols that each step has values of: the gradient and further tensors.
        schedules: Hyperparameters that are a function of the clock, by name.
        constants: Numbers of the shape and of the dtype, by name.
        ranges: What holds of hyperparameters.
    """

    first: Mapping[str, Term]
    following: Mapping[str, Term]
    inputs: tuple[Term, ...]
    schedules: Mapping[str, Term]
    constants: Mapping[str, fmpq]
    ranges: tuple[Term, ...]

    @property
    def variables(self) -> dict[str, Term]:
        """The symbols that have one value in a run: open hyperparameters and the parameter."""
        return {
            name: node
            for name, node in symbols(*self.first.values(), *self.following.values()).items()
            if name not in self.changing and name not in self.constants
        }

    @property
    def changing(self) -> set[str]:
        """The names whose values change from step to step, but for the parameter."""
        inputs = {node.value.name for node in self.inputs}
        return {*self.first, *self.schedules, *inputs, _CLOCK}


def system_of(step: Step, schedules: Mapping[str, Schedule]) -> System:
    """Returns the steps of a rule as terms.

    Args:
        step: One step.
        schedules: The open hyperparameters that are a schedule in the rule.

    Raises:
        VerificationError: The prover does not read an expression of the rule, or no parameter of
            one element has a step.
    """
    rule = step.rule
    symbols_of_model = rule.shared_symbols
    first = {state(name): expr for name, expr in step.initial.items()}
    first |= {symbol: rule.shared[name].initial for name, symbol in symbols_of_model.items()}
    following = {**step.after(), **step.shared}
    shape = next((s for s in _SHAPES if rule.requires.xreplace(shape_values(s)) == sp.true), None)
    if shape is None:
        raise VerificationError(
            "the rule is for parameters of more than one element", where=f"rule {rule.name!r}"
        )
    sizes = {symbol.name: exact(number) for symbol, number in shape_values(shape).items()}
    clock = ite(term(step.advances), add(CLOCK, rational(1)), CLOCK)
    return System(
        first={_name(symbol): term(expr) for symbol, expr in first.items()} | {_CLOCK: ZERO},
        following={_name(symbol): term(expr) for symbol, expr in following.items()}
        | {_CLOCK: clock},
        inputs=(term(GRAD), *(term(tensor_input(name)) for name in rule.inputs)),
        schedules={name: term(schedule.bound) for name, schedule in schedules.items()},
        constants={**sizes, EPSILON.name: _EPSILON},
        ranges=tuple(_ranges(step)),
    )


def _name(symbol: sp.Symbol) -> str:
    name: str = term(symbol).value.name
    return name


def _ranges(step: Step) -> Iterator[Term]:
    for name, (low, high) in step.rule.ranges.items():
        symbol = step.read(sp.Symbol(name, real=True))
        yield less_equal(term(low), term(symbol))
        yield less_equal(term(symbol), term(high))


@dataclass(frozen=True)
class Runs:
    """The runs of a rule from its first states.

    Attributes:
        step: One step of it.
        schedules: The open hyperparameters of the step that are a schedule in the rule: a run has
            their values, while a proof is about any number.
    """

    step: Step
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    @cached_property
    def system(self) -> System | None:
        """The steps as terms; None where they are beyond the prover."""
        try:
            return system_of(self.step, self.schedules)
        except VerificationError:
            return None

    def refute(
        self,
        goal: Goal,
        verdict: Verdict,
        others: Sequence[Goal],
        assume: tuple[Term, ...],
        effort: Effort,
    ) -> Refutation | None:
        """Returns a run to a step at which a goal is false; see ``Reach.refute``."""
        if self.system is None or verdict.counterexample is None:
            return None
        hint = {name: exact(number) for name, number in verdict.counterexample.items()}
        decisive = [other for other in others if not (other.is_sufficient or other.is_somewhere)]
        search = _Search(self.system, [goal, *decisive], (*assume, *self.system.ranges), effort)
        # States that are rounded between steps leave the formula after the first step.
        steps = LIMITS.run_steps if self.step.rule.is_in_one_dtype else 1
        try:
            return search.refute(hint, steps, has_patterns=bool(others))
        except VerificationError:
            return None

    def points(self, steps: int) -> list[Point]:
        """Returns the states before the steps of some runs, for hyperparameters with values."""
        if self.system is None or not self.step.rule.is_in_one_dtype:
            return []
        search = _Search(self.system, [], self.system.ranges, Effort.of(LIMITS.run_work))
        try:
            return search.points(steps)
        except VerificationError:
            return []


class ConstantRuns:
    """The runs with one gradient that an induction on the step is about.

    A formula that fails at a step of the induction is not that of the run: either it is right
    before that step and wrong after it, or it is wrong before.
    """

    def refute(
        self,
        goal: Goal,
        verdict: Verdict,
        others: Sequence[Goal],
        assume: tuple[Term, ...],
        effort: Effort,
    ) -> Refutation | None:
        """Returns the run up to the step at which the induction fails."""
        point = dict(verdict.counterexample or {})
        steps = int(point.get(_CLOCK, 0))
        gradient = {GRAD.name: point.get(GRAD.name, sp.Integer(1))}
        changing = (_CLOCK, GRAD.name)
        first = {name: number for name, number in point.items() if name not in changing}
        run = Run(first, (gradient,), steps)
        return Refutation(goal, point, verdict.reason, verdict.grounds, verdict.samples, run)


@dataclass
class _Search:
    """The search for a run in which one of some goals is false, mostly the first of them."""

    system: System
    goals: Sequence[Goal]
    assume: tuple[Term, ...]
    effort: Effort

    def refute(self, hint: Point, steps: int, *, has_patterns: bool) -> Refutation | None:
        values = self._values(hint)
        if values is None:
            return None
        param = hint.get(PARAM.name, fmpq(0))
        names = [node.value.name for node in self.system.inputs]
        inputs_of_hint = {name: hint.get(name, fmpq(0)) for name in names}
        # A point that is a first step is one of a run.
        refutation = self._run({**values, PARAM.name: param}, [inputs_of_hint])
        if refutation is not None:
            return refutation
        portion = self.effort.portion(self.effort.left // 2)
        for pattern in self._patterns(inputs_of_hint, steps) if has_patterns else ():
            for beginning in dict.fromkeys((param, fmpq(1))):
                if not portion.left:
                    break
                refutation = self._run({**values, PARAM.name: beginning}, pattern)
                if refutation is not None:
                    return refutation
        return self._solve(values, min(steps, LIMITS.unrolled_steps))

    # --- values ----------------------------------------------------------------------------------

    def _values(self, hint: Point) -> Point | None:
        """Values of the open hyperparameters: from a point, completed as is assumed."""
        goals = [node for goal in self.goals for node in (goal.statement, *goal.given)]
        symbols_by_name = {**self.system.variables, **symbols(*goals)}
        symbols_by_name = {
            name: node
            for name, node in symbols_by_name.items()
            if name not in self.system.changing and name not in (PARAM.name, *self.system.constants)
        }
        values = {name: hint[name] for name in symbols_by_name if name in hint}
        absent_names = [name for name in symbols_by_name if name not in values]
        if absent_names:
            facts = [
                equal(node, rational(values[n]))
                for n, node in symbols_by_name.items()
                if n in values
            ]
            # A point that satisfies all that is assumed refutes its negation.
            verdict = prove(
                negate(both(*self.assume)),
                assume=facts,
                effort=self.effort.portion(LIMITS.region_work),
            )
            point = verdict.counterexample or {}
            values |= {
                name: exact(point[name]) if name in point else _default(symbols_by_name[name])
                for name in absent_names
            }
        return {**values, **self.system.constants}

    def _patterns(self, inputs: Point, steps: int) -> Iterator[list[Point]]:
        """Inputs of each step of a run: constant, alternating, single, and drawn ones."""
        yield [inputs] * steps
        # A fixed seed: the same runs, and so verdicts, each time.
        draw = random.Random(1)
        shapes = [
            [fmpq(0)] * steps,
            *([size] * steps for size in _SIZES),
            *([-size] * steps for size in _SIZES[:1]),
            *([size if k % 2 else -size for k in range(steps)] for size in _SIZES[:2]),
            *([size if k == 0 else fmpq(0) for k in range(steps)] for size in _SIZES),
            [_SIZES[1] if k == 0 else _SIZES[2] for k in range(steps)],
            *([_draw_number(draw) for _ in range(steps)] for _ in range(LIMITS.drawn_runs)),
        ]
        names = [node.value.name for node in self.system.inputs]
        for shape in shapes:
            yield [dict.fromkeys(names, number) for number in shape]
            if len(names) > 1:
                yield [{name: _draw_number(draw) for name in names} for _ in shape]

    # --- runs ------------------------------------------------------------------------------------

    def _run(self, values: Point, inputs: Iterable[Point]) -> Refutation | None:
        """The first step of a run at which the goal is false."""
        rows: list[Point] = []
        for point in self._points(values, inputs):
            rows.append({node.value.name: point[node.value.name] for node in self.system.inputs})
            refutation = self._judge(point, values, rows)
            if refutation is not None:
                return refutation
        return None

    def _points(self, values: Point, inputs: Iterable[Point]) -> Iterator[Point]:
        """The values of all symbols at each step, as far as the steps are defined."""
        point = dict(values)
        point |= {name: value(node, point) for name, node in self.system.first.items()}
        for step_inputs in inputs:
            if not self.effort.left:
                return
            point |= step_inputs
            point |= {name: value(node, point) for name, node in self.system.schedules.items()}
            if not _has_values(point):
                return
            yield dict(point)
            following = {name: value(node, point) for name, node in self.system.following.items()}
            point |= following
            if not _has_values(point):
                return

    def _judge(self, point: Point, values: Point, rows: list[Point]) -> Refutation | None:
        for goal in self.goals:
            counterexample = examine(goal.statement, (*self.assume, *goal.given), point)
            if counterexample is None:
                continue
            names = {_CLOCK, *symbols(goal.statement, *goal.given)}
            visible = {name: point[name] for name in sorted(names) if name in point}
            first = {name: n for name, n in values.items() if name not in self.system.constants}
            run = Run(_rationals(first), tuple(map(_rationals, rows)), len(rows) - 1)
            return Refutation(goal, visible, counterexample.reason, (RUN,), 0, run)
        return None

    # --- states as functions of the gradients ----------------------------------------------------

    def _solve(self, values: Point, steps: int) -> Refutation | None:
        """A run to a state that the prover finds among those after a few steps."""
        places = {
            node: rational(values[name])
            for name, node in self._symbols().items()
            if name in values and name != PARAM.name
        }
        terms = {name: substitute(node, places) for name, node in self.system.first.items()}
        terms[PARAM.name] = term(PARAM)
        inputs: list[dict[str, Term]] = []
        for _ in range(steps):
            inputs.append(self._new_inputs(len(inputs)))
            here = places | self._at(terms, inputs[-1])
            goal = self.goals[0]
            statement = substitute(goal.statement, here)
            facts = [substitute(fact, here) for fact in (*self.assume, *goal.given)]
            portion = self.effort.portion(LIMITS.unrolled_work)
            verdict = prove(statement, assume=facts, effort=portion)
            if verdict.refuted and verdict.counterexample is not None:
                refutation = self._replay(values, inputs, verdict.counterexample)
                if refutation is not None:
                    return refutation
            if self.effort.left <= 0 or _is_large(terms.values()):
                return None
            terms = {name: substitute(node, here) for name, node in self.system.following.items()}
        return None

    def _symbols(self) -> dict[str, Term]:
        system = (
            *self.system.first.values(),
            *self.system.following.values(),
            *self.system.schedules.values(),
        )
        goals = [node for goal in self.goals for node in (goal.statement, *goal.given)]
        return symbols(*system, *goals, *self.assume)

    def _new_inputs(self, step: int) -> dict[str, Term]:
        """Symbols of the inputs of a step."""
        return {
            node.value.name: own_symbol(f"{node.value.name} {step}") for node in self.system.inputs
        }

    def _at(self, terms: Mapping[str, Term], inputs: Mapping[str, Term]) -> dict[Term, Term]:
        """The term of each symbol at a step."""
        clock = {CLOCK: terms[_CLOCK]}
        terms = {
            **terms,
            **inputs,
            **{name: substitute(node, clock) for name, node in self.system.schedules.items()},
        }
        return {node: terms[name] for name, node in self._symbols().items() if name in terms}

    def _replay(
        self, values: Point, inputs: list[dict[str, Term]], model: Mapping[str, Any]
    ) -> Refutation | None:
        numbers = {str(name): exact(number) for name, number in model.items()}
        rows = [
            {name: numbers.get(str(node.value.name), fmpq(0)) for name, node in row.items()}
            for row in inputs
        ]
        return self._run({**values, PARAM.name: numbers.get(PARAM.name, fmpq(0))}, rows)

    def points(self, steps: int) -> list[Point]:
        """The points of a few runs."""
        values = self._values({})
        if values is None:
            return []
        first = {node.value.name: fmpq(1) for node in self.system.inputs}
        return [
            point
            for pattern in self._patterns(first, steps)
            for point in self._points({**values, PARAM.name: fmpq(1)}, pattern)
        ]


_SIZES = tuple(fmpq(*pair) for pair in ((1, 1), (1, 1000), (1000, 1), (1, 10**8)))


def _draw_number(draw: random.Random) -> fmpq:
    return fmpq(draw.randint(-8, 8), draw.choice((1, 2, 10)))


def _default(node: Term) -> fmpq:
    """A value of a symbol of which nothing is assumed."""
    return fmpq(1) if node.value.integer else fmpq(1, 2)


def _has_values(point: Point) -> bool:
    return not any(isinstance(number, Undefined) for number in point.values())


def _rationals(point: Point) -> dict[str, sp.Rational]:
    return {name: sp.Rational(int(n.p), int(n.q)) for name, n in point.items()}


def _is_large(terms: Iterable[Term]) -> bool:
    return next(islice(walk(*terms), LIMITS.unrolled_nodes, None), None) is not None
