"""Schedules: pure functions of the clock, written as SymPy expressions."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, overload

import sympy as sp
from sympy.logic.boolalg import Boolean

from closedform import delegation
from closedform.errors import DefinitionError, DomainError, describe, nearest
from closedform.language import description
from closedform.language.aliases import Number, Steps
from closedform.language.exact import value_at
from closedform.language.lengths import with_lengths
from closedform.language.printing import latex
from closedform.language.settled import substitute
from closedform.language.symbols import GRAD, PARAM, exact_number, rationalize, t

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from closedform.analysis.resuming import Resumed
    from closedform.language.quantities import Quantity
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.report import Report


class Schedule:
    r"""A value for every step: an expression in the clock ``t`` and hyperparameters.

    Args:
        expr: A SymPy expression in ``closedform.t`` and symbols, or a number.
        name: A name for graphs, files and errors.
        length: Number of steps after which its shape is complete, if it has one: a number, or an
            expression in the hyperparameters; ``then`` begins the next schedule there.
        domain: Conditions on the hyperparameters under which the schedule is defined, such as
            ``flat < steps``. They are checked as soon as the values are known, and
            ``verify`` assumes them of those that are open. A condition ``t <= last`` or
            ``t < end`` declares the last step at which the schedule is used.
        **hyperparameters: Values of symbols by name. Symbols without a value stay open; ``bind``
            gives them one later, or the exporter makes them inputs of the graph.

    Raises:
        DefinitionError: ``expr`` is not an expression, a value does not name a symbol of it, or
            ``domain`` contains something other than a condition on its symbols.
        DomainError: The values do not satisfy ``domain``.

    Example:
        >>> import sympy as sp
        >>> from closedform import Schedule, t
        >>> peak, warmup = sp.symbols("peak warmup")
        >>> lr = Schedule(
        ...     sp.Piecewise((peak * t / warmup, t < warmup), (peak, True)), peak=3e-4, warmup=2000
        ... )
        >>> lr(500)
        7.5e-05
        >>> lr.exact(500)
        3/40000
    """

    __slots__ = ("_cache", "domain", "duration", "ending", "expr", "hyperparameters", "name")

    _cache: dict[str, Any]
    domain: tuple[sp.Basic, ...]
    duration: sp.Expr | None
    ending: str
    expr: sp.Expr
    hyperparameters: dict[str, sp.Expr]
    name: str

    def __init__(
        self,
        expr: sp.Expr | float,
        *,
        name: str = "schedule",
        length: Steps | None = None,
        domain: Iterable[sp.Basic] = (),
        **hyperparameters: Number,
    ) -> None:
        self._define(expr, name, length, domain, hyperparameters)

    def _define(
        self,
        expr: sp.Expr | float,
        name: str,
        length: Steps | None,
        domain: Iterable[sp.Basic],
        hyperparameters: Mapping[str, Number],
        ending: str = "",
    ) -> None:
        checked_expr = _expression(expr, name)
        symbols = _symbols(checked_expr, name)
        values = {
            key: _value(key, value, symbols, name) for key, value in sorted(hyperparameters.items())
        }
        self.__setstate__(
            {
                "expr": checked_expr,
                "name": name,
                "duration": _duration(length),
                "domain": _domain(domain, symbols, values, name),
                "hyperparameters": values,
                "ending": ending,
            }
        )

    @classmethod
    def of(
        cls,
        expr: sp.Expr | float,
        values: Mapping[str, Number],
        *,
        name: str = "schedule",
        length: Steps | None = None,
        domain: Iterable[sp.Basic] = (),
        ending: str = "",
    ) -> Schedule:
        """Returns a schedule whose hyperparameters may have any name, such as ``name``.

        Args:
            expr: The expression.
            values: Values of symbols by name.
            name: Its name.
            length: The step at which its shape is complete.
            domain: Conditions on the hyperparameters and the clock.
            ending: Why there is no value after the last step of the domain, for errors.

        Raises:
            DefinitionError: As for ``Schedule``.
        """
        schedule = cls.__new__(cls)
        schedule._define(expr, name, length, domain, values, ending)
        return schedule

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Schedule is immutable: cannot set {name!r}; use bind()")

    def __getstate__(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.__slots__ if key != "_cache"}

    def __setstate__(self, content: Mapping[str, Any]) -> None:
        for key, value in content.items():
            # Past the own __setattr__, which refuses. Pickles hold no cache: it has graphs and
            # callables.
            object.__setattr__(self, key, value)
        object.__setattr__(self, "_cache", {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        # By form and not by value: equal functions may be unequal here, which diff and the prover
        # decide.
        return self.expr == other.expr and self.hyperparameters == other.hyperparameters

    def __hash__(self) -> int:
        return hash((self.expr, tuple(self.hyperparameters.items())))

    def __repr__(self) -> str:
        values = description.assignments(self.assignments)
        return f"<Schedule {self.name!r}{': ' if values else ''}{values}>"

    def __str__(self) -> str:
        return description.as_text(self)

    @property
    def bound(self) -> sp.Expr:
        """The expression with every known hyperparameter replaced by its exact value."""
        return self.memo("bound", lambda: self._bind_in(self.expr))

    @property
    def length(self) -> sp.Integer | None:
        """The step at which the shape is complete; None if there is none, or it is still open."""
        if self.duration is None:
            return None
        number = self._bind_in(self.duration)
        return number if number.is_number else None

    @property
    def last_step(self) -> int | None:
        """The last step that the domain declares; None if it does not, or the number is open.

        Example:
            >>> import closedform as cf
            >>> cf.Schedule(2**cf.t, domain=(cf.t < 1000,)).last_step
            999
        """
        ends = [self._bind_in(_last_of(rule)) for rule in self.domain if t in rule.free_symbols]
        return min((int(end) for end in ends if end.is_number), default=None)

    def _bind_in(self, expr: sp.Expr) -> sp.Expr:
        by_name = self.hyperparameters
        symbols = expr.free_symbols - {t}
        return substitute(expr, {s: by_name[s.name] for s in symbols if s.name in by_name})

    def memo(self, key: str, make: Callable[[], Any]) -> Any:
        """Returns the result of ``make`` from the first call with this key."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    @property
    def assignments(self) -> dict[str, sp.Expr | None]:
        """Each hyperparameter with its value, None for one that is open."""
        return {**dict.fromkeys(symbol.name for symbol in self.open), **self.hyperparameters}

    @property
    def open(self) -> tuple[sp.Symbol, ...]:
        """The symbols that have no value yet, by name."""
        return tuple(sorted(self.bound.free_symbols - {t}, key=lambda symbol: symbol.name))

    @with_lengths
    def rename(self, name: str) -> Schedule:
        """Returns the schedule under another name."""
        return Schedule.of(
            self.expr,
            self.hyperparameters,
            name=name,
            length=self.duration,
            domain=self.domain,
            ending=self.ending,
        )

    @with_lengths
    def bind(
        self, values: Mapping[str, Number] | None = None, /, **hyperparameters: Number
    ) -> Schedule:
        """Returns the schedule with these hyperparameters set or changed.

        Args:
            values: Values by name, for names that Python or this method has another use for.
            **hyperparameters: Values by name.
        """
        values_by_name = {**(values or {}), **hyperparameters}
        return self._with(self.expr, {**self.hyperparameters, **values_by_name})

    @with_lengths
    def unbind(self, *names: str) -> Schedule:
        """Returns the schedule with these hyperparameters open again; all of them if none is named.

        Raises:
            DefinitionError: A name has no value here.
        """
        for name in names:
            if name not in self.hyperparameters:
                raise DefinitionError(
                    f"{name!r} is not bound",
                    where=f"schedule {self.name!r}",
                    hint=nearest(name, self.hyperparameters) if self.hyperparameters else None,
                )
        unbound = names or tuple(self.hyperparameters)
        remaining = {
            key: self.hyperparameters[key] for key in self.hyperparameters if key not in unbound
        }
        return self._with(self.expr, remaining)

    @overload
    def __call__(self, step: int | np.integer) -> float: ...
    @overload
    def __call__(self, step: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]: ...
    def __call__(
        self, step: int | np.integer | Sequence[int] | NDArray[np.integer]
    ) -> float | NDArray[np.float64]:
        """Returns the value at a step, in float64; for an array of steps, an array of its shape.

        Raises:
            DefinitionError: A step is not an integer, is negative, or a hyperparameter is open.
            DomainError: A step is after the last one that the domain declares.
        """
        return delegation.functions().evaluate_schedule(self, step)

    def exact(self, step: int) -> sp.Expr:
        """Returns the exact value at a step as a SymPy number.

        Raises:
            DefinitionError: The step is not an integer >= 0, or a hyperparameter is open.
            DomainError: The schedule has no finite real value there, or the step is after the last
                one that the domain declares.
        """
        if self.open:
            raise DefinitionError(
                f"hyperparameters {[symbol.name for symbol in self.open]} have no value",
                where=f"schedule {self.name!r}",
                hint="give them with bind()",
            )
        number = whole_steps(step, "step")
        self.check_last(int(number))
        return value_at(self.bound, {t: number})

    def check_last(self, step: int) -> None:
        """Raises DomainError if a step is after the last one that the domain declares."""
        last = self.memo("last", lambda: self.last_step)
        if last is not None and step > last:
            because = f": {self.ending}" if self.ending else ""
            raise DomainError(
                f"the schedule has no value at t = {step}, its last step is {last}{because}",
                where=f"schedule {self.name!r}",
                hint="splice(…) continues it with another schedule",
            )

    def resolve(self, facts: object = None, /, **fact_values: object) -> Schedule:
        """Returns the schedule in optimizer updates.

        It is this one, unless it has lengths in other units: then facts of the run convert them.

        Args:
            facts: Facts of the run, or a mapping of them by name.
            **fact_values: Further facts.

        Raises:
            ArgumentError: A fact is missing; the message names all that are.

        Example:
            >>> from closedform import schedules, units
            >>> lr = schedules.linear(1, 0, units.epochs(2))
            >>> lr.resolve(dataset_size=1000, global_batch_size=10).length
            200
        """
        return self

    def latex(self) -> str:
        """Returns the formula in LaTeX, hyperparameters as symbols."""
        return latex(self.expr)

    def _repr_latex_(self) -> str | None:
        return f"$\\displaystyle {self.latex()}$"

    def _repr_html_(self) -> str:
        return description.as_html(self, delegation.functions().picture({self.name: self}))

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        steps: int | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """Draws the schedule with matplotlib; see :func:`closedform.plot`, which has more options.

        Args:
            path: A .png, .svg or .pdf file.
            steps: The last step of the plot.
            ax: The axes to draw in.
        """
        return delegation.functions().plot(self, path, steps=steps, ax=ax)

    def verify(
        self,
        *claims: Claim,
        assume: Iterable[sp.Basic] = (),
        effort: float = 1.0,
        budget: float | None = None,
    ) -> Report:
        """Returns the verdicts of claims; see :func:`closedform.api.verification.verify`."""
        return delegation.functions().verify(
            self, *claims, assume=assume, effort=effort, budget=budget
        )

    def then(self, other: Schedule, *, at: Steps | None = None) -> Schedule:
        """Returns this schedule until step ``at``, then ``other`` from its own step 0.

        Args:
            other: What follows; at ``t = at`` it has begun.
            at: The milestone; the length of this schedule if not given.
        """
        from closedform.language.compose import sequential

        check_schedule(other, "then takes a Schedule", f"schedule {self.name!r}")
        return sequential((self, other), None if at is None else (at,))

    def repeat(self, every: Steps | None = None) -> Schedule:
        """Returns this schedule started again every ``every`` steps; its length if not given."""
        from closedform.language.compose import repeat

        return repeat(self, every)

    def splice(self, at: Steps, new: Schedule) -> Schedule:
        """Returns this schedule before step ``at``, and ``new`` at the same step from there on."""
        from closedform.language.compose import splice

        return splice(self, at, new)

    def area(self, until: int | None = None) -> Quantity:
        """Returns the sum of the values of all updates, for an equation: ``lr.area() == 0.5``.

        Args:
            until: The number of updates; the length if not given.
        """
        from closedform.language.quantities import Quantity

        return Quantity(self, until=until)

    def at(self, step: int) -> Quantity:
        """Returns the value at an update, for an equation: ``lr.at(1000) == 1e-4``."""
        from closedform.language.quantities import Quantity

        return Quantity(self, step=int(whole_steps(step, "step")))

    def resume(
        self,
        at: int,
        new: Schedule | None = None,
        *,
        total: int | None = None,
        batch_sizes: tuple[Number, Number] | None = None,
        scaling: str = "none",
    ) -> Resumed:
        """Returns this schedule changed at an update of its run; see ``closedform.resume``."""
        return delegation.functions().resume(
            self, at, new, total=total, batch_sizes=batch_sizes, scaling=scaling
        )

    @with_lengths
    def scale(self, factor: Number) -> Schedule:
        """Returns ``factor`` times this schedule."""
        return self._with(exact_number(factor, "factor") * self.expr, self.hyperparameters)

    def __mul__(self, other: Schedule | Number) -> Schedule:
        """Returns ``factor`` times this schedule, or the product of two schedules."""
        from closedform.language.compose import product

        if not _is_operand(other):
            return NotImplemented
        return product((self, other)) if isinstance(other, Schedule) else self.scale(other)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Number) -> Schedule:
        """Returns this schedule divided by a number other than 0."""
        if isinstance(divisor, Schedule) or not _is_operand(divisor):
            return NotImplemented
        number = exact_number(divisor, "the divisor")
        if number == 0:
            raise DefinitionError(
                "the divisor must not be 0, got 0", where=f"schedule {self.name!r}"
            )
        return self.scale(1 / number)

    def __add__(self, other: Schedule | Number) -> Schedule:
        """Returns this schedule plus a number or a schedule, at each step."""
        from closedform.language.compose import total

        if not _is_operand(other):
            return NotImplemented
        return total((self, other)) if isinstance(other, Schedule) else self._add_number(other)

    __radd__ = __add__

    def __neg__(self) -> Schedule:
        """Returns this schedule with the other sign."""
        return self.scale(-1)

    def __sub__(self, other: Schedule | Number) -> Schedule:
        """Returns this schedule minus a number or a schedule, at each step."""
        return self + -other if _is_operand(other) else NotImplemented

    def __rsub__(self, other: Number) -> Schedule:
        """Returns a number minus this schedule, at each step."""
        return -self + other if _is_operand(other) else NotImplemented

    @with_lengths
    def _add_number(self, number: Number) -> Schedule:
        return self._with(exact_number(number, "the summand") + self.expr, self.hyperparameters)

    @with_lengths
    def clip(self, low: Number | None = None, high: Number | None = None) -> Schedule:
        """Returns this schedule clamped to ``low`` and ``high``; None leaves a side open.

        Raises:
            DefinitionError: A bound is not a finite number, or ``low`` is above ``high``.
        """
        lowest = None if low is None else exact_number(low, "low")
        highest = None if high is None else exact_number(high, "high")
        if lowest is not None and highest is not None and lowest > highest:
            raise DefinitionError(
                f"low must be at most high, got {low!r} and {high!r}",
                where=f"schedule {self.name!r}",
                hint="give the lower bound first",
            )
        # min(max(f, low), high), the order of torch.clamp and numpy.clip; low <= high was checked,
        # so the order is free.
        expr = self.expr if lowest is None else sp.Max(self.expr, lowest)
        expr = expr if highest is None else sp.Min(expr, highest)
        return self._with(expr, self.hyperparameters)

    @with_lengths
    def shift(self, steps: Steps) -> Schedule:
        """Returns this schedule as seen ``steps`` later: its value at t is that of t + steps.

        A negative number delays it; until then it holds its first value.
        """
        offset = exact_number(steps, "steps")
        if not offset.is_integer:
            raise DefinitionError(f"steps must be an integer, got {steps!r}")
        # Steps before 0 have no values: formulas are stated for t >= 0 only.
        local = t + offset if offset >= 0 else sp.Max(t + offset, 0)
        length = None if self.duration is None else sp.Max(self.duration - offset, 0)
        schedule = self._with(self.expr.xreplace({t: local}), self.hyperparameters, length=length)
        # xreplace would write t + offset <= last, which _last_of refuses: conditions are
        # shifted by hand.
        ends = [_last_of(rule) - offset for rule in self.domain if t in rule.free_symbols]
        if not ends:
            return schedule
        rules = [rule for rule in schedule.domain if t not in rule.free_symbols]
        return Schedule.of(
            schedule.expr,
            schedule.hyperparameters,
            name=schedule.name,
            length=schedule.duration,
            domain=[*rules, *(t <= end for end in ends)],
            ending=schedule.ending,
        )

    def _with(
        self, expr: sp.Expr, hyperparameters: Mapping[str, Any], *, length: Any = ...
    ) -> Schedule:
        # A hyperparameter that the new expression no longer has is dropped silently if it was one
        # of this schedule; an unknown name stays, for the error of the constructor.
        used_names = {symbol.name for symbol in expr.free_symbols} | {t.name}
        unknown = set(hyperparameters) - used_names - set(self.hyperparameters)
        rules = [rule for rule in self.domain if {s.name for s in rule.free_symbols} <= used_names]
        return Schedule.of(
            expr,
            {key: hyperparameters[key] for key in hyperparameters if key in used_names | unknown},
            name=self.name,
            length=self.duration if length is ... else length,
            domain=rules,
            ending=self.ending,
        )


