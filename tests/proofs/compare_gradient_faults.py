"""Faults in the backward of all rules; `make compare` stores their number.

An interrupted run goes on where it stopped: build/results has the number of faults by rule.
"""

import pytest

from tests.proofs.gradient_faults import planted_faults
from tests.proofs.gradients.torch_rules.rules import RULES
from tests.proofs.test_gradients import WITH_GRADIENTS
from tests.support.stored_results import StoredResults
from tools import build_training_operators as build

_SLOW = (
    "nn.functional.group_norm",
    "nn.functional.instance_norm",
    "nn.functional.local_response_norm",
)
"""Rules with a verdict in 5 to 10 s, of which some faults are tried."""
RESULTS = StoredResults(
    "gradient_faults",
    [
        "src/closedform/training",
        "src/closedform/verify",
        *(f"tests/training/{name}.py" for name in ("gradient_faults", "test_gradients")),
    ],
    ["torch", "onnxscript", "sympy", "z3-solver"],
)


def _number_of_faults(name: str) -> int:
    """The faults that are planted in a rule, of which none is proved."""
    most = 8 if name in _SLOW else None
    return int(RESULTS.result(name, lambda: str(planted_faults(RULES[name], most=most))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_no_fault_of_a_rule_is_proved(name: str) -> None:
    assert _number_of_faults(name) >= 2


def test_the_faults_are_counted() -> None:
    """No fault is proved, so that the number of faults that are proved is stored as 0."""
    total = sum(map(_number_of_faults, WITH_GRADIENTS))
    build.store_faults(total, len(WITH_GRADIENTS), 0)
    print(f"{total} faults in {len(WITH_GRADIENTS)} rules, 0 proved")
