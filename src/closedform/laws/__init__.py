"""Published laws of the loss as functionals of a schedule: predictions, fits and designs.

Example:
    >>> from closedform.laws import predict
    >>> from closedform.schedules import cosine
    >>> round(predict(cosine(3e-4, 3e-5, 24_000), "multi_power", "400M", 24_000), 3)
    2.6
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from closedform.errors import unknown_attribute

if TYPE_CHECKING:
    from closedform.laws.designing import Design, design
    from closedform.laws.families import NonIncreasing, power_decay
    from closedform.laws.fitting import Fit, Run, fit
    from closedform.laws.law import Law
    from closedform.laws.predicting import predict
    from closedform.laws.published import LAWS
    from closedform.laws.series import enclose

_HOME = {
    "Design": "closedform.laws.designing",
    "Fit": "closedform.laws.fitting",
    "LAWS": "closedform.laws.published",
    "Law": "closedform.laws.law",
    "NonIncreasing": "closedform.laws.families",
    "Run": "closedform.laws.fitting",
    "design": "closedform.laws.designing",
    "enclose": "closedform.laws.series",
    "fit": "closedform.laws.fitting",
    "power_decay": "closedform.laws.families",
    "predict": "closedform.laws.predicting",
}

__all__ = [
    "LAWS",
    "Design",
    "Fit",
    "Law",
    "NonIncreasing",
    "Run",
    "design",
    "enclose",
    "fit",
    "power_decay",
    "predict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise unknown_attribute(__name__, name, __all__)
    public = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return public


def __dir__() -> list[str]:
    return sorted(__all__)
