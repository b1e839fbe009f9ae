"""TensorBoard's event files, read by the loader of the package ``tensorboard``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from closedform.errors import ConfigError
from closedform.files import check_regular


def event_rows(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields each step with the scalars that were written for it, as float32 in full digits.

    Args:
        path: An event file, or a folder with several, which are read in the order of their names.

    Raises:
        ConfigError: The package ``tensorboard`` is not installed, or the file is damaged.
    """
    try:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    except ImportError as error:
        raise ConfigError(
            f"{error.name or 'tensorboard'}, which reads event files, is not installed",
            where=str(path),
            hint='pip install "closedform[tensorboard]", or download the scalar as CSV',
        ) from error
    files = sorted(path.glob("*tfevents*")) if path.is_dir() else [path]
    for file in files:
        check_regular(file, ConfigError)
    if not all(file.is_file() for file in files):
        raise ConfigError("there is no such file", where=str(path))
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    by_step: dict[int, dict[str, str]] = {}
    for file in files:
        try:
            for event in LegacyEventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    number = _scalar(value)
                    if number is not None:
                        by_step.setdefault(int(event.step), {})[str(value.tag)] = repr(number)
        except Exception as error:
            # The loader raises what its record reader and protobuf raise, which share no class.
            raise ConfigError(f"this is not an event file: {error}", where=str(file)) from error
    # A restarted run writes steps again: the last value of a step counts.
    for step in sorted(by_step):
        yield str(step), by_step[step]


def _scalar(value: Any) -> float | None:
    """The number of a scalar summary, in its former field or as a tensor; None for the others."""
    # torch's SummaryWriter writes simple_value, TensorFlow 2 a tensor without dimensions.
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
        return None
    if value.tensor.float_val:
        return float(value.tensor.float_val[0])
    return float(value.tensor.double_val[0]) if value.tensor.double_val else None
