"""Terms of the prover from SymPy expressions, and SymPy expressions of terms.

SymPy is the input language, never the judge: an expression is read as it stands, nothing of it is
simplified, refined or solved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import sympy as sp
from sympy.core.sympify import _sympify

from closedform.errors import VerificationError, shortened
from closedform.language import FloorDiv, FloorMod, MatMul, ReduceMax, ReduceSum, Transpose
from closedform.language.elementary import DEFINITIONS
from closedform.language.schedule import Schedule
from closedform.language.symbols import InternalName, t
from closedform.verify.terms import build
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Sign, Term, chain, fold, show, walk

Reader = Callable[[Any, Callable[[sp.Basic], "Term"]], "Term"]
"""The reader of a kind of SymPy node: from the node and the reader of its parts."""


def term(expr: Any, readers: Mapping[type, Reader] | None = None) -> Term:
    """Returns the term that a SymPy expression or condition is, read as it stands.

    A SymPy Float is the dyadic number it holds. Functions of tensors become opaque.

    Args:
        expr: The expression.
        readers: How some kinds of nodes are read, in place of how they are read here.

    Raises:
        VerificationError: It holds a nested ``sympy.Mod``, which SymPy gets wrong at construction,
            or a kind of node that is not supported, or it is nested too deeply to read.

    Example:
        >>> from closedform import t
        >>> term(sp.Piecewise((t / 10, t < 10), (1, True)))
        ite(t < 10, (1/10 * t), 1)
    """
    if isinstance(expr, bool | int | float):
        expr = _sympify(expr)
    try:
        return _read(expr, {}, {**_READERS, **(readers or {})})
    except RecursionError:
        raise VerificationError(
            f"the expression is nested too deeply to read: {type(expr).__name__} of "
            f"{len(expr.args)} arguments",
            hint="flatten it",
        ) from None


def value_term(schedule: Schedule) -> Term:
    """Returns the term of a schedule's value at ``t``, with its sines as cosines.

    The lemmas of the prover are about cosines; files hold sines where these are more exact.
    """
    value_as_term: Term = schedule.memo("term", lambda: fold(term(schedule.bound), _with_cosines))
    return value_as_term


def _with_cosines(node: Term, args: list[Term]) -> Term:
    if node.op is Op.SINPI:
        return build.cospi(build.subtract(build.HALF, args[0]))
    return build.rebuild(node, tuple(args))


def _read(expr: sp.Basic, terms: dict[sp.Basic, Term], readers: Mapping[type, Reader]) -> Term:
    term_of_expr = terms.get(expr)
    if term_of_expr is not None:
        return term_of_expr
    for kind in type(expr).__mro__:
        reader = readers.get(kind)
        if reader is not None:
            result = reader(expr, lambda part: _read(part, terms, readers))
            terms[expr] = result
            return result
    raise VerificationError(
        f"{type(expr).__name__} has no meaning to the prover, got {shortened(str(expr))}",
        hint="write it with + * / ** cos sin exp log atan floor Min Max Abs sign Piecewise",
    )


def _symbol(expr: sp.Symbol, _: Any) -> Term:
    if expr.is_real is False or expr.is_extended_real is False:
        raise VerificationError(f"{expr} is declared as not real", hint="symbols stand for reals")
    sign_assumption = next((sign for sign in Sign if expr.assumptions0.get(sign.value)), Sign.ANY)
    is_integer = bool(expr.is_integer)
    name = expr.name
    if isinstance(expr, sp.Dummy):
        name = InternalName(name, f"Dummy {expr.dummy_index}")
    return build.symbol(name, integer=is_integer, sign=sign_assumption)


def _product(expr: sp.Mul, read: Callable[[sp.Basic], Term]) -> Term:
    above: list[Term] = []
    below: list[Term] = []
    for factor in expr.args:
        if factor.is_Pow and factor.exp.could_extract_minus_sign():
            below.append(read(sp.Pow(factor.base, -factor.exp, evaluate=False)))
        else:
            above.append(read(factor))
    return (
        build.divide(build.multiply(*above), build.multiply(*below))
        if below
        else build.multiply(*above)
    )


def _power(expr: sp.Pow, read: Callable[[sp.Basic], Term]) -> Term:
    if expr.exp.is_Rational and expr.exp < 0:
        return build.divide(build.ONE, build.power(read(expr.base), build.rational(-expr.exp)))
    if expr.base is sp.E:
        return build.exp(read(expr.exp))
    if expr.base is sp.S.NegativeOne and expr.exp.is_integer:
        return build.cospi(read(expr.exp))  # SymPy writes cos(pi*t) so
    return build.power(read(expr.base), read(expr.exp))


def _turns(angle: sp.Expr, read: Callable[[sp.Basic], Term]) -> Term:
    """The angle divided by pi, without SymPy's help where pi is a factor of each summand."""
    parts = []
    for summand in sp.Add.make_args(angle):
        factors = list(sp.Mul.make_args(summand))
        if sp.pi in factors:
            factors.remove(sp.pi)
            parts.append(read(sp.Mul(*factors)))
        else:
            distributed_angle = _distribute_pi(factors)
            parts.append(
                build.divide(read(summand), build.PI)
                if distributed_angle is None
                else _turns(distributed_angle, read)
            )
    return build.add(*parts)


