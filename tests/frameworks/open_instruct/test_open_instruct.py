"""Configs of Open Instruct: the end of its line, its batches and its trainers."""

import pytest
import sympy as sp

from closedform import frameworks
from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes.clock import Unit
from tests.support.configs import read_recipe

TUNING = """\
learning_rate: 1.0
dataset_mixer_list: [a, 1.0]
warmup_ratio: 0.0
num_train_epochs: 2
gradient_accumulation_steps: 2
"""
RUN = {"num_processes": 2, "batches_all_processes": 40}


def test_the_line_of_open_instruct_ends_at_its_ratio() -> None:
    recipe = read_recipe(f"{TUNING}final_lr_ratio: 0.5\n", RUN, ".yaml")
    assert recipe.framework == "open-instruct"
    assert recipe.clock is not None
    assert (recipe.clock.unit, recipe.horizon) == (Unit.PROCESS_STEP, 20)
    assert [recipe.schedule().exact(t) for t in (0, 20)] == [1, sp.Rational(1, 2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("final_lr_ratio: 1.0", "must be in \\[0, 1\\), where 1 divides by zero"),
        ("final_lr_ratio: 0.1\nlr_scheduler_type: cosine", "final_lr_ratio is for linear only"),
        ("lr_scheduler_type: wsd", "there is no lr_scheduler_type 'wsd'"),
        ("warmup_steps: 3", "unknown key 'warmup_steps'"),
    ],
)
def test_what_open_instruct_refuses_is_refused(line: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read_recipe(f"{TUNING}{line}\n", RUN, ".yaml")


def test_the_run_of_open_instruct_is_that_of_its_batches_or_episodes() -> None:
    assert read_recipe(f"{TUNING}max_train_steps: 7\n", suffix=".yaml").horizon == 7
    with pytest.raises(MissingFactsError, match="world_size, micro_batches_per_epoch"):
        read_recipe(TUNING, suffix=".yaml")
    grpo = "learning_rate: 1.0\nnum_mini_batches: 4\n"
    assert read_recipe(grpo, {"num_training_steps": 5}, ".yaml").horizon == 20
    episodes = "total_episodes: 1000\nnum_unique_prompts_rollout: 8\n"
    more = "num_samples_per_prompt_rollout: 4\n"
    assert read_recipe(f"{grpo}{episodes}{more}", suffix=".yaml").horizon == 124
    with pytest.raises(MissingFactsError, match="missing facts: num_training_steps"):
        read_recipe(grpo, suffix=".yaml")


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        ("linear", "LinearWithWarmup", {"alpha_f": 0.0}),
        ("cosine", "CosWithWarmup", {}),
        ("constant", "ConstantWithWarmup", {}),
    ],
)
def test_the_trainers_on_olmo_core_have_its_schedulers(
    kind: str, name: str, more: dict[str, float]
) -> None:
    grpo = (
        f"learning_rate: 1.0\nnum_mini_batches: 4\nwarmup_ratio: 0.2\nlr_scheduler_type: {kind}\n"
    )
    recipe = read_recipe(grpo, {"num_training_steps": 5, "trainer": "olmo-core"}, ".yaml")
    config = {"optim": {"lr": 1.0}, "scheduler": {"class": name, "warmup_steps": 4, **more}}
    expected = frameworks.schedule("olmo_core", name, config, facts={"max_steps": 20})
    steps = range(25)
    assert [recipe.schedule().exact(t) for t in steps] == [expected.exact(t) for t in steps]
    assert not recipe.notes
    tuning = grpo.replace("num_mini_batches: 4", "final_lr_ratio: null\nnum_epochs: 2")
    facts = {"updates_per_epoch": 10, "trainer": "olmo-core"}
    assert read_recipe(tuning, facts, ".yaml").schedule().exact(3) == expected.exact(3)
    with pytest.raises(ClosedFormError, match="must be transformers or olmo-core, got 'mine'"):
        read_recipe(grpo, {"num_training_steps": 5, "trainer": "mine"}, ".yaml")
