"""The summary of a recipe: one screen at most, all of it on request, in HTML and as plain data."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sympy as sp

from closedform.language import description
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.summary import MOST_GROUPS, summarize
from closedform.schedules import constant, cosine, linear
from tests.support.commands import CliRunner

TRAINER: dict[str, Any] = {
    "learning_rate": 1e-3,
    "max_steps": 100,
    "warmup_steps": 10,
    "per_device_train_batch_size": 1,
    "weight_decay": 0.1,
    "lr_scheduler_type": "linear",
}


def with_groups(count: int) -> Recipe:
    """A config with a group for each layer, as axolotl has them."""
    groups = [
        {"name": f"layer{index}", "modules": [f"layers.{index}.<w>"], "lr": 1e-3 * 0.9**index}
        for index in range(count)
    ]
    config = {
        "learning_rate": 1e-3,
        "max_steps": 100,
        "micro_batch_size": 1,
        "lr_scheduler": "linear",
        "lr_groups": groups,
    }
    return load_recipe(config, "axolotl")


def test_a_recipe_is_a_line_and_a_table_of_one_screen() -> None:
    recipe = with_groups(30)
    assert repr(recipe) == "<Recipe recipe (axolotl): adamw_torch, 32 param groups, 100 updates>"
    lines = str(recipe).splitlines()
    assert len(lines) <= 30
    assert f"… and {32 - MOST_GROUPS} more param groups" in lines
    assert len(summarize(recipe).lines(None)) >= 32


def test_the_table_states_what_differs_from_the_default_group() -> None:
    recipe = load_recipe(TRAINER)
    rows = [line.split() for line in str(recipe).splitlines()]
    default, no_decay = (row for row in rows if row[:1] in (["default"], ["no_decay"]))
    assert default[-1] == "0.1"
    assert no_decay[-3:] == ["as", "default", "0"]
    assert "linear: 0 → 0.001 → 0" in str(recipe)


def test_notes_clipping_and_accumulation_are_stated() -> None:
    recipe = load_recipe(
        {**TRAINER, "lr_scheduler_type": "cosine", "gradient_accumulation_steps": 4}
    )
    text = str(recipe)
    assert recipe.notes
    assert all(note in text for note in recipe.notes)
    assert "clipping      norm 1\n" in text
    assert "betas=(0.9, 0.999), eps=1e-08" in text
    assert "accumulation  4 micro-batches" in text
    assert "updates       100" in text


@pytest.mark.parametrize(
    ("schedule", "horizon", "text"),
    [
        (constant(sp.Rational(1, 10)), None, "0.1"),
        (linear(0, 1, 10).then(cosine(1, 0, 90), at=10), 100, "0 → 1 → 0"),
        (linear(0, 1, 10), 5, "0 → 0.5"),
    ],
)
def test_a_schedule_is_described_by_its_values_where_it_changes(
    schedule: Any, horizon: int | None, text: str
) -> None:
    described = description.summarize(schedule, horizon)
    assert described.split(": ")[-1] == text


def test_a_schedule_with_many_changes_is_shortened() -> None:
    steps = constant(0)
    for index in range(1, 10):
        steps = steps.then(constant(index), at=index)
    assert description.summarize(steps, 20).endswith("0 → 1 → 2 → … → 9")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_has_all_groups_and_the_curves() -> None:
    page = with_groups(30)._repr_html_()
    tags = _Tags()
    tags.feed(page)
    assert tags.names.count("tr") == 33 + 5  # a row for each option
    assert "svg" in tags.names
    assert "w" not in tags.names  # a pattern is text
    assert "layers.7.<w>" in tags.text


def test_show_prints_one_screen_and_all_on_request(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    recipe_config = {
        "learning_rate": 1e-3,
        "max_steps": 100,
        "micro_batch_size": 1,
        "lr_scheduler": "linear",
        "base_model": "x",
        "lr_groups": [
            {"name": f"layer{index}", "modules": [f"layers.{index}"], "lr": 1e-4}
            for index in range(30)
        ],
    }
    path.write_text(json.dumps(recipe_config), encoding="utf-8")
    runner = CliRunner()
    words = ["show", str(path), "--framework", "axolotl"]
    short = runner.invoke(words)
    whole = runner.invoke([*words, "--all"])
    assert short.exit_code == whole.exit_code == 0
    assert len(short.stdout.splitlines()) <= 45
    assert "more param groups" in short.stdout
    assert all(f"layer{index} " in whole.stdout for index in range(30))
    assert "optimizer: adamw" in whole.stdout
    data = json.loads(runner.invoke([*words, "--json"]).stdout)
    assert len(data["recipe"]["groups"]) == 32
    assert data["recipe"]["groups"][1]["patterns"] == ["layers.0"]


@pytest.mark.parametrize("command", ["show", "show --all", "show --json", "export"])
def test_an_optimizer_that_is_not_modelled_blocks_no_schedule(command: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TRAINER, "optim": "adafactor"}), encoding="utf-8")
    name, *options = command.split()
    output = tmp_path / "lr.onnx"
    words = [name, str(path), *options, *(["-o", str(output)] if name == "export" else [])]
    result = CliRunner().invoke(words)
    assert result.exit_code == 0, result.stderr
    if options:
        note = " ".join(result.stderr.split())
        assert "note: the optimizer 'adafactor' of this config is not the library's rule" in note
        assert "did you mean" not in note
    if name == "export":
        assert output.is_file()


def test_commands_print_the_notes_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TRAINER, "lr_scheduler_type": "cosine"}), encoding="utf-8")
    (note,) = load_recipe(path).notes
    runner = CliRunner()
    assert f"note: A: {note}: " in runner.invoke(["diff", str(path), str(path)]).stderr
    assert f"note: {note}: " in runner.invoke(["convert", str(path), "--to", "megatron"]).stderr
    difference = json.loads(runner.invoke(["diff", str(path), str(path), "--json"]).stdout)
    assert list(difference["notes"]["b"]) == [note]
