"""Schedulers of torch, and of packages that follow them, as one schedule for each param group.

The schedule is that of a run that goes on from the state in which the scheduler and its optimizer
are: a rate that was edited, or that a resumed optimizer has, is the one that the recurrence begins
with, at the step ``last_epoch``.

The scheduler's own method is traced, with the step as ``last_epoch``. A method that computes the
value from the value before is a recurrence: the closed form is that of ``_get_closed_form_lr``, or
one that ``recurrence`` finds, and an induction proves that the recurrence has its values. What is
composed of other schedulers is composed of their schedules. The result is compared with the
scheduler, run step by step on a separate optimizer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import types
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import sympy as sp
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    LRScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)

from closedform.errors import TraceError
from closedform.importers.python.compare import compare_graph
from closedform.importers.python.join import ValueRange, join_cells
from closedform.importers.python.number import Number
from closedform.importers.python.place import Place, UserValue
from closedform.importers.python.prover import Prover
from closedform.importers.python.rebuild import Environment, is_same_constant
from closedform.importers.python.trace import Traced, TracedProgram, run_program
from closedform.importers.recurrence import closed_form
from closedform.language import Schedule, exact_number, sequential, t
from closedform.language.printing import text
from closedform.language.symbols import internal_symbol

_PREVIOUS = internal_symbol("previous", "recurrence", real=True)
_TOLERANCE = 1e-9
"""Of the largest value: a recurrence in float64 rounds once or more a step."""
# Beyond the usual warmups and milestones of an example; each step of torch takes microseconds.
_COMPARED_STEPS = 160
_MOST_COMPARED = 20_000
_NEXT_STEPS = 240
_MOST_DENOMINATOR = 1000
"""Of a rate over that of the schedule: what an edit usually multiplies it with."""
_COMPOSITES = (SequentialLR, ChainedScheduler)
_CLOSED = "_get_closed_form_lr"
_BY_A_FUNCTION = "write the schedule as a function of the step, and use closedform.from_python"

# Methods of schedulers that are not torch's, of the step to the values of all groups.
_METHODS = ("_get_lr", "get_updated_values")


def is_scheduler(source: object) -> bool:
    """Returns whether an object is a scheduler that can be read."""
    return isinstance(source, LRScheduler) or any(hasattr(source, name) for name in _METHODS)


def schedules_of(scheduler: UserValue, prover: Prover) -> list[Schedule]:
    """Returns the schedule of each param group, in updates from the first one on.

    Args:
        scheduler: A scheduler of torch, timm, transformers, pytorch-accelerated, or a subclass.
        prover: What decides comparisons.

    Raises:
        TraceError: It depends on a metric, or on random numbers, or its values are given by a
            recurrence without a known closed form, which the message shows.
    """
    count = len(scheduler.optimizer.param_groups)
    schedules = [_Reader(prover, index).schedule(scheduler) for index in range(count)]
    if _is_as_from_the_first(scheduler):
        _compare(scheduler, schedules, prover)
    _compare_next(scheduler, schedules, prover)
    return schedules


def _method_of(scheduler: object) -> str | None:
    """The method of the number of updates, of a class that is not one of torch."""
    # A subclass of torch's class has get_lr, whatever other methods it has.
    if isinstance(scheduler, LRScheduler):
        return None
    return next((name for name in _METHODS if hasattr(scheduler, name)), None)


def _field(scheduler: object) -> str:
    """The entry of the param groups that is scheduled."""
    return str(getattr(scheduler, "param_group_field", "lr"))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the schedule of one param group.

    Attributes:
        prover: What decides comparisons.
        index: The index of the group.
        is_present: Whether the rate of the group is the last one that the scheduler has set. It is
            not for members of a composite that are not active.
    """

    prover: Prover
    index: int
    is_present: bool = True

    def schedule(self, scheduler: Any) -> Schedule:
        """Returns the schedule of a scheduler, in its own steps."""
        name = type(scheduler).__name__
        method = _method_of(scheduler)
        if method is not None:
            return self._by_rate(scheduler, method)
        # Before LRScheduler, of which it is a subclass in torch 2.13.
        if isinstance(scheduler, ReduceLROnPlateau):
            raise TraceError(
                "the value depends on a metric, which is not known before the run",
                where=name,
                hint="closedform.schedules.reduce_on_plateau is a rule with a state",
            )
        own_schedules = getattr(scheduler, "schedules", None)
        # A scheduler of closedform.torch: its schedules are exact.
        if isinstance(own_schedules, list) and all(
            isinstance(member, Schedule) for member in own_schedules
        ):
            return self._from_present(scheduler, own_schedules[self.index])
        _check_methods(scheduler)
        if isinstance(scheduler, SequentialLR):
            return self._sequence(scheduler)
        if isinstance(scheduler, ChainedScheduler):
            return self._chain(scheduler)
        if type(scheduler).step is not LRScheduler.step:
            return self._by_step(scheduler)
        return self._by_rate(scheduler)

    def _sequence(self, scheduler: SequentialLR) -> Schedule:
        """The members in a row."""
        name = type(scheduler).__name__
        first, *rest = scheduler._schedulers
        active = bisect_right(scheduler._milestones, scheduler.last_epoch)
        readers = [
            replace(self, is_present=self.is_present and place == active)
            for place in range(len(scheduler._schedulers))
        ]
        for member in rest:
            if isinstance(member, _COMPOSITES):
                raise TraceError(
                    f"a {type(member).__name__} follows another scheduler, where torch raises "
                    "NotImplementedError",
                    where=name,
                    hint="put its members into the outer SequentialLR",
                )
        marks = list(scheduler._milestones)
        starts: list[Schedule]
        if isinstance(first, SequentialLR):
            # torch sets the first value by a step, which is the second one of the inner clock.
            inner_active = bisect_right(first._milestones, _last_epoch(first))
            starts = [
                replace(
                    readers[0], is_present=readers[0].is_present and place == inner_active
                ).schedule(member)
                for place, member in enumerate(first._schedulers)
            ]
            # The inner clock is one step ahead.
            marks = [mark - 1 for mark in first._milestones] + marks
        elif isinstance(first, ChainedScheduler):
            idle = replace(self, is_present=False)
            starts = [self._product(first, [idle._late(part) for part in first._schedulers])]
        else:
            starts = [readers[0].schedule(first)]
        following = [
            reader.schedule(member) for reader, member in zip(readers[1:], rest, strict=True)
        ]
        return _in_sequence([*starts, *following], marks, name)

    def _chain(self, scheduler: ChainedScheduler) -> Schedule:
        """The product of the members, from the present rate on."""
        idle = replace(self, is_present=False)
        product = self._product(scheduler, [idle.schedule(m) for m in scheduler._schedulers])
        step, rate = _last_epoch(scheduler), self._rate(scheduler)
        if not self.is_present or self._agrees(product, step, rate):
            return product
        # A constant factor of the rate stays one where each member multiplies the rate.
        if all(map(self._is_factor, scheduler._schedulers)):
            exact = self._exact_rate(product, step, rate)
            multiple = _scale_to(product, step, exact, sp.Integer(0))
            if multiple is not None:
                return multiple
        raise self._no_continuation(scheduler, product, step, rate)

    def _is_factor(self, member: Any) -> bool:
        """Whether each step of a member multiplies the rate by a number."""
        if isinstance(member, _COMPOSITES) or type(member).step is not LRScheduler.step:
            return False
        cells = self._run(member, "get_lr", first=1).cells
        return all(
            cell.value is not None
            and _PREVIOUS not in sp.simplify(cell.value / _PREVIOUS).free_symbols
            for cell in cells
        )

    def _product(self, scheduler: ChainedScheduler, members: Sequence[Schedule]) -> Schedule:
        """The product of what the members make of the initial value."""
        base = self._base(scheduler)
        # Each member multiplies the value that it finds by its ratio to the base.
        expr = base * sp.Mul(*(member.expr / base for member in members))
        return Schedule(expr, name=type(scheduler).__name__)

    def _late(self, scheduler: LRScheduler) -> Schedule:
        """A member whose first value is set by a step, and not by its constructor."""
        schedule = self.schedule(scheduler)
        if isinstance(scheduler, _COMPOSITES):
            return schedule
        # get_lr of torch returns the initial value while _initial_step is set, else one step of the
        # recurrence.
        is_ahead = self._first(scheduler, is_initial=False) != self._first(scheduler)
        return schedule.shift(1) if is_ahead else schedule

    def _base(self, scheduler: Any) -> sp.Expr:
        name = f"initial_{_field(scheduler)}"
        # initial_lr may be a tensor.
        return exact_number(float(self._group(scheduler)[name]), name)

    def _group(self, scheduler: Any) -> dict[str, Any]:
        groups: list[dict[str, Any]] = scheduler.optimizer.param_groups
        return groups[self.index]

    # --- one scheduler -----------------------------------------------------------------------

    def _by_rate(self, scheduler: Any, method: str = "get_lr") -> Schedule:
        """The schedule that a method computes, or the closed form of its recurrence."""
        name = type(scheduler).__name__
        # A get_lr that is a function of last_epoch needs no induction.
        whole = self._run(scheduler, method, first=0, is_initial=False)
        if not _depends(whole) and whole.cells[0].value is not None:
            return self._from_present(scheduler, whole.schedule(name, {}))
        # From step 1 on, with a symbol for the value before.
        later = self._run(scheduler, method, first=1)
        first = self._first(scheduler, method)
        if not _depends(later):
            expr = join_cells([ValueRange(0, 1, first), *later.cells])
            return self._from_present(scheduler, Schedule(expr, name=name))
        following = join_cells(later.cells)
        candidates = list(self._candidates(scheduler, later, first))
        if self.is_present and method not in _METHODS:
            step, rate = scheduler.last_epoch, self._rate(scheduler)
            ideals = [Schedule(first)] if step == 0 else candidates
            if not any(self._agrees(schedule, step, rate) for schedule in ideals):
                return self._continuation(scheduler, candidates, later.cells)
        for candidate in candidates:
            # Induction: the first value, and each value from the one before.
            if self.prover.follows(candidate.expr, first, _PREVIOUS, following):
                return candidate
        raise TraceError(
            f"the value follows from the value before, with no known closed form: it is {first} at "
            f"t = 0 and {text(following)} at t >= 1",
            where=name,
            hint=_BY_A_FUNCTION,
        )

    def _candidates(self, scheduler: Any, later: Traced, first: sp.Expr) -> Iterator[Schedule]:
        name = type(scheduler).__name__
        if hasattr(scheduler, _CLOSED):
            # torch's own closed form first; it is proved, not trusted. No step of torch takes it,
            # and it may raise where get_lr does not.
            with contextlib.suppress(TraceError):
                yield self._run(scheduler, _CLOSED, first=0).schedule(name, {})
        formula = closed_form(later.cells, first, _PREVIOUS)
        if formula is not None:
            yield Schedule(formula, name=name)

    def _first(self, scheduler: Any, method: str = "get_lr", *, is_initial: bool = True) -> sp.Expr:
        """The value at step 0, from the initial value of the group."""
        cells = self._run(scheduler, method, first=0, is_initial=is_initial).cells
        value = cells[0].value
        if value is None:
            raise TraceError("there is no value at step 0", where=type(scheduler).__name__)
        first = {_PREVIOUS: self._base(scheduler), t: sp.Integer(0)}
        result: sp.Expr = value.xreplace(first)
        return result

    def _by_step(self, scheduler: LRScheduler) -> Schedule:
        """The schedule of a class whose ``step`` takes the number of the step."""
        name = type(scheduler).__name__
        parameters = list(inspect.signature(type(scheduler).step).parameters)
        # self and the step.
        if len(parameters) < 2:
            raise TraceError(
                "the class overrides step() with a method that does not take the number of it",
                where=name,
                hint=_BY_A_FUNCTION,
            )
        trace = self._run(scheduler, "step", first=0)
        if _depends(trace):
            raise TraceError("step() computes the value from the value before", where=name)
        schedule: Schedule = trace.schedule(name, {})
        if hasattr(scheduler, "T_cur"):
            schedule = _from_position(scheduler, schedule)
        return self._from_present(scheduler, schedule)

    # --- the present state -------------------------------------------------------------------

    def _rate(self, scheduler: Any) -> float:
        """The rate that the group has."""
        return float(self._group(scheduler)[_field(scheduler)])

    def _agrees(self, schedule: Schedule, step: int, rate: float) -> bool:
        """Whether a schedule has the rate of the group at a step, but for rounding."""
        value = self.prover.value(schedule.bound, step)
        return value is not None and abs(value - rate) <= _TOLERANCE * max(abs(value), abs(rate))

    def _exact_rate(self, schedule: Schedule, step: int, rate: float) -> sp.Expr:
        """The rate that the float is: a simple multiple of the schedule's, or the decimal."""
        value = self.prover.value(schedule.bound, step)
        if value:
            factor = Fraction(rate / value).limit_denominator(_MOST_DENOMINATOR)
            if factor and abs(float(factor) * value - rate) <= _TOLERANCE * abs(rate):
                ratio = sp.Rational(factor.numerator, factor.denominator)
                return ratio * _at(schedule, step)
        return exact_number(rate, "lr")

    def _from_present(self, scheduler: Any, schedule: Schedule) -> Schedule:
        """A function of the step, but for the present step where the rate was edited."""
        step = getattr(scheduler, "last_epoch", None)
        if not self.is_present or not isinstance(step, int) or step < 0:
            return schedule
        rate = self._rate(scheduler)
        if self._agrees(schedule, step, rate):
            return schedule
        present = (exact_number(rate, "lr"), sp.Eq(t, step))
        return Schedule(sp.Piecewise(present, (schedule.bound, True)), name=schedule.name)

    def _continuation(
        self,
        scheduler: Any,
        candidates: Sequence[Schedule],
        cells: Sequence[ValueRange],
    ) -> Schedule:
        """The schedule of a recurrence that goes on from the rate that the group has.

        A recurrence ``a(t) * before + b(t)`` has the solutions ``p(t) + c * (q(t) - p(t))`` for two
        solutions p and q; one of them is often a constant. Each is proved by induction from the
        present step on.
        """
        step, rate = scheduler.last_epoch, self._rate(scheduler)
        later = join_cells(cells).xreplace({t: t + step})

        rates = [values[self.index] for values in _next_values(scheduler, _NEXT_STEPS)]

        def is_solution(candidate: Schedule, exact: sp.Expr) -> bool:
            # Most candidates are not, which a few values show and a proof takes seconds to.
            if _first_difference(candidate, step, rates, self.prover) is not None:
                return False
            expr = candidate.bound.xreplace({t: t + step})
            return self.prover.follows(expr, exact, _PREVIOUS, later) is True

        for base in candidates:
            exact = self._exact_rate(base, step, rate)
            for candidate in _solutions(scheduler, base, step, exact):
                if is_solution(candidate, exact):
                    return candidate
        exact = exact_number(rate, "lr")
        solution = _from_there(cells, step, exact, type(scheduler).__name__)
        if solution is not None and is_solution(solution, exact):
            return solution
        raise self._no_continuation(scheduler, next(iter(candidates), None), step, rate)

    def _no_continuation(
        self, scheduler: Any, ideal: Schedule | None, step: int, rate: float
    ) -> TraceError:
        value = None if ideal is None else self.prover.value(ideal.bound, step)
        ideal_text = "" if value is None else f", and that from the initial rate on is {value!r}"
        return TraceError(
            f"at step {step} the rate is {rate!r}{ideal_text}: the values that follow have no "
            "known closed form",
            where=f"{type(scheduler).__name__}, param group {self.index}",
            hint="import the scheduler before its first step, or set the rate of the group to the "
            "value of the schedule",
        )

    def _run(
        self, scheduler: Any, method: str, *, first: int, is_initial: bool | None = None
    ) -> Traced:
        """Returns the result of a method for the group, with the clock at the step.

        Raises:
            TraceError: It depends on an entry of a param group that the method assigns.
        """
        changes: dict[str, None] = {}
        trace = self._trace(scheduler, method, first, is_initial, changes, {})
        entries = {name: _open_entry(scheduler, name, self.index) for name in changes}
        if entries:
            again = self._trace(scheduler, method, first, is_initial, {}, entries)
            for name, entry in entries.items():
                if entry.free_symbols & _symbols(again):
                    raise _state_error(scheduler, name, self.index)
        return trace

    def _trace(
        self,
        scheduler: Any,
        method: str,
        first: int,
        is_initial: bool | None,
        changes: dict[str, None],
        open_entries: Mapping[str, sp.Tuple],
    ) -> Traced:
        """Runs a method; notes the entries of the param groups that it changes.

        Args:
            scheduler: The scheduler.
            method: The name of the method.
            first: The first step.
            is_initial: Whether the constructor calls the method; at step 0 if None.
            changes: Gets the names of the entries, but that of the rate.
            open_entries: Symbols in the places of the numbers of entries.
        """
        # Without its constructor, which would take a step.
        stand_in: Any = object.__new__(type(scheduler))
        stand_in.__dict__.update({**vars(scheduler), "optimizer": None})
        groups, field = _entries(scheduler), _field(scheduler)

        def build(environment: Environment) -> Callable[[Number], Any]:
            instance = environment.wrap(stand_in)
            previous = Number(environment.run, _PREVIOUS)
            numbers = {
                name: tuple(Number(environment.run, symbol) for symbol in entry)
                for name, entry in open_entries.items()
            }

            def value_of(name: str, value: Any) -> Any:
                items = numbers.get(name)
                if items is None:
                    # A copy: the method may change a list in place.
                    return list(value) if type(value) is list else _constant(environment, value)
                return type(value)(items) if isinstance(value, list | tuple) else items[0]

            def call(step: Number) -> Any:
                param_groups = [
                    {**{k: value_of(k, v) for k, v in group.items()}, field: previous}
                    for group in groups
                ]
                entries_before = [
                    {k: list(v) if type(v) is list else v for k, v in group.items()}
                    for group in param_groups
                ]
                set_attribute = functools.partial(object.__setattr__, instance)
                optimizer = types.SimpleNamespace(param_groups=param_groups)
                environment.adopt(optimizer)
                set_attribute("optimizer", optimizer)
                try:
                    return result_of(step, set_attribute, param_groups)
                finally:
                    changes.update(_changed_entries(entries_before, param_groups, field))
                    changes.update(dict.fromkeys(vars(optimizer).keys() - {"param_groups"}))

            def result_of(step: Number, set_attribute: Any, param_groups: Any) -> Any:
                if method in _METHODS:
                    values = getattr(instance, method)(step)
                    return previous if values is None else _of_group(values, self.index)
                initial = environment.run.first == 0 if is_initial is None else is_initial
                set_attribute("last_epoch", step)
                set_attribute("_step_count", step + 1)
                set_attribute("_is_initial", initial)
                set_attribute("_get_lr_called_within_step", True)
                if hasattr(stand_in, "_last_lr"):
                    set_attribute("_last_lr", [previous] * len(groups))
                if method == "step":
                    instance.step(step)
                    return param_groups[self.index][field]
                return getattr(instance, method)()[self.index]

            return call

        bound = getattr(type(scheduler), method)
        program = TracedProgram(type(scheduler).__name__, build, None, _place(bound), first)
        symbols = [_PREVIOUS, *(symbol for entry in open_entries.values() for symbol in entry)]
        # A variable of the scheduler may have the name of a symbol, but none with a space.
        return run_program(program, self.prover, {f"symbol {s.name}": s for s in symbols})


