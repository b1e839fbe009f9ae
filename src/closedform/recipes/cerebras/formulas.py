"""The formulas of cerebras.pytorch 2.10: builders of its schedules that hold no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_mod, t
from closedform.recipes.entries import Context
from closedform.recipes.expressions import parse_function
from closedform.schedules import (
    constant,
    cosine,
    cosine_annealing,
    cyclic,
    exponential,
    function,
    inverse_square_root,
    inverse_time,
    linear,
    multi_step,
    multiplicative,
    one_cycle,
    polynomial,
    step_decay,
    warm_restarts,
)
from closedform.schedules.arguments import check_choice, whole_number
from closedform.schedules.cyclic import MODES
from closedform.schedules.exponential import check_factor
from closedform.schedules.one_cycle import ANNEALS, cycle_phases
from closedform.schedules.polynomial import check_cycle

Arguments = Mapping[str, Any]

_DEFAULT_LAMBDAS = ("t/30", "0.95**t")


def constant_value(given: Arguments, context: Context) -> Schedule:
    """The length is only read when a Sequential is configured; it may be 0."""
    del context
    total = given["total_iters"]
    return constant(given["val"], total if total is not None and total > 0 else None)


def straight(given: Arguments, context: Context) -> Schedule:
    """Polynomial of power 1."""
    if given["cycle"] and not context.as_implemented:
        return power_of_rest({**given, "power": 1}, context)
    return linear(given["initial_val"], given["end_val"], given["total_iters"])


def power_of_rest(given: Arguments, context: Context) -> Schedule:
    """As implemented, ``cycle`` has no effect: the value is final before the time is stretched."""
    is_stretched = given["cycle"] and not context.as_implemented
    if is_stretched:
        check_cycle(given["total_iters"], "total_iters", context.where)
    return polynomial(
        given["initial_val"],
        given["end_val"],
        given["total_iters"],
        given["power"],
        cycle=is_stretched,
    )


def exponential_decay(given: Arguments, context: Context) -> Schedule:
    """One factor every ``total_iters`` steps."""
    value, rate, steps = given["initial_val"], given["decay_rate"], given["total_iters"]
    names = ("decay_rate", "total_iters")
    check_factor(rate, steps, context.where, staircase=given["staircase"], names=names)
    return exponential(value, rate, steps, staircase=given["staircase"])


def inverse_time_decay(given: Arguments, context: Context) -> Schedule:
    """The exponent is on t alone."""
    del context
    return inverse_time(
        given["initial_val"],
        given["decay_rate"],
        given["total_iters"],
        given["step_exponent"],
        staircase=given["staircase"],
    )


def inverse_root(given: Arguments, context: Context) -> Schedule:
    """The flat start is at initial_val*scale/sqrt(warmup_steps)."""
    del context
    return inverse_square_root(given["initial_val"], given["scale"], given["warmup_steps"])


def cosine_decay(given: Arguments, context: Context) -> Schedule:
    """Half a cosine, constant after its end."""
    del context
    return cosine(given["initial_val"], given["end_val"], given["total_iters"])


def cosine_swing(given: Arguments, context: Context) -> Schedule:
    """A cosine that rises again."""
    del context
    return cosine_annealing(given["initial_val"], given["eta_min"], given["T_max"])


def cosine_restarts(given: Arguments, context: Context) -> Schedule:
    """As implemented, later periods are constant: at the start, at the end, and so on."""
    value, low, period = given["initial_val"], given["eta_min"], given["T_0"]
    if not context.as_implemented:
        multiplier = whole_number(given["T_mult"], "T_mult", context.where, least=1)
        return warm_restarts(value, low, period, multiplier)
    if given["T_mult"] != 1:
        raise DefinitionError(
            f"T_mult must be 1 as implemented, got {given['T_mult']}",
            where=context.where,
            hint="leave as_implemented out for periods that grow",
        )
    first = cosine(value, low, period)
    later = sp.Piecewise((low, floor_mod(t, 2 * period) < period), (value, True))
    return Schedule(sp.Piecewise((first.bound, t < period), (later, True)), name="warm_restarts")


def steps_down(given: Arguments, context: Context) -> Schedule:
    """A factor every ``step_size`` steps."""
    del context
    return step_decay(given["initial_val"], given["gamma"], given["step_size"])


def milestones_down(given: Arguments, context: Context) -> Schedule:
    """A factor at each milestone."""
    del context
    return multi_step(given["initial_val"], given["gamma"], given["milestones"])


def coefficient_power(given: Arguments, context: Context) -> Schedule:
    """A factor every step."""
    del context
    return multiplicative(given["initial_val"], given["coefficient"])


def product_of_functions(given: Arguments, context: Context) -> Schedule:
    """As implemented, the initial value is a factor as often as there are functions."""
    texts = _DEFAULT_LAMBDAS if given["lambdas"] is None else given["lambdas"]
    if not isinstance(texts, list | tuple):
        raise DefinitionError(
            f"lambdas must be a list of functions, got {type(texts).__name__} {texts!r}",
            where=context.where,
        )
    count = len(texts) if context.as_implemented else 1
    factors = [_function(text, f"lambdas[{i}]", context) for i, text in enumerate(texts)]
    return function(sp.Mul(given["initial_val"] ** count, *factors), name="lambda")


def own_function(given: Arguments, context: Context) -> Schedule:
    """A user-made class: its closed form, begun at last_epoch + 1."""
    factor = _function(given["expr"], "expr", context)
    total = given["total_iters"]
    length = None if total is None else sp.ceiling(total)
    return function(factor, length=length).shift(given["last_epoch"] + 1)


def triangles(given: Arguments, context: Context) -> Schedule:
    """The mode alone decides; as implemented, an unknown one is exp_range."""
    mode = given["mode"]
    if context.as_implemented and mode not in MODES:
        mode = "exp_range"
    check_choice(mode, MODES, "mode", context.where)
    low, high = given["base_val"], given["max_val"]
    up, down = given["step_size_up"], given["step_size_down"]
    return cyclic(low, high, up, down, mode=mode, gamma=given["gamma"])


def one_cycle_policy(given: Arguments, context: Context) -> Schedule:
    """The last phase goes on past the end; as implemented, any strategy except cos is linear."""
    anneal = given["anneal_strategy"]
    if context.as_implemented and anneal != "cos":
        anneal = "linear"
    check_choice(anneal, tuple(ANNEALS), "anneal_strategy", context.where)
    cycle_phases(
        given["total_steps"],
        given["pct_start"],
        context.where,
        three_phase=given["three_phase"],
        clamp=False,
        names=("total_steps", "pct_start"),
    )
    return one_cycle(
        given["initial_val"],
        given["max_val"],
        given["initial_val"] / given["final_div_factor"],
        given["total_steps"],
        given["pct_start"],
        anneal,
        three_phase=given["three_phase"],
        clamp=False,
    )


def _function(spec: Any, name: str, context: Context) -> sp.Expr:
    """A function of the step, given as text or as ``{"expr": text}``."""
    wrapped = {"expr": spec} if isinstance(spec, str) else spec
    return parse_function(wrapped, f"{name} of {context.where}")
