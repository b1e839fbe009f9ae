"""The table of back ends that the common suite runs: one row each.

The suite is ``tests/exporters/test_ops.py``, each op at special values, and
``tests/test_library.py``, each schedule and rule of the library at the same points. A result is
compared with that of the evaluator, within what the op table admits for the ops of the graph.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from closedform.errors import ExportError
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType
from tests.support.engines import Arrays, run_evaluator, run_onnxruntime, run_torch, steps_apart


@dataclass(frozen=True, slots=True)
class Backend:
    """One back end.

    Attributes:
        table: Its op table, as ``module:NAME`` below ``closedform.exporters``.
        run: Compiles a graph and returns its outputs by name.
        needs: Modules that must be installed to run it; in ``make test`` it is left out without.
        programs: Programs that must be on the path.
        refuses: Entries that it cannot express, with a part of the message of its ExportError: an
            op and its label (``matmul-f64``), or the name of a schedule or rule of the library.
    """

    table: str
    run: Callable[[Graph, Arrays], Mapping[str, Array]]
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether it can run here."""
        return all(importlib.util.find_spec(name) for name in self.needs) and all(
            shutil.which(name) for name in self.programs
        )

    def op_table(self) -> Mapping[Op, object]:
        """Returns its op table."""
        module, _, name = self.table.partition(":")
        table: Mapping[Op, object] = getattr(
            importlib.import_module(f"closedform.exporters.{module}"), name
        )
        return table


BACKENDS: Mapping[str, Backend] = {
    "onnxruntime": Backend("onnx_ops:ONNX_OPS", run_onnxruntime),
    "onnxruntime, optimized": Backend(
        "onnx_ops:ONNX_OPS", partial(run_onnxruntime, is_optimized=True)
    ),
    "torch": Backend("torch_ops:TORCH_OPS", run_torch),
}
INSTALLED = {name: backend for name, backend in BACKENDS.items() if backend.is_installed}


def tolerance(graph: Graph, scale: float, dtype: DType) -> float:
    """The sum of the errors of a graph's inexact ops, in units in the last place of the scale.

    Twice, since two engines may differ to either side; a value and its partial sums share a scale
    in every entry of the library.
    """
    ulps = sum(OPS[node.op].ulp for node in graph.nodes)
    return 2 * ulps * float(np.spacing(np.array(scale, dtype.numpy)))


def differences(
    entry: str, graph: Graph, inputs: Arrays, dtype: DType, backends: Mapping[str, Backend]
) -> list[str]:
    """Returns how back ends differ from the evaluator on a graph of the library, in words.

    Args:
        entry: Name of the schedule or rule.
        graph: Its graph.
        inputs: The inputs.
        dtype: The dtype whose roundings the float outputs have.
        backends: The back ends by name.
    """
    expected = run_evaluator(graph, inputs)
    found = []
    for name, backend in backends.items():
        try:
            results = backend.run(graph, inputs)
        except ExportError as error:
            if backend.refuses.get(entry, "\0") not in str(error):
                found.append(f"{name}: {error}")
            continue
        if entry in backend.refuses:
            found.append(f"{name}: {entry!r} is listed as refused, and ran")
        for key, value in expected.items():
            limit = 0.0
            if np.issubdtype(value.dtype, np.floating):
                limit = tolerance(graph, float(np.abs(value).max(initial=0.0)), dtype)
            if results[key].dtype != value.dtype or results[key].shape != value.shape:
                kinds = (results[key].dtype, results[key].shape, value.dtype, value.shape)
                found.append(f"{name}: {key} is {kinds[0]}{kinds[1]}, not {kinds[2]}{kinds[3]}")
            elif not np.abs(results[key] - value).max(initial=0) <= limit:
                apart = steps_apart(np.asarray(results[key]), value)
                found.append(f"{name}: {key} is {apart:.3g} ulp away, {limit:.3g} allowed")
    return found
