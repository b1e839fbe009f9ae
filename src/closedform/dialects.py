"""Deprecated: use ``closedform.frameworks``."""

from closedform import frameworks
from closedform.deprecation import deprecated_names

_RENAMED = {"FRAMEWORKS": "DIALECTS"}

__getattr__ = deprecated_names(
    __name__,
    {_RENAMED.get(name, name): f"{frameworks.__name__}:{name}" for name in frameworks.__all__},
)
