"""Theorems about update rules: what is equal, what is bounded, what stays as it begins."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform import claims, optimizers
from closedform.language import (
    GRAD,
    PARAM,
    Schedule,
    hyper,
    state,
    t,
)
from closedform.optimizers.formulas import rectification
from closedform.verify.claims.core import Claim
from closedform.verify.claims.step import step_of
from closedform.verify.terms.build import ZERO, both, equal, less, less_equal, substitute
from closedform.verify.terms.sympy_io import term
from tools.theorem import (
    CEREBRAS,
    REFUTED,
    TORCH_RULES,
    UNKNOWN,
    Section,
    Theorem,
    about,
    at_first_step,
    of_system,
)

lr, beta1, beta2, eps, weight_decay, momentum = (
    hyper(name) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum")
)

BETAS = (beta1 > 0, beta1 < 1, beta2 > 0, beta2 < 1)
ADAM = ("lr", "beta1", "beta2", "eps")
SQUARE = state("exp_avg_sq") >= 0
USUAL = (*BETAS, eps > 0)


def _epsilon(of_torch: Any, where: Any = True) -> Claim:
    return claims.same_rule(
        of_system("cerebras", "Adam"),
        of_system("torch", "Adam"),
        substitution={"eps": of_torch},
        open=ADAM,
        invariants=[SQUARE],
        where=where,
        assume=USUAL,
    )


def _adamw_without_decay() -> Claim:
    return claims.same_rule(
        optimizers.adam(),
        optimizers.adamw(),
        substitution={"weight_decay": 0},
        open=ADAM,
        invariants=[SQUARE],
        assume=USUAL,
    )


def _order_of_decay() -> Claim:
    rule = optimizers.adamw()
    plain = step_of(optimizers.adam(), ADAM).param
    shrunk = plain.xreplace({PARAM: PARAM * (1 - lr * weight_decay)})
    decayed = step_of(rule, (*ADAM, "weight_decay")).param
    return about(
        rule, "both orders are the same", equal, decayed, shrunk, given=(SQUARE,), assume=USUAL
    )


MOMENTS = {"exp_avg": GRAD * (1 - beta1**t), "exp_avg_sq": GRAD**2 * (1 - beta2**t)}


def _averages() -> Claim:
    rule = optimizers.adam()
    return claims.after_steps(rule, MOMENTS, open=("beta1", "beta2"), assume=BETAS)


def _constant_gradient() -> Claim:
    """The averages are put in as terms, so that SymPy cancels nothing."""
    rule = optimizers.adam()
    places = {term(state(name)): term(expr) for name, expr in MOMENTS.items()}
    change = substitute(term(step_of(rule, ADAM).param - PARAM), places)
    wanted = term(-lr * GRAD / (sp.Abs(GRAD) + eps))
    return about(rule, "the step for a constant gradient", equal, change, wanted, assume=USUAL)


def _amsgrad() -> Claim:
    rule = optimizers.adam(amsgrad=True)
    largest = "max_exp_avg_sq"
    following = step_of(rule, ADAM).states[largest]
    return about(
        rule, "the largest second moment never falls", less_equal, state(largest), following
    )


def _lion(bound: Any) -> Claim:
    return claims.bounded_update(
        optimizers.lion(weight_decay=0.1),
        bound,
        open=("lr", "beta1", "beta2", "weight_decay"),
        assume=(lr >= 0, weight_decay >= 0),
    )


RADAM_LENGTH, _ = rectification(beta2, 5)
RADAM_LIMIT = 2 / (1 - beta2) - 1
RADAM_RADICAND = (
    (RADAM_LENGTH - 4)
    * (RADAM_LENGTH - 2)
    * RADAM_LIMIT
    / ((RADAM_LIMIT - 4) * (RADAM_LIMIT - 2) * RADAM_LENGTH)
)


def _radicand(*where: sp.Basic, above: Any = 0) -> Claim:
    return about(
        optimizers.radam(),
        "the radicand is above 0",
        less,
        sp.Integer(0),
        RADAM_RADICAND,
        given=where,
        assume=(beta2 > above, beta2 < 1),
    )


SMALLEST, LARGEST = hyper("smallest_step"), hyper("largest_step")
LIMITS = ("eta_minus", "eta_plus", "smallest_step", "largest_step")


def _rprop_size() -> Claim:
    rule = optimizers.rprop()
    size = step_of(rule, LIMITS).states["step_size"]

    def within(low: Any, high: Any) -> Any:
        return both(less_equal(term(SMALLEST), high), less_equal(high, low))

    text = "the size is within its limits"
    return about(rule, text, within, LARGEST, size, assume=(SMALLEST <= LARGEST,))


def _rprop_step() -> Claim:
    ordered = (SMALLEST >= 0, SMALLEST <= LARGEST)
    return claims.bounded_update(optimizers.rprop(), LARGEST, open=LIMITS, assume=ordered)


def _sgd(where: Any = True, dampened: float = 0.5) -> Claim:
    kwargs = {"lr": 0.1, "momentum": 0.9, "dampening": dampened}
    return claims.same_rule(
        of_system("torch", "SGD", kwargs),
        of_system("cerebras", "SGD", kwargs),
        open=("lr", "momentum", "dampening") if dampened else ("lr", "momentum"),
        where=where,
    )


def _sgd_at_first_step() -> Claim:
    return _sgd(at_first_step(optimizers.sgd(momentum=0.9)))


def _sgd_without_momentum() -> Claim:
    rule = optimizers.sgd(momentum=0.9, nesterov=True)
    stepped = term(step_of(rule, ("lr", "momentum")).param)
    at_zero = substitute(stepped, {term(momentum): ZERO})
    plain = step_of(optimizers.sgd(), ("lr",)).param
    return about(rule, "the step is that of plain SGD", equal, at_zero, plain)


THEOREMS = (
    Theorem(
        Section.RULES,
        "AdamW without decay is Adam",
        r"With $\lambda = 0$ the two make the same steps, for all $\eta, \beta_1, \beta_2$ and "
        r"$\epsilon > 0$.",
        _adamw_without_decay,
        source="Kingma and Ba (2015); Loshchilov and Hutter (2019)",
    ),
    Theorem(
        Section.RULES,
        "AdamW in the order of torch",
        r"To shrink the parameter by $1 - \eta\lambda$ first is to take $\eta\lambda p$ from it "
        r"with the step.",
        _order_of_decay,
        source=f"`AdamW` of {TORCH_RULES} and of {CEREBRAS}",
    ),
    Theorem(
        Section.RULES,
        "The law of epsilon",
        r"Adam of cerebras with $\epsilon$ is Adam of torch with $\epsilon / "
        r"\sqrt{1 - \beta_2^{t+1}}$, at every step $t$ from 0: 31.6 times as much at the first "
        r"one for $\beta_2 = 0.999$.",
        lambda: _epsilon(eps / sp.sqrt(1 - beta2 ** (t + 1))),
        source=f"`Adam` of {CEREBRAS} and of {TORCH_RULES}",
    ),
    Theorem(
        Section.RULES,
        "One epsilon is not the other",
        r"The first step of Adam of cerebras with $\epsilon$ is that of torch with the same "
        r"$\epsilon$.",
        lambda: _epsilon(eps, at_first_step(optimizers.adam())),
        REFUTED,
        source=f"`Adam` of {CEREBRAS} and of {TORCH_RULES}",
    ),
    Theorem(
        Section.RULES,
        "The averages of a constant gradient",
        r"After $t$ steps with one gradient $g$, $m = g (1 - \beta_1^t)$ and $v = g^2 "
        r"(1 - \beta_2^t)$: what the bias corrections divide by.",
        _averages,
        source="Kingma and Ba (2015), section 3",
    ),
    Theorem(
        Section.RULES,
        "Bias correction undoes the averages",
        r"With one gradient $g$ every step of Adam is $-\eta g / (|g| + \epsilon)$, the first "
        r"as the thousandth.",
        _constant_gradient,
        # Open: that the root of g^2 over a root is |g| takes more work than the search may do.
        UNKNOWN,
        source="Kingma and Ba (2015), section 3",
    ),
    Theorem(
        Section.RULES,
        "The powers of beta",
        r"$\beta^{t+1}$ is the running product that begins at $\beta$ and is multiplied by "
        r"$\beta$ each step.",
        lambda: claims.recurrence(
            Schedule(beta1 ** (t + 1), name="beta1_power"),
            beta1,
            lambda previous, _: previous * beta1,
        ),
        source=f"`beta1_power` and `beta2_power` of `Adam` of {CEREBRAS}",
    ),
    Theorem(
        Section.RULES,
        "The second moment stays at or above 0",
        r"$v \ge 0$ before every step of Adam, for all $0 < \beta_2 < 1$.",
        lambda: claims.invariant(optimizers.adam(), SQUARE, open=ADAM, assume=BETAS),
        source="what makes its square root real",
    ),
    Theorem(
        Section.RULES,
        "AMSGrad's second moment never falls",
        r"$\max(\hat v, v') \ge \hat v$, for all hyperparameters.",
        _amsgrad,
        source="Reddi et al. (2018)",
    ),
    Theorem(
        Section.RULES,
        "Lion's step is bounded",
        r"$|p' - p| \le \eta (1 + \lambda |p|)$, whatever the gradient.",
        lambda: _lion(lr * (1 + weight_decay * sp.Abs(PARAM))),
        source="Chen et al. (2023), algorithm 2",
    ),
    Theorem(
        Section.RULES,
        "Lion's step is not bounded by its rate",
        r"$|p' - p| \le \eta$: the decay comes on top.",
        lambda: _lion(lr),
        REFUTED,
        source="Chen et al. (2023), algorithm 2",
    ),
    Theorem(
        Section.RULES,
        "RAdam's radicand where it is taken",
        r"$\frac{(\rho - 4)(\rho - 2)\rho_\infty}{(\rho_\infty - 4)(\rho_\infty - 2)\rho} > 0$ "
        r"where $\rho > 5$, at every step and for all $0 < \beta_2 < 1$.",
        lambda: _radicand(RADAM_LENGTH > 5),
        source="Liu et al. (2020), algorithm 2",
    ),
    Theorem(
        Section.RULES,
        "RAdam's radicand where it is not taken",
        r"The same at every step, for $\beta_2 > \frac{9}{10}$. A graph computes both branches, "
        r"and would take the root of a negative number; the library holds $\rho$ at 5 there.",
        lambda: _radicand(above=sp.Rational(9, 10)),
        REFUTED,
        source=f"`RAdam` of {CEREBRAS}",
    ),
    Theorem(
        Section.RULES,
        "Rprop's size is within its limits",
        r"$z_{min} \le z' \le z_{max}$ after every step, whatever it was.",
        _rprop_size,
        source="Riedmiller and Braun (1993)",
    ),
    Theorem(
        Section.RULES,
        "Rprop's step is bounded",
        r"$|p' - p| \le z_{max}$, whatever the gradient.",
        _rprop_step,
        source="Riedmiller and Braun (1993)",
    ),
    Theorem(
        Section.RULES,
        "Momentum 0 has no effect",
        r"SGD with Nesterov's momentum and $\mu = 0$ is plain SGD.",
        _sgd_without_momentum,
        source=f"`SGD` of {TORCH_RULES}",
    ),
    Theorem(
        Section.RULES,
        "SGD with dampening in two systems",
        r"`SGD` of torch and of cerebras make the same first step, for all $\eta, \mu, \tau$.",
        _sgd_at_first_step,
        REFUTED,
        source=f"`SGD` of {TORCH_RULES} takes the first gradient whole, {CEREBRAS} dampens it",
    ),
    Theorem(
        Section.RULES,
        "SGD differs at its first step alone",
        r"From one state the two make the same step wherever $t > 0$.",
        lambda: _sgd(t > 0),
        source=f"`SGD` of {TORCH_RULES} and of {CEREBRAS}",
    ),
    Theorem(
        Section.RULES,
        "SGD without dampening in two systems",
        r"With $\tau = 0$ they make the same steps.",
        lambda: _sgd(dampened=0),
        source=f"`SGD` of {TORCH_RULES} and of {CEREBRAS}",
    ),
)
