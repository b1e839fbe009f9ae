"""Statements about all steps folded into one period of their floors.

With ``t = P n + r`` and P the common period of the floors, ``floor(a t + b)`` is
``a P n + floor(a r + b)``; where n cancels, a statement is one about r alone.
"""

from __future__ import annotations

import math

from flint import fmpq

from closedform.verify.terms.build import add, floor, multiply, rational, rebuild, symbol
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm, linear_forms
from closedform.verify.terms.tables import is_integer
from closedform.verify.terms.tree import Op, Term, fold, walk


def fold_period(statement: Term, clock: Term) -> tuple[Term, int] | None:
    """Returns the statement about one period of the floors, and the period; None without one.

    For every t, the statement at t is the one returned at ``t mod period``.
    """
    forms = linear_forms(statement)
    floored = (forms[node.args[0]] for node in forms if node.op is Op.FLOOR)
    period = math.lcm(*(int(form.slope(clock).q) for form in floored))
    if not 1 < period <= LIMITS.fold_period:
        return None
    count = symbol("period#", integer=True)
    replacement = add(multiply(rational(period), count), clock)

    def shifted(node: Term, args: list[Term]) -> Term:
        made = replacement if node == clock else rebuild(node, tuple(args)) if args else node
        if made.op is Op.FLOOR:
            return _floor(made.args[0])
        is_sum = made.op in (Op.ADD, Op.MULTIPLY)
        return linear_forms(made)[made].as_term() if is_sum else made

    folded = fold(statement, shifted)
    return None if count in walk(folded) else (folded, period)


def _floor(inner: Term) -> Term:
    """``floor(whole + rest)`` as ``whole + floor(rest)``."""
    form = linear_forms(inner)[inner]
    whole = LinearForm(
        form.constant if form.constant.q == 1 else fmpq(0),
        {atom: each for atom, each in form.multiples.items() if each.q == 1 and is_integer(atom)},
    )
    return (whole + LinearForm.of(floor((form - whole).as_term()))).as_term()
