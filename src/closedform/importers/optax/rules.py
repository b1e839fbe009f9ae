"""Update rules of gradient transformations: for all shapes, or for given parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.optax.check import difference
from closedform.importers.optax.hypers import Variable
from closedform.importers.optax.jaxprs import Tree, double_precision
from closedform.importers.optax.leaves import Path, dotted_name, shapes_of, with_shapes
from closedform.importers.optax.subject import (
    Jaxprs,
    Transformation,
    jaxprs_of,
    signatures,
    symbolic_variables,
)
from closedform.importers.optax.transformation import ParameterTrace, trace_parameter
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.values import Sizes
from closedform.importers.tensors.variants import Variant, rule_of
from closedform.language.groups import Group
from closedform.language.model import GlobalSum
from closedform.language.shapes import RANK, axis_size
from closedform.language.shapes import Sizes as ShapeSizes
from closedform.language.symbols import local
from closedform.language.update_rule import UpdateRule

_ORIGINAL = ("transformation", "the update does something that the trace does not see")

# Rows fewer than columns; the transposed ones follow below.
_MATRICES: Mapping[str, Sizes] = {"first": (4, 6), "second": (10, 12)}
_VECTORS: Mapping[str, Sizes] = {"first": (4,), "second": (6,)}
_DIFFERENT: Mapping[str, Mapping[str, Sizes]] = {
    "of which side is longer": {"first": (6, 4), "second": (12, 10)},
    # Above 128, the min_dim_size_to_factor of optax.adafactor, and above 512.
    "of sizes": {"first": (520, 600), "second": (700, 800)},
}
"""Shapes that show that a rule without given parameters depends on more than the number of axes."""

_MIXED: Sequence[Mapping[str, Sizes]] = (
    {"a": (6,), "b": (4, 8), "c": (10, 12)},
    {"a": (10, 12), "b": (6,), "c": (4, 16), "d": (14,), "e": (8, 20), "f": (22,)},
    {"a": (6,), "b": (10, 12), "c": (3, 5, 8), "d": (9, 18, 20, 22)},
)
"""Three, six and four parameters, which show what depends on their number, order and rank."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Parameters of one rule."""

    paths: list[Path]
    trace: ParameterTrace
    rank: int
    shapes: frozenset[Sizes]


def trace_transformation(
    transformation: Transformation, params: Tree | None, prover: Prover, name: str | None
) -> UpdateRule | list[Group]:
    """Returns the update rule of a gradient transformation.

    Raises:
        TraceError: It has no expression, or the rule differs from it.
    """
    label = name or "transformation"
    with double_precision():
        tree = _zeros(_MATRICES) if params is None else params
        shapes = primes_of(shapes_of(tree))
        variables = symbolic_variables(transformation, tree, shapes, label)
        source = _Source(transformation, variables, prover, label)
        return _for_all_shapes(source) if params is None else _for_params(source, params)


@dataclass(frozen=True, slots=True)
class _Source:
    """A transformation, the variables that are symbols, the prover, and a name for the rule."""

    transformation: Transformation
    variables: Sequence[Variable]
    prover: Prover
    name: str
    dtype: str | None = "float64"

    def jaxprs(self, params: Tree, shapes: Mapping[Path, Sizes]) -> Jaxprs:
        """Returns the jaxprs for shapes of primes near the given ones."""
        primes = primes_of(shapes)
        jaxprs = self._for(params, primes)
        # A size that is a constant of the jaxpr differs between the two.
        jaxprs.alternative = self._for(params, primes_of(primes, start=1))
        return jaxprs

    def _for(self, params: Tree, shapes: Mapping[Path, Sizes]) -> Jaxprs:
        return jaxprs_of(self.transformation, params, shapes, self.name, self.variables, self.dtype)

    def of(self, dtype: str | None) -> _Source:
        """Returns the source for parameters of another dtype; None for their own."""
        return replace(self, dtype=dtype)

    def depends_on_dtype(self, params: Tree, dtype: str | None) -> bool:
        """Returns whether parameters of a dtype and of float64 are updated differently.

        Rounding aside, which every dtype does in its own way.
        """
        shapes = primes_of(shapes_of(params))
        own_signatures, double = (
            signatures(source._for(params, shapes), is_of_any_dtype=True)
            for source in (self.of(dtype), self.of("float64"))
        )
        return own_signatures != double