def _is_operand(value: object) -> bool:
    """Whether a value is a schedule or a number; those that are not exact numbers are refused."""
    return isinstance(value, numbers.Number | sp.Expr | Schedule) and not isinstance(value, bool)


def check_schedule(value: object, subject: str, where: str | None = None) -> None:
    """Refuses a value that is not a Schedule; ``subject`` says what was expected, for the error."""
    if isinstance(value, Schedule):
        return
    hint = "make one with closedform.schedules or closedform.Schedule"
    if isinstance(value, int | float | Fraction | sp.Number):
        hint = f"closedform.schedules.constant({value}) is one"
    raise DefinitionError(f"{subject}, got {describe(value)}", where=where, hint=hint)


def _symbols(expr: sp.Expr, name: str) -> dict[str, sp.Symbol]:
    """Returns the symbols but the clock by name."""
    symbols: dict[str, sp.Symbol] = {}
    for symbol in expr.free_symbols - {t}:
        if symbol.name in symbols:
            raise DefinitionError(
                f"two symbols are named {symbol.name!r}, with different assumptions",
                where=f"schedule {name!r}",
                hint="make the symbol once, with hyper() or sympy.symbols, and use it twice",
            )
        symbols[symbol.name] = symbol
    return symbols


def _value(key: str, value: Number, symbols: Mapping[str, sp.Symbol], name: str) -> sp.Expr:
    """Returns the exact value of a hyperparameter, which its symbol admits."""
    where = f"schedule {name!r}"
    if key not in symbols:
        raise DefinitionError(
            f"{key!r} is not a symbol of the expression",
            where=where,
            hint=nearest(key, symbols) if symbols else "the expression has no symbols",
        )
    number = exact_number(value, f"hyperparameter {key!r}")
    if symbols[key].is_positive and not number > 0:
        raise DomainError(f"{key} must be above 0, got {value}", where=where)
    if symbols[key].is_integer and not number.is_integer:
        raise DomainError(f"{key} must be an integer, got {value}", where=where)
    return number


