"""Limits of a process: whatever happens in it, the parent gets an answer or a reason."""

import sys
import time

import pytest

from closedform.errors import VerificationError
from closedform.verify.isolation import Ended, run_limited

WORKER = "tests.support.limited"


def test_an_answer_is_data() -> None:
    request = {"does": "echo", "text": "§ ∞", "numbers": [1, 2.5, None]}
    assert run_limited(WORKER, request) == request


@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of memory are POSIX")
@pytest.mark.parametrize(
    ("does", "seconds", "reason"),
    [
        ("sleep", 1.0, "it took longer than the limit of 1 s"),
        ("memory", 20.0, "it needed more than the limit of 2 GiB of memory"),
        ("signal", 20.0, "its process was ended by SIGFPE"),
        ("raise", 20.0, "its process ended with code 1"),
        ("talk", 20.0, "its answer has more than 16777216 bytes"),
    ],
)
def test_an_end_without_an_answer_has_a_reason(does: str, seconds: float, reason: str) -> None:
    begun = time.monotonic()
    with pytest.raises(Ended, match=reason):
        run_limited(WORKER, {"does": does}, seconds=seconds)
    assert time.monotonic() - begun < seconds + 20  # a machine that others use as well


def test_a_module_that_does_not_exist() -> None:
    with pytest.raises(Ended, match="its process ended with code 1"):
        run_limited("tests.support.no_such_module", {})


def test_limits_are_above_zero() -> None:
    with pytest.raises(VerificationError, match=r"limits must be above 0, got 0 seconds and 5 byt"):
        run_limited(WORKER, {}, seconds=0, memory=5)
