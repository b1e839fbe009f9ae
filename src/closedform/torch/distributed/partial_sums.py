"""Rules for parameters in shards: sums over a whole tensor become totals of the shards' parts.

A sum over all elements of one tensor is written as a sum over a model of that tensor alone, so
that the parts of it are lowered as those of sums over all parameters are (``ir/program.py``). A
factor 1 of its own tells the two apart. What then still looks at a whole tensor, such as a matrix
product or a sum along one axis, needs the tensor gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp
from torch import Tensor

from closedform.language import GRAD, PARAM, UpdateRule, local, state
from closedform.language.functions import WHOLE_TENSOR, ReduceMean, ReduceSum
from closedform.language.groups import Assignment
from closedform.language.model import GlobalSum
from closedform.language.shapes import Shape
from closedform.lowering.sums import SumTable
from closedform.torch.distributed.shards import is_sharded

_OWN = "of_one_parameter"
"""The definition 1, a factor of each sum over one parameter."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A rule for one parameter in shards.

    Attributes:
        rule: The rule for its shape, with sums in parts.
        shape: The shape of the whole parameter.
        is_gathered: Whether it must have the whole tensor; it then is the rule as it was.
    """

    rule: UpdateRule
    shape: Shape
    is_gathered: bool


def divided(rule: UpdateRule, shape: Shape) -> Divided:
    """Returns the rule for a parameter of this shape, in parts where it can be.

    It can be where, but for sums and means over all elements, each element steps by itself, and
    all states have the parameter's shape or rank 0.

    Raises:
        DefinitionError: The rule is not for this shape.

    Example:
        >>> from closedform import optimizers
        >>> lars = divided(optimizers.lars(momentum=0), (6, 4))
        >>> (
        ...     lars.is_gathered,
        ...     lars.rule.param.has(ReduceSum),
        ...     divided(optimizers.muon(), (6, 4)).is_gathered,
        ... )
        (False, False, True)
    """
    fixed = rule.for_shape(shape)
    in_parts = _in_parts(fixed, shape)
    is_divided = all(spec.shape in ("param", "scalar") for spec in fixed.states.values())
    is_divided &= not any(expr.has(*WHOLE_TENSOR) for expr in in_parts.all_expressions())
    return Divided(in_parts, shape, False) if is_divided else Divided(fixed, shape, True)


def cut(
    rule: UpdateRule, params: Sequence[Tensor], known: MutableMapping[Any, Any]
) -> list[Divided]:
    """Returns the rule of each parameter: divided, or as it is where the parameter is whole here.

    Args:
        rule: The rule.
        params: The parameters.
        known: What was made of the rule before, by what it depends on.

    Raises:
        DefinitionError: The rule is not for the shape of a parameter.
    """
    made = []
    for param in params:
        key = ("rule", tuple(param.shape), is_sharded(param))
        if key not in known:
            shape = tuple(param.shape)
            fixed = Divided(rule.for_shape(shape), shape, True)
            known[key] = divided(rule, shape) if is_sharded(param) else fixed
        made.append(known[key])
    return made


def members_of(cut: Iterable[Divided], shapes: Mapping[str, Shape]) -> list[Assignment]:
    """Returns the distinct rules, each with the parameters that take it.

    Args:
        cut: The rule of each parameter.
        shapes: The shapes that it is compiled for, by the parameter's name in a graph.
    """
    members: dict[UpdateRule, dict[str, Shape]] = {}
    for one, (label, shape) in zip(cut, shapes.items(), strict=True):
        members.setdefault(one.rule, {})[label] = shape
    return [Assignment(*member) for member in members.items()]


def own_sums(members: Iterable[Assignment]) -> frozenset[str]:
    """Returns the names of the sums that are of one parameter, in a program of these rules."""
    table = SumTable()
    return frozenset(
        name
        for member in members
        for name, part in table.named(member.rule)[1].items()
        if local(_OWN) in part.free_symbols
    )


def _in_parts(rule: UpdateRule, shape: Shape) -> UpdateRule:
    """The rule with sums and means over all elements as sums of the model, where they are such."""
    size = sp.Mul(*(sp.Integer(dim) for dim in shape))
    spread = {PARAM, GRAD}
    spread |= {state(name) for name, spec in rule.states.items() if spec.shape == "param"}

    counted: set[sp.Basic] = set()

    def is_spread(expr: sp.Basic) -> bool:
        outside = expr.xreplace({total: sp.Integer(1) for total in expr.atoms(GlobalSum)})
        return not outside.free_symbols.isdisjoint(spread)

    def total(expr: sp.Basic) -> sp.Basic:
        while True:
            inner = {
                one: GlobalSum(local(_OWN) * one.args[0])
                / (sp.Max(size, 1) if isinstance(one, ReduceMean) else 1)
                for one in expr.atoms(ReduceSum, ReduceMean)
                if len(one.args) == 1 and not one.args[0].has(*WHOLE_TENSOR)
                if is_spread(one.args[0])
            }
            if not inner:
                return expr
            counted.update(inner)
            expr = expr.xreplace(inner)

    definitions = {}
    for name, expr in rule.definitions.items():
        definitions[name] = total(expr)
        if is_spread(definitions[name]):
            spread.add(local(name))
    made = rule.expressions_by(total, {_OWN: sp.Integer(1), **definitions})
    return replace(rule, **made) if counted else rule
