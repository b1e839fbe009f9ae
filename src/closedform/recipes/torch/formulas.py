"""The formulas of torch 2.13: builders of its schedulers that hold no others.

By default each is its closed form; as implemented it is the value that ``step()`` sets, which
differs where a number of steps is not a positive integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, t
from closedform.recipes import checks
from closedform.recipes.entries import Context
from closedform.recipes.expressions import parse_function
from closedform.recipes.group_values import base_value, number_of_group, of_group
from closedform.recipes.torch.products import running_product
from closedform.schedules import (
    constant,
    cosine_annealing,
    cyclic,
    function,
    linear,
    multi_step,
    multiplicative,
    one_cycle,
    one_cycle_momentum,
    piecewise_constant,
    polynomial,
    step_decay,
    warm_restarts,
)
from closedform.schedules.one_cycle import cycle_phases

Arguments = Mapping[str, Any]


def _total(given: Arguments, context: Context) -> sp.Rational:
    """The number of steps, above 0 by default; as implemented it may be anything."""
    if context.as_implemented:
        return checks.number(given["total_iters"], "total_iters", context.where)
    return checks.steps(given["total_iters"], "total_iters", context.where)


def constant_factor(given: Arguments, context: Context) -> Schedule:
    """A factor until ``total_iters``, then none."""
    base, total = base_value(context), _total(given, context)
    low = base * given["factor"]
    if context.as_implemented and not (total.is_Integer and total > 0):
        return constant(low)  # step() undoes the factor at t == total_iters only
    return piecewise_constant([low, base], [sp.ceiling(total)])


def line(given: Arguments, context: Context) -> Schedule:
    """A line between two factors."""
    base, total = base_value(context), _total(given, context)
    start, end = base * given["start_factor"], base * given["end_factor"]
    if not context.as_implemented or (total > 0 and total.is_Integer):
        return linear(start, end, total)
    if total <= 0:  # step() never moves
        return constant(start)
    last = sp.floor(total)  # step() stops there
    return Schedule(start + (end - start) * sp.Min(t, last) / total, name="linear", length=last)


def power_of_rest(given: Arguments, context: Context) -> Schedule:
    """A power of the remaining time, to 0."""
    base, total, power = base_value(context), _total(given, context), given["power"]
    if power < 0:
        raise DomainError(
            f"power must be >= 0, got {power}: the value at t = total_iters would be infinite",
            where=context.where,
        )
    if power == 0 or total <= 0:  # 0**0 is 1: it never falls; total <= 0: step() never moves
        return constant(base)
    if not context.as_implemented or total.is_Integer:
        return polynomial(base, 0, total, power)
    last = sp.floor(total)  # step() stops there
    return Schedule(base * (1 - sp.Min(t, last) / total) ** power, name="polynomial", length=last)


def cosine_swing(given: Arguments, context: Context) -> Schedule:
    """A cosine that rises again."""
    return cosine_annealing(base_value(context), given["eta_min"], given["T_max"])


def milestones_down(given: Arguments, context: Context) -> Schedule:
    """As implemented, step() only sees a milestone that t equals: others are lost."""
    marks = given["milestones"]
    if context.as_implemented:
        marks = tuple(mark for mark in marks if mark.is_Integer and mark >= 0)
    return multi_step(base_value(context), given["gamma"], marks)


def function_of_step(given: Arguments, context: Context) -> Schedule:
    """The base value times a function."""
    return function(base_value(context) * _function(given, context), name="lambda")


def running_factors(given: Arguments, context: Context) -> Schedule:
    """The base value times the function at every step from 1 on; that at step 0 is not used."""
    factor = _function(given, context)
    product = running_product(factor, f"lr_lambda of {context.where}")
    return Schedule(base_value(context) * product, name="multiplicative")


def _function(given: Arguments, context: Context) -> sp.Expr:
    function = of_group(given["lr_lambda"], "lr_lambda", context)
    return parse_function(function, f"lr_lambda of {context.where}")


def steps_down(given: Arguments, context: Context) -> Schedule:
    """As implemented, step() misses multiples of a fractional size that are not integers."""
    size = given["step_size"]
    seen = sp.Integer(size.p) if context.as_implemented else size
    return step_decay(base_value(context), given["gamma"], seen)


def power_of_gamma(given: Arguments, context: Context) -> Schedule:
    """A factor every step."""
    return multiplicative(base_value(context), given["gamma"])


def cosine_restarts(given: Arguments, context: Context) -> Schedule:
    """Periods that are found by subtraction, as ``step()`` does."""
    low, first = given["eta_min"], given["T_0"]
    return warm_restarts(base_value(context), low, first, given["T_mult"])


def triangles(given: Arguments, context: Context) -> Schedule:
    """The rate between ``base_lr`` and ``max_lr``; the momentum moves against it."""
    bounds = ("base_lr", "max_lr")
    if context.key == "momentum":
        bounds = ("max_momentum", "base_momentum")
    low, high = (number_of_group(given, name, context) for name in bounds)
    scale = given["scale_fn"]
    if scale is not None:
        scale = parse_function(scale, f"scale_fn of {context.where}", "x")
    return cyclic(
        low,
        high,
        given["step_size_up"],
        given["step_size_down"],
        mode="triangular" if scale is not None else given["mode"],
        gamma=given["gamma"],
        scale=scale,
        scale_mode=given["scale_mode"],
    )


def one_cycle_policy(given: Arguments, context: Context) -> Schedule:
    """At t = total_steps the last phase goes on; torch raises beyond, where it goes on here."""
    total = _total_steps(given, context)
    cycle_phases(
        total,
        given["pct_start"],
        context.where,
        three_phase=given["three_phase"],
        clamp=False,
        names=("total_steps", "pct_start"),
    )
    arguments = {
        "steps": total,
        "rise": given["pct_start"],
        "anneal": given["anneal_strategy"],
        "three_phase": given["three_phase"],
        "clamp": False,
    }
    if context.key == "momentum":
        high, low = (
            number_of_group(given, name, context) for name in ("max_momentum", "base_momentum")
        )
        return one_cycle_momentum(high, low, **arguments)
    peak = number_of_group(given, "max_lr", context)
    start = peak / given["div_factor"]
    return one_cycle(start, peak, start / given["final_div_factor"], **arguments)


def one_cycle_start(kwargs: Mapping[str, Any], context: Context) -> sp.Expr:
    """Returns the rate that a OneCycleLR writes into its group as the one to start from."""
    peak = number_of_group(kwargs, "max_lr", context)
    return peak / checks.divisor(kwargs.get("div_factor", 25.0), "div_factor", context.where)


def is_cycled(given: Arguments, key: str) -> bool:
    """Returns whether a cycle moves the key: the momentum only with ``cycle_momentum``."""
    return key != "momentum" or bool(given["cycle_momentum"])


def _total_steps(given: Arguments, context: Context) -> sp.Expr:
    """The length, given itself or as epochs times steps per epoch."""
    if given["total_steps"] is not None:
        return given["total_steps"]
    if given["epochs"] is None or given["steps_per_epoch"] is None:
        raise DefinitionError(
            "the length is missing",
            where=context.where,
            hint="give total_steps, or epochs and steps_per_epoch",
        )
    return given["epochs"] * given["steps_per_epoch"]
