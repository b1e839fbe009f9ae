"""Configs of NeMo RL: its limits, schedulers of torch and of Megatron, and pairs."""

import pytest
import sympy as sp

from closedform.errors import ClosedFormError
from tests.support.configs import read_recipe

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
    assert read_recipe(NEMO_RL, {"updates_per_epoch": 4}, ".yaml").horizon == 12
    assert read_recipe(NEMO_RL, {"updates_per_epoch": 40}, ".yaml").horizon == 20
    recipe = read_recipe(NEMO_RL, {"training_steps": 7, "updates_per_training_step": 2}, ".yaml")
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
        read_recipe(NEMO_RL.replace(old, new), suffix=".yaml")


def test_pairs_leave_the_curve_of_nemo_rl_as_it_is() -> None:
    one, pairs = (
        read_recipe(BRIDGE.replace("ALGORITHM", name), suffix=".yaml") for name in ("sft", "rm")
    )
    steps = range(25)
    assert [one.schedule().exact(t) for t in steps] == [pairs.schedule().exact(t) for t in steps]
    text = BRIDGE.replace("4}", "4, lr_decay_iters: null}").replace("ALGORITHM", "rm")
    with pytest.raises(ClosedFormError, match="rm doubles lr_decay_iters"):
        read_recipe(text, suffix=".yaml")


def test_the_weight_decay_of_megatron_is_scheduled_as_well() -> None:
    rising = "weight_decay_incr_style: linear, start_weight_decay: 0.0, end_weight_decay: 0.1"
    text = BRIDGE.replace("ALGORITHM", "grpo").replace(
        "lr_warmup_iters", f"{rising}, lr_warmup_iters"
    )
    recipe = read_recipe(text, {"updates_per_training_step": 2}, ".yaml")
    decay = recipe.param_groups[0].schedules["weight_decay"]
    assert [decay.exact(t) for t in (0, 1, 20, 40)] == [
        0,
        0,
        sp.Rational(1, 20),
        sp.Rational(1, 10),
    ]


@pytest.mark.parametrize("warmup", ["lr_warmup_iters: 20", "lr_warmup_fraction: 1.0"])
def test_a_warmup_of_megatron_bridge_is_cut(warmup: str) -> None:
    text = BRIDGE.replace("ALGORITHM", "grpo").replace("lr_warmup_iters: 4", warmup)
    recipe = read_recipe(text, suffix=".yaml")
    # 20 steps of 8 samples: the warmup has 159 of them.
    assert recipe.schedule().exact(10) == sp.Rational(80, 159)
    assert "warmup-is-cut" in recipe.notes
