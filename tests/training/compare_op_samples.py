"""Every differentiable operator of torch's table: trained as in torch, or refused by name.

The results go to tools/results/training_operators.json; `make operators` writes the page. An
interrupted run goes on where it stopped.
"""

import json
import re

import pytest
import torch

from tests.proofs.gradients.torch_rules.rules import RULES, kind_of
from tests.support.stored_results import StoredResults
from tests.training.op_samples import Result, operators, outcome, samples, variants
from tools import build_training_operators as build


def _reason(text: str) -> str:
    """The reason of a refusal without the place, in one line of a table."""
    text = text.split(", in ")[0].split(" (model Sample)")[0].replace("|", "/")
    operator = re.match(r"the operator (\S+)\.\w+(?: of \S+)? (has no ONNX form.*)", text)
    if operator is not None:
        return f"`{operator[1]}` {operator[2]}"
    if "control flow" in text or "depend on data" in text:
        return "control flow or sizes that depend on data"
    return text


DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


RESULTS = StoredResults(
    "operators",
    ["src/closedform/training", "tests/training/op_samples.py"],
    ["torch", "onnxruntime", "onnxscript"],
)
CASES = [(word, name) for word, dtype in DTYPES.items() for name in operators(dtype)]


def _outcomes_of(word: str, name: str) -> list[list[str]]:
    """For each sample of an operator its kind, the result, and the reason of a refusal."""
    return list(json.loads(RESULTS.result(f"{word} {name}", lambda: _compare(word, name))))


def _compare(word: str, name: str) -> str:
    dtype = DTYPES[word]
    op = operators(dtype)[name]
    first = [("first", sample) for sample in samples(op, dtype=dtype)]
    outcomes = []
    for kind, sample in (*first, *variants(op, dtype).items()):
        result = outcome(op, sample)
        assert result.result not in (Result.WRONG, Result.FOREIGN), f"{kind}: {result.text}"
        reason = _reason(result.text) if result.result is Result.REFUSED else ""
        outcomes.append([kind, result.result, reason])
    return json.dumps(outcomes)


# Samples of torch use what torch deprecates or calls beta.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("word", "name"), CASES)
def test_an_operator_matches_or_is_refused(word: str, name: str) -> None:
    if not _outcomes_of(word, name):
        pytest.skip("torch has no dense sample of it with a gradient")


@pytest.mark.filterwarnings("ignore")
def test_the_results_are_stored() -> None:
    entries: dict[str, list[str]] = {}
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for word, name in CASES:
        for kind, result, reason in _outcomes_of(word, name):
            results = counts.setdefault(word, {}).setdefault(kind, {})
            results[result] = results.get(result, 0) + 1
            if (word, kind) == ("f32", "first"):
                entries[name] = [result, reason]
    print(json.dumps(counts, indent=1))
    functions = {name: operators()[name].name for name in entries}
    before = json.loads(build.RESULTS.read_text(encoding="utf-8"))
    stored = {
        "torch": torch.__version__.split("+")[0],
        "counts": counts,
        "entries": entries,
        "functions": functions,
        "faults": before.get("faults"),
        "gradients": {name: kind_of(rule) for name, rule in sorted(RULES.items())},
    }
    build.RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    build.PAGE.write_text(build.page(), encoding="utf-8")
