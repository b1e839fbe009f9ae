"""NumPy, which is only imported where a value of it may be.

Until something imports NumPy there is no array and no scalar of it, so that its classes have no
instances. A curve of a framework is traced without it: the import takes 50 ms.

Example:
    >>> from closedform.importers.python.lazy_numpy import np
    >>> isinstance(1.5, np.ndarray)
    False
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["np"]


class _NoValue:
    """The class of values that cannot exist."""


_CLASSES = {"bool_", "float64", "floating", "generic", "integer", "ndarray", "number", "ufunc"}


class _LazyNumPy:
    """The attributes of NumPy; until it is imported, classes of its values have no instances."""

    def __getattr__(self, name: str) -> Any:
        if name in _CLASSES and not hasattr(sys.modules.get("numpy"), name):
            return _NoValue
        value = getattr(importlib.import_module("numpy"), name)
        setattr(self, name, value)  # so that it is looked up once
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _LazyNumPy()
