"""All faults in the backward of all rules; `make compare` stores their number."""

from __future__ import annotations

import pytest

from closedform.training.gradients.rules import RULES
from docs import build_training_operators as build
from tests.training.gradient_faults import planted_faults
from tests.training.test_gradients import WITH_GRADIENTS

_SLOW = (
    "nn.functional.group_norm",
    "nn.functional.instance_norm",
    "nn.functional.local_response_norm",
)
"""Rules with a verdict in 5 to 10 s, of which some faults are tried."""


@pytest.mark.filterwarnings("ignore")
def test_no_fault_of_any_rule_is_proved() -> None:
    """No fault is proved, so that the number of faults that are proved is stored as 0."""
    total = 0
    for name in WITH_GRADIENTS:
        count = planted_faults(RULES[name], most=8 if name in _SLOW else None)
        total += count
        print(f"{name}: {count} faults, 0 proved", flush=True)
        assert count >= 2, name
    build.store_faults(total, len(WITH_GRADIENTS), 0)
    print(f"{total} faults in {len(WITH_GRADIENTS)} rules, 0 proved")
