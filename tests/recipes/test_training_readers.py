"""Readers of the frameworks that train language models: what the corpus does not show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import frameworks
from closedform.errors import ArgumentError, ConfigError, DefinitionError
from closedform.frameworks.megatron.ramp import along_samples, read_ramp, updates_of
from closedform.language import Schedule, UpdateRule
from closedform.optimizers import adam, adamw
from closedform.recipes import load_recipe
from closedform.schedules import linear

Config = dict[str, Any]

MEGATRON = {"lr": 1e-3, "train-iters": 100, "global-batch-size": 8, "lr-decay-style": "cosine"}
TUNE = {"_component_": "torch.optim.AdamW", "lr": 1e-3}
COSINE = "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"
TITAN = {"optimizer": {"lr": 1.0}, "training": {"steps": 10}}
NEOX = {"optimizer": {"type": "Adam", "params": {"lr": 1e-3}}, "train_iters": 100}
NANOTRON = {
    "optimizer": {
        "learning_rate_scheduler": {"learning_rate": 1e-3, "lr_warmup_style": "linear"},
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "adam_eps": 1e-8,
        "weight_decay": 0.1,
    },
    "tokens": {"train_steps": 100},
}
OLMO = {
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
    "scheduler": {"name": "cosine_with_warmup"},
    "max_duration": 1000,
    "max_grad_norm": 1.0,
    "model": {"max_sequence_length": 4},
    "global_train_batch_size": 2,
}
FOUNDRY = {
    "optimizer": {"name": "decoupled_adamw", "lr": 1e-3, "weight_decay": 1e-4},
    "scheduler": {"name": "cosine_with_warmup", "t_warmup": "10ba"},
    "max_duration": "100ba",
    "global_train_batch_size": 8,
}
COMPOSER = {
    "optimizers": {"adamw": {"lr": 1e-3}},
    "schedulers": [{"cosine_decay": {}}],
    "max_duration": "100ba",
}
LITGPT = {
    "train": {"max_steps": 100, "lr_warmup_steps": 10},
    "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-3}},
}
NEMO = {
    "model": {
        "optim": {"name": "adamw", "lr": 1e-3, "sched": {"name": "CosineAnnealing"}},
        "optim_param_groups": {"encoder": {"lr": 1e-4}},
    },
    "trainer": {"max_steps": 100},
}
AUTOMODEL = {
    "optimizer": {
        "_target_": "torch.optim.AdamW",
        "lr": 1e-3,
        "param_group_overrides": [{"pattern": "router", "lr_mult": 10}],
    },
    "lr_scheduler": {"lr_decay_style": "cosine", "lr_warmup_steps": 10},
    "step_scheduler": {"max_steps": 100, "num_epochs": None},
}


def changed(config: Config, path: str, value: Any) -> Config:
    """A config with another value at a dotted path."""
    key, _, rest = path.partition(".")
    return {**config, key: changed(config[key], rest, value) if rest else value}


WRONG: list[tuple[str, Config, str]] = [
    ("megatron", {**MEGATRON, "lr-decay-stile": "x"}, "unknown key 'lr-decay-stile'.*did you mean"),
    ("megatron", {**MEGATRON, "lr-decay-style": "cos"}, "there is no lr-decay-style 'cos'"),
    ("megatron", {**MEGATRON, "optimizer": "adan"}, "no optimizer 'adan'.*did you mean 'adam'"),
    ("megatron", {**MEGATRON, "min-lr": 1.0}, "the minimum 1 must not be above the peak"),
    ("torchtune", {"optimizer": {**TUNE, "beta": 1}}, "AdamW has no argument 'beta'.*'betas'"),
    (
        "torchtune",
        {"optimizer": TUNE, "lr_scheduler": {"_component_": "torch.optim.lr_scheduler.StepLR"}},
        "'torch.optim.lr_scheduler.StepLR' is not known to take",
    ),
    ("torchtitan", {**TITAN, "lr_scheduler": {"min_lr": 0.1}}, "unknown key 'min_lr'"),
    ("torchtitan", {**TITAN, "lr_scheduler": {"decay_type": "cos"}}, "did you mean 'cosine'"),
    (
        "torchtitan",
        changed(TITAN, "optimizer.name", "SGD"),
        "no name 'SGD' .*optimizer.name.* known are Adam, AdamW",
    ),
    ("gpt-neox", {**NEOX, "lr_decay_styl": "cosine"}, "unknown key 'lr_decay_styl'"),
    ("gpt-neox", changed(NEOX, "optimizer.type", "adan"), "no optimizer 'adan'"),
    (
        "gpt-neox",
        {**changed(NEOX, "optimizer.type", "lion"), "use_mup": True},
        "use_mup for adam and sgd only",
    ),
    (
        "nanotron",
        changed(NANOTRON, "optimizer.learning_rate_scheduler.lr_decay_style", "wsd"),
        "no lr_decay_style 'wsd'",
    ),
    ("nanotron", changed(NANOTRON, "optimizer.lr", 1), "unknown key 'lr'"),
    ("olmo", changed(OLMO, "scheduler.warmup", 1), "unknown key 'warmup'"),
    ("olmo", {**OLMO, "max_duration": "3eps"}, "max_duration must be a number, .* got '3eps'"),
    ("llm-foundry", changed(FOUNDRY, "scheduler.name", "cosine"), "there is no 'cosine' here"),
    ("llm-foundry", changed(FOUNDRY, "scheduler.t_warmup", "10 bats"), "t_warmup must be a time"),
    ("composer", {**COMPOSER, "schedulers": [{"cosine": {}}]}, "did you mean 'cosine_decay'"),
    ("litgpt", changed(LITGPT, "train.lr_warmup", 1), "unknown key 'lr_warmup'"),
    *(
        ("litgpt", changed(LITGPT, f"train.{key}", value), f"finetune does not support {key}")
        for key, value in (
            ("max_norm", 1.0),
            ("tie_embeddings", False),
            ("lr_warmup_fraction", 0.1),
        )
    ),
    (
        "litgpt",
        {**LITGPT, "train": {"max_tokens": 1000, "epochs": 1}},
        "pretrain does not support epochs",
    ),
    ("nemo", changed(NEMO, "model.optim.sched.warmup", 1), "unknown key 'warmup'"),
    ("nemo", changed(NEMO, "model.optim.sched.name", "ReduceLROnPlateau"), "depends on the loss"),
    ("automodel", changed(AUTOMODEL, "lr_scheduler.warmup_steps", 1), "unknown key 'warmup_steps'"),
    ("automodel", changed(AUTOMODEL, "lr_scheduler.lr_warmup_steps", 0.1), "a number of updates"),
]


@pytest.mark.parametrize(("framework", "config", "message"), WRONG)
def test_mistakes_near_the_optimizer_are_errors(
    framework: str, config: Config, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(config, framework=framework)


FOUND = [
    ("megatron", MEGATRON),
    ("torchtitan", {**TITAN, "lr_scheduler": {}}),
    ("gpt-neox", NEOX),
    ("nanotron", NANOTRON),
    ("olmo", OLMO),
    ("llm-foundry", FOUNDRY),
    ("composer", COMPOSER),
    ("litgpt", LITGPT),
    ("nemo", NEMO),
    ("automodel", AUTOMODEL),
    ("torchtune", {"optimizer": TUNE}),
]


@pytest.mark.parametrize(("framework", "config"), FOUND)
def test_framework_is_found_by_its_keys_and_its_rule_is_built(
    framework: str, config: Config
) -> None:
    recipe = load_recipe(config)
    assert recipe.framework == framework
    assert recipe.schedule()(5) == pytest.approx(float(recipe.schedule().exact(5)), rel=1e-12)
    rules = {"llm-foundry": "decoupled_adamw"}
    assert recipe.optimizer().name == rules.get(framework, "adamw")


def values(schedule: Schedule, steps: list[int]) -> Any:
    return schedule(np.array(steps))


def test_ramp_of_the_batch_size_counts_samples() -> None:
    stages = read_ramp("0:4 10:8 100:16", None, "here")
    # 4, 8, 12 samples after three updates of 4; then updates of 8 until at least 100 are seen.
    assert [(one.begin, one.samples_before, one.batch) for one in stages] == [
        (0, 0, 4),
        (3, 12, 8),
        (14, 100, 16),
    ]
    seen, batches = [0], {0: 4, 10: 8, 100: 16}
    while seen[-1] < 200:
        seen.append(seen[-1] + batches[max(mark for mark in batches if mark <= seen[-1])])
    in_updates = along_samples(linear(0, 1, 1000), stages)
    np.testing.assert_allclose(
        values(in_updates, list(range(len(seen)))), np.array(seen) / 1000, rtol=1e-15
    )
    assert updates_of(stages, 200) == len(seen) - 1


def test_token_thresholds_of_a_ramp_need_the_sequence_length() -> None:
    config = {
        "MODEL_ARGS": {
            "--lr": 1e-3,
            "--train-samples": 1000,
            "--step-batch-size-schedule": "0:4 40:8 0.4K:16",
        }
    }
    with pytest.raises(ArgumentError, match="sequence_length"):
        load_recipe(config, framework="megatron")
    recipe = load_recipe(config, facts={"sequence_length": 4})
    constant = load_recipe(
        {"lr": 1e-3, "train-samples": 1000, "global-batch-size": 4}, framework="megatron"
    )
    # The line to 0 over 1000 samples, of which 3 updates have seen 12.
    assert recipe.schedule().exact(3) == constant.schedule().exact(3)
    assert recipe.schedule().exact(4) == constant.schedule().exact(5)
    late = changed(config, "MODEL_ARGS.--step-batch-size-schedule", "8:4")
    with pytest.raises(ConfigError, match="thresholds must begin with 0 and grow"):
        load_recipe(late, facts={"sequence_length": 4})


def test_groups_with_rates_of_their_own() -> None:
    decoupled = load_recipe({**MEGATRON, "decoupled-lr": 2e-3, "decoupled-min-lr": 1e-3})
    assert decoupled.schedule(group="decoupled_lr").exact(0) == 2 * decoupled.schedule().exact(0)
    assert decoupled.schedule("weight_decay", "no_decay").exact(0) == 0
    nemo = load_recipe(NEMO)
    assert nemo.schedule(group="encoder").exact(0) * 10 == nemo.schedule().exact(0)
    automodel = load_recipe(AUTOMODEL)
    assert automodel.schedule(group="router").exact(50) == 10 * automodel.schedule().exact(50)


@pytest.mark.parametrize(
    ("more", "version", "first"),
    [
        # The warmup of 2 updates: divided by 2, by 3 until June 2025, and from another section.
        ({"lr_scheduler": {"warmup_steps": 2}}, "b5bcd76c6", 1 / 2),
        ({"lr_scheduler": {"warmup_steps": 2, "lr_min": 0.1}}, "f7084fc78", 1 / 2),
        (
            {"lr_scheduler": {"warmup_steps": 2}, "training": {"steps": 10, "batch_size": 8}},
            "3b85aa31f",
            1 / 3,
        ),
        ({"training": {"steps": 10, "warmup_steps": 2}}, "e846b6946", 1 / 3),
    ],
)
def test_torchtitan_is_read_as_the_commit_that_has_its_keys(
    more: Config, version: str, first: float
) -> None:
    recipe = load_recipe({**TITAN, **more}, framework="torchtitan")
    assert recipe.version == version
    assert recipe.schedule()(0) == pytest.approx(first, rel=1e-15)


def test_decoupled_weight_decay_is_not_multiplied_by_the_rate() -> None:
    rule = load_recipe(FOUNDRY).optimizer()
    assert rule.name == "decoupled_adamw"
    assert rule.hyperparameters["weight_decay"] * 10**4 == 1
    assert rule.hyperparameters["initial_lr"] * 10**3 == 1
    sgdw = {**COMPOSER, "optimizers": {"decoupled_sgdw": {"lr": 0.1, "weight_decay": 1e-4}}}
    rule = load_recipe(sgdw).optimizer()
    assert str(rule.param) == "-grad*lr + param - lr*param*weight_decay/initial_lr"
    made = frameworks.optimizer("composer", "DecoupledSGDW", {"lr": 0.1, "weight_decay": 1e-4})
    assert str(made.param) == "-grad*lr - param*weight_decay + param"


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


PYTHON = {
    "olmo_core": (
        "TrainModule(optim=SkipStepAdamWConfig(lr=1e-3, weight_decay=0.1),\n"
        "    scheduler=CosWithWarmup(warmup_steps=10), max_grad_norm=1.0)\n"
        "TrainerConfig(max_duration=Duration.steps(100))\n"
    ),
    "megatron": (
        "made, scheduled = distributed_fused_adam_with_cosine_annealing(max_lr=1e-3,\n"
        "    lr_warmup_iters=10)\n"
        "TrainingConfig(train_iters=100, global_batch_size=8)\n"
    ),
    "torchtitan": (
        "Trainer.Config(optimizer=default_adamw(lr=1e-3),\n"
        "    lr_scheduler=LRSchedulersContainer.Config(warmup_steps=10),\n"
        "    training=TrainingConfig(steps=100))\n"
    ),
    "nanotron": (
        "rate = LRSchedulerArgs(learning_rate=1e-3, lr_warmup_steps=10, lr_warmup_style='linear')\n"
        "OptimizerArgs(weight_decay=0.1, clip_grad=1.0, learning_rate_scheduler=rate,\n"
        "    adam_eps=1e-8, adam_beta1=0.9, adam_beta2=0.95)\n"
        "TokensArgs(train_steps=100)\n"
    ),
}


@pytest.mark.parametrize("framework", PYTHON)
def test_calls_of_config_classes_are_read(framework: str, tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(PYTHON[framework])
    recipe = load_recipe(path)
    assert (recipe.framework, recipe.horizon) == (framework, 100)
    # Update 9 is one update before or at the end of the warmup, by the clocks of the frameworks.
    ahead = framework in ("olmo_core", "torchtitan")
    assert recipe.schedule()(9) == pytest.approx(1e-3 if ahead else 9e-4, rel=1e-12)
    assert recipe.optimizer().name == "adamw"


def test_weight_decay_of_megatron_bridge_is_that_of_the_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(PYTHON["megatron"])
    recipe = load_recipe(path)
    assert recipe.schedule("weight_decay")(50) == pytest.approx(0.033, rel=1e-15)
    assert "weight-decay-of-scheduler" in recipe.notes


def test_draft_models_of_automodel_have_a_cosine_where_their_recipe_is_named() -> None:
    optimizer = {"lr": 1.0, "warmup_ratio": 0.1, "min_lr_ratio": 0.5}
    constant = load_recipe({"optimizer": optimizer}, framework="automodel")
    assert constant.schedule()(50) == 1
    assert "draft-keys-ignored" in constant.notes
    drafted = load_recipe(
        {"optimizer": optimizer, "recipe_args": {"num_epochs": 1}},
        framework="automodel",
        facts={"total_updates": 100},
    )
    np.testing.assert_allclose(
        values(drafted.schedule(), [0, 9, 10, 55, 100]), [0.1, 1, 1, 0.75, 0.5], rtol=1e-15
    )


@pytest.mark.parametrize("ratio", [0.5, 1.5, 3])
def test_composer_scales_the_length_of_the_run(ratio: float) -> None:
    """``Trainer`` multiplies max_duration (composer/trainer/trainer.py:1574 of 0.32.1).

    Times in ``dur`` follow it, and the warmup, which is not scaled, keeps its length.
    """
    scheduler = {"cosine_decay_with_warmup": {"t_warmup": "8ep", "t_max": "1dur", "alpha_f": 0.0}}
    config = {
        "optimizers": {"decoupled_sgdw": {"lr": 2.048, "momentum": 0.875, "weight_decay": 5e-4}},
        "max_duration": "90ep",
        "schedulers": scheduler,
        "train_batch_size": 2048,
    }
    facts = {"updates_per_epoch": 200}
    scaled = load_recipe({**config, "scale_schedule_ratio": ratio}, "composer", facts=facts)
    longer = load_recipe(
        {**config, "max_duration": f"{int(90 * ratio)}ep"}, "composer", facts=facts
    )
    assert scaled.horizon == longer.horizon == 90 * 200 * ratio
    assert scaled.schedule() == longer.schedule()
    assert scaled.schedule().exact(1600) == sp.Rational(2048, 1000)


@pytest.mark.parametrize(
    ("changes", "is_noted"),
    [
        ({}, True),
        ({"default_weight_decay_mask": True}, True),
        ({"default_weight_decay_mask": False}, False),
        ({"weight_decay_modules": ".*attn.*"}, False),
        ({"weight_decay": 0}, False),
    ],
)
def test_the_default_mask_of_levanter_is_a_note(changes: Config, is_noted: bool) -> None:
    optimizer = {"type": "adam", "learning_rate": 1e-3, "weight_decay": 0.1, **changes}
    config = {"trainer": {"num_train_steps": 100}, "optimizer": optimizer}
    assert ("default-mask" in load_recipe(config, framework="levanter").notes) == is_noted


@pytest.mark.parametrize("by_epoch", [False, True])
def test_the_warmup_of_paddle_by_epoch_is_scaled_twice(by_epoch: bool) -> None:
    rate = {"name": "Cosine", "learning_rate": 1.0, "warmup_epoch": 5, "by_epoch": by_epoch}
    optimizer = {"name": "Momentum", "momentum": 0.9, "lr": rate}
    config = {"Global": {"epochs": 20}, "Optimizer": optimizer}
    recipe = load_recipe(config, framework="paddle", facts={"updates_per_epoch": 10})
    assert ("warmup-scaled-twice" in recipe.notes) == by_epoch


@pytest.mark.parametrize(
    ("flags", "expected", "note"),
    [
        ((), adamw, "l2-is-decoupled"),
        (("use_mup",), adam, "widths-of-mup"),
        (("use_mup", "use_bnb_optimizer"), adam, "bnb-ignored"),
    ],
)
def test_gpt_neox_makes_the_adam_of_its_flags(
    flags: tuple[str, ...], expected: Callable[..., UpdateRule], note: str
) -> None:
    flat = {"lr_decay_style": "constant", "warmup": 0, "weight_decay": 0.125}
    config = {**changed(NEOX, "optimizer.params.lr", 0.5), **flat, **dict.fromkeys(flags, True)}
    recipe = load_recipe(config, "gpt-neox")
    rule, reference = recipe.optimizer(), expected(0.5, weight_decay=0.125)
    assert (rule.param, rule.states) == (reference.param, reference.states)
    assert note in recipe.notes


def test_gpt_neox_has_the_8_bit_states_of_bitsandbytes() -> None:
    recipe = load_recipe({**NEOX, "use_bnb_optimizer": True}, "gpt-neox")
    assert recipe.param_groups[0].optimizer.name == "Adam8bit"


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


@pytest.mark.parametrize("limit", [5, 20])
def test_nemo_says_that_the_trainer_decides_the_length(limit: int) -> None:
    sched = {"name": "CosineAnnealing", "max_steps": 20}
    config = {"model": {"optim": {"name": "adamw", "lr": 1.0, "sched": sched}}}
    recipe = load_recipe({**config, "trainer": {"max_steps": limit}}, "nemo")
    assert recipe.horizon == limit
    assert ("trainer-decides-the-length" in recipe.notes) == (limit != 20)
    assert "trainer-decides-the-length" not in load_recipe(config, "nemo").notes
