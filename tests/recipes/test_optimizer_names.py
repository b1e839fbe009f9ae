"""Names of optimizers in configs: only classes that are declared have a rule of the library."""

from typing import Any

import pytest

import closedform as cf
from closedform import optimizers
from closedform.errors import UnknownNameError
from closedform.recipes.rules import CLASSES, plan_optimizer, rule_of_class

UNDECLARED = sorted(set(optimizers.__all__) - set(CLASSES.values()))

LEVANTER = {"trainer": {"num_train_steps": 100, "train_batch_size": 8}}
LIGHTNING = {
    "trainer": {"max_steps": 100},
    "lr_scheduler": {
        "class_path": "torch.optim.lr_scheduler.CosineAnnealingLR",
        "init_args": {"T_max": 100},
    },
}


def levanter(name: str) -> dict[str, Any]:
    return {**LEVANTER, "optimizer": {"type": name, "learning_rate": 1e-3}}


def lightning(name: str) -> dict[str, Any]:
    optimizer = {"class_path": f"heavyball.{name}", "init_args": {"lr": 1e-3}}
    return {**LIGHTNING, "optimizer": optimizer}


def test_declared_classes_have_a_rule() -> None:
    for name, rule in CLASSES.items():
        assert rule_of_class(name) is getattr(optimizers, rule)


@pytest.mark.parametrize("name", UNDECLARED)
@pytest.mark.parametrize("spelling", [str, str.upper, lambda name: name.replace("_", "-")])
def test_a_rule_is_not_taken_for_a_class_of_its_name(name: str, spelling: Any) -> None:
    with pytest.raises(UnknownNameError, match="is not the library's rule of that name"):
        plan_optimizer(spelling(name), {}).build({"lr": cf.schedules.constant(0.1)})


@pytest.mark.parametrize("name", UNDECLARED)
def test_a_class_of_a_foreign_package_is_refused(name: str) -> None:
    recipe = cf.load_recipe(
        lightning(name), framework="lightning-cli", facts={"updates_per_epoch": 10}
    )
    assert recipe.schedule().exact(0) == cf.schedules.constant(1e-3).exact(0)
    with pytest.raises(UnknownNameError):
        recipe.optimizer()


@pytest.mark.parametrize("name", ["muon", "mars", "scion", "kron", "soap", "rmsprop"])
def test_steps_of_levanter_are_refused_and_its_rates_are_read(name: str) -> None:
    recipe = cf.load_recipe(levanter(name), framework="levanter")
    assert recipe.schedule().exact(50) > 0
    with pytest.raises(UnknownNameError):
        recipe.optimizer()
