# Written by `make stubs` from the tables of closedform.recipes.

from closedform.torch.compat.optimizers import NamedOptimizer
from torch import Tensor
from torch.optim.optimizer import ParamsT

__all__: list[str] = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
]

class ASGD(NamedOptimizer):
    """The optimizer ``ASGD`` of torch, by its documented formula.

    ``closedform show torch:ASGD`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        lambd: Decay term.
        alpha: Smoothing constant, or the exponent of the average in ASGD.
        t0: Update from which on parameters are averaged.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.01,
        lambd: float = 0.0001,
        alpha: float = 0.75,
        t0: float = 1000000.0,
        weight_decay: float = 0,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adadelta(NamedOptimizer):
    """The optimizer ``Adadelta`` of torch, by its documented formula.

    ``closedform show torch:Adadelta`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        rho: Coefficient of the running average of squares.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-06,
        weight_decay: float = 0,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adafactor(NamedOptimizer):
    """The optimizer ``Adafactor`` of torch, by its documented formula.

    ``closedform show torch:Adafactor`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        beta2_decay: Exponent of the decay of the second moment's coefficient.
        eps: Term that keeps quotients finite.
        d: Largest root mean square of an update.
        weight_decay: Weight decay.
        foreach: Of torch: without effect here.
        maximize: Whether to maximize the objective.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.01,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 0.001),
        d: float = 1.0,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adagrad(NamedOptimizer):
    """The optimizer ``Adagrad`` of torch, by its documented formula.

    ``closedform show torch:Adagrad`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        lr_decay: Decay of the learning rate by the number of updates.
        weight_decay: Weight decay.
        initial_accumulator_value: First value of the accumulator.
        eps: Term that keeps quotients finite.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        fused: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.01,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adam(NamedOptimizer):
    """The optimizer ``Adam`` of torch, by its documented formula.

    ``closedform show torch:Adam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        amsgrad: Whether to use the largest second moment so far.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        fused: Of torch: without effect here.
        capturable: Of torch: without effect here.
        decoupled_weight_decay: Whether weight decay is independent of the moments.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        amsgrad: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        capturable: bool = False,
        decoupled_weight_decay: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class AdamW(NamedOptimizer):
    """The optimizer ``AdamW`` of torch, by its documented formula.

    ``closedform show torch:AdamW`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        amsgrad: Whether to use the largest second moment so far.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        fused: Of torch: without effect here.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adamax(NamedOptimizer):
    """The optimizer ``Adamax`` of torch, by its documented formula.

    ``closedform show torch:Adamax`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.002,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Muon(NamedOptimizer):
    """The optimizer ``Muon`` of torch, by its documented formula.

    ``closedform show torch:Muon`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        weight_decay: Weight decay.
        momentum: Momentum.
        nesterov: Whether to use Nesterov's momentum.
        ns_coefficients: Coefficients of Newton-Schulz.
        eps: Term that keeps quotients finite.
        ns_steps: Steps of Newton-Schulz.
        adjust_lr_fn: "original" or "match_rms_adamw"; None for the first of them.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-07,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class NAdam(NamedOptimizer):
    """The optimizer ``NAdam`` of torch, by its documented formula.

    ``closedform show torch:NAdam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        momentum_decay: Decay of the momentum.
        decoupled_weight_decay: Whether weight decay is independent of the moments.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.002,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        momentum_decay: float = 0.004,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class RAdam(NamedOptimizer):
    """The optimizer ``RAdam`` of torch, by its documented formula.

    ``closedform show torch:RAdam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        decoupled_weight_decay: Whether weight decay is independent of the moments.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        capturable: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class RMSprop(NamedOptimizer):
    """The optimizer ``RMSprop`` of torch, by its documented formula.

    ``closedform show torch:RMSprop`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        alpha: Smoothing constant, or the exponent of the average in ASGD.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        momentum: Momentum.
        centered: Whether to subtract the square of the average gradient.
        capturable: Of torch: without effect here.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-08,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Rprop(NamedOptimizer):
    """The optimizer ``Rprop`` of torch, by its documented formula.

    ``closedform show torch:Rprop`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        etas: Factors of a step that shrinks and of one that grows.
        step_sizes: Smallest and largest step.
        capturable: Of torch: without effect here.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.01,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-06, 50),
        capturable: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class SGD(NamedOptimizer):
    """The optimizer ``SGD`` of torch, by its documented formula.

    ``closedform show torch:SGD`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        momentum: Momentum.
        dampening: Dampening of the momentum.
        weight_decay: Weight decay.
        nesterov: Whether to use Nesterov's momentum.
        maximize: Whether to maximize the objective.
        foreach: Of torch: without effect here.
        differentiable: Of torch: must be False.
        fused: Of torch: without effect here.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...
