"""The schedulers of pytorch_accelerated, with its clock and methods."""

from closedform.torch.compat.pytorch_accelerated import (
    CosineLrScheduler,
    Placeholder,
    WSDLrScheduler,
)

__all__ = ["CosineLrScheduler", "Placeholder", "WSDLrScheduler"]


def __dir__() -> list[str]:
    return sorted(__all__)
