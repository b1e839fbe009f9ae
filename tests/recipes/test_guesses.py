"""The framework of a config: a wrong name is an error, and a guess has its reason.

Example: a config with ``TRAIN.BASE_LR`` is refused by ``--framework detectron2``, whose keys are in
``SOLVER``: a reading would be the framework's defaults.
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ClosedFormError, ConfigError
from closedform.recipes import load_recipe
from closedform.recipes.document import read_document
from closedform.recipes.load import deciding_keys, part, readable
from closedform.recipes.registry import FRAMEWORKS
from tests.reference.records import corpus

ENGLISH = {
    "rate": ["BASE_LR", "peak_lr", "init_lr", "lr"],
    "low": ["MIN_LR", "min_lr", "lr_min"],
    "warmup": ["WARMUP_EPOCHS", "warmup_steps", "warmup_iters"],
    "total": ["EPOCHS", "max_epoch", "num_iters"],
}
"""Keys as programs that no framework of the library is like name them."""


def config(seed: int) -> dict[str, Any]:
    """A config of a program that is not known: its keys in a section of an unusual name."""
    draw = random.Random(seed)
    values = {"rate": 5e-4, "low": 5e-6, "warmup": 20, "total": 300}
    inner = {draw.choice(ENGLISH[name]): value for name, value in values.items()}
    return {draw.choice(["TRAIN_PART", "run_part", "engine_part"]): inner}


@pytest.mark.parametrize("seed", range(4))
def test_a_framework_that_reads_no_key_of_the_config_is_an_error(seed: int) -> None:
    for name in readable():
        with pytest.raises(ClosedFormError) as raised:
            load_recipe(config(seed), framework=name)
        if isinstance(raised.value, ConfigError) and "no key of the config" in str(raised.value):
            assert f"one that {name} reads; of a schedule it has" in str(raised.value)
            assert "framework='generic'" in str(raised.value)


def test_the_advice_for_an_unknown_config_is_followed_by_its_reading() -> None:
    for seed in range(4):
        with pytest.raises(ConfigError) as raised:
            load_recipe(config(seed))
        assert "framework='generic' reads the keys by their names" in str(raised.value)
        assert "reads it so" not in str(raised.value)


@pytest.mark.parametrize("row", [row for row in corpus() if "expected" in row][::40])
def test_a_guess_names_keys_that_suffice(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / row["file"].partition("/")[2]
    path.write_text(row["text"], encoding="utf-8")
    document = read_document(path)
    reader = FRAMEWORKS[row["file"].partition("/")[0]].reader
    assert reader is not None
    if not reader.matches(document):
        return
    keys = deciding_keys(document, reader.matches)
    # Without these keys, and with them only, where the text of the file does not decide.
    if keys != (document.program or "its text",):
        assert reader.matches(replace(document, content=part(document.content, {*keys})))


def test_a_guess_is_shown_with_its_keys() -> None:
    content = {"optim": "adam", "optim_conf": {"lr": 0.1}, "scheduler": "warmuplr"}
    recipe = load_recipe(content)
    assert recipe.guessed_by == ("optim_conf.lr",)
    assert "guessed by optim_conf.lr)" in str(recipe).partition("\n")[0]
    assert "guessed" not in str(load_recipe(content, framework="espnet"))
