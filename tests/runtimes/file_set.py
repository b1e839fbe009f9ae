"""Files of every schedule and rule, with inputs and values, for runtimes in other environments.

``write`` makes a folder with ``index.json``; ``run_files.py`` and ``run_files.mjs`` run its files
and write a line of JSON for each, which ``compare_runtimes.py`` compares with the values.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

from benchmarks.export_library import examples
from closedform.compiler import compile_schedule, compile_step
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_model import serialize, to_model
from closedform.exporters.onnx_targets import Target
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.types import LAST_STEP, DType
from closedform.language import Schedule
from closedform.options import GraphOptions, ModelSpec
from tests.runtimes.op_probes import probes
from tests.support.backends import tolerance
from tests.support.values import encode
from tests.test_library import OPTIMIZERS, SCHEDULES, drawn_inputs

# One is beyond 32 bits; each schedule is run at those that its domain and dtype have.
STEPS = np.array([*range(130), 10**3, 10**6, 2**31 + 1])
SHAPES = {"w": (3, 4), "v": (3, 4), "b": (5,), "s": ()}


def schedules() -> Iterator[tuple[str, Schedule]]:
    """Each schedule of the library and each scheduler class of each framework."""
    for name, make in SCHEDULES.items():
        yield name, make()
    for name, source in examples():
        if ":" in name and isinstance(source, Schedule):
            yield name, source


def write(folder: Path, target: Target, options: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Writes the files for a target; returns why entries have none.

    Args:
        folder: Where they are written.
        target: The opset and the dtypes of the files.
        options: Those of ``GraphOptions``, for schedules and rules.

    The rows of the kind "probes" are the graphs of ``op_probes.py``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    refused: dict[str, dict[str, str]] = {"schedules": {}, "rules": {}}

    def add(kind: str, name: str, graph: Graph, inputs: dict[str, Any]) -> None:
        model = to_model(graph, opset=target.opset, dtypes=target.dtypes)
        file = f"{kind}-{len(rows)}.onnx"
        (folder / file).write_bytes(serialize(model))
        with np.errstate(all="ignore"):
            expected = {key: np.asarray(value) for key, value in evaluate(graph, inputs).items()}
        rows.append(
            {
                "kind": kind,
                "name": name,
                "file": file,
                "inputs": {key: encode(value) for key, value in inputs.items()},
                "expected": {key: encode(value) for key, value in expected.items()},
                "limits": {key: _limit(kind, graph, value) for key, value in expected.items()},
                "ops": Counter(str(node.op) for node in graph.nodes),
            }
        )

    for name, schedule in schedules():
        try:
            graph = compile_schedule(
                schedule, GraphOptions(step_shape=("n",), **{"dtype": "f64", **options})
            )
            kind = graph.inputs[0].type.dtype
            last = min(LAST_STEP[kind], schedule.last_step or LAST_STEP[kind])
            steps = STEPS[STEPS <= last].astype(kind.numpy)
            with np.errstate(all="ignore"):
                values = evaluate(graph, {"step": steps})["value"]
            # Some grow without bound.
            add("schedules", name, graph, {"step": steps[np.isfinite(values)]})
        except ClosedFormError as error:
            refused["schedules"][name] = str(error)
    for name, make in OPTIMIZERS.items():
        rule = make()
        least = 2 if rule.requires != sp.true else 0
        shapes = {key: shape for key, shape in SHAPES.items() if len(shape) >= least}
        try:
            graph = compile_step(ModelSpec(rule, shapes), GraphOptions(**options))
            add("rules", name, graph, drawn_inputs(graph))
        except ClosedFormError as error:
            refused["rules"][name] = str(error)
    for name, graph, given in probes(GraphOptions(**{"dtype": "f64", **options}).value_dtype):
        add("probes", name, graph, given)
    (folder / "index.json").write_text(json.dumps(rows), encoding="utf-8")
    return refused


def _limit(kind: str, graph: Graph, value: Array) -> tuple[float, float]:
    """How far a runtime may be off, as in ``tests/test_library.py``; and a unit of the values."""
    if not np.issubdtype(value.dtype, np.floating):
        return 0.0, 0.0
    dtype = DType.F32 if kind == "rules" or value.dtype == np.float32 else DType.F64
    scale = float(np.abs(value).max(initial=0.0))
    return tolerance(graph, scale, dtype), float(np.spacing(np.array(scale, dtype.numpy)))
