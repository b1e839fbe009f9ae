"""The float32 error of seven torch forms beside torch's own; the others are for make compare."""

import pytest

from tests.optimizers import compare_accuracy

# Bias corrections, products over the steps, a small learning rate, running means, factors, a large
# momentum, rounding to bf16.
QUICK = (
    "AdamW default",
    "NAdam wd lr=.02",
    "ASGD default",
    "RMSprop default",
    "Adafactor default",
    "SGD mom nesterov wd",
    "Muon default",
)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("key", QUICK)
def test_error_is_at_most_that_of_torch(key: str) -> None:
    compare_accuracy.check(key)


def test_table_is_that_of_the_reference() -> None:
    assert len(compare_accuracy.ROWS) == 24
    assert set(QUICK) <= set(compare_accuracy.ROWS)