def _distribute_pi(factors: list[sp.Expr]) -> sp.Expr | None:
    """``a * (pi*b + pi*c)`` as ``pi*a*b + pi*a*c``, if one factor is such a sum."""
    for position, factor in enumerate(factors):
        cofactor = sp.Mul(*factors[:position], *factors[position + 1 :])
        summands = sp.Add.make_args(factor)
        if factor.is_Add and all(sp.pi in sp.Mul.make_args(part) for part in summands):
            return sp.Add(*(cofactor * part for part in summands))
    return None


def _modulo(expr: sp.Mod, read: Callable[[sp.Basic], Term]) -> Term:
    left, right = expr.args
    if left.has(sp.Mod) or right.has(sp.Mod):
        raise VerificationError(
            f"a nested Mod is not read, got {expr}: SymPy 1.14 rewrites such a Mod wrongly",
            hint="write closedform.expr.floor_mod(a, b), which SymPy leaves as written",
        )
    return build.floor_modulo(read(left), read(right))


def _piecewise(expr: sp.Piecewise, read: Callable[[sp.Basic], Term]) -> Term:
    # Where no condition is true a Piecewise is nan.
    result = build.UNDEFINED
    for value, condition in reversed(expr.args):
        result = build.ite(read(condition), read(value), result)
    return result


def _choice(expr: sp.Basic, read: Callable[[sp.Basic], Term]) -> Term:
    test, yes, no = (read(arg) for arg in expr.args)
    return build.either(build.both(test, yes), build.both(build.negate(test), no))


def _over_all(name: str) -> Reader:
    """A reader for a reduction over all axes; one over some is another number at each place."""

    def reader(expr: sp.Basic, read: Callable[[sp.Basic], Term]) -> Term:
        if len(expr.args) > 1:
            raise VerificationError(
                f"{expr} reduces some axes only, which is not supported here",
                hint="reduce all axes",
            )
        return build.opaque(name, read(expr.args[0]))

    return reader


def _of(make: Callable[..., Term]) -> Reader:
    """A reader for a node that is the same constructor over its arguments."""
    return lambda expr, read: make(*(read(arg) for arg in expr.args))


def _defined(form: Callable[..., sp.Expr]) -> Reader:
    """A reader for a function that is written with others."""
    return lambda expr, read: read(form(*expr.args))


