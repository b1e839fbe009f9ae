"""Parameters of 16 bits, loss scales, and steps with gradients that are not finite."""

from __future__ import annotations

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
)
from closedform.language.aliases import Number
from closedform.optimizers.arguments import choice
from closedform.transforms.substitution import (
    bounded_number,
    check_rule,
    number_or_schedule,
    step_count,
    substitute_symbols,
    unless,
    unused_name,
    with_following_param,
    with_gradient,
    with_shared,
    with_states,
)

STORED = ("bf16", "f16")


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
    states = {**substituted_rule.states, "master": State(substituted_rule.param, PARAM)}
    return replace(substituted_rule, states=states, stored=stored)


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
