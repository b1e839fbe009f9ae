"""Edits of certificates, field by field, each by its kind.

An edit of a kind in ``HARMLESS`` may leave a proof of the goal: a step that the checker verifies
anew, or a part that nothing needs. Any other edit makes the certificate claim something else or
leaves a step without its reason, so that the checker has to reject it.
"""

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flint import fmpq

Data = dict[str, Any]
Step = list[Any]

ULP = fmpq(1, 2**52)
_CHANGED_OPERATIONS = {
    "<": "<=", "<=": "<", "=": "<", "min": "max", "max": "min", "+": "*", "*": "+", "and": "or",
    "or": "and", "cospi": "sinpi", "sinpi": "cospi", "exp": "log", "log": "exp", "/": "^",
    "atan": "exp",
    "^": "/", "floor": "abs", "abs": "floor", "true": "false", "false": "true",
}  # fmt: skip
_COMMUTATIVE = frozenset({"+", "*", "=", "min", "max", "and", "or"})

HARMLESS: Mapping[str, str] = {
    "condition of a split": "any condition may be split at; both sides are refuted with it",
    "decision": "a decision that is left out stays in the facts, and their end does not need it",
    "end of a range": "ranges with other ends cover the integers, too; each is refuted anew",
    "fact at an end": "two facts are false in one box",
    "fact of a combination": "two facts say the same",
    "listed bounds": "without a bound the box is larger, and the fact is false in it, too",
    "number in a term": "a condition or an end between cases may be another one",
    "operation of a term": "a condition to split at may be another one; a claim may be weaker",
    "order of cases": "the cases end in the same way",
    "order of operands": "a condition to split at may be the opposite one",
    "place in a rule": "two facts or terms say the same",
    "place of a lemma": "another lemma is true, too, and the end does not need the first one",
    "remaining fact": "the steps behind it do not need the fact",
    "term of a lemma": "another lemma is true, too, and the end does not need the first one",
}
"""The kinds after which a certificate may still be a proof of its goal, and why it may.

The other kinds leave none: a sum that was 0 has a part more, less or multiplied, a case has no
refutation, a choice has a value whose condition is not a fact.
"""


@dataclass(frozen=True, slots=True)
class EditedProof:
    """A proof with one edit.

    Attributes:
        kind: What is edited.
        text: The field, before and after.
        proof: The proof after it.
    """

    kind: str
    text: str
    proof: Data


def steps_of(step: Any) -> Iterator[Step]:
    """Yields a step and the steps that follow it."""
    if isinstance(step, list):
        if step and isinstance(step[0], str) and step[0].isidentifier():
            yield step
        for part in step:
            yield from steps_of(part)


Change = tuple[str, list[Any], int, Any]
"""A kind, the list and the place in it, and what is written there."""


def changes_of(statement: Data, proof: Data) -> Iterator[Change]:
    """Yields the changes of one field of a proof, not those that write the same number anew."""
    rows = [*statement["nodes"], *proof["nodes"]]
    for step in steps_of(proof["step"]):
        for kind, holder, place, entry in _CHANGES[step[0]](step):
            if kind != "factor of an equation" or _is_other(rows, holder[place], entry):
                yield kind, holder, place, entry
    for row in proof["nodes"]:
        op, args, value = row
        if op == "rational":
            for changed in (fmpq_of(value) * (1 + ULP) or ULP, fmpq_of(value) + 1):
                yield "number in a term", row, 2, str(changed)
        if op in _CHANGED_OPERATIONS and (op not in _COMMUTATIVE or len(args) > 1):
            yield "operation of a term", row, 0, _CHANGED_OPERATIONS[op]
        if len(args) == 2 and args[0] != args[1] and op not in _COMMUTATIVE:
            yield "order of operands", row, 1, args[::-1]


def _is_other(rows: list[Any], first: int, second: int) -> bool:
    """Whether two places hold different terms; a sum or product of one term is that term."""
    places = [first, second]
    for number, place in enumerate(places):
        while 0 <= place < len(rows) and rows[place][0] in "+*" and len(rows[place][1]) == 1:
            (place,) = rows[place][1]
        places[number] = place
    return places[0] != places[1]


def fmpq_of(text: str) -> fmpq:
    """Returns the fraction that a text says."""
    above, _, below = text.partition("/")
    return fmpq(int(above), int(below or "1"))


def _places(kind: str, holder: list[Any], place: int) -> Iterator[Change]:
    for difference in (-1, 1):
        yield kind, holder, place, holder[place] + difference


def _of_lists(kind: str, holder: list[Any], place: int) -> Iterator[Change]:
    """Each entry of a list left out."""
    entries = holder[place]
    for left_out in range(len(entries)):
        yield kind, holder, place, [*entries[:left_out], *entries[left_out + 1 :]]


def _of_split(step: Step) -> Iterator[Change]:
    yield from _places("condition of a split", step, 1)
    yield "order of cases", step, slice(2, 4), [step[3], step[2]]  # type: ignore[misc]
    yield "case left out", step, slice(0, None), step[:3]  # type: ignore[misc]


def _of_keep(step: Step) -> Iterator[Change]:
    yield from _of_lists("remaining fact", step, 1)


