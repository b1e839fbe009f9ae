"""Python control flow of traced code: the decisions of a run, and the tree of all runs.

A comparison whose truth depends on the step or on data is a decision: the code is run once for
each way that decisions can go, and the results are joined by ``Piecewise``. A comparison of
hyperparameters is resolved at their values, and one of sizes restricts the shapes of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.python.decider import Comparison, Decider
from closedform.importers.python.number import INDEX, KEY, Number
from closedform.importers.python.run import Decision
from closedform.importers.python.text import is_only_shown
from closedform.importers.tensors.algebra import constant
from closedform.importers.tensors.comparisons import comparison, is_finite, is_nan, is_of_data
from closedform.importers.tensors.values import Definitions, Value
from closedform.importers.torch_optimizer.feasibility import Feasibility
from closedform.importers.torch_optimizer.place import code_place
from closedform.importers.torch_optimizer.positions import (
    check_positions,
    is_of_every_model,
    is_position,
)
from closedform.importers.torch_optimizer.stand_ins import StandIns, plain
from closedform.language.exact import COMPARISONS
from closedform.language.shapes import SHAPE_SYMBOLS
from closedform.language.symbols import t

# 2**8: eight independent decisions.
MOST_RUNS = 256
"""The most runs of one step: each decision on data or on the step may double them."""


MOST_DECISIONS = 16
"""The most decisions of one run."""


@dataclass(eq=False)
class Run(Decider):
    """One run of the traced code.

    Attributes:
        hypers: Symbols of hyperparameters.
        prefix: Decisions to take, in order; those after them follow the values.
        definitions: The values with names, which bring equal conditions to one form.
        first: The first step of which the run is one.
        feasibility: Finds the steps that take some decisions; None where the run is the first step
            only.
        decisions: The decisions of this run.
        shape_conditions: Conditions on the shape that hold where the run is valid.
        refusal: What the run did first that the trace does not model.
        tape: Keeps the values of numbers.
        shape_questions: Conditions on the shapes of other parameters that were asked.
        codes: The ids of the codes of traced functions.
    """

    hypers: Collection[sp.Symbol]
    prefix: Sequence[Decision] = ()
    definitions: Definitions = field(default_factory=Definitions)
    first: int = 0
    feasibility: Feasibility | None = None
    decisions: list[Decision] = field(default_factory=list)
    shape_conditions: list[sp.Basic] = field(default_factory=list)
    refusal: TraceError | None = None
    tape: StandIns = field(default_factory=StandIns)
    shape_questions: set[sp.Basic] = field(default_factory=set)
    codes: set[int] = field(default_factory=set)
    is_exact = False

    def __post_init__(self) -> None:
        self._note()

    @property
    def is_steady(self) -> bool:
        """Whether the run is one of all later steps."""
        return self.feasibility is not None

    def time(self, decisions: Sequence[Decision]) -> int | None:
        """Returns a step that takes some decisions, as far as they depend on it; None if none does.

        Raises:
            TraceError: No step is known, and that there is none is not proved.
        """
        if self.feasibility is None:
            return self.first
        return self.feasibility.step(_conditions(decisions), self.first)

    def _note(self) -> None:
        """Gives the definitions that follow what holds of the step."""
        of_step = {t, *self.hypers}
        conditions = _conditions([d for d in self.decisions if d[0].free_symbols <= of_step])
        start = [sp.Ge(t, self.first)] if self.is_steady and self.first else []
        self.definitions.here = frozenset([*start, *conditions])

    def record(self, error: TraceError) -> TraceError:
        """Returns an error that the run ends with, even where traced code catches it."""
        if self.refusal is None:
            self.refusal = error
        return error

    def refuse(self, message: str, hint: str | None = None, where: str | None = None) -> TraceError:
        """Returns the error of something that the trace does not model, and records it."""
        return self.record(TraceError(message, where=where or code_place(), hint=hint))

    def number(self, value: float, expr: sp.Basic, unit: Any = None) -> Any:
        """Returns a number with a value; a plain one where the expression is that value."""
        return self._numbered(Number(self, expr, isinstance(plain(value), int), unit, value))

    def _numbered(self, number: Number) -> Any:
        value, expr = number.ref, number.expr
        if isinstance(value, complex):
            raise self.refuse(f"the number {expr} is complex")
        # A constant needs no expression, and plain numbers reach functions of C.
        if isinstance(expr, sp.Expr) and (expr.is_Rational or expr in (sp.oo, -sp.oo, sp.nan)):
            return value
        if not math.isfinite(value) and (not is_of_data(expr) or expr.has(sp.oo, -sp.oo)):
            return value
        # A bool is an int for arithmetic, as in Python.
        number.ref = int(value) if isinstance(value, bool) else value
        return number

    def settle(self, number: Number) -> Any:
        """Returns the result of arithmetic, of the operation's type; a plain number if constant."""
        # A place of a parameter plus an integer still is a place: its uses are checked later.
        if not is_position(number.expr):
            check_positions(self, number.expr, "arithmetic")
        # Not the type of its value: max(1, 0.1*t) is an int only at some steps.
        return self._numbered(number)

    def exact(self, value: float) -> sp.Expr:
        """Returns the expression of a constant."""
        return constant(value)

    def scalar(self, value: Any) -> Any:
        """Returns the number of a tensor that a function takes as a number; others as they are."""
        return value.item() if isinstance(value, torch.Tensor) else value

    def compare(self, kind: Comparison, left: Number, right: Number) -> bool:
        """Returns the truth of a comparison."""
        holds = bool(COMPARISONS[kind](left.ref, right.ref))
        return self.decide(comparison(kind, left.expr, right.expr), holds)

    def raises(self, kind: Comparison, number: Number) -> bool:
        """Returns whether Python raises an exception, as where a number compares so with 0."""
        if self.tape.is_silent:
            return False
        holds = bool(COMPARISONS[kind](number.ref, 0))
        condition = comparison(kind, number.expr, sp.Integer(0))
        is_asked = holds or is_of_data(number.expr)
        # The same way asks the same questions, whichever steps its stand-ins are of.
        if not is_asked and t in condition.free_symbols and self.feasibility is not None:
            conditions = _conditions([*self.decisions, (condition, True)])
            is_asked = self.feasibility.sampled_step(conditions, self.first) is not None
        return is_asked and self.decide(condition, holds)

    def check_finite(self, number: Number) -> None:
        """Raises the exception of Python where an integer is made of NaN or an infinity."""
        expr, value = number.expr, number.ref
        if number.is_int or self.tape.is_silent or not is_of_data(expr):
            return
        # One decision for finite numbers, two for the others.
        if not self.decide(is_finite(expr), math.isfinite(value)):
            if self.decide(is_nan(expr), value != value):
                raise ValueError("cannot convert float NaN to integer")
            raise OverflowError("cannot convert float infinity to integer")

    def concrete(self, number: Number, purpose: str) -> Any:
        """Returns the value of a number that is the same in every step."""
        if purpose != INDEX:
            check_positions(self, number.expr, purpose)
        is_constant = t not in number.expr.free_symbols and not is_of_data(number.expr)
        if not is_constant or purpose not in (INDEX, KEY):
            raise self.refuse(f"{purpose} is {number.expr}")
        return number.ref

    def fits(self, expr: sp.Expr, info: Any) -> bool:
        """Returns that an int64 holds an integer: of a count of steps, at the first 2**31 steps."""
        is_count = expr.free_symbols == {t}
        if info.bits < 64 or info.min == 0 or (is_count and not _is_within(expr, int(info.max))):
            self.note_single()
        return True

    def is_shown(self, frame: FrameType) -> bool:
        """Returns whether the text that a frame makes is only raised or logged."""
        return is_only_shown(frame, self.codes)

    def note_single(self) -> None:
        """Refuses a number in a narrow type."""
        raise self.refuse("a number is rounded or wrapped to a narrow type of NumPy")

    def decide(self, condition: sp.Basic, value: bool | None = None) -> bool:
        """Returns the truth of a condition that has this value on the traced numbers."""
        if condition in (sp.true, sp.false):
            return bool(condition)
        if value is None:
            raise self.refuse(f"a decision on {condition} is not traced")
        if is_of_every_model(condition):
            return value
        check_positions(self, condition, "a comparison")
        of_shapes = {s for s in condition.free_symbols - set(self.hypers) if _is_of_shape(s)}
        global_sizes = {symbol for symbol in of_shapes if symbol not in SHAPE_SYMBOLS}
        is_of_other_shape = global_sizes and condition.free_symbols - set(self.hypers) <= of_shapes
        if is_of_other_shape:
            if not condition.free_symbols & SHAPE_SYMBOLS:
                self.shape_questions.add(condition if value else sp.Not(condition))
            return value
        if condition.has(sp.oo, -sp.oo):
            return value
        # Twice the same question in two forms, such as x > 1 and 2x > 2, is one decision.
        condition = self.definitions.normal(condition)
        if condition in (sp.true, sp.false):
            return bool(condition)
        symbols = condition.free_symbols - set(self.hypers)
        if not symbols and not condition.atoms(sp.Function):
            return value
        # No fork: another trace, for another shape, is the other way.
        if symbols <= SHAPE_SYMBOLS:
            holds = condition if value else sp.Not(condition)
            if holds not in self.shape_conditions:
                self.shape_conditions.append(holds)
            return value
        for condition_before, truth in self.decisions:
            if condition_before == condition:
                return truth
            # The opposite question has the opposite answer, without a further run.
            if condition_before == sp.Not(condition):
                if not is_of_data(condition):
                    return not truth
                # A comparison with NaN and its opposite are both false.
                # SymPy would take the opposite for the negation.
                return self.decide(self.definitions.hide(condition), value)
        try:
            if self.time([*self.decisions, (condition, not value)]) is None:
                return value
        except TraceError as error:
            raise self.refuse(error.what, error.hint) from error.__cause__
        if len(self.decisions) < len(self.prefix):
            expected, truth = self.prefix[len(self.decisions)]
            # A prefix repeats the decisions of a run before; the same code must ask the same
            # questions.
            if expected != condition:
                raise self.refuse(
                    f"the step decides on {condition} where an earlier run decided on {expected}",
                    hint="its control flow depends on more than step, data and hyperparameters",
                )
            self.tape.is_other_way |= value is not truth
            value = truth
        if len(self.decisions) == MOST_DECISIONS:
            raise self.refuse(
                f"one step decides more than {MOST_DECISIONS} times on the step or on data",
                hint="a loop that ends when a number is small enough has no expression",
            )
        self.decisions.append((condition, value))
        self._note()
        return value


