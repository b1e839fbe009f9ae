"""Configs of OLMo: clipping and tokens."""

from closedform.recipes import load_recipe
from tests.recipes.test_training_readers import OLMO, changed


def test_clipping_of_olmo_begins_larger() -> None:
    config = changed(OLMO, "scheduler.grad_clip_warmup_steps", 16)
    config = changed(
        changed(config, "scheduler.grad_clip_warmup_factor", 5), "scheduler.units", "tokens"
    )
    clipping = load_recipe(config).clipping
    assert clipping is not None
    # 8 tokens an update: 16 tokens are done in the update with t = 1.
    assert [clipping.threshold(t) for t in range(4)] == [5, 5, 1, 1]


def test_tokens_become_updates_that_cover_them() -> None:
    assert load_recipe({**OLMO, "max_duration": "100T"}).horizon == 13
    # A number of updates that is given counts: a run may go on from tokens that were seen before.
    assert load_recipe({**OLMO, "max_duration": "100T"}, facts={"total_updates": 12}).horizon == 12
