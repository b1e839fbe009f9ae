"""Artefacts at work: schedules and optimizer steps in onnxruntime, without torch."""

from closedform.runtime.optimizer import OptimizerSession
from closedform.runtime.schedule import ScheduleSession

__all__ = ["OptimizerSession", "ScheduleSession"]
