"""Published laws of the loss as functionals of a schedule: predictions, fits and designs."""

from closedform.laws.law import Law
from closedform.laws.predicting import predict
from closedform.laws.published import LAWS
from closedform.laws.series import enclose

__all__ = ["LAWS", "Law", "enclose", "predict"]


def __dir__() -> list[str]:
    return sorted(__all__)