_READERS: Mapping[type, Reader] = {
    **{kind: _defined(form) for kind, form in DEFINITIONS.items()},
    sp.Rational: lambda expr, _: build.rational(expr),
    sp.Float: lambda expr, _: build.rational(sp.Rational(expr)),
    sp.core.numbers.Pi: lambda expr, _: build.PI,
    sp.core.numbers.Exp1: lambda expr, _: build.exp(build.ONE),
    sp.Symbol: _symbol,
    sp.Add: _of(build.add),
    sp.Mul: _product,
    sp.Pow: _power,
    sp.exp: _of(build.exp),
    sp.log: _of(build.log),
    sp.atan: _of(build.atan),
    sp.cos: lambda expr, read: build.cospi(_turns(expr.args[0], read)),
    sp.sin: lambda expr, read: build.sinpi(_turns(expr.args[0], read)),
    sp.floor: _of(build.floor),
    sp.ceiling: lambda expr, read: build.negative(build.floor(build.negative(read(expr.args[0])))),
    sp.Mod: _modulo,
    FloorDiv: _of(build.floor_divide),
    FloorMod: _of(build.floor_modulo),
    sp.Min: _of(build.minimum),
    sp.Max: _of(build.maximum),
    sp.Abs: _of(build.absolute),
    # SymPy makes 2**re(x) of Abs(2**x); all values are real.
    sp.re: lambda expr, read: read(expr.args[0]),
    sp.sign: _of(build.sign),
    sp.Piecewise: _piecewise,
    ReduceSum: _over_all("reduce_sum"),
    ReduceMax: _over_all("reduce_max"),
    Transpose: lambda expr, read: build.opaque("transpose", read(expr.args[0])),
    MatMul: lambda expr, read: build.opaque("matmul", *(read(arg) for arg in expr.args)),
    sp.logic.boolalg.BooleanTrue: lambda expr, _: build.TRUE,
    sp.logic.boolalg.BooleanFalse: lambda expr, _: build.FALSE,
    sp.StrictLessThan: _of(build.less),
    sp.LessThan: _of(build.less_equal),
    sp.StrictGreaterThan: lambda expr, read: build.less(read(expr.rhs), read(expr.lhs)),
    sp.GreaterThan: lambda expr, read: build.less_equal(read(expr.rhs), read(expr.lhs)),
    sp.Equality: _of(build.equal),
    sp.Unequality: lambda expr, read: build.negate(build.equal(read(expr.lhs), read(expr.rhs))),
    sp.And: _of(build.both),
    sp.Or: _of(build.either),
    sp.Not: _of(build.negate),
    sp.ITE: _choice,
}


FunctionWriter = Callable[[Term, list[Any]], sp.Basic]
"""From an opaque function and the expressions of its operands to its expression."""


def to_sympy(root: Term, write_function: FunctionWriter | None = None) -> sp.Basic:
    """Returns the SymPy expression of a term, for people to read: ``term`` of it means the same.

    Floors are FloorDiv and branches an unevaluated Piecewise, so SymPy rewrites none of them.

    Args:
        root: The term.
        write_function: Writes functions of tensors that have shapes.

    Example:
        >>> from closedform.verify.terms.build import ONE, UNDEFINED, ite, less, rational, symbol
        >>> to_sympy(ite(less(symbol("t", integer=True), rational(3)), ONE, UNDEFINED))
        Piecewise((1, t < 3))
    """
    _check_size(root)
    expressions: dict[Term, Any] = {}
    links = _links(root)
    for node in walk(root):
        if node not in links:
            args = [expressions.get(arg) for arg in node.args]
            is_function = write_function is not None and node.op is Op.OPAQUE
            expressions[node] = (
                write_function(node, args)
                if write_function is not None and is_function
                else _write(node, args, expressions)
            )
    result = expressions[root]
    if result is None:
        raise VerificationError("undefined has no SymPy expression")
    return result


def _check_size(root: Term) -> None:
    """Raises VerificationError where SymPy would need far longer than the term is large."""
    sizes: dict[Term, int] = {}
    choices: dict[Term, int] = {}  # in one condition: SymPy writes one out for all of their cases
    for node in walk(root):
        sizes[node] = 1 + sum(sizes[arg] for arg in node.args)
        choices[node] = sum(choices[arg] for arg in node.args) + (node.op is Op.ITE)
        condition = node.args[0] if node.op is Op.ITE else node
        if choices[condition] > LIMITS.nested_choices and condition is not node:
            raise VerificationError(
                f"a condition of it has {choices[condition]} nested choices, at most "
                f"{LIMITS.nested_choices} are written",
                hint="an expression has no shared parts: a chain of choices becomes a tree of them",
            )
    if sizes[root] > LIMITS.expression_nodes:
        raise VerificationError(
            f"it has more than {LIMITS.expression_nodes} nodes as an expression",
            hint="an expression has no shared parts: a square of a square becomes a tree of them",
        )


def _write_symbol(node: Term) -> sp.Symbol:
    """Signs have the names of SymPy's assumptions."""
    symbol_value = node.value
    signs = {} if symbol_value.sign is Sign.ANY else {symbol_value.sign.value: True}
    return sp.Symbol(symbol_value.name, real=True, integer=symbol_value.integer or None, **signs)


