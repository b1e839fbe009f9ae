"""Configs of reinforcement learning: their clock, their parts and what they refuse."""

from collections.abc import Mapping
from typing import Any

import pytest
import sympy as sp

from closedform import frameworks
from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.clock import Unit
from closedform.recipes.document import document_of
from closedform.recipes.recipe import Role

VERL = """\
actor_rollout_ref.actor.optim.lr=1.0
+actor_rollout_ref.actor.optim.lr_warmup_steps=4
critic.optim.lr_warmup_steps=2
trainer.total_training_steps=10
"""


def read(text: str, facts: Mapping[str, Any] | None = None, suffix: str = ".args") -> Recipe:
    return load_recipe(document_of(text, suffix, f"config{suffix}"), facts=facts)


def test_the_updates_of_a_training_step_share_a_value() -> None:
    slow, fast = read(VERL, {"updates_per_training_step": 3}), read(VERL)
    assert slow.clock is not None
    assert slow.clock.unit is Unit.TRAINING_STEP
    assert (fast.horizon, slow.horizon) == (10, 30)
    assert all(slow.schedule().exact(t) == fast.schedule().exact(t // 3) for t in range(33))


def test_the_part_of_verl_is_a_fact() -> None:
    critic = read(VERL, {"part": "critic"})
    assert float(critic.schedule()(2)) == pytest.approx(1e-5, rel=1e-15)
    megatron = read(f"{VERL}actor_rollout_ref.actor.strategy=megatron\n")
    assert [group.role for group in megatron.param_groups] == [Role.DEFAULT, Role.NO_DECAY]
    with pytest.raises(ClosedFormError, match="the fact part must be one of fsdp, actor"):
        read(VERL, {"part": "driver"})
    tuned = {"optim": {"lr": 1.0}, "trainer": {"total_epochs": 2}}
    with pytest.raises(MissingFactsError, match="missing facts: part"):
        load_recipe(tuned)
    facts = {"updates_per_epoch": 5}
    assert load_recipe(tuned, facts={**facts, "part": "sft"}).schedule().exact(1) == 1
    assert load_recipe(tuned, facts={**facts, "part": "engine"}).horizon == 10


def test_the_length_of_verl_is_that_of_the_config_the_fact_or_the_epochs() -> None:
    line = "actor_rollout_ref.actor.optim.lr=1.0 data.train_batch_size=8 trainer.total_epochs=3"
    assert read(line, {"dataset_size": 100}).horizon == 36
    assert read(line, {"total_training_steps": 7}).horizon == 7
    assert read(line, {"total_updates": 14, "updates_per_training_step": 2}).horizon == 14
    with pytest.raises(MissingFactsError, match="missing facts: total_training_steps"):
        read(line)
    with pytest.raises(ClosedFormError, match="is 10, but the fact is 9"):
        read(VERL, {"total_training_steps": 9})


@pytest.mark.parametrize("key", ["lr_decay_steps=5", "lr_warmup=5", "min_lr=0.1"])
def test_a_key_of_another_worker_of_verl_is_refused(key: str) -> None:
    with pytest.raises(ClosedFormError, match="unknown key"):
        read(f"{VERL}actor_rollout_ref.actor.optim.{key}\n")


SLIME = """\
--lr 1.0 --lr-decay-style cosine --num-rollout 10
--rollout-batch-size 16 --n-samples-per-prompt 8
"""


def test_the_run_of_slime_is_that_of_its_rollouts() -> None:
    assert read(f"{SLIME}--global-batch-size 64").horizon == 20
    assert read(f"{SLIME}--num-steps-per-rollout 4").horizon == 40
    assert read(SLIME, {"--global-batch-size": 33}).horizon == 38
    with pytest.raises(MissingFactsError, match="missing facts: --global-batch-size"):
        read(SLIME)
    with pytest.raises(ClosedFormError, match="4 steps of a rollout have 32 samples, got 64"):
        read(f"{SLIME}--num-steps-per-rollout 4 --global-batch-size 64")
    epochs = "--lr 1.0 --num-epoch 3 --rollout-batch-size 16 --global-batch-size 8"
    assert read(epochs, {"dataset_size": 100}).horizon == 36


def test_a_fraction_silences_the_warmup_of_slime() -> None:
    line = f"{SLIME}--global-batch-size 64 --lr-warmup-iters 128 --lr-warmup-fraction 0.9"
    recipe = read(line)
    assert recipe.schedule().exact(18) == 1
    assert "fraction-wins" in recipe.notes


def test_the_former_back_end_of_slime_counts_updates() -> None:
    root = SLIME.replace("cosine", "inverse-square-root") + "--global-batch-size 64"
    assert read(root).schedule().exact(1) == sp.Rational(1, 8)
    assert read(f"{root} --train-backend fsdp").schedule().exact(1) == 1


NEMO_RL = """\
grpo: {max_num_steps: 20, max_num_epochs: 3}
policy:
  train_global_batch_size: 8
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 1.0}}
  scheduler:
  - {name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.1, total_iters: 5}}
  - {name: torch.optim.lr_scheduler.ConstantLR, kwargs: {factor: 1.0, total_iters: 100}}
  - {milestones: [3]}
"""
BRIDGE = """\
ALGORITHM: {max_num_steps: 20}
policy:
  train_global_batch_size: 8
  megatron_cfg:
    enabled: true
    optimizer: {lr: 1.0, min_lr: 0.1, weight_decay: 0.1}
    scheduler: {lr_decay_style: linear, lr_warmup_iters: 4}
"""


def test_the_run_of_nemo_rl_is_the_shorter_one_of_its_limits() -> None:
    assert read(NEMO_RL, {"updates_per_epoch": 4}, ".yaml").horizon == 12
    assert read(NEMO_RL, {"updates_per_epoch": 40}, ".yaml").horizon == 20
    recipe = read(NEMO_RL, {"training_steps": 7, "updates_per_training_step": 2}, ".yaml")
    assert recipe.horizon == 14
    assert recipe.schedule().exact(5) < 1 == recipe.schedule().exact(6)
    assert "milestone-in-the-warmup" in recipe.notes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("milestones: [3]", "milestone: [3]", "a scheduler must have a name, or milestones"),
        ("  - {milestones: [3]}\n", "", "needs an entry with milestones"),
        ("[3]", "[3, 4]", "milestones must be one fewer"),
        ("LinearLR", "NoLR", "torch has no scheduler 'NoLR'"),
        ("torch.optim.lr_scheduler.LinearLR", "mine.LinearLR", "must be a class of torch.optim"),
    ],
)
def test_a_scheduler_that_nemo_rl_cannot_make_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read(NEMO_RL.replace(old, new), suffix=".yaml")


