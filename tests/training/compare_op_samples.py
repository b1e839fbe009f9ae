"""Every differentiable operator of torch's table: trained as in torch, or refused by name.

The results go to ``docs/training_operators.json``, from which ``docs/build_training_operators.py``
writes the page.
"""

from __future__ import annotations

import json
import re

import pytest
import torch

from closedform.training.gradients.rules import RULES, kind_of
from docs import build_training_operators as build
from tests.training.op_samples import Result, operators, outcome, samples, variants


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


# Samples of torch use what torch deprecates or calls beta.
@pytest.mark.filterwarnings("ignore")
def test_operators_match_or_are_refused() -> None:
    entries: dict[str, list[str]] = {}
    counts: dict[str, dict[str, dict[str, int]]] = {}
    wrong = []
    for word, dtype in DTYPES.items():
        for name, op in operators(dtype).items():
            first = [("first", sample) for sample in samples(op, dtype=dtype)]
            for kind, sample in (*first, *variants(op, dtype).items()):
                found = outcome(op, sample)
                print(f"{name} {word} {kind}: {found.result}", flush=True)
                if found.result in (Result.WRONG, Result.FOREIGN):
                    wrong.append(f"{name} {word} {kind}: {found.result}: {found.text}")
                results = counts.setdefault(word, {}).setdefault(kind, {})
                results[found.result] = results.get(found.result, 0) + 1
                if (word, kind) == ("f32", "first"):
                    reason = _reason(found.text) if found.result is Result.REFUSED else ""
                    entries[name] = [found.result, reason]
    assert not wrong, "\n".join(wrong)
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
