"""StableAdamW: AdamW whose step shrinks where the second moment lags behind the gradient."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, local, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters, two_betas
from closedform.optimizers.formulas import ascent_or_descent, blend, decoupled, rule_of, weighted
from closedform.optimizers.tensor_formulas import rms


def stable_adamw(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns StableAdamW: AdamW with the update clipping of Adafactor.

    .. math::
        m' &= m + (1 - \hat\beta_1)(g - m), \quad
        v' = \hat\beta_2 v + (1 - \hat\beta_2) g^2, \quad
        \hat\beta_i = \frac{\beta_i - \beta_i^{t+1}}{1 - \beta_i^{t+1}} \\
        r &= \sqrt{\operatorname{mean}\left(\frac{g^2}{\max(v', \epsilon^2)}\right)}, \quad
        \rho = \frac{\eta}{\max(1, r)} \\
        p' &= p - \rho \left(\frac{m'}{\sqrt{v'} + \epsilon} + \lambda p\right)

    The decay rates that depend on the step are the bias correction: the moments are means of what
    there was, at every step. The mean in r is over the whole parameter tensor.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor with an element whose gradients
            were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(stable_adamw().states), list(stable_adamw().definitions)
        (['exp_avg', 'exp_avg_sq'], ['exp_avg', 'exp_avg_sq', 'lag', 'rate'])

    Source: Wortsman et al. (2023), algorithm 2.
    """
    values = hyperparameters(
        "stable_adamw",
        lr=lr,
        **two_betas(betas, "stable_adamw", "(0.9, 0.99)"),
        eps=eps,
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "stable_adamw")
    eps_symbol, mean, square = hyper("eps"), local("exp_avg"), local("exp_avg_sq")
    definitions = {
        "exp_avg": blend(state("exp_avg"), gradient, _corrected("beta1")),
        "exp_avg_sq": weighted(state("exp_avg_sq"), gradient**2, _corrected("beta2")),
    }
    # A quotient is squared, not its parts: they overflow where it does not.
    definitions["lag"] = gradient / sp.sqrt(sp.Max(square, eps_symbol**2))
    definitions["rate"] = hyper("lr") / sp.Max(1, rms(local("lag")))
    param = PARAM - local("rate") * mean / (sp.sqrt(square) + eps_symbol)
    param = param - decoupled(values["weight_decay"], rate=local("rate"))
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    return rule_of("stable_adamw", param, states, values, definitions=definitions)


def _corrected(beta: str) -> sp.Expr:
    """The decay rate with which a running mean is one of all gradients so far: 0 at first."""
    power = hyper(beta) ** (t + 1)
    return 1 - (1 - hyper(beta)) / (1 - power)