def _scale_to(schedule: Schedule, step: int, rate: sp.Expr, level: sp.Expr) -> Schedule | None:
    """The schedule whose distance from a level is multiplied, so that it has a rate at a step."""
    distance = _at(schedule, step) - level
    if distance.evalf() == 0:
        return None
    expr = level + (rate - level) / distance * (schedule.bound - level)
    return Schedule(expr, name=schedule.name)


def _solutions(scheduler: Any, base: Schedule, step: int, rate: sp.Expr) -> Iterator[Schedule]:
    """Schedules that have a rate at a step, and may follow the recurrence of a base."""
    yield base
    least = getattr(scheduler, "eta_min", 0)
    levels = dict.fromkeys((sp.Integer(0), exact_number(least, "eta_min")))
    for level in levels:
        candidate = _scale_to(base, step, rate, level)
        if candidate is not None:
            yield candidate
            if hasattr(scheduler, "T_max"):
                yield _until_bottom(candidate, base, step, int(scheduler.T_max))
    yield Schedule(base.bound + rate - _at(base, step), name=base.name)


def _until_bottom(before: Schedule, base: Schedule, step: int, half: int) -> Schedule:
    """A schedule up to the next bottom of a cosine, from which torch adds ``base_lr``."""
    bottom = half * (2 * ((step + half) // (2 * half)) + 1)
    bottom = bottom if bottom >= step else bottom + 2 * half
    return Schedule(sp.Piecewise((before.bound, t <= bottom), (base.bound, True)), name=base.name)


def _from_there(
    cells: Sequence[ValueRange], step: int, rate: sp.Expr, name: str
) -> Schedule | None:
    """The closed form of a recurrence that begins with a rate at a step; constant before it."""
    later = [
        ValueRange(
            max(cell.first - step, 1),
            None if cell.end is None else cell.end - step,
            None if cell.value is None else cell.value.xreplace({t: t + step}),
        )
        for cell in cells
        if cell.end is None or cell.end > step + 1
    ]
    formula = closed_form(later, rate, _PREVIOUS)
    if formula is None:
        return None
    expr = formula.xreplace({t: t - step})
    return Schedule(sp.Piecewise((rate, t < step), (expr, True)), name=name)


def _at(schedule: Schedule, step: int) -> sp.Expr:
    """The value at a step, cosines as they are: SymPy writes some with nested roots."""
    cosines = {
        node: node.func(node.args[0].xreplace({t: sp.Integer(step)}), evaluate=False)
        for node in schedule.bound.atoms(sp.cos, sp.sin)
    }
    value: sp.Expr = schedule.bound.xreplace(cosines).xreplace({t: sp.Integer(step)})
    return value


def _from_position(scheduler: Any, schedule: Schedule) -> Schedule:
    """Warm restarts from the place in the cycle that the scheduler counts, from its step on.

    Built again with ``last_epoch``, torch counts ``T_cur`` in cycles of ``T_0``.
    """
    step, place, length = scheduler.last_epoch, scheduler.T_cur, scheduler.T_i
    first, growth = scheduler.T_0, scheduler.T_mult
    if not all(isinstance(number, int) for number in (step, place, length, first, growth)):
        return schedule
    start, cycle = 0, first
    while growth > 1 and cycle < length:
        start, cycle = start + cycle, cycle * growth
    if cycle != length or not 0 <= place < length or start + place == step:
        return schedule
    later_expr = schedule.bound.xreplace({t: t + (start + place - step)})
    expr = sp.Piecewise((schedule.bound, t < step), (later_expr, True))
    return Schedule(expr, name=schedule.name)


def _depends(trace: Traced) -> bool:
    """Whether a value depends on the value before."""
    return any(_PREVIOUS in cell.value.free_symbols for cell in trace.cells if cell.value)


def _check_methods(scheduler: Any) -> None:
    """Refuses methods in the places of those by which torch takes a step.

    Raises:
        TraceError: The scheduler has one.
    """
    own_update = getattr(type(scheduler), "_update_lr", None)
    names = [name for name in ("step", "_update_lr") if name in vars(scheduler)]
    if own_update is not getattr(LRScheduler, "_update_lr", None):
        names.append("_update_lr")
    if names:
        raise TraceError(
            f"the scheduler has a method {names[0]} instead of torch's, which may set other rates "
            "than get_lr()",
            where=type(scheduler).__name__,
            hint=_BY_A_FUNCTION,
        )


def _symbols(trace: Traced) -> set[sp.Basic]:
    """The symbols on which a value, or a decision, depends."""
    values = [cell.value for cell in trace.cells if cell.value is not None]
    facts = [fact for outcome in trace.outcomes for fact in outcome.task.facts]
    return set().union(*(expr.free_symbols for expr in (*values, *facts)))


def _changed_entries(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], field: str
) -> Iterator[tuple[str, None]]:
    """The names of the entries of param groups, but the rate, that a method has assigned."""
    for entries_before, entries in zip(before, after, strict=True):
        for name in {**entries_before, **entries}:
            is_kept = name in entries and name in entries_before
            if name == field or (is_kept and _is_same_entry(entries[name], entries_before[name])):
                continue
            yield name, None


def _is_same_entry(value: Any, before: Any) -> bool:
    if type(value) is list and type(before) is list and len(value) == len(before):
        return all(map(is_same_constant, value, before))
    return is_same_constant(value, before)


def _open_entry(scheduler: Any, name: str, index: int) -> sp.Tuple:
    """Symbols for the numbers of an entry of a param group.

    Raises:
        TraceError: It is neither a number nor a tuple of numbers.
    """
    value = _entries(scheduler)[index].get(name)
    items = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
        raise _state_error(scheduler, name, index)
    return sp.Tuple(
        *(internal_symbol(f"{name}_{place}", "entry", real=True) for place in range(len(items)))
    )


def _state_error(scheduler: Any, name: str, index: int) -> TraceError:
    return TraceError(
        f"the scheduler assigns {name!r} of the param groups or of the optimizer: it has a state",
        where=f"{type(scheduler).__name__}, param group {index}",
        hint=_BY_A_FUNCTION,
    )


def _entries(scheduler: Any) -> list[dict[str, Any]]:
    """The param groups without their parameters."""
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in scheduler.optimizer.param_groups
    ]


