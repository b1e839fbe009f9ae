"""Simplify: one walk that brings an expression to the small vocabulary of the lowering.

On the domain where each part is taken:

1. branches that cannot be taken are dropped, a branch that is always taken replaces its Piecewise,
   and a Piecewise in the last branch of another is merged into it;
2. Max, Min and Abs lose the arguments that intervals decide;
3. floor, ceiling, Mod, floor_div and floor_mod of rational combinations of integers become integer
   division and remainder;
4. functions with a definition in simpler ones are replaced by it (tan, tanh, sign, …).

It never calls SymPy's ``simplify`` or its kin, never changes a value, and costs time linear in the
number of nodes and branches.

Division and remainder of integers too large for the graph, by a constant that is not, are taken in
parts. For an integer constant m > 0, integers c, x, d, and g a common divisor of c and m:

    floor((c*x + d) / m) = floor((c/g * x + floor(d/g)) / (m/g))
    (c*x + d) mod m      = g * ((c/g * x + floor(d/g)) mod (m/g)) + d mod g
    (c*x + d) mod m      = ((c mod m) * (x mod m) + d mod m) mod m
    floor((c*x + d) / m) = c * floor(x / m) + floor((c * (x mod m) + d) / m)

which keeps ``floor_mod(48271 * t, 2**31 - 1)`` an integer at every step that a graph runs to, and
makes ``floor(t/30 + 1e-12)`` ``floor(t/30)``. Where ``c * (x mod m)`` is itself too large, x is
taken in digits of w bits, ``x = sum x_k * 2**(w*k)``, and c * 2**(w*k) is ``q_k * m + r_k``:

    c*x mod m        = (sum r_k * x_k mod m) mod m
    floor((c*x + d) / m) = sum q_k * x_k + floor((sum r_k * x_k + d) / m)

The walk ends: an expression is visited again only where a definition of step 4 replaced it, and
the replacement contains no function that has one (``_defined`` checks it). All other rewrites are
of parts that are in the vocabulary, and so is their result: a quotient in parts is final, whether
or not its numerator now fits; where it does not, lowering refuses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy as sp
from sympy.core.relational import Relational

from closedform.errors import LoweringError
from closedform.language.elementary import DEFINITIONS
from closedform.language.exact import FINEST
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.settled import construct
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import fits_quotient, interval, is_integral, split
from closedform.lowering.analysis.domain import (
    LAST_STEP,
    MAX_STEP,
    Domain,
    Interval,
    fits_difference,
    largest_integer,
)
from closedform.lowering.jumps import comparison_by_steps, floor_by_steps


class Rewriter(ABC):
    """A rewrite of expressions by their structure and the domain on which they are taken."""

    def __init__(self) -> None:
        self._known: dict[tuple[sp.Basic, Domain], sp.Basic] = {}

    def visit(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        """Returns the rewritten expression; symbols and numbers stay as they are."""
        if not expr.args or expr.is_number:
            return expr
        key = (expr, domain)
        if key not in self._known:
            self._known[key] = self._rewrite(expr, domain)
        return self._known[key]

    @abstractmethod
    def _rewrite(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        """Rewrites an expression with operands; it visits those itself."""


# Digits of a product modulo m; each is three nodes of the graph.
_MOST_DIGITS = 16


def remainder(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> sp.Expr:
    """Returns ``numerator mod divisor`` of integers, in parts where the numerator is too large."""
    if not _is_too_large(numerator, divisor, domain):
        return FloorMod(numerator, divisor)
    if divisor < 0:
        return -remainder(-numerator, -divisor, domain)
    common, lowest, offset = _without_common_divisor(numerator, divisor)
    modulus = divisor / common
    is_reduced = not _is_too_large(lowest, modulus, domain)
    part = _mod(lowest, modulus, domain) if is_reduced else _reduced_mod(lowest, modulus, domain)
    return common * part + offset


def quotient(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> sp.Expr:
    """Returns ``floor(numerator / divisor)`` of integers, in parts as :func:`remainder`."""
    if not _has_parts(numerator, divisor):
        return FloorDiv(numerator, divisor)
    if fits_quotient(numerator, divisor, domain) and not _is_too_large(numerator, divisor, domain):
        return FloorDiv(numerator, divisor)
    if divisor < 0:
        return quotient(-numerator, -divisor, domain)
    common, lowest, _ = _without_common_divisor(numerator, divisor)
    modulus = divisor / common
    if fits_quotient(lowest, modulus, domain) and not _is_too_large(lowest, modulus, domain):
        return _div(lowest, modulus, domain)
    return _reduced_div(lowest, modulus, domain)


def _is_too_large(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> bool:
    """Whether an integer or its divisor exceeds the clock's dtype, and can be reduced."""
    if not _has_parts(numerator, divisor):
        return False
    limit = largest_integer(domain)
    parts = (divisor, numerator, *numerator.args)
    sizes = [interval(part, domain).absolute().high for part in parts]
    return any(isinstance(size, Fraction) and size > limit for size in sizes)


