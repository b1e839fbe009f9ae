"""Configs of MMEngine: groups, accumulation and epochs."""

from pathlib import Path

from tests.recipes.test_research_readers import MMENGINE, load, rates


def test_mmengine_groups(tmp_path: Path) -> None:
    recipe = load(tmp_path, "mmengine", MMENGINE)
    assert recipe.horizon == 12
    assert [group.name for group in recipe.param_groups] == ["", "norm", "backbone"]
    assert rates(recipe, 0, 4, 9) == [0.05, 0.1, 0.1]
    assert rates(recipe, 4, group="backbone") == [0.01]
    assert recipe.schedule("weight_decay", "norm").exact(0) == 0
    assert recipe.clipping is not None
    assert recipe.clipping.threshold == 2


def test_mmengine_accumulation_steps_schedulers_for_each_micro_batch(tmp_path: Path) -> None:
    text = MMENGINE.replace("optim_wrapper = dict(", "optim_wrapper = dict(accumulative_counts=2,")
    recipe = load(tmp_path, "mmengine", text)
    # Update 1 is made at micro-batch 3: three quarters of the warmup.
    assert rates(recipe, 1) == [0.0875]
    assert (recipe.horizon, recipe.accumulation) == (12, 2)


def test_mmengine_epochs_never_end_in_a_loop_of_iterations(tmp_path: Path) -> None:
    text = MMENGINE.replace("by_epoch=True, max_epochs=3", "type='IterBasedTrainLoop', max_iters=9")
    text = text.replace("type='LinearLR', by_epoch=False, end=5", "type='LinearLR', end=5")
    recipe = load(tmp_path, "mmengine", text)
    assert rates(recipe, 0, 8) == [0.05, 0.05]
    assert "epochs-never-end" in recipe.notes
