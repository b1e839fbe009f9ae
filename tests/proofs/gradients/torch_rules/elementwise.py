"""Proofs that the backward of an elementwise operator is its derivative."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto

from closedform.effort import Effort
from closedform.ir import naming
from closedform.verify.prover import prove
from closedform.verify.terms.build import (
    FALSE,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    equal,
    less,
    multiply,
    negate,
    substitute,
    subtract,
    symbol,
)
from closedform.verify.terms.canonical import SignOf, is_zero
from closedform.verify.terms.facts import sign_claims
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Sign, Term, walk
from closedform.verify.terms.verdict import Status, Verdict
from tests.proofs.gradients.derivatives import derivative
from tests.proofs.gradients.elements import read_elements
from tests.proofs.gradients.torch_rules.pullbacks import (
    OUTPUT,
    Operation,
    export_pullback,
    gradient_of,
)

X, Z = symbol("x"), symbol("z")
"""The elements of the operands."""

G = symbol("g")
"""The gradient in the result."""


@dataclass(frozen=True, slots=True)
class Kink:
    """A place at which formulas meet, and the slopes there.

    Attributes:
        place: The operands there.
        slopes: The slope in each operand, as torch defines it.
        is_smooth: Whether these are the derivatives, which the formulas around it do not give.
    """

    place: Mapping[Term, Term]
    slopes: tuple[Term, ...]
    is_smooth: bool = False


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A rule of an elementwise operator.

    Attributes:
        operation: The operator, called with ``x``, and with ``z`` if it has two operands.
        operands: Its operands.
        edges: Terms that are 0 where the operator changes its formula.
        kinks: Places on the edges at which the slope is compared.
        domain: What holds of the operands.
    """

    operation: Operation
    operands: tuple[Term, ...] = (X,)
    edges: tuple[Term, ...] = ()
    kinks: tuple[Kink, ...] = ()
    domain: tuple[Term, ...] = ()

    def export(self) -> ModelProto:
        """Returns the operator and its backward as they are written to files."""
        names = [operand.value.name for operand in self.operands]
        return export_pullback(self.operation, dict.fromkeys(names, ("n",)), names)

    def judge(self, model: ModelProto) -> Verdict:
        """Returns whether the backward in a model is the derivative of its forward.

        Off the edges it is compared on each side of them, where both are defined; at a kink, with
        the slopes of torch. Nothing is said of edges without a kink.
        """
        inputs = {f"{naming.BATCH}{symbol.value.name}": symbol for symbol in (*self.operands, G)}
        outputs = read_elements(model, inputs)
        forward = outputs[OUTPUT]
        backward = [outputs[gradient_of(operand.value.name)] for operand in self.operands]
        for facts in self._cells():
            value = _resolve(forward, facts)
            for operand, gradient in zip(self.operands, backward, strict=True):
                slope = derivative(value, operand)
                difference = subtract(_resolve(gradient, facts), multiply(G, slope))
                if not _vanishes(difference, facts):
                    where = " and ".join(map(str, facts)) or "everywhere"
                    return Verdict(
                        Status.UNKNOWN, reason=f"in {operand}, where {where}: {difference} is open"
                    )
        for kink in self.kinks:
            facts = tuple(substitute(fact, kink.place) for fact in self.domain)
            for slope, gradient in zip(kink.slopes, backward, strict=True):
                value = _resolve(substitute(gradient, kink.place), facts)
                difference = subtract(value, multiply(G, slope))
                if not _vanishes(difference, facts):
                    return Verdict(
                        Status.UNKNOWN, reason=f"at the kink {dict(kink.place)}: {value} is open"
                    )
        return Verdict(Status.PROVED, ("derivative", "identity"))

    def _cells(self) -> Iterator[tuple[Term, ...]]:
        """The parts that the edges cut the domain into."""
        sides = [(less(edge, ZERO), less(ZERO, edge)) for edge in self.edges]
        for cell in itertools.product(*sides):
            yield *self.domain, *cell


def _resolve(term: Term, facts: Sequence[Term]) -> Term:
    """A term with the branches of its choices that facts decide."""
    while True:
        conditions = [
            node.args[0]
            for node in walk(term)
            if node.op is Op.ITE and not any(inner.op is Op.ITE for inner in walk(node.args[0]))
        ]
        replacements = {c: truth for c in conditions if (truth := _truth(c, facts)) is not None}
        if not replacements:
            return term
        term = _choose(substitute(term, replacements))


def _choose(term: Term) -> Term:
    for node in walk(term):
        if node.op is Op.ITE and node.args[0] in (TRUE, FALSE):
            return _choose(substitute(term, {node: node.args[1 if node.args[0] == TRUE else 2]}))
    return term


def _truth(condition: Term, facts: Sequence[Term]) -> Term | None:
    if condition in (TRUE, FALSE):
        return condition
    errors = {node for node in walk(condition) if node.op is Op.OPAQUE and node.value == "erf"}
    for place, node in enumerate(errors):
        # -1 < erf u < 1 for each u.
        error = symbol(f"erf.{place}")
        condition = substitute(condition, {node: error})
        facts = (*facts, less(MINUS_ONE, error), less(error, ONE))
    for truth, goal in ((TRUE, condition), (FALSE, negate(condition))):
        if goal == TRUE or prove(goal, assume=facts, effort=_effort()).proved:
            return truth
    return None


def _vanishes(difference: Term, facts: Sequence[Term]) -> bool:
    effort = _effort()
    if is_zero(difference, _signs_by(tuple(facts), effort)):
        return True
    return prove(equal(difference, ZERO), assume=facts, effort=effort).proved


def _signs_by(facts: tuple[Term, ...], effort: Effort) -> SignOf:
    """A function from a term to the sign that follows from facts."""
    signs: dict[Term, Sign] = {}

    def sign_of(term: Term) -> Sign:
        if term not in signs:
            signs[term] = next(
                (
                    sign
                    for sign, goal in sign_claims(term).items()
                    if prove(goal, assume=facts, effort=effort.portion(_SIGN_WORK)).proved
                ),
                Sign.ANY,
            )
        return signs[term]

    return sign_of


_SIGN_WORK = 300_000


def _effort() -> Effort:
    return Effort.of(LIMITS.claim_work)
