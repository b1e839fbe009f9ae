"""Schedules of LitGPT: two scripts with different keys."""

from typing import Any

import pytest

from closedform import frameworks
from closedform.errors import DefinitionError


@pytest.mark.parametrize(
    ("script", "train"),
    [
        ("pretrain", {"max_tokens": 1000, "epochs": 1}),
        *(
            ("finetune", {key: value})
            for key, value in (
                ("max_tokens", 1000),
                ("max_norm", 1.0),
                ("tie_embeddings", False),
                ("lr_warmup_fraction", 0.1),
            )
        ),
    ],
)
def test_a_schedule_of_litgpt_refuses_the_keys_of_the_other_script(
    script: str, train: dict[str, Any]
) -> None:
    arguments = {"optimizer": {"lr": 0.1}, "train": {"lr_warmup_steps": 2, **train}}
    with pytest.raises(DefinitionError, match=f"{script} does not support"):
        frameworks.schedule("litgpt", script, arguments, facts={"total_updates": 10})
