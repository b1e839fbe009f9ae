"""``closedform rescale``, and certificates of ``closedform verify``."""

import json
from pathlib import Path

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


def test_a_claim_with_one_goal_is_named_once() -> None:
    (line,) = (
        line
        for line in run("verify", *COSINE, "--check").splitlines()
        if line.startswith("UNCERTIFIED")
    )
    assert line.count("no value overflows") == 1


def test_a_certificate_says_that_the_file_is_its_source(tmp_path: Path) -> None:
    """Both terms are in the claim: the file has the cosine in another form."""
    words = ("cosine", "--start", "3e-4", "--end", "3e-5", "--steps", "1000")
    output = run("verify", *words, "--certificate", tmp_path)
    assert "PROVED it is equal to 'cosine.onnx'" in output
    claims = (tmp_path / "cosine_claims.v").read_text(encoding="utf-8")
    _, _, equality = claims.partition("(* it is equal to 'cosine.onnx'")
    statement = equality.partition("Theorem claim :")[2].partition("Proof")[0]
    left, _, right = statement.partition(" = ")
    assert "cospi" in left
    assert "cospi" in right
    assert left.strip() not in right
