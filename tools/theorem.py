"""The form of a theorem of docs/theorems.md, and the code that the tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import sympy as sp

from closedform import frameworks
from closedform.language import UpdateRule, floor_mod, hyper, state, t
from closedform.verify.claims.core import AnyPoint, Claim, Goal
from closedform.verify.claims.step import given_by
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Term
from closedform.verify.terms.verdict import Status

PROVED, REFUTED, UNKNOWN = Status.PROVED, Status.REFUTED, Status.UNKNOWN

TORCH = "`torch.optim.lr_scheduler` 2.13"
TORCH_RULES = "`torch.optim` 2.13"
CEREBRAS = "`cerebras.pytorch` 2.10"
ACCELERATED = "`pytorch_accelerated` 0.1.61"


class Section(StrEnum):
    """The parts of the page, in their order."""

    RECURSIONS = "Closed forms are their recursions"
    EQUALITIES = "One schedule in two forms"
    RULES = "Update rules"
    DEFECTS = "Implementations that differ from their documentation"
    SUMS = "Sums over all steps"
    POLYNOMIALS = "Polynomials that are iterated"
    EDGES = "Where a formula has no value, or leaves its range"


@dataclass(frozen=True, slots=True)
class Theorem:
    """One row of the table.

    Attributes:
        section: Its place on the page.
        name: Its title, which no other one has.
        statement: What is claimed, in words and LaTeX.
        claim: Makes the claim.
        expected: The verdict that must come out.
        source: Where it comes from: a class with its version, or a paper.
        flags: The flags of the reference records whose defect it states.
    """

    section: Section
    name: str
    statement: str
    claim: Callable[[], Claim]
    expected: Status = PROVED
    source: str = ""
    flags: tuple[str, ...] = ()


# The hyperparameters of the library, by the names that they have there.
start, end, value, gamma, power, low, high, factor = (
    hyper(name) for name in ("start", "end", "value", "gamma", "power", "low", "high", "factor")
)
steps, up, down, first, second, third = (
    hyper(name, integer=True, positive=True)
    for name in ("steps", "up", "down", "first", "second", "third")
)


def cases(*branches: tuple[Any, Any]) -> sp.Expr:
    """Returns a Piecewise."""
    return sp.Piecewise(*branches)


def is_multiple(now: Any, number: Any) -> sp.Basic:
    """Returns the condition that a step is a multiple of a number."""
    return sp.Eq(floor_mod(now, number), 0, evaluate=False)


def of_system(
    system: str, name: str, kwargs: Mapping[str, Any] | None = None, *, as_implemented: bool = False
) -> UpdateRule:
    """Returns the rule of an optimizer class, under the name of its system."""
    rule = frameworks.optimizer(system, name, kwargs or {}, as_implemented=as_implemented)
    return replace(rule, name=f"{system}_{rule.name}")


def at_first_step(rule: UpdateRule) -> sp.Basic:
    """Returns the condition of the first step, where the states are what they begin as.

    A refutation under it is about states that are met.
    """
    begun = [sp.Eq(state(name), spec.initial) for name, spec in rule.states.items()]
    return sp.And(t <= 0, *begun)


def about(
    rule: UpdateRule,
    text: str,
    relation: Callable[[Term, Term], Term],
    left: sp.Expr | Term,
    right: sp.Expr | Term,
    *,
    given: tuple[sp.Basic, ...] = (),
    assume: tuple[sp.Basic, ...] = (),
) -> Claim:
    """Claims a relation of two expressions about a step, and that both are defined."""
    sides = [side if isinstance(side, Term) else term(side) for side in (left, right)]
    facts = given_by(*given)
    shown = (("the left side", sides[0]), ("the right side", sides[1]))
    goal = Goal(text, relation(*sides), facts, shown=shown)
    presumes = tuple(
        Goal(f"{found.text} is defined", found.goal, (*facts, *found.path))
        for side in sides
        for found in obligations(side)
    )
    # About the expressions at each point that is given, whether a run comes to it or not.
    return Claim("relation", text, rule, (goal,), presumes, given_by(*assume), runs=AnyPoint())
