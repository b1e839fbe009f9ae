"""A page with every schedule of the library, its curve computed by its own ONNX graph."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sympy as sp

from closedform import schedules
from closedform.compiler import compile_schedule
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_model import to_model, write_model
from closedform.ir.graph import Graph
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.options import GraphOptions
from closedform.recipes import frameworks
from closedform.schedules.examples import EXAMPLES, Example
from closedform.verify.claims.standard import verify_schedule
from closedform.web.folder import copy_assets, copy_katex, copy_runtime, write_folder

_ASSETS = ("gallery.js", "trainer.js", "chart.js", "style.css")
_SHOWN = ("total", "finite", "bounded", "non_negative", "continuous", "where_safe")
"""The claims that a card shows."""


def write_gallery(
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    packages: str | os.PathLike[str] | None = None,
) -> Path:
    """Writes the page and returns the path of its ``index.html``.

    Each schedule of ``closedform.schedules.examples`` is a card with formula, sliders, curve,
    verdicts and the graph for download. The page needs a static file server and no network access.

    Args:
        folder: The folder of the page; an existing page is replaced.
        names: The schedules to show; all if None.
        packages: The node_modules folder with onnxruntime-web and katex; searched for upward from
            the current folder if None.

    Raises:
        ExportError: An npm package is missing, or the folder contains other files.
    """
    chosen = {name: EXAMPLES[name] for name in EXAMPLES if names is None or name in names}

    def fill(made: Path) -> None:
        npm = None if packages is None else Path(packages)
        copy_runtime(made, npm)
        copy_katex(made, npm)
        copy_assets(made, _ASSETS)
        copy_assets(made, ("gallery.html",))
        (made / "gallery.html").rename(made / "index.html")
        (made / "graphs").mkdir()
        entries = [_card(name, example, made) for name, example in chosen.items()]
        manifest = json.dumps({"entries": [entry for entry in entries if entry]}, indent=1)
        (made / "manifest.json").write_text(manifest, encoding="utf-8")

    write_folder(Path(folder), fill)
    return Path(folder) / "index.html"


def _card(name: str, example: Example, folder: Path) -> dict[str, Any] | None:
    """The contents of a card; None for an example that is not a function of the step alone."""
    schedule = example.make()
    if not isinstance(schedule, Schedule):
        return None
    symbols = _open_symbols(schedule)
    graph = _graph(schedule, symbols)
    file = f"graphs/{name}.onnx"
    write_model(to_model(graph), folder / file)
    dtypes = {node.attribute("name"): node.type.dtype for node in graph.inputs}
    function = getattr(schedules, name)
    return {
        "name": name,
        "family": function.__module__.rpartition(".")[2].replace("_", " "),
        "summary": _first_line(function),
        "code": example.call,
        "latex": schedule.latex(),
        "steps": example.steps,
        "clock": dtypes["step"].numpy.name,
        "file": file,
        "inputs": [
            _slider(symbol, schedule.hyperparameters[symbol.name], dtypes[symbol.name].numpy.name)
            for symbol in symbols
        ],
        "verdicts": [
            {"claim": finding.claim.name, "verdict": finding.shown, "sentence": str(finding.claim)}
            for finding in verify_schedule(schedule)
            if finding.claim.name in _SHOWN
        ],
        "systems": _names_elsewhere(name),
    }


def _first_line(function: Callable[..., Any]) -> str:
    line = (inspect.getdoc(function) or "").partition("\n")[0].removeprefix("Returns ")
    line = line.replace("``", "")
    return line[:1].upper() + line[1:]


def _open_symbols(schedule: Schedule) -> list[sp.Symbol]:
    """The hyperparameters that can be inputs of the graph: all, or a maximal set that compiles."""
    symbols = sorted(schedule.expr.free_symbols - {t}, key=lambda symbol: symbol.name)
    if _compiles(schedule, symbols):
        return symbols
    chosen: list[sp.Symbol] = []
    for symbol in symbols:
        if _compiles(schedule, [*chosen, symbol]):
            chosen.append(symbol)
    return chosen


def _graph(schedule: Schedule, symbols: Sequence[sp.Symbol]) -> Graph:
    inputs = [symbol.name for symbol in symbols]
    return compile_schedule(schedule, GraphOptions(step_shape=("n",), inputs=inputs))


def _compiles(schedule: Schedule, symbols: Sequence[sp.Symbol]) -> bool:
    try:
        to_model(_graph(schedule, symbols))
    except ClosedFormError:
        return False
    return True


def _slider(symbol: sp.Symbol, value: sp.Expr, dtype: str) -> dict[str, Any]:
    """A range around a value: counts from 1, fractions in [0, 1], others from 0 to twice that."""
    number = to_float(value)
    if symbol.is_integer:
        return _range(symbol, dtype, number, min(1, number), max(4, 3 * number))
    if number == 0:
        return _range(symbol, dtype, 0, 0, 1)
    far = 1 if 0.5 <= number <= 1 else 2 * number
    low = far / 200 if symbol.is_positive else min(0, far)
    return _range(symbol, dtype, number, low, max(0, far))


def _range(symbol: sp.Symbol, dtype: str, value: float, low: float, high: float) -> dict[str, Any]:
    return {
        "name": symbol.name,
        "dtype": dtype,
        "value": value,
        "low": low,
        "high": high,
        "step": 1 if symbol.is_integer else "any",
    }


def _names_elsewhere(name: str) -> list[str]:
    """The names of the schedule in other frameworks."""
    known = frameworks.known_as(name)
    return [f"{framework}:{alias}" for framework, names in known.items() for alias in names]