def _domain(
    conditions: Iterable[sp.Basic],
    symbols: Mapping[str, sp.Symbol],
    values: Mapping[str, sp.Expr],
    name: str,
) -> tuple[sp.Basic, ...]:
    """Returns the conditions, each checked where all of its symbols have values."""
    where = f"schedule {name!r}"
    checked_conditions = []
    for condition in conditions:
        if not isinstance(condition, Boolean) or condition.is_Symbol:
            raise DefinitionError(
                f"domain must hold conditions such as flat < steps, got {condition!r}", where=where
            )
        unknown = sorted(s.name for s in condition.free_symbols - {t} if s != symbols.get(s.name))
        if unknown:
            raise DefinitionError(
                f"{unknown[0]!r} in the domain is not a symbol of the expression",
                where=where,
                hint=nearest(unknown[0], symbols) if symbols else "the expression has no symbols",
            )
        if t in condition.free_symbols:
            _last_of(condition, where)
        # A condition is only false if all its symbols have values; SymPy leaves any other one open.
        numbers = {s: values[s.name] for s in condition.free_symbols if s.name in values}
        if condition.xreplace(numbers) == sp.false:
            keys = sorted(map(str, numbers))
            assignments = ", ".join(f"{key} = {numbers[symbols[key]]}" for key in keys)
            raise DomainError(f"{condition} must hold, got {assignments}", where=where)
        if condition != sp.true:
            checked_conditions.append(condition)
    return tuple(checked_conditions)


