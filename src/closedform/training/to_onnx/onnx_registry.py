"""torch's table of operators with an ONNX form, and the decompositions of those without one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.onnx._internal.exporter import _registration
from torch.onnx._internal.exporter._registration import OnnxDecompMeta, ONNXRegistry


@functools.cache
def registry(opset: int) -> ONNXRegistry:
    """Returns torch's table of operators with an ONNX form.

    torch's own constructor also reads the signature of each of the 900 functions from its source,
    half a second; its translation reads the signature of a function when it calls it.
    """
    with quiet():
        from onnxscript.function_libs.torch_lib import ops, registration
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry

        del ops  # its import fills the registration
        table = ONNXRegistry()
        table._opset_version = opset
        for meta in _torchlib_registry.get_torchlib_ops():
            table._register(meta.fx_target, meta)
        for name, functions in registration.default_registry.items():
            if name.startswith("internal::"):
                continue
            is_of_torch = name.startswith(("aten::", "prims::"))
            target: Any = name if is_of_torch else _registration._get_overload(name)
            if target is None:
                continue
            for is_complex in (False, True):
                for function in functions.complex if is_complex else functions.overloads:
                    entry = OnnxDecompMeta(
                        function, target, None, is_complex=is_complex, skip_signature_inference=True
                    )
                    table._register(target, entry)
        table._cleanup_registry_based_on_opset_version()
    return table


@functools.cache
def core_decompositions() -> dict[Any, Any]:
    """Returns torch's decompositions to the core set, which torch collects anew for each caller."""
    return dict(torch.export.default_decompositions().items())


@functools.cache
def onnx_decompositions(opset: int) -> dict[Any, Any]:
    """Returns torch's decompositions of operators without an ONNX form."""
    operator_names = registry(opset).functions
    with quiet():
        tables = core_decompositions(), torch._decomp.decomposition_table
        decompositions: dict[Any, Any] = {}
        for operator, decomposition in itertools.chain(*(table.items() for table in tables)):
            if hasattr(operator, "_schema") and operator.name() not in operator_names:
                decompositions.setdefault(operator, decomposition)
    return decompositions


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences the internal warnings of torch's exporter."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
