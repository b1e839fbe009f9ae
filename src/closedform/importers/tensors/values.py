"""Values of traced tensors: expressions, the definitions that they share, and their shapes.

Two parameters are traced at once, the second one to show which values belong to the whole model:
what adds up the same term of both is a sum over all parameters. Sizes are distinct primes, so a
size of any tensor shows which axes of a parameter it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.steps import STEPS, values_at
from closedform.language.functions import ReduceSum, like_param
from closedform.language.matrices import WHOLE_DEFINITIONS
from closedform.language.model import GlobalSum
from closedform.language.shapes import SHAPE_SYMBOLS, SIZE, ShapeRule, axis_size
from closedform.language.shapes import Sizes as ShapeSizes
from closedform.language.symbols import GRAD, PARAM, hyper, local, t

Sizes = tuple[int, ...]
Operand: TypeAlias = Any
"""An operand: a tensor, its value, or a number, symbolic or plain."""

OPAQUE = "gap"
"""The hint of definitions that stay definitions: SymPy would simplify what they are used in."""

_LARGEST_INLINE = 12
_NOT_INLINED = (sp.Piecewise, *WHOLE_DEFINITIONS)
_LEAST = sp.Rational(1, 2**100)
_HALF = sp.Rational(1, 2)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a tensor.

    Attributes:
        expr: Its expression; a Boolean for a tensor of bools.
        shape: The shape that the expression has, which the tensor's own may broadcast.
        items: The values of the elements of a vector that was put together from scalars.
    """

    expr: sp.Basic
    shape: Sizes = ()
    items: tuple[Value, ...] | None = None

    @property
    def is_bool(self) -> bool:
        """Whether the elements are truth values."""
        return not isinstance(self.expr, sp.Expr)


@dataclass(frozen=True, slots=True)
class Axes:
    """The shapes of the two traced parameters, and the symbols of their sizes."""

    shape: Sizes
    twin: Sizes

    @property
    def both(self) -> tuple[Sizes, Sizes]:
        """The two shapes, in the order of the parameters."""
        return self.shape, self.twin

    def size(self, number: int) -> sp.Expr:
        """Returns a size as an expression in the sizes of the parameters."""
        # Sizes of 1 and 0 have no primes to show which axis they are.
        if number <= 1:
            return sp.Integer(number)
        # The number of elements has a symbol, which works for any number of axes.
        if number == math.prod(self.shape) and len(self.shape) != 1:
            return SIZE
        if number == math.prod(self.twin) and len(self.twin) != 1:
            return OTHER_SIZE
        result, rest = sp.Integer(1), number
        for sizes, symbol_of in ((self.shape, axis_size), (self.twin, _other_axis)):
            for axis, size in enumerate(sizes):
                # Sizes are distinct primes: a factor shows its axis.
                while size > 1 and rest % size == 0:
                    result, rest = result * symbol_of(axis), rest // size
        # A factor that is not a size, such as 2 in 2·n.
        return result * rest

    def numbers(self) -> dict[sp.Symbol, sp.Integer]:
        """Returns the sizes of the first parameter by their symbols."""
        sizes = {axis_size(axis): sp.Integer(size) for axis, size in enumerate(self.shape)}
        return {**sizes, SIZE: sp.Integer(math.prod(self.shape))}


OTHER_SIZE = sp.Symbol("other.shape.size", integer=True, nonnegative=True)


def _other_axis(axis: int) -> sp.Symbol:
    return sp.Symbol(f"other.shape[{axis}]", integer=True, nonnegative=True)


def twin_of(symbol: sp.Symbol) -> sp.Symbol:
    """Returns the symbol of the second parameter in the place of one of the first."""
    return sp.Symbol(f"other.{symbol.name}", **symbol.assumptions0)


