"""Normal forms of sums over indices.

A function of a sum is a tensor, named by the normal form of the sum, whose indices are those that
the sum depends on. Powers of one number are one power, and sums under positive integer powers are
multiplied out.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import z3
from z3 import z3util

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import (
    NUMBER,
    Access,
    Index,
    Sum,
    Summand,
    equations_of,
    fresh,
    plain,
    product,
    ranges_of_places,
    restrict,
    solve,
)

_MOST_ORDERS = 5_040
"""The most orders of indices that are tried to name a sum."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of a sum.

    Attributes:
        function: Its name: ``sum`` for the sum itself, under a power.
        argument: The sum.
        parameters: The indices that are free in it.
    """

    function: str
    argument: Sum
    parameters: tuple[Index, ...]

    def at(self, index: Sequence[Index]) -> Sum:
        """Returns the argument at an index."""
        pairs = tuple(zip(self.parameters, index, strict=True))
        return tuple(_substitute(summand, pairs) for summand in self.argument)


def substitute(value: Sum, pairs: Sequence[tuple[Index, Index]]) -> Sum:
    """Returns a sum with other terms for its free indices, and new bound indices."""
    return tuple(_substitute(summand, pairs) for summand in value)


def _substitute(summand: Summand, pairs: Sequence[tuple[Index, Index]]) -> Summand:
    names = tuple((index, fresh()) for index, _ in summand.bound)
    both = [(old, as_term(new)) for old, new in (*pairs, *names)]

    def rename(term: Index) -> Index:
        return z3.simplify(z3.substitute(as_term(term), *both)) if both else term

    return Summand(
        summand.factor,
        tuple(replace(a, index=tuple(map(rename, a.index))) for a in summand.accesses),
        rename(summand.condition),
        tuple(
            (new, rename(size)) for (_, new), (_, size) in zip(names, summand.bound, strict=True)
        ),
    )


def as_term(index: Index) -> Any:
    """Returns an index as a term of z3."""
    return z3.IntVal(index) if isinstance(index, int) else index


def number_of(value: Any) -> Sum:
    """Returns an integer or a truth of z3 as a sum; a truth is 0 or 1."""
    if isinstance(value, int):
        return (Summand(Fraction(value)),) if value else ()
    if z3.is_bool(value):
        return restrict((Summand(Fraction(1)),), value)
    # Sums of monomials: each becomes a summand.
    value = z3.simplify(value, som=True)
    if z3.is_int_value(value):
        return number_of(value.as_long())
    if z3.is_add(value):
        return tuple(itertools.chain(*map(number_of, value.children())))
    if z3.is_mul(value):
        result: Sum = (Summand(Fraction(1)),)
        for child in value.children():
            result = product(result, number_of(child))
        return result
    if z3.is_app(value) and value.decl().kind() == z3.Z3_OP_ITE:
        condition, then, otherwise = value.children()
        return (
            *restrict(number_of(then), condition),
            *restrict(number_of(otherwise), z3.Not(condition)),
        )
    return (Summand(Fraction(1), (Access(NUMBER, (value,)),)),)


def normal(value: Sum) -> Sum:
    """Returns the normal form of a sum."""
    by_key: dict[str, Summand] = {}
    for summand in value:
        for part in _expand_powers(summand):
            key = _key((replace(part, factor=Fraction(1)),), _free((part,)), keeps_names=True)
            before = by_key.get(key)
            factor = part.factor + (before.factor if before is not None else 0)
            by_key[key] = replace(before or part, factor=factor)
    return tuple(by_key[key] for key in sorted(by_key) if by_key[key].factor)


def _expand_powers(summand: Summand) -> Iterator[Summand]:
    condition = z3.simplify(summand.condition)
    if z3.is_false(condition):
        return
    summand = _join_powers(_with_digits(_without_equations(replace(summand, condition=condition))))
    for place, access in enumerate(summand.accesses):
        definition = access.definition
        is_whole = access.power.denominator == 1 and access.power > 0
        if definition is not None and definition.function == "sum" and is_whole:
            others = (*summand.accesses[:place], *summand.accesses[place + 1 :])
            value: Sum = (replace(summand, accesses=others),)
            for _ in range(int(access.power)):
                value = product(value, definition.at(access.index))
            for part in value:
                yield from _expand_powers(part)
            return
    if summand.factor:
        yield from _with_used_indices(summand)


def _without_equations(summand: Summand) -> Summand:
    """A summand without the bound indices that its condition determines."""
    for variable, size in summand.bound:
        equations = equations_of(summand.condition)
        if not equations:
            return summand
        solution = solve(variable, equations)
        # i = f(i) determines nothing.
        if solution is None or contains(solution, variable):
            continue
        value = z3.simplify(solution)
        bound = tuple(pair for pair in summand.bound if not pair[0].eq(variable))
        # The eliminated index had a range, which its solution must keep as a condition.
        inside = z3.And(value >= 0, value < size)
        pairs = ((variable, value),)
        condition = z3.substitute(summand.condition, *pairs)
        if not _is_implied(inside, condition, bound):
            condition = z3.And(condition, inside)
        condition = z3.simplify(condition)
        accesses = tuple(
            replace(a, index=tuple(z3.substitute(as_term(i), *pairs) for i in a.index))
            for a in summand.accesses
        )
        return _without_equations(Summand(summand.factor, accesses, condition, bound))
    return summand


def _is_implied(goal: Any, condition: Any, bound: Sequence[tuple[Index, Index]]) -> bool:
    solver = z3.Solver()
    # Units of z3 and not time; what it cannot decide stays a condition.
    solver.set("rlimit", 10**5)
    solver.add(condition, z3.Not(goal), *(z3.And(i >= 0, i < size) for i, size in bound))
    solver.add(*ranges_of_places(goal))
    names = z3util.get_vars(z3.And(goal, condition, *(size >= 1 for _, size in bound)))
    solver.add(*(name >= 1 for name in names if str(name).startswith(SIZE)))
    return bool(solver.check() == z3.unsat)


SIZE = "size."
"""The start of names of free sizes, which are from 1 on."""


def contains(term: Index, variable: Index) -> bool:
    """Returns whether a variable occurs in a term."""
    return any(variable.eq(other) for other in z3util.get_vars(as_term(term)))


def _join_powers(summand: Summand) -> Summand:
    """A summand with the powers of equal numbers as one power."""
    powers: dict[tuple[str, tuple[str, ...]], Access] = {}
    factor = summand.factor
    for access in summand.accesses:
        index = tuple(_digits(z3.simplify(as_term(i)), summand) for i in access.index)
        key = access.tensor, tuple(map(text_of, index))
        before = powers.get(key)
        power = access.power + (before.power if before is not None else 0)
        powers[key] = replace(access, index=index, power=power)
    accesses = []
    for access in powers.values():
        if access.tensor == NUMBER and z3.is_int_value(access.index[0]):
            # A root of a number has a power between 0 and 1.
            whole = math.floor(access.power)
            factor *= Fraction(access.index[0].as_long()) ** whole
            access = replace(access, power=access.power - whole)
        if access.power:
            accesses.append(access)
    return Summand(factor, tuple(accesses), summand.condition, summand.bound)


def _with_digits(summand: Summand) -> Summand:
    """A summand in which a bound index is two, quotient and rest, if a size divides it."""
    quotients = {
        text_of(quotient): quotient
        for access in summand.accesses
        for term in access.index
        for quotient in _quotients(as_term(term))
    }
    for quotient in quotients.values():
        above, divisor = quotient.children()
        for variable, size in summand.bound:
            if not contains(above, variable):
                continue
            numbers = [f for f in _factors(divisor) if z3.is_int_value(f) and f.as_long() > 1]
            # i = base * high + low: a reshape splits an index by a size, or by a number that
            # divides it.
            for base in [divisor, *numbers]:
                parts = _quotient(z3.simplify(as_term(size)), base)
                if parts is None or (z3.is_int_value(parts) and parts.as_long() == 1):
                    continue
                high, low = fresh(), fresh()
                others = tuple(pair for pair in summand.bound if not pair[0].eq(variable))
                (in_digits,) = substitute(
                    (replace(summand, bound=others),), ((variable, base * high + low),)
                )
                digits = ((high, plain(parts)), (low, plain(base)))
                return _with_digits(replace(in_digits, bound=(*in_digits.bound, *digits)))
    return summand


def _quotients(term: Any) -> Iterator[Any]:
    if z3.is_app(term) and term.decl().kind() in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
        yield term
    for child in term.children():
        yield from _quotients(child)


def _digits(term: Any, summand: Summand) -> Any:
    """A term with the quotients and remainders that follow from the ranges of bound indices."""
    if not z3.is_app(term) or not term.children():
        return term
    parts = [_digits(child, summand) for child in term.children()]
    kind = term.decl().kind()
    if kind not in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
        return z3.simplify(term.decl()(*parts)) if kind != z3.Z3_OP_UNINTERPRETED else term
    above, size = parts
    multiples, rest = [], []
    whole = z3.simplify(above, som=True)
    for part in whole.children() if z3.is_add(whole) else [whole]:
        quotient = _quotient(part, size)
        if quotient is None:
            rest.append(part)
        else:
            multiples.append(quotient)
    below = z3.Sum(rest) if rest else z3.IntVal(0)
    inside = z3.And(below >= 0, below < size)
    if not _is_implied(inside, z3.BoolVal(True), summand.bound):
        return term
    result = below if kind == z3.Z3_OP_MOD else z3.Sum(multiples) if multiples else z3.IntVal(0)
    return z3.simplify(result)


def _quotient(term: Any, size: Any) -> Any | None:
    """The quotient of a product by one of its factors."""
    if term.eq(size):
        return z3.IntVal(1)
    if z3.is_int_value(term) and z3.is_int_value(size) and size.as_long():
        quotient, remainder = divmod(term.as_long(), size.as_long())
        return None if remainder else z3.IntVal(quotient)
    factors_of_size = _factors(size)
    factors = _factors(term)
    for factor in factors_of_size:
        place = next((p for p, f in enumerate(factors) if f.eq(factor)), None)
        if place is None:
            numbers = [p for p, f in enumerate(factors) if z3.is_int_value(f)]
            if not (numbers and z3.is_int_value(factor) and factor.as_long()):
                return None
            quotient, remainder = divmod(factors[numbers[0]].as_long(), factor.as_long())
            if remainder:
                return None
            factors[numbers[0]] = z3.IntVal(quotient)
        else:
            factors.pop(place)
    return z3.Product(factors) if factors else z3.IntVal(1)


def _factors(term: Any) -> list[Any]:
    if z3.is_mul(term):
        return [factor for child in term.children() for factor in _factors(child)]
    return [term]


def _with_used_indices(summand: Summand) -> Iterator[Summand]:
    """A summand as a multiple of its sum over the indices on which it depends."""
    terms = [*itertools.chain(*(a.index for a in summand.accesses)), summand.condition]
    used = {str(name) for term in terms for name in z3util.get_vars(as_term(term))}
    bound = tuple(pair for pair in summand.bound if str(pair[0]) in used)
    value: Sum = (replace(summand, bound=bound),)
    for index, size in summand.bound:
        if str(index) not in used:
            value = product(value, number_of(size))
    yield from map(_join_powers, value)


def _free(value: Sum) -> tuple[Index, ...]:
    """The indices on which a sum depends, which are not sizes."""
    free: dict[str, Index] = {}
    for summand in value:
        bound = {str(index) for index, _ in summand.bound}
        terms = [*itertools.chain(*(a.index for a in summand.accesses)), summand.condition]
        for term in terms:
            for name in z3util.get_vars(as_term(term)):
                if "!" in str(name) and str(name) not in bound:
                    free[str(name)] = name
    return tuple(free.values())


def _key(value: Sum, parameters: Sequence[Index], *, keeps_names: bool = False) -> str:
    """The text of a sum with numbered indices; those under keeps_names are not numbered."""
    names = {} if keeps_names else {str(name): f"${place}" for place, name in enumerate(parameters)}
    return " + ".join(sorted(_summand_key(summand, names) for summand in value))


def _summand_key(summand: Summand, names: Mapping[str, str]) -> str:
    bound = [str(index) for index, _ in summand.bound]
    sizes = [text_of(z3.simplify(as_term(size))) for _, size in summand.bound]
    texts = [(a.tensor, [_tokens(i) for i in a.index], str(a.power)) for a in summand.accesses]
    conditions = [_tokens(part) for part in conjuncts(summand.condition)]

    def text(order: Sequence[int]) -> str:
        labels = {**names, **{bound[place]: f"@{rank}" for rank, place in enumerate(order)}}

        def write(tokens: Sequence[str]) -> str:
            return "".join(labels.get(token, token) for token in tokens)

        factors = sorted(f"{n}[{','.join(map(write, i))}]^{p}" for n, i, p in texts)
        over = ",".join(sizes[place] for place in order)
        where = " and ".join(sorted(map(write, conditions)))
        return f"{summand.factor}*{'*'.join(factors)}|{where}|{over}"

    # Only indices that occur in the same way have an order to be chosen.
    anonymous = {**names, **dict.fromkeys(bound, "@")}

    def role(place: int) -> str:
        marked = {**anonymous, bound[place]: "@!"}
        uses = sorted(
            f"{n}[{','.join(''.join(marked.get(t, t) for t in i) for i in index)}]^{p}"
            for n, index, p in texts
        )
        where = sorted("".join(marked.get(t, t) for t in part) for part in conditions)
        return f"{sizes[place]}:{';'.join(uses)}:{where}"

    by_role: dict[str, list[int]] = {}
    for place in range(len(bound)):
        by_role.setdefault(role(place), []).append(place)
    groups = [by_role[key] for key in sorted(by_role)]
    # All orders of equal roles are tried for the least text; beyond the limit equal sums may get
    # two texts, and are then not recognized.
    if math.prod(math.factorial(len(group)) for group in groups) > _MOST_ORDERS:
        groups = [[place] for group in groups for place in group]
    orders = itertools.product(*map(itertools.permutations, groups))
    return min(text(tuple(itertools.chain(*order))) for order in orders)


def conjuncts(condition: Any) -> list[Any]:
    """Returns the parts of a conjunction that are not true."""
    if z3.is_and(condition):
        return [part for child in condition.children() for part in conjuncts(child)]
    return [] if z3.is_true(condition) else [condition]


def text_of(term: Index) -> str:
    """Returns the whole text of a term: that of ``str`` leaves out parts of large ones."""
    return str(as_term(term).sexpr())


def _tokens(term: Index) -> list[str]:
    """The text of a term in parts, of which indices are whole ones."""
    text = " ".join(text_of(term).split())
    parts: list[str] = []
    word = ""
    for character in text:
        if character.isalnum() or character in "!._@$":
            word += character
            continue
        parts += [word, character] if word else [character]
        word = ""
    return [*parts, word] if word else parts


def name_function(function: str, argument: Sum) -> tuple[str, tuple[Index, ...]]:
    """Returns the name of a function of a sum in normal form, and its indices in order."""
    free = _free(argument)
    if math.factorial(len(free)) > _MOST_ORDERS:
        raise VerificationError(f"a function of {len(free)} indices is not read")
    key, order = min(
        ((_key(argument, order), order) for order in itertools.permutations(free)),
        key=lambda pair: pair[0],
    )
    return f"{function}({key})", order


def call(function: str, argument: Sum, power: Fraction = Fraction(1)) -> Access:
    """Returns a power of a function of a sum in normal form."""
    name, order = name_function(function, argument)
    return Access(name, order, power, Definition(function, argument, order))
