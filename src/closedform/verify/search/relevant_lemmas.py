"""The lemmas of the checker that are about the functions in some facts.

Of ``cospi(x) > 1`` they are ``-1 <= cospi(x) <= 1``, ``cospi(x)**2 + sinpi(x)**2 = 1`` and more.
"""

from __future__ import annotations

from collections.abc import Iterable

from closedform.verify.checker.polynomials import Polynomial
from closedform.verify.checker.replay import Facts, Replay
from closedform.verify.checker.terms import CURVES, RejectedProofError

Lemma = tuple[tuple[int, ...], int]
"""The functions that a lemma is about, and its number among those about them."""

_FUNCTIONS = (*CURVES, "floor", "^", "lookup", "pi", "opaque")
_MOST_LEMMAS = 600


def lemmas_about(replay: Replay, facts: Facts) -> dict[int, Lemma]:
    """Returns the lemmas about the functions in facts, each with its name."""
    lemmas: dict[int, Lemma] = {}
    forms = replay.forms
    terms_before: list[int] = []
    seen_atoms: set[int] = set()
    pending = list(facts)
    # Lemmas mention further functions (a sine its cosine); one more round states lemmas
    # about these.
    for _ in range(2):
        atoms = _atoms_in(replay, pending) - seen_atoms
        seen_atoms |= atoms
        pending = []
        for atom in sorted(atoms):
            op = forms.atoms[atom][0]
            term = forms.terms_of_atoms[atom]
            if op not in _FUNCTIONS and op != "inv":
                continue
            names: list[tuple[tuple[int, ...], int, int]] = [
                ((term,), n, t) for n, t in enumerate(replay.lemmas.of(term))
            ]
            # Pairs grow with the square of the number of functions.
            for earlier in terms_before[:10]:
                pair_of_ops = replay.terms.nodes[earlier][0], replay.terms.nodes[term][0]
                is_of_one_op = pair_of_ops[0] == pair_of_ops[1] != "/"
                if is_of_one_op or set(pair_of_ops) == {"^", "exp"}:
                    for pair in ((earlier, term), (term, earlier)):
                        try:
                            truths = replay.lemmas.of_pair(*pair)
                        except RejectedProofError:
                            continue
                        names += [
                            (pair, n, t)
                            for n, t in enumerate(truths)
                            if not _extends(replay, pair, t, seen_atoms)
                        ]
            terms_before.append(term)
            for about, number, truth in names:
                if truth not in lemmas and len(lemmas) < _MOST_LEMMAS:
                    lemmas[truth] = about, number
                    pending.append(truth)
    return lemmas


def _extends(replay: Replay, pair: tuple[int, int], truth: int, atoms: set[int]) -> bool:
    """Whether a lemma about two cosines, or two powers of one exponent, has new functions.

    There is such a lemma about each pair: its functions would have lemmas in their turn.
    """
    nodes, forms = replay.terms.nodes, replay.forms
    (op, left, _), (op_of_second, right, _) = nodes[pair[0]], nodes[pair[1]]
    are_powers = op == op_of_second == "^"
    is_product = op == "cospi" or (are_powers and forms.of(left[1]) == forms.of(right[1]))
    return is_product and not _atoms_in(replay, [truth]) <= atoms


def _atoms_in(replay: Replay, truths: Iterable[int]) -> set[int]:
    """The atoms in the relations of some truths, and in the arguments of atoms."""
    forms = replay.forms
    atoms: set[int] = set()
    relations = list(truths)
    pending: list[Polynomial] = []
    while relations:
        truth = relations.pop()
        op, args, _ = replay.terms.nodes[truth]
        literal = replay.literal(truth)
        if literal is not None:
            pending.append(literal.form)
        elif op in ("and", "or", "not"):
            relations += args
    while pending:
        for monomial in pending.pop():
            for atom, _ in monomial:
                if atom not in atoms:
                    atoms.add(atom)
                    pending += forms.arguments[atom]
    return atoms
