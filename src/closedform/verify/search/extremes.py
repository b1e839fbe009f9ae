"""A maximum that is below a number, without cases: each of its members is.

Its members become facts in its place. A maximum of n numbers has n! orders, and a search that
splits on them does so for each of the cases of the number. One of two numbers is left: that one of
them is the greater says more than that both are below.

``max(a, max(b, c)) < x`` becomes ``a < x``, ``b < x`` and ``c < x``; ``x <= min(a, min(b, c))``
becomes ``x <= a``, ``x <= b`` and ``x <= c``.
"""

from __future__ import annotations

from closedform.verify.checker.replay import Facts
from closedform.verify.search.linear import Search
from closedform.verify.search.steps import NoProofError, Place, Step

# The sign of an extremum in a number of at least 0 that stays so with each of its members.
_SIGNS = {"max": -1, "min": 1}


def separate_extremes(search: Search, facts: Facts) -> tuple[list[Step], Facts]:
    """Returns unfinished steps, and the facts behind them: with the members of extrema."""
    replay, terms = search.replay, search.terms
    steps: list[Step] = []
    truths_of_members: set[int] = set()
    position = 0
    while position < len(facts):
        fact = facts[position]
        extremum = _bounding_extremum(search, fact)
        if extremum is None or not (fact in truths_of_members or _is_nested(search, extremum)):
            position += 1
            continue
        for member in terms.nodes[extremum][1]:
            (truth,) = terms.substitute([fact], {extremum: member})
            truths_of_members.add(truth)
            if not replay.entails(facts, truth):
                negation = terms.negate(truth)
                refutation = _refute_member(search, facts, fact, negation, extremum)
                steps.append(["split", Place(negation), refutation])
                facts = replay.knowing(facts, truth)
        places = [place for place, other in enumerate(facts) if other != fact]
        steps.append(["keep", places])
        facts = tuple(facts[place] for place in places)
    return steps, facts


def _bounding_extremum(search: Search, fact: int) -> int | None:
    """A maximum that a fact bounds from above, or a minimum from below, in one summand only."""
    literal = search.replay.literal(fact)
    if literal is None or literal.relation not in (">", ">="):
        return None
    forms, terms = search.replay.forms, search.terms
    for monomial, number in literal.form.items():
        if len(monomial) != 1 or monomial[0][1] != 1:
            continue
        atom = monomial[0][0]
        op = forms.atoms[atom][0]
        if number * _SIGNS.get(op, 0) <= 0:
            continue
        extremum = forms.terms_of_atoms[atom]
        other_terms = {forms.terms_of_atoms[a] for m in literal.form for a, _ in m if m != monomial}
        if extremum in terms.below(fact) and extremum not in terms.below(*other_terms):
            return extremum
    return None


def _is_nested(search: Search, extremum: int) -> bool:
    """Whether a maximum has one among its members, or a minimum."""
    nodes = search.terms.nodes
    op, members, _ = nodes[extremum]
    return any(nodes[member][0] == op for member in members)


def _refute_member(search: Search, facts: Facts, fact: int, negation: int, extremum: int) -> Step:
    """A step that refutes a fact and that it does not hold for a member of its extremum."""
    replay, terms = search.replay, search.terms
    more_facts = replay.knowing(facts, negation)
    pair = (fact, negation)
    (condition, _), *_ = alternatives = terms.alternatives(extremum)
    steps: list[Step] = []
    for number, (truth, value) in enumerate(alternatives):
        case = replay._replace_terms(replay.knowing(pair, truth), {extremum: value}, truth)
        end = search.close(case)
        if end is None:
            raise NoProofError("a member of an extremum has numbers that are too long")
        steps.append(["choose", Place(extremum), number, end])
    return [
        "keep",
        [more_facts.index(truth) for truth in pair],
        ["split", Place(condition), *steps],
    ]
