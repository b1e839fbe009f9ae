"""Shared work of torch's ONNX exporter: its table of operators, and traces of models."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

from closedform.training.to_onnx import trace as tracing

_TRACES: dict[tuple[object, ...], tracing.Trace] = {}


@pytest.fixture(scope="session", autouse=True)
def operators_are_listed_once() -> Iterator[None]:
    """Builds the exporter's table of operators once an opset, not twice an export.

    It takes 1.5 s of the 6 s of the export of a small model. An export gets a copy.
    """
    build = ONNXRegistry.from_torchlib
    tables: dict[tuple[tuple[str, Any], ...], ONNXRegistry] = {}

    def from_torchlib(**options: Any) -> ONNXRegistry:
        key = tuple(options.items())
        if key not in tables:
            tables[key] = build(**options)
        table = copy.copy(tables[key])
        table.functions = {target: list(of) for target, of in table.functions.items()}
        return table

    with mock.patch.object(ONNXRegistry, "from_torchlib", staticmethod(from_torchlib)):
        yield


@contextlib.contextmanager
def traced_once(*key: object) -> Iterator[None]:
    """Takes the trace of an earlier export with the same key, which names model, loss and batch.

    A trace does not depend on the rule. What does depend on the rule's dtypes, an input for the
    scale of the loss, is a part of the key.
    """
    trace = tracing.trace

    def remembered(*arguments: Any, **options: Any) -> tracing.Trace:
        whole = (*key, *sorted(options.items()))
        if whole not in _TRACES:
            _TRACES[whole] = trace(*arguments, **options)
        return copy.deepcopy(_TRACES[whole])

    with mock.patch.object(tracing, "trace", remembered):
        yield
