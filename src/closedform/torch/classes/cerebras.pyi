# Written by `make stubs` from the tables of closedform.recipes.

from closedform.torch.cerebras import LRScheduler, Scheduler, WeightDecayScheduler
from closedform.torch.compat.arguments import StepFunction, SubScheduler
from closedform.torch.compat.cerebras_optimizer import NamedCerebrasOptimizer
from closedform.torch.compat.schedulers import NamedScheduler
from closedform.torch.scheduler import Tags
from collections.abc import Sequence
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

__all__: list[str] = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ChainedLR",
    "ChainedScheduler",
    "ChainedWD",
    "ConstantLR",
    "ConstantScheduler",
    "ConstantWD",
    "CosineAnnealingLR",
    "CosineAnnealingScheduler",
    "CosineAnnealingWD",
    "CosineAnnealingWarmRestarts",
    "CosineAnnealingWarmRestartsScheduler",
    "CosineAnnealingWarmRestartsWD",
    "CosineDecayLR",
    "CosineDecayScheduler",
    "CosineDecayWD",
    "CyclicLR",
    "CyclicScheduler",
    "CyclicWD",
    "ExponentialLR",
    "ExponentialScheduler",
    "ExponentialWD",
    "InverseExponentialTimeDecayLR",
    "InverseExponentialTimeDecayScheduler",
    "InverseExponentialTimeDecayWD",
    "InverseSquareRootDecayLR",
    "InverseSquareRootDecayScheduler",
    "InverseSquareRootDecayWD",
    "Lamb",
    "LambdaLR",
    "LambdaScheduler",
    "LambdaWD",
    "LinearLR",
    "LinearScheduler",
    "LinearWD",
    "Lion",
    "MultiStepLR",
    "MultiStepScheduler",
    "MultiStepWD",
    "MultiplicativeLR",
    "MultiplicativeScheduler",
    "MultiplicativeWD",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "OneCycleScheduler",
    "OneCycleWD",
    "PiecewiseConstantLR",
    "PiecewiseConstantScheduler",
    "PiecewiseConstantWD",
    "PolynomialLR",
    "PolynomialScheduler",
    "PolynomialWD",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "ScalePerParamLR",
    "ScalePerParamScheduler",
    "ScalePerParamWD",
    "SequentialLR",
    "SequentialScheduler",
    "SequentialWD",
    "StepLR",
    "StepScheduler",
    "StepWD",
]

