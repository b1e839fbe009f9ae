"""A page with every schedule of the library, its curve computed by its own ONNX graph."""

from __future__ import annotations

import ast
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sympy as sp

from closedform import frameworks, schedules
from closedform.compiler import compile_schedule
from closedform.docstrings import summary
from closedform.errors import ClosedFormError, UnknownNameError, nearest
from closedform.exporters.onnx_model import to_model, write_model
from closedform.ir.graph import Graph
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.language.symbols import exact_number
from closedform.options import GraphOptions
from closedform.schedules.examples import EXAMPLES, Example
from closedform.verify.claims.report import Report
from closedform.verify.claims.standard import verify_schedule
from closedform.web.folder import (
    COMMON_ASSETS,
    copy_assets,
    copy_katex,
    copy_runtime,
    write_folder,
)

_ASSETS = ("gallery.js", "schedule.js", "schedule.html", "curve.js")
_SHOWN = ("total", "finite", "bounded", "non_negative", "continuous", "where_safe")
"""The claims that the page of a schedule shows."""


def write_gallery(
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    packages: str | os.PathLike[str] | None = None,
) -> Path:
    """Writes the page and returns the path of its ``index.html``.

    Each schedule of ``closedform.schedules.examples`` is a card with its curve and formula, which
    opens a page with sliders, Python code, the graph for download, proofs and the names in other
    frameworks; the address of that page contains the values of the sliders. The pages need a static
    file server and no network access.

    Args:
        folder: The folder of the page; an existing page is replaced.
        names: The schedules to show; all if None.
        packages: The node_modules folder with onnxruntime-web and katex; searched for upward from
            the current folder if None.

    Raises:
        UnknownNameError: A name is not that of a schedule of the library.
        ExportError: An npm package is missing, or the folder contains other files.
    """
    for name in names or ():
        if name not in EXAMPLES:
            raise UnknownNameError(f"there is no schedule {name!r}", hint=nearest(name, EXAMPLES))
    examples = {name: EXAMPLES[name] for name in EXAMPLES if names is None or name in names}

    def fill(target: Path) -> None:
        npm = None if packages is None else Path(packages)
        copy_runtime(target, npm)
        copy_katex(target, npm)
        copy_assets(target, (*COMMON_ASSETS, *_ASSETS, "gallery.html"))
        # A static server shows index.html for the folder.
        (target / "gallery.html").rename(target / "index.html")
        (target / "graphs").mkdir()
        entries = [_card(name, example, target) for name, example in examples.items()]
        manifest = json.dumps({"entries": [entry for entry in entries if entry]}, indent=1)
        (target / "manifest.json").write_text(manifest, encoding="utf-8")

    write_folder(Path(folder), fill)
    return Path(folder) / "index.html"


def _card(name: str, example: Example, folder: Path) -> dict[str, Any] | None:
    """The contents of a card; None for an example that is not a function of only the step."""
    schedule = example.make()
    if not isinstance(schedule, Schedule):
        return None
    symbols = _open_symbols(schedule)
    graph = _graph(schedule, symbols)
    file = f"graphs/{name}.onnx"
    write_model(to_model(graph), folder / file)
    dtypes = {node.attribute("name"): node.type.dtype for node in graph.inputs}
    function = getattr(schedules, name)
    sliders = [
        _slider(symbol, schedule.hyperparameters[symbol.name], dtypes[symbol.name].numpy.name)
        for symbol in symbols
    ]
    return {
        "name": name,
        "family": function.__module__.rpartition(".")[2].replace("_", " "),
        "summary": _first_line(function),
        "code": example.call,
        "arguments": _arguments(name, example.call),
        "imports": _imports(example.call),
        "latex": schedule.latex(),
        "steps": example.steps,
        "clock": dtypes["step"].numpy.name,
        "file": file,
        "length": _length(schedule, symbols),
        "inputs": sliders,
        "verdicts": _verdicts(verify_schedule(schedule)),
        "range_verdicts": _range_verdicts(schedule, sliders) if sliders else [],
        "domain": _domain(schedule, symbols),
        "systems": _names_elsewhere(name),
    }


def _verdicts(report: Report) -> list[dict[str, str]]:
    return [
        {
            "claim": finding.claim.name,
            "verdict": finding.shown,
            "sentence": finding.claim.sentence,
            "detail": finding.detail,
        }
        for finding in report
        if finding.claim.name in _SHOWN
    ]


