"""The derivative of a term in a symbol, by the chain rule.

Choices are differentiated in their branches: the result holds off the places where a condition
changes, which the caller has to treat.
"""

from collections.abc import Callable, Mapping, Sequence

from closedform.verify.terms.build import (
    MINUS_ONE,
    ONE,
    ZERO,
    add,
    cospi,
    divide,
    exp,
    ite,
    log,
    multiply,
    negative,
    power,
    rational,
    sinpi,
    square_root,
    subtract,
)
from closedform.verify.terms.build import sign as sign_of
from closedform.verify.terms.tree import Op, Term, fold

PI = Term(Op.PI)
_TWO = rational(2)


def _square(term: Term) -> Term:
    return multiply(term, term)


FUNCTIONS: Mapping[str, Callable[[Term], Term]] = {
    "erf": lambda u: multiply(divide(_TWO, square_root(PI)), exp(negative(_square(u)))),
    "atan": lambda u: divide(ONE, add(ONE, _square(u))),
    "asin": lambda u: divide(ONE, square_root(subtract(ONE, _square(u)))),
    "acos": lambda u: divide(MINUS_ONE, square_root(subtract(ONE, _square(u)))),
}
"""The derivatives of functions that the prover knows by name only. Source: DLMF 4.24, 7.2."""


def derivative(term: Term, symbol: Term) -> Term:
    """Returns the derivative of a term in a symbol.

    Example:
        >>> from closedform.verify.terms.build import symbol
        >>> x = symbol("x")
        >>> derivative(exp(multiply(x, x)), x)
        (exp((x * x)) * (x + x))

    Raises:
        NotImplementedError: An operation has no derivative here.
    """

    def slope(node: Term, pairs: list[tuple[Term, Term]]) -> tuple[Term, Term]:
        if node.op is Op.SYMBOL:
            return node, ONE if node == symbol else ZERO
        return node, _slope(node, [operand_slope for _, operand_slope in pairs])

    return fold(term, slope)[1]


def _slope(node: Term, slopes: Sequence[Term]) -> Term:
    args = node.args
    match node.op:
        case Op.RATIONAL | Op.PI | Op.FLOOR | Op.SIGN | Op.TRUE | Op.FALSE:
            return ZERO
        case Op.LESS | Op.LESS_EQUAL | Op.EQUAL | Op.AND | Op.OR | Op.NOT:
            return ZERO
        case Op.ADD:
            return add(*slopes)
        case Op.MULTIPLY:
            return add(
                *(
                    multiply(*args[:place], slope, *args[place + 1 :])
                    for place, slope in enumerate(slopes)
                    if slope != ZERO
                )
            )
        case Op.DIVIDE:
            above, below = args
            return divide(
                subtract(multiply(slopes[0], below), multiply(above, slopes[1])), _square(below)
            )
        case Op.POWER:
            base, exponent = args
            by_base = multiply(exponent, power(base, subtract(exponent, ONE)), slopes[0])
            return (
                by_base if slopes[1] == ZERO else add(by_base, multiply(node, log(base), slopes[1]))
            )
        case Op.COSPI:
            return multiply(MINUS_ONE, PI, sinpi(args[0]), slopes[0])
        case Op.SINPI:
            return multiply(PI, cospi(args[0]), slopes[0])
        case Op.EXP:
            return multiply(node, slopes[0])
        case Op.LOG:
            return divide(slopes[0], args[0])
        case Op.ABSOLUTE:
            return multiply(sign_of(args[0]), slopes[0])
        case Op.ITE:
            return ite(args[0], slopes[1], slopes[2])
        case Op.OPAQUE if node.value in FUNCTIONS:
            return multiply(FUNCTIONS[node.value](args[0]), slopes[0])
    raise NotImplementedError(f"no derivative of {node.op}")
