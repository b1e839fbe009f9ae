"""Configs and command lines of fairseq."""

from pathlib import Path

from tests.recipes.test_research_readers import load, rates

COMPOSITE = """
optimization: {lr: [0.5], max_update: 100}
optimizer:
  _name: composite
  groups:
    slow: {lr_float: 0.1, optimizer: adam, lr_scheduler: fixed}
    fast: {lr: [0.2], optimizer: adam, lr_scheduler: fixed}
lr_scheduler: pass_through
"""


def test_fairseq_ignores_the_rate_of_a_group(tmp_path: Path) -> None:
    recipe = load(tmp_path, "fairseq", COMPOSITE)
    assert rates(recipe, 5, group="slow") == [0.1]
    assert rates(recipe, 5, group="fast") == [0.5]
    assert "group-rate-ignored" in recipe.notes


def test_fairseq_reads_its_command_line(tmp_path: Path) -> None:
    text = "fairseq-train data --optimizer adam --adam-betas '(0.9, 0.98)' --lr 0.1 \\\n"
    text += "  --lr-scheduler inverse_sqrt --warmup-updates 4 --max-update 100 --clip-norm 1.0\n"
    recipe = load(tmp_path, "fairseq", text, ".sh")
    assert rates(recipe, 2, 4, 16) == [0.05, 0.1, 0.05]
    assert float(recipe.optimizer().hyperparameters["beta2"]) == 0.98
