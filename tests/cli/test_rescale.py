"""``closedform rescale``, and certificates of ``closedform verify``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from closedform.analysis.rescaling import BATCH_RULES
from closedform.cli.rescale import RULES
from tests.support.commands import CliRunner

COSINE = ("cosine", "--start", "3e-4", "--end", "0", "--steps", "1000")


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke([*map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_report_of_a_larger_batch() -> None:
    report = json.loads(run("rescale", *COSINE, "--batch", 4, "--rule", "sqrt", "--json"))
    assert (report["rate"], report["horizon"]) == (2, [1000, 250])


def test_options_are_the_rules_of_the_table() -> None:
    # The command does not import the table before it runs.
    assert sorted(RULES) == sorted(BATCH_RULES)


def test_batch_needs_a_rule() -> None:
    output = run("rescale", *COSINE, "--batch", 4, code=2)
    assert "got no --rule" in output
    assert all(rule in output for rule in RULES)


def test_word_of_an_invariant_suggests_its_name() -> None:
    words = ("--batch", 4, "--rule", "sqrt", "--keep", "warmup")
    assert "did you mean 'warmup_tokens'?" in run("rescale", *COSINE, *words, code=2)


def test_a_certificate_says_that_the_file_is_its_source(tmp_path: Path) -> None:
    """Both terms are in the claim: the file has the cosine in another form."""
    words = ("cosine", "--start", "3e-4", "--end", "3e-5", "--steps", "1000")
    output = run("verify", *words, "--certificate", tmp_path)
    assert "PROVED it is equal to 'cosine.onnx'" in output
    goals = json.loads((tmp_path / "cosine.json").read_text(encoding="utf-8"))["goals"]
    (statement,) = (goal["statement"] for goal in goals if "'cosine.onnx'" in goal["claim"])
    nodes = statement["nodes"]
    relation, (left, right), _ = nodes[statement["goal"]]
    assert relation == "="
    assert left != right
    assert all("cospi" in operators(nodes, root) for root in (left, right))


def operators(nodes: Sequence[Any], root: int) -> set[str]:
    """The operators of a term in a table of nodes."""
    operator, operands, _ = nodes[root]
    return {operator}.union(*(operators(nodes, operand) for operand in operands))