def test_pairs_leave_the_curve_of_nemo_rl_as_it_is() -> None:
    one, pairs = (read(BRIDGE.replace("ALGORITHM", name), suffix=".yaml") for name in ("sft", "rm"))
    steps = range(25)
    assert [one.schedule().exact(t) for t in steps] == [pairs.schedule().exact(t) for t in steps]
    text = BRIDGE.replace("4}", "4, lr_decay_iters: null}").replace("ALGORITHM", "rm")
    with pytest.raises(ClosedFormError, match="rm doubles lr_decay_iters"):
        read(text, suffix=".yaml")


def test_the_weight_decay_of_megatron_is_scheduled_as_well() -> None:
    rising = "weight_decay_incr_style: linear, start_weight_decay: 0.0, end_weight_decay: 0.1"
    text = BRIDGE.replace("ALGORITHM", "grpo").replace(
        "lr_warmup_iters", f"{rising}, lr_warmup_iters"
    )
    recipe = read(text, {"updates_per_training_step": 2}, ".yaml")
    decay = recipe.param_groups[0].schedules["weight_decay"]
    assert [decay.exact(t) for t in (0, 1, 20, 40)] == [
        0,
        0,
        sp.Rational(1, 20),
        sp.Rational(1, 10),
    ]
    flags = "--weight-decay-incr-style linear --start-weight-decay 0.0 --end-weight-decay 0.1"
    slime = read(f"{SLIME}--global-batch-size 64 {flags}").param_groups[0].schedules
    assert slime["weight_decay"].exact(10) == sp.Rational(1, 20)


