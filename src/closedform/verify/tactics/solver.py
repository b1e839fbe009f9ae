"""The order solver: z3 over polynomials, where every other function is a fresh number with lemmas.

Assumptions: each division, root, cosine, power, … becomes a fresh number of which only true
statements are said (its definition where the operation is defined, and ``lemmas``), and integers
may be read as reals. So every real point that satisfies a question gives a model of what z3 is
asked: ``unsat`` proves that there is none. A model of z3's proves nothing; it is a hint where to
look for a counterexample, which ``evaluate`` then checks.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flint import fmpq

from closedform.effort import UNLIMITED, Effort, spend
from closedform.language.symbols import InternalName
from closedform.verify.tactics.lemmas import is_function, lemmas_of, lemmas_of_pair
from closedform.verify.terms.build import is_rational, negate
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import RELATIONS, TRUTHS, Op, Sign, Term, walk


class _Z3:
    """The module z3, loaded when the first name of it is used: few claims need a solver."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(importlib.import_module("z3"), name)
        # Cached on the object, so that __getattr__ is asked once per name.
        setattr(self, name, attribute)
        return attribute


z3 = _Z3()


class _Session:
    """A context of z3, and the resource units that it has used.

    The numbers that z3 gives to its terms, and so the order in which it searches, depend on what a
    context was asked before. A goal has one of its own, so its verdict does not.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self._used = 0

    def spent_units(self, solver: Any) -> int:
        """The resource units since the last question."""
        statistics = solver.statistics()
        if "rlimit count" not in statistics.keys():  # noqa: SIM118 - z3's statistics, no mapping
            return 0
        before, self._used = self._used, int(statistics.get_key_value("rlimit count"))
        return self._used - before


class _Sessions(threading.local):
    """The session of the goal that a thread proves, made at its first question."""

    is_open = False
    session: _Session | None = None


_SESSIONS = _Sessions()
# The largest limit that z3 takes: 0 is none.
_MOST_UNITS = 2**32 - 1


@contextmanager
def session() -> Iterator[None]:
    """One context of z3 for all questions within: the questions of one goal."""
    before = _SESSIONS.is_open, _SESSIONS.session
    _SESSIONS.is_open, _SESSIONS.session = True, None
    try:
        yield
    finally:
        _SESSIONS.is_open, _SESSIONS.session = before


def _current() -> _Session:
    """The session of the goal; a new one for a question outside of goals."""
    if not _SESSIONS.is_open:
        return _Session()
    if _SESSIONS.session is None:
        _SESSIONS.session = _Session()
    return _SESSIONS.session


class SolverMode(StrEnum):
    """How z3 is asked: which of its solvers, and whether integers are integers."""

    REAL = "real arithmetic"
    NONLINEAR = "nonlinear real arithmetic"
    INTEGER = "integer arithmetic"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of z3.

    Args:
        refuted: The facts contradict each other: no point satisfies all of them.
        model: Values of the symbols at which z3 believes that the facts hold, if it found any.
    """

    refuted: bool
    model: Mapping[str, fmpq] | None = None


def ask(
    facts: Iterable[Term],
    effort: Effort,
    reading: SolverMode = SolverMode.REAL,
    *,
    with_lemmas: bool = True,
) -> Answer:
    """Returns whether some facts contradict each other, or a model of them.

    The effort is for writing the question, too. Where it ends there, the answer is neither.
    """
    statements = tuple(facts)
    if is_too_large(statements):
        return Answer(refuted=False)
    question = Question(statements, reading, with_lemmas=with_lemmas, effort=effort)
    return question.answer(effort) if effort.left else Answer(refuted=False)


def is_too_large(facts: tuple[Term, ...]) -> bool:
    """Returns whether it would take long only to write the question down, or to add its numbers.

    The resource units of z3 do not count the digits of numbers: one of 2,400 digits took it more
    than a minute within an effort of seconds.
    """
    parts = zip(walk(*facts), range(LIMITS.proved_nodes), strict=False)
    count = 0
    for part, _ in parts:
        count += 1
        if is_rational(part) and part.value.height_bits() > LIMITS.solver_bits:
            return True
    return count == LIMITS.proved_nodes


def entails(
    facts: Iterable[Term], goal: Term, effort: Effort, has_integers: bool
) -> tuple[SolverMode | None, Mapping[str, fmpq] | None]:
    """Returns the reading in which z3 finds that facts entail a goal, else None and a model.

    Reals first: a contradiction over the reals is one over the integers. Integers last, since z3
    decides nothing nonlinear about them; a model over the reals ends the search where there are
    no integers.
    """
    statements = (*facts, negate(goal))
    model: Mapping[str, fmpq] | None = None
    units = effort.left
    for reading, share in _SHARES.items():
        if reading is SolverMode.INTEGER and not has_integers:
            continue
        # nlsat decides the same question: it would find a model, too.
        if reading is SolverMode.NONLINEAR and model is not None:
            continue
        answer = ask(statements, effort.portion(units * share), reading)
        if answer.refuted:
            return reading, None
        model = answer.model or model
        if answer.model is not None and (reading is SolverMode.INTEGER or not has_integers):
            break
    return None, model


