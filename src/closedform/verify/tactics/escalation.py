"""The escalation of tactics for one sequent: the cheapest first, each within the effort.

1. **case splitting** (``cases``): choices and floors away; the cases cover everything.
2. **elimination** (``integers``): symbols replaced by what equalities say they are.
3. **identity** (``canonical``): both sides are one quotient of polynomials. For ``=`` and ``<=``.
   It assumes that both sides are defined.
4. **order** (``solver``): z3 finds no real point, then no point with integers, where the facts and
   the lemmas hold and the goal does not. Reading integers as reals only ever admits more points.
5. **integer cases** (``integers``): 2 to 4 in each case that integers tell apart.
6. **turns of a cosine**: for goals ``cos(pi u) != 1`` and ``!= -1``: were it equal, u would be an
   even or odd integer; 5 on that.

Each tactic proves or gives up; none refutes. The result has the sequents that were not proved, and
z3's models of them, at which a counterexample is looked for next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.identity.canonical import SignOf, is_zero, numerator
from closedform.verify.tactics.cases import Sequent, split
from closedform.verify.tactics.integers import conditions_of, eliminate, integer_cases
from closedform.verify.tactics.solver import SolverMode, ask, entails, has_integers
from closedform.verify.terms import build
from closedform.verify.terms.facts import sign_claims
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Sign, Term, walk

EVALUATION = "evaluation"
IDENTITY = "identity"
INTEGER_CASES = "integer cases"
TURNS = "turns of a cosine"


@dataclass(slots=True)
class Escalation:
    """The result of the escalation on one goal.

    Args:
        tactics: The tactics that proved a part, in the order of their first use.
        open: The sequents that were not proved.
        models: Where z3 believes that they are false: hints.
    """

    tactics: dict[str, None] = field(default_factory=dict)
    open: list[Sequent] = field(default_factory=list)
    models: list[Mapping[str, fmpq]] = field(default_factory=list)

    @property
    def is_proved(self) -> bool:
        """Whether nothing is left open."""
        return not self.open


def escalate(sequent: Sequent, effort: Effort) -> Escalation:
    """Applies the tactics to the cases of a sequent; it stops at a few open cases.

    Raises:
        OutOfEffort: Its effort is used up.
        TooManyCases: The goal splits into too many cases.
    """
    result = Escalation()
    for case in split(sequent, effort):
        effort.check()
        if not _prove_case(case, result, effort):
            result.open.append(case)
            if len(result.open) == LIMITS.open_cases:
                break
    return result


def _prove_case(case: Sequent, result: Escalation, effort: Effort) -> bool:
    """Tactics 2 to 6 on a sequent without choices."""
    model = _prove_simple(case, result, effort)
    if model is _PROVED:
        return True
    integers = has_integers(case.goal, *case.facts)
    if integers and _prove_by_integers(case, result, effort):
        result.tactics[INTEGER_CASES] = None
        return True
    whole_case = _at_whole_turns(case)
    if whole_case is not None and _prove_by_integers(whole_case, result, effort):
        result.tactics[TURNS] = None
        return True
    readings = (SolverMode.REAL, SolverMode.INTEGER) if integers else (SolverMode.REAL,)
    for reading in readings:
        statements = (*case.facts, build.negate(case.goal))
        model_of_reading = ask(statements, effort.step(LIMITS.model_work), reading).model
        if model_of_reading is not None:
            result.models.append(model_of_reading)
    if isinstance(model, Mapping):
        result.models.append(model)
    return False


def _prove_by_integers(case: Sequent, result: Escalation, effort: Effort) -> bool:
    parts = integer_cases(eliminate(case, effort), effort)
    return all(_prove_simple(part, result, effort) is _PROVED for part in parts)


def _at_whole_turns(case: Sequent) -> Sequent | None:
    """The case that ``cos(pi u)`` is 1 or -1, where the goal is that it is not."""
    if case.goal.op is not Op.NOT:
        return None
    difference = build.subtract(*case.goal.args[0].args)
    for node in walk(difference):
        if node.op is not Op.COSPI:
            continue
        for extreme, offset in ((build.ONE, build.ZERO), (build.MINUS_ONE, build.ONE)):
            distance = build.subtract(node, extreme)
            if is_zero(build.subtract(difference, distance)) or is_zero(
                build.add(difference, distance)
            ):
                turns = build.own_symbol(f"turns#{len(case.floors)}", integer=True)
                whole = build.subtract(
                    node.args[0], build.add(offset, build.multiply(build.TWO, turns))
                )
                excess = numerator(whole)
                if excess is not None:
                    return Sequent(
                        (*case.facts, build.equal(excess, build.ZERO)), build.FALSE, case.floors
                    )
    return None


class _Proved:
    """The result of ``_prove_simple`` for a proof; else it is a model, or None."""


_PROVED = _Proved()


def _prove_simple(
    case: Sequent, result: Escalation, effort: Effort
) -> _Proved | Mapping[str, fmpq] | None:
    """Tactics 2 to 4 on a sequent without choices."""
    if case.goal.op is Op.TRUE:
        result.tactics[EVALUATION] = None
        return _PROVED
    case = eliminate(case, effort)
    conditions, goal = conditions_of(case.goal)
    facts = (*case.facts, *conditions)
    if goal.op is Op.AND:
        for part in goal.args:
            outcome = _prove_simple(Sequent(facts, part, case.floors), result, effort)
            if outcome is not _PROVED:
                return outcome
        return _PROVED
    # Signs cost a question each, and an inequality is seldom an equality that needs them.
    sign_of = signs_by(facts, effort) if goal.op is Op.EQUAL else None
    if goal.op in (Op.EQUAL, Op.LESS_EQUAL) and is_zero(build.subtract(*goal.args), sign_of):
        result.tactics[IDENTITY] = None
        return _PROVED
    integers = has_integers(goal, *facts)
    reading, model = entails(facts, goal, effort.step(LIMITS.order_work), integers)
    if reading is not None:
        result.tactics[reading.value] = None
        return _PROVED
    if goal.op is Op.LESS_EQUAL and is_zero(build.subtract(*goal.args), signs_by(facts, effort)):
        result.tactics[IDENTITY] = None
        return _PROVED
    return model


def signs_by(facts: tuple[Term, ...], effort: Effort) -> SignOf:
    """Returns a function from a term to the sign that the order solver derives from the facts."""
    signs: dict[Term, Sign] = {}
    integers = has_integers(*facts)

    def sign_of(term: Term) -> Sign:
        if term not in signs:
            signs[term] = next(
                (
                    sign
                    for sign, goal in sign_claims(term).items()
                    if entails(facts, goal, effort.step(LIMITS.sign_work), integers)[0]
                ),
                Sign.ANY,
            )
        return signs[term]

    return sign_of