def _conditions(decisions: Sequence[Decision]) -> list[sp.Basic]:
    """Decisions as conditions that hold."""
    return [condition if truth else sp.Not(condition) for condition, truth in decisions]


def _is_of_shape(symbol: sp.Symbol) -> bool:
    return symbol in SHAPE_SYMBOLS or symbol.name.startswith("other.shape")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one run.

    Attributes:
        results: The parameter ("param") and each state by name, after the step.
        initial: The value with which the storage of each state was made, if the step made it.
        advances: Whether the step counts.
        is_begun: Whether the step has made all states; one that is missing has its first value.
        twin_results: The results of the second parameter.
    """

    results: Mapping[str, Value]
    initial: Mapping[str, Value | None]
    advances: bool
    is_begun: bool = True
    twin_results: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fork:
    """A decision and the trees of both ways that it can go; one that cannot be taken is None."""

    condition: sp.Basic
    holds: Tree | None
    fails: Tree | None


Tree = Outcome | Fork


Execution = tuple[Outcome | None, Sequence[Decision]]
"""The result of a run, None where the step raises an exception, and the decisions taken."""


def explore(execute: Callable[[Sequence[Decision]], Execution], where: str) -> Tree:
    """Returns the tree of all runs.

    Args:
        execute: Runs with forced decisions.
        where: What is traced, for errors.

    Raises:
        TraceError: There are more than ``MOST_RUNS`` runs.
    """
    runs: list[tuple[Outcome, Sequence[Decision]]] = []
    pending: list[list[Decision]] = [[]]
    while pending:
        prefix = pending.pop()
        result, decisions = execute(prefix)
        if len(decisions) < len(prefix):
            question = prefix[len(decisions)][0]
            raise TraceError(f"a run does not decide on {question}, as one before", where=where)
        if result is not None:
            runs.append((result, decisions))
        if len(runs) > MOST_RUNS:
            raise TraceError(
                f"one step has more than {MOST_RUNS} ways through its Python branches",
                where=where,
                hint=f"the last one decided on {decisions[-1][0]}",
            )
        for place in range(len(prefix), len(decisions)):
            condition, truth = decisions[place]
            # Only decisions behind the prefix: those in it are flipped by the run that they come
            # from.
            pending.append([*decisions[:place], (condition, not truth)])
    if not runs:
        raise TraceError("the step raises an exception in each of its ways", where=where)
    return _tree(runs, 0)


def _tree(runs: Sequence[tuple[Outcome, Sequence[Decision]]], depth: int) -> Tree:
    result, decisions = runs[0]
    if depth == len(decisions):
        return result
    condition = decisions[depth][0]
    sides = {truth: [run for run in runs if run[1][depth][1] is truth] for truth in (True, False)}
    trees = {truth: _tree(side, depth + 1) if side else None for truth, side in sides.items()}
    # A side without runs raises an exception in each of them: there the rule may have any value.
    only = trees[True] or trees[False]
    if only is not None and None in trees.values():
        return only
    return Fork(condition, trees[True], trees[False])


def leaves(tree: Tree | None) -> Iterator[Outcome]:
    """Yields the results of all runs of a tree."""
    if isinstance(tree, Outcome):
        yield tree
    elif tree is not None:
        yield from leaves(tree.holds)
        yield from leaves(tree.fails)


def join_outcomes(
    tree: Tree,
    value_of: Callable[[Outcome], sp.Basic],
    within: Callable[[sp.Basic, sp.Basic], sp.Basic] = lambda value, condition: value,
    are_same: Callable[[sp.Basic, sp.Basic], bool] = lambda first, second: False,
) -> sp.Basic:
    """Returns one value of all runs as a ``Piecewise`` on their decisions.

    Args:
        tree: The runs.
        value_of: The value of one result.
        within: Changes a value where a condition holds to one that is legal elsewhere, too.
        are_same: Whether two conditions are the same one on two parameters.
    """
    if isinstance(tree, Outcome):
        return value_of(tree)
    condition = tree.condition
    holds, fails = (
        None if side is None else join_outcomes(side, value_of, within, are_same)
        for side in (tree.holds, tree.fails)
    )
    if holds is None or fails is None or holds == fails:
        return fails if holds is None else holds
    # any(...) over the two parameters is a decision for each; for n of them it is one Or.
    for side, place, join in ((fails, 0, sp.Or), (holds, -1, sp.And)):
        if isinstance(side, sp.Piecewise) and len(side.args) == 2:
            (value, inner), (other_value, _) = side.args
            is_shared = side.args[place][0] == (holds if side is fails else fails)
            if is_shared and (are_same(condition, inner) or are_same(inner, condition)):
                return sp.Piecewise((value, join(condition, inner)), (other_value, True))
    return sp.Piecewise(
        (within(holds, condition), condition), (within(fails, sp.Not(condition)), True)
    )


def holding(tree: Tree, holds: Callable[[Outcome], bool]) -> sp.Basic:
    """Returns the condition on the decisions under which a property of the result holds."""
    if isinstance(tree, Outcome):
        return sp.true if holds(tree) else sp.false
    sides = [
        sp.false if side is None else holding(side, holds) for side in (tree.holds, tree.fails)
    ]
    if sides[0] == sides[1]:
        return sides[0]
    return sp.Or(sp.And(tree.condition, sides[0]), sp.And(sp.Not(tree.condition), sides[1]))


def _is_within(count: sp.Expr, largest: int) -> bool:
    """Whether a number of the step, and each of its summands, is so small at 2**31 steps."""
    summands = sp.Add.make_args(sp.expand(count))
    return bool(sum(abs(part.subs(t, _STEPS)) for part in summands) <= largest)


_STEPS = 2**31
