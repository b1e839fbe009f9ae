"""z3 as the search uses it: one context for all questions of a search, loaded at the first one.

A question is text of SMT-LIB, so that no term of z3 belongs to Python: its numbers of terms, which
its order of work depends on, are a function of the questions before, and not of the time at which
Python frees objects. Its work is counted as effort, and its answers are exact.

``(assert (> (+ m0 (/ 1.0 2.0)) 0.0))`` states that ``m0 + 1/2 > 0``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flint import fmpq

from closedform.effort import Effort, spend
from closedform.verify.checker.polynomials import Monomial, Polynomial
from closedform.verify.checker.replay import Literal
from closedform.verify.terms.limits import LIMITS

_CONTEXT_WORK = 3_000  # a context takes 3.5 ms
_VALUE_WORK = 5  # to read the value of a constant
_CHARACTERS = 10  # of a question in one unit


class Solver:
    """The context of the questions of one search."""

    def __init__(self) -> None:
        self._context: Any = None
        self.count = 0  # resource units of its questions

    @contextmanager
    def question(self, logic: str = "QF_LRA") -> Iterator[Question]:
        """Begins a question, whose terms are freed at its end."""
        # Loaded here: few claims need a solver.
        z3 = importlib.import_module("z3")
        if self._context is None:
            spend(_CONTEXT_WORK)
            self._context = z3.Context()
        question = Question(self, z3, z3.SolverFor(logic, ctx=self._context))
        try:
            yield question
        finally:
            question.close()


class Question:
    """Relations that z3 is asked about."""

    def __init__(self, solver: Solver, z3: Any, z3_solver: Any) -> None:
        self._solver = solver
        self._z3 = z3
        self._z3_solver = z3_solver
        self._z3_solver.set("core.minimize", True)
        self._numbers: set[str] = set()
        self._names: dict[int, str] = {}
        self._lines: list[str] = []
        self._assumptions: list[Any] = []

    def close(self) -> None:
        """Frees its terms."""
        self._assumptions.clear()
        del self._z3_solver

    def declare(self, name: str, sort: str = "Real") -> None:
        """Declares a number."""
        self._numbers.add(name)
        self._lines.append(f"(declare-const {name} {sort})")

    def state(self, truth: str, name: str = "") -> None:
        """States a truth; one with a name may be in a core."""
        if not name:
            self._lines.append(f"(assert {truth})")
            return
        # Not by ``:named``, whose definitions would be in the models of all later questions.
        self._lines.append(f"(declare-const {name} Bool)(assert (=> {name} {truth}))")
        self._assumptions.append(self._z3.Bool(name, self._z3_solver.ctx))

    def push(self) -> None:
        """Begins truths that ``pop`` takes back."""
        self._send()
        self._z3_solver.push()

    def pop(self, count: int = 1) -> None:
        """Takes back the truths since as many pushes."""
        self._send()
        self._z3_solver.pop(count)

    def check(self, effort: Effort, most: int) -> bool | None:
        """Returns whether all truths hold together for some numbers; None if z3 does not say.

        Args:
            effort: The work that may be done.
            most: The most resource units of z3.
        """
        self._send()
        self._z3_solver.set("rlimit", max(1, min(most, effort.left * LIMITS.solver_units)))
        answer = self._z3_solver.check(*self._assumptions)
        statistics = self._z3_solver.statistics()
        if "rlimit count" in statistics.keys():  # noqa: SIM118 - z3's statistics, no mapping
            count = int(statistics.get_key_value("rlimit count"))
            spend((count - self._solver.count) // LIMITS.solver_units)
            self._solver.count = count
        return None if answer == self._z3.unknown else answer == self._z3.sat

    def values(self) -> dict[str, fmpq]:
        """Returns the numbers of a model; those that are missing may be any."""
        # Read by declarations: the text of a model takes ten times as long.
        z3, model, context = self._z3, self._z3_solver.model(), self._z3_solver.ctx.ref()
        values = {}
        count = z3.Z3_model_get_num_consts(context, model.model)
        spend(_VALUE_WORK * count)
        for place in range(count):
            declaration = z3.Z3_model_get_const_decl(context, model.model, place)
            # Its address, at which it stays while the question holds it.
            name = self._names.get(declaration.value)
            if name is None:
                symbol = z3.Z3_get_decl_name(context, declaration)
                name = self._names[declaration.value] = z3.Z3_get_symbol_string(context, symbol)
            if name in self._numbers:
                number = z3.Z3_model_get_const_interp(context, model.model, declaration)
                numerator, _, divisor = z3.Z3_get_numeral_string(context, number).partition("/")
                values[name] = fmpq(int(numerator), int(divisor or 1))
        return values

    def core(self) -> set[str]:
        """Returns the names of truths that contradict each other."""
        return {truth.decl().name() for truth in self._z3_solver.unsat_core()}

    def _send(self) -> None:
        if self._lines:
            text = "\n".join(self._lines)
            spend(len(text) // _CHARACTERS)
            z3_solver = self._z3_solver
            self._z3.Z3_solver_from_string(z3_solver.ctx.ref(), z3_solver.solver, text)
            self._lines.clear()


def has_long_numbers(forms: Iterable[Polynomial]) -> bool:
    """Returns whether numbers are too long for z3, whose resource units do not count digits."""
    return any(
        value.height_bits() > LIMITS.solver_bits for form in forms for value in form.values()
    )


def print_number(value: fmpq) -> str:
    """Returns a number as SMT-LIB: ``(- (/ 1.0 2.0))``."""
    text = f"{abs(value.p)}.0" if value.q == 1 else f"(/ {abs(value.p)}.0 {value.q}.0)"
    return f"(- {text})" if value.p < 0 else text


def print_sum(parts: Iterable[tuple[fmpq, str]]) -> str:
    """Returns the sum of multiples as SMT-LIB; the name of a part without one is empty."""
    texts = [
        name
        if name and value == 1
        else f"(* {print_number(value)} {name})"
        if name
        else print_number(value)
        for value, name in parts
    ]
    if len(texts) < 2:
        return texts[0] if texts else "0.0"
    return f"(+ {' '.join(texts)})"


def print_relation(literal: Literal, name_of: Callable[[Monomial], str]) -> str:
    """Returns a relation as SMT-LIB, its monomials by their names: ``(> (+ m0 1.0) 0.0)``."""
    number = print_sum(
        (value, name_of(monomial) if monomial else "") for monomial, value in literal.form.items()
    )
    if literal.relation == "!=":
        return f"(not (= {number} 0.0))"
    return f"({literal.relation} {number} 0.0)"
