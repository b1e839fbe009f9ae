"""Fused kernels of torch, for the rules that are proved equal to their formulas.

Each kernel has the formula that it computes, as expressions. A rule may run on the kernel if the
prover shows that its expressions are equal to these at every step. The kernel then rounds as torch
does: it computes bias corrections in float64 like this package, but its sums and products in
another order, so that results differ from the other engines by roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import sympy as sp
import torch
from torch import Tensor

from closedform.errors import ArgumentError
from closedform.language import GRAD, PARAM, Schedule, UpdateRule, hyper, state, t
from closedform.language.model import GlobalSum
from closedform.language.symbols import local
from closedform.lowering.analysis.domain import MAX_STEP
from closedform.torch.engine.flat import Hypers, StateColumn, is_flat, truths
from closedform.verify.identity.equality import StepRange, are_equal
from closedform.verify.terms.sympy_io import term

Formula = Mapping[str, sp.Basic]
"""The next value of the parameter ("param") and of each state."""

KernelCall = Callable[["KernelArguments"], None]
"""Runs a kernel."""

KERNEL_DTYPES = (torch.float32, torch.float64)
"""The dtypes whose states have the dtype of their parameter, as kernels need it."""


class KernelArguments(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        params: The parameters.
        grads: Their gradients.
        states: Each state, for each parameter.
        steps: The number of steps of each parameter after this one, as float32.
        numbers: The hyperparameters; those that the rule does not have are 0.
        is_first: Whether this is the first step of these parameters.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: Mapping[str, list[Tensor]]
    steps: list[Tensor]
    numbers: Mapping[str, float]
    is_first: bool


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel of torch with some switches.

    Attributes:
        name: The function of torch.
        formula: What it computes.
        run: Calls it.
        has_first: Whether its first step is another one.
        reads_steps: Whether it reads the number of steps.
    """

    name: str
    formula: Formula
    run: KernelCall
    has_first: bool = False
    reads_steps: bool = True


