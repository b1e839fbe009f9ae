"""Every schedule and rule in every back end of the table: ``make compare-runtimes``.

The results go to ``tools/results/backends.json``; ``tools/build_runtimes.py`` writes the page.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from closedform.compiler import compile_schedule, compile_step
from closedform.errors import ExportError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import Op
from closedform.ir.types import LAST_STEP, DType
from closedform.options import GraphOptions, ModelSpec
from tests.runtimes.compare_runtimes import LEAST, ROOT
from tests.runtimes.file_set import SHAPES, STEPS, schedules
from tests.runtimes.op_probes import allowed, measured, probes
from tests.support.backends import BACKENDS, Backend, differences
from tests.test_library import OPTIMIZERS, drawn_inputs, fitting

RESULTS = ROOT / "tools" / "results" / "backends.json"
Entry = tuple[str, str, Graph, dict[str, Array], DType]


def entries(backend: Backend, refused: dict[str, dict[str, str]]) -> Iterator[Entry]:
    """Kind, name, graph, inputs and dtype of each entry; notes why others are refused."""
    options = GraphOptions(**backend.options)
    for name, schedule in schedules():
        graph = compile_schedule(schedule, replace(options, step_shape=("n",)))
        kind = graph.inputs[0].type.dtype
        last = min(LAST_STEP[kind], schedule.last_step or LAST_STEP[kind])
        steps = STEPS[STEPS <= last].astype(kind.numpy)
        with np.errstate(all="ignore"):
            values = evaluate(graph, {"step": steps})["value"]
        given = {"step": steps[np.isfinite(values)]}
        yield "schedules", name, graph, given, options.value_dtype
    for name, make in OPTIMIZERS.items():
        rule = make()
        try:
            backend.check_rule(rule)
        except ExportError as error:
            refused["rules"][name] = error.what
            continue
        spec = ModelSpec(rule, fitting(rule, backend.params or SHAPES))
        graph = compile_step(spec, options)
        yield "rules", name, graph, drawn_inputs(graph), DType.F32


def probed(backend: Backend) -> dict[str, float]:
    """The probes that are further off than the op table admits; each row of ``ulp`` needs one."""
    found: dict[str, float] = {}
    needed: set[Op] = set()
    for label, graph, inputs in probes(GraphOptions(**backend.options).value_dtype):
        (result,) = backend.run(graph, inputs).values()
        error = measured(graph, inputs, np.asarray(result))
        assert error <= allowed(graph, backend.ulp), (label, error)
        if error > allowed(graph, {}):
            found[label] = round(error, 2)
            needed |= {node.op for node in graph.nodes}
    assert set(backend.ulp) <= needed
    return found


@pytest.mark.parametrize("name", BACKENDS)
def test_back_end_computes_the_values(name: str) -> None:
    backend = BACKENDS[name]
    if not backend.is_installed:
        needed = ", ".join((*backend.needs, *backend.programs))
        pytest.skip(
            f"{name} needs one of {needed}" if backend.programs else f"pip install {needed}"
        )
    over = probed(backend)
    passed = dict.fromkeys(LEAST, 0)
    refused: dict[str, dict[str, str]] = {kind: {} for kind in LEAST}
    found = list(entries(backend, refused))
    backend.prepare(graph for _, _, graph, _, _ in found)
    wrong = []
    for kind, label, graph, inputs, dtype in found:
        said = differences(graph, inputs, dtype, {name: backend})
        wrong += [f"{label}: {one}" for one in said]
        passed[kind] += not said
    assert not wrong, wrong
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[name] = {"passed": passed, "refused": refused, "note": backend.reason, "over": over}
    ordered = {key: known[key] for key in BACKENDS if key in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
