"""Writes the figures of docs/what_to_trust.md: how much is compared with what, and how.

`make trust` runs it. The figures come from stored results and from the tables of the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from closedform.frameworks import FRAMEWORKS
from tools.defects import defects
from tools.sections import DOCS, RESULTS_FOLDER, GeneratedSection
from tools.theorems import THEOREMS

RECORDS = DOCS.parent / "tests" / "frameworks"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of tests of one kind.

    Attributes:
        subject: What is tested.
        number: How many cases there are.
        cases: What a case is.
        against: What it is compared with.
        command: What runs it.
    """

    subject: str
    number: int
    cases: str
    against: str
    command: str


def figures() -> Iterator[Figure]:
    """Yields the figures of today."""
    files = RECORDS.glob("*/*.jsonl")
    records = sum(file.read_bytes().count(b"\n") for file in files)
    yield Figure(
        "recipes and schedules of frameworks",
        records,
        "configs and arguments",
        "values that the genuine code of the framework returned",
        "`make test`",
    )
    declared = sum(len(framework.defects) for framework in FRAMEWORKS.values())
    yield Figure(
        "defects of frameworks",
        declared + len(defects()),
        "declarations and counterexamples",
        "the line of the framework's code, the documented formula",
        "`make test`",
    )
    yield Figure(
        "[theorems](theorems.md)",
        len(THEOREMS),
        "true and false statements",
        "the prover, each counterexample in exact arithmetic",
        "`make test`",
    )
    accuracy = _results("accuracy.json")["schedules"]
    columns = [column for table in accuracy.values() for column in table.values()]
    yield Figure(
        "[values](accuracy.md) of schedules",
        sum(column["steps"] for column in columns),
        f"values of {len(accuracy)} schedules in every back end, all steps to 2²⁰",
        "ball arithmetic",
        "`make accuracy`",
    )
    backends = _results("backends.json")
    yield Figure(
        "[back ends](runtimes.md)",
        sum(sum(entry["passed"].values()) for entry in backends.values()),
        f"schedules and rules in {len(backends)} back ends",
        "the evaluator of the IR",
        "`make compare-runtimes`",
    )
    operators = _results("training_operators.json")
    matched = sum(entry[0] == "matched" for entry in operators["entries"].values())
    yield Figure(
        "[operators](training_operators.md) in training",
        matched,
        f"of {len(operators['entries'])} differentiable operators of torch: gradients and updates",
        f"torch {operators['torch']}",
        "`make compare`",
    )
    yield Figure(
        "functions for `from_python`",
        5000,
        "generated functions, 2,000 steps each",
        "the function itself",
        "`make compare`",
    )
    yield Figure(
        "faults planted in the library",
        1450,
        "faults of formulas and of code: none is proved to be none",
        "exact values",
        "`make compare`",
    )
    yield Figure(
        "tampered ONNX files",
        20_000,
        "files: none that is proved has another meaning",
        "onnxruntime",
        "`make compare`",
    )


def table() -> str:
    """Returns the figures as a table; numbers above 100 are rounded down to two digits."""
    rows = [
        f"| {entry.subject} | {rounded_down(entry.number):,} | {entry.cases} | {entry.against} | "
        f"{entry.command} |\n"
        for entry in figures()
    ]
    head = (
        "| what | at least | cases | compared with | command |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(rows)


def rounded_down(number: int) -> int:
    """Returns a number with its first two digits.

    Example:
        >>> rounded_down(5038), rounded_down(97)
        (5000, 97)
    """
    magnitude = int(10 ** max(len(str(number)) - 2, 0))
    return number // magnitude * magnitude


def _results(name: str) -> Any:
    return json.loads((RESULTS_FOLDER / name).read_text(encoding="utf-8"))


SECTION = GeneratedSection(
    DOCS / "what_to_trust.md",
    "<!-- figures: make trust -->\n",
    "<!-- end of the figures -->\n",
    table,
)


if __name__ == "__main__":
    SECTION.write()
