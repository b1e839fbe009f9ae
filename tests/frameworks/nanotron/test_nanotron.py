"""The length of nanotron's decay."""

import pytest

from closedform.errors import DefinitionError
from closedform.frameworks import schedule


def test_a_decay_without_steps_needs_the_length_of_the_run() -> None:
    scheduler = {"learning_rate": 1, "lr_warmup_style": "linear"}
    config = {"learning_rate_scheduler": scheduler, "tokens": {}}
    with pytest.raises(DefinitionError, match=r"^train_steps is missing \("):
        schedule("nanotron", "linear", config)
