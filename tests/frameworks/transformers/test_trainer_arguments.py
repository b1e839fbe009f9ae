"""TrainingArguments and the configs that extend them: horizons, groups, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import sympy as sp

from closedform.errors import ArgumentError, ClosedFormError, ConfigError, UnknownNameError
from closedform.recipes import Recipe, load_recipe

PLAIN = {"learning_rate": 1e-3, "max_steps": 10, "per_device_train_batch_size": 2}


def read(framework: str = "transformers", facts: Any = None, **given: Any) -> Recipe:
    version = given.pop("version", None)
    return load_recipe({**PLAIN, **given}, framework, version, facts)


def from_text(text: str, name: str, folder: Path, **more: Any) -> Recipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, **more)


def test_defaults_of_the_trainer() -> None:
    given = {"per_device_train_batch_size": 2}
    recipe = load_recipe(given, "transformers", facts={"total_steps": 4})
    assert [recipe.schedule().exact(step) for step in (0, 1, 4)] == [
        sp.Rational(5, 10**5),
        sp.Rational(5, 10**5) * sp.Rational(3, 4),
        0,
    ]
    assert recipe.clipping is not None
    assert (recipe.clipping.threshold, recipe.horizon, recipe.accumulation) == (1, 4, 1)
    values = recipe.optimizer().hyperparameters
    assert (recipe.optimizer().name, values["beta2"]) == ("adamw", sp.Rational(999, 1000))
    assert recipe.schedule("weight_decay", "no_decay").exact(0) == 0


# The updates of the run: Trainer.set_initial_training_values. 21 samples, batch 2 on 3 processes:
# 4 micro-batches; accumulation 3: 2 updates an epoch; 2.5 epochs: 5 updates.
HORIZONS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "max_steps": ({"max_steps": 7}, {}, 7),
    "a fact": ({"max_steps": -1}, {"total_steps": 8}, 8),
    "epochs": ({"max_steps": -1, "num_train_epochs": 2.5}, {"updates_per_epoch": 3}, 8),
    "samples": (
        {"max_steps": -1, "num_train_epochs": 2.5, "gradient_accumulation_steps": 3},
        {"dataset_size": 21, "num_processes": 3},
        5,
    ),
}


@pytest.mark.parametrize("name", HORIZONS)
def test_horizon(name: str) -> None:
    given, facts, wanted = HORIZONS[name]
    assert read(facts=facts, **given).horizon == wanted


WARMUPS: dict[str, tuple[dict[str, Any], int]] = {
    "none": ({}, 0),
    "steps": ({"warmup_steps": 3}, 3),
    "a fraction": ({"warmup_steps": 0.25}, 3),  # ceil(2.5)
    "a ratio": ({"warmup_ratio": 0.25}, 3),
    "steps win": ({"warmup_steps": 2, "warmup_ratio": 0.5}, 2),
    "as a text": ({"warmup_steps": "4"}, 4),
}


@pytest.mark.parametrize("name", WARMUPS)
def test_warmup(name: str) -> None:
    given, wanted = WARMUPS[name]
    recipe = read(**given, lr_scheduler_type="constant_with_warmup")
    assert recipe.derived["warmup_updates"] == wanted
    assert recipe.schedule().exact(wanted) == sp.Rational(1, 1000)
    if wanted:
        assert recipe.schedule().exact(wanted - 1) < sp.Rational(1, 1000)
    assert ("warmup-ratio" in recipe.notes) == ("warmup_ratio" in given)


def test_warmup_ratio_needs_no_note_before_version_5() -> None:
    recipe = read(warmup_ratio=0.25, version="4.57.1")
    assert (recipe.version, recipe.derived["warmup_updates"]) == ("4.57.1", 3)
    assert "warmup-ratio" not in recipe.notes


OPTIMIZERS = {
    "adamw_torch_fused": "adamw",
    "paged_adamw_32bit": "adamw",
    "lion_32bit": "lion",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "schedule_free_adamw": "schedule_free_adamw",
    "stable_adamw": "stable_adamw",
}


@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_optimizer(optim: str) -> None:
    rule = read(optim=optim, weight_decay=0.1, adam_beta1=0.8).optimizer()
    assert rule.name == OPTIMIZERS[optim]
    assert rule.hyperparameters["weight_decay"] == sp.Rational(1, 10)
    if "adam" in optim:
        assert rule.hyperparameters["beta1"] == sp.Rational(4, 5)


@pytest.mark.parametrize("given", [{"optim": "adamw_bnb_8bit"}, {"adafactor": True}])
def test_schedules_load_without_the_optimizer(given: dict[str, Any]) -> None:
    recipe = read(**given)
    assert recipe.schedule().exact(5) == sp.Rational(1, 2000)
    with pytest.raises(UnknownNameError, match="optimizer 'ada") as caught:
        recipe.optimizer()
    assert "did you mean 'adafactor'" not in str(caught.value)


def test_kwargs_of_a_scheduler_may_be_texts(tmp_path: Path) -> None:
    text = """accelerate launch train.py --learning_rate 1e-3 --max_steps 10 \\
        --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{"min_lr": "1e-4"}' --bf16"""
    recipe = from_text(text, "run.sh", tmp_path)
    assert recipe.framework == "transformers"
    assert recipe.schedule().exact(10) == sp.Rational(1, 10000)


