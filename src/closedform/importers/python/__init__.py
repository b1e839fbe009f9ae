"""Schedules from Python functions of the step.

``trace`` runs the function once for each path, with an expression as the step. A comparison of the
step is decided by the prover where it has one truth; otherwise the run goes on with the first part
of the steps, and another run takes the rest. What the runs return is joined to one expression,
and compared with the function.
"""

from closedform.importers.python.trace import TracedSchedule, TraceReport, trace

__all__ = ["TraceReport", "TracedSchedule", "trace"]