def _adam(rule: UpdateRule, *, is_decoupled: bool, maximize: bool) -> FusedKernel:
    """``_fused_adam_`` or ``_fused_adamw_``."""
    lr, beta1, beta2, eps, decay = _hypers(rule, "lr", "beta1", "beta2", "eps", "weight_decay")
    mean, square, largest = map(state, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
    amsgrad = largest.name.removeprefix("state.") in rule.states
    gradient = -GRAD if maximize else GRAD
    start = PARAM * (1 - lr * decay) if is_decoupled else PARAM
    gradient = gradient if is_decoupled else gradient + decay * PARAM
    # A lerp in the kernel; the prover finds it equal to beta1·mean + (1 - beta1)·gradient.
    moment = mean + (1 - beta1) * (gradient - mean)
    second = beta2 * square + (1 - beta2) * gradient**2
    top = sp.Max(largest, second) if amsgrad else second
    # amsgrad has the largest of the uncorrected moments, with the correction of this step.
    denominator = sp.sqrt(top) / sp.sqrt(1 - beta2 ** (t + 1)) + eps
    formula = {
        "param": start - lr / (1 - beta1 ** (t + 1)) * moment / denominator,
        "exp_avg": moment,
        "exp_avg_sq": second,
        **({"max_exp_avg_sq": top} if amsgrad else {}),
    }
    # The formula of ATen/native/cpu/FusedAdamKernel.cpp.
    function = torch._fused_adamw_ if is_decoupled else torch._fused_adam_

    def run(arguments: KernelArguments) -> None:
        function(
            arguments.params,
            arguments.grads,
            arguments.states["exp_avg"],
            arguments.states["exp_avg_sq"],
            arguments.states.get("max_exp_avg_sq", []),
            arguments.steps,
            lr=arguments.numbers["lr"],
            beta1=arguments.numbers["beta1"],
            beta2=arguments.numbers["beta2"],
            weight_decay=arguments.numbers["weight_decay"],
            eps=arguments.numbers["eps"],
            amsgrad=amsgrad,
            maximize=maximize,
        )

    return FusedKernel(function.__name__, formula, run)


def _sgd(rule: UpdateRule, *, nesterov: bool, maximize: bool) -> FusedKernel:
    """``_fused_sgd_``, whose buffer is the gradient at the first step."""
    lr, momentum, dampening, decay = _hypers(rule, "lr", "momentum", "dampening", "weight_decay")
    gradient = (-GRAD if maximize else GRAD) + decay * PARAM
    # ATen/native/cpu/FusedSGDKernel.cpp sets the buffer to the gradient at the first step. From a
    # buffer of 0, the recursion does the same if there is no dampening.
    has_buffer, has_first = "momentum_buffer" in rule.states, dampening != 0
    buffer = momentum * state("momentum_buffer") + (1 - dampening) * gradient
    if has_first:
        buffer = sp.Piecewise((gradient, sp.Eq(t, 0)), (buffer, True))
    formula: dict[str, sp.Basic] = {"param": PARAM - lr * gradient}
    if has_buffer:
        direction = gradient + momentum * buffer if nesterov else buffer
        formula = {"param": PARAM - lr * direction, "momentum_buffer": buffer}

    def run(arguments: KernelArguments) -> None:
        torch._fused_sgd_(
            arguments.params,
            arguments.grads,
            arguments.states.get("momentum_buffer", []),
            weight_decay=arguments.numbers["weight_decay"],
            momentum=arguments.numbers["momentum"],
            lr=arguments.numbers["lr"],
            dampening=arguments.numbers["dampening"],
            nesterov=nesterov,
            maximize=maximize,
            is_first_step=arguments.is_first and has_first,
        )

    return FusedKernel("_fused_sgd_", formula, run, has_first, reads_steps=False)


def _adagrad(rule: UpdateRule, *, maximize: bool) -> FusedKernel:
    """``_fused_adagrad_``."""
    lr, decay, penalty, eps = _hypers(rule, "lr", "lr_decay", "weight_decay", "eps")
    gradient = (-GRAD if maximize else GRAD) + penalty * PARAM
    total = state("sum") + gradient**2
    formula = {
        "param": PARAM - lr / (1 + t * decay) * gradient / (sp.sqrt(total) + eps),
        "sum": total,
    }

    def run(arguments: KernelArguments) -> None:
        torch._fused_adagrad_(
            arguments.params,
            arguments.grads,
            arguments.states["sum"],
            arguments.steps,
            lr=arguments.numbers["lr"],
            lr_decay=arguments.numbers["lr_decay"],
            weight_decay=arguments.numbers["weight_decay"],
            eps=arguments.numbers["eps"],
            maximize=maximize,
        )

    return FusedKernel("_fused_adagrad_", formula, run)


def _kernels(rule: UpdateRule) -> Iterator[FusedKernel]:
    """The kernels with the states of a rule, with all switches."""
    names = set(rule.states)
    for maximize in (False, True):
        if names in ({"exp_avg", "exp_avg_sq"}, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}):
            for is_decoupled in (True, False):
                yield _adam(rule, is_decoupled=is_decoupled, maximize=maximize)
        if names <= {"momentum_buffer"}:
            for nesterov in (False, True):
                yield _sgd(rule, nesterov=nesterov, maximize=maximize)
        if names == {"sum"}:
            yield _adagrad(rule, maximize=maximize)


@lru_cache(128)
def fused_kernel(rule: UpdateRule) -> FusedKernel | None:
    """Returns the kernel of torch that is proved equal to a rule at every step, if there is one."""
    values = rule.hyperparameters.values()
    # A schedule is in the formula of the rule, which then is not that of the kernel.
    if any(value is None or isinstance(value, Schedule) for value in values):
        return None
    if not rule.is_elementwise or rule.shared or rule.inputs or rule.advances != sp.true:
        return None
    if any(expr.has(GlobalSum) for expr in rule.all_expressions()):
        return None
    rule_terms = {
        name: term(_without_definitions(rule, expr)) for name, expr in rule.expressions().items()
    }
    steps = StepRange(term(t), 0, MAX_STEP)
    for kernel in _kernels(rule):
        kernel_terms = {name: term(expr) for name, expr in kernel.formula.items()}
        if rule_terms.keys() == kernel_terms.keys() and all(
            are_equal(rule_term, kernel_terms[name], steps) is not None
            for name, rule_term in rule_terms.items()
        ):
            return kernel
    return None


