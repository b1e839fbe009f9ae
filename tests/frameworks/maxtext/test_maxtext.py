"""Command lines of MaxText."""

from pathlib import Path

from tests.recipes.test_research_readers import load, rates


def test_maxtext_reads_words(tmp_path: Path) -> None:
    text = "python3 train.py base.yml steps=100 learning_rate=0.1 warmup_steps_fraction=0.1\n"
    recipe = load(tmp_path, "maxtext", text, ".sh")
    assert rates(recipe, 5, 10) == [0.05, 0.1]