def _of_group(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list | tuple) else values


def _constant(environment: Environment, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return environment.constant(value) if isinstance(value, int | float) else value


def _place(function: Any) -> Place | None:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return None
    return Place(code.co_filename, code.co_firstlineno, code.co_qualname)


def _in_sequence(members: Sequence[Schedule], milestones: Sequence[int], name: str) -> Schedule:
    """Members in their own local time; one whose milestones are equal is never active."""
    parts: list[Schedule] = []
    marks: list[int] = []
    starts = [0, *milestones]
    for index, member in enumerate(members):
        end = milestones[index] if index < len(milestones) else None
        if end is not None and end <= starts[index]:
            continue
        if parts:
            marks.append(starts[index])
        parts.append(member)
    return sequential(parts, marks, name=name)


# --- the scheduler itself, step by step ----------------------------------------------------------


def _is_as_from_the_first(scheduler: Any) -> bool:
    """Whether steps from the first state on have come to the rates that the groups have.

    They have not where a rate or an argument was edited, or the scheduler was built again for an
    optimizer with another rate.
    """
    if _method_of(scheduler) is not None:
        return True
    steps = _last_epoch(scheduler)
    if steps > _MOST_COMPARED:
        return False
    rates = [float(group["lr"]) for group in _entries(scheduler)]
    states = list(_values(scheduler, steps + 1))
    return len(states) == steps + 1 and all(
        abs(rate - present) <= _TOLERANCE * max(abs(rate), abs(present))
        for rate, present in zip(states[-1], rates, strict=True)
    )


def _compare_next(scheduler: Any, schedules: Sequence[Schedule], prover: Prover) -> None:
    """Compares what a copy of the scheduler does next, in its present state, with the schedules."""
    if _method_of(scheduler) is not None:
        return
    rates = list(_next_values(scheduler, _NEXT_STEPS))
    present = _last_epoch(scheduler)
    for index, schedule in enumerate(schedules):
        where = f"{type(scheduler).__name__}, param group {index}"
        rates_of_group = [float(values[index]) for values in rates]
        difference = _first_difference(schedule, present, rates_of_group, prover)
        if difference is not None:
            raise TraceError(
                f"the schedule differs from the scheduler in its present state: at step {present} "
                f"the rate is {rates_of_group[0]!r}, and at step {difference} the schedule is "
                f"{prover.value(schedule.bound, difference)!r} and the scheduler sets "
                f"{rates_of_group[difference - present]!r}",
                where=where,
                hint="import the scheduler before its first step, or set the rate of the group to "
                "the value of the schedule",
            )
        steps = range(present, present + len(rates))
        compare_graph(schedule, steps, functools.partial(prover.value, schedule.bound), where)


def _first_difference(
    schedule: Schedule, first: int, rates: Sequence[float], prover: Prover
) -> int | None:
    """The first step at which a schedule differs from rates, the first of which is at a step."""
    scale = max(map(abs, rates), default=0.0)
    for step, rate in enumerate(rates, first):
        value = prover.value(schedule.bound, step)
        if value is None or not abs(value - rate) <= _TOLERANCE * scale:
            return step
    return None


def _next_values(scheduler: Any, steps: int) -> Iterator[list[float]]:
    """The values of all groups from the present step on; fewer where the scheduler raises."""
    groups = [
        {**entries, "params": [torch.nn.Parameter(torch.zeros(1))], "lr": float(entries["lr"])}
        for entries in _entries(scheduler)
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler_copy = _copy_value(scheduler, optimizer)
        yield [float(group["lr"]) for group in optimizer.param_groups]
        for _ in range(steps):
            try:
                scheduler_copy.step()
            except Exception:  # the end of a run, such as that of OneCycleLR
                return
            yield [float(group["lr"]) for group in optimizer.param_groups]


def _copy_value(value: Any, optimizer: torch.optim.Optimizer) -> Any:
    """A copy of a scheduler in its present state, or of a value in it.

    Objects of the user, such as a trainer whose method is the function of a LambdaLR, stay.
    """
    if isinstance(value, LRScheduler):
        scheduler_copy: Any = object.__new__(type(value))
        attributes = {
            name: _copy_value(entry, optimizer)
            for name, entry in vars(value).items()
            if name != "optimizer"
        }
        scheduler_copy.__dict__.update({**attributes, "optimizer": optimizer})
        return scheduler_copy
    if type(value) is dict:
        return {key: _copy_value(entry, optimizer) for key, entry in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_copy_value(entry, optimizer) for entry in value)
    return value.clone() if isinstance(value, torch.Tensor) else value


def _last_epoch(scheduler: Any) -> int:
    """The present step; a ChainedScheduler does not count by itself."""
    if isinstance(scheduler, ChainedScheduler):
        return _last_epoch(scheduler._schedulers[0])
    return int(scheduler.last_epoch)


def _compare(scheduler: Any, schedules: Sequence[Schedule], prover: Prover) -> None:
    """Compares a copy of the scheduler, on a new optimizer, with the schedules."""
    lengths = [int(schedule.length) for schedule in schedules if schedule.length is not None]
    marks = list(_milestones(scheduler))
    ends = [step + 2 for step in (*lengths, *marks)]
    count = min(max([_COMPARED_STEPS, *ends]), _MOST_COMPARED)
    rates = list(_values(scheduler, count))
    for index, schedule in enumerate(schedules):
        rates_of_group = [float(values[index]) for values in rates]
        scale = max(map(abs, rates_of_group), default=0.0)
        steps = _sample(len(rates_of_group), marks)
        if len(rates_of_group) < count and schedule.last_step != len(rates_of_group) - 1:
            raise TraceError(
                f"the scheduler raises an exception at step {len(rates_of_group)}, where the "
                "schedule has a value",
                where=f"{type(scheduler).__name__}, param group {index}",
                hint=_BY_A_FUNCTION,
            )
        for step in steps:
            value = prover.value(schedule.bound, step)
            if value is None:
                value = math.nan
            if not abs(value - rates_of_group[step]) <= _TOLERANCE * scale:
                raise TraceError(
                    f"the schedule differs from the scheduler: at step {step} it is {value!r}, and "
                    f"the scheduler sets {rates_of_group[step]!r}",
                    where=f"{type(scheduler).__name__}, param group {index}",
                    hint="members of a composite change each other's values"
                    if isinstance(scheduler, _COMPOSITES)
                    else "a value that the scheduler keeps from update to update is a state: "
                    f"{_BY_A_FUNCTION}",
                )
        where = f"{type(scheduler).__name__}, param group {index}"
        compare_graph(schedule, steps, functools.partial(prover.value, schedule.bound), where)


def _sample(count: int, marks: Sequence[int]) -> list[int]:
    """All of the first steps, those around milestones, and later ones at equal distances."""
    around = {mark + offset for mark in marks for offset in (-1, 0, 1)}
    regular = range(0, count, max(1, count // 50))
    steps = {*range(min(count, _COMPARED_STEPS)), *regular, *around, count - 1}
    return sorted(step for step in steps if 0 <= step < count)


def _milestones(scheduler: Any) -> Iterator[int]:
    """The milestones of a composite and of its members, in their own steps."""
    yield from getattr(scheduler, "_milestones", ())
    for member in getattr(scheduler, "_schedulers", ()):
        yield from _milestones(member)


def _values(scheduler: Any, steps: int) -> Iterator[list[float]]:
    """The values of all groups at the first steps; fewer where the scheduler raises."""
    method = _method_of(scheduler)
    if method is not None:
        yield from _values_of_method(scheduler, method, steps)
        return
    groups = [
        {
            **entries,
            "params": [torch.nn.Parameter(torch.zeros(1))],
            "lr": float(entries["initial_lr"]),
        }
        for entries in _entries(scheduler)
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler_copy = _copy_scheduler(scheduler, optimizer)
        _begin(scheduler_copy)
        for step in range(steps):
            if step:
                try:
                    scheduler_copy.step()
                except Exception:  # the end of a run, such as that of OneCycleLR
                    return
            yield [float(group["lr"]) for group in optimizer.param_groups]


def _values_of_method(scheduler: Any, method: str, steps: int) -> Iterator[list[float]]:
    """The values of a class with a method of the number of updates."""
    field, groups = _field(scheduler), _entries(scheduler)
    for group in groups:
        group[field] = float(group[f"initial_{field}"])
    copy: Any = object.__new__(type(scheduler))
    optimizer = types.SimpleNamespace(param_groups=groups)
    copy.__dict__.update({**vars(scheduler), "optimizer": optimizer})
    for step in range(steps):
        values = getattr(copy, method)(step)
        for index, group in enumerate(groups):
            group[field] = group[field] if values is None else float(_of_group(values, index))
        yield [group[field] for group in groups]


def _copy_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> Any:
    """A copy of a scheduler before its first step."""
    copy: Any = object.__new__(type(scheduler))
    copy.__dict__.update({**vars(scheduler), "optimizer": optimizer, "last_epoch": -1})
    copy._step_count = 0
    members: list[LRScheduler] | None = getattr(scheduler, "_schedulers", None)
    if members is not None:
        copy._schedulers = [_copy_scheduler(member, optimizer) for member in members]
        copy.last_epoch = 0
    if hasattr(copy, "T_0"):
        copy.T_i, copy.T_cur = copy.T_0, 0
    return copy


def _begin(scheduler: Any) -> None:
    """Sets the first value, as the constructors do."""
    match scheduler:
        case SequentialLR():
            scheduler._schedulers[bisect_right(scheduler._milestones, 0)]._initial_step()
        case ChainedScheduler():
            for member in scheduler._schedulers:
                _begin(member)
        case _:
            scheduler._initial_step()
