"""Parameters and states of 16 bits, loss scales, and steps with gradients that are not finite.

Example:
    >>> from closedform import optimizers
    >>> rule = sixteen_bit_states(optimizers.adamw(1e-3))
    >>> {name: spec.stored for name, spec in rule.states.items()}
    {'exp_avg': 'bf16', 'exp_avg_sq': 'bf16'}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    Schedule,
    Shared,
    State,
    UpdateRule,
    counter,
    global_sum,
    local,
    non_finite,
    rounded,
    shared,
    state,
    uniform,
)
from closedform.language.aliases import Number
from closedform.language.arguments import bounded_number, choice, number_or_schedule, step_count
from closedform.language.functions import STORED
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import (
    check_rule,
    check_states,
    check_unstored,
    substitute_symbols,
    unless,
    unused_name,
    with_definition,
    with_following_param,
    with_gradient,
    with_shared,
    with_states,
)


@with_checked_keywords
def master_weights(rule: UpdateRule, stored: str = "bf16") -> UpdateRule:
    r"""Returns a rule for parameters and gradients of 16 bits, with masters of full precision.

    .. math:: w' = p'(w, g), \quad p' = \operatorname{round}(w')

    The rule runs on the masters w in the dtype that the graph is compiled for, float32 by default,
    and so do its states; the gradient is widened, the next parameter is the next master, rounded.
    Without masters, changes below 2**-9 of a bf16 parameter would be lost.

    State: ``master`` w, shape of the parameter, initially the parameter.

    Args:
        rule: The rule. Transforms of it that come later see the widened gradient.
        stored: The dtype of the parameters and gradients, ``"bf16"`` or ``"f16"``.

    Raises:
        DefinitionError: It is not such a dtype, or the rule has masters already.

    Example:
        >>> from closedform import optimizers
        >>> rule = master_weights(optimizers.sgd(0.5))
        >>> rule.param, rule.stored
        (-grad*lr + state.master, 'bf16')

    Source: Micikevicius et al. (2018), section 3.1; the bf16 optimizers of apex and of
    cerebras.pytorch.
    """
    check_rule(rule, "master_weights")
    choice(stored, "stored", "master_weights", STORED)
    master = state("master")
    # States that begin as the parameter begin as its widened value.
    extended_rule = with_states(rule, "master_weights", master=State(master, PARAM))
    substituted_rule = substitute_symbols(extended_rule, {PARAM: master})
    # The master is the next parameter before rounding; the file rounds the output to the stored
    # dtype.
    states = {**substituted_rule.states, "master": State(substituted_rule.param, PARAM)}
    return replace(substituted_rule, states=states, stored=stored)


@with_checked_keywords
def kahan(rule: UpdateRule, stored: str = "bf16") -> UpdateRule:
    r"""Returns a rule for parameters of 16 bits that store the rest of their rounding.

    .. math::
        w &= p + c, \qquad w' = P(w, g) \\
        p' &= \operatorname{round}(w') \\
        c' &= \operatorname{round}(w' - p')

    for the next parameter P of the rule, computed in float32. p and c hold 16 bits of w together:
    :math:`|p' + c' - w'| \le 2^{-16} |w'|` in bf16 and :math:`2^{-22} |w'|` in f16, apart from
    underflow. If P is Lipschitz with the constant L in the parameter, the error after T steps is at
    most :math:`2^{-16} \max |w| \sum_{k < T} L^k`.

    State: ``compensation`` c, shape of the parameter, stored in 16 bits, initially 0.

    Args:
        rule: The rule. Transforms of it that come later see the widened gradient.
        stored: The dtype of parameters, gradients and c, ``"bf16"`` or ``"f16"``.

    Raises:
        DefinitionError: It is not such a dtype, or the rule has the state already or stores its
            parameters in 16 bits.

    Example:
        >>> from closedform import optimizers
        >>> rule = kahan(optimizers.sgd(0.5))
        >>> rule.definitions["following_1"], rule.param
        (-grad*lr + local.widened_1, Rounded(local.following_1, bf16))
        >>> rule.states["compensation"].next
        local.following_1 - Rounded(local.following_1, bf16)

    Source: Kahan (1965); Zamirai et al., Revisiting BFloat16 Training (2020), algorithm 3, which
    adds the rest to the next update rather than to the parameter.
    """
    widened_rule, following = _of_16_bits(rule, stored, "kahan", state("compensation"))
    nearest = rounded(following, stored)
    compensation = State(following - nearest, stored=stored)
    return replace(
        widened_rule,
        param=nearest,
        states={**widened_rule.states, "compensation": compensation},
    )


@with_checked_keywords
def stochastic_rounding(rule: UpdateRule, *, stored: str = "bf16", seed: int = 0) -> UpdateRule:
    r"""Returns a rule for parameters of 16 bits that round the next parameter at random.

    .. math::
        w' &= P(p, g), \quad n = \operatorname{round}(w'), \quad d = w' - n \\
        p' &= \begin{cases} n' & |d| > u\,|n' - n| \\ n & \text{otherwise} \end{cases}

    for the next parameter P of the rule, computed in float32, the neighbour n' of n towards w', and
    a random number u, a multiple of 2**-16 in [0, 1). The expectation of p' is w': it is between n
    and n', and in bf16 |d| is a multiple of 2**-16 |n' - n|, so that the probability of n' is
    exactly |d| / |n' - n|. Exceptions are :math:`|w'| < 2^{-118}`, where the expectation is within
    2**-142 of w', and w' above the largest finite bf16, which is rounded to nearest. In f16 the
    same holds from 2**-17 on.

    u is a function of the seed, the step and the place of an element: see
    :func:`closedform.language.uniform`. The step is an integer, and so counts beyond the 256 that
    a counter in bfloat16 reaches. There is no state of a generator: a run that resumes at a step
    has the numbers of that step.

    Args:
        rule: The rule. Transforms of it that come later see the widened gradient.
        stored: The dtype of parameters and gradients, ``"bf16"`` or ``"f16"``.
        seed: An integer in [0, 2**32). Parameters of one shape have the same numbers: groups with
            rules of different seeds do not.

    Raises:
        DefinitionError: It is not such a dtype or seed, or the rule stores its parameters in 16
            bits.

    Example:
        >>> from closedform import optimizers
        >>> rule = stochastic_rounding(optimizers.sgd(0.5), seed=1)
        >>> rule.states, rule.definitions["following_1"], rule.stored
        ({}, -grad*lr + param, 'bf16')

    Source: Gupta et al., Deep Learning with Limited Numerical Precision (2015), section 3; Zamirai
    et al. (2020), algorithm 2; torchao's ``bf16_stochastic_round``.
    """
    where = "stochastic_rounding"
    rule_of_16_bits, following = _of_16_bits(rule, stored, where)
    draw = uniform(PARAM, seed)
    rounded_rule, param = _round_at_random(rule_of_16_bits, following, draw, stored)
    return replace(rounded_rule, param=param)


@with_checked_keywords
def sixteen_bit_states(
    rule: UpdateRule,
    dtype: str = "bf16",
    *,
    rounding: str = "nearest",
    states: Sequence[str] | None = None,
    seed: int = 0,
) -> UpdateRule:
    r"""Returns a rule whose states are stored in 16 bits, and computed in the dtype of the step.

    .. math:: s' = \operatorname{round}(S(s, g))

    for the next state S of the rule, which the step itself takes without rounding. With u = 2**-8
    in bf16 and 2**-11 in f16, for finite s' and :math:`|S| \ge 2^{-118}` in bf16, 2**-14 in f16,

    .. math::
        |s' - S| \le u |S| \text{ (nearest)}, \qquad
        |s' - S| < 2 u |S|, \quad E s' = S \text{ (stochastic)}.

    A running mean :math:`S = \beta s + (1 - \beta) x` is off by at most
    :math:`u \max |S| / (1 - \beta)` after any number of steps, rounded to nearest: nothing is left
    of that for :math:`\beta \ge 1 - u`, as of the second moment of Adam, which stops where a change
    is below u / 2 of it. Rounded stochastically its expectation is exact, and the standard
    deviation at most :math:`u \max |S| / \sqrt{1 - \beta^2}`.

    Args:
        rule: The rule. Transforms of it that come later keep these states in 16 bits.
        dtype: The dtype of the states, ``"bf16"`` or ``"f16"``; f16 has no number below 6e-8 but
            0, which is above most second moments.
        rounding: ``"nearest"``, or ``"stochastic"``, as :func:`stochastic_rounding`.
        states: The names of the states; None for those that begin at a number, have a shape and
            are not stored in few bits already: moments, and neither masters nor averages.
        seed: An integer in [0, 2**32); state number i of the rule has the numbers of seed + i + 1.

    Raises:
        DefinitionError: The rule has no such state, one is a number for the whole tensor or model,
            an integer or of 16 bits already, or a choice or seed is unknown.

    Example:
        >>> from closedform import optimizers
        >>> rule = sixteen_bit_states(optimizers.adamw(1e-3), states=["exp_avg"])
        >>> rule.states["exp_avg"].stored, rule.states["exp_avg_sq"].stored
        ('bf16', None)

    Source: Zamirai et al. (2020), section 4; the moments of torch.optim on bfloat16 parameters,
    which torch computes in bfloat16, too.
    """
    where = "sixteen_bit_states"
    check_rule(rule, where)
    choice(dtype, "dtype", where, STORED)
    choice(rounding, "rounding", where, ("nearest", "stochastic"))
    uniform(PARAM, seed)  # checks the seed
    moments = (
        name
        for name, spec in rule.states.items()
        if spec.initial != PARAM and spec.shape != "scalar" and spec.stored is None
    )
    names = tuple(moments if states is None else states)
    if not names:
        raise DefinitionError(f"rule {rule.name!r} has no state to store in 16 bits", where=where)
    check_states(rule, names, where)
    check_unstored(rule, names, where)
    stored_rule = rule
    for index, name in enumerate(rule.states):
        if name not in names:
            continue
        following = rule.states[name].next
        if rounding == "stochastic":
            draw = uniform(state(name), (seed + index + 1) % 2**32)
            stored_rule, exact = with_definition(stored_rule, f"{name}_next", following)
            stored_rule, following = _round_at_random(stored_rule, exact, draw, dtype)
        spec = replace(rule.states[name], next=following, stored=dtype)
        stored_rule = replace(stored_rule, states={**stored_rule.states, name: spec})
    return stored_rule


def _round_at_random(
    rule: UpdateRule, exact: sp.Symbol, draw: sp.Expr, stored: str
) -> tuple[UpdateRule, sp.Expr]:
    """Returns the rule with the definitions of a rounding at random, and the rounded number.

    Args:
        rule: The rule.
        exact: The symbol of the number before.
        draw: Random numbers u of its shape.
        stored: The dtype after.
    """
    bits = rounded(exact, stored)
    # A subnormal number would have its neighbour beyond 0, and a second moment below 0 no root.
    near_zero = sp.Piecewise((0, sp.Abs(bits) < _LEAST_STEP[stored]), (bits, True))
    rule, nearest = with_definition(rule, "nearest", near_zero)
    rule, rest = with_definition(rule, "rest", exact - nearest)
    # Between 0.625 and 1.25 units in the last place, also below a power of 2, where it is half of
    # the unit above: the sum rounds to the next number of the dtype.
    distance = sp.Max(sp.Abs(nearest) * _NEXT[stored], _LEAST_STEP[stored])
    next_number = sp.Piecewise((nearest + distance, rest > 0), (nearest - distance, True))
    rule, neighbour = with_definition(rule, "neighbour", rounded(next_number, stored))
    # Strictly above: u = 0 must not move a number that needs no rounding, and P(u < d) = d exactly
    # for d a multiple of 2**-16.
    is_moved = sp.Abs(rest) > draw * sp.Abs(neighbour - nearest)
    return rule, sp.Piecewise((neighbour, is_moved), (nearest, True))


_NEXT = {"bf16": sp.Rational(5, 2**10), "f16": sp.Rational(5, 2**13)}
"""1.25 times the unit in the last place of 1, halved."""

_LEAST_STEP = {"bf16": sp.Rational(1, 2**126), "f16": sp.Rational(1, 2**24)}
"""The least normal float32, as XLA takes smaller ones as zero; the least float16."""


def _of_16_bits(
    rule: UpdateRule, stored: str, where: str, rest: sp.Expr | None = None
) -> tuple[UpdateRule, sp.Symbol]:
    """Returns a rule that steps the stored parameter, and the symbol of its exact next value.

    Args:
        rule: The rule.
        stored: The dtype of the parameter.
        where: The transform, for errors.
        rest: The state that is to be added to the stored parameter.
    """
    check_rule(rule, where)
    choice(stored, "stored", where, STORED)
    if rule.stored is not None:
        raise DefinitionError(
            f"rule {rule.name!r} stores its parameters in {rule.stored} already",
            where=where,
            hint="use one of master_weights, kahan and stochastic_rounding",
        )
    if rest is not None:
        rule = with_states(rule, where, **{str(rest).removeprefix("state."): State(rest)})
        name, point = unused_name(rule, "widened"), rule.evaluation
        rule = substitute_symbols(rule, {PARAM: local(name)}, {name: PARAM + rest})
        # The point of evaluation is that of the parameter and the states after a step.
        point = None if point is None else point.xreplace({PARAM: PARAM + rest})
        rule = replace(rule, evaluation=point)
    rule, following = with_following_param(rule)
    return replace(rule, stored=stored), following


TESTS = ("elements", "norm")


@with_checked_keywords
def skip_nonfinite(rule: UpdateRule, *, test: str = "elements") -> UpdateRule:
    r"""Returns a rule that leaves out the steps whose gradients are not all finite.

    In such a step parameters, states, states of the model and the clock do not change, so
    schedules and bias corrections do not count it.

    State of the model: ``skipped_steps``, a counter of the steps left out.

    Args:
        rule: The rule.
        test: ``"elements"``: every element of every gradient is finite (torch, optax). ``"norm"``:
            the sum of the squares of each gradient is, in the dtype of the tensor; in float32 this
            leaves out finite gradients above 1.8e19, too (cerebras).

    Raises:
        DefinitionError: The test is neither of the two, or the rule has the state already.

    Example:
        >>> from closedform import optimizers
        >>> skip_nonfinite(optimizers.sgd(0.5)).advances
        Eq(GlobalSum(NonFinite(grad)), 0)

    Source: ``GradScaler.step`` of torch 2.13 and of cerebras.pytorch 2.10, ``apply_if_finite`` of
    optax 0.2.8 (without its limit of errors in a row).
    """
    check_rule(rule, "skip_nonfinite")
    is_finite = finite_gradients(test, "skip_nonfinite")
    skip_count = counter("skipped_steps")
    count = Shared(skip_count + sp.Piecewise((0, is_finite), (1, True)), 0, True)
    return unless(rule, is_finite, "skip_nonfinite", skipped_steps=count)


@with_checked_keywords
def loss_scaling(rule: UpdateRule, scale: Number | Schedule) -> UpdateRule:
    """Returns a rule for gradients of a loss that was multiplied by a given number.

    Args:
        rule: The rule.
        scale: The factor of the loss, above 0.

    Raises:
        DefinitionError: It is not such a number.

    Source: a static ``GradScaler`` of cerebras.pytorch 2.10: no test of finiteness.
    """
    check_rule(rule, "loss_scaling")
    factor = number_or_schedule(scale, "scale", "loss_scaling", 0)
    if factor == 0:
        raise DefinitionError("scale must be above 0, got 0", where="loss_scaling")
    return with_gradient(rule, GRAD / factor)


@with_checked_keywords
def dynamic_loss_scaling(
    rule: UpdateRule,
    initial: Number = 65536,
    *,
    growth: Number | Schedule = 2,
    backoff: Number | Schedule = 0.5,
    interval: int = 2000,
) -> UpdateRule:
    r"""Returns a rule for gradients of a scaled loss, with the scale as a state.

    .. math::
        g' &= g / L \\
        L' &= \begin{cases} L b & \text{a gradient is not finite} \\
        L a & n + 1 = S \\ L & \text{otherwise} \end{cases}

    n' is n + 1, and 0 where L changes. A step with gradients that are not finite is left out, as by
    :func:`skip_nonfinite`. The loss of the next step is to be multiplied by L'.

    States of the model: ``loss_scale`` L, initially ``initial``, ``growth_tracker`` n, a counter,
    and that of :func:`skip_nonfinite`.

    Args:
        rule: The rule.
        initial: The first scale, > 0.
        growth: The factor a >= 1.
        backoff: The factor b in [0, 1].
        interval: The number S >= 1 of good steps in a row after which L grows.

    Raises:
        DefinitionError: A number out of its range, or the rule has the states already.

    Source: Micikevicius et al. (2018); ``GradScaler`` of torch 2.13.
    """
    where = "dynamic_loss_scaling"
    check_rule(rule, where)
    first = bounded_number(initial, "initial", where, 0)
    up, down = (
        number_or_schedule(growth, "growth", where, 1),
        number_or_schedule(backoff, "backoff", where, 0, 1),
    )
    steps = step_count(interval, "interval", where)
    scale, tracker = shared("loss_scale"), counter("growth_tracker")
    skipping = skip_nonfinite(rule)
    is_finite = finite_gradients("elements", where)
    is_due = sp.Eq(tracker, steps - 1)
    next_scale = sp.Piecewise((scale * up, is_due), (scale, True))
    following = sp.Piecewise((0, is_due), (tracker + 1, True))
    scaled_rule = with_shared(
        skipping,
        where,
        loss_scale=Shared(sp.Piecewise((next_scale, is_finite), (scale * down, True)), first),
        growth_tracker=Shared(sp.Piecewise((following, is_finite), (0, True)), 0, True),
    )
    return with_gradient(scaled_rule, GRAD / scale)


def finite_gradients(test: str, where: str) -> sp.Basic:
    """Returns the condition that all gradients of the model are finite.

    Args:
        test: ``elements`` for each element, ``norm`` for the norm of all gradients.
        where: The transform, for errors.

    Raises:
        DefinitionError: The test is unknown.
    """
    choice(test, "test", where, TESTS)
    # An equation: SymPy negates it to a true opposite. That of x <= y is x > y for it, which does
    # not hold where x is not a number, either.
    total = non_finite(global_sum(GRAD**2)) if test == "norm" else global_sum(non_finite(GRAD))
    return sp.Eq(total, 0)
