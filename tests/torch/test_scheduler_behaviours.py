"""Each behaviour of torch's own scheduler tests, observed with torch's classes and with ours."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.torch.scheduler_behaviours import OURS, THEIRS, Behaviour, Observe, behaviours, table

CASES = [
    pytest.param(one, observe, id=f"{one.name}-{number}")
    for one in behaviours()
    for number, observe in enumerate(one.observations)
]


def _observed(observe: Observe, library: Any) -> Any:
    try:
        return observe(library)
    except Exception as error:  # an observation as well
        return type(error)


def _is_same(got: Any, wanted: Any) -> bool:
    try:
        # A hundred recursions of float64, and 1 + cos as small as 0.01 near the end of a phase.
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-14)
    except (AssertionError, TypeError):
        return bool(got == wanted)
    return True


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("behaviour", "observe"), CASES)
def test_a_behaviour_of_torchs_suite_is_the_same_or_deliberately_different(
    behaviour: Behaviour, observe: Observe
) -> None:
    wanted = observe(THEIRS)
    got = _observed(observe, OURS)
    assert _is_same(got, wanted) == (behaviour.different is None), f"{got}, not {wanted}"


def test_the_documentation_has_the_table_of_behaviours() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "torch.md").read_text()
    assert table() in text, "python -m tests.torch.scheduler_behaviours prints the table"
