"""The flags and files of kohya: lengths in steps and ratios, and what is refused."""

from typing import Any

import pytest

from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.recipes import load_recipe
from closedform.recipes.document import document_of


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
