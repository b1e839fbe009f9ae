"""The recipes of SpeechBrain: references of HyperPyYAML, and the facts that a file leaves open."""

import math
from typing import Any

import pytest

from closedform import frameworks
from closedform.errors import ClosedFormError, ConfigError, MissingFactsError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.document import document_of

NOAM = """
epochs: 4
length: 25
rate: 0.5
opt_class: !name:torch.optim.AdamW
    lr: !ref <rate>
    betas: !ref (<beta1>, 0.98)
    weight_decay: !ref <rate> / 4
beta1: 0.9
noam_annealing: !new:speechbrain.nnet.schedulers.NoamScheduler
    lr_initial: !ref <rate> * 2
    n_warmup_steps: !ref (<epochs> * <length>) // 10 - 6
"""


def read(text: str, **facts: Any) -> Recipe:
    return load_recipe(document_of(text, ".yaml", "train.yaml"), facts=facts)


def test_references_and_their_arithmetic_are_those_of_the_file() -> None:
    recipe = read(NOAM)
    assert recipe.framework == "speechbrain"
    assert [recipe.schedule().exact(t) * 4 for t in range(5)] == [2, 1, 2, 3, 4]
    assert recipe.schedule("weight_decay").exact(0) * 8 == 1
    assert float(recipe.optimizer().hyperparameters["beta1"]) == 0.9


def test_a_reference_that_the_file_does_not_determine_is_refused() -> None:
    with pytest.raises(ConfigError, match="lr_initial is needed, but the file does not determine"):
        read(NOAM.replace("<rate> * 2", "<other> * 2"))


def test_facts_choose_among_several_schedulers_and_give_the_rate() -> None:
    second = (
        "other: !new:speechbrain.nnet.schedulers.InverseSquareRootScheduler\n    warmup_steps: 4"
    )
    with pytest.raises(MissingFactsError, match="scheduler_key"):
        read(f"{NOAM}{second}")
    recipe = read(f"{NOAM}{second}", scheduler_key="other")
    assert [recipe.schedule().exact(t) * 4 for t in (0, 1, 16)] == [2, 2, 1]
    without = "\n".join(line for line in NOAM.splitlines() if "lr: " not in line)
    with pytest.raises(MissingFactsError, match="lr"):
        read(without)
    assert read(without, optimizer_lr=0.25).schedule().exact(0) * 4 == 1


def test_a_scheduler_of_the_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match="NewBobScheduler is a function of the loss"):
        read(NOAM.replace("NoamScheduler", "NewBobScheduler"))


def test_epochs_share_a_value() -> None:
    text = """
opt: !name:torch.optim.SGD {lr: 1.0}
annealing: !new:speechbrain.nnet.schedulers.StepScheduler {initial_value: 1.0}
"""
    schedule = read(text, updates_per_epoch=3).schedule()
    assert [schedule.exact(t) * 4 for t in (0, 2, 3, 8, 9)] == [4, 4, 2, 2, 1]


def test_the_factors_of_a_cyclic_cosine_without_a_rate_are_multiplied() -> None:
    annealing = {"n_warmup_steps": 3, "total_steps": 12}
    config = {"optimizer": {"lr": 0.5}, "lr_annealing": annealing}
    schedule = frameworks.schedule("speechbrain", "CyclicCosineScheduler", config)
    value = 0.5
    for step in range(1, 20):
        value *= 0.5 * (math.cos(math.pi * (step - 3) / 12) + 1)
        assert float(schedule.exact(step)) == pytest.approx(value, rel=1e-15)
    annealing["total_steps"] = 100_000
    with pytest.raises(ClosedFormError, match="known for at most 4096 updates"):
        frameworks.schedule("speechbrain", "CyclicCosineScheduler", config)
