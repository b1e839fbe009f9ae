"""Expressions that the rules share: gradients, running means, signs, norms, factored moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    RANK,
    Shared,
    State,
    UpdateRule,
    Without,
    expand_dims,
    hyper,
    local,
    reduce_mean,
    reduce_sum,
    rounded,
    state,
    t,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import choice, flag, hyperparameter, is_zero
from closedform.language.settled import construct, product


def ascent_or_descent(maximize: bool, where: str) -> sp.Expr:
    """Returns the gradient, negated to maximize."""
    return -GRAD if flag(maximize, "maximize", where) else GRAD


def storage(dtype: str | None, where: str) -> Callable[[sp.Expr], sp.Expr]:
    """Returns the rounding of a scalar where it is stored; None leaves it in the graph's dtype."""
    if dtype is None:
        return lambda expr: expr
    dtype = choice(dtype, "scalar_states", where, ("f32",))
    return lambda expr: rounded(expr, dtype)


def with_penalty(gradient: sp.Expr, weight_decay: Hyper) -> sp.Expr:
    """Returns the gradient with the L2 penalty; the number 0 leaves the term out."""
    return gradient if is_zero(weight_decay) else gradient + hyper("weight_decay") * PARAM


def decoupled_decay(
    weight_decay: Hyper, param: sp.Expr = PARAM, rate: sp.Expr | None = None
) -> sp.Expr:
    """Returns the term that decoupled weight decay subtracts from the parameter.

    The rate is ``lr``, or another.

    It is a separate term: the factor 1 - lr*weight_decay, rounded to float32, would lose a decay
    below 6e-8 a step.
    """
    rate = hyper("lr") if rate is None else rate
    return 0 if is_zero(weight_decay) else rate * hyper("weight_decay") * param


def blend(old: sp.Expr, new: sp.Expr, decay: sp.Expr) -> sp.Expr:
    """Returns a running mean as a blend: its weights sum to 1 in float32, too."""
    return old + (1 - decay) * (new - old)


def weighted_mean(old: sp.Expr, new: sp.Expr, decay: sp.Expr) -> sp.Expr:
    """Returns a running mean of squares: both terms stay at or above 0, and an infinity stays."""
    return decay * old + (1 - decay) * new


def square(value: sp.Expr) -> sp.Expr:
    """Returns the square of a quotient or product, computed as such.

    SymPy squares its factors apart, and those overflow and underflow where the value does not; the
    larger of the value and its negative stays whole.
    """
    return construct(sp.Max, value, -value) ** 2


def sign(value: sp.Expr) -> sp.Expr:
    """Returns 1, -1, or the value itself where it is 0 or not a number."""
    return sp.Piecewise(
        (1, construct(sp.Gt, value, 0)), (-1, construct(sp.Lt, value, 0)), (value, True)
    )


def rectification(beta2: sp.Expr, threshold: int) -> tuple[sp.Expr, sp.Expr]:
    """Returns the length ρ of RAdam's mean of squares, and the factor of the step above a ρ.

    Below the threshold, which is at least 4, the factor is that at the threshold: legal, if not 0.
    """
    power = beta2 ** (t + 1)
    # ρ_∞ and ρ_t of Liu et al. (2020), algorithm 2.
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * (t + 1) * power / (1 - power)
    # A back end computes the branch that is not taken, too: the root stays real there.
    safe_length = construct(sp.Max, length, threshold)
    ratio = (safe_length - 4) * (safe_length - 2) * limit / ((limit - 4) * (limit - 2))
    # SymPy returns the same expression, after 50 ms in which it asks for signs.
    root = sp.Pow(ratio, sp.S.Half, evaluate=False)
    return length, product([root, sp.Pow(safe_length, -sp.S.Half, evaluate=False)])


def rule_of(
    name: str,
    param: sp.Expr,
    states: Mapping[str, State],
    values: Mapping[str, Any],
    *,
    definitions: Mapping[str, sp.Expr] | None = None,
    requires: sp.Basic = sp.true,
    inputs: tuple[str, ...] = (),
    shared: Mapping[str, Shared] | None = None,
    evaluation: sp.Expr | None = None,
) -> UpdateRule:
    """Returns the rule with only the hyperparameters that its expressions contain."""
    common, definitions_by_name = shared or {}, definitions or {}
    expressions = [param, *(spec.next for spec in states.values()), *definitions_by_name.values()]
    expressions += [spec.next for spec in common.values()]
    expressions += [] if evaluation is None else [evaluation]
    used_names = {symbol.name for expr in expressions for symbol in expr.free_symbols}
    return UpdateRule(
        name,
        param,
        states,
        {key: value for key, value in values.items() if key in used_names},
        definitions_by_name,
        requires,
        inputs=inputs,
        shared=common,
        evaluation=evaluation,
    )


IS_FACTORED = sp.Ge(RANK, 2)
"""A matrix, or a batch of them: its second moment is stored as row and column factors."""


def clipped_update(name: str, clip_threshold: Hyper, where: str) -> tuple[Any, sp.Expr]:
    """Returns the checked hyperparameter ``clip_threshold``, and a definition scaled down by it.

    Raises:
        DefinitionError: It is a number that is not above 0.
    """
    value = hyperparameter(clip_threshold, "clip_threshold", where)
    if is_zero(value):
        raise DefinitionError("clip_threshold must be above 0, got 0", where=where)
    # max(1, rms / d): no division by an rms of 0.
    return value, local(name) / construct(sp.Max, 1, rms(local(name)) / hyper("clip_threshold"))


def norm(tensor: sp.Expr) -> sp.Expr:
    """Returns the Euclidean norm of all elements."""
    return sp.sqrt(reduce_sum(tensor**2))


def rms(tensor: sp.Expr) -> sp.Expr:
    """Returns the root of the mean square of all elements."""
    return sp.sqrt(reduce_mean(tensor**2))


@dataclass(frozen=True, slots=True)
class Factors:
    """The states of a factored running mean.

    Attributes:
        row: Name of the means over the last axis.
        column: Name of the means over the last axis but one.
        keepdims: Whether the axes stay, with size 1.
    """

    row: str
    column: str
    keepdims: bool = False

    def states(self) -> dict[str, State]:
        """Returns the two states, for parameters of two axes or more."""
        return {
            name: State(local(name), 0, Without((axis,), self.keepdims), IS_FACTORED)
            for name, axis in ((self.row, -1), (self.column, -2))
        }

    def definitions(self, square: sp.Expr, decay: sp.Expr) -> dict[str, sp.Expr]:
        """Returns their next values, by the names of the states."""
        return {
            name: weighted_mean(state(name), reduce_mean(square, (axis,), self.keepdims), decay)
            for name, axis in ((self.row, -1), (self.column, -2))
        }

    def root(self) -> sp.Expr:
        """Returns the root of R C / mean(R), R and C the next values, in the parameter's shape.

        The roots of the two factors are multiplied, not the factors, which would overflow first.
        """
        row, column = local(self.row), local(self.column)
        # Rows are the last axis but one of the parameter: the last axis of R where its own is
        # dropped.
        row_mean_axis = -2 if self.keepdims else -1
        share = sp.sqrt(row / reduce_mean(row, (row_mean_axis,), keepdims=True))
        if self.keepdims:
            return share * sp.sqrt(column)
        return expand_dims(share, -1) * expand_dims(sp.sqrt(column), -2)