def _for_all_shapes(source: _Source) -> UpdateRule:
    """The rule of parameters that are not given, traced for matrices and vectors.

    Raises:
        TraceError: The update depends on more than the number of axes: on the dtype, the sizes, or
            the number of parameters; or the rule differs from it.
    """
    name = source.name
    parts = []
    for shapes in (_MATRICES, _VECTORS):
        tree = _zeros(shapes)
        parts += _parts(source, tree, shapes_of(tree))
    matrices = _zeros(_MATRICES)
    if source.depends_on_dtype(matrices, "float32"):
        raise TraceError(
            "the update is another one for float32 than for float64",
            where=name,
            hint="give the parameters of the model: from_optax(transformation, params)",
        )
    path = parts[0].paths[0]
    expected = signatures(source.jaxprs(matrices, shapes_of(matrices)))[path]
    for difference_of_shapes, shapes in _DIFFERENT.items():
        tree = _zeros(shapes)
        signature = signatures(source.jaxprs(tree, shapes_of(tree)))[path]
        if signature != expected:
            raise TraceError(
                f"the update is another one for matrices {difference_of_shapes}",
                where=name,
                hint="give the parameters of the model: from_optax(transformation, params)",
            )
    is_of_all_ranks = _check_number(source, parts)
    rule = _merge(parts, name, is_of_all_ranks=is_of_all_ranks)
    if rule is None:
        raise TraceError("parameters of one shape have different rules", where=name)
    for shapes in (_MATRICES, _VECTORS):
        tree = _zeros(shapes)
        traces = [part.trace for part in parts]
        gap = difference(source.transformation, tree, rule, (), traces, source.variables)
        gap.check(name, *_ORIGINAL)
    return rule


def _check_number(source: _Source, parts: Sequence[_Part]) -> bool:
    """Compares the rules of matrices and vectors with the rules of more parameters.

    Returns whether parameters of other ranks have the same rule.

    Raises:
        TraceError: A rule depends on the number or the order of the parameters.
    """
    by_rank = {part.rank: part.trace for part in parts}
    is_of_all_ranks = True
    for shapes in _MIXED:
        tree = _zeros(shapes)
        for part in _parts(source, tree, shapes_of(tree)):
            for rank in {len(shape) for shape in part.shapes}:
                if rank not in by_rank:
                    is_of_all_ranks &= all(
                        _is_same(part.trace, sample) for sample in by_rank.values()
                    )
                elif not _is_same(part.trace, by_rank[rank]):
                    raise TraceError(
                        f"the update of a tensor of {rank} axes is another one among "
                        f"{len(shapes)} parameters than among 2",
                        where=source.name,
                        hint="it depends on the number or the order of the parameters; give those "
                        "of the model: from_optax(transformation, params)",
                    )
    return is_of_all_ranks


def _for_params(source: _Source, params: Tree) -> UpdateRule | list[Group]:
    name, transformation = source.name, source.transformation
    shapes = shapes_of(params)
    if source.depends_on_dtype(params, None):
        source = source.of(None)
    like = with_shapes(params, shapes, source.dtype)
    parts = _parts(source, params, shapes)
    traces = [part.trace for part in parts]
    rule = _merge(parts, name)
    if rule is not None:
        gap = difference(transformation, like, rule, (), traces, source.variables)
        gap.check(name, *_ORIGINAL)
        return rule
    rules = [rule_of(name, [part.trace.variant], part.trace.hypers) for part in parts]
    # A norm in optax.partition is over the parameters of one label; elsewhere over all of them.
    for candidate_rules in (rules, [_apart(rule, place) for place, rule in enumerate(rules)]):
        names = [tuple(dotted_name(path) for path in part.paths) for part in parts]
        groups = [
            Group(own_names, rule) for own_names, rule in zip(names, candidate_rules, strict=True)
        ]
        gap = difference(
            transformation, like, candidate_rules[0], groups[1:], traces, source.variables
        )
        if gap.is_small:
            return groups
    gap.check(name, *_ORIGINAL)
    return groups


