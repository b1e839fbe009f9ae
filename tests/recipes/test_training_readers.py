"""Readers of the frameworks that train language models: what the corpus does not show."""

from pathlib import Path
from typing import Any

import pytest

from closedform import frameworks
from closedform.errors import ConfigError
from closedform.recipes import load_recipe

Config = dict[str, Any]

MEGATRON = {"lr": 1e-3, "train-iters": 100, "global-batch-size": 8, "lr-decay-style": "cosine"}
TUNE = {"_component_": "torch.optim.AdamW", "lr": 1e-3}
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


def test_groups_with_rates_of_their_own() -> None:
    decoupled = load_recipe({**MEGATRON, "decoupled-lr": 2e-3, "decoupled-min-lr": 1e-3})
    assert decoupled.schedule(group="decoupled_lr").exact(0) == 2 * decoupled.schedule().exact(0)
    assert decoupled.schedule("weight_decay", "no_decay").exact(0) == 0
    nemo = load_recipe(NEMO)
    assert nemo.schedule(group="encoder").exact(0) * 10 == nemo.schedule().exact(0)
    automodel = load_recipe(AUTOMODEL)
    assert automodel.schedule(group="router").exact(50) == 10 * automodel.schedule().exact(50)


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
