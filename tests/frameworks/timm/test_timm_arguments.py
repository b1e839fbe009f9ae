"""The arguments of timm's train.py: its args.yaml and its command lines.

compare_timm_arguments.py compares drawn arguments with timm's own factory.
"""

from pathlib import Path

import pytest

from closedform.errors import ClosedFormError, ConfigError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.clock import Unit

YAML = """
aa: rand-m9-mstd0.5-inc1
batch_size: 128
bn_momentum: null
epochs: 10
grad_accum_steps: 2
lr: null
lr_base: 0.1
lr_base_scale: ''
lr_base_size: 256
min_lr: 0
model: resnet50
model_ema_decay: 0.9998
opt: sgd
sched: step
decay_epochs: 4
decay_rate: 0.5
warmup_epochs: 2
warmup_lr: 0.0
weight_decay: 2.0e-05
"""
FLAGS = """
./distributed_train.sh 2 /data --model resnet50 -b 128 --epochs 10 --grad-accum-steps 2
--lr-base 0.1 --opt sgd --sched step --decay-epochs 4 --dr 0.5 --warmup-epochs 2 --warmup-lr 0
"""
FACTS = {"world_size": 2, "updates_per_epoch": 3}


def read(text: str, suffix: str, folder: Path) -> Recipe:
    path = folder / f"args{suffix}"
    path.write_text(text.replace("\n", " ") if suffix == ".args" else text, encoding="utf-8")
    return load_recipe(path, facts=FACTS)


def test_all_updates_of_an_epoch_share_a_rate(tmp_path: Path) -> None:
    recipe = read(YAML, ".yaml", tmp_path)
    assert (recipe.framework, recipe.clock.unit, recipe.horizon) == ("timm", Unit.EPOCH, 30)
    # 0.1 for 256 samples: 128 of 2 processes and 2 micro-batches are 0.2.
    by_epoch = [0.0, 0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]
    rates = [recipe.schedule()(update) for update in range(30)]
    assert rates == pytest.approx([rate for rate in by_epoch for _ in range(3)], rel=1e-15)
    assert recipe.accumulation == 2
    assert [group.name for group in recipe.param_groups] == ["", "no_decay"]


def test_flags_are_the_arguments(tmp_path: Path) -> None:
    of_flags, of_yaml = read(FLAGS, ".args", tmp_path), read(YAML, ".yaml", tmp_path)
    assert of_flags.framework == "timm"
    assert of_flags.schedule() == of_yaml.schedule()
    assert of_flags.horizon == of_yaml.horizon


def test_the_first_update_has_the_rate_of_the_optimizer() -> None:
    # The curve of tanh begins below the rate, but the scheduler has not stepped yet.
    arguments = {"sched": "tanh", "opt": "sgd", "lr": 1.0, "epochs": 5, "warmup_epochs": 0}
    schedule = load_recipe(arguments).schedule()
    assert schedule.exact(0) == 1
    assert schedule(1) < 1 - 1e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sched": "plateau"}, "plateau waits for the metric"),
        ({"sched": "cosin"}, "there is no sched 'cosin'"),
        ({"lr_noise": [0.4, 0.8]}, "noise has no value as implemented"),
        ({"warmup_epoch": 3}, "unknown key 'warmup_epoch'"),
        ({"sched_on_updates": True}, "updates_per_epoch"),
        ({"lr": None}, "world_size"),
    ],
)
def test_what_has_no_rate_is_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"sched": "cosine", "opt": "sgd", "lr": 1.0, "epochs": 5, "warmup_lr": 0}
    with pytest.raises(ClosedFormError, match=message):
        load_recipe({**arguments, **changes})


def test_the_documented_formula_of_milestones_is_refused() -> None:
    arguments = {"sched": "multistep", "opt": "sgd", "lr": 1.0, "epochs": 200}
    assert "milestone-early" in load_recipe(arguments).notes
    with pytest.raises(ClosedFormError, match="there is no documented formula"):
        load_recipe(arguments, as_implemented=False)


def test_a_misspelled_class_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="multistep"):
        load_recipe({"sched": "multi_step", "opt": "sgd", "epochs": 5}, framework="timm")
