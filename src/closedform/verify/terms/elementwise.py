"""The ops that are computed element by element, and the constructors that mean the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from closedform.ir import Op
from closedform.verify import terms
from closedform.verify.terms import Term


def select(condition: Term, then: Term, other: Term) -> Term:
    """Returns the choice between two terms; that of the lesser or greater one is their extremum."""
    if condition.op is terms.Op.LESS:
        if condition.args == (then, other):
            return terms.minimum(then, other)
        if condition.args == (other, then):
            return terms.maximum(then, other)
    return terms.ite(condition, then, other)


def _equal(left: Term, right: Term) -> Term:
    """A comparison with itself asks whether a value is a number, and here all are."""
    return terms.TRUE if left == right else terms.equal(left, right)


def turns(angle: Term) -> Term:
    """Returns an angle divided by pi; pi is cancelled where it is a factor, not by simplifying."""
    found = _without_pi(angle)
    return terms.divide(angle, terms.PI) if found is None else found


def _without_pi(angle: Term) -> Term | None:
    if angle.op is terms.Op.PI:
        return terms.ONE
    if angle.op is terms.Op.MULTIPLY:
        for position, factor in enumerate(angle.args):
            rest = _without_pi(factor)
            if rest is not None:
                return terms.multiply(*angle.args[:position], rest, *angle.args[position + 1 :])
    if angle.op is terms.Op.DIVIDE:
        above = _without_pi(angle.args[0])
        return None if above is None else terms.divide(above, angle.args[1])
    return None


ELEMENTWISE: Mapping[Op, Callable[..., Term]] = {
    Op.ADD: terms.add,
    Op.SUB: terms.subtract,
    Op.MUL: terms.multiply,
    Op.NEG: terms.negative,
    Op.ABS: terms.absolute,
    Op.DIV: terms.divide,
    Op.FLOOR_DIV: terms.floor_divide,
    Op.FLOOR_MOD: terms.floor_modulo,
    Op.MIN: terms.minimum,
    Op.MAX: terms.maximum,
    Op.FLOOR: terms.floor,
    Op.SQRT: terms.square_root,
    Op.EXP: terms.exp,
    Op.LOG: terms.log,
    Op.COS: lambda angle: terms.cospi(turns(angle)),
    Op.SIN: lambda angle: terms.sinpi(turns(angle)),
    Op.POW: terms.power,
    Op.LT: terms.less,
    Op.LE: terms.less_equal,
    Op.EQ: _equal,
    Op.AND: terms.both,
    Op.OR: terms.either,
    Op.NOT: terms.negate,
    Op.WHERE: select,
}
"""The ops that are computed element by element, and the constructors that mean the same."""
