"""Rules for sharded parameters: a sum over a tensor becomes a total of partial sums.

A sum over all elements of one tensor is rewritten as a sum over a model that has only that tensor,
so that its partial sums are lowered like partial sums over all parameters (``ir/program.py``). A
symbolic factor 1 distinguishes the two. A rule that needs more than this of the full tensor, such
as a matrix product or a sum along one axis, runs on the gathered tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp
from torch import Tensor

from closedform.language import GRAD, PARAM, UpdateRule, local, state
from closedform.language.functions import WHOLE_TENSOR, ReduceMean, ReduceSum, Uniform
from closedform.language.groups import Assignment
from closedform.language.model import GlobalSum
from closedform.language.shapes import Shape
from closedform.lowering.sums import SumTable
from closedform.torch.shards import first_place, is_sharded, row_shards

_OWN = "of_one_parameter"
"""The definition whose value is 1: a factor of each sum over one parameter."""


@dataclass(frozen=True, slots=True)
class ShardRule:
    """The rule of one sharded parameter.

    Attributes:
        rule: The rule for its shape, with partial sums.
        shape: The shape of the full parameter.
        is_gathered: Whether it needs the full tensor; the rule is then unchanged.
        first_place: The place in the full tensor of the first local element; None if the next ones
            do not follow it.
        count: The number of shards if they are equally many rows; 0 if not.
    """

    rule: UpdateRule
    shape: Shape
    is_gathered: bool
    first_place: int | None = 0
    count: int = 0


def shard_rule(rule: UpdateRule, shape: Shape, place: int | None = None) -> ShardRule:
    """Returns the rule for a parameter of this shape, with partial sums if possible.

    This is possible if elements step independently apart from sums and means over all elements,
    and all states have the parameter's shape or rank 0; random numbers need the place of the first
    local element.

    Args:
        rule: The rule.
        shape: The shape of the full parameter.
        place: The place of the first local element in the full parameter, whose next ones follow;
            None if they do not.

    Raises:
        DefinitionError: The rule does not apply to this shape.

    Example:
        >>> from closedform import optimizers
        >>> lars = shard_rule(optimizers.lars(momentum=0), (6, 4))
        >>> (
        ...     lars.is_gathered,
        ...     lars.rule.param.has(ReduceSum),
        ...     shard_rule(optimizers.muon(), (6, 4)).is_gathered,
        ... )
        (False, False, True)
    """
    shaped_rule = rule.for_shape(shape)
    summed_rule = _with_partial_sums(shaped_rule, shape)
    is_local = all(spec.shape in ("param", "scalar") for spec in shaped_rule.states.values())
    functions = {*WHOLE_TENSOR} - ({Uniform} if place is not None else set())
    is_local &= not any(expr.has(*functions) for expr in summed_rule.all_expressions())
    if not is_local:
        return ShardRule(shaped_rule, shape, True, place)
    is_drawn = any(expr.has(Uniform) for expr in summed_rule.all_expressions())
    return ShardRule(summed_rule, shape, False, place or 0 if is_drawn else 0)


def shard_rules(
    rule: UpdateRule, params: Sequence[Tensor], cache: MutableMapping[Any, Any]
) -> list[ShardRule]:
    """Returns the rule of each parameter, with partial sums where the parameter is sharded.

    Args:
        rule: The rule.
        params: The parameters.
        cache: Results for the same rule.

    Raises:
        DefinitionError: The rule does not apply to the shape of a parameter.
    """
    rules = []
    for param in params:
        cut = (row_shards(param), first_place(param)) if is_sharded(param) else None
        key = ("rule", tuple(param.shape), cut)
        if key not in cache:
            cache[key] = _rule_of(rule, param)
        rules.append(cache[key])
    return rules


def _rule_of(rule: UpdateRule, param: Tensor) -> ShardRule:
    """The rule of a parameter by the way in which it is sharded."""
    shape = tuple(param.shape)
    if not is_sharded(param):
        return ShardRule(rule.for_shape(shape), shape, True)
    count = row_shards(param) or 0
    is_even = bool(count) and shape[0] % count == 0
    placed_rule = shard_rule(rule, shape, first_place(param))
    return replace(placed_rule, count=count if is_even else 0)


def distinct_rules(rules: Iterable[ShardRule], shapes: Mapping[str, Shape]) -> list[Assignment]:
    """Returns the distinct rules, each with its parameters.

    Args:
        rules: The rule of each parameter.
        shapes: The shapes to compile for, by the name of the parameter in a graph.
    """
    params: dict[UpdateRule, dict[str, Shape]] = {}
    for placed_rule, (label, shape) in zip(rules, shapes.items(), strict=True):
        params.setdefault(placed_rule.rule, {})[label] = shape
    return [Assignment(*placed_rule) for placed_rule in params.items()]


def own_sums(rules: Iterable[Assignment]) -> frozenset[str]:
    """Returns the names of the sums over one parameter, in a program of these rules."""
    table = SumTable()
    return frozenset(
        name
        for assignment in rules
        for name, part in table.name_sums(assignment.rule)[1].items()
        if local(_OWN) in part.free_symbols
    )


def _with_partial_sums(rule: UpdateRule, shape: Shape) -> UpdateRule:
    """The rule with sums and means over all elements of a sharded tensor as sums of the model."""
    size = sp.Mul(*(sp.Integer(dim) for dim in shape))
    sharded_names = {PARAM, GRAD}
    # Local parts stand for these symbols; scalar states are equal in all processes.
    sharded_names |= {state(name) for name, spec in rule.states.items() if spec.shape == "param"}

    counted_sums: set[sp.Basic] = set()

    def is_sharded_sum(expr: sp.Basic) -> bool:
        # A total is equal in all processes, although its terms are local.
        outside = expr.xreplace({total: sp.Integer(1) for total in expr.atoms(GlobalSum)})
        return not outside.free_symbols.isdisjoint(sharded_names)

    def total(expr: sp.Basic) -> sp.Basic:
        while True:
            # From the innermost sums outwards: a sum over terms that contain a sum comes later.
            inner = {
                reduction: GlobalSum(local(_OWN) * reduction.args[0])
                # The size of the full tensor; Max, so that the mean of an empty one is 0.
                / (sp.Max(size, 1) if isinstance(reduction, ReduceMean) else 1)
                for reduction in expr.atoms(ReduceSum, ReduceMean)
                if len(reduction.args) == 1 and not reduction.args[0].has(*WHOLE_TENSOR)
                if is_sharded_sum(reduction.args[0])
            }
            if not inner:
                return expr
            counted_sums.update(inner)
            expr = expr.xreplace(inner)

    definitions = {}
    for name, expr in rule.definitions.items():
        definitions[name] = total(expr)
        if is_sharded_sum(definitions[name]):
            sharded_names.add(local(name))
    fields = rule.expressions_by(total, {_OWN: sp.Integer(1), **definitions})
    return replace(rule, **fields) if counted_sums else rule