@dataclass(eq=False)
class Definitions:
    """Values with a name, each made once, of all runs of a trace.

    Attributes:
        expressions: The definitions by symbol, each after those that it takes.
        shapes: The shapes of definitions and of the symbols of tensors.
        guards: Conditions on the step; a definition is used only under them.
        here: The guards of the run that makes definitions now.
        ignored: Conditions that hold at every step of the rule.
        hypers: Values of hyperparameters.
    """

    expressions: dict[sp.Symbol, sp.Expr] = field(default_factory=dict)
    shapes: dict[sp.Symbol, Sizes] = field(default_factory=dict)
    guards: dict[sp.Symbol, frozenset[sp.Basic]] = field(default_factory=dict)
    here: frozenset[sp.Basic] = frozenset()
    invariants: frozenset[sp.Basic] = frozenset()
    hypers: Mapping[str, float] = field(default_factory=dict)
    _names: dict[sp.Expr, sp.Symbol] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _mirrors: dict[sp.Basic, sp.Basic] = field(default_factory=dict)
    _is_others: dict[sp.Basic, bool] = field(default_factory=dict)
    _sums: dict[sp.Basic, sp.Basic] = field(default_factory=dict)
    _inner: dict[sp.Basic, sp.Basic] = field(default_factory=dict)

    def define(
        self, expr: sp.Expr, shape: Sizes, hint: str, guards: frozenset[sp.Basic] | None = None
    ) -> sp.Expr:
        """Returns the symbol of a definition of this expression; a short one is itself."""
        here = self.here if guards is None else guards
        if isinstance(expr, sp.Symbol) or expr.is_number:
            return expr
        # SymPy's expressions are hashed by structure: equal ones share a definition.
        symbol = self._names.get(expr)
        if symbol is None:
            place = self._counts.get(hint, 0) + 1
            self._counts[hint] = place
            symbol = local(f"{hint}_{place}")
            self._names[expr] = symbol
            self.expressions[symbol] = expr
            self.shapes[symbol] = shape
        # Used on two ways through the step: only what both have is certain.
        self.guards[symbol] = self.guards.get(symbol, here) & here
        return symbol

    def mirror(self, expr: sp.Basic) -> sp.Basic:
        """Returns an expression with the first parameter in the places of the second."""
        return self._change_once(expr, self._mirrors, self._mirror)

    def _change_once(
        self, expr: sp.Basic, results: dict[sp.Basic, sp.Basic], change: Callable[[Any], sp.Basic]
    ) -> sp.Basic:
        """An expression of the second parameter, changed once; any other one as it is."""
        if not self.is_of_other(expr):
            return expr
        if expr not in results:
            results[expr] = change(expr)
        return results[expr]

    def _mirror(self, expr: sp.Basic) -> sp.Basic:
        if isinstance(expr, sp.Symbol):
            definition = self.expressions.get(expr)
            if definition is None:
                return self._of_first(expr)
            return self._redefine(expr, self.mirror(definition))
        return expr.func(*map(self.mirror, expr.args))

    def _redefine(self, symbol: sp.Symbol, expr: sp.Expr) -> sp.Expr:
        """A definition in the place of another one."""
        name = symbol.name.removeprefix("local.").rpartition("_")[0]
        return self.define(expr, self.shapes[symbol], name, self.guards[symbol])

    def _of_first(self, symbol: sp.Symbol) -> sp.Symbol:
        return sp.Symbol(symbol.name.removeprefix("other."), **symbol.assumptions0)

    def is_of_other(self, expr: sp.Basic) -> bool:
        """Returns whether an expression depends on the second parameter."""
        is_twin = self._is_others.get(expr)
        if is_twin is None:
            if isinstance(expr, sp.Symbol):
                definition = self.expressions.get(expr)
                is_own = expr.name.startswith("other.")
                is_twin = is_own or (definition is not None and self.is_of_other(definition))
            else:
                is_twin = any(self.is_of_other(arg) for arg in expr.args)
            self._is_others[expr] = is_twin
        return is_twin

    def normal(self, condition: sp.Basic) -> sp.Basic:
        """Returns a condition on both parameters as one on sums over all parameters.

        A condition on the second parameter differs from the same one on the first: a
        step may go one way for one parameter and the other way for the next one.
        """
        if not self.is_of_other(condition):
            return condition
        if self.is_of_tensor(condition):
            return self.sum_over_params(condition)
        mirror_image = self.mirror(condition)
        # A number such as a step count is the same for both parameters.
        return condition if self.is_of_tensor(mirror_image) else mirror_image

    def are_same(self, first: sp.Basic, second: sp.Basic) -> bool:
        """Returns whether an expression of the second parameter is another one of the first."""
        return self.is_of_other(second) and self.mirror(second) == first

    def hide(self, condition: sp.Basic) -> sp.Basic:
        """Returns a condition by a definition that is 1 where it holds and 0 elsewhere."""
        # A comparison with a definition is opaque for SymPy, which would simplify branches for real
        # numbers without NaN.
        return sp.Ne(self.define(sp.Piecewise((1, condition), (0, True)), (), "mask"), 0)

    def sum_over_params(self, expr: sp.Basic) -> sp.Basic:
        """Returns an expression with a global sum for each term of both parameters.

        Raises:
            TraceError: It depends on the second parameter in another way.
        """
        return self._change_once(expr, self._sums, self._sum)

    def _sum(self, expr: sp.Basic) -> sp.Basic:
        if isinstance(expr, sp.Symbol):
            definition = self.expressions.get(expr)
            if definition is None:
                raise TraceError(
                    f"the step of one parameter takes {expr.name.removeprefix('other.')} of "
                    "another one, and is not a sum over all parameters",
                    hint="state it with global_sum in a rule of your own",
                )
            return self._redefine(expr, self.sum_over_params(definition))
        if isinstance(expr, sp.Add):
            return self._sum_of_terms(expr)
        if isinstance(expr, sp.And | sp.Or):
            return self._of_all(expr)
        return expr.func(*map(self.sum_over_params, expr.args))

    def _sum_of_terms(self, expr: sp.Add) -> sp.Expr:
        first_terms, twin_terms = self._paired_terms(expr)
        return sp.Add(*first_terms, *map(self.sum_over_params, twin_terms))

    def _paired_terms(self, expr: sp.Add) -> tuple[list[sp.Expr], list[sp.Expr]]:
        """The terms with a global sum for each pair of them, and the second parameter's.

        The terms of a pair may hold sums over both parameters, such as the norm of all gradients.
        """
        terms = list(map(self._with_inner_sums, expr.args))
        twin_terms = [term for term in terms if self.is_of_other(term)]
        result = [term for term in terms if not self.is_of_other(term)]
        sums, left = [], []
        for term in twin_terms:
            mirror_image = self.mirror(term)
            # The same term of both parameters: a term of a sum over all.
            if mirror_image in result:
                result.remove(mirror_image)
                sums.append(self._over_all(mirror_image))
            else:
                left.append(term)
        return [*result, *sums], left

    def _with_inner_sums(self, expr: sp.Basic) -> sp.Basic:
        """An expression in which each sum over both parameters is a global sum."""
        return self._change_once(expr, self._inner, self._find_inner_sums)

    def _find_inner_sums(self, expr: sp.Basic) -> sp.Basic:
        if isinstance(expr, sp.Symbol):
            definition = self.expressions.get(expr)
            if definition is None:
                return expr
            changed = self._with_inner_sums(definition)
            return expr if changed == definition else self._redefine(expr, changed)
        if isinstance(expr, sp.Add):
            first_terms, twin_terms = self._paired_terms(expr)
            return sp.Add(*first_terms, *twin_terms)
        return expr.func(*map(self._with_inner_sums, expr.args))

    def _of_all(self, expr: sp.And | sp.Or) -> sp.Basic:
        """A condition on all parameters, or on some, from the same one on both."""
        parts = list(expr.args)
        twin_parts = [part for part in parts if self.is_of_other(part)]
        result = [part for part in parts if part not in twin_parts]
        for part in twin_parts:
            mirror_image = self.mirror(part)
            if mirror_image not in result:
                result.append(self.sum_over_params(part))
                continue
            result.remove(mirror_image)
            yes, no = (0, 1 / SIZE) if isinstance(expr, sp.And) else (1 / SIZE, 0)
            # A definition, since SymPy expands the branches of what is compared.
            indicator = self.define(sp.Piecewise((yes, mirror_image), (no, True)), (), "counted")
            count = GlobalSum(indicator)
            result.append(count < _HALF if isinstance(expr, sp.And) else count > _HALF)
        return expr.func(*result)

    def _over_all(self, term: sp.Expr) -> sp.Expr:
        """The sum over all parameters of a scalar term."""
        sums = [factor for factor in sp.Mul.make_args(term) if isinstance(factor, ReduceSum)]
        if len(sums) == 1 and len(sums[0].args) == 1:
            rest = term / sums[0]
            inner = sums[0].args[0]
            shape = self.shapes.get(inner)
            if not self.is_of_tensor(rest) and shape is not None:
                param_shape = self.shapes[PARAM]
                if math.prod(shape) == math.prod(param_shape):
                    element = inner if shape == param_shape else like_param(inner)
                    # A size is that of each parameter, and stays inside of the sum.
                    is_of_shape = bool(rest.free_symbols & SHAPE_SYMBOLS)
                    return GlobalSum(rest * element) if is_of_shape else rest * GlobalSum(element)
        rest = term / SIZE
        if not self.is_of_tensor(rest) and not rest.free_symbols & SHAPE_SYMBOLS:
            return rest * GlobalSum(sp.Integer(1))
        # The term of one parameter is a number: the sum of its elements is that number.
        return GlobalSum(term / SIZE)

    def is_of_tensor(self, expr: sp.Basic) -> bool:
        """Returns whether an expression depends on tensors of the first parameter."""
        for symbol in expr.free_symbols:
            definition = self.expressions.get(symbol)
            if symbol in (PARAM, GRAD) or symbol.name.startswith(("state.", "input.")):
                return True
            if definition is not None and self.is_of_tensor(definition):
                return True
        return False

    def is_of_one(self, expr: sp.Basic) -> bool:
        """Returns whether an expression depends on tensors of one parameter, outside of sums."""
        if isinstance(expr, GlobalSum):
            return False
        if isinstance(expr, sp.Symbol):
            definition = self.expressions.get(expr)
            prefixes = ("state.", "other.", "input.")
            is_tensor = expr in (PARAM, GRAD) or expr.name.startswith(prefixes)
            return is_tensor or (definition is not None and self.is_of_one(definition))
        return any(map(self.is_of_one, expr.args))

    def rebuilt(
        self, expr: sp.Basic, common: Definitions, start: Mapping[sp.Symbol, sp.Expr]
    ) -> sp.Basic:
        """Returns an expression with symbols replaced, in its definitions, too.

        Args:
            expr: An expression in these definitions.
            common: Takes the changed definitions; equal ones have the same symbol there.
            start: What symbols are replaced by.
        """
        values: dict[sp.Basic, sp.Basic] = dict(start)

        def rebuild(part: sp.Basic) -> sp.Basic:
            if part not in values:
                definition = self.expressions.get(part)
                if definition is not None:
                    values[part] = common.define(rebuild(definition), self.shapes[part], "common")
                elif part.args:
                    values[part] = part.func(*map(rebuild, part.args))
                else:
                    values[part] = part
            return values[part]

        return rebuild(expr)

    def expand(self, expr: sp.Basic) -> sp.Basic:
        """Returns an expression without definitions outside of global sums."""
        if isinstance(expr, sp.Symbol):
            definition = self.expressions.get(expr)
            return expr if definition is None else self.expand(definition)
        if not expr.args or isinstance(expr, GlobalSum):
            return expr
        return without_ite(expr.func(*map(self.expand, expr.args)))

    def _guard(self, symbol: sp.Symbol, definition: sp.Expr) -> sp.Expr:
        """A definition with functions of the step that have no value at every step."""
        guards = self.guards.get(symbol, frozenset()) - self.invariants
        powers = [power for power in definition.atoms(sp.Pow) if self._is_partial(power)]
        if not guards or not (powers or any(t in p.free_symbols for p in definition.atoms(sp.log))):
            return definition
        return sp.Piecewise((self.within(definition, sp.And(*guards)), sp.And(*guards)), (0, True))

    def _numbers(self) -> dict[sp.Symbol, float]:
        """The values of hyperparameters by symbol."""
        return {hyper(name): value for name, value in self.hypers.items()}

    def within(self, value: sp.Basic, condition: sp.Basic) -> sp.Basic:
        """Returns a value whose powers of the step have a value where a condition fails, too."""
        changes = self._clamp([p for p in value.atoms(sp.Pow) if self._is_partial(p)], condition)
        return value.replace(lambda part: part in changes, lambda part: changes[part])

    def _is_partial(self, power: sp.Pow) -> bool:
        """Whether a power of scalars of the step has no value at some step."""
        base, exponent = power.args
        if t not in base.free_symbols or (exponent.is_integer and exponent.is_nonnegative):
            return False
        numbers = self._numbers()
        if base.free_symbols - {t, *numbers}:
            return False
        return not (values_at(base, STEPS, numbers) > 0).all()

    def _clamp(self, powers: Sequence[sp.Pow], condition: sp.Basic) -> dict[sp.Basic, sp.Basic]:
        """Powers whose bases, above 0 where they are used, are so everywhere."""
        numbers = self._numbers()
        if condition.free_symbols - {t, *numbers}:
            return {}
        holds = values_at(condition, STEPS, numbers)
        changes: dict[sp.Basic, sp.Basic] = {}
        for power in powers:
            base, exponent = power.args
            if (values_at(base, STEPS[holds], numbers) > 0).all():
                least = _LEAST if exponent.is_negative else sp.Integer(0)
                changes[power] = sp.Max(base, least) ** exponent
        return changes

    def definitions_of(self, results: Iterable[sp.Basic]) -> dict[sp.Symbol, sp.Expr]:
        """Returns the definitions that expressions take, directly or through others, in order."""
        definitions: dict[sp.Symbol, sp.Expr] = {}

        def visit(expr: sp.Basic) -> None:
            for symbol in sorted(expr.free_symbols, key=lambda symbol: symbol.name):
                definition = self.expressions.get(symbol)
                if definition is not None and symbol not in definitions:
                    visit(definition)
                    definitions[symbol] = self._guard(symbol, definition)

        for expr in results:
            visit(expr)
        return definitions


