# Written by `make stubs` from the tables of closedform.recipes.

from closedform.torch.timm import TimmScheduler
from collections.abc import Sequence
from torch.optim import Optimizer

__all__: list[str] = [
    "CosineLRScheduler",
    "MultiStepLRScheduler",
    "PlateauLRScheduler",
    "PolyLRScheduler",
    "StepLRScheduler",
    "TanhLRScheduler",
    "WSDLRScheduler",
]

class CosineLRScheduler(TimmScheduler):
    """The scheduler ``CosineLRScheduler`` of timm in closed form.

    ``closedform show timm:CosineLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        t_initial: Steps of the first cycle, without the warmup.
        lr_min: Lowest learning rate.
        cycle_mul: Factor of the length from one cycle to the next.
        cycle_decay: Factor of the peak from one cycle to the next.
        cycle_limit: Number of cycles.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        warmup_prefix: Whether the cycle begins after the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        k_decay: Exponent of the progress.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        t_initial: int,
        lr_min: float = 0.0,
        cycle_mul: float = 1.0,
        cycle_decay: float = 1.0,
        cycle_limit: int = 1,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        warmup_prefix: bool = False,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        k_decay: float = 1.0,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class MultiStepLRScheduler(TimmScheduler):
    """The scheduler ``MultiStepLRScheduler`` of timm in closed form.

    ``closedform show timm:MultiStepLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        decay_t: Steps between decays, or the steps at which the value decays.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        warmup_prefix: Whether the cycle begins after the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay_t: float | Sequence[float],
        decay_rate: float = 1.0,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        warmup_prefix: bool = True,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PlateauLRScheduler(TimmScheduler):
    """The scheduler ``PlateauLRScheduler`` of timm in closed form.

    ``closedform show timm:PlateauLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        patience_t: Steps without improvement that are tolerated.
        threshold: Smallest change of the metric that counts as an improvement.
        cooldown_t: Steps after a decay in which bad steps are not counted.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        lr_min: Lowest learning rate.
        mode: "min" or "max"; of cyclic schedules, the shape of the peaks.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay_rate: float = 0.1,
        patience_t: int = 10,
        threshold: float = 0.0001,
        cooldown_t: int = 0,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        lr_min: float = 0.0,
        mode: str = "max",
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class PolyLRScheduler(TimmScheduler):
    """The scheduler ``PolyLRScheduler`` of timm in closed form.

    ``closedform show timm:PolyLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        t_initial: Steps of the first cycle, without the warmup.
        power: Exponent of the decay.
        lr_min: Lowest learning rate.
        cycle_mul: Factor of the length from one cycle to the next.
        cycle_decay: Factor of the peak from one cycle to the next.
        cycle_limit: Number of cycles.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        warmup_prefix: Whether the cycle begins after the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        k_decay: Exponent of the progress.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        t_initial: int,
        power: float = 0.5,
        lr_min: float = 0.0,
        cycle_mul: float = 1.0,
        cycle_decay: float = 1.0,
        cycle_limit: int = 1,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        warmup_prefix: bool = False,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        k_decay: float = 1.0,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class StepLRScheduler(TimmScheduler):
    """The scheduler ``StepLRScheduler`` of timm in closed form.

    ``closedform show timm:StepLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        decay_t: Steps between decays, or the steps at which the value decays.
        decay_rate: Factor of the value at each decay, or the exponent of the second moment.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        warmup_prefix: Whether the cycle begins after the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay_t: float | Sequence[float],
        decay_rate: float = 1.0,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        warmup_prefix: bool = True,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class TanhLRScheduler(TimmScheduler):
    """The scheduler ``TanhLRScheduler`` of timm in closed form.

    ``closedform show timm:TanhLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        t_initial: Steps of the first cycle, without the warmup.
        lb: Lower bound of the argument of tanh.
        ub: Upper bound of the argument of tanh.
        lr_min: Lowest learning rate.
        cycle_mul: Factor of the length from one cycle to the next.
        cycle_decay: Factor of the peak from one cycle to the next.
        cycle_limit: Number of cycles.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        warmup_prefix: Whether the cycle begins after the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        t_initial: int,
        lb: float = -7.0,
        ub: float = 3.0,
        lr_min: float = 0.0,
        cycle_mul: float = 1.0,
        cycle_decay: float = 1.0,
        cycle_limit: int = 1,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        warmup_prefix: bool = False,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...

class WSDLRScheduler(TimmScheduler):
    """The scheduler ``WSDLRScheduler`` of timm in closed form.

    ``closedform show timm:WSDLRScheduler`` prints the formula.

    Args:
        optimizer: The optimizer whose param groups are driven.
        t_initial: Steps of the first cycle, without the warmup.
        decay_t: Steps between decays, or the steps at which the value decays.
        lr_min: Lowest learning rate.
        stable_fn: The shape of the stable phase.
        stable_timescale: Time scale of the decay in the stable phase.
        stable_power: Exponent of the decay in the stable phase.
        decay_fn: The shape of the decay.
        decay_power: Exponent of the decay.
        decay_ratio: Part of the run in which the value decays.
        warmup_t: Steps of the warmup.
        warmup_lr_init: Learning rate at the start of the warmup.
        t_in_epochs: Whether the clock counts epochs.
        noise_range_t: First step with noise, or first and last.
        noise_type: "normal" or "uniform".
        noise_pct: Largest noise as a part of the value.
        noise_std: Standard deviation of the noise.
        noise_seed: Seed of the noise.
        as_implemented: Whether to reproduce the defects of the library.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        t_initial: int,
        decay_t: float | Sequence[float],
        lr_min: float = 0.0,
        stable_fn: str = "constant",
        stable_timescale: float | None = None,
        stable_power: float = 0.5,
        decay_fn: str = "1-sqrt",
        decay_power: float = 0.5,
        decay_ratio: float = 0.1,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        t_in_epochs: bool = True,
        noise_range_t: float | Sequence[float] | None = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        *,
        as_implemented: bool = False,
    ) -> None: ...