def _last_of(condition: sp.Basic, where: str = "") -> sp.Expr:
    """Returns the last step of ``t <= last`` or ``t < end``; DefinitionError for another."""
    if isinstance(condition, sp.Gt | sp.Ge):
        condition = condition.reversed
    is_end = isinstance(condition, sp.Lt | sp.Le) and condition.lhs == t
    if not is_end or t in condition.rhs.free_symbols:
        raise DefinitionError(
            f"a condition on t in the domain must be t <= last or t < end, got {condition}",
            where=where,
            hint="a schedule begins at t = 0: write other conditions as branches of a Piecewise",
        )
    end = condition.rhs
    # t is an integer: t <= 9.5 ends at 9, and t < 9.5 at ceil(9.5) - 1 = 9, t < 9 at 8.
    return sp.floor(end) if isinstance(condition, sp.Le) else sp.ceiling(end) - 1


def _duration(length: Steps | None) -> sp.Expr | None:
    """Returns a length as an Integer; an expression of hyperparameters stays as it is."""
    if length is None or (isinstance(length, sp.Expr) and not length.is_number):
        return length
    return whole_steps(length, "length")


def whole_steps(value: object, name: str) -> sp.Integer:
    """Returns a number of steps as an Integer; DefinitionError if it is not an integer >= 0."""
    number = exact_number(value, name)
    if not number.is_integer or number < 0:
        raise DefinitionError(f"{name} must be an integer >= 0, got {value!r}")
    return number


def _expression(expr: Any, name: str) -> sp.Expr:
    """Returns an expression with exact numbers, which must be a finite function of the clock."""
    if not isinstance(expr, sp.Expr):
        return exact_number(expr, f"the expression of schedule {name!r}")
    if expr.has(sp.I, sp.zoo, sp.nan, sp.oo, sp.S.NegativeInfinity):
        raise DefinitionError(
            f"a schedule must be finite and real, got {expr}", where=f"schedule {name!r}"
        )
    symbols = expr.free_symbols
    foreign = [symbol for symbol in symbols if symbol in (PARAM, GRAD)]
    if foreign:
        raise DefinitionError(
            f"a schedule is a function of t and hyperparameters, got {foreign[0]}",
            where=f"schedule {name!r}",
            hint="tensors belong in an UpdateRule",
        )
    # Symbols of one name with other assumptions are unequal: this one would stay open in a graph.
    if any(symbol.name == "t" and symbol != t for symbol in symbols):
        raise DefinitionError(
            "the expression holds a symbol t that is not the clock",
            where=f"schedule {name!r}",
            hint="write it with closedform.t, which is an integer >= 0",
        )
    result: sp.Expr = rationalize(expr, f"the expression of schedule {name!r}")
    return result