def proved_kernel(rule: UpdateRule, params: Sequence[Tensor], where: str) -> FusedKernel:
    """Returns the kernel of a rule for these parameters.

    Raises:
        ArgumentError: No kernel is proved equal to the rule, or a parameter is of another kind.
    """
    kernel = fused_kernel(rule)
    hint = "leave out fused=True: the eager step runs on vectors of small parameters"
    if kernel is None:
        raise ArgumentError(
            f"no fused kernel of torch is proved equal to the rule {rule.name!r}",
            where=where,
            hint=hint,
        )
    for param in params:
        if not is_flat(param) or param.dtype not in KERNEL_DTYPES:
            raise ArgumentError(
                "fused=True steps contiguous float32 and float64 parameters of a CPU, got "
                f"{param.dtype} on {param.device}",
                where=where,
                hint=hint,
            )
    return kernel


def _hypers(rule: UpdateRule, *names: str) -> list[Any]:
    """The symbols of hyperparameters, 0 for those that a rule does not have."""
    return [hyper(name) if name in rule.hyperparameters else sp.Integer(0) for name in names]


def _without_definitions(rule: UpdateRule, expr: sp.Basic) -> sp.Basic:
    for name, value in reversed(list(rule.definitions.items())):
        expr = expr.xreplace({local(name): value})
    return expr


class FusedStep:
    """The step of parameters of one group and dtype by a kernel of torch.

    Args:
        kernel: The kernel.
        rule: The rule, for the values of hyperparameters that do not change.
        group: The group, whose hyperparameters are read at each step.
        params: The parameters.
        states: Their states.

    Attributes:
        params: The parameters.
        grads: The gradient of each parameter; None for one that is not stepped.
    """

    def __init__(
        self,
        kernel: FusedKernel,
        rule: UpdateRule,
        group: Hypers,
        params: Sequence[Tensor],
        states: Sequence[Mapping[str, Tensor]],
    ) -> None:
        self.params = list(params)
        self.grads: list[Any] = [None] * len(params)
        self._kernel, self._group = kernel, group
        self._states = {
            name: [state_of_param[name] for state_of_param in states] for name in rule.states
        }
        self._count = StateColumn(
            [state_of_param["step"] for state_of_param in states], torch.int64
        )
        # The kernels take the count as float32, one tensor for each parameter.
        self._floats = torch.zeros(len(params))
        self._steps = list(self._floats.unbind())
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum", "dampening", "lr_decay")
        values = rule.hyperparameters
        self._constants = {name: float(values.get(name) or 0) for name in names}
        self._numbers: dict[str, float] = {}
        self._version = -1

    def run(self) -> None:
        """Performs the step."""
        present = [grad is not None for grad in self.grads]
        if not any(present):
            return
        if self._version != self._group.version:
            inputs = {name: value.item() for name, value in self._group.inputs.items()}
            self._numbers, self._version = {**self._constants, **inputs}, self._group.version
        counts = self._count.load()
        if self._kernel.reads_steps:
            # The kernels take the count after the step: torch.optim increments it before.
            self._floats.copy_(counts).add_(1)
        before = counts.tolist() if self._kernel.has_first else ()
        if 0 in before:
            # is_first_step is one flag for all tensors of a call, so parameters at their first step
            # have a separate call.
            self._run([a and not b for a, b in zip(present, before, strict=True)], is_first=True)
            self._run([a and b > 0 for a, b in zip(present, before, strict=True)])
        else:
            self._run(present)
        counts.add_(1 if all(present) else truths(present))
        self._count.store(counts)

    def _run(self, mask: Sequence[bool], *, is_first: bool = False) -> None:
        params, grads, states, steps = self.params, self.grads, self._states, self._steps
        if not all(mask):
            if not any(mask):
                return
            params, grads, steps = (list(compress(items, mask)) for items in (params, grads, steps))
            states = {name: list(compress(column, mask)) for name, column in states.items()}
        self._kernel.run(KernelArguments(params, grads, states, steps, self._numbers, is_first))
