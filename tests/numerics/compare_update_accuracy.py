"""How accurate one update of every rule is, in each back end and in other packages.

``make accuracy`` runs it and writes ``tools/results/update_accuracy.json``, from which
``tools/build_accuracy.py`` writes its part of the page. The exact value of the next parameter is
that of the rule's formula in 60 digits, from the numbers that the engine begins with.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform.compiler import compile_step
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec
from tests.numerics.other_optimizers import OPTAX, TORCH, optax_update, torch_update
from tests.numerics.updates import (
    KINDS,
    Array,
    Case,
    cases,
    errors,
    is_separate,
    measured_shapes,
    ports,
    rules,
)
from tests.support.backends import BACKENDS
from tests.support.exact_updates import exact_param

RESULTS = Path(__file__).parents[2] / "tools" / "results" / "update_accuracy.json"

ENGINES = ("onnxruntime", "onnxruntime, optimized", "torch", "C")
EPSILON = {DType.F32: 2.0**-23, DType.F64: 2.0**-52}
# bfloat16 arrays of NumPy are none of onnxruntime's and torch's, and C11 has no 16-bit float.
SIXTEEN_BITS = {DType.BF16: ("C",), DType.F16: ("onnxruntime", "torch")}


COLUMNS = ("elements", "ulp", "ulp_of_scale", "rounded", "not_finite")


class Errors:
    """The errors of one engine over all cases of a rule, by kind of gradient."""

    def __init__(self) -> None:
        self.of_value: dict[str, list[Array]] = {}
        self.of_scale: dict[str, list[Array]] = {}

    def add(self, case: Case, exact: Array, output: Array, dtype: DType) -> None:
        """Adds those of a case."""
        of_value, of_scale = errors(exact, output, case.tensors["param"], dtype)
        for kind, part in case.kinds.items():
            self.of_value.setdefault(kind, []).append(of_value[part].ravel())
            self.of_scale.setdefault(kind, []).append(of_scale[part].ravel())

    def summary(self) -> dict[str, Any]:
        """Returns the rows of the stored results by kind of gradient, in the order of COLUMNS."""
        rows = {}
        for kind, parts in self.of_value.items():
            value, scale = np.concatenate(parts), np.concatenate(self.of_scale[kind])
            value, scale = value[~np.isnan(value)], scale[~np.isnan(scale)]
            if not value.size:
                continue  # the formula has no finite value
            # 0.5 to within the digits of the exact value: the nearest float, or one of two.
            rounded = int((value <= 0.5 + 1e-12).sum())
            overflows = int(np.isinf(value).sum())
            row = (int(value.size), _largest(value), _largest(scale), rounded, overflows)
            rows[kind] = row
        return rows


def _largest(values: Array) -> float | None:
    """The largest finite error; None where there is none."""
    finite = values[np.isfinite(values)]
    return float(f"{finite.max():.6g}") if finite.size else None


def store(section: str, name: str, rows: dict[str, Any]) -> None:
    """Writes rows of a section, and leaves those of other names."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    stored.setdefault(section, {})[name] = rows
    RESULTS.write_text(json.dumps(stored, indent=None, sort_keys=True) + "\n", encoding="utf-8")


def exact_of(rule: UpdateRule, case: Case, dtype: DType) -> Array:
    """Returns the next parameter in 60 digits."""
    unstored = replace(rule, stored=None)
    return exact_param(unstored, case.tensors, case.step, case.shared, EPSILON[dtype])


@pytest.mark.parametrize("name", rules())
def test_update_in_every_back_end(name: str) -> None:
    rule = rules()[name]
    found: dict[str, Errors] = {}
    for shape in measured_shapes(rule):
        graphs: dict[Any, Any] = {}
        for case in cases(rule, shape):
            for dtype in (DType.F32, DType.F64):
                exact = exact_of(rule, case, dtype)
                key = (dtype, exact.shape)
                if key not in graphs:
                    spec = ModelSpec(rule, {"w": exact.shape})
                    graphs[key] = compile_step(spec, GraphOptions(dtype=dtype))
                for engine in ENGINES:
                    if BACKENDS[engine].refuses(graphs[key]):
                        continue
                    outputs = BACKENDS[engine].run(graphs[key], case.inputs(ports(graphs[key])))
                    row = found.setdefault(f"{engine}, {dtype.numpy.name}", Errors())
                    row.add(case, exact, outputs["next.param.w"], dtype)
    rows = {key: row.summary() for key, row in found.items()}
    assert set(rows) >= {f"{engine}, float32" for engine in ENGINES[:3]}
    for engine, kinds in rows.items():
        assert set(kinds) == set(KINDS), engine
    store("rules", name, rows)


@pytest.mark.parametrize("name", [name for name, rule in rules().items() if is_separate(rule)])
def test_update_of_parameters_of_16_bits(name: str) -> None:
    """Parameters and gradients in 16 bits, computed in float32 and rounded once."""
    rows: dict[str, Any] = {}
    for dtype, engines in SIXTEEN_BITS.items():
        rule = replace(rules()[name], stored=str(dtype))
        found = {engine: Errors() for engine in engines}
        for case in cases(rule, (), dtype, ("random",)):
            exact = exact_of(rule, case, DType.F32)
            graph = compile_step(ModelSpec(rule, {"w": exact.shape}), GraphOptions())
            for engine in engines:
                outputs = BACKENDS[engine].run(graph, case.inputs(ports(graph)))
                found[engine].add(case, exact, outputs["next.param.w"], dtype)
        rows |= {f"{engine}, {dtype.numpy.name}": row.summary() for engine, row in found.items()}
    store("rules of 16 bits", name, rows)


def beside(
    label: str, rule: UpdateRule, update: Callable[[Case], Array], engine: str = "onnxruntime"
) -> dict[str, Any]:
    """Returns the errors of a package and of the rule, on the same tensors."""
    theirs, ours = Errors(), Errors()
    for shape in measured_shapes(rule):
        for case in cases(rule, shape):
            exact = exact_of(rule, case, DType.F32)
            graph = compile_step(ModelSpec(rule, {"w": exact.shape}), GraphOptions())
            theirs.add(case, exact, update(case), DType.F32)
            outputs = BACKENDS[engine].run(graph, case.inputs(ports(graph)))
            ours.add(case, exact, outputs["next.param.w"], DType.F32)
    # Most parameters are near at the late step, where no bias correction cancels: the package has
    # this formula.
    assert np.nanmedian(theirs.of_value["random"][-1]) < 1, label
    return {"package": theirs.summary(), "closedform": ours.summary()}


@pytest.mark.parametrize("label", TORCH)
def test_update_of_torch(label: str) -> None:
    optimizer = TORCH[label]
    rows = {
        path: beside(label, optimizer.rule, partial(torch_update, optimizer, path))
        for path in optimizer.paths
    }
    store("torch", label, rows)


@pytest.mark.parametrize("label", OPTAX)
def test_update_of_optax(label: str) -> None:
    make, rule, fields = OPTAX[label]
    store("optax", label, {"jit": beside(label, rule, partial(optax_update, make, fields))})
