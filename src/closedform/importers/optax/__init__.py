"""Schedules and update rules of optax, from the jaxprs of their functions."""

from closedform.importers.optax.rules import trace_transformation
from closedform.importers.optax.schedule import trace_schedule

__all__ = ["trace_schedule", "trace_transformation"]
