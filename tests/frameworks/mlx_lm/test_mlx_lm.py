"""The flags of MLX LM."""

from pathlib import Path

from closedform.recipes import load_recipe


def test_flags_of_mlx_lm_have_hyphens(tmp_path: Path) -> None:
    # The keys of its YAML files have underscores, and hyphens have no effect there.
    path = tmp_path / "run.args"
    path.write_text(
        "mlx_lm.lora --train --iters 600 --learning-rate 2e-5 --batch-size 4", encoding="utf-8"
    )
    recipe = load_recipe(path)
    assert (recipe.framework, recipe.horizon, recipe.notes) == ("mlx-lm", 600, {})
    assert recipe.schedule()(0) == 2e-5
