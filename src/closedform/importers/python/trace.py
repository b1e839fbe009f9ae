"""Python functions of the step to schedules: every path is run once, with a symbol as the step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, TraceError, nearest
from closedform.importers.python.compare import (
    SINGLE_TOLERANCE,
    TOLERANCE,
    Comparison,
    FloatModel,
    RoundedSteps,
    compare,
    compare_graph,
    steps_of,
)
from closedform.importers.python.join import (
    Outcome,
    Raised,
    ValueRange,
    cells_of,
    join_cells,
    split_floors,
)
from closedform.importers.python.number import Number, operand, tape_argument
from closedform.importers.python.place import (
    NotReal,
    Place,
    Unreachable,
    Untraceable,
    UserValue,
    place_of_exception,
    place_of_function,
)
from closedform.importers.python.prover import Prover
from closedform.importers.python.rebuild import Environment
from closedform.importers.python.run import LIMITS, Limits, Run, Task, negation
from closedform.importers.python.tape import STEP, Conditioning, End
from closedform.language import Schedule, hyper, t
from closedform.language.settled import substitute
from closedform.schedules.branches import hold_last

Function = Callable[..., object]
_WITNESSES = 256
"""Steps at which an exception is looked for in the function itself."""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """How a schedule was read from a Python function.

    Attributes:
        function: The name of the function.
        place: Its first line; None where it has no code.
        paths: The number of its paths that some step takes.
        comparison: How far the schedule is from the function.
        raises: The exceptions that the function raises for some steps: the schedule has no value
            there.
        notes: What else was found, such as calls that were left out.
    """

    function: str
    place: Place | None
    paths: int
    comparison: Comparison
    raises: tuple[Raised, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        comparison = self.comparison
        lines = [
            f"{self.function}: {self.paths} paths, compared at {comparison.points} steps, "
            f"largest difference {comparison.largest_difference:.3g}"
        ]
        if comparison.rounded:
            steps = ", ".join(map(str, comparison.rounded))
            lines.append(f"the function rounds to another value at steps {steps}")
        lines += [f"no value {interval}" for interval in self.raises]
        return "\n".join([*lines, *self.notes])


class TracedSchedule(Schedule):
    """A schedule that was read from a Python function, with the report of how.

    Attributes:
        trace: The report.
    """

    __slots__ = ("trace",)
    trace: TraceReport

    def __getstate__(self) -> dict[str, Any]:
        return {
            key: getattr(self, key) for key in (*Schedule.__slots__, "trace") if key != "_cache"
        }


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function of the step.

    Attributes:
        name: The name of the function.
        values: The values of the variables that may become hyperparameters, by name; None for a
            parameter without a value.
        required: Parameters besides the step that must be given, with whether they are integers.
    """

    name: str
    values: Mapping[str, Any]
    required: Mapping[str, bool]


def trace(
    function: Function,
    prover: Prover,
    *,
    name: str | None = None,
    hyper: Iterable[str | sp.Symbol] = (),
    limits: Limits = LIMITS,
) -> TracedSchedule:
    """Returns the schedule that a Python function of the step computes.

    Args:
        function: A function, lambda, partial, method or callable object. Its first argument is the
            step.
        prover: What decides comparisons.
        name: The name of the schedule; that of the function if not given.
        hyper: Names of parameters, closure variables, globals or attributes that remain symbols.
        limits: How far the trace goes.

    Raises:
        TraceError: The function cannot be traced, or is not a function of the step.
        DefinitionError: A name in ``hyper`` is not a variable of the function.
    """
    signature = signature_of(function)
    symbols = _symbols(signature, hyper)
    _check_required(signature, symbols)

    def build(environment: Environment) -> TracedFunction:
        rebuilt: Any = environment.wrap(function)
        keywords = {key: environment.symbols[key] for key in signature.required}
        return lambda step: rebuilt(step, **keywords)

    program = TracedProgram(signature.name, build, function, place_of_function(function))
    values = {
        key: signature.values[key] for key in symbols if signature.values.get(key) is not None
    }
    result = run_program(program, prover, symbols, limits=limits)
    unused_names = [
        key for key in symbols if key not in result.used_names | set(signature.required)
    ]
    if unused_names:
        raise DefinitionError(
            f"{unused_names[0]!r} is not a variable that the function uses",
            where=f"function {signature.name!r}",
            hint=nearest(unused_names[0], signature.values) if signature.values else None,
        )
    return result.schedule(name or signature.name, values, is_callable=not signature.required)


