"""Schedules: pure functions of the clock, written as SymPy expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language.exact import value_at
from closedform.language.numbers import exact_number, rationalize
from closedform.language.symbols import GRAD, PARAM, t

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Schedule:
    r"""A value for every step: an expression in the clock ``t`` and hyperparameters.

    Args:
        expr: A SymPy expression in ``closedform.t`` and symbols, or a number.
        name: A name for graphs, files and errors.
        length: Number of steps after which its shape is complete, if it has one; ``then`` uses it.
        **hyperparameters: Values of symbols by name. Symbols without a value stay open; ``bind``
            gives them one later, or the exporter makes them inputs of the graph.

    Raises:
        DefinitionError: ``expr`` is no expression, or a value names no symbol of it.

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

    __slots__ = ("_cache", "expr", "hyperparameters", "length", "name")

    _cache: dict[str, Any]
    expr: sp.Expr
    hyperparameters: dict[str, sp.Expr]
    length: sp.Integer | None
    name: str

    def __init__(
        self,
        expr: sp.Expr | float,
        *,
        name: str = "schedule",
        length: Any = None,
        **hyperparameters: Any,
    ) -> None:
        checked = _expression(expr, name)
        symbols = {symbol.name: symbol for symbol in checked.free_symbols if symbol != t}
        for key in hyperparameters:
            if key not in symbols:
                raise DefinitionError(
                    f"{key!r} is no symbol of the expression",
                    where=f"schedule {name!r}",
                    hint=nearest(key, symbols) if symbols else "the expression has no symbols",
                )
        values = {
            key: exact_number(value, f"hyperparameter {key!r}")
            for key, value in sorted(hyperparameters.items())
        }
        object.__setattr__(self, "expr", checked)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "length", None if length is None else _steps(length, "length"))
        object.__setattr__(self, "hyperparameters", values)
        object.__setattr__(self, "_cache", {})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Schedule is immutable: cannot set {name!r}; use bind()")

    def __getstate__(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("expr", "name", "length", "hyperparameters")}

    def __setstate__(self, content: Mapping[str, Any]) -> None:
        for key, value in content.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "_cache", {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.expr == other.expr and self.hyperparameters == other.hyperparameters

    def __hash__(self) -> int:
        return hash((self.expr, tuple(self.hyperparameters.items())))

    def __repr__(self) -> str:
        values = "".join(f", {key}={value}" for key, value in self.hyperparameters.items())
        return f"Schedule({self.expr}, name={self.name!r}{values})"

    @property
    def bound(self) -> sp.Expr:
        """The expression with every known hyperparameter replaced by its exact value."""
        by_name = self.hyperparameters
        values = {
            symbol: by_name[symbol.name]
            for symbol in self.expr.free_symbols
            if symbol != t and symbol.name in by_name
        }
        return self.memo("bound", lambda: self.expr.xreplace(values))

    def memo(self, key: str, make: Callable[[], Any]) -> Any:
        """Returns what ``make`` returned when this key was first asked for."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    @property
    def open(self) -> tuple[sp.Symbol, ...]:
        """The symbols that have no value yet, by name."""
        return tuple(sorted(self.bound.free_symbols - {t}, key=lambda symbol: symbol.name))

    def bind(self, **hyperparameters: Any) -> Schedule:
        """Returns the schedule with these hyperparameters set or changed."""
        return self._with(self.expr, {**self.hyperparameters, **hyperparameters})

    def __call__(self, step: int | ArrayLike) -> float | NDArray[np.float64]:
        """Returns the value at a step, in float64; for an array of steps, an array of its shape.

        Raises:
            DefinitionError: A step is no integer, or negative, or a hyperparameter is open.
        """
        from closedform.compiler import evaluate_schedule

        return evaluate_schedule(self, step)

    def exact(self, step: int) -> sp.Expr:
        """Returns the exact value at a step as a SymPy number.

        Raises:
            DefinitionError: The step is no integer >= 0, or a hyperparameter is open.
            DomainError: The schedule has no finite real value there.
        """
        if self.open:
            raise DefinitionError(
                f"hyperparameters {[symbol.name for symbol in self.open]} have no value",
                where=f"schedule {self.name!r}",
                hint="give them with bind()",
            )
        return value_at(self.bound, {t: _steps(step, "step")})

    def latex(self) -> str:
        """Returns the formula in LaTeX, hyperparameters as symbols."""
        return str(sp.latex(self.expr))

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def plot(self, path: str | None = None, *, steps: int | None = None) -> Any:
        """Draws the schedule with matplotlib; see ``closedform.plotting.plot_schedule``."""
        from closedform.plotting import plot_schedule

        return plot_schedule(self, path, steps=steps)

    def then(self, other: Schedule, *, at: Any = None) -> Schedule:
        """Returns this schedule until step ``at``, then ``other`` from its own step 0.

        Args:
            other: What follows; at ``t = at`` it has begun.
            at: The milestone; the length of this schedule if not given.
        """
        return sequential((self, other), None if at is None else (at,))

    def scale(self, factor: Any) -> Schedule:
        """Returns ``factor`` times this schedule."""
        return self._with(exact_number(factor, "factor") * self.expr, self.hyperparameters)

    def clip(self, low: Any = None, high: Any = None) -> Schedule:
        """Returns this schedule held between ``low`` and ``high``; None leaves a side open."""
        expr = self.expr
        if low is not None:
            expr = sp.Max(expr, exact_number(low, "low"))
        if high is not None:
            expr = sp.Min(expr, exact_number(high, "high"))
        return self._with(expr, self.hyperparameters)

    def shift(self, steps: int) -> Schedule:
        """Returns this schedule as seen ``steps`` later: its value at t is that of t + steps.

        A negative number delays it; until then it holds its first value.
        """
        offset = exact_number(steps, "steps")
        if not offset.is_integer:
            raise DefinitionError(f"steps must be an integer, got {steps!r}")
        local = t + offset if offset >= 0 else sp.Max(t + offset, 0)
        length = None if self.length is None else sp.Max(self.length - offset, 0)
        return self._with(self.expr.xreplace({t: local}), self.hyperparameters, length=length)

    def _with(
        self, expr: sp.Expr, hyperparameters: Mapping[str, Any], *, length: Any = ...
    ) -> Schedule:
        kept = {symbol.name for symbol in expr.free_symbols}
        unknown = set(hyperparameters) - kept - set(self.hyperparameters)
        return Schedule(
            expr,
            name=self.name,
            length=self.length if length is ... else length,
            **{key: hyperparameters[key] for key in hyperparameters if key in kept | unknown},
        )


def sequential(
    schedules: Sequence[Schedule],
    milestones: Sequence[Any] | None = None,
    *,
    name: str = "sequential",
) -> Schedule:
    r"""Returns schedules one after the other, each in its own local time.

    .. math:: f(t) = f_i(t - m_{i-1}) \quad\text{for}\quad m_{i-1} \le t < m_i, \; m_{-1} = 0

    Args:
        schedules: At least one.
        milestones: The steps at which the next one begins, strictly increasing, one fewer than
            schedules; the running sum of the lengths if not given.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules, wrong number of milestones, milestones out of order or not
            integers > 0, or a schedule but the last has no length where milestones are not given.
    """
    if not schedules:
        raise DefinitionError("sequential needs at least one schedule, got none")
    marks = _milestones(schedules, milestones)
    shared, expressions = _merge(schedules)
    starts = (sp.Integer(0), *marks)
    local = [expr.xreplace({t: t - start}) for expr, start in zip(expressions, starts, strict=True)]
    pieces = [(expr, t < mark) for expr, mark in zip(local, marks, strict=False)]
    expr = sp.Piecewise(*pieces, (local[-1], True)) if pieces else local[0]
    last = schedules[-1].length
    length = None if last is None else starts[-1] + last
    return Schedule(expr, name=name, length=length, **_used(shared, expr))


def chained(schedules: Sequence[Schedule], *, name: str = "chained") -> Schedule:
    r"""Returns the first schedule times the relative course of each other one.

    .. math:: f(t) = f_0(t) \prod_{i \ge 1} f_i(t) / f_i(0)

    Raises:
        DefinitionError: No schedules, or a later one begins at 0.
    """
    if not schedules:
        raise DefinitionError("chained needs at least one schedule, got none")
    shared, expressions = _merge(schedules)
    expr = expressions[0]
    for index, member in enumerate(schedules[1:], 1):
        initial = value_at(member.bound, {t: sp.Integer(0), **{s: s for s in member.open}})
        if initial == 0:
            raise DefinitionError(
                "a chained schedule is divided by its first value, which is 0",
                where=f"member {index}, {member.name!r}",
                hint="put it first, or start it above 0",
            )
        expr = expr * expressions[index] / initial
    lengths = [member.length for member in schedules if member.length is not None]
    length = sp.Max(*lengths) if lengths else None
    return Schedule(expr, name=name, length=length, **_used(shared, expr))


def _merge(schedules: Sequence[Schedule]) -> tuple[dict[str, Any], list[sp.Expr]]:
    """Common hyperparameters, and the expressions; a name with two values is bound in each."""
    names = {key for member in schedules for key in member.hyperparameters}
    shared: dict[str, Any] = {}
    for name in sorted(names):
        users = [m for m in schedules if name in {s.name for s in m.expr.free_symbols}]
        values = {user.hyperparameters.get(name) for user in users}
        if len(values) == 1:
            shared[name] = values.pop()
    expressions = []
    for member in schedules:
        own = {
            symbol: member.hyperparameters[symbol.name]
            for symbol in member.expr.free_symbols
            if symbol.name in member.hyperparameters and symbol.name not in shared
        }
        expressions.append(member.expr.xreplace(own))
    return shared, expressions


def _used(hyperparameters: Mapping[str, Any], expr: sp.Expr) -> dict[str, Any]:
    names = {symbol.name for symbol in expr.free_symbols}
    return {key: value for key, value in hyperparameters.items() if key in names}


def _milestones(
    schedules: Sequence[Schedule], milestones: Sequence[Any] | None
) -> tuple[sp.Integer, ...]:
    if milestones is None:
        return _milestones_from_lengths(schedules)
    if len(milestones) != len(schedules) - 1:
        raise DefinitionError(
            f"milestones must be one fewer than schedules: expected {len(schedules) - 1}, "
            f"got {len(milestones)}"
        )
    marks = tuple(_steps(mark, "milestone") for mark in milestones)
    for earlier, later in zip((sp.Integer(0), *marks), marks, strict=False):
        if later <= earlier:
            raise DefinitionError(
                f"milestones must be above 0 and strictly increasing, got {later} after {earlier}",
                hint="sort them, and drop what occurs twice",
            )
    return marks


def _milestones_from_lengths(schedules: Sequence[Schedule]) -> tuple[sp.Integer, ...]:
    marks: list[sp.Integer] = []
    for index, member in enumerate(schedules[:-1]):
        if member.length is None:
            raise DefinitionError(
                "a schedule without a length needs a milestone after it",
                where=f"member {index}, {member.name!r}",
                hint="give milestones, or a length to the schedule",
            )
        marks.append((marks[-1] if marks else sp.Integer(0)) + member.length)
    return tuple(marks)


def _steps(value: Any, name: str) -> sp.Integer:
    number = exact_number(value, name)
    if not number.is_integer or number < 0:
        raise DefinitionError(f"{name} must be an integer >= 0, got {value!r}")
    return number


def _expression(expr: Any, name: str) -> sp.Expr:
    if not isinstance(expr, sp.Expr):
        return exact_number(expr, f"the expression of schedule {name!r}")
    if expr.has(sp.I, sp.zoo, sp.nan, sp.oo, sp.S.NegativeInfinity):
        raise DefinitionError(
            f"a schedule must be finite and real, got {expr}", where=f"schedule {name!r}"
        )
    foreign = [symbol for symbol in expr.free_symbols if symbol in (PARAM, GRAD)]
    if foreign:
        raise DefinitionError(
            f"a schedule is a function of t and hyperparameters, got {foreign[0]}",
            where=f"schedule {name!r}",
            hint="tensors belong in an UpdateRule",
        )
    if any(symbol.name == "t" and symbol != t for symbol in expr.free_symbols):
        raise DefinitionError(
            "the expression holds a symbol t that is not the clock",
            where=f"schedule {name!r}",
            hint="write it with closedform.t, which is an integer >= 0",
        )
    result: sp.Expr = rationalize(expr)
    return result
