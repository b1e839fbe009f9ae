"""Several momenta of one gradient: AggMo and PID."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import PARAM, State, UpdateRule, hyper, local, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import hyperparameter, hyperparameters
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, rule_of, with_penalty


@rule_function
def aggmo(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.0, 0.9, 0.99),
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns aggregated momentum: the mean of momenta with several damping coefficients.

    .. math::
        b_i' &= \beta_i b_i + g', \quad g' = \pm g + \lambda p \\
        p' &= p - \frac{\eta}{K} \sum_{i = 1}^K b_i'

    States, each of the parameter's shape and initially 0: ``momentum_buffer_1`` b₁ and so on.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The K damping coefficients β, numbers in [0, 1), at least one.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or no betas.

    Example:
        >>> list(aggmo().states)
        ['momentum_buffer_1', 'momentum_buffer_2', 'momentum_buffer_3']

    Source: Lucas et al., Aggregated momentum: stability through passive damping (2019), eq. 3;
    ``AggMo`` of pytorch_optimizer 4.1.
    """
    where = "aggmo"
    if not isinstance(betas, Sequence) or isinstance(betas, str) or not betas:
        raise DefinitionError(
            f"betas must be at least one number, got {betas!r}",
            where=where,
            hint="try (0, 0.9, 0.99)",
        )
    values = hyperparameters(where, lr=lr, weight_decay=weight_decay)
    gradient = with_penalty(ascent_or_descent(maximize, where), values["weight_decay"])
    states, total = {}, sp.Integer(0)
    for index, beta in enumerate(betas):
        name = f"beta{index + 1}"
        values[name] = hyperparameter(beta, f"betas[{index}]", where, below=1)
        buffer = f"momentum_buffer_{index + 1}"
        states[buffer] = State(hyper(name) * state(buffer) + local("gradient"))
        total = total + states[buffer].next
    param = PARAM - hyper("lr") * total / len(betas)
    return rule_of(where, param, states, values, definitions={"gradient": gradient})


@rule_function
def pid(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    dampening: Hyper = 0,
    derivative: Hyper = 10,
    integral: Hyper = 5,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns a PID controller: the gradient, its momentum and the momentum of its change.

    .. math::
        i' &= \mu i + (1 - \tau) g', \quad g' = \pm g + \lambda p \\
        d' &= \begin{cases} 0 & t = 0 \\ \mu d + (1 - \mu)(g' - h) & t > 0 \end{cases},
        \quad h' = g' \\
        p' &= p - \eta\, (g' + k_i i' + k_d d')

    States, each of the parameter's shape and initially 0: ``grad_buffer`` h, ``i_buffer`` i,
    ``d_buffer`` d.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ, a number in [0, 1).
        dampening: The part τ of the gradient that does not enter i.
        derivative: The gain k_d >= 0 of the derivative.
        integral: The gain k_i >= 0 of the integral.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(pid().states)
        ['grad_buffer', 'i_buffer', 'd_buffer']

    Source: An et al., A PID controller approach for stochastic optimization of deep networks
    (2018), section 3.4; ``PID`` of pytorch_optimizer 4.1, which is SGD where the momentum is 0.
    """
    where = "pid"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        dampening=hyperparameter(dampening, "dampening", where, at_least=None),
        derivative=derivative,
        integral=integral,
        weight_decay=weight_decay,
    )
    gradient = with_penalty(ascent_or_descent(maximize, where), values["weight_decay"])
    now, mu = local("gradient"), hyper("momentum")
    change = sp.Piecewise((0, sp.Eq(t, 0)), (now - state("grad_buffer"), True))
    states = {
        "grad_buffer": State(now),
        "i_buffer": State(mu * state("i_buffer") + (1 - hyper("dampening")) * now),
        "d_buffer": State(mu * state("d_buffer") + (1 - mu) * change),
    }
    control = now + hyper("integral") * states["i_buffer"].next
    control = control + hyper("derivative") * states["d_buffer"].next
    param = PARAM - hyper("lr") * control
    return rule_of(where, param, states, values, definitions={"gradient": gradient})
