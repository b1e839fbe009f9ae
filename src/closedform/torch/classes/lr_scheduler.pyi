# Written by `make stubs` from the tables of closedform.recipes.

from closedform.torch.compat.arguments import StepFunction, SubScheduler
from closedform.torch.compat.torch_schedulers import Chained, CosineAnnealing, OneCycle, RecursiveScheduler, Sequential, TorchScheduler, WarmRestarts
from collections.abc import Sequence
from torch.optim import Optimizer

__all__: list[str] = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

class ChainedScheduler(Chained):
    """The scheduler ``ChainedScheduler`` of torch in closed form.

    ``closedform show torch:ChainedScheduler`` prints the formula.

    Args:
        schedulers: The schedulers, in order.
        optimizer: The optimizer whose param groups are driven.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        schedulers: Sequence[SubScheduler],
        optimizer: Optimizer | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ConstantLR(RecursiveScheduler):
    """The scheduler ``ConstantLR`` of torch in closed form.

    ``closedform show torch:ConstantLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        factor: Factor of the value.
        total_iters: Steps of the schedule.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.3333333333333333,
        total_iters: int | None = 5,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingLR(CosineAnnealing):
    """The scheduler ``CosineAnnealingLR`` of torch in closed form.

    ``closedform show torch:CosineAnnealingLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        T_max: Steps from the peak to the lowest value.
        eta_min: Lowest value.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingWarmRestarts(WarmRestarts):
    """The scheduler ``CosineAnnealingWarmRestarts`` of torch in closed form.

    ``closedform show torch:CosineAnnealingWarmRestarts`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        T_0: Steps of the first cycle.
        T_mult: Factor of the length from one cycle to the next.
        eta_min: Lowest value.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CyclicLR(TorchScheduler):
    """The scheduler ``CyclicLR`` of torch in closed form.

    ``closedform show torch:CyclicLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        base_lr: Lowest learning rate, or one for each group.
        max_lr: Largest learning rate, or one for each group.
        step_size_up: Steps of the rising half of a cycle.
        step_size_down: Steps of the falling half of a cycle, None for the same.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        gamma: Factor of the value at each decay.
        scale_fn: From the cycle or the iteration to the height of the peak.
        scale_mode: Whether ``scale_fn`` takes the "cycle" or the number of "iterations".
        cycle_momentum: Whether to drive the momentum against the learning rate.
        base_momentum: Lowest momentum, or one for each group.
        max_momentum: Largest momentum, or one for each group.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: StepFunction | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ExponentialLR(RecursiveScheduler):
    """The scheduler ``ExponentialLR`` of torch in closed form.

    ``closedform show torch:ExponentialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        gamma: Factor of the value at each decay.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        gamma: float,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LambdaLR(TorchScheduler):
    """The scheduler ``LambdaLR`` of torch in closed form.

    ``closedform show torch:LambdaLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        lr_lambda: From the step to the factor; one function, or one for each group.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: StepFunction,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LinearLR(RecursiveScheduler):
    """The scheduler ``LinearLR`` of torch in closed form.

    ``closedform show torch:LinearLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        start_factor: Factor of the base value at the start.
        end_factor: Factor of the base value at the end.
        total_iters: Steps of the schedule.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 0.3333333333333333,
        end_factor: float = 1.0,
        total_iters: int | None = 5,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiStepLR(RecursiveScheduler):
    """The scheduler ``MultiStepLR`` of torch in closed form.

    ``closedform show torch:MultiStepLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        milestones: Steps at which the next phase begins, ascending.
        gamma: Factor of the value at each decay.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiplicativeLR(RecursiveScheduler):
    """The scheduler ``MultiplicativeLR`` of torch in closed form.

    ``closedform show torch:MultiplicativeLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        lr_lambda: From the step to the factor; one function, or one for each group.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: StepFunction,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class OneCycleLR(OneCycle):
    """The scheduler ``OneCycleLR`` of torch in closed form.

    ``closedform show torch:OneCycleLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        max_lr: Largest learning rate, or one for each group.
        total_steps: Steps of the cycle.
        epochs: Epochs of the run.
        steps_per_epoch: Updates of an epoch.
        pct_start: Part of the cycle in which the value rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: Whether to drive the momentum against the learning rate.
        base_momentum: Lowest momentum, or one for each group.
        max_momentum: Largest momentum, or one for each group.
        div_factor: Peak divided by the first value.
        final_div_factor: First value divided by the last one.
        three_phase: Whether a third phase lowers the value to its end.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 10000.0,
        three_phase: bool = False,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PolynomialLR(RecursiveScheduler):
    """The scheduler ``PolynomialLR`` of torch in closed form.

    ``closedform show torch:PolynomialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        total_iters: Steps of the schedule.
        power: Exponent of the decay.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int | None = 5,
        power: float = 1.0,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ReduceLROnPlateau(TorchScheduler):
    """The scheduler ``ReduceLROnPlateau`` of torch in closed form.

    ``closedform show torch:ReduceLROnPlateau`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        factor: Factor of the value.
        patience: Steps without improvement that are tolerated.
        threshold: Smallest change of the metric that counts as an improvement.
        threshold_mode: "rel" or "abs".
        cooldown: Steps after a decay in which bad steps are not counted.
        min_lr: Lowest learning rate, or one for each group.
        eps: Term that keeps quotients finite.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 0.0001,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-08,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class SequentialLR(Sequential):
    """The scheduler ``SequentialLR`` of torch in closed form.

    ``closedform show torch:SequentialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        schedulers: The schedulers, in order.
        milestones: Steps at which the next phase begins, ascending.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[SubScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class StepLR(RecursiveScheduler):
    """The scheduler ``StepLR`` of torch in closed form.

    ``closedform show torch:StepLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        step_size: Steps between decays.
        gamma: Factor of the value at each decay.
        last_epoch: The clock to resume from, -1 for a new run.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        *,
        as_implemented: bool = False,
    ) -> None: ...
