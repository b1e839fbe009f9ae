"""How accurate schedules are, in each back end and precision and in other packages.

``make accuracy`` runs it and writes ``tools/results/accuracy.json``; ``tools/build_accuracy.py``
then writes the page. Exact values are enclosed by balls of 128 bits, once for each schedule.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform.compiler import compile_schedule
from closedform.ir.graph import Graph
from closedform.ir.types import LAST_STEP, DType
from closedform.language import Schedule
from closedform.options import GraphOptions
from closedform.verify.certificates.measure import Measured, measure
from closedform.verify.certificates.values import ExactValues
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from tests.numerics.long_runs import (
    EXHAUSTIVE,
    FACTOR,
    PEAK,
    compared_steps,
    long_runs,
    peers,
)
from tests.support.backends import BACKENDS, IN_PAIRS
from tests.support.study import STUDY

RESULTS = Path(__file__).parents[2] / "tools" / "results" / "accuracy.json"

PRECISIONS: dict[str, dict[str, Any]] = {
    "float64": {"dtype": "f64"},
    "float32 of float64 scalars": {"dtype": "f32"},
    "double-float": dict(IN_PAIRS) | {"step_dtype": "i64"},
    "float32": {"dtype": "f32", "scalar_dtype": "f32"},
}
# MLX has float64 on CPUs only, and its back end is compiled in pairs. `to_jax` chooses the scalars:
# float64 where JAX computes in 64 bits, else pairs on integers of 32 bits.
PRECISIONS_OF = {"MLX": ("double-float",), "JAX": tuple(PRECISIONS)[:3]}
# The C functions of schedules take one step, and of graphs with an axis have no lookup of rows.
NOT_MEASURED = {("C", "table"), ("C", "refined")}
DTYPES = {np.dtype(np.float32): DType.F32, np.dtype(np.float64): DType.F64}


def summary(measured: Measured) -> dict[str, Any]:
    """Returns the row of the stored results."""
    return {
        "steps": measured.steps,
        "ulp": [float(f"{measured.ulp.value:.6g}"), measured.ulp.step],
        "ulp_of_scale": [float(f"{measured.ulp_of_scale.value:.6g}"), measured.ulp_of_scale.step],
        "misrounded": measured.steps - measured.rounded,
        "first_misrounded": list(measured.misrounded),
    }


def in_jax(schedule: Schedule, precision: str, steps: NDArray[np.int64]) -> NDArray[Any]:
    """Returns the values of the jitted function of ``to_jax``."""
    import jax

    from closedform.exporters.jax_schedule import jax_schedule

    with jax.enable_x64(precision != "double-float"):
        dtype = DType.F32 if precision == "float32 of float64 scalars" else None
        function = jax.jit(jax_schedule(schedule, dtype))
        return np.asarray(function(jax.numpy.asarray(steps)))


def run(backend: str, graph: Graph, steps: NDArray[np.int64]) -> NDArray[Any]:
    """Returns the values of a graph, in torch by chunks that stay in the cache."""
    dtype = graph.inputs[0].type.dtype.numpy
    chunk = LIMITS.certificate_chunk if backend == "torch" else len(steps)
    parts = [
        BACKENDS[backend].run(graph, {"step": steps[start : start + chunk].astype(dtype)})
        for start in range(0, len(steps), chunk)
    ]
    return np.concatenate([np.asarray(values["value"]) for values in parts])


def store(section: str, name: str, rows: dict[str, Any]) -> None:
    """Writes rows of a section, and leaves those of other names."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    stored |= {"factor": FACTOR, "peak": PEAK}
    stored.setdefault(section, {})[name] = rows
    RESULTS.write_text(json.dumps(stored, indent=None, sort_keys=True) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", long_runs())
def test_schedule_in_every_back_end_and_precision(name: str) -> None:
    schedule: Schedule = long_runs()[name]
    values = ExactValues(term(schedule.bound))
    steps = compared_steps(schedule, values.starts, LAST_STEP[DType.I64])
    high, low = values.at([int(step) for step in steps])
    rows: dict[str, Any] = {}
    for backend in BACKENDS:
        assert BACKENDS[backend].is_installed, f"{backend} is not installed"
        for precision in PRECISIONS_OF.get(backend, tuple(PRECISIONS)):
            has_small_clock = backend == "JAX" and precision == "double-float"
            count = np.searchsorted(steps, 2**31) if has_small_clock else len(steps)
            chosen = steps[:count]
            if backend == "JAX":
                outputs = in_jax(schedule, precision, chosen)
            else:
                options = GraphOptions(**PRECISIONS[precision], step_shape=("n",))
                graph = compile_schedule(schedule, options)
                if BACKENDS[backend].refuses(graph):
                    assert (backend, name) in NOT_MEASURED
                    continue
                outputs = run(backend, graph, chosen)
            dtype = DTYPES[outputs.dtype]
            with np.errstate(all="ignore"):
                measured = measure(
                    chosen, outputs, high[:count], low[:count], dtype, values.at_step
                )
            assert np.isfinite(measured.ulp_of_scale.value), (backend, precision)
            rows[f"{backend}, {precision}"] = summary(measured)
    store("schedules", name, rows)


@pytest.mark.parametrize("package", ["torch", "transformers", "optax", "Keras", "MLX"])
def test_formula_of_another_package(package: str) -> None:
    steps = np.arange(EXHAUSTIVE)
    rows = {}
    for owner, name, function in peers():
        if owner == package:
            values = ExactValues(term(STUDY[name].bound))
            high, low = values.at(range(EXHAUSTIVE))
            outputs = function(steps)
            rows[name] = summary(
                measure(steps, outputs, high, low, DTYPES[outputs.dtype], values.at_step)
            ) | {"dtype": str(outputs.dtype)}
    assert rows
    store("packages", package, rows)
