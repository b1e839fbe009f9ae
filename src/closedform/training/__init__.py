"""A whole training step as one graph: forward, loss, gradients and update, in stock onnxruntime.

``export`` needs torch, to trace the model; ``TrainSession`` needs NumPy and onnxruntime alone.
"""

from closedform.training.export import export
from closedform.training.session import StepResult, TrainSession

__all__ = ["StepResult", "TrainSession", "export"]


def __dir__() -> list[str]:
    return sorted(__all__)