def without_ite(expr: sp.Basic) -> sp.Basic:
    """Returns an expression with And, Or and Not for conditions that select among conditions.

    SymPy makes them where it expands the branches of a ``Piecewise`` that is compared.
    """
    if not expr.has(sp.ITE):
        return expr
    return expr.replace(
        sp.ITE,
        lambda condition, holds, fails: sp.Or(
            sp.And(condition, holds), sp.And(sp.Not(condition), fails)
        ),
    )


def renumber(
    results: Mapping[str, sp.Expr], definitions: Mapping[sp.Symbol, sp.Expr]
) -> tuple[dict[str, sp.Expr], dict[sp.Symbol, sp.Expr]]:
    """Returns results and definitions, each of which has the next number for its name."""
    names: dict[sp.Basic, sp.Basic] = {}
    counts: dict[str, int] = {}
    for symbol in definitions:
        name = symbol.name.removeprefix("local.").rpartition("_")[0]
        counts[name] = counts.get(name, 0) + 1
        names[symbol] = local(f"{name}_{counts[name]}")
    return (
        {label: expr.xreplace(names) for label, expr in results.items()},
        {names[symbol]: expr.xreplace(names) for symbol, expr in definitions.items()},
    )


def as_shape_rule(axes: Axes, shape: Sizes) -> ShapeRule:
    """Returns how the shape of a state follows from that of its parameter."""
    if shape == ():
        return "scalar"
    return "param" if shape == axes.shape else ShapeSizes(shape_expressions(axes, shape))


