"""The dynamic loss scale of cerebras.pytorch, which counts overflows."""

from __future__ import annotations

import sympy as sp

from closedform.language import GRAD, Shared, UpdateRule, counter, shared
from closedform.language.aliases import Number
from closedform.language.arguments import bounded_number, step_count


def dynamic_loss_scaling(
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

    one after the other. A step is left out, as by ``skip_nonfinite``, where the norm of the
    gradients, divided by L, is not finite in float32.

    States of the model: ``loss_scale`` L, the counters ``steps_since_rescale`` n,
    ``overflows_since_rescale`` o, and that of
    ``skip_nonfinite``.

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
    # Imported only here: all frameworks are asked whether a config is theirs, in 19 ms less.
    from closedform.transforms.precision import finite_gradients, skip_nonfinite
    from closedform.transforms.substitution import check_rule, with_gradient, with_shared

    where = "cerebras > dynamic_loss_scaling"
    check_rule(rule, where)
    low = bounded_number(min_loss_scale, "min_loss_scale", where, 0)
    high = bounded_number(max_loss_scale, "max_loss_scale", where, 0)
    first = high if initial is None else bounded_number(initial, "initial", where, 0)
    tolerated = bounded_number(overflow_tolerance, "overflow_tolerance", where, 0)
    limit = step_count(steps_per_increase, "steps_per_increase", where)
    is_finite = finite_gradients("norm", where)
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