def _of_cases(step: Step) -> Iterator[Change]:
    yield from _places("place in a rule", step, 1)
    yield "order of cases", step, 2, step[2][::-1]
    yield "case left out", step, 2, step[2][1:]


def _of_differ(step: Step) -> Iterator[Change]:
    yield from _places("place in a rule", step, 1)
    yield "order of cases", step, slice(2, 4), [step[3], step[2]]  # type: ignore[misc]


def _of_range(step: Step) -> Iterator[Change]:
    for place in range(len(step[2])):
        yield from _places("end of a range", step[2], place)
    yield "order of cases", step, 3, step[3][::-1]
    yield "case left out", step, 3, step[3][:-1]
    yield "case left out", step, slice(2, 4), [step[2][:-1], step[3][:-1]]  # type: ignore[misc]


def _of_residues(step: Step) -> Iterator[Change]:
    yield from _places("place in a rule", step, 1)
    yield from _places("place in a rule", step, 2)
    yield "order of cases", step, 3, step[3][::-1]
    # The residues of another modulus cover the integers, too.
    yield "end of a range", step, 3, step[3][:-1]


def _of_lemma(step: Step) -> Iterator[Change]:
    for place in range(len(step[1])):
        yield from _places("term of a lemma", step[1], place)
    yield from _places("place of a lemma", step, 2)


def _of_simplify(step: Step) -> Iterator[Change]:
    yield from _of_lists("listed bounds", step, 1)
    yield from _of_lists("decision", step, 2)
    for decision in step[2]:
        yield from _places("alternative", decision, 1)
        yield from _places("place in a rule", decision, 0)


def _of_contradiction(step: Step) -> Iterator[Change]:
    yield from _of_lists("listed bounds", step, 1)
    yield from _places("fact at an end", step, 2)


def _of_empty(step: Step) -> Iterator[Change]:
    yield from _of_lists("listed bounds", step, 1)


def _of_combine(step: Step) -> Iterator[Change]:
    for product in step[1]:
        weight = fmpq_of(product[0])
        for changed in (weight * (1 + ULP), weight + 1, -weight):
            yield "number of a combination", product, 0, str(changed)
        for place in range(len(product[1])):
            yield from _places("fact of a combination", product[1], place)
        yield from _of_lists("square of a combination", product, 2)
    yield from _of_lists("part of a combination", step, 1)
    yield from _of_lists("part of a combination", step, 2)
    for multiple in step[2]:
        yield from _places("fact of a combination", multiple, 0)
        yield from _places("factor of an equation", multiple, 1)


def _of_places(step: Step) -> Iterator[Change]:
    """All places in a rule but the next step."""
    for place in range(1, len(step) - 1):
        yield from _places("place in a rule", step, place)


def _of_choose(step: Step) -> Iterator[Change]:
    yield from _places("place in a rule", step, 1)
    yield from _places("alternative", step, 2)


_CHANGES: Mapping[str, Callable[[Step], Iterator[Change]]] = {
    "split": _of_split,
    "keep": _of_keep,
    "cases": _of_cases,
    "differ": _of_differ,
    "choose": _of_choose,
    "lemma": _of_lemma,
    "rewrite": _of_places,
    "round": _of_places,
    "clear": _of_places,
    "range": _of_range,
    "residues": _of_residues,
    "simplify": _of_simplify,
    "contradiction": _of_contradiction,
    "empty": _of_empty,
    "combine": _of_combine,
}


def edits_of(statement: Data, proof: Data) -> Mapping[str, list[int]]:
    """Returns the numbers of the changes of a proof by their kinds."""
    numbers: dict[str, list[int]] = {}
    for number, (kind, *_) in enumerate(changes_of(statement, proof)):
        numbers.setdefault(kind, []).append(number)
    return numbers


def edited(statement: Data, proof: Data, number: int) -> EditedProof:
    """Returns a copy of a proof with one of its changes."""
    changed = copy.deepcopy(proof)
    changes = itertools.islice(changes_of(statement, changed), number, None)
    kind, holder, place, entry = next(changes)
    text = f"{holder[place]!r} -> {entry!r}"
    holder[place] = entry
    return EditedProof(kind, text if len(text) < 200 else f"{text[:200]}…", changed)


def drawn_edits(
    certificates: Sequence[tuple[Data, Data]], count: int, seed: int, *, harmless: bool
) -> Iterator[tuple[Data, EditedProof]]:
    """Yields so many different edits of some statements with proofs, each kind in turn.

    Args:
        certificates: The statements with their proofs.
        count: How many.
        seed: The seed of the draw.
        harmless: Whether the kinds are in ``HARMLESS``, or the other ones.
    """
    chance = random.Random(seed)
    pools: dict[str, list[tuple[int, int]]] = {}
    for place, certificate in enumerate(certificates):
        for kind, numbers in edits_of(*certificate).items():
            if (kind in HARMLESS) != harmless:
                continue
            pools.setdefault(kind, []).extend((place, number) for number in numbers)
    for pool in pools.values():
        chance.shuffle(pool)
    while count and any(pools.values()):
        for kind in sorted(pools):
            if pools[kind] and count:
                place, number = pools[kind].pop()
                count -= 1
                yield certificates[place][0], edited(*certificates[place], number)
