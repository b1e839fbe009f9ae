"""Linear forms: a rational constant plus rational multiples of terms, exactly.

One class for the coefficients of the clock, of other symbols and of terms that are not taken apart;
``linear_forms`` reads any number, ``line`` what is linear in a single symbol, ``as_term`` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flint import fmpq

from closedform.verify.terms import facts
from closedform.verify.terms.build import add, multiply, rational
from closedform.verify.terms.tree import TRUTHS, Op, Sign, Term, fold, walk

_ZERO = fmpq(0)


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``constant + sum(multiple * atom)``; no multiple is 0.

    Args:
        constant: The number that is added.
        multiples: The coefficient of each atom, a symbol or any other term.
    """

    constant: fmpq = _ZERO
    multiples: Mapping[Term, fmpq] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.constant, frozenset(self.multiples.items())))

    @classmethod
    def of(cls, atom: Term) -> LinearForm:
        """Returns the form of one term, with the coefficient 1."""
        return cls(_ZERO, {atom: fmpq(1)})

    def __add__(self, addend: LinearForm) -> LinearForm:
        constant = self.constant + addend.constant
        if not addend.multiples:
            return LinearForm(constant, self.multiples)
        total = dict(self.multiples)
        for atom, multiple in addend.multiples.items():
            total[atom] = total.get(atom, _ZERO) + multiple
        # No zeros: equal forms are equal mappings.
        return LinearForm(constant, {atom: factor for atom, factor in total.items() if factor != 0})

    def __sub__(self, subtrahend: LinearForm) -> LinearForm:
        return self + subtrahend.scale(fmpq(-1))

    def scale(self, factor: fmpq) -> LinearForm:
        """Returns a multiple of the form."""
        if factor == 0:
            return LinearForm()
        multiples = {atom: factor * multiple for atom, multiple in self.multiples.items()}
        return LinearForm(factor * self.constant, multiples)

    @property
    def is_constant(self) -> bool:
        """Whether it is a rational number."""
        return not self.multiples

    def slope(self, clock: Term) -> fmpq:
        """Returns the coefficient of a symbol."""
        return self.multiples.get(clock, _ZERO)

    def other_coefficients(self, clock: Term) -> dict[Term, fmpq]:
        """Returns the coefficients of all atoms but one."""
        return {atom: multiple for atom, multiple in self.multiples.items() if atom != clock}

    def is_line(self, clock: Term) -> bool:
        """Whether it holds no atom but the clock."""
        return not self.multiples or (len(self.multiples) == 1 and clock in self.multiples)

    def at(self, clock: Term, step: int | fmpq) -> fmpq:
        """Returns its value at a step; other atoms count as 0."""
        return self.slope(clock) * step + self.constant

    def fix_clock(self, clock: Term, step: int) -> LinearForm:
        """Returns the form with the clock replaced by a step."""
        if clock not in self.multiples:
            return self
        return LinearForm(self.at(clock, step), self.other_coefficients(clock))

    def root(self, clock: Term) -> fmpq:
        """Returns where a line with a slope is 0."""
        return -self.constant / self.slope(clock)

    def sign_between(self, clock: Term, first: int, last: int) -> Sign:
        """Returns its sign at all steps from ``first`` to ``last``; other symbols as declared."""
        # A line is between its ends; other symbols count with their declared signs.
        ends = sorted((self.at(clock, first), self.at(clock, last)))
        signs = [
            facts.sign_of_product((facts.sign_of_number(multiple), facts.sign_of(atom)))
            for atom, multiple in self.other_coefficients(clock).items()
        ]
        return facts.sign_of_sum([facts.sign_between(*ends), *signs])

    def sorted_items(self, clock: Term | None = None) -> list[tuple[Term, fmpq]]:
        """Returns atoms and coefficients: the clock first, then symbols by name, then others."""

        def place(pair: tuple[Term, fmpq]) -> tuple[bool, bool, str]:
            atom = pair[0]
            is_symbol = atom.op is Op.SYMBOL
            return atom != clock, not is_symbol, atom.value.name if is_symbol else ""

        pairs = list(self.multiples.items())
        return sorted(pairs, key=place) if len(pairs) > 1 else pairs

    def leading(self, clock: Term) -> fmpq:
        """Returns the first coefficient in that order; of a constant the constant."""
        return next((multiple for _, multiple in self.sorted_items(clock)), self.constant)

    def as_term(self, clock: Term | None = None) -> Term:
        """Returns the sum as a term, in that order, the constant last."""
        parts = [multiply(rational(multiple), atom) for atom, multiple in self.sorted_items(clock)]
        return add(*parts, rational(self.constant))


def combine_forms(node: Term, args: Sequence[LinearForm]) -> LinearForm | None:
    """Returns a sum, product or quotient of linear forms as one; None where it is not linear."""
    match node.op:
        case Op.RATIONAL:
            return LinearForm(node.value)
        case Op.ADD:
            return sum(args[1:], args[0])
        case Op.MULTIPLY:
            factor, result = fmpq(1), LinearForm(fmpq(1))
            for arg in args:
                if arg.is_constant:
                    factor *= arg.constant
                # At most one factor may hold atoms, or the product is not linear.
                elif result.is_constant:
                    result = arg
                else:
                    return None
            return result.scale(factor)
        case Op.DIVIDE if args[1].is_constant and args[1].constant != 0:
            return args[0].scale(1 / args[1].constant)
        case _:
            return None


def linear_forms(root: Term) -> dict[Term, LinearForm]:
    """Returns each number in a term as a linear form, over what is not taken apart as atoms."""
    forms: dict[Term, LinearForm] = {}
    for node in walk(root):
        if node.op not in TRUTHS:
            is_split = node.op is Op.RATIONAL or node.op in (Op.ADD, Op.MULTIPLY)
            form = combine_forms(node, [forms[arg] for arg in node.args]) if is_split else None
            forms[node] = LinearForm.of(node) if form is None else form
    return forms


def line(root: Term, clock: Term) -> LinearForm | None:
    """Returns a number that is linear in one symbol, and holds nothing else; None for any other."""

    def make(node: Term, args: list[LinearForm | None]) -> LinearForm | None:
        if node == clock:
            return LinearForm.of(clock)
        forms = [arg for arg in args if arg is not None]
        return combine_forms(node, forms) if len(forms) == len(args) else None

    return fold(root, make)
