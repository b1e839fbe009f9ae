"""The scripts of diffusers, whose schedulers accelerate steps once for each process."""

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