def _apart(rule: UpdateRule, place: int) -> UpdateRule:
    """A rule whose sums are over the parameters of one group, by separate names."""
    totals = {total for expr in rule.all_expressions() for total in expr.atoms(GlobalSum)}
    # sorted: sets of SymPy have another order in each process.
    terms = sorted({total.args[0] for total in totals if total.args[0].free_symbols}, key=str)
    names = {term: f"summand_{place + 1}_{k + 1}" for k, term in enumerate(terms)}

    def rename(expr: sp.Basic) -> sp.Basic:
        return expr.replace(
            GlobalSum, lambda term: GlobalSum(local(names[term]) if term in names else term)
        )

    definitions: dict[str, sp.Expr] = {}
    expressions = [*rule.definitions.items(), *(("", expr) for expr in rule.all_expressions())]
    for name, expr in expressions:
        for total in sorted(expr.atoms(GlobalSum), key=str):
            if total.args[0] in names:
                definitions[names[total.args[0]]] = total.args[0]
        if name:
            definitions[name] = rename(expr)
    return replace(rule, **rule.expressions_by(rename, definitions))


def _zeros(shapes: Mapping[str, Sizes]) -> Tree:
    return {key: jax.ShapeDtypeStruct(shape, jnp.float64) for key, shape in shapes.items()}


def _parts(source: _Source, params: Tree, shapes: Mapping[Path, Sizes]) -> list[_Part]:
    """The parameters by rule; equal operations are traced once for each kind of shape."""
    plain = source.jaxprs(params, shapes)
    signatures_by_path = signatures(plain)
    kinds: dict[Any, list[Path]] = {}
    for path, shape in shapes.items():
        unit_axes = tuple(size == 1 for size in shape)
        kinds.setdefault((signatures_by_path[path], unit_axes), []).append(path)
    parts: list[_Part] = []
    for (kind, _), paths in kinds.items():
        path_of_part = paths[0]
        near = [path for path in shapes if path in kind.gradients]
        # The second parameter of the trace should be of the same kind, so that sums over both have
        # one term.
        same_rank = [path for path in near if len(shapes[path]) == len(shapes[path_of_part])]
        second = next(
            (path for path in (*same_rank, *near, *paths, *shapes) if path != path_of_part), None
        )
        trace = trace_parameter(plain, path_of_part, second, source.prover, source.name)
        part_shapes = frozenset(shapes[path] for path in paths)
        parts.append(_Part(paths, trace, len(shapes[path_of_part]), part_shapes))
    return _distinct(parts)


def _distinct(parts: Sequence[_Part]) -> list[_Part]:
    """Parts of different rules: parts of equal rules are one."""
    distinct: list[_Part] = []
    for part in parts:
        equal = (k for k, other in enumerate(distinct) if _is_same(other.trace, part.trace))
        place = next(equal, None)
        if place is None:
            distinct.append(part)
        else:
            paths = [*distinct[place].paths, *part.paths]
            shapes = distinct[place].shapes | part.shapes
            distinct[place] = replace(distinct[place], paths=paths, shapes=shapes)
    return distinct


def _is_same(first: ParameterTrace, second: ParameterTrace) -> bool:
    return first.variant == second.variant and first.hypers == second.hypers


