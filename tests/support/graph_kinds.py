"""The six kinds of graphs that a schedule is compiled to: dtype of the scalars and of the step."""

from collections.abc import Mapping
from typing import Any

_SINGLE = {"dtype": "f32", "scalar_dtype": "f32"}
_PAIRS = {**_SINGLE, "precision": "double-float"}

KINDS: Mapping[str, Mapping[str, Any]] = {
    f"{name} {step}": {**options, "step_dtype": step}
    for name, options in {"f64": {}, "f32": _SINGLE, "pairs": _PAIRS}.items()
    for step in ("i64", "i32")
}
"""Options of GraphOptions by name, as ``pairs i32``."""