def test_trl_has_defaults_by_class(tmp_path: Path) -> None:
    recipe = from_text("args = DPOConfig(max_steps=2, beta=0.1)", "dpo.py", tmp_path)
    assert (recipe.framework, recipe.schedule().exact(0)) == ("trl", sp.Rational(1, 10**6))
    with pytest.raises(ArgumentError, match=r"missing facts: lr .*learning_rate"):
        from_text("--max_steps 3 --beta 0.1", "dpo.args", tmp_path, framework="trl")


def test_plain_arguments_are_those_of_transformers(tmp_path: Path) -> None:
    assert load_recipe(PLAIN).framework == "transformers"
    with pytest.raises(ConfigError, match=r"framework of the config is not recognized"):
        load_recipe({"per_device_train_batch_size": 2, "max_steps": 3})  # which rate?
    line = "--learning_rate 1e-4 --max_steps 10"
    with pytest.raises(ConfigError, match=r"framework of the config is not recognized"):
        from_text(line, "run.args", tmp_path)  # linear, or the cosine of ms-swift
    line += " --lr_scheduler_type cosine"
    assert from_text(line, "run.args", tmp_path).framework == "transformers"


def test_llama_factory_chooses_optimizers_by_switches() -> None:
    recipe = read(None, use_galore=True, finetuning_type="full")  # type: ignore[arg-type]
    assert recipe.framework == "llama-factory"
    with pytest.raises(UnknownNameError, match="the library has no optimizer 'galore'"):
        recipe.optimizer()


def test_swift_has_two_forms_and_groups(tmp_path: Path) -> None:
    text = "--learning_rate 1e-4 --max_steps 10 --vit_lr 1e-5 --tuner_type full"
    recipe = from_text(text, "a.args", tmp_path)
    assert (recipe.framework, len(recipe.param_groups)) == ("ms-swift", 4)
    assert recipe.schedule(group="vit_lr").exact(0) == sp.Rational(1, 10**5)
    assert recipe.schedule("weight_decay").exact(0) == sp.Rational(1, 10)
    text = "--lr 1e-4 --min_lr 1e-5 --train_iters 10 --micro_batch_size 1 --aligner_lr 2e-5"
    recipe = from_text(text, "b.args", tmp_path)
    assert (recipe.framework, recipe.clock.unit) == ("ms-swift", "sample")
    assert recipe.schedule(group="aligner_lr").exact(0) == sp.Rational(2, 10**5)
    assert recipe.schedule().exact(10) == sp.Rational(1, 10**5)
    assert recipe.optimizer().hyperparameters["beta2"] == sp.Rational(95, 100)


