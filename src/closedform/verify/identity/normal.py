"""Normal forms on a run of steps: angles within a quarter or half turn, minima in one order.

1. ``sin(pi u)`` is ``cos(pi (u - 1/2))``; a cosine is even, has the period 2, and changes its sign
   over a half turn, so an angle that is a line gets a positive first coefficient, a constant in
   [0, 1), and no even multiples of integers; one that is a constant comes to [0, 1/2].
2. Square roots of rational numbers are a rational number times the root of an integer without
   square factors, in the numerator.
3. The arguments of min and max are put in the order of their values at the first step.
4. Whole numbers are taken out of floors: ``floor(n + u)`` is ``n + floor(u)``.

Each rule is an equation of real numbers: both sides are equal wherever they are defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from flint import arb, fmpq, fmpz

from closedform.language.exact import nearest_float
from closedform.verify.terms import build, tree
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm, linear_forms
from closedform.verify.terms.partition import form_on
from closedform.verify.terms.tree import TRUTHS, Op, Term, fold, walk

_HALF = fmpq(1, 2)


def normal(root: Term, clock: Term, first: int, last: int) -> Term:
    """Returns an equal term in the normal form of the steps from ``first`` to ``last``."""
    names = tree.symbols(root)

    def change(node: Term) -> Term:
        if node.op in (Op.COSPI, Op.SINPI):
            return _cosine(node, node.args[0])
        if node.op in (Op.MINIMUM, Op.MAXIMUM):
            # min and max commute: one order makes equal terms equal.
            return build.rebuild(node, tuple(sorted(node.args, key=_size)))
        if node.op is Op.FLOOR:
            return floor_of(node.args[0])
        if node.op is Op.POWER and all(map(build.is_rational, node.args)):
            return _root(*(arg.value for arg in node.args))
        above = _inverse(node.args[1]) if node.op is Op.DIVIDE else None
        return node if above is None else build.multiply(node.args[0], above)

    def _cosine(node: Term, angle: Term) -> Term:
        form = form_on(angle, clock, first, last)
        if form is None:
            form = linear_forms(angle)[angle]
        shift = _HALF if node.op is Op.SINPI else fmpq(0)
        sign, form = _reduce_angle(form - LinearForm(shift), clock)
        return build.multiply(build.rational(sign), build.cospi(form.as_term(clock)))

    def _size(node: Term) -> float:
        # Odd numbers, so that different terms seldom meet: equal sizes stay in the order they had.
        values = {name: fmpq(2 * place + 3, 7) for place, name in enumerate(names)}
        return float_at(node, {**values, clock.value.name: fmpq(first)}, 0.0)

    return build.rewrite(root, change)


def floor_of(number: Term) -> Term:
    """Returns the floor of a number, ``floor(whole + rest)`` as ``whole + floor(rest)``.

    A floor never falls: that of a maximum is the maximum of the floors.
    """
    if number.op in (Op.MINIMUM, Op.MAXIMUM):
        return build.rebuild(number, tuple(floor_of(arg) for arg in number.args))
    form = linear_forms(number)[number]
    constant = fmpq(form.constant.floor())
    whole = LinearForm(
        constant,
        {
            atom: multiple
            for atom, multiple in form.multiples.items()
            if multiple.q == 1 and is_integer(atom)
        },
    )
    if whole == LinearForm():
        return build.floor(number)
    return (whole + LinearForm.of(build.floor((form - whole).as_term()))).as_term()


def without_special_angles(root: Term) -> Term:
    """Returns the term with the rational values of cos and sin of quarter turns worked out."""

    def change(node: Term) -> Term:
        if node.op not in (Op.COSPI, Op.SINPI) or not build.is_rational(node.args[0]):
            return node
        shift = fmpq(0) if node.op is Op.COSPI else _HALF
        quarters = 2 * (node.args[0].value - shift)
        # Quarter turns: cos is 1, 0, -1, 0.
        return build.rational((1, 0, -1, 0)[int(quarters.p) % 4]) if quarters.q == 1 else node

    return build.rewrite(root, change) if has_trigonometry(root) else root


def has_trigonometry(*roots: Term) -> bool:
    """Returns whether there is a cosine or sine in a term."""
    return any(node.op in (Op.COSPI, Op.SINPI) for node in walk(*roots))


def with_shared_cosines(
    left: Term, right: Term, clock: Term, step: int, are_same: Callable[[Term, Term], bool]
) -> tuple[Term, Term]:
    """Returns two terms with one symbol for each value with cosines of the clock that they share.

    Args:
        left: A term.
        right: Another one.
        clock: The symbol of the clock.
        step: A step at which values are compared first.
        are_same: Whether two numbers are equal.
    """
    at_step = {clock.value.name: fmpq(step)}
    candidates = [(node, float_at(node, at_step)) for node in _cosine_values(right, clock)]
    symbols: tuple[dict[Term, Term], dict[Term, Term]] = ({}, {})
    matched_nodes: set[Term] = set()
    for node in reversed(_cosine_values(left, clock)):
        if node in matched_nodes:
            continue
        size = float_at(node, at_step)
        near = [
            candidate for candidate, value in candidates if math.isclose(value, size, rel_tol=1e-9)
        ]
        match = next((candidate for candidate in reversed(near) if are_same(node, candidate)), None)
        if match is not None:
            name = build.own_symbol(f"cosine {len(symbols[1])}")
            symbols[0][node] = symbols[1].setdefault(match, name)
            matched_nodes.update(walk(node))
    return build.substitute(left, symbols[0]), build.substitute(right, symbols[1])


def _cosine_values(root: Term, clock: Term) -> list[Term]:
    """The numbers that hold a cosine and no symbol but the clock, small ones first."""
    is_clock_only: dict[Term, bool] = {}
    values: dict[Term, None] = {}
    for node in walk(root):
        is_other = node.op in (Op.SYMBOL, Op.OPAQUE, Op.UNDEFINED) and node != clock
        is_clock_only[node] = not is_other and all(is_clock_only[arg] for arg in node.args)
        has_cosine = node.op in (Op.COSPI, Op.SINPI) or any(arg in values for arg in node.args)
        if is_clock_only[node] and has_cosine and node.op not in TRUTHS:
            values[node] = None
    return list(values)


def float_at(node: Term, point: Mapping[str, fmpq], unknown: float = math.nan) -> float:
    """Returns about the value of a number at a point."""
    value = value_of(node, point)
    if isinstance(value, arb):
        return float(value.mid())
    return nearest_float(value) if isinstance(value, fmpq) else unknown


def _root(base: fmpq, exponent: fmpq) -> Term:
    """A half-integer power of a rational number: ``(p/q)^(n/2) = (pq)^(n/2) / q^n``."""
    plain = build.power(build.rational(base), build.rational(exponent))
    # Bounded, since the number is factored.
    if exponent.q != 2 or base <= 0 or not 0 < exponent < 8 or max(base.p, base.q) > 2**32:
        return plain
    outside, inside = fmpq(1, int(base.q) ** int(exponent.p)), 1
    for prime, times in fmpz(int(base.p) * int(base.q)).factor():
        whole, rest = divmod(int(times) * int(exponent.p), 2)
        outside *= int(prime) ** whole
        inside *= int(prime) ** rest
    root = build.power(build.rational(inside), build.HALF) if inside > 1 else build.ONE
    return build.multiply(build.rational(outside), root)


def _inverse(below: Term) -> Term | None:
    """One over ``r * s^(1/2)`` for rational r and s: ``s^(1/2) / (r * s)``."""
    factors = below.args if below.op is Op.MULTIPLY else (below,)
    roots = [node for node in factors if _is_root(node)]
    rational_factors = [node.value for node in factors if build.is_rational(node)]
    if (
        len(roots) != 1
        or len(roots) + len(rational_factors) < len(factors)
        or 0 in rational_factors
    ):
        return None
    (root,) = roots
    number = root.args[0].value * (rational_factors[0] if rational_factors else fmpq(1))
    return build.multiply(build.rational(1 / number), root)


def _is_root(node: Term) -> bool:
    is_power = node.op is Op.POWER and node.args[1] == build.HALF
    return is_power and build.is_rational(node.args[0]) and bool(node.args[0].value > 0)


def opaque_cosines(root: Term) -> Term:
    """Returns the term with each cosine as a function of which only equality is known."""
    return build.rewrite(
        root, lambda node: build.opaque("cospi", *node.args) if node.op is Op.COSPI else node
    )


def by_angles(root: Term, clock: Term, first: int, last: int) -> Term:
    """Returns the term with the angles of its cosines as separate variables.

    Angles that are small multiples of one another, but for quarters of a turn, are multiples of one
    variable. What is 0 for all values of the variables is 0 at the angles.
    """
    forms = {
        node: form
        for node in walk(root)
        if node.op is Op.COSPI and (form := form_on(node.args[0], clock, first, last)) is not None
    }
    bases: list[tuple[LinearForm, Term]] = []
    # The angle of the largest denominator first: others are whole multiples of it.
    for form in sorted(forms.values(), key=lambda form: -int(form.constant.q)):
        is_base = form.slope(clock) != 0 or _is_oblique(form)
        if is_base and _multiple(form, bases, clock) is None:
            bases.append((form, build.own_symbol(f"angle {len(bases)}")))

    def make(node: Term, args: list[Term]) -> Term:
        if node in forms:
            angle = _multiple(forms[node], bases, clock)
            return node if angle is None else build.cospi(angle)
        return build.rebuild(node, tuple(args)) if args else node

    return fold(root, make)


def _is_oblique(form: LinearForm) -> bool:
    """Whether an angle is a number whose cosine is not one of the special ones."""
    return form.is_constant and int(form.constant.q) not in (1, 2, 3, 4, 6)


def _multiple(
    form: LinearForm, bases: Sequence[tuple[LinearForm, Term]], clock: Term
) -> Term | None:
    """An angle as a small multiple of the variable of another one, and quarters of a turn."""
    for base, variable in bases:
        ratio = _ratio(form, base, clock)
        if ratio is None:
            continue
        rest = form - base.scale(ratio)
        if rest.is_constant and (4 * rest.constant).q == 1:
            multiple = build.multiply(build.rational(ratio), variable)
            return build.add(multiple, build.rational(rest.constant))
    return None


def _ratio(form: LinearForm, base: LinearForm, clock: Term) -> fmpq | None:
    """The small number of times that an angle is another one, but for quarters of a turn."""
    if form.is_constant and base.is_constant:
        ratios = [
            (form.constant - fmpq(quarter_turns, 4)) / base.constant for quarter_turns in _QUARTERS
        ]
    elif base.slope(clock) != 0:
        ratios = [form.slope(clock) / base.slope(clock)]
    else:
        ratios = []
    # The smallest multiple: Chebyshev polynomials grow with it.
    ratio = min(
        (quarter_turns for quarter_turns in ratios if quarter_turns != 0),
        key=_size_of,
        default=None,
    )
    return None if ratio is None or _size_of(ratio) > LIMITS.angle_ratio else ratio


# Half turns first: they change no more than the sign of a cosine.
_QUARTERS = (0, 4, -4, 8, -8, 2, -2, 6, -6, 1, -1, 3, -3, 5, -5, 7, -7)


def _size_of(ratio: fmpq) -> int:
    return max(abs(int(ratio.p)), int(ratio.q))


def _reduce_angle(angle: LinearForm, clock: Term) -> tuple[int, LinearForm]:
    """(s, u) with ``cos(pi angle) = s cos(pi u)``."""
    multiples = {
        symbol: multiple
        for symbol, multiple in angle.multiples.items()
        if symbol == clock or not (is_integer(symbol) and multiple.q == 1 and multiple.p % 2 == 0)
    }
    form = LinearForm(angle.constant, multiples)
    # cos(-x) = cos(x).
    if form.leading(clock) < 0:
        form = form.scale(fmpq(-1))
    # cos has the period 2 in half turns, and cos(x + 1) = -cos(x).
    height = form.constant - 2 * fmpq((form.constant / 2).floor())
    sign = 1
    if height >= 1:
        sign, height = -1, height - 1
    if form.is_constant and height > _HALF:
        sign, height = -sign, 1 - height
    return sign, LinearForm(height, form.multiples)
