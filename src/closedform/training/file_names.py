"""The names that a given ONNX file has for the values of its forward."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping

from onnx import ModelProto

NAMES = "closedform.names"
"""The key of the metadata that has the names in the file by those in the forward."""


def python_name(name: str) -> str:
    """Returns the name of an input as an argument of a forward, which is a Python identifier.

    Example:
        >>> python_name("onnx::Flatten_0")
        'onnx__Flatten_0'
    """
    # \W keeps letters of any script, which Python allows.
    plain = re.sub(r"\W", "_", name)
    if keyword.iskeyword(plain):
        return f"{plain}_"
    return plain if plain.isidentifier() else f"input_{plain}"


def output_names(count: int) -> list[str]:
    """Returns the names of the outputs of a forward."""
    return [f"output.{index}" for index in range(count)] if count > 1 else ["output"]


def mark_names(model: ModelProto, files: Mapping[str, str]) -> None:
    """Notes the names of a file in the metadata of its forward."""
    model.metadata_props.add(key=NAMES, value=json.dumps(dict(files)))


def take_names(model: ModelProto) -> dict[str, str]:
    """Removes the names of a file from the metadata of its forward, and returns them."""
    for place, entry in enumerate(model.metadata_props):
        if entry.key == NAMES:
            names: dict[str, str] = json.loads(entry.value)
            del model.metadata_props[place]
            return names
    return {}
