"""The table of back ends that the common suite runs: one row each.

The suite is ``tests/exporters/test_ops.py``, each op at special values, and
``tests/test_library.py``, each schedule and rule of the library at the same points. A result is
compared with that of the evaluator, within what the op table admits for the ops of the graph, and
what the row of the back end adds. ``tools/build_runtimes.py`` writes the page of the results.
"""

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from closedform.errors import ExportError
from closedform.exporters.c_header import rule_header
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, Shape
from closedform.language import UpdateRule
from closedform.options import GraphOptions
from tests.support.c_programs import prepare_c, run_c
from tests.support.engines import (
    Arrays,
    run_evaluator,
    run_jax,
    run_mlx,
    run_onnxruntime,
    run_torch,
    steps_apart,
)


def _nothing(_: Iterable[Graph]) -> None:
    """Prepares nothing."""


def _accepted(_: UpdateRule) -> None:
    """Refuses nothing."""


def _no_refusal(_: Graph) -> str:
    return ""


def _unchanged(array: Array) -> Array:
    return array


@dataclass(frozen=True, slots=True)
class Backend:
    """One back end.

    Attributes:
        tables: The parts of its op table, each as ``module:NAME`` below ``closedform.exporters``.
        run: Compiles a graph and returns its outputs by name.
        options: Those that its public function compiles with: keywords of ``GraphOptions``.
        prepare: Told the graphs that will be run, to compile them together.
        needs: Modules that must be installed to run it; in ``make test`` it is left out without.
        programs: Programs of which one must be on the path.
        refuses: A part of the message of the ExportError of a graph that it cannot express, or "".
        check_rule: Raises the ExportError of its public function for a rule that it cannot express.
        params: The shapes of the parameters that rules are compiled for, if not those of the suite.
        canonical: What it takes a value for, such as zero for a subnormal number.
        ulp: What its ops may be off beyond the op table, with ``reason``.
        reason: The reason for ``ulp``.
    """

    tables: tuple[str, ...]
    run: Callable[[Graph, Arrays], Mapping[str, Array]]
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Iterable[Graph]], None] = _nothing
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    refuses: Callable[[Graph], str] = _no_refusal
    check_rule: Callable[[UpdateRule], object] = _accepted
    params: Mapping[str, Shape] | None = None
    canonical: Callable[[Array], Array] = _unchanged
    ulp: Mapping[Op, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether it can run here."""
        has_program = not self.programs or any(map(shutil.which, self.programs))
        return has_program and all(importlib.util.find_spec(name) for name in self.needs)

    def ops(self) -> list[Op]:
        """Returns the ops of its table, in all its parts."""
        found: list[Op] = []
        for table in self.tables:
            module, _, name = table.partition(":")
            found += getattr(importlib.import_module(f"closedform.exporters.{module}"), name)
        return found


def _c_refusal(graph: Graph) -> str:
    """C functions are of numbers and of arrays of one size, in types that C11 has."""
    types = [node.type for node in graph.nodes]
    sizes = {kind.shape for node in graph.inputs if (kind := node.type).shape}
    is_flat = all(kind.rank <= 1 for kind in types) and len(sizes) <= 1
    is_shaped = any(
        node.op in C_SHAPED
        or (node.op is Op.REDUCE_SUM and node.type.shape)
        or (node.op is Op.LOOKUP and graph.nodes[node.operands[0]].op is not Op.CONST)
        for node in graph.nodes
    )
    if not is_flat or is_shaped:
        return "C functions are written for numbers and flat arrays"
    has_halves = any(kind.dtype is DType.F16 for kind in types)
    return "C11 has no type for" if has_halves else ""


def _c_rule(rule: UpdateRule) -> None:
    rule_header(rule, GraphOptions())


def _torch_rule(rule: UpdateRule) -> None:
    from closedform.exporters.torch_rule import check_functional

    check_functional(rule)


def _mlx_rule(rule: UpdateRule) -> None:
    from closedform.api.mlx import to_mlx

    to_mlx(rule)


C_SHAPED = {
    *(Op.REDUCE_MAX, Op.MATMUL, Op.TRANSPOSE, Op.RESHAPE, Op.BROADCAST_TO, Op.SLICE, Op.CONCAT)
}


def _mlx_refusal(graph: Graph) -> str:
    is_wide = any(node.type.dtype is DType.F64 for node in graph.nodes)
    return "which MLX has only on CPUs" if is_wide else ""


def _without_subnormals(array: Array) -> Array:
    """XLA on CPUs takes subnormal numbers as zero; the graph language leaves them as they are."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    is_subnormal = (array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)
    return np.where(is_subnormal, array.dtype.type(0), array)


IN_PAIRS: Mapping[str, Any] = MappingProxyType(
    {"dtype": "f32", "scalar_dtype": "f32", "step_dtype": "i32", "precision": "double-float"}
)
"""The keywords of ``closedform.options.IN_PAIRS``."""

BACKENDS: Mapping[str, Backend] = {
    "onnxruntime": Backend(("onnx_ops:ONNX_OPS",), run_onnxruntime),
    "onnxruntime, optimized": Backend(
        ("onnx_ops:ONNX_OPS",), partial(run_onnxruntime, is_optimized=True)
    ),
    "torch": Backend(("torch_ops:TORCH_OPS",), run_torch, check_rule=_torch_rule, needs=("torch",)),
    "JAX": Backend(
        ("jax_ops:JAX_OPS",),
        run_jax,
        needs=("jax",),
        canonical=_without_subnormals,
        ulp={Op.ADD: 1.0, Op.SUB: 1.0, Op.MUL: 1.0, Op.DIV: 1.0},
        reason="XLA combines constants, contracts products and sums, and multiplies by the inverse "
        "of a constant divisor",
    ),
    "C": Backend(
        ("c_ops:C_OPS", "c_ops:C_STATEMENTS", "c_ops:C_REFUSED"),
        run_c,
        prepare=prepare_c,
        programs=("cc", "gcc", "clang"),
        refuses=_c_refusal,
        check_rule=_c_rule,
        params={"w": (12,)},
    ),
    "MLX": Backend(
        ("mlx_ops:MLX_OPS",),
        run_mlx,
        needs=("mlx",),
        options=IN_PAIRS,
        refuses=_mlx_refusal,
        check_rule=_mlx_rule,
    ),
}
INSTALLED = {name: backend for name, backend in BACKENDS.items() if backend.is_installed}


def tolerance(
    graph: Graph, scale: float, dtype: DType, more: Mapping[Op, float] = MappingProxyType({})
) -> float:
    """The sum of the errors of a graph's inexact ops, in units in the last place of the scale.

    Twice, since two engines may differ to either side; a value and its partial sums share a scale
    in every entry of the library. ``more`` is what the ops of an engine may be off beyond the op
    table.
    """
    ulps = sum(OPS[node.op].ulp + more.get(node.op, 0) for node in graph.nodes)
    return 2 * ulps * float(np.spacing(np.array(scale, dtype.numpy)))


def differences(
    graph: Graph, given: Arrays, dtype: DType, backends: Mapping[str, Backend]
) -> list[str]:
    """Returns how back ends differ from the evaluator on a graph of the library, in words.

    Args:
        graph: The graph.
        given: The inputs.
        dtype: The dtype whose roundings the float outputs have.
        backends: The back ends by name.
    """
    found: list[str] = []
    for name, backend in backends.items():
        refusal = backend.refuses(graph)
        inputs = {key: backend.canonical(np.asarray(value)) for key, value in given.items()}
        try:
            results = backend.run(graph, inputs)
        except ExportError as error:
            if not refusal or refusal not in str(error):
                found.append(f"{name}: {error}")
            continue
        if refusal:
            found.append(f"{name}: should be refused, and ran")
            continue
        expected = run_evaluator(graph, inputs)
        for key, value in expected.items():
            said = _difference(
                graph, np.asarray(results[key]), backend.canonical(value), dtype, backend
            )
            found += [f"{name}: {key} is {said}"] if said else []
    return found


def _difference(
    graph: Graph, result: Array, expected: Array, dtype: DType, backend: Backend
) -> str:
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return f"{result.dtype}{result.shape}, not {expected.dtype}{expected.shape}"
    limit = 0.0
    if np.issubdtype(expected.dtype, np.floating):
        scale = float(np.abs(expected).max(initial=0.0))
        limit = tolerance(graph, scale, dtype, backend.ulp)
    if np.abs(result - expected).max(initial=0) <= limit:
        return ""
    return f"{steps_apart(result, expected):.3g} ulp away, {limit:.3g} allowed"
