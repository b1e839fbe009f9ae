"""A whole training step as one graph: forward, loss, gradients and update, in stock onnxruntime.

``export`` needs torch, to trace the model; ``TrainSession`` needs only NumPy and onnxruntime.

Example:
    >>> import tempfile, torch
    >>> from closedform import optimizers
    >>> model, example = torch.nn.Linear(2, 1), (torch.ones(4, 2), torch.ones(4, 1))
    >>> folder = tempfile.mkdtemp()
    >>> sorted(export(model, torch.nn.functional.mse_loss, example, optimizers.sgd(0.1), folder))
    ['eval.onnx', 'init.onnx', 'train.onnx']
"""

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.training.export import export
from closedform.training.session import StepResult, TrainSession

__all__ = ["StepResult", "TrainSession", "export"]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
