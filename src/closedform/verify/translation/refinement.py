"""Whether a graph has a value wherever its source has one.

Equality is shown where both have a value. A graph refines its source if, moreover, every operation
of it is defined wherever all operations of the source are. Each partial operation of the graph
(``definedness``) is shown to be so in one of these ways, the cheapest first:

1. the source has the same demand, under no more conditions;
2. integers and the clock stay in the range that their operation needs: the clock has its own range,
   and a counter counts steps;
3. the signs of its operands, at all steps, say so;
4. its operand has the congruent form of one of the source's, or the same factors;
5. it follows from the conditions under which the operation is taken;
6. its operand is shown to be equal to one of the source's: a square that the graph multiplies out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.identity import forms
from closedform.verify.identity.congruence import Congruence
from closedform.verify.identity.equality import StepRange, are_equal, operand_fits
from closedform.verify.identity.forms import Form, NoForm
from closedform.verify.prover import prove
from closedform.verify.terms import build
from closedform.verify.terms.build import is_rational
from closedform.verify.terms.definedness import Obligation, PartialOperation, obligations
from closedform.verify.terms.facts import STRICT, sign_from
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import linear_forms
from closedform.verify.terms.tree import Op, Sign, Term, symbols, walk


def undefined_parts(
    source: Term, computed: Term, steps: StepRange, effort: Effort
) -> Iterator[Obligation]:
    """Yields the operations of a graph that are not shown to be defined where its source is.

    Args:
        source: The term of the source.
        computed: The term of the graph.
        steps: The steps at which it may run.
        effort: The work that proofs may do.
    """
    if source == computed:
        return
    demands = obligations(computed)
    if not demands:
        return
    source_demands = _Known(obligations(source), steps)
    for demand in demands:
        if not source_demands.implies(demand, effort):
            yield demand


def settle(root: Term, steps: StepRange) -> Term:
    """Returns a term with the branches that the conditions on the clock choose at some steps.

    Nothing but conditions is rewritten, so that the operations of the branches stay.
    """
    clock = steps.clock
    at_step = {clock: build.rational(steps.first)} if steps.first == steps.last else {}

    def change(node: Term) -> Term:
        if node.op is not Op.ITE:
            return node
        truth = _truth(build.substitute(node.args[0], at_step), steps)
        return node if truth is None else build.ite(truth, *node.args[1:])

    return build.rewrite(root, change)


def _truth(condition: Term, steps: StepRange) -> Term | None:
    """A condition on only the clock as a truth, where it is the same at all steps."""
    if condition in (build.TRUE, build.FALSE):
        return condition
    is_relation = condition.op in (Op.LESS, Op.LESS_EQUAL, Op.EQUAL)
    if not is_relation or symbols(condition).keys() != {steps.clock.value.name}:
        return None
    sign = steps.sign_of(build.subtract(*condition.args))
    if sign in STRICT:
        is_true = sign is Sign.NEGATIVE and condition.op is not Op.EQUAL
        return build.TRUE if is_true else build.FALSE
    if sign is Sign.NONPOSITIVE and condition.op is Op.LESS_EQUAL:
        return build.TRUE
    return build.FALSE if sign is Sign.NONNEGATIVE and condition.op is Op.LESS else None


@dataclass(slots=True)
class _Known:
    """The facts that hold where all operations of a source are defined.

    Attributes:
        given: The demands of its operations.
        steps: The steps at which it may run.
    """

    given: Sequence[Obligation]
    steps: StepRange
    _table: Congruence = field(default_factory=Congruence)
    _signs: dict[Term, Sign] = field(default_factory=dict)
    _is_clock: dict[Term, bool] = field(default_factory=dict)

    def implies(self, demand: Obligation, effort: Effort) -> bool:
        """Returns whether an operation of the graph is shown to be defined."""
        # An operation of the source counts where all of its conditions are also in the graph.
        applicable = [
            obligation for obligation in self.given if set(obligation.path) <= set(demand.path)
        ]
        return (
            any(obligation.goal == demand.goal for obligation in applicable)
            or self._is_unreachable(demand, effort)
            or operand_fits(demand.node, self._sign_of)
            or self._is_congruent(demand)
            or self._follows_from_path(demand, effort)
            or self._has_equal_operand(demand, effort)
        )

    def _follows_from_path(self, demand: Obligation, effort: Effort) -> bool:
        """Whether the conditions under which a value is taken say that it is defined.

        Each side of a condition, unless it is a constant, becomes a symbol: a statement that holds
        for all numbers holds for this one.
        """
        relations = [part for part in demand.path if part.op in (Op.LESS, Op.LESS_EQUAL)]
        sides = {
            side: build.own_symbol(f"side {place}")
            for place, side in enumerate(
                dict.fromkeys(side for part in relations for side in part.args if symbols(side))
            )
        }
        goal = build.substitute(demand.goal, sides)
        if not sides or goal == demand.goal or not effort.left:
            return False
        assumptions = [build.substitute(part, sides) for part in relations]
        portion = effort.portion(LIMITS.refinement_work)
        return prove(goal, assume=assumptions, effort=portion).proved

    # --- ranges of integers ----------------------------------------------------------------------

    def _is_unreachable(self, demand: Obligation, effort: Effort) -> bool:
        """Whether a value that does not fit is never reached."""
        if demand.kind is not PartialOperation.BRANCH:
            return False
        if any(self._is_false(condition) for condition in demand.path):
            return True
        path_conditions = [
            part for part in demand.path if symbols(part).keys() == {self.steps.clock.value.name}
        ]
        if not path_conditions or not effort.left:
            return False
        first, last = build.rational(self.steps.first), build.rational(self.steps.last)
        clock = self.steps.clock
        step_range = build.less_equal(first, clock), build.less_equal(clock, last)
        portion = effort.portion(LIMITS.refinement_work)
        return prove(
            build.negate(build.both(*path_conditions)), assume=step_range, effort=portion
        ).proved

    def _is_false(self, condition: Term) -> bool:
        """Whether no counter and no step makes a condition true, by the ranges of linear forms."""
        match condition.op:
            case Op.OR:
                return all(self._is_false(part) for part in condition.args)
            case Op.AND:
                return any(self._is_false(part) for part in condition.args)
            case Op.LESS | Op.LESS_EQUAL:
                least = self._least(build.subtract(*condition.args))
                return least is not None and (least >= 0 if condition.op is Op.LESS else least > 0)
            case _:
                return False

    def _least(self, number: Term) -> fmpq | None:
        """The least value of a linear form in the clock, counters and choices of numbers."""
        form = linear_forms(number)[number]
        least = form.constant
        for atom, times in form.multiples.items():
            ends = self._ends(atom)
            if not ends:
                return None
            least += min(times * end for end in ends)
        return least

    def _ends(self, atom: Term) -> tuple[fmpq, ...]:
        """Numbers between which an atom is; none where they are not known."""
        if atom.op is Op.SYMBOL and atom.value.integer:
            return fmpq(self.steps.first), fmpq(self.steps.last)
        choices = atom.args[1:] if atom.op is Op.ITE else ()
        return tuple(choice.value for choice in choices) if all(map(is_rational, choices)) else ()

    def _sign_of(self, root: Term) -> Sign:
        """The sign of a number at all steps; what has no other symbol than the clock is divided."""
        for node in walk(root):
            if node in self._signs:
                continue
            sign = sign_from(node, [self._signs[arg] for arg in node.args])
            self._is_clock[node] = (
                node == self.steps.clock
                if not node.args
                else all(self._is_clock[arg] for arg in node.args)
            ) or is_rational(node)
            is_open = sign not in STRICT and self._is_clock[node]
            if is_open and node.op in (Op.ADD, Op.MULTIPLY, Op.SYMBOL, Op.FLOOR):
                sign = self.steps.sign_of(node)
            self._signs[node] = sign
        return self._signs[root]

    # --- congruence ------------------------------------------------------------------------------

    def _is_congruent(self, demand: Obligation) -> bool:
        if demand.kind not in _BY_FORM:
            return False
        try:
            required_form = self._operand(demand)
            source_forms = [
                self._operand(obligation)
                for obligation in self.given
                if self._is_taken(obligation, demand)
            ]
            if demand.kind is PartialOperation.DIVISION:
                nonzero = {atom for form in source_forms for atom in self._factors(form)}
                # A product is not 0 if none of its factors is.
                return bool(required_form) and self._factors(required_form) <= nonzero
            return any(self._is_positive_multiple(required_form, form) for form in source_forms)
        except NoForm:
            return False

    def _has_equal_operand(self, demand: Obligation, effort: Effort) -> bool:
        """Whether an operation of the source has an operand of the same value."""
        if demand.kind not in _BY_FORM:
            return False
        operand = _operand_of(demand)
        return any(
            are_equal(operand, _operand_of(obligation), self.steps) is not None
            for obligation in self.given
            if effort.left and self._is_taken(obligation, demand)
        )

    def _is_taken(self, assumption: Obligation, demand: Obligation) -> bool:
        """Whether an operation of the source is taken where one of the graph is."""
        if assumption.kind is not demand.kind:
            return False
        conditions = [self._table.truth(part) for part in demand.path]
        return all(self._table.truth(part) in (True, *conditions) for part in assumption.path)

    def _operand(self, demand: Obligation) -> Form:
        """The form of the divisor, radicand or argument of an operation, but for positive factors.

        Raises:
            NoForm: It has none.
        """
        operand = _operand_of(demand)
        if demand.kind is PartialOperation.LOGARITHM:
            return self._table.form(operand)
        return self._table.product(self._unsigned_factors(operand))

    def _unsigned_factors(self, number: Term) -> Iterator[Form]:
        """The factors and divisors of a number whose sign is not known to be positive."""
        if self._sign_of(number) is Sign.POSITIVE:
            return
        if number.op is Op.MULTIPLY:
            for factor in number.args:
                yield from self._unsigned_factors(factor)
        elif number.op is Op.DIVIDE:
            yield from self._unsigned_factors(number.args[0])
            for form in self._unsigned_factors(number.args[1]):
                yield self._table.power(form, fmpq(-1))
        else:
            yield self._table.form(number)

    def _factors(self, form: Form) -> set[int]:
        """The atoms whose product a form is, but for a rational factor."""
        product = self._table.product((form, form))  # a sum becomes an atom, squared
        return {atom for monomial, _ in product for atom, _ in monomial}

    def _is_positive_multiple(self, required_form: Form, source_form: Form) -> bool:
        """Whether a form is a positive rational times the other: both then have one sign."""
        if not required_form or not source_form:
            return False
        quotient = self._table.product((required_form, self._table.power(source_form, fmpq(-1))))
        number = forms.number_of(quotient)
        return number is not None and number > 0


def _operand_of(demand: Obligation) -> Term:
    """The divisor, radicand or argument of an operation."""
    return demand.node.args[1 if demand.kind is PartialOperation.DIVISION else 0]


_BY_FORM = frozenset({PartialOperation.DIVISION, PartialOperation.ROOT, PartialOperation.LOGARITHM})
