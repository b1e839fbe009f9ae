"""One prover beside the tactics: points refute, the search proposes, the checker decides.

A goal is first evaluated at points, where most false goals fail within microseconds. Then the
search (``search``) looks for a proof, and the checker (``checker``) replays it: only that says
PROVED. Only a point that was evaluated exactly says REFUTED. Everything else is UNKNOWN.

``cos(pi x) <= 1`` is PROVED by a proof of three steps, ``cos(pi x) < 1`` is REFUTED at x = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy as sp

from closedform.effort import Effort, Watch
from closedform.errors import VerificationError
from closedform.verify.certification.search import NoProofError, certify
from closedform.verify.certification.statements import statement_of
from closedform.verify.tactics.prover import without_tensor_functions
from closedform.verify.tactics.samples import Counterexample, Sampler, Tally, simplify_point
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import TRUTHS, Term, show, symbols
from closedform.verify.terms.verdict import Status, Verdict

PROOF = "a checked proof"
POINTS = "a point"
STAGES = ((12, 4_000, 30_000), (120, 80_000, 3_000_000), (600, 300_000, 0))
"""Points, their work, and that of the search after them, until one of them decides."""


def prove(
    goal: Term, *, assume: Iterable[Term] = (), effort: Effort | None = None, seed: int = 0
) -> Verdict:
    """Returns whether a goal holds for all values of its symbols that the assumptions admit.

    A relation is judged where both of its sides are defined: claim that, too (``definedness``).
    A point at which the goal is undefined refutes it.

    Args:
        goal: A truth. The declarations of its symbols (integer, sign) are assumptions.
        assume: More assumptions.
        effort: The work that it may do; that of one claim if None. The verdict is a function of the
            goal, the assumptions, the seed and the work that is left: not of the machine.
        seed: Where the random points begin; the same seed draws the same points.

    Raises:
        VerificationError: The goal is not a truth, a symbol is declared in two ways, or a proof and
            an exactly evaluated point contradict each other, which is a fault of the checker.

    Example:
        >>> import sympy as sp
        >>> from closedform.verify.terms.build import ONE, cospi, less, less_equal
        >>> from closedform.verify.terms.sympy_io import term
        >>> x = term(sp.Symbol("x", real=True))
        >>> prove(less_equal(cospi(x), ONE)).status
        <Status.PROVED: 'PROVED'>
        >>> prove(less(cospi(x), ONE)).counterexample
        {'x': 0}
    """
    if goal.op not in TRUTHS:
        raise VerificationError(f"only a truth can be proved, got the number {show(goal)}")
    budget = Effort.of(LIMITS.claim_work) if effort is None else effort
    watch = Watch()
    return _prove(goal, tuple(assume), budget, seed).after(watch.seconds)


def _prove(goal: Term, assumptions: tuple[Term, ...], effort: Effort, seed: int) -> Verdict:
    units = effort.left
    if not symbols(goal, *assumptions) and holds(goal, {}) is False:
        return _refuted(Counterexample({}, "it is false"), Tally())
    sampler = Sampler(goal, assumptions, seed)
    tally = Tally()
    reason = "no proof was looked for"
    statement: dict[str, Any] | None = None
    # Most false goals fail at one of the first points, and most true ones have a short proof: the
    # next stage costs about ten times what the one before it does.
    for points, point_work, search_work in STAGES:
        portion = effort.portion(min(point_work, units / 4))
        later = sampler.search(points, portion)
        tally = Tally(
            tally.satisfied + later.satisfied,
            tally.undecided + later.undecided,
            later.counterexample,
        )
        if tally.counterexample is not None:
            portion = effort.portion(LIMITS.simplifying_work)
            counterexample = simplify_point(
                tally.counterexample, goal, sampler.assumptions, portion
            )
            return _refuted(counterexample, tally)
        if not search_work:
            break
        statement = statement or statement_of(*without_tensor_functions(goal, assumptions))
        try:
            certify(statement, effort.portion(min(search_work, units * 0.7)))
        except NoProofError as error:
            reason = str(error)
        else:
            return _proved(tally)
    return _unknown(reason, tally)


def _proved(tally: Tally) -> Verdict:
    reason = ""
    if tally.undecided:
        reason = f"{tally.undecided} points agree within balls"
    elif not tally.satisfied:
        reason = "no point was found: perhaps nothing satisfies the assumptions"
    return Verdict(Status.PROVED, (PROOF,), None, reason, tally.satisfied)


def _refuted(counterexample: Counterexample, tally: Tally) -> Verdict:
    point = {
        name: sp.Rational(int(number.p), int(number.q))
        for name, number in sorted(counterexample.point.items())
    }
    return Verdict(Status.REFUTED, (POINTS,), point, counterexample.reason, tally.satisfied)


def _unknown(reason: str, tally: Tally) -> Verdict:
    evidence = f"it is true at {tally.satisfied} points"
    if tally.undecided:
        evidence += f", and within balls at {tally.undecided}"
    return Verdict(Status.UNKNOWN, (), None, f"{reason}; {evidence}", tally.satisfied)
