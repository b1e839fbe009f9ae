"""Sessions that run schedules and optimizer steps in onnxruntime, without torch.

Example:
    >>> from closedform import schedules, to_onnx
    >>> ScheduleSession(to_onnx(schedules.linear(0, 1, 4)))(3)
    0.75
"""

from closedform.runtime.optimizer import OptimizerSession
from closedform.runtime.schedule import ScheduleSession
from closedform.runtime.state_layouts import from_layout, to_layout

__all__ = ["OptimizerSession", "ScheduleSession", "from_layout", "to_layout"]


def __dir__() -> list[str]:
    return sorted(__all__)
