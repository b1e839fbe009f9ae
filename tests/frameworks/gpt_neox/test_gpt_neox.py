"""Configs of GPT-NeoX: the classes of Adam by their flags."""

from collections.abc import Callable

import pytest

from closedform.language import UpdateRule
from closedform.optimizers import adam, adamw
from closedform.recipes import load_recipe
from tests.recipes.test_training_readers import NEOX, changed


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
