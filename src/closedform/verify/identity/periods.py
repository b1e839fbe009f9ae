"""Linear forms, and floors that go on for ever folded into one period.

With ``t = P n + r`` and P the common period of the floors, ``floor(a t + b)`` is
``a P n + floor(a r + b)``; where n cancels, a statement is one about r alone.
"""

from __future__ import annotations

import math

from flint import fmpq

from closedform.verify.terms.build import add, floor, multiply, rational, rebuild, symbol
from closedform.verify.terms.tree import TRUTHS, Op, Term, walk

Form = dict[Term | None, fmpq]  # coefficients by term; the constant under None
_LONGEST_PERIOD = 10**6


def form_of(term: Term, forms: dict[Term, Form]) -> Form:
    """Returns a number as a sum of rational multiples of other terms."""
    match term.op:
        case Op.RATIONAL:
            return {None: term.value}
        case Op.ADD:
            total: Form = {}
            for arg in term.args:
                for key, coefficient in forms[arg].items():
                    total[key] = total.get(key, fmpq(0)) + coefficient
            return {key: coefficient for key, coefficient in total.items() if coefficient != 0}
        case Op.MULTIPLY:
            return _product_form(term, forms)
        case _:
            return {term: fmpq(1)}


def _product_form(term: Term, forms: dict[Term, Form]) -> Form:
    constant, rest = fmpq(1), None
    for arg in term.args:
        form = forms[arg]
        if not form or set(form) == {None}:
            constant *= form.get(None, fmpq(0))
        elif rest is None:
            rest = form
        else:
            return {term: fmpq(1)}
    if rest is None:
        return {None: constant} if constant != 0 else {}
    return {key: constant * each for key, each in rest.items()} if constant != 0 else {}


def term_of_form(form: Form) -> Term:
    """Returns the sum that a form stands for."""
    parts = [
        rational(coefficient) if key is None else multiply(rational(coefficient), key)
        for key, coefficient in form.items()
    ]
    return add(*parts)


def fold_period(statement: Term, clock: Term) -> tuple[Term, int] | None:
    """Returns the statement about one period of the floors, and the period; None without one.

    For every t, the statement at t is the one returned at ``t mod period``.
    """
    forms: dict[Term, Form] = {}
    period = 1
    for node in walk(statement):
        if node.op in TRUTHS:
            continue
        forms[node] = form_of(node, forms)
        if node.op is Op.FLOOR:
            period = math.lcm(period, int(forms[node.args[0]].get(clock, fmpq(0)).q))
    if not 1 < period <= _LONGEST_PERIOD:
        return None
    count = symbol("period#", integer=True)
    folded = _Folding(clock, add(multiply(rational(period), count), clock)).of(statement)
    return None if count in walk(folded) else (folded, period)


class _Folding:
    """Rewrites terms in linear forms, with the whole part of a floor's argument taken out."""

    def __init__(self, clock: Term, replacement: Term) -> None:
        self._clock = clock
        self._replacement = replacement

    def of(self, statement: Term) -> Term:
        done: dict[Term, Term] = {}
        for node in walk(statement):
            if node == self._clock:
                made = self._replacement
            else:
                made = rebuild(node, tuple(done[arg] for arg in node.args)) if node.args else node
            done[node] = made if made.op in TRUTHS else self._normal(made)
        return done[statement]

    def _normal(self, term: Term) -> Term:
        if term.op is Op.FLOOR:
            return self._floor(term.args[0])
        if term.op in (Op.ADD, Op.MULTIPLY):
            return term_of_form(self._form(term))
        return term

    def _form(self, term: Term) -> Form:
        forms: dict[Term, Form] = {}
        for node in walk(term):
            if node.op not in TRUTHS:
                forms[node] = form_of(node, forms)
        return forms[term]

    def _floor(self, inner: Term) -> Term:
        """``floor(whole + rest)`` as ``whole + floor(rest)``."""
        form = self._form(inner)
        whole = {
            key: coefficient
            for key, coefficient in form.items()
            if coefficient.q == 1 and (key is None or _is_integer(key))
        }
        rest = {key: coefficient for key, coefficient in form.items() if key not in whole}
        return term_of_form(self._form(add(term_of_form(whole), floor(term_of_form(rest)))))


def _is_integer(term: Term) -> bool:
    return term.op is Op.FLOOR or (term.op is Op.SYMBOL and bool(term.value.integer))