# Shares of the effort.
_SHARES = {SolverMode.REAL: 0.25, SolverMode.NONLINEAR: 0.35, SolverMode.INTEGER: 0.4}


class Question:
    """One question to z3: facts, the lemmas of their functions, the declarations of symbols."""

    def __init__(
        self,
        facts: Iterable[Term],
        reading: SolverMode,
        *,
        with_lemmas: bool = True,
        effort: Effort = UNLIMITED,
    ) -> None:
        self.reading = reading
        self._effort = effort
        self._session = _current()
        self._numbers: dict[Term, Any] = {}
        self._truths: dict[Term, Any] = {}
        self._definitions: list[Any] = []
        self._functions: list[Term] = []
        self._symbols: dict[str, Any] = {}
        self._bits = 0
        statements = tuple(facts)
        self.assertions = [self._truth(fact) for fact in statements]
        if with_lemmas:
            self._instantiate()
        self.assertions += self._definitions

    def answer(self, effort: Effort) -> Answer:
        """Returns z3's answer within an effort; an answer that it cannot give is neither."""
        # Measured on sums of squares: a time before the first resource unit is counted.
        spend(2 * len(self._symbols) ** 2)
        if not effort.left:
            return Answer(False)
        solver = self._solver()
        units = LIMITS.solver_units / self._cost_of_digits
        solver.set("rlimit", int(min(max(effort.left * units, 1), _MOST_UNITS)))
        if effort.seconds is not None:
            solver.set("timeout", max(1, int(effort.seconds_left * 1000)))
        solver.add(*self.assertions)
        try:
            outcome = solver.check()
            if outcome == z3.unsat:
                return Answer(refuted=True)
            return Answer(False, self._model(solver.model()) if outcome == z3.sat else None)
        except z3.Z3Exception:
            return Answer(False)
        finally:
            spend(int(self._session.spent_units(solver) / units))

    @property
    def _cost_of_digits(self) -> int:
        """How much more than one of short numbers a resource unit costs, which counts no digits.

        Measured on polynomials of integers, where a step with numbers of 1,054 bits took 10 s.
        """
        return max(1, self._bits // 128) ** 3 if self.reading is SolverMode.INTEGER else 1

    def _solver(self) -> Any:
        if self.reading is SolverMode.NONLINEAR:
            return z3.Tactic("qfnra-nlsat", ctx=self._session.context).solver()
        return z3.Solver(ctx=self._session.context)

    def _model(self, model: Any) -> dict[str, fmpq]:
        return {
            name: _fraction(model.eval(number, model_completion=True))
            for name, number in self._symbols.items()
        }

    def _instantiate(self) -> None:
        """States the lemmas, and lemmas of their functions (a sine's cosine, a floor's power)."""
        earlier_functions: list[Term] = []
        position = 0
        while (
            position < min(len(self._functions), LIMITS.stated_functions) and self._effort.left > 0
        ):
            node = self._functions[position]
            position += 1
            lemmas = lemmas_of(node)
            if len(earlier_functions) < LIMITS.paired_functions:
                for earlier in earlier_functions:
                    lemmas += lemmas_of_pair(node, earlier)
            earlier_functions.append(node)
            self._definitions += [self._truth(lemma) for lemma in lemmas]

    def _truth(self, root: Term) -> Any:
        self._translate(root)
        return self._truths[root]

    def _translate(self, root: Term) -> None:
        for node in _new(root, self._numbers, self._truths):
            if node.op in TRUTHS:
                self._truths[node] = self._make_truth(node)
            else:
                self._numbers[node] = self._make_number(node)

    def _make_truth(self, node: Term) -> Any:
        if node.op in RELATIONS:
            left, right = (self._numbers[arg] for arg in node.args)
            return _RELATE[node.op](left, right)
        parts = [self._truths[arg] for arg in node.args]
        match node.op:
            case Op.AND:
                return z3.And(*parts)
            case Op.OR:
                return z3.Or(*parts)
            case Op.NOT:
                return z3.Not(parts[0])
            case _:
                return z3.BoolVal(node.op is Op.TRUE, self._session.context)

    def _make_number(self, node: Term) -> Any:
        if is_function(node):
            self._functions.append(node)
            return self._fresh(node.op.value, integer=node.op is Op.FLOOR)
        if node.op is Op.ITE:
            condition, then, otherwise = node.args
            alternatives = self._numbers[then], self._numbers[otherwise]
            return z3.If(self._truths[condition], *alternatives)
        args = [self._numbers[arg] for arg in node.args]
        make = _ARITHMETIC.get(node.op)
        return self._special(node, args) if make is None else make(*args)

    def _special(self, node: Term, args: list[Any]) -> Any:
        match node.op:
            case Op.RATIONAL:
                return self._constant(node.value)
            case Op.SYMBOL:
                return self._symbol(node)
            case Op.POWER:
                product = self._constant(fmpq(1))
                for _ in range(int(node.args[1].value.p)):
                    product = product * args[0]
                return product
            case Op.DIVIDE:
                quotient = self._fresh("quotient")
                # Division by 0 is any number in SMT-LIB; so it is here, and definedness is a
                # separate goal.
                self._definitions.append(z3.Implies(args[1] != 0, quotient * args[1] == args[0]))
                return quotient
            case Op.PI:
                circle = self._fresh("pi")
                # z3 knows no pi; five digits suffice for comparisons with small numbers, and more
                # would only lengthen numerals.
                low, high = fmpq(314159, 100000), fmpq(31416, 10000)
                self._definitions += [circle > self._constant(low), circle < self._constant(high)]
                return circle
            case Op.LOOKUP:
                return self._table(node, args[0])
            case _:
                # undefined, and opaque functions: a number of which nothing is known
                return self._fresh(node.op.value)

    def _table(self, node: Term, index: Any) -> Any:
        entry = self._fresh("entry")
        constants = [self._constant(value) for value in node.value]
        self._definitions += [entry >= self._constant(min(node.value))]
        self._definitions += [entry <= self._constant(max(node.value))]
        # A longer table is only bounded: the cases would be most of the question.
        if len(constants) <= 64:
            cases = enumerate(constants)
            self._definitions += [
                z3.Implies(index == place, entry == value) for place, value in cases
            ]
        return entry

    def _symbol(self, node: Term) -> Any:
        declaration = node.value
        whole = declaration.integer and self.reading is SolverMode.INTEGER
        variable = self._variable(_name_in_z3(declaration.name), whole)
        self._symbols[declaration.name] = variable
        number = z3.ToReal(variable) if whole else variable
        if declaration.sign is not Sign.ANY:
            least = 1 if declaration.integer else None
            self._definitions.append(_SIGNS[declaration.sign](number, least))
        return number

    def _fresh(self, kind: str, *, integer: bool = False) -> Any:
        name = _name_in_z3(InternalName(f"{kind}!{len(self._numbers)}", "fresh"))
        if integer and self.reading is SolverMode.INTEGER:
            return z3.ToReal(self._variable(name, True))
        return self._variable(name, False)

    def _variable(self, name: str, whole: bool) -> Any:
        make = z3.Int if whole else z3.Real
        return make(name, self._session.context)

    def _constant(self, number: fmpq) -> Any:
        self._bits = max(self._bits, number.height_bits())
        return z3.RealVal(f"{number.p}/{number.q}", self._session.context)


def _name_in_z3(name: str) -> str:
    """The name of a symbol in z3, which distinguishes symbols only by text.

    Internal names begin with one exclamation mark, and those of users with none or two.
    """
    if isinstance(name, InternalName):
        return f"!{name.use} {name}"
    return f"!!{name}" if name.startswith("!") else name


def _new(root: Term, *tables: Mapping[Term, Any]) -> Iterator[Term]:
    """The nodes below a term that are in none of the tables, lowest first."""
    pending = [(root, False)]
    while pending:
        node, ready = pending.pop()
        if any(node in table for table in tables):
            continue
        if ready or not node.args:
            yield node
        else:
            pending.append((node, True))
            pending.extend((arg, False) for arg in node.args)


def _fraction(number: Any) -> fmpq:
    """A z3 number as a fraction; an algebraic one as a fraction near it, a hint all the same."""
    if z3.is_algebraic_value(number):
        number = number.approx(20)
    if z3.is_int_value(number):
        return fmpq(number.as_long())
    return fmpq(number.numerator_as_long(), number.denominator_as_long())


_SIGNS: Mapping[Sign, Callable[[Any, int | None], Any]] = {
    Sign.POSITIVE: lambda number, least: number > 0 if least is None else number >= least,
    Sign.NONNEGATIVE: lambda number, least: number >= 0,
    Sign.NEGATIVE: lambda number, least: number < 0 if least is None else number <= -least,
    Sign.NONPOSITIVE: lambda number, least: number <= 0,
}

_RELATE: Mapping[Op, Callable[[Any, Any], Any]] = {
    Op.LESS: lambda a, b: a < b,
    Op.LESS_EQUAL: lambda a, b: a <= b,
    Op.EQUAL: lambda a, b: a == b,
}

_ARITHMETIC: Mapping[Op, Callable[..., Any]] = {
    Op.ADD: lambda *args: z3.Sum(*args),
    Op.MULTIPLY: lambda *args: z3.Product(*args),
    Op.MINIMUM: lambda a, b: z3.If(a <= b, a, b),
    Op.MAXIMUM: lambda a, b: z3.If(a >= b, a, b),
    Op.ABSOLUTE: lambda a: z3.If(a >= 0, a, -a),
    Op.SIGN: lambda a: z3.If(
        a > 0, z3.RealVal(1, a.ctx), z3.If(a < 0, z3.RealVal(-1, a.ctx), z3.RealVal(0, a.ctx))
    ),
}


def has_integers(*roots: Term) -> bool:
    """Whether some terms hold an integer symbol or a floor, which real arithmetic relaxes."""
    return any(
        node.op is Op.FLOOR or (node.op is Op.SYMBOL and node.value.integer)
        for node in walk(*roots)
    )
