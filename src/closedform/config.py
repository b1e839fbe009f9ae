"""Deprecated: use ``closedform.recipes``."""

from closedform.deprecation import deprecated_names

_NAMES = ("Document", "Recipe", "load_schedules", "read_document")

__getattr__ = deprecated_names(
    __name__,
    {
        "load_config": "closedform.recipes:load_recipe",
        **{name: f"closedform.recipes:{name}" for name in _NAMES},
    },
)
