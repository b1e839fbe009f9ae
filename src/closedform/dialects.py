"""Deprecated: use ``closedform.frameworks``."""

from closedform.deprecation import deprecated_names

_HOME = "closedform.recipes.frameworks"
_NAMES = (
    "REQUIRED",
    "Names",
    "configure_lr_scheduler",
    "configure_optimizer",
    "configure_optimizer_params",
    "configure_param_groups",
    "configure_param_groups_2_2",
    "configure_scheduler",
    "configure_scheduler_params",
    "known_as",
    "layer_decay_groups",
    "metric_rule",
    "names",
    "optimizer",
    "own_schedule",
    "schedule",
    "schedules",
    "wsd_plan",
)

__getattr__ = deprecated_names(
    __name__,
    {"DIALECTS": f"{_HOME}:FRAMEWORKS", **{name: f"{_HOME}:{name}" for name in _NAMES}},
)
