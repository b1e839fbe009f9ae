"""The classes of torch.optim, each run by an update rule: ``AdamW(params, backend="compile")``."""

from typing import Any

import torch

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_classes


class _AveragedSGD(NamedOptimizer):
    """The base of ASGD, whose state dicts have the states that torch keeps beside the step."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state dict, with ``eta`` and ``mu`` of the last step as torch's has them."""
        made = super().state_dict()
        for group in made["param_groups"]:
            if not {"lr", "lambd", "alpha", "t0"} <= group.keys():  # one is a Schedule
                continue
            rate, decay, power, start = (float(group[k]) for k in ("lr", "lambd", "alpha", "t0"))
            for key in group["params"]:
                step = float(made["state"][key]["step"])
                eta = torch.tensor(rate / (1 + decay * rate * step) ** power)
                mu = torch.tensor(1 / max(1.0, step - start))
                made["state"][key] = {**made["state"][key], "eta": eta, "mu": mu}
        return made


OPTIMIZERS = {
    **optimizer_classes("torch", __name__),
    "ASGD": optimizer_classes("torch", __name__, _AveragedSGD)["ASGD"],
}
"""The optimizer classes by name."""

__all__ = ["OPTIMIZERS"]
__getattr__, __dir__ = class_namespace(__name__, OPTIMIZERS, __all__)