def signature_of(function: Function) -> Signature:
    """Returns the parameters of a function of the step.

    Raises:
        TraceError: It is not callable, or takes no positional argument.
    """
    name = getattr(function, "__name__", None)
    if name is None:
        # functools.partial has no __name__.
        inner = getattr(function, "func", None)
        name = getattr(inner, "__name__", type(function).__name__)
    name = "function" if name == "<lambda>" else str(name)
    # A class is callable, and makes an object instead of a value.
    if not callable(function) or isinstance(function, type):
        raise TraceError(
            f"a schedule is read from a function of the step, got {type(function).__name__} "
            f"{function!r}",
            hint="pass a function, such as lambda step: 0.1 * 0.99**step",
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        # Builtins such as math.sqrt may have no signature.
        return Signature(name, {}, {})
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # `def rate(*args)` may take the step.
    is_variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    if not is_variadic and not any(p.kind in positional for p in parameters):
        raise TraceError(
            "the function takes no argument for the step",
            where=f"function {name!r}",
            hint="wrap it in a function of the step, which sets what it reads: "
            "def rate(step): scheduler.batch = step; return scheduler.get_lr()[0]",
        )
    hyperparameters = [p for p in parameters[1:] if "VAR" not in p.kind.name]
    values = {p.name: None if p.default is p.empty else p.default for p in hyperparameters}
    integer_flags = {
        p.name: p.annotation in (int, "int")
        for p in hyperparameters
        if p.default is inspect.Parameter.empty
    }
    return Signature(name, {**_outer_values(function), **values}, integer_flags)


def _outer_values(function: Any) -> dict[str, Any]:
    """The globals, closure variables and attributes that a function uses, with their values."""
    keywords = getattr(function, "keywords", {})
    inner = getattr(function, "func", function)
    owner = getattr(inner, "__self__", None if hasattr(inner, "__code__") else inner)
    method = getattr(inner, "__func__", inner)
    if not hasattr(method, "__code__"):
        method = getattr(type(inner).__call__, "__func__", type(inner).__call__)
    code = getattr(method, "__code__", None)
    outer_values: dict[str, Any] = {}
    if code is not None:
        space = method.__globals__
        outer_values.update({key: space[key] for key in code.co_names if key in space})
        outer_values.update(inspect.getclosurevars(method).nonlocals)
    outer_values.update(getattr(owner, "__dict__", {}))
    return {**outer_values, **keywords}


def _symbols(signature: Signature, requests: Iterable[str | sp.Symbol]) -> dict[str, sp.Symbol]:
    if isinstance(requests, str):
        requests = (requests,)
    symbols: dict[str, sp.Symbol] = {}
    for entry in requests:
        if isinstance(entry, sp.Symbol):
            symbols[entry.name] = entry
            continue
        if entry not in signature.values:
            raise DefinitionError(
                f"{entry!r} is not a variable of the function",
                where=f"function {signature.name!r}",
                hint=nearest(entry, signature.values) if signature.values else None,
            )
        value = signature.values[entry]
        is_integer = isinstance(value, int) or signature.required.get(entry, False)
        # Positive symbols let SymPy decide t < warmup for t = 0 and cancel divisions.
        is_count = isinstance(value, int) and value > 0
        symbols[entry] = hyper(entry, integer=is_integer, positive=is_count or None)
    return symbols


def _check_required(signature: Signature, symbols: Mapping[str, sp.Symbol]) -> None:
    missing = [key for key in signature.required if key not in symbols]
    if missing:
        raise TraceError(
            f"the parameter {missing[0]!r} has no value",
            where=f"function {signature.name!r}",
            hint=f"give it with functools.partial(…, {missing[0]}=…), or name it in hyper",
        )


TracedFunction = Callable[[Number], Any]


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """A program that is run on every path.

    Attributes:
        name: Its name, for errors.
        build: Returns the function of the step in an environment.
        original: The same as a function of an integer, for the comparison; None if there is none.
        place: The line where it begins; None if it is not known.
        first: The first step.
    """

    name: str
    build: Callable[[Environment], TracedFunction]
    original: Callable[[int], object] | None
    place: Place | None = None
    first: int = 0


def run_program(
    program: TracedProgram,
    prover: Prover,
    symbols: Mapping[str, sp.Symbol],
    *,
    limits: Limits = LIMITS,
) -> Traced:
    """Returns what a program computes on every path.

    Args:
        program: The program.
        prover: What decides comparisons.
        symbols: The symbols that take the place of its variables.
        limits: How far the trace goes.

    Raises:
        TraceError: A path cannot be traced.
    """
    run = Run(prover, frozenset(symbols.values()), limits)
    numbers = {key: Number(run, symbol, bool(symbol.is_integer)) for key, symbol in symbols.items()}
    environment = Environment(run, numbers)
    tracer = _Tracer(program, run, environment)
    outcomes = tracer.outcomes()
    domain, rest = _domain(outcomes)
    cells = split_floors(cells_of(rest), prover)
    if all(cell.value is None for cell in cells):
        raise tracer.always_raises(outcomes)
    return Traced(program, run, cells, rest, domain, frozenset(environment.used))


class _Tracer:
    """Runs a program on every path."""

    def __init__(self, program: TracedProgram, run: Run, environment: Environment) -> None:
        self.program = program
        self.run = run
        self._environment = environment

    def outcomes(self) -> list[Outcome]:
        """Returns what each path returns or raises.

        Raises:
            TraceError: A path cannot be traced.
        """
        run, runs = self.run, 0
        run.pending = [Task(self.program.first, None)]
        outcomes: list[Outcome] = []
        try:
            call = self.program.build(self._environment)
            while run.pending:
                runs += 1
                if runs > run.limits.runs:
                    raise self._too_many()
                outcome = self._outcome(call, run.pending.pop())
                if outcome is not None:
                    outcomes.append(outcome)
        except Untraceable as stop:
            raise stop.error(self.program.name) from None
        finally:
            self._environment.restore_members()
        return outcomes

    def _too_many(self) -> Untraceable:
        place = max(self.run.splits, key=self.run.splits.__getitem__)
        return Untraceable(
            f"more than {self.run.limits.runs} paths, most of which begin here",
            place,
            hint="bound the step, or make the branches a table outside the function",
        )

    def _outcome(self, call: TracedFunction, task: Task) -> Outcome | None:
        """Returns the outcome of the function on a part of the steps of a task."""
        self.run.begin(task)
        self._environment.begin()
        error: BaseException | None = None
        try:
            value = call(Number(self.run, t, True))
            self.run.is_over = True
            read = self._read(value)
            self.run.tape.result = tape_argument(value)
        # Signals of the trace are BaseExceptions, which `except Exception` of the function does not
        # catch.
        except (Exception, Untraceable, Unreachable, NotReal) as raised:
            error = raised
        self.run.is_over = True
        if self.run.stop is not None:  # whatever a handler of the function made of it
            error = self.run.stop
        match error:
            case Unreachable():
                return None
            case Untraceable():
                raise error
            case Exception() | NotReal():
                self._environment.check_unchanged()
                self.run.tape.result = End.RAISES
                return self._outcome_of_exception(error)
        if self.run.doubt is not None:
            raise self.run.doubt
        self._environment.check_unchanged()
        return Outcome(self.run.task, read, self.run.tape)

    def _read(self, value: Any) -> sp.Expr:
        read = operand(self.run, value)
        if read is None:
            text = "None" if value is None else f"{type(value).__name__} {value!r}"
            raise Untraceable(
                f"the function must return a number, and returns {text} from step "
                f"{self.run.first} on",
                self.program.place,
            )
        return read.expr

    def _outcome_of_exception(self, error: Exception | NotReal) -> Outcome | None:
        """An exception of the function, which it raises without a trace, too."""
        task, tape = self.run.task, self.run.tape
        place = place_of_exception(error, self.run.codes)
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        interval = Raised(task.first, task.end, tuple(task.facts), text, place)
        unbound = task.facts and {s for fact in task.facts for s in fact.free_symbols} - {t}
        is_internal = isinstance(error, TypeError | AttributeError | NotImplementedError)
        # No traced value is None: an operation of None is wrong in the function, too.
        is_internal = is_internal and "NoneType" not in text
        witness = None if unbound else self._witness(task)
        if self.run.symbols or self.program.original is None:
            if is_internal:
                raise Untraceable(text, place) from None
            return Outcome(task, interval, tape) if unbound or witness is not None else None
        if witness is None:
            if self.run.prover.decide(sp.false, self.run.facts()) is not True:
                self.run.notes[f"not excluded: {interval}"] = None
            return None
        try:
            value = self.program.original(witness)
        except Exception as own:
            text = f"{type(own).__name__}: {own}" if str(own) else type(own).__name__
            return Outcome(task, replace(interval, exception=text), tape)
        if isinstance(value, complex) and not isinstance(value, float):
            reason = f"the value is complex: {value}"
            return Outcome(task, replace(interval, exception=reason), tape)
        if isinstance(value, float) and not math.isfinite(value):
            return Outcome(task, replace(interval, exception=f"the value is {value}"), tape)
        watch = Conditioning(TOLERANCE)
        if tape.run({STEP: witness}, watch) is End.ANOTHER and watch.is_sensitive:
            return Outcome(task, replace(interval, is_rounded_away=True), tape)
        raise Untraceable(
            f"{text}, which the function does not raise with an integer as the step", place
        ) from None

    def _witness(self, task: Task) -> int | None:
        """A step at which the assumptions of a task hold, among the first ones."""
        end = task.first + _WITNESSES
        for step in range(task.first, end if task.end is None else min(end, task.end)):
            if all(self.run.prover.split(fact, step, step + 1)[0].truth for fact in task.facts):
                return step
        return None

    def always_raises(self, outcomes: Sequence[Outcome]) -> TraceError:
        """Returns the error of a function that has no value at any step."""
        interval = next(o.value for o in outcomes if isinstance(o.value, Raised))
        where = f"function {self.program.name!r}" if interval.place is None else str(interval.place)
        return TraceError(
            f"the function has no value at any step: {interval.exception}", where=where
        )


def _domain(outcomes: Sequence[Outcome]) -> tuple[list[sp.Basic], list[Outcome]]:
    """The conditions under which exceptions on only hyperparameters are not raised; the rest."""
    domain: list[sp.Basic] = []
    rest: list[Outcome] = []
    for outcome in outcomes:
        facts = outcome.task.facts
        is_whole = outcome.task.first == 0 and outcome.task.end is None
        is_free = bool(facts) and not any(t in fact.free_symbols for fact in facts)
        # `if lr <= 0: raise` is a condition on the hyperparameter for all steps: a domain.
        if isinstance(outcome.value, Raised) and is_whole and is_free:
            negations = [negation(fact) for fact in facts]
            domain.append(
                negations[0] if len(negations) == 1 else sp.Or(*negations, evaluate=False)
            )
        else:
            rest.append(outcome)
    return domain, rest or list(outcomes)


@dataclass(frozen=True, slots=True)
class Traced:
    """The outcome of a program.

    Attributes:
        program: The program.
        run: The last one of its runs.
        cells: Its values on intervals of steps.
        outcomes: What each path returns or raises.
        domain: Conditions on the symbols under which it has a value.
        used_names: The variables that symbols took the place of.
    """

    program: TracedProgram
    run: Run
    cells: Sequence[ValueRange]
    outcomes: Sequence[Outcome]
    domain: Sequence[sp.Basic]
    used_names: frozenset[str]

    def schedule(
        self, name: str, values: Mapping[str, Any], *, is_callable: bool = True
    ) -> TracedSchedule:
        """Returns the values as a schedule, which is compared with the program.

        Args:
            name: Its name.
            values: The values of hyperparameters.
            is_callable: Whether the program can be called with only an integer step.

        Raises:
            TraceError: The schedule differs from the program.
        """
        cells, domain = list(self.cells), list(self.domain)
        gap = self._first_gap()
        if gap is not None:
            # An exception ends a run, and with it the clock: the expression is total, as graphs
            # are.
            cells = [cell for cell in cells if cell.first < gap.first]
            value = cells[-1].value
            value = None if value is None else hold_last(value, gap.first - 1)
            cells[-1] = replace(cells[-1], end=None, value=value)
            domain.append(sp.Lt(t, gap.first))
            if gap.end is not None:
                self.run.notes[f"the schedule ends there, before step {gap.end}"] = None
        last = cells[-1]
        # Constant from there on: the schedule has a length.
        is_constant = last.value is not None and not last.value.free_symbols
        is_settled = gap is None and is_constant and last.first > 0
        expr = join_cells(cells)
        used_names = {symbol.name for symbol in expr.free_symbols} | {t.name}
        schedule = TracedSchedule(
            expr,
            name=name,
            length=last.first if is_settled else None,
            domain=[rule for rule in domain if {s.name for s in rule.free_symbols} <= used_names],
            **{key: value for key, value in values.items() if key in used_names},
        )
        if schedule.open or not is_callable or self.program.original is None:
            self.run.notes["not compared: a hyperparameter has no value"] = None
            comparison = Comparison(0, 0.0, None, RoundedSteps((), None))
        else:
            comparison = self._comparison(schedule, values)
        if gap is not None:
            object.__setattr__(schedule, "ending", self._reason(gap.first))
        report = TraceReport(
            self.program.name,
            self.program.place,
            len(self.outcomes),
            comparison,
            tuple(o.value for o in self.outcomes if isinstance(o.value, Raised)),
            tuple(self.run.notes),
        )
        object.__setattr__(schedule, "trace", report)
        return schedule

    def _first_gap(self) -> ValueRange | None:
        """The first steps without a value after some with one, where the program raises."""
        first = next(place for place, cell in enumerate(self.cells) if cell.value is not None)
        gaps = [cell for cell in self.cells[first:] if cell.value is None]
        return next((gap for gap in gaps if gap.end is None or self._reason(gap.first)), None)

    def _reason(self, step: int) -> str:
        """The exception that the program raises at a step, with its place; "" if there is none."""
        for outcome in self.outcomes:
            steps = outcome.value
            if not isinstance(steps, Raised) or steps.is_rounded_away:
                continue
            if steps.first <= step and (steps.end is None or step < steps.end):
                return steps.exception + ("" if steps.place is None else f" ({steps.place})")
        return ""

    def _comparison(self, schedule: Schedule, values: Mapping[str, Any]) -> Comparison:
        """The comparison with the program, at the values of its hyperparameters."""
        original, run = self.program.original, self.run
        by_name = schedule.hyperparameters
        bindings = {s: by_name[s.name] for s in schedule.expr.free_symbols if s.name in by_name}

        def bound(value: sp.Expr) -> sp.Expr:
            return substitute(value, bindings) if bindings else value

        cells = [
            cell if cell.value is None else ValueRange(cell.first, cell.end, bound(cell.value))
            for cell in self.cells
        ]
        # Integers of a function are mostly steps at which it changes: off-by-one errors show next
        # to them.
        near = [int(v) + d for v in values.values() if isinstance(v, int) for d in (-1, 0, 1)]
        if run.is_single:
            run.notes["the function computes in float32, the schedule in exact numbers"] = None
        model = FloatModel(
            tuple(cells),
            tuple(self.outcomes),
            run.prover,
            {**{s.name: number for s, number in bindings.items()}, **values},
            SINGLE_TOLERANCE if run.is_single else TOLERANCE,
        )
        steps = steps_of(cells, near)
        with _keep_attributes(getattr(original, "__self__", original)), redirect_stdout(StringIO()):
            comparison = compare(
                original,  # type: ignore[arg-type]
                model,
                self.program.name,
                steps,
                is_single=run.is_single,
            )
        last = schedule.last_step
        compared_steps = [step for step in steps if last is None or step <= last]
        compare_graph(schedule, compared_steps, model.exact, f"function {self.program.name!r}")
        return comparison


@contextmanager
def _keep_attributes(owner: UserValue) -> Iterator[None]:
    """Gives an object its attributes back at the end, where the function assigns some."""
    attributes: dict[str, Any] = getattr(owner, "__dict__", {})
    before = dict(attributes)
    try:
        yield
    finally:
        if isinstance(attributes, dict):  # of a class it cannot be assigned
            attributes.clear()
            attributes.update(before)
