"""``closedform rescale``, and the certificate lines of ``closedform verify --check``."""

import json

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
