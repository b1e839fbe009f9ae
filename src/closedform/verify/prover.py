"""The prover: points refute, a search proposes a proof, the checker decides.

A goal is first evaluated at points, where most false goals fail within microseconds. Then a search
looks for a proof, and the checker replays it: nothing else says PROVED, and nothing but a point
that was evaluated exactly says REFUTED. Everything else is UNKNOWN.

``cos(pi x) <= 1`` is PROVED by a proof of three steps, ``cos(pi x) < 1`` is REFUTED at x = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import sympy as sp

from closedform.effort import Effort, Watch
from closedform.errors import VerificationError
from closedform.verify.samples import Counterexample, Sampler, Tally, simplify_point
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from closedform.verify.terms.build import subtract
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.facts import sign_claims
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import TRUTHS, Op, Sign, Term, show, walk
from closedform.verify.terms.verdict import CHECKED_STEPS, Proof, Status, Verdict

POINTS = "a point"
IDENTITY = "identity"
"""The ground of equations by their canonical forms, of which there are no steps."""
_STAGES = (
    (12, 4_000, 30_000),
    (60, 30_000, 200_000),
    (300, 150_000, LIMITS.search_work),
    (600, 100_000, 0),
)
"""Points, their work, and that of the search after them: until one of them decides."""
GOAL_WORK = LIMITS.identity_work + sum(point + search for _, point, search in _STAGES)
"""The work of a goal that no stage decides, if nothing else is said."""


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
        VerificationError: The goal is not a truth, or a symbol is declared in two ways.

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
    sampler = Sampler(goal, assumptions, seed)
    tally = Tally()
    reason = ""
    # Most false goals fail at one of the first points, and most true ones have a short proof: the
    # next stage costs about ten times as much.
    for points, point_work, search_work in _STAGES:
        is_last_search = search_work == LIMITS.search_work
        tally = tally.plus(sampler.search(points, effort.portion(min(point_work, units / 4))))
        if tally.counterexample is not None:
            portion = effort.portion(LIMITS.simplifying_work)
            return _refuted(
                simplify_point(tally.counterexample, goal, sampler.assumptions, portion), tally
            )
        if not search_work or reason == _TOO_LARGE:
            continue
        if is_last_search and _is_identity(goal, assumptions, effort.portion(LIMITS.identity_work)):
            return Verdict(Status.PROVED, (IDENTITY,), samples=tally.satisfied)
        # The last search grows with the effort.
        most_work = max(search_work, units / 10) if is_last_search else search_work
        proof = _find_proof(goal, assumptions, effort.portion(min(most_work, units * 0.7)))
        if isinstance(proof, Proof):
            if not tally.point_count:
                # Vacuous proofs are named: the work of a stage may have ended before its points.
                tally = tally.plus(sampler.search(1, effort.portion(LIMITS.simplifying_work)))
            return _proved(proof, tally)
        reason = proof
    return _unknown(reason if effort.left else effort.why(), tally)


def _is_identity(goal: Term, assumptions: tuple[Term, ...], effort: Effort) -> bool:
    """Whether the sides of an equation have one canonical form.

    The checker has no normal form for roots of products: of these equations it has no proof.
    """
    if goal.op is not Op.EQUAL:
        return False
    signs: dict[Term, Sign] = {}

    def sign_of(term: Term) -> Sign:
        if term not in signs:
            signs[term] = next(
                (
                    sign
                    for sign, claim in sign_claims(term).items()
                    if effort.left
                    and isinstance(
                        _find_proof(claim, assumptions, effort.portion(_SIGN_WORK)), Proof
                    )
                ),
                Sign.ANY,
            )
        return signs[term]

    left, right = goal.args
    return is_zero(subtract(left, right), sign_of)


_SIGN_WORK = 30_000
_TOO_LARGE = f"it has more than {LIMITS.proved_nodes:,} terms"


def _find_proof(goal: Term, assumptions: tuple[Term, ...], effort: Effort) -> Proof | str:
    """A proof that the checker accepted, or why there is none."""
    nodes = walk(goal, *assumptions)
    if next(islice(nodes, LIMITS.proved_nodes, None), None) is not None:
        return _TOO_LARGE
    statement = statement_of(goal, assumptions)
    try:
        return Proof(statement, find_proof(statement, effort))
    except NoProofError as error:
        return str(error)


def _proved(proof: Proof, tally: Tally) -> Verdict:
    reason = ""
    if tally.undecided:
        reason = f"{tally.undecided} points agree within balls"
    elif not tally.satisfied:
        reason = "no point was found: perhaps nothing satisfies the assumptions"
    return Verdict(Status.PROVED, (CHECKED_STEPS,), None, reason, tally.satisfied, proof=(proof,))


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