def _has_parts(numerator: sp.Expr, divisor: sp.Expr) -> bool:
    """Whether a numerator is a sum, product or power, and the divisor a number that is not 0."""
    is_number = bool(divisor.is_Integer and divisor != 0)
    return is_number and isinstance(numerator, sp.Add | sp.Mul | sp.Pow)


def _without_common_divisor(
    numerator: sp.Expr, divisor: sp.Integer
) -> tuple[sp.Integer, sp.Expr, sp.Integer]:
    """Returns (g, I, r), ``numerator == g * I + r`` with 0 <= r < g, g the largest divisor of m."""
    constant, terms = _linear(numerator)
    common = sp.igcd(divisor, *(factor for factor, _ in terms))
    lowest = sp.Add(constant // common, *(factor / common * core for factor, core in terms))
    return sp.Integer(common), lowest, constant % common


def _linear(numerator: sp.Expr) -> tuple[sp.Integer, list[tuple[sp.Integer, sp.Expr]]]:
    """Returns (d, [(c, x), …]) with ``numerator == d + sum of c * x``."""
    constant, terms = numerator.as_coeff_Add()
    return constant, [term.as_coeff_Mul() for term in sp.Add.make_args(terms) if term != 0]


def _reduced_mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """Returns an integer in 0..m-1 that is ``expr`` modulo m, each part reduced before."""
    if expr.is_Integer:
        return expr % divisor
    if isinstance(expr, sp.Add):
        parts = [_reduced_mod(arg, divisor, domain) for arg in expr.args]
        return FloorMod(sp.Add(*parts), divisor)
    if isinstance(expr, sp.Mul | sp.Pow):
        # Reduced after each factor: all intermediate values are below m².
        product: sp.Expr = sp.Integer(1)
        factors = expr.args if isinstance(expr, sp.Mul) else [expr.base] * int(expr.exp)
        for arg in factors:
            product = _product(product, _reduced_mod(arg, divisor, domain), divisor, domain)
        return product
    return _mod(expr, divisor, domain)


def _reduced_div(numerator: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """Returns ``floor(numerator / m)``, whole multiples of m taken out of each term before.

    Its parts fit the integers of the graph wherever digits of the remainders exist whose products
    with m do; else lowering refuses the quotient.
    """
    # floor((c x + d) / m) = c floor(x / m) + floor((c (x mod m) + d) / m), the equation of the
    # module's docstring, term by term.
    constant, terms = _linear(numerator)
    outside, inside = [constant // divisor], [constant % divisor]
    for factor, core in terms:
        whole, part = _divide(core, divisor, domain)
        outside.append(factor * whole)
        inside.append(factor * part)
    if _is_too_large(sp.Add(*inside), divisor, domain):
        whole_parts, inside = _split_digits(sp.Add(*inside), divisor, domain)
        outside.extend(whole_parts)
    return sp.Add(*outside, _div(sp.Add(*inside), divisor, domain))


def _divide(core: sp.Expr, divisor: sp.Integer, domain: Domain) -> tuple[sp.Expr, sp.Expr]:
    """Returns (q, r), ``core == m * q + r``; r is in 0..m-1, or a power of such a number.

    With ``x = m q + r``, ``x**k = m q (x**(k-1) + r x**(k-2) + … + r**(k-1)) + r**k``.
    """
    if not isinstance(core, sp.Pow) or not _is_too_large(core, divisor, domain):
        return _div(core, divisor, domain), _mod(core, divisor, domain)
    base, power = core.base, int(core.exp)
    whole, part = _div(base, divisor, domain), _mod(base, divisor, domain)
    powers = (base ** (power - 1 - index) * part**index for index in range(power))
    return whole * sp.Add(*powers), part**power


def _split_digits(
    numerator: sp.Expr, divisor: sp.Integer, domain: Domain
) -> tuple[list[sp.Expr], list[sp.Expr]]:
    """Returns terms whose sums W and R have ``numerator == m * W + R``, R small where it can be."""
    constant, terms = _linear(numerator)
    width, count = _digits(terms, divisor, domain)
    outside, inside = [], [constant]
    for factor, core in terms:
        for index in range(count):
            digit = _digit(core, width * index, width, domain)
            whole, part = _divide_toward_zero(factor * 2 ** (width * index), divisor)
            outside.append(whole * digit)
            inside.append(part * digit)
    return outside, inside


def _digits(
    terms: list[tuple[sp.Integer, sp.Expr]], divisor: sp.Integer, domain: Domain
) -> tuple[int, int]:
    """Returns the bits of a digit and the number of digits of each core; one digit at worst."""
    bits = max(int(interval(core, domain).high).bit_length() for _, core in terms)
    for count in range(1, _MOST_DIGITS + 1):
        width = -(-bits // count)
        # Each of the products is below 2**width * m.
        if (len(terms) * count + 1) * 2**width * divisor <= largest_integer(domain):
            return width, count
    return bits, 1


def _digit(core: sp.Expr, index: int, width: int, domain: Domain) -> sp.Expr:
    """The bits of an integer >= 0 from ``index`` on, ``width`` of them."""
    above = _div(core, sp.Integer(2) ** index, domain)
    return _mod(above, sp.Integer(2) ** width, domain)


def _divide_toward_zero(number: sp.Integer, divisor: sp.Integer) -> tuple[sp.Integer, sp.Integer]:
    """Returns (q, r), ``number == q * m + r``, neither of another sign than the number."""
    whole = sp.sign(number) * (abs(number) // divisor)
    return whole, number - whole * divisor


def _product(left: sp.Expr, right: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """The product of two numbers in 0..m-1 modulo m."""
    limit = largest_integer(domain)
    if interval(left * right, domain).high <= limit:
        return _mod(left * right, divisor, domain)
    factor, cofactor = (right, left) if right.is_Integer else (left, right)
    # A digit of w bits times a factor below m stays below 2**w * m <= limit.
    width = int(limit // divisor).bit_length() - 1
    bits = int(interval(cofactor, domain).high).bit_length()
    if not factor.is_Integer or width < 1 or bits > width * _MOST_DIGITS:
        return _mod(left * right, divisor, domain)
    digits = []
    for index in range(0, bits, width):
        digit = _digit(cofactor, index, width, domain)
        digits.append(FloorMod((factor * 2**index % divisor) * digit, divisor))
    return FloorMod(sp.Add(*digits), divisor)


def _mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    return expr if _is_reduced(expr, divisor, domain) else FloorMod(expr, divisor)


def _div(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    if divisor == 1:
        return expr
    return sp.Integer(0) if _is_reduced(expr, divisor, domain) else FloorDiv(expr, divisor)


def _is_reduced(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> bool:
    """Whether an integer is in 0..m-1."""
    values = interval(expr, domain)
    return bool(values.low >= 0 and values.high < int(divisor))


_CHAINED = {sp.Lt: sp.And, sp.Le: sp.And, sp.Gt: sp.Or, sp.Ge: sp.Or}


def simplify(expr: sp.Expr, domain: Domain, place: str) -> sp.Expr:
    """Returns an expression of the same value on the domain, in the vocabulary of the lowering.

    Args:
        expr: The expression.
        domain: Where it is taken.
        place: What it belongs to, named in errors.

    Raises:
        LoweringError: A Piecewise does not cover the domain, or a raw ``Mod`` occurs in another.
    """
    return _Simplifier(place).visit(expr, domain)


def _without_divisor(condition: Relational, domain: Domain) -> sp.Basic | None:
    """A comparison of a quotient of integers as one of integers; None of other numbers.

    ``(16*t + 11)/(t + 8) <= 179/12`` is ``12*(16*t + 11) - 179*(t + 8) <= 0``.
    """
    powers = condition.atoms(sp.Pow)
    if not any(power.exp.is_negative and not power.is_number for power in powers):
        return None
    above, below = sp.together(condition.lhs - condition.rhs).as_numer_denom()
    if below.is_number or not (is_integral(above) and is_integral(below)):
        return None
    signs = interval(below, domain)
    if not signs.is_positive and not signs.is_negative:
        return None
    difference = sp.expand(above if signs.is_positive else -above)
    return construct(condition.func, difference, sp.S.Zero)


Definition = Callable[..., sp.Expr]
"""From the operands of a function to its definition."""


class _Simplifier(Rewriter):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def _rewrite(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        if isinstance(expr, sp.Piecewise):
            return self._piecewise(expr, domain)
        if isinstance(expr, sp.Mod) and any(arg.has(sp.Mod) for arg in expr.args):
            raise LoweringError(
                f"Mod inside Mod cannot be trusted, got {expr}",
                where=self.place,
                hint="SymPy rewrites it wrongly at construction; write closedform.expr.floor_mod",
            )
        if isinstance(expr, sp.Pow) and expr.exp.is_Rational and expr.exp.q > FINEST:
            # Its base stays a Min or Max: SymPy takes (t/24)**k apart, and 24**k takes it for ever.
            base = expr.base
            is_clamp = isinstance(base, sp.Min | sp.Max)
            parts = [self.visit(arg, domain) for arg in (base.args if is_clamp else (base,))]
            return (base.func(*parts) if is_clamp else parts[0]) ** expr.exp
        args = [self.visit(arg, domain) for arg in expr.args]
        if isinstance(expr, Relational):
            plain = tuple(args) == expr.args and not expr.has(sp.Min, sp.Max)
            return self._relation(expr if plain else _comparison(expr.func, *args), domain)
        if isinstance(expr, sp.ITE):
            return without_choice(*args)
        if isinstance(expr, sp.Min | sp.Max):
            rivals = _contenders(expr.func, args, domain)
            # SymPy compares the arguments of a new Min or Max pairwise, which takes long.
            clamp = expr if tuple(rivals) == expr.args else construct(expr.func, *rivals)
            return _by_steps(clamp, domain)
        definition = _DEFINITIONS.get(expr.func)
        if definition is not None:
            return self.visit(self._defined(definition, args), domain)
        rule = _REWRITES.get(expr.func)
        if rule is not None:
            return rule(args, domain)
        if isinstance(expr, sp.Pow) and args[0].is_number and isinstance(args[1], sp.Piecewise):
            return _power_of_choice(args[0], args[1])
        return expr if tuple(args) == expr.args else construct(expr.func, *args)

    def _relation(self, condition: sp.Basic, domain: Domain) -> sp.Basic:
        """A comparison by thresholds of the step, where floats would round its operands."""
        if not isinstance(condition, Relational):
            return condition
        if integral_multiple(condition.lhs - condition.rhs) is not None:
            return condition
        by_integers = _without_divisor(condition, domain)
        if by_integers is not None:
            return self.visit(by_integers, domain)
        by_steps = comparison_by_steps(condition, domain)
        return condition if by_steps is None else by_steps

    def _defined(self, definition: Definition, args: list[sp.Expr]) -> sp.Expr:
        """The definition of a function at simplified operands, which is visited again."""
        form = definition(*args)
        # The form has no function with a definition when it is visited again: the walk ends.
        if form.has(*_DEFINITIONS):
            raise LoweringError(
                f"a definition contains functions that have one: {form}",
                where=self.place,
                hint="report it: write it with functions that have none",
            )
        return form

    def _piecewise(self, expr: sp.Piecewise, domain: Domain) -> sp.Expr:
        """The branches that some step reaches, each simplified where it holds."""
        simplified_branches: list[tuple[sp.Expr, sp.Basic]] = []
        remaining: Domain | None = domain
        for value, condition in expr.args:
            if remaining is None:
                break
            simple = self.visit(condition, remaining)
            inside, outside = split(simple, remaining)
            if inside is not None:
                simplified_branches.append(
                    (self.visit(value, inside), sp.true if outside is None else simple)
                )
            remaining = outside
        if remaining is not None:
            raise self._uncovered_error(remaining)
        is_unchanged = simplified_branches == [(value, cond) for value, cond in expr.args]
        # A Piecewise in last place is merged, also where no branch has changed.
        is_flat = not isinstance(simplified_branches[-1][0], sp.Piecewise)
        return expr if is_unchanged and is_flat else _join(simplified_branches)

    def _uncovered_error(self, rest: Domain) -> LoweringError:
        steps = rest.interval(t)
        is_open = steps.high in LAST_STEP.values()
        gap = f"t >= {steps.low}" if is_open else f"{steps.low} <= t <= {steps.high}"
        later = f"begin after them with shift({steps.high + 1})"
        hint = "add a final (value, True) branch" if is_open or steps.low else later
        return LoweringError(f"Piecewise has no value for {gap}", where=self.place, hint=hint)


def _by_steps(expr: sp.Expr, domain: Domain) -> sp.Expr:
    """A floor of a real number, or a clamp of one, as numbers by thresholds where these are few."""
    if not is_whole(expr) or is_integral(expr):
        return expr
    by_steps = floor_by_steps(expr, domain)
    return expr if by_steps is None else by_steps


def is_whole(expr: sp.Expr) -> bool:
    """Returns whether all values are integers by the structure; floors of real numbers are."""
    if isinstance(expr, sp.floor | FloorDiv):
        return True
    is_closed = isinstance(expr, sp.Add | sp.Mul | sp.Min | sp.Max | sp.Abs)
    return all(map(is_whole, expr.args)) if is_closed else is_integral(expr)


def _power_of_choice(base: sp.Expr, exponent: sp.Piecewise) -> sp.Expr:
    """``b**Piecewise((n, c), …)`` of integers n as ``Piecewise((b**n, c), …)``."""
    if not all(value.is_Integer and abs(value) <= _LARGEST_EXPONENT for value, _ in exponent.args):
        return construct(sp.Pow, base, exponent)
    return sp.Piecewise(*((base**value, condition) for value, condition in exponent.args))


# Powers of numbers of more digits stay powers.
_LARGEST_EXPONENT = 64


def without_choice(test: sp.Basic, yes: sp.Basic, no: sp.Basic) -> sp.Basic:
    """Returns the ITE that SymPy makes of a comparison with a Piecewise by And, Or and Not."""
    return sp.Or(sp.And(test, yes), sp.And(sp.Not(test), no))


def _join(branches: list[tuple[sp.Expr, sp.Basic]]) -> sp.Expr:
    """A Piecewise whose last condition holds in the rest, merged with a Piecewise in last place."""
    value, _ = branches[-1]
    if len(branches) == 1:
        return value
    if isinstance(value, sp.Piecewise):
        return sp.Piecewise(*branches[:-1], *value.args)
    return sp.Piecewise(*branches[:-1], (value, True))


def _comparison(kind: type[Relational], left: sp.Expr, right: sp.Expr) -> sp.Basic:
    """``Max(a, b) < c`` is ``a < c and b < c``, and so on: plain comparisons narrow domains."""
    if isinstance(right, sp.Min | sp.Max) and not isinstance(left, sp.Min | sp.Max):
        reversed_relation = kind(left, right).reversed
        if reversed_relation.func in _CHAINED and isinstance(
            reversed_relation.lhs, sp.Min | sp.Max
        ):
            return _comparison(reversed_relation.func, reversed_relation.lhs, reversed_relation.rhs)
    if isinstance(left, sp.Min | sp.Max) and kind in _CHAINED:
        join = _CHAINED[kind]
        # Min(a, b) < c is "or", Max(a, b) < c is "and"; for > it is the other way round.
        if isinstance(left, sp.Min):
            join = sp.Or if join is sp.And else sp.And
        return join(*(_comparison(kind, arg, right) for arg in left.args))
    return construct(kind, left, right)


def _contenders(kind: type[sp.Expr], args: list[sp.Expr], domain: Domain) -> list[sp.Expr]:
    """Returns the arguments of a Min or Max that may be its value, as far as intervals tell."""

    def loses(first: Interval, second: Interval) -> bool:
        # At equality either argument may go: both have the same value there.
        return first.high <= second.low if kind is sp.Max else first.low >= second.high

    rivals = [(arg, interval(arg, domain)) for arg in args]
    for rival in list(rivals):
        # The list shrinks while it is walked, so that of two equal arguments one remains.
        rival_ranges = [values for arg, values in rivals if arg is not rival[0]]
        if any(loses(rival[1], values) for values in rival_ranges):
            rivals.remove(rival)
    return [arg for arg, _ in rivals]


def _absolute(args: list[sp.Expr], domain: Domain) -> sp.Expr:
    values = interval(args[0], domain)
    if values.is_nonnegative:
        return args[0]
    return -args[0] if values.high <= 0 else sp.Abs(args[0])


def integral_multiple(expr: sp.Expr) -> tuple[sp.Expr, int] | None:
    """Returns (I, q) with ``expr == I / q``, I an integer at every step and q a positive int.

    Sums, products with rationals, minima, maxima and absolute values of such are of this form, too:
    ``abs(t/10 - 303/10)`` is ``abs(t - 303) / 10``.
    """
    if expr.is_Rational:
        return sp.Integer(expr.p), int(expr.q)
    if is_integral(expr):
        return expr, 1
    if isinstance(expr, sp.Mul):
        factor, core = expr.as_coeff_Mul()
        multiple = integral_multiple(core) if factor.is_Rational and factor != 1 else None
        if multiple is None:
            return None
        product = sp.Rational(factor.p, factor.q * multiple[1])
        return product.p * multiple[0], int(product.q)
    if not isinstance(expr, sp.Add | sp.Min | sp.Max | sp.Abs):
        return None
    multiples = [integral_multiple(arg) for arg in expr.args]
    known = [multiple for multiple in multiples if multiple is not None]
    if len(known) < len(multiples):
        return None
    scale = int(sp.ilcm(1, *(divisor for _, divisor in known)))
    parts = [integer * (scale // divisor) for integer, divisor in known]
    return expr.func(*parts), scale


def _floor(args: list[sp.Expr], domain: Domain) -> sp.Expr:
    (operand,) = args
    multiple = integral_multiple(operand)
    if multiple is not None:
        integer, scale = multiple
        return integer if scale == 1 else quotient(integer, sp.Integer(scale), domain)
    numerator, denominator = operand.as_numer_denom()
    if is_integral(numerator) and is_integral(denominator):
        return quotient(numerator, denominator, domain)
    if isinstance(operand, sp.Min | sp.Max):
        # A floor never falls.
        levels = [_floor([arg], domain) for arg in operand.args]
        return _by_steps(construct(operand.func, *levels), domain)
    # SymPy takes whole constants out of a floor.
    plain = sp.floor(operand)
    level = _by_steps(plain, domain)
    return _floor_with_root(operand, domain) if level == plain else level


def _floor_with_root(operand: sp.Expr, domain: Domain) -> sp.Expr:
    """A floor of a real number; of a root and a multiple ``a / b`` of an integer by integers.

    ``floor(x + a/b) = floor((floor(b x) + a) / b)``.
    """
    parts = [(part, integral_multiple(part)) for part in sp.Add.make_args(operand)]
    real_terms = [part for part, multiple in parts if multiple is None]
    shift = integral_multiple(operand - real_terms[0])
    if shift is None:
        return sp.floor(operand)
    above, scale = shift
    level = _floor_of_root(scale * real_terms[0], domain)
    if level is None:
        return sp.floor(operand)
    return level + above if scale == 1 else sp.floor((level + above) / scale)


def _floor_of_root(number: sp.Expr, domain: Domain) -> sp.Expr | None:
    """``floor(x**(1/q))`` of a quotient x of integers as ``floor((floor(x) + 1/2)**(1/q))``.

    The two change only where x is whole (Graham, Knuth and Patashnik, Concrete Mathematics, 3.10),
    and the root of an integer and a half is never near a whole number, where rounding would choose
    the floor. ``floor(-x**(1/q))`` of x > 0 is ``-1 - floor((ceiling(x) - 1/2)**(1/q))``.
    """
    is_negative = bool(number.as_coeff_Mul()[0].is_negative)
    radicand = _radicand(-number if is_negative else number, domain)
    if radicand is None:
        return None
    above, below, degree = radicand
    if not is_negative:
        return _root_of_integer(_quotient_that_fits(above, below, domain), degree)
    zero = _zero_of(above, domain)
    if zero is None:
        return None
    inside = domain if zero == sp.false else split(zero, domain)[1]
    if inside is None:
        return sp.Integer(0)
    before = _quotient_that_fits(above - 1, below, inside)
    negative = -1 - _root_of_integer(before, degree)
    return negative if zero == sp.false else sp.Piecewise((0, zero), (negative, True))


def _root_of_integer(integer: sp.Expr, degree: int) -> sp.Expr:
    """``floor(n**(1/q))`` of an integer; by square roots where they do, which round least."""
    while degree % 2 == 0:
        integer, degree = sp.floor(sp.sqrt(integer + sp.S.Half)), degree // 2
    return integer if degree == 1 else sp.floor((integer + sp.S.Half) ** sp.Rational(1, degree))


def _radicand(number: sp.Expr, domain: Domain) -> tuple[sp.Expr, sp.Expr, int] | None:
    """(a, b, q) with ``number == (a / b)**(1/q)``, integers a >= 0 and b > 0, and q > 1."""
    powers = [factor.as_base_exp() for factor in sp.Mul.make_args(number)]
    if not all(exponent.is_Rational for _, exponent in powers):
        return None
    degree = int(sp.ilcm(1, *(exponent.q for _, exponent in powers)))
    sides: dict[bool, list[sp.Expr]] = {True: [sp.Integer(1)], False: [sp.Integer(1)]}
    for base, exponent in powers:
        multiple = integral_multiple(base)
        times = exponent * degree
        if multiple is None or abs(times) > _LARGEST_EXPONENT:
            return None
        values, is_above = interval(base, domain), bool(times > 0)
        if not (values.is_nonnegative if is_above else values.is_positive):
            return None
        sides[is_above].append(multiple[0] ** abs(times))
        sides[not is_above].append(sp.Integer(multiple[1]) ** abs(times))
    above, below = (sp.Mul(*sides[is_above]) for is_above in (True, False))
    if degree == 1 or not (is_integral(above) and is_integral(below)):
        return None
    common = sp.igcd(*(side.as_coeff_Mul()[0] for side in (above, below)))
    return above / common, below / common, degree


def _quotient_that_fits(above: sp.Expr, below: sp.Expr, domain: Domain) -> sp.Expr:
    """A floor of a quotient by integers at the steps at which the graph holds them, else floats."""
    if below == 1:
        return above
    limit = largest_integer(domain)
    if _fits(above, below, domain, limit):
        return FloorDiv(above, below)
    by_floats = sp.floor(above / below)
    last = _last_step_that_fits(above, below, domain, limit)
    if last is None:
        return by_floats
    # Integers of the branch that is not taken must not wrap.
    first_steps = {t: sp.Min(t, last)}
    by_integers = FloorDiv(above.xreplace(first_steps), below.xreplace(first_steps))
    return sp.Piecewise((by_integers, t <= last), (by_floats, True))


def _fits(above: sp.Expr, below: sp.Expr, domain: Domain, limit: int) -> bool:
    """Whether integers up to a limit hold a quotient's parts, and a float its floor."""
    dividends, divisors = interval(above, domain), interval(below, domain)
    level = (dividends * divisors.reciprocal()).absolute().high
    sizes = [interval(part, domain).absolute().high for part in (above, *above.args)]
    is_within = all(isinstance(size, Fraction) and size <= limit for size in sizes)
    return is_within and level <= MAX_STEP and fits_difference(dividends, divisors, limit)


def _last_step_that_fits(above: sp.Expr, below: sp.Expr, domain: Domain, limit: int) -> int | None:
    steps = domain.interval(t)
    if above.free_symbols | below.free_symbols != {t} or not isinstance(steps.high, Fraction):
        return None
    first, end = int(steps.low), int(steps.high)
    while end - first > 1:
        middle = (first + end) // 2
        until = domain.with_interval(t, Interval(steps.low, Fraction(middle)))
        first, end = (middle, end) if _fits(above, below, until, limit) else (first, middle)
    return first if first > steps.low else None


def _zero_of(integer: sp.Expr, domain: Domain) -> sp.Basic | None:
    """Where an integer that is not below 0 is 0: a comparison of one of its factors, or nowhere."""
    if interval(integer, domain).is_positive:
        return sp.false
    factors = [factor.as_base_exp()[0] for factor in sp.Mul.make_args(integer)]
    zeros = [factor for factor in factors if not interval(factor, domain).is_positive]
    return zeros[0] <= 0 if len(zeros) == 1 else None


def _ceiling(args: list[sp.Expr], domain: Domain) -> sp.Expr:
    return -_floor([-args[0]], domain)


def _floor_div(args: list[sp.Expr], domain: Domain) -> sp.Expr:
    numerator, divisor = args
    if is_integral(numerator) and is_integral(divisor):
        return quotient(numerator, divisor, domain)
    return _floor([numerator / divisor], domain)


def _floor_mod(args: list[sp.Expr], domain: Domain) -> sp.Expr:
    numerator, divisor = args
    above, below = integral_multiple(numerator), integral_multiple(divisor)
    if above is None or below is None:
        levels = numerator / divisor
        level = _floor([levels], domain)
        is_plain = level == sp.floor(levels)
        return FloorMod(numerator, divisor) if is_plain else numerator - divisor * level
    (top, top_scale), (bottom, bottom_scale) = above, below
    scale = sp.ilcm(top_scale, bottom_scale)
    top, bottom = top * (scale // top_scale), bottom * (scale // bottom_scale)
    remainder_value = remainder(top, bottom, domain)
    return remainder_value if scale == 1 else remainder_value / scale


def _sign(x: sp.Expr) -> sp.Expr:
    return sp.Piecewise((1, x > 0), (-1, x < 0), (0, True))


def _step(x: sp.Expr, at_zero: sp.Expr = sp.S.Half) -> sp.Expr:
    return sp.Piecewise((0, x < 0), (at_zero, sp.Eq(x, 0)), (1, True))


_DEFINITIONS: Mapping[type[sp.Basic], Definition] = {
    sp.re: lambda x: x,  # SymPy makes 2**re(x) of Abs(2**x); all values are real
    sp.sign: _sign,
    sp.Heaviside: _step,
    **DEFINITIONS,
}


Rewrite = Callable[[list[sp.Expr], Domain], sp.Expr]

_REWRITES: Mapping[type[sp.Basic], Rewrite] = {
    sp.Abs: _absolute,
    sp.floor: _floor,
    sp.ceiling: _ceiling,
    sp.frac: lambda args, domain: args[0] - _floor(args, domain),
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
    sp.Mod: _floor_mod,
}