def _range_verdicts(
    schedule: Schedule, sliders: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """The verdicts of the claims for all values of the sliders together."""
    open_schedule = schedule.unbind(*(slider["name"] for slider in sliders))
    symbols = {symbol.name: symbol for symbol in open_schedule.expr.free_symbols}
    # The range of the sliders is the claim's assumption: the page shows nothing outside of it.
    assume = [
        condition
        for slider in sliders
        for condition in (
            symbols[slider["name"]] >= exact_number(slider["low"]),
            symbols[slider["name"]] <= exact_number(slider["high"]),
        )
    ]
    return _verdicts(verify_schedule(open_schedule, assume=assume))


def _domain(schedule: Schedule, symbols: Sequence[sp.Symbol]) -> list[dict[str, Any]]:
    """The conditions under which values of the sliders have a schedule: excess <= 0, or < 0."""
    rows = []
    for condition in schedule.domain:
        closed = condition.subs(_values(schedule, condition.free_symbols - {*symbols, t}))
        if closed in (sp.true, sp.false):
            continue
        excess = None
        if isinstance(
            closed, sp.StrictLessThan | sp.LessThan | sp.StrictGreaterThan | sp.GreaterThan
        ):
            excess = _linear_form(closed.lts - closed.gts, symbols)
        is_strict = isinstance(closed, sp.StrictLessThan | sp.StrictGreaterThan)
        rows.append({"text": str(closed), "excess": excess, "is_strict": is_strict})
    return rows


def _length(schedule: Schedule, symbols: Sequence[sp.Symbol]) -> dict[str, Any] | None:
    """The number of steps of its shape as a linear form of the inputs; None if it has none."""
    if schedule.duration is None:
        return None
    values = _values(schedule, schedule.duration.free_symbols - set(symbols))
    return _linear_form(schedule.duration.subs(values), symbols)


def _values(schedule: Schedule, symbols: Iterable[sp.Symbol]) -> dict[sp.Symbol, sp.Expr]:
    return {symbol: schedule.hyperparameters.get(symbol.name, symbol) for symbol in symbols}


def _linear_form(expr: sp.Expr, symbols: Sequence[sp.Symbol]) -> dict[str, Any] | None:
    """An expression as a constant and a multiple of each input; None if it is not linear."""
    # expand: coeff looks for the symbol in a sum only.
    expanded = sp.expand(expr)
    multiples = {symbol.name: expanded.coeff(symbol) for symbol in symbols}
    constant = expanded.subs(dict.fromkeys(symbols, 0))
    total = sp.Add(constant, *(multiples[symbol.name] * symbol for symbol in symbols))
    is_linear = all(part.is_number for part in (constant, *multiples.values()))
    # coeff(x) of x² is 0: the total then lacks a term, and the difference shows it.
    if not is_linear or sp.expand(expanded - total) != 0:
        return None
    return {
        "constant": to_float(constant),
        "multiples": {name: to_float(part) for name, part in multiples.items() if part != 0},
    }


def _first_line(function: Callable[..., Any]) -> str:
    line = summary(function)
    return line[:1].upper() + line[1:]


def _imports(call: str) -> list[str]:
    """The import statements of the names in a call."""
    names = {node.id for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Name)}
    names_used = sorted(names & set(schedules.__all__))
    lines = ["import sympy as sp"] if "sp" in names else []
    return [*lines, f"from closedform.schedules import {', '.join(names_used)}"]


def _arguments(name: str, call: str) -> list[tuple[str, str]] | None:
    """The arguments of a call by name, as text; None for an expression of another form."""
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != name:
        return None
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    try:
        bound = inspect.signature(getattr(schedules, name)).bind(*node.args, **keywords)
    except TypeError:
        return None
    return [
        (argument, ast.unparse(value))
        for argument, value in bound.arguments.items()
        if isinstance(value, ast.expr)
    ]


def _open_symbols(schedule: Schedule) -> list[sp.Symbol]:
    """The hyperparameters that can be inputs of the graph: all, or a maximal set that compiles."""
    symbols = sorted(schedule.expr.free_symbols - {t}, key=lambda symbol: symbol.name)
    # A power with an open exponent, for instance, may not compile as an input.
    if _compiles(schedule, symbols):
        return symbols
    graph_inputs: list[sp.Symbol] = []
    for symbol in symbols:
        if _compiles(schedule, [*graph_inputs, symbol]):
            graph_inputs.append(symbol)
    return graph_inputs


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
    # A fraction near 1, such as a decay rate, is at most 1; a value of 1, such as a peak, 2.
    far = 1 if 0.5 <= number < 1 else 2 * number
    # A positive symbol excludes 0; half a percent of the range is near enough to it.
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
    names_by_framework = frameworks.known_as(name)
    return [
        f"{framework}:{alias}" for framework, names in names_by_framework.items() for alias in names
    ]
