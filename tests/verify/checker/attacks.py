"""False claims and edited proofs, offered to the checker."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from closedform.effort import Effort
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.steps import NoProofError
from tests.verify.checker.false_claims import FalseClaim
from tests.verify.checker.planted import is_accepted, tampered_proofs
from tests.verify.checker.proof_edits import drawn_edits

Data = dict[str, Any]


@dataclass(slots=True)
class FalseClaims:
    """Proofs that were offered for false claims.

    Attributes:
        claims: The number of claims by their kinds.
        proofs: The number of proofs that were offered: of the claim that is true, and edits of it.
        accepted: What was accepted.
    """

    claims: Counter[str] = field(default_factory=Counter)
    proofs: int = 0
    accepted: list[str] = field(default_factory=list)


def offer_false_claims(claims: Iterable[FalseClaim], units: int, edits: int) -> FalseClaims:
    """Searches for proofs of false claims, and offers proofs of true ones for them.

    Args:
        claims: The false claims.
        units: The work of a search.
        edits: The number of edited proofs for each claim.
    """
    result = FalseClaims()
    for number, claim in enumerate(claims):
        assert claim.is_false, claim.goal.name
        result.claims[claim.kind] += 1
        statement = claim.goal.statement()
        try:
            find_proof(statement, Effort.of(units))
            result.accepted.append(f"{claim.goal.name}: the search")
        except NoProofError:
            pass
        true_statement = claim.truth.statement()
        try:
            proof = find_proof(true_statement, Effort.of(units))
        except NoProofError:
            continue
        for offered in (proof, *tampered_proofs(proof, edits, number)):
            result.proofs += 1
            if is_accepted(statement, offered):
                result.accepted.append(f"{claim.goal.name}: {offered}")
    return result


@dataclass(slots=True)
class EditedProofs:
    """Edited proofs, and which of them are accepted.

    Attributes:
        edits: Their number by their kinds.
        accepted: The number of those by kinds that are proofs still.
        texts: The fields of the accepted ones.
    """

    edits: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)


def offer_edits(
    certificates: Sequence[tuple[Data, Data]], count: int, seed: int, *, harmless: bool
) -> EditedProofs:
    """Offers edited proofs of statements; see ``drawn_edits``."""
    result = EditedProofs()
    for statement, edit in drawn_edits(certificates, count, seed, harmless=harmless):
        result.edits[edit.kind] += 1
        if is_accepted(statement, edit.proof):
            result.accepted[edit.kind] += 1
            result.texts.append(f"{edit.kind}: {edit.text}")
    return result
