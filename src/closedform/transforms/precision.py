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
    non_finite,
    shared,
    state,
)
from closedform.language.aliases import Number
from closedform.optimizers.arguments import choice
from closedform.transforms.substitution import (
    bounded,
    check_rule,
    counted,
    substituted,
    unless,
    varied,
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
    named = with_states(rule, "master_weights", master=State(master, PARAM))
    moved = substituted(named, {PARAM: master})
    states = {**moved.states, "master": State(moved.param, PARAM)}
    return replace(moved, states=states, stored=stored)


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
    is_finite = _finite(test, "skip_nonfinite")
    skipped = counter("skipped_steps")
    count = Shared(skipped + sp.Piecewise((0, is_finite), (1, True)), 0, True)
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
    factor = varied(scale, "scale", "loss_scaling", 0)
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
    first = bounded(initial, "initial", where, 0)
    up, down = varied(growth, "growth", where, 1), varied(backoff, "backoff", where, 0, 1)
    steps = counted(interval, "interval", where)
    scale, tracker = shared("loss_scale"), counter("growth_tracker")
    skipping = skip_nonfinite(rule)
    is_finite = _finite("elements", where)
    is_due = sp.Eq(tracker, steps - 1)
    grown = sp.Piecewise((scale * up, is_due), (scale, True))
    following = sp.Piecewise((0, is_due), (tracker + 1, True))
    scaled = with_shared(
        skipping,
        where,
        loss_scale=Shared(sp.Piecewise((grown, is_finite), (scale * down, True)), first),
        growth_tracker=Shared(sp.Piecewise((following, is_finite), (0, True)), 0, True),
    )
    return with_gradient(scaled, GRAD / scale)


def cerebras_loss_scaling(
    rule: UpdateRule,
    initial: Number | None = None,
    *,
    steps_per_increase: int = 2000,
    min_loss_scale: Number = 2.0**-14,
    max_loss_scale: Number = 2.0**15,
    overflow_tolerance: Number = 0,
) -> UpdateRule:
    r"""Returns a rule with the dynamic loss scale of cerebras.

    .. math::
        n &\leftarrow n + 1, \quad o \leftarrow o + 1 \text{ where a step is left out} \\
        L &\leftarrow L / 2,\ n, o \leftarrow 0 \quad \text{where } o / n > \tau \\
        L &\leftarrow 2 L,\ n, o \leftarrow 0 \quad \text{where } n > S \\
        L &\leftarrow \max(L_{min}, \min(L_{max}, L))

    one after the other. A step is left out, as by :func:`skip_nonfinite`, where the norm of the
    gradients, divided by L, is not finite in float32.

    States of the model: ``loss_scale`` L, the counters ``steps_since_rescale`` n,
    ``overflows_since_rescale`` o, and that of :func:`skip_nonfinite`.

    Args:
        rule: The rule.
        initial: The first scale; None for the largest. A larger one is cut.
        steps_per_increase: The number S >= 1 of steps without rescaling after which L grows, with
            the next one.
        min_loss_scale: The least scale, > 0.
        max_loss_scale: The largest scale; 2**31 for cbfloat16.
        overflow_tolerance: The part τ of the steps since the last change that may overflow.

    Raises:
        DefinitionError: A number out of its range, or the rule has the states already.

    Source: ``GradScaler(loss_scale="dynamic")`` of cerebras.pytorch 2.10.
    """
    where = "cerebras_loss_scaling"
    check_rule(rule, where)
    low = bounded(min_loss_scale, "min_loss_scale", where, 0)
    high = bounded(max_loss_scale, "max_loss_scale", where, 0)
    first = high if initial is None else bounded(initial, "initial", where, 0)
    tolerated = bounded(overflow_tolerance, "overflow_tolerance", where, 0)
    limit = counted(steps_per_increase, "steps_per_increase", where)
    is_finite = _finite("norm", where)
    scale = shared("loss_scale")
    steps = counter("steps_since_rescale") + 1
    overflows = counter("overflows_since_rescale") + sp.Piecewise((0, is_finite), (1, True))
    is_less = tolerated * steps < overflows
    # The steps are counted anew after a decrease, and then do not suffice for an increase.
    is_more = sp.And(sp.Not(is_less), steps > limit)
    changed = sp.Piecewise((scale / 2, is_less), (scale * 2, is_more), (scale, True))
    is_changed = sp.Or(is_less, is_more)

    def counted_on(count: sp.Expr) -> Shared:
        return Shared(sp.Piecewise((0, is_changed), (count, True)), 0, True)

    scaled = with_shared(
        skip_nonfinite(rule, test="norm"),
        where,
        loss_scale=Shared(sp.Max(low, sp.Min(high, changed)), sp.Min(high, first)),
        steps_since_rescale=counted_on(steps),
        overflows_since_rescale=counted_on(overflows),
    )
    return with_gradient(scaled, GRAD / scale)


def _finite(test: str, where: str) -> sp.Basic:
    """The condition that all gradients of the model are finite."""
    choice(test, "test", where, TESTS)
    # An equation: SymPy negates it to a true opposite. That of x <= y is x > y for it, which does
    # not hold where x is not a number, either.
    total = non_finite(global_sum(GRAD**2)) if test == "norm" else global_sum(non_finite(GRAD))
    return sp.Eq(total, 0)