def test_axolotl_has_groups_with_their_own_rates() -> None:
    group = {"name": "embed", "modules": ["embed_tokens"], "lr": 1e-4}
    given = {"micro_batch_size": 1, "num_epochs": 1, "lr_groups": [group], "lr_scheduler": "rex"}
    recipe = load_recipe({**given, "learning_rate": 1e-3, "max_steps": 10, "warmup_steps": 1})
    assert recipe.framework == "axolotl"
    assert recipe.derived["warmup_updates"] == 2  # one becomes two
    own, base = recipe.schedule(group="embed"), recipe.schedule()
    assert [own.exact(step) * 10 for step in range(12)] == [base.exact(step) for step in range(12)]
    assert recipe.param_groups[1].patterns == ("embed_tokens",)
    assert "rex-1" in recipe.notes


AUTO = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "gradient_clipping": "auto",
}


def test_auto_of_deepspeed_is_inserted_from_facts() -> None:
    facts = {"lr": 1e-3, "weight_decay": 0.1, "warmup_steps": 4, "total_steps": 20}
    recipe = load_recipe(AUTO, facts=facts)
    assert (recipe.framework, recipe.horizon) == ("deepspeed", 20)
    assert recipe.schedule().exact(5) == sp.Rational(1, 1000)
    assert recipe.optimizer().hyperparameters["weight_decay"] == sp.Rational(1, 10)
    with pytest.raises(ArgumentError) as caught:
        load_recipe(AUTO, facts={"lr": 1e-3})
    assert str(caught.value) == (
        "missing facts: weight_decay, warmup_updates, total_updates (<mapping>): "
        '"auto" is what the Trainer inserts; give facts={…}'
    )


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": (
        {"warmup_step": 3},
        "unknown key 'warmup_step' (<mapping>): did you mean 'warmup_steps'?",
    ),
    "misspelled key": (
        {"learning_rte": 3},
        "unknown key 'learning_rte' (<mapping>): did you mean 'learning_rate'?",
    ),
    "not a number": (
        {"learning_rate": "fast"},
        "learning_rate must be a finite number, got 'fast' (<mapping>: learning_rate)",
    ),
    "not an integer": (
        {"max_steps": 2.5},
        "max_steps must be an integer, got 2.5 (<mapping>: max_steps)",
    ),
    "negative warmup": (
        {"warmup_steps": -1},
        "warmup_steps must not be negative, got -1 (<mapping>: warmup_steps)",
    ),
    "ratio above 1": (
        {"warmup_ratio": 1.5},
        "warmup_ratio must be in [0, 1], got 1.5 (<mapping>: warmup_ratio)",
    ),
    "function of the loss": (
        {"lr_scheduler_type": "greedy"},
        "greedy is a function of the loss (<mapping>: lr_scheduler_type)",
    ),
    "unknown scheduler": (
        {"lr_scheduler_type": "cosin"},
        "there is no lr_scheduler_type 'cosin' (<mapping>: lr_scheduler_type): "
        "did you mean 'cosine'?",
    ),
    "unknown argument": (
        {"lr_scheduler_kwargs": {"min_lr": 1}},
        "unknown key 'min_lr' (<mapping>: lr_scheduler_kwargs): known are ",
    ),
    "no facts": (
        {"max_steps": -1},
        "missing facts: total_updates (<mapping>: max_steps): give total_updates, or "
        "updates_per_epoch, or dataset_size and world_size",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_is_refused(name: str) -> None:
    given, message = ERRORS[name]
    with pytest.raises(ClosedFormError) as caught:
        read(**given)
    assert str(caught.value) == message


def test_variable_of_a_script_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    text = "STEPS=10\ntrain --learning_rate $LR --max_steps $STEPS --output_dir ${OUT}/x"
    with pytest.raises(ConfigError, match=r"learning_rate is needed, but the file .* .\$LR. "):
        from_text(text, "run.sh", tmp_path, framework="transformers")
    recipe = from_text(f"LR=1e-3\n{text}", "run.sh", tmp_path, framework="transformers")
    assert (recipe.horizon, recipe.schedule().exact(5)) == (10, sp.Rational(1, 2000))