def shape_expressions(axes: Axes, shape: Sequence[int]) -> tuple[sp.Expr, ...]:
    """Returns the sizes of a shape as expressions."""
    return tuple(axes.size(size) for size in shape)


def inline_definitions(
    results: Mapping[str, sp.Basic], definitions: Mapping[sp.Symbol, sp.Expr]
) -> tuple[dict[str, sp.Basic], dict[sp.Symbol, sp.Expr]]:
    """Returns results and definitions, those that are used once and are short being inlined."""
    uses: dict[sp.Symbol, int] = {}
    for expr in (*results.values(), *definitions.values()):
        for symbol in expr.free_symbols:
            uses[symbol] = uses.get(symbol, 0) + sum(
                1 for part in sp.preorder_traversal(expr) if part == symbol
            )
    replacements: dict[sp.Symbol, sp.Expr] = {}
    remaining: dict[sp.Symbol, sp.Expr] = {}
    sizes: dict[sp.Symbol, int] = {}

    def substitute(expr: sp.Basic) -> sp.Basic:
        for short in [symbol for symbol in replacements if symbol in expr.free_symbols]:
            if _is_simplified(expr, short, replacements[short]):
                remaining[short] = replacements.pop(short)
        return expr.xreplace(replacements)

    for symbol, definition in definitions.items():
        expr = substitute(definition)
        size = sum(1 for _ in sp.preorder_traversal(expr))
        is_opaque = symbol.name.startswith(f"local.{OPAQUE}_") or isinstance(expr, _NOT_INLINED)
        is_short = size <= _LARGEST_INLINE and not is_opaque
        if uses.get(symbol, 0) == 1 and is_short:
            replacements[symbol] = expr
        else:
            remaining[symbol] = expr
            sizes[symbol] = size
    return {key: substitute(expr) for key, expr in results.items()}, remaining


def _is_simplified(expr: sp.Basic, symbol: sp.Symbol, definition: sp.Expr) -> bool:
    """Whether SymPy would change what is computed where a definition takes its symbol's place.

    It distributes a number over a sum, which then cancels in other digits, and it drops ``x - x``
    and ``x / x``, which are NaN where x is infinite.
    """
    if definition.has(sp.zoo):  # its reciprocal is 0
        return False
    if definition.is_Add:
        for product in expr.atoms(sp.Mul):
            factors = sp.Mul.make_args(product)
            if symbol in factors and factors[0].is_Rational and abs(factors[0]) != 1:
                return True
    expected = (expr.free_symbols - {symbol}) | definition.free_symbols
    return bool(expr.xreplace({symbol: definition}).free_symbols != expected)