@pytest.mark.parametrize("warmup", ["lr_warmup_iters: 20", "lr_warmup_fraction: 1.0"])
def test_a_warmup_of_megatron_bridge_is_cut(warmup: str) -> None:
    text = BRIDGE.replace("ALGORITHM", "grpo").replace("lr_warmup_iters: 4", warmup)
    recipe = read(text, suffix=".yaml")
    # 20 steps of 8 samples: the warmup has 159 of them.
    assert recipe.schedule().exact(10) == sp.Rational(80, 159)
    assert "warmup-is-cut" in recipe.notes


PRIME_RL = """\
max_steps = 20
[trainer.optim]
lr = 1.0
[trainer.scheduler]
"""


def test_a_decay_of_one_update_of_prime_rl_has_no_value() -> None:
    recipe = read(f'{PRIME_RL}type = "linear"\ndecay_steps = 1\n', suffix=".toml")
    assert recipe.schedule().last_step == 18
    assert {"decay-of-one", "starts-above-zero"} == set(recipe.notes)
    assert recipe.schedule().exact(0) == sp.Rational(1, 10**8)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ('type = "linear"\nwarmup_steps = 11', "must not exceed max_steps 20, got 11 and 10"),
        ('type = "linear"\nwarmup_steps = 0\ndecay_steps = 0', "needs a warmup or a decay"),
        ('type = "linear"\nmin_lr = 2.0', "min_lr must not be above lr 1, got 2"),
        ('type = "cosine"\nwarmup_steps = 20', "must be shorter than max_steps 20, got 20"),
        ('type = "cosine"\ndecay_steps = 3', "unknown key 'decay_steps'"),
        ('type = "constant"\nmin_lr = 0.1', "unknown key 'min_lr'"),
        ('type = "wsd"', "there is no scheduler 'wsd'"),
    ],
)
def test_what_prime_rl_refuses_is_refused(scheduler: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read(f"{PRIME_RL}{scheduler}\n", suffix=".toml")


def test_a_cosine_of_prime_rl_without_a_warmup_may_rise() -> None:
    recipe = read(f'{PRIME_RL}type = "cosine"\nwarmup_steps = 0\nmin_lr = 2.0\n', suffix=".toml")
    assert [recipe.schedule().exact(t) for t in (0, 20)] == [1, 2]


OPENRLHF = "--train.batch_size 8 --train.max_epochs 2 --adam.lr 1.0 --lr_scheduler linear"
PPO = "--train.batch_size 8 --rollout.n_samples_per_prompt 4 --actor.adam.lr 1.0"


def test_the_run_of_openrlhf_is_that_of_its_whole_batches() -> None:
    assert read(OPENRLHF, {"dataset_size": 87}).horizon == 20
    assert read(OPENRLHF, {"dataset_len": 87}).horizon == 20
    assert read(f"{OPENRLHF} --data.max_samples 40", {"dataset_len": 87}).horizon == 10
    assert read(OPENRLHF, {"total_updates": 7}).horizon == 7
    assert read(PPO, {"prompts_len": 21}).horizon == 10
    assert read(f"{PPO} --train.num_episodes 3", {"dataset_size": 21}).horizon == 30
    with pytest.raises(MissingFactsError, match="missing facts: total_updates"):
        read(PPO)
    with pytest.raises(ClosedFormError, match="the run has no update"):
        read(OPENRLHF, {"dataset_size": 7})


def test_muon_of_openrlhf_has_two_groups_with_one_factor() -> None:
    recipe = read(f"{OPENRLHF} --optim muon --muon.lr 2.0", {"total_updates": 10})
    muon, adam = recipe.param_groups
    assert [muon.schedules["lr"].exact(t) for t in range(12)] == [
        2 * adam.schedules["lr"].exact(t) for t in range(12)
    ]
    assert set(recipe.notes) == {"clipping-after-muon"}


def test_a_model_of_openrlhf_is_a_fact() -> None:
    facts = {"prompts_len": 80, "role": "critic"}
    recipe = read(f"{PPO} --critic.lr_scheduler constant --critic.adam.weight_decay 0.1", facts)
    assert float(recipe.schedule()(0)) == pytest.approx(9e-6, rel=1e-15)
    assert [group.role for group in recipe.param_groups] == [Role.DEFAULT, Role.NO_DECAY]
    assert "constant-without-warmup" in recipe.notes


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr_scheduler warmup_stable_decay", "num_decay_steps is missing"),
        ("--lr_scheduler wsd", "there is no lr_scheduler 'wsd'"),
        ("--adam.warmup 3", "unknown key 'warmup'"),
    ],
)
def test_what_openrlhf_refuses_is_refused(flags: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read(f"{OPENRLHF} {flags}", {"total_updates": 10})


def test_the_minimum_of_openrlhf_was_passed_to_every_scheduler() -> None:
    document = document_of(OPENRLHF, ".args", "config.args")
    with pytest.raises(ClosedFormError, match="unknown key 'min_lr_rate'"):
        load_recipe(document, version="c3188af3^", facts={"total_updates": 10})


TUNING = """\
learning_rate: 1.0
dataset_mixer_list: [a, 1.0]
warmup_ratio: 0.0
num_train_epochs: 2
gradient_accumulation_steps: 2
"""
RUN = {"num_processes": 2, "batches_all_processes": 40}


def test_the_line_of_open_instruct_ends_at_its_ratio() -> None:
    recipe = read(f"{TUNING}final_lr_ratio: 0.5\n", RUN, ".yaml")
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
        read(f"{TUNING}{line}\n", RUN, ".yaml")


def test_the_run_of_open_instruct_is_that_of_its_batches_or_episodes() -> None:
    assert read(f"{TUNING}max_train_steps: 7\n", suffix=".yaml").horizon == 7
    with pytest.raises(MissingFactsError, match="world_size, micro_batches_per_epoch"):
        read(TUNING, suffix=".yaml")
    grpo = "learning_rate: 1.0\nnum_mini_batches: 4\n"
    assert read(grpo, {"num_training_steps": 5}, ".yaml").horizon == 20
    episodes = "total_episodes: 1000\nnum_unique_prompts_rollout: 8\n"
    more = "num_samples_per_prompt_rollout: 4\n"
    assert read(f"{grpo}{episodes}{more}", suffix=".yaml").horizon == 124
    with pytest.raises(MissingFactsError, match="missing facts: num_training_steps"):
        read(grpo, suffix=".yaml")


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
    recipe = read(grpo, {"num_training_steps": 5, "trainer": "olmo-core"}, ".yaml")
    config = {"optim": {"lr": 1.0}, "scheduler": {"class": name, "warmup_steps": 4, **more}}
    expected = frameworks.schedule("olmo_core", name, config, facts={"max_steps": 20})
    steps = range(25)
    assert [recipe.schedule().exact(t) for t in steps] == [expected.exact(t) for t in steps]
    assert not recipe.notes
    tuning = grpo.replace("num_mini_batches: 4", "final_lr_ratio: null\nnum_epochs: 2")
    facts = {"updates_per_epoch": 10, "trainer": "olmo-core"}
    assert read(tuning, facts, ".yaml").schedule().exact(3) == expected.exact(3)
    with pytest.raises(ClosedFormError, match="must be transformers or olmo-core, got 'mine'"):
        read(grpo, {"num_training_steps": 5, "trainer": "mine"}, ".yaml")