def _links(root: Term) -> set[Term]:
    """The choices that are only met as the last part of another one: links of a chain."""
    links: set[Term] = set()
    inner_terms = {root}
    for node in walk(root):
        is_choice = node.op is Op.ITE
        inner_terms.update(node.args[:2] if is_choice else node.args)
        if is_choice and node.args[2].op is Op.ITE:
            links.add(node.args[2])
    return links - inner_terms


def _write_branches(node: Term, expressions: dict[Term, Any]) -> sp.Piecewise:
    """A chain of choices as one Piecewise; an undefined end leaves it without a last branch."""
    branches, last = chain(node)
    pairs = [(expressions[then], expressions[condition]) for condition, then in branches]
    if last.op is not Op.UNDEFINED:
        pairs.append((expressions[last], sp.true))
    return sp.Piecewise(*pairs, evaluate=False)


def _write_table(node: Term, index: sp.Expr) -> sp.Piecewise:
    pairs = [
        (sp.Rational(int(value.p), int(value.q)), sp.Eq(index, position, evaluate=False))
        for position, value in enumerate(node.value)
    ]
    return sp.Piecewise(*pairs, evaluate=False)


def _write_floor(node: Term, args: list[Any], expressions: dict[Term, Any]) -> sp.Expr:
    inner = node.args[0]
    if inner.op is Op.DIVIDE:
        return FloorDiv(*(expressions[arg] for arg in inner.args))
    return FloorDiv(args[0], sp.Integer(1))


_FUNCTIONS: Mapping[Hashable, Any] = {
    "reduce_sum": ReduceSum,
    "reduce_max": ReduceMax,
    "transpose": Transpose,
    "matmul": MatMul,
}

_WRITERS: Mapping[Op, Callable[..., Any]] = {
    Op.ADD: sp.Add,
    Op.MULTIPLY: sp.Mul,
    Op.DIVIDE: lambda a, b: a / b,
    Op.POWER: sp.Pow,
    Op.COSPI: lambda a: sp.cos(sp.pi * a),
    Op.SINPI: lambda a: sp.sin(sp.pi * a),
    Op.EXP: sp.exp,
    Op.LOG: sp.log,
    Op.ATAN: sp.atan,
    Op.MINIMUM: lambda a, b: sp.Min(a, b, evaluate=False),
    Op.MAXIMUM: lambda a, b: sp.Max(a, b, evaluate=False),
    Op.ABSOLUTE: lambda a: sp.Abs(a, evaluate=False),
    Op.SIGN: lambda a: sp.sign(a, evaluate=False),
    Op.LESS: lambda a, b: sp.Lt(a, b, evaluate=False),
    Op.LESS_EQUAL: lambda a, b: sp.Le(a, b, evaluate=False),
    Op.EQUAL: lambda a, b: sp.Eq(a, b, evaluate=False),
    Op.AND: lambda *args: sp.And(*args, evaluate=False),
    Op.OR: lambda *args: sp.Or(*args, evaluate=False),
    Op.NOT: lambda a: sp.Not(a, evaluate=False),
}

_CONSTANTS: Mapping[Op, Any] = {
    Op.PI: sp.pi,
    Op.TRUE: sp.true,
    Op.FALSE: sp.false,
    Op.UNDEFINED: None,
}


def _write(node: Term, args: list[Any], expressions: dict[Term, Any]) -> Any:
    if node.op in _CONSTANTS:
        return _CONSTANTS[node.op]
    match node.op:
        case Op.RATIONAL:
            return sp.Rational(int(node.value.p), int(node.value.q))
        case Op.SYMBOL:
            return _write_symbol(node)
        case Op.ITE:
            return _write_branches(node, expressions)
        case Op.LOOKUP:
            return _write_table(node, args[0])
        case Op.FLOOR:
            return _write_floor(node, args, expressions)
        case Op.OPAQUE if node.value in _FUNCTIONS:
            return _FUNCTIONS[node.value](*args)
        case Op.OPAQUE:
            raise VerificationError(f"{node.value} of a tensor has no SymPy expression")
    if any(arg is None for arg in args):
        raise VerificationError(f"{show(node)} has no SymPy expression, its part is undefined")
    return _WRITERS[node.op](*args)


CLOCK = term(t)
"""The number of steps before this one, as a term."""