def _merge(parts: Sequence[_Part], name: str, *, is_of_all_ranks: bool = True) -> UpdateRule | None:
    """One rule of all parts, if the shape of a parameter tells which one is its own.

    It is only for the ranks of the parts, unless it is for all ranks.
    """
    unique = _distinct(parts)
    hypers = {key: value for part in unique for key, value in part.trace.hypers.items()}
    if len(unique) == 1:
        (part,) = unique
        condition = _own_rank(part) if part.trace.is_structural else sp.true
        if condition == sp.true and not is_of_all_ranks:
            condition = _of_ranks({len(shape) for shape in part.shapes})
        return rule_of(name, [replace(part.trace.variant, condition=condition)], hypers)
    sums = [_sums(part.trace.variant) for part in unique]
    if any(sums_of_part != sums[0] for sums_of_part in sums):
        return None  # a sum is over the parameters of the rules that have it
    ranks = [{len(shape) for shape in part.shapes} for part in unique]
    # The rank tells the parts apart, or nothing in a rule does.
    if any(a & b for place, a in enumerate(ranks) for b in ranks[:place]):
        return None
    variants = [
        replace(
            part.trace.variant,
            condition=_of_ranks(own_ranks),
            shapes=_write_out(part, own_ranks, unique),
        )
        for part, own_ranks in zip(unique, ranks, strict=True)
    ]
    return rule_of(name, variants, hypers)


def _sums(variant: Variant) -> set[sp.Basic]:
    """The sums over all parameters, with their definitions."""
    definitions = {local(name): expr for name, expr in variant.definitions.items()}
    expressions = (*variant.results.values(), *variant.definitions.values())
    sums = {total for expr in expressions for total in expr.atoms(GlobalSum)}
    for symbol, expr in reversed(definitions.items()):
        sums = {total.xreplace({symbol: expr}) for total in sums}
    return sums


def _write_out(part: _Part, ranks: set[int], parts: Sequence[_Part]) -> dict[str, Any]:
    """Shape rules of states, with sizes for ``param`` where another part has sizes."""
    shape_rules = {}
    for label, shape in part.trace.variant.shapes.items():
        part_shapes = [other_part.trace.variant.shapes.get(label, shape) for other_part in parts]
        if (
            shape == "param"
            and len(ranks) == 1
            and any(part_shape != shape for part_shape in part_shapes)
        ):
            (rank,) = ranks
            shape_rules[label] = ShapeSizes(tuple(map(axis_size, range(rank))))
        else:
            shape_rules[label] = shape
    return shape_rules


def _of_ranks(ranks: Iterable[int]) -> sp.Basic:
    return sp.Or(*(sp.Eq(RANK, rank) for rank in ranks))


def _own_rank(part: _Part) -> sp.Basic:
    (shape, *_) = sorted(part.shapes)
    unit_sizes = [sp.Eq(axis_size(axis), 1) for axis, size in enumerate(shape) if size == 1]
    return sp.And(sp.Eq(RANK, len(shape)), *unit_sizes)


def primes_of(shapes: Mapping[Path, Sizes], start: int = 0) -> dict[Path, Sizes]:
    """Returns shapes of distinct primes, each size the next one from the size that is given.

    So a size shows which axis it is of, and larger sizes stay larger; axes of size 1 stay so.

    Args:
        shapes: The shapes by path.
        start: How far above its size a prime is at least.
    """
    places = [(path, axis) for path, shape in shapes.items() for axis in range(len(shape))]
    # In the order of the sizes, so that the larger size has the larger prime.
    places.sort(key=lambda place: shapes[place[0]][place[1]])
    primes: dict[tuple[Path, int], int] = {}
    last = 2
    for path, axis in places:
        size = shapes[path][axis]
        if size == 1:
            primes[path, axis] = 1
            continue
        last = int(sp.nextprime(max(size + start, last + 1) - 1))
        primes[path, axis] = last
    return {
        path: tuple(primes[path, axis] for axis in range(len(shape)))
        for path, shape in shapes.items()
    }
