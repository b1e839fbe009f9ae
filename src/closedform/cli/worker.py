"""The process that looks at a file: ``python -m closedform.cli.worker``, started by ``verify``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from closedform.errors import ArgumentError, ClosedFormError
from closedform.importers.onnx_graph import load_model
from closedform.language.rule_data import rule_of_data
from closedform.referee.file_report import Source, check_file, rule_file
from closedform.verify.isolation import answer


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the report of a file as data, or what, where and hint of an error.

    Args:
        request: ``path``, ``against`` (a source as text, or None), ``source`` (rules as data by
            parameter, or None), ``key``, ``effort``, ``budget`` (or None), ``proof`` (a folder, or
            None) and ``ports`` (a mapping or the path of one, or None).
    """
    try:
        source: Source | None = None
        if request["source"] is not None:
            rules = {param: rule_of_data(data) for param, data in request["source"].items()}
            source = rules.get("", rules)
        if request["against"] is not None:
            source = _source(request["against"], request["key"], request["path"])
    except ClosedFormError as error:
        return {"error": [error.what, error.where, error.hint], "is_usage": True}
    try:
        report = check_file(
            request["path"],
            source,
            effort=request["effort"],
            budget=request["budget"],
            ports=request["ports"],
        )
    except ClosedFormError as error:
        is_usage = isinstance(error, ArgumentError)
        return {"error": [error.what, error.where, error.hint], "is_usage": is_usage}
    return {"report": report.as_data()}


def _source(text: str, key: str, path: str) -> Source:
    """The schedule or rule that a text names; of a recipe, what the file is of."""
    from closedform.cli.arguments import SourceOptions
    from closedform.cli.sources import load_source, schedule_of
    from closedform.language import Schedule, UpdateRule

    name, *words = shlex.split(text)
    source = load_source(name, words, SourceOptions(key=key))
    if isinstance(source, Schedule | UpdateRule):
        return source
    if rule_file(load_model(Path(path))) is not None:
        return source.optimizer()
    return schedule_of(source, name, key)


if __name__ == "__main__":
    answer(work)
