"""Schedulers that accelerate steps once for each process."""

import math
from typing import Any

import pytest

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.frameworks.diffusers import CURVES, SCRIPTS, LengthFactor
from closedform.language import Schedule
from closedform.recipes import load_recipe
from closedform.recipes.document import document_of

LENGTHS = "--learning_rate 1e-4 --lr_warmup_steps 3 --max_train_steps 10"


def of_diffusers(script: str, flags: str, **facts: Any) -> Schedule:
    document = document_of(f"{script}.py {flags}", ".args", "train.args")
    return load_recipe(document, facts=facts).schedule()


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("processes", [2, 8])
def test_the_schedule_of_diffusers_in_updates_does_not_depend_on_the_processes(
    kind: str, processes: int
) -> None:
    for script in ("train_text_to_image", "train_controlnet_flux"):
        flags = f"{LENGTHS} --lr_scheduler {kind}"
        schedule = of_diffusers(script, flags, num_processes=processes)
        single = of_diffusers(script, flags)
        assert [schedule.exact(t) for t in range(12)] == [single.exact(t) for t in range(12)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_recognized_and_its_defaults_are_those_of_its_flags(script: str) -> None:
    facts = {"num_processes": 2, "micro_batches_per_epoch": 40}
    recipe = load_recipe(
        document_of(f"accelerate launch {script}.py --train_batch_size 1", ".args", "train.args"),
        facts=facts,
    )
    assert recipe.framework == "diffusers"
    assert recipe.horizon == 20 * SCRIPTS[script].epochs
    assert recipe.schedule("weight_decay").exact(0) == pytest.approx(SCRIPTS[script].weight_decay)
    is_constant = SCRIPTS[script].lengths is not LengthFactor.MICRO_BATCHES
    assert recipe.schedule().exact(0) == pytest.approx(
        SCRIPTS[script].learning_rate if is_constant else 0
    )


def test_accumulation_in_place_of_processes_needs_their_number() -> None:
    flags = f"{LENGTHS} --lr_scheduler cosine"
    with pytest.raises(MissingFactsError, match="world_size"):
        of_diffusers("train_text_to_image_sdxl", flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr_scheduler piecewise_constant", "needs step rules"),
        ("--lr_scheduler sine", "there is no lr_scheduler 'sine'"),
        ("--lr_schedular cosine", "unknown key 'lr_schedular'"),
        ("--num_epochs 3", "the script has no flag --num_epochs"),
    ],
)
def test_flags_that_the_script_refuses(flags: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        of_diffusers("train_dreambooth", f"{LENGTHS} {flags}")


def of_kohya(flags: str, suffix: str = ".args", **facts: Any) -> Schedule:
    document = document_of(flags, suffix, f"train{suffix}")
    return load_recipe(document, framework="kohya", facts=facts).schedule()


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize(
    ("written", "steps"), [("6", 6), ("10%", 0.1), ("0.25", 0.25), ("0.99", 0.99), ("0", 0)]
)
def test_a_length_of_kohya_is_a_number_of_steps_or_a_ratio(
    written: str, steps: float, processes: int
) -> None:
    flags = (
        f"--learning_rate 1 --lr_scheduler linear --max_train_steps 40 --lr_warmup_steps {written}"
    )
    schedule = of_kohya(flags, num_processes=processes)
    total = 40 * processes
    warmup = int(steps * total) if isinstance(steps, float) else steps
    for update in range(42):
        step = update * processes
        rise = step / max(1, warmup)
        expected = rise if step < warmup else max(0, (total - step) / (total - warmup))
        # Python's floats: two roundings.
        assert float(schedule.exact(update)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("written", ["1.5", "5.0", "abc", "ten%"])
def test_a_length_that_argparse_refuses(written: str) -> None:
    with pytest.raises(ClosedFormError, match="lr_warmup_steps must be"):
        of_kohya(f"--max_train_steps 40 --lr_scheduler linear --lr_warmup_steps {written}")


def test_a_float_of_toml_is_a_ratio_and_a_text_is_refused() -> None:
    config = 'lr_scheduler = "linear"\nlearning_rate = 1.0\nmax_train_steps = 8\n'
    schedule = of_kohya(f"{config}lr_warmup_steps = 2.0", ".toml", num_processes=1)
    assert [schedule.exact(t) * 16 for t in (0, 1, 8)] == [0, 1, 8]
    with pytest.raises(ClosedFormError, match="lr_warmup_steps must be"):
        of_kohya(f'{config}lr_warmup_steps = "10%"', ".toml", num_processes=1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr_scheduler rex", "there is no lr_scheduler 'rex'"),
        ("--lr_scheduler cosine_warmup_with_min_lr", "there is no lr_scheduler"),
        ("--lr_scheduler constant --lr_warmup_steps 5", "constant takes no warmup"),
        ("--lr_scheduler_type StepLR --lr_warmup_steps 5", "StepLR takes no warmup"),
        ("--lr_scheduler_type lion.Schedule", r"only classes of torch\.optim"),
        ("--lr_scheduler cosine --optimizer_type Adafactor", "give relative_step=False"),
        ("--lr_scheduler cosine_with_min_lr", "exactly one of min_lr and min_lr_rate"),
        ("--lr_scheduler polynomial --lr_scheduler_args power=2", "takes no power"),
        ("--lr_scheduler piecewise_constant", "has no step_rules"),
        ("--lr_scheduler_args T_max", "must hold words such as T_max=100"),
    ],
)
def test_flags_that_kohya_refuses(flags: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        of_kohya(f"--learning_rate 1 --max_train_steps 40 {flags}", num_processes=1)


def test_words_after_optimizer_args_are_its_arguments() -> None:
    flags = "--learning_rate 1e-4 --optimizer_type AdamW --max_train_epochs 2"
    document = document_of(
        f"{flags} --optimizer_args weight_decay=0.1 betas=.9,.99", ".args", "train.args"
    )
    recipe = load_recipe(document, facts={"total_updates": 10})
    assert recipe.framework == "kohya"
    hyperparameters = recipe.optimizer().hyperparameters
    assert float(hyperparameters["weight_decay"]) == 0.1
    assert float(hyperparameters["beta2"]) == 0.99


@pytest.mark.parametrize("kind", ["cosine", "sine"])
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("rate", [1e-4, 3e-6, 7.3e-5])
def test_a_curve_of_simpletuner_is_cut_to_billionths_as_its_floats_are(
    kind: str, processes: int, rate: float
) -> None:
    config = {
        "learning_rate": rate,
        "lr_scheduler": kind,
        "lr_warmup_steps": 12,
        "lr_end": 1e-6,
        "max_train_steps": 120,
        "train_batch_size": 1,
        "optimizer": "adamw_bf16",
    }
    schedule = load_recipe(config, facts={"num_processes": processes}).schedule()
    half = 12 * processes
    for update in range(240):
        angle = math.pi * (-update * processes if kind == "cosine" else update * processes) / half
        if kind == "cosine":
            value = 1e-6 + (rate - 1e-6) * (1 + math.cos(angle)) / 2
        else:
            value = 1e-6 + (rate - 1e-6) * (0.5 * (1 + math.sin(angle)))
        assert schedule.exact(update) * 10**9 == math.floor(value * 1e9)


def test_simpletuner_takes_steps_or_epochs() -> None:
    config = {"learning_rate": 1e-4, "lr_scheduler": "sine", "train_batch_size": 1}
    config |= {"optimizer": "adamw_bf16", "max_train_steps": 10}
    with pytest.raises(ClosedFormError, match="num_train_epochs must be 0"):
        load_recipe({**config, "num_train_epochs": 2})
    with pytest.raises(ClosedFormError, match="sine needs lr_warmup_steps above 0"):
        load_recipe(config)