class ASGD(NamedCerebrasOptimizer):
    """The optimizer ``ASGD`` of cerebras, by its documented formula.

    ``closedform show cerebras:ASGD`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        lambd: Decay term.
        alpha: Smoothing constant, or the exponent of the average in ASGD.
        t0: Update from which on parameters are averaged.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
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
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adadelta(NamedCerebrasOptimizer):
    """The optimizer ``Adadelta`` of cerebras, by its documented formula.

    ``closedform show cerebras:Adadelta`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        rho: Coefficient of the running average of squares.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
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
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adafactor(NamedCerebrasOptimizer):
    """The optimizer ``Adafactor`` of cerebras, by its documented formula.

    ``closedform show cerebras:Adafactor`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        eps: Term that keeps quotients finite.
        clip_threshold: Largest root mean square of an update.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        beta1: Coefficient of the first moment, None for no first moment.
        weight_decay: Weight decay.
        scale_parameter: Whether to multiply the rate by the root mean square of the parameter.
        relative_step: Whether to compute the learning rate from the number of updates.
        warmup_init: Whether relative steps begin with a warmup.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        eps: tuple[float, float] = (1e-30, 0.001),
        clip_threshold: float = 1,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0,
        scale_parameter: bool = True,
        relative_step: bool = False,
        warmup_init: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adagrad(NamedCerebrasOptimizer):
    """The optimizer ``Adagrad`` of cerebras, by its documented formula.

    ``closedform show cerebras:Adagrad`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        lr_decay: Decay of the learning rate by the number of updates.
        weight_decay: Weight decay.
        initial_accumulator_value: First value of the accumulator.
        eps: Term that keeps quotients finite.
        maximize: Whether to maximize the objective.
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
        eps: float = 1e-06,
        maximize: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adam(NamedCerebrasOptimizer):
    """The optimizer ``Adam`` of cerebras, by its documented formula.

    ``closedform show cerebras:Adam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        amsgrad: Whether to use the largest second moment so far.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-06,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class AdamW(NamedCerebrasOptimizer):
    """The optimizer ``AdamW`` of cerebras, by its documented formula.

    ``closedform show cerebras:AdamW`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        correct_bias: Whether to correct the bias of the moments.
        amsgrad: Whether to use the largest second moment so far.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-06,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        amsgrad: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Adamax(NamedCerebrasOptimizer):
    """The optimizer ``Adamax`` of cerebras, by its documented formula.

    ``closedform show cerebras:Adamax`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        maximize: Whether to maximize the objective.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-06,
        weight_decay: float = 0,
        maximize: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class ChainedLR(NamedScheduler, LRScheduler):
    """The scheduler ``ChainedLR`` of cerebras in closed form.

    ``closedform show cerebras:ChainedLR`` prints the formula.

    Args:
        schedulers: The schedulers, in order.
        param_group_tags: The tags of the groups that are driven, None for all.
        optimizer: The optimizer whose param groups are driven.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        schedulers: Sequence[SubScheduler],
        param_group_tags: Tags = None,
        optimizer: Optimizer | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ChainedScheduler(NamedScheduler, LRScheduler):
    """The scheduler ``ChainedScheduler`` of cerebras in closed form.

    ``closedform show cerebras:ChainedScheduler`` prints the formula.

    Args:
        schedulers: The schedulers, in order.
        param_group_tags: The tags of the groups that are driven, None for all.
        optimizer: The optimizer whose param groups are driven.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        schedulers: Sequence[SubScheduler],
        param_group_tags: Tags = None,
        optimizer: Optimizer | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ChainedWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``ChainedWD`` of cerebras in closed form.

    ``closedform show cerebras:ChainedWD`` prints the formula.

    Args:
        schedulers: The schedulers, in order.
        param_group_tags: The tags of the groups that are driven, None for all.
        optimizer: The optimizer whose param groups are driven.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        schedulers: Sequence[SubScheduler],
        param_group_tags: Tags = None,
        optimizer: Optimizer | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ConstantLR(NamedScheduler, LRScheduler):
    """The scheduler ``ConstantLR`` of cerebras in closed form.

    ``closedform show cerebras:ConstantLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        learning_rate: Learning rate.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        learning_rate: float,
        total_iters: int | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ConstantScheduler(NamedScheduler, Scheduler):
    """The scheduler ``ConstantScheduler`` of cerebras in closed form.

    ``closedform show cerebras:ConstantScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        val: Value.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        val: float,
        total_iters: int | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ConstantWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``ConstantWD`` of cerebras in closed form.

    ``closedform show cerebras:ConstantWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        val: Value.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        val: float,
        total_iters: int | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingLR(NamedScheduler, LRScheduler):
    """The scheduler ``CosineAnnealingLR`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        T_max: Steps from the peak to the lowest value.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        T_max: int,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingScheduler(NamedScheduler, Scheduler):
    """The scheduler ``CosineAnnealingScheduler`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        T_max: Steps from the peak to the lowest value.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        T_max: int,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``CosineAnnealingWD`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        T_max: Steps from the peak to the lowest value.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        T_max: int,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingWarmRestarts(NamedScheduler, LRScheduler):
    """The scheduler ``CosineAnnealingWarmRestarts`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingWarmRestarts`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        T_0: Steps of the first cycle.
        T_mult: Factor of the length from one cycle to the next.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingWarmRestartsScheduler(NamedScheduler, Scheduler):
    """The scheduler ``CosineAnnealingWarmRestartsScheduler`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingWarmRestartsScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        T_0: Steps of the first cycle.
        T_mult: Factor of the length from one cycle to the next.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineAnnealingWarmRestartsWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``CosineAnnealingWarmRestartsWD`` of cerebras in closed form.

    ``closedform show cerebras:CosineAnnealingWarmRestartsWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        T_0: Steps of the first cycle.
        T_mult: Factor of the length from one cycle to the next.
        eta_min: Lowest value.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineDecayLR(NamedScheduler, LRScheduler):
    """The scheduler ``CosineDecayLR`` of cerebras in closed form.

    ``closedform show cerebras:CosineDecayLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        end_learning_rate: Learning rate at the end.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        end_learning_rate: float,
        total_iters: int,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineDecayScheduler(NamedScheduler, Scheduler):
    """The scheduler ``CosineDecayScheduler`` of cerebras in closed form.

    ``closedform show cerebras:CosineDecayScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CosineDecayWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``CosineDecayWD`` of cerebras in closed form.

    ``closedform show cerebras:CosineDecayWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CyclicLR(NamedScheduler, LRScheduler):
    """The scheduler ``CyclicLR`` of cerebras in closed form.

    ``closedform show cerebras:CyclicLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        base_lr: Lowest learning rate, or one for each group.
        max_lr: Largest learning rate, or one for each group.
        step_size_up: Steps of the rising half of a cycle.
        step_size_down: Steps of the falling half of a cycle, None for the same.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        gamma: Factor of the value at each decay.
        scale_mode: Whether ``scale_fn`` takes the "cycle" or the number of "iterations".
        param_group_tags: The tags of the groups that are driven, None for all.
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
        scale_mode: str = "cycle",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CyclicScheduler(NamedScheduler, Scheduler):
    """The scheduler ``CyclicScheduler`` of cerebras in closed form.

    ``closedform show cerebras:CyclicScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        base_val: Lowest value, or one for each group.
        max_val: Largest value, or one for each group.
        step_size_up: Steps of the rising half of a cycle.
        step_size_down: Steps of the falling half of a cycle, None for the same.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        gamma: Factor of the value at each decay.
        scale_mode: Whether ``scale_fn`` takes the "cycle" or the number of "iterations".
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_val: float | Sequence[float],
        max_val: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_mode: str = "cycle",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class CyclicWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``CyclicWD`` of cerebras in closed form.

    ``closedform show cerebras:CyclicWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        base_val: Lowest value, or one for each group.
        max_val: Largest value, or one for each group.
        step_size_up: Steps of the rising half of a cycle.
        step_size_down: Steps of the falling half of a cycle, None for the same.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        gamma: Factor of the value at each decay.
        scale_mode: Whether ``scale_fn`` takes the "cycle" or the number of "iterations".
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_val: float | Sequence[float],
        max_val: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_mode: str = "cycle",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ExponentialLR(NamedScheduler, LRScheduler):
    """The scheduler ``ExponentialLR`` of cerebras in closed form.

    ``closedform show cerebras:ExponentialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ExponentialScheduler(NamedScheduler, Scheduler):
    """The scheduler ``ExponentialScheduler`` of cerebras in closed form.

    ``closedform show cerebras:ExponentialScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ExponentialWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``ExponentialWD`` of cerebras in closed form.

    ``closedform show cerebras:ExponentialWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseExponentialTimeDecayLR(NamedScheduler, LRScheduler):
    """The scheduler ``InverseExponentialTimeDecayLR`` of cerebras in closed form.

    ``closedform show cerebras:InverseExponentialTimeDecayLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        step_exponent: Exponent of the number of steps.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        step_exponent: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseExponentialTimeDecayScheduler(NamedScheduler, Scheduler):
    """The scheduler ``InverseExponentialTimeDecayScheduler`` of cerebras in closed form.

    ``closedform show cerebras:InverseExponentialTimeDecayScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        step_exponent: Exponent of the number of steps.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        step_exponent: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseExponentialTimeDecayWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``InverseExponentialTimeDecayWD`` of cerebras in closed form.

    ``closedform show cerebras:InverseExponentialTimeDecayWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        step_exponent: Exponent of the number of steps.
        total_iters: Steps of the schedule.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        staircase: Whether the decay is by whole periods.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        step_exponent: float,
        total_iters: int,
        decay_rate: float,
        staircase: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseSquareRootDecayLR(NamedScheduler, LRScheduler):
    """The scheduler ``InverseSquareRootDecayLR`` of cerebras in closed form.

    ``closedform show cerebras:InverseSquareRootDecayLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        scale: Factor of the value.
        warmup_steps: Steps of the warmup.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float = 1.0,
        scale: float = 1.0,
        warmup_steps: float = 1.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseSquareRootDecayScheduler(NamedScheduler, Scheduler):
    """The scheduler ``InverseSquareRootDecayScheduler`` of cerebras in closed form.

    ``closedform show cerebras:InverseSquareRootDecayScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        scale: Factor of the value.
        warmup_steps: Steps of the warmup.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float = 1.0,
        scale: float = 1.0,
        warmup_steps: float = 1.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class InverseSquareRootDecayWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``InverseSquareRootDecayWD`` of cerebras in closed form.

    ``closedform show cerebras:InverseSquareRootDecayWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        scale: Factor of the value.
        warmup_steps: Steps of the warmup.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float = 1.0,
        scale: float = 1.0,
        warmup_steps: float = 1.0,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class Lamb(NamedCerebrasOptimizer):
    """The optimizer ``Lamb`` of cerebras, by its documented formula.

    ``closedform show cerebras:Lamb`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        adam: Whether to take the step of Adam.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-06,
        weight_decay: float = 0,
        adam: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class LambdaLR(NamedScheduler, LRScheduler):
    """The scheduler ``LambdaLR`` of cerebras in closed form.

    ``closedform show cerebras:LambdaLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        lambdas: From the step to the factor, one for each group.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        lambdas: StepFunction | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LambdaScheduler(NamedScheduler, Scheduler):
    """The scheduler ``LambdaScheduler`` of cerebras in closed form.

    ``closedform show cerebras:LambdaScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        lambdas: From the step to the factor, one for each group.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        lambdas: StepFunction | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LambdaWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``LambdaWD`` of cerebras in closed form.

    ``closedform show cerebras:LambdaWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        lambdas: From the step to the factor, one for each group.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        lambdas: StepFunction | None = None,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LinearLR(NamedScheduler, LRScheduler):
    """The scheduler ``LinearLR`` of cerebras in closed form.

    ``closedform show cerebras:LinearLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        end_learning_rate: Learning rate at the end.
        total_iters: Steps of the schedule.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        end_learning_rate: float,
        total_iters: int,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LinearScheduler(NamedScheduler, Scheduler):
    """The scheduler ``LinearScheduler`` of cerebras in closed form.

    ``closedform show cerebras:LinearScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class LinearWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``LinearWD`` of cerebras in closed form.

    ``closedform show cerebras:LinearWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class Lion(NamedCerebrasOptimizer):
    """The optimizer ``Lion`` of cerebras, by its documented formula.

    ``closedform show cerebras:Lion`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        weight_decay: Weight decay.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.0001,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class MultiStepLR(NamedScheduler, LRScheduler):
    """The scheduler ``MultiStepLR`` of cerebras in closed form.

    ``closedform show cerebras:MultiStepLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        gamma: Factor of the value at each decay.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        gamma: float,
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiStepScheduler(NamedScheduler, Scheduler):
    """The scheduler ``MultiStepScheduler`` of cerebras in closed form.

    ``closedform show cerebras:MultiStepScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        gamma: Factor of the value at each decay.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        gamma: float,
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiStepWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``MultiStepWD`` of cerebras in closed form.

    ``closedform show cerebras:MultiStepWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        gamma: Factor of the value at each decay.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        gamma: float,
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiplicativeLR(NamedScheduler, LRScheduler):
    """The scheduler ``MultiplicativeLR`` of cerebras in closed form.

    ``closedform show cerebras:MultiplicativeLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        coefficient: Factor of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        coefficient: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiplicativeScheduler(NamedScheduler, Scheduler):
    """The scheduler ``MultiplicativeScheduler`` of cerebras in closed form.

    ``closedform show cerebras:MultiplicativeScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        coefficient: Factor of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        coefficient: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiplicativeWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``MultiplicativeWD`` of cerebras in closed form.

    ``closedform show cerebras:MultiplicativeWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        coefficient: Factor of the schedule.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        coefficient: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class Muon(NamedCerebrasOptimizer):
    """The optimizer ``Muon`` of cerebras, by its documented formula.

    ``closedform show cerebras:Muon`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        weight_decay: Weight decay.
        momentum: Momentum.
        nesterov: Whether to use Nesterov's momentum.
        ns_steps: Steps of Newton-Schulz.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.02,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class NAdam(NamedCerebrasOptimizer):
    """The optimizer ``NAdam`` of cerebras, by its documented formula.

    ``closedform show cerebras:NAdam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        momentum_decay: Decay of the momentum.
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
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class OneCycleLR(NamedScheduler, LRScheduler):
    """The scheduler ``OneCycleLR`` of cerebras in closed form.

    ``closedform show cerebras:OneCycleLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        max_lr: Largest learning rate, or one for each group.
        total_steps: Steps of the cycle.
        pct_start: Part of the cycle in which the value rises.
        final_div_factor: First value divided by the last one.
        three_phase: Whether a third phase lowers the value to its end.
        anneal_strategy: "cos" or "linear".
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        max_lr: float | Sequence[float],
        total_steps: int | None = 1000,
        pct_start: float = 0.3,
        final_div_factor: float = 10000.0,
        three_phase: bool = False,
        anneal_strategy: str = "cos",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class OneCycleScheduler(NamedScheduler, Scheduler):
    """The scheduler ``OneCycleScheduler`` of cerebras in closed form.

    ``closedform show cerebras:OneCycleScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        max_val: Largest value, or one for each group.
        total_steps: Steps of the cycle.
        pct_start: Part of the cycle in which the value rises.
        final_div_factor: First value divided by the last one.
        three_phase: Whether a third phase lowers the value to its end.
        anneal_strategy: "cos" or "linear".
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        max_val: float | Sequence[float],
        total_steps: int | None = 1000,
        pct_start: float = 0.3,
        final_div_factor: float = 10000.0,
        three_phase: bool = False,
        anneal_strategy: str = "cos",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class OneCycleWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``OneCycleWD`` of cerebras in closed form.

    ``closedform show cerebras:OneCycleWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        max_val: Largest value, or one for each group.
        total_steps: Steps of the cycle.
        pct_start: Part of the cycle in which the value rises.
        final_div_factor: First value divided by the last one.
        three_phase: Whether a third phase lowers the value to its end.
        anneal_strategy: "cos" or "linear".
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        max_val: float | Sequence[float],
        total_steps: int | None = 1000,
        pct_start: float = 0.3,
        final_div_factor: float = 10000.0,
        three_phase: bool = False,
        anneal_strategy: str = "cos",
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PiecewiseConstantLR(NamedScheduler, LRScheduler):
    """The scheduler ``PiecewiseConstantLR`` of cerebras in closed form.

    ``closedform show cerebras:PiecewiseConstantLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        learning_rates: Learning rates, one for each phase.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        learning_rates: Sequence[float],
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PiecewiseConstantScheduler(NamedScheduler, Scheduler):
    """The scheduler ``PiecewiseConstantScheduler`` of cerebras in closed form.

    ``closedform show cerebras:PiecewiseConstantScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        vals: Values, one for each phase.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        vals: Sequence[float],
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PiecewiseConstantWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``PiecewiseConstantWD`` of cerebras in closed form.

    ``closedform show cerebras:PiecewiseConstantWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        vals: Values, one for each phase.
        milestones: Steps at which the next phase begins, ascending.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        vals: Sequence[float],
        milestones: Sequence[int],
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PolynomialLR(NamedScheduler, LRScheduler):
    """The scheduler ``PolynomialLR`` of cerebras in closed form.

    ``closedform show cerebras:PolynomialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        end_learning_rate: Learning rate at the end.
        total_iters: Steps of the schedule.
        power: Exponent of the decay.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        end_learning_rate: float,
        total_iters: int,
        power: float = 1.0,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PolynomialScheduler(NamedScheduler, Scheduler):
    """The scheduler ``PolynomialScheduler`` of cerebras in closed form.

    ``closedform show cerebras:PolynomialScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        power: Exponent of the decay.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        power: float = 1.0,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PolynomialWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``PolynomialWD`` of cerebras in closed form.

    ``closedform show cerebras:PolynomialWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        end_val: Value at the end.
        total_iters: Steps of the schedule.
        power: Exponent of the decay.
        cycle: Whether to begin again at the end.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        end_val: float,
        total_iters: int,
        power: float = 1.0,
        cycle: bool = False,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class RAdam(NamedCerebrasOptimizer):
    """The optimizer ``RAdam`` of cerebras, by its documented formula.

    ``closedform show cerebras:RAdam`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        betas: Coefficients of the first and second moment.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-06,
        weight_decay: float = 0,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class RMSprop(NamedCerebrasOptimizer):
    """The optimizer ``RMSprop`` of cerebras, by its documented formula.

    ``closedform show cerebras:RMSprop`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        alpha: Smoothing constant, or the exponent of the average in ASGD.
        eps: Term that keeps quotients finite.
        weight_decay: Weight decay.
        momentum: Momentum.
        centered: Whether to subtract the square of the average gradient.
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
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class Rprop(NamedCerebrasOptimizer):
    """The optimizer ``Rprop`` of cerebras, by its documented formula.

    ``closedform show cerebras:Rprop`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        etas: Factors of a step that shrinks and of one that grows.
        step_sizes: Smallest and largest step.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-06, 50),
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class SGD(NamedCerebrasOptimizer):
    """The optimizer ``SGD`` of cerebras, by its documented formula.

    ``closedform show cerebras:SGD`` prints the formula.

    Args:
        params: Parameters or param groups.
        lr: Learning rate.
        momentum: Momentum.
        dampening: Dampening of the momentum.
        weight_decay: Weight decay.
        nesterov: Whether to use Nesterov's momentum.
        maximize: Whether to maximize the objective.
        backend: "eager" or "compile".
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        backend: str = "eager",
        as_implemented: bool = False,
    ) -> None: ...

class ScalePerParamLR(NamedScheduler, LRScheduler):
    """The scheduler ``ScalePerParamLR`` of cerebras in closed form.

    ``closedform show cerebras:ScalePerParamLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        scheduler: The scheduler whose value is scaled.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        scheduler: SubScheduler,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ScalePerParamScheduler(NamedScheduler, Scheduler):
    """The scheduler ``ScalePerParamScheduler`` of cerebras in closed form.

    ``closedform show cerebras:ScalePerParamScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        scheduler: The scheduler whose value is scaled.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        scheduler: SubScheduler,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class ScalePerParamWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``ScalePerParamWD`` of cerebras in closed form.

    ``closedform show cerebras:ScalePerParamWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        scheduler: The scheduler whose value is scaled.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        scheduler: SubScheduler,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class SequentialLR(NamedScheduler, LRScheduler):
    """The scheduler ``SequentialLR`` of cerebras in closed form.

    ``closedform show cerebras:SequentialLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        schedulers: The schedulers, in order.
        milestones: Steps at which the next phase begins, ascending.
        last_epoch: The clock to resume from, -1 for a new run.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[SubScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class SequentialScheduler(NamedScheduler, Scheduler):
    """The scheduler ``SequentialScheduler`` of cerebras in closed form.

    ``closedform show cerebras:SequentialScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        schedulers: The schedulers, in order.
        milestones: Steps at which the next phase begins, ascending.
        last_epoch: The clock to resume from, -1 for a new run.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[SubScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class SequentialWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``SequentialWD`` of cerebras in closed form.

    ``closedform show cerebras:SequentialWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        schedulers: The schedulers, in order.
        milestones: Steps at which the next phase begins, ascending.
        last_epoch: The clock to resume from, -1 for a new run.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[SubScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class StepLR(NamedScheduler, LRScheduler):
    """The scheduler ``StepLR`` of cerebras in closed form.

    ``closedform show cerebras:StepLR`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_learning_rate: Learning rate at the start.
        step_size: Steps between decays.
        gamma: Factor of the value at each decay.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_learning_rate: float,
        step_size: int,
        gamma: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class StepScheduler(NamedScheduler, Scheduler):
    """The scheduler ``StepScheduler`` of cerebras in closed form.

    ``closedform show cerebras:StepScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        step_size: Steps between decays.
        gamma: Factor of the value at each decay.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        step_size: int,
        gamma: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class StepWD(NamedScheduler, WeightDecayScheduler):
    """The scheduler ``StepWD`` of cerebras in closed form.

    ``closedform show cerebras:StepWD`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        initial_val: Value at the start.
        step_size: Steps between decays.
        gamma: Factor of the value at each decay.
        param_group_tags: The tags of the groups that are driven, None for all.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        initial_val: float,
        step_size: int,
        gamma: float,
        param_group_tags: Tags = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...
