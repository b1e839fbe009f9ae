"""Configs that inherit: merged from the files that are given, and from no others."""

from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ConfigError
from closedform.recipes import load_recipe
from closedform.recipes.document import read_document
from closedform.recipes.inheritance import MAX_FILES, merge_files


def written(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


MMENGINE = {
    "configs/vit/vit.py": (
        "_base_ = ['../_base_/schedule.py', '../_base_/runtime.py']\n"
        "optim_wrapper = dict(optimizer=dict(lr=0.02))\n"
        "param_scheduler = [dict(type='MultiStepLR', by_epoch=False, milestones=[5], gamma=0.5)]\n"
    ),
    "configs/_base_/schedule.py": (
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9))\n"
        "param_scheduler = dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=3)\n"
        "train_cfg = dict(type='IterBasedTrainLoop', max_iters=10)\n"
    ),
    "configs/_base_/runtime.py": "log_level = 'INFO'\n",
}


def test_mmengine_merges_its_bases(tmp_path: Path) -> None:
    folder = written(tmp_path, MMENGINE)
    path = folder / "configs/vit/vit.py"
    with pytest.raises(ConfigError, match=r"inherits from _base_.*files=directory"):
        load_recipe(path, framework="mmengine")
    recipe = load_recipe(path, framework="mmengine", files=folder)
    assert (recipe.horizon, recipe.optimizer().name) == (10, "sgd")
    assert [recipe.schedule()(step) for step in (0, 4, 5)] == [0.02, 0.02, 0.01]


def test_delete_drops_the_entries_of_the_base() -> None:
    base = {"b.yaml": "o: {type: SGD, momentum: 0.9}\nx: 1"}
    config = {"_base_": "b.yaml", "o": {"_delete_": True, "type": "AdamW"}}
    assert merge_files(read_document(config), base).content == {"o": {"type": "AdamW"}, "x": 1}


def test_detectron2_merges_its_base(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        {
            "a/run.yaml": "_BASE_: ../Base.yaml\nSOLVER:\n  MAX_ITER: 30\n",
            "Base.yaml": "SOLVER:\n  BASE_LR: 0.5\n  STEPS: [10, 20]\n  WARMUP_ITERS: 0\n",
        },
    )
    recipe = load_recipe(folder / "a/run.yaml", files=folder)
    assert recipe.framework == "detectron2"
    assert [recipe.schedule()(step) for step in (9, 10)] == [0.5, 0.05]


HYDRA = {
    "optimizer/adam.yaml": "_name: adam\nadam_eps: 1e-6\n",
    "lr_scheduler/poly.yaml": "_name: polynomial_decay\nwarmup_updates: 4\n",
    "lr_scheduler/fixed.yaml": "_name: fixed\n",
    "common.yaml": "# @package _global_\noptimization:\n  lr: [0.5]\n  max_update: 8\n",
}


@pytest.mark.parametrize(
    ("defaults", "own", "name", "lr"),
    [
        (["common", {"optimizer": "adam"}, {"lr_scheduler": "poly"}], {}, "polynomial_decay", 0.5),
        (
            [{"optimizer": "adam"}, {"lr_scheduler": "poly"}, {"override lr_scheduler": "fixed"}],
            {"optimization": {"lr": [0.1], "max_update": 8}},
            "fixed",
            0.1,
        ),
        (
            ["_self_", "common", "optimizer/adam", {"/lr_scheduler@lr_scheduler": "fixed"}],
            {"optimization": {"lr": [0.1]}},
            "fixed",
            0.5,
        ),
        (
            [{"optional lr_scheduler": "none"}, {"optimizer": "adam"}, {"model": None}, "common"],
            {"lr_scheduler": {"_name": "fixed"}},
            "fixed",
            0.5,
        ),
    ],
)
def test_hydra_composes_its_defaults(
    defaults: list[Any], own: dict[str, Any], name: str, lr: float
) -> None:
    config = {"defaults": defaults, **own}
    content = merge_files(read_document(config), HYDRA).content
    assert content["lr_scheduler"]["_name"] == name
    assert content["optimization"]["lr"] == [lr]
    recipe = load_recipe(config, framework="fairseq", files=HYDRA)
    assert max(recipe.schedule()(step) for step in range(8)) == lr


def test_gin_includes_are_read_in_their_order(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        {
            "runs/train.gin": (
                "include 't5x/base.gin'\nTRAIN_STEPS = 50\n"
                "utils.create_learning_rate_scheduler.warmup_steps = 5\n"
            ),
            "t5x/base.gin": (
                "TRAIN_STEPS = 9\nRATE = 0.5\nutils.create_learning_rate_scheduler:\n"
                "  factors = 'constant * linear_warmup'\n  base_learning_rate = %RATE\n"
            ),
        },
    )
    recipe = load_recipe(folder / "runs/train.gin", files=folder)
    assert (recipe.framework, recipe.horizon) == ("t5x", 50)
    assert [recipe.schedule()(step) for step in (1, 5)] == [0.1, 0.5]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"_base_": "b.yml"}, r"further file 'b.yml' is not given.*did you mean 'b.yaml'"),
        ({"_base_": "../b.yaml"}, "the file '../b.yaml' is outside of the given files"),
        ({"_base_": "/etc/passwd"}, "the file '/etc/passwd' is outside of the given files"),
        ({"_base_": "a://b.py"}, "_base_ must name files, got 'a://b.py'"),
        ({"_base_": [3]}, "_base_ must name files, got 3"),
        ({"_base_": ["b.yaml", "c.yaml"]}, "two files of _base_ have the key 'x'"),
        ({"_base_": "loop.yaml"}, f"at most {MAX_FILES} further files, or one includes itself"),
        ({"defaults": [{"a": ["x"]}]}, "cannot read the default"),
        ({"defaults": [{"a": "${b}"}]}, "cannot read the default"),
    ],
)
def test_mistakes_in_inheritance(config: dict[str, Any], message: str) -> None:
    given = {"b.yaml": "x: 1", "c.yaml": "x: 2", "loop.yaml": "_base_: loop.yaml"}
    with pytest.raises(ConfigError, match=message):
        merge_files(read_document(config), given)


def test_nothing_outside_of_the_directory_is_read(tmp_path: Path) -> None:
    written(tmp_path, {"secret.yaml": "x: 1", "inside/run.yaml": "_base_: link.yaml"})
    folder = tmp_path / "inside"
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(ConfigError, match=r"the file 'link.yaml' is outside of .*inside"):
        load_recipe(folder / "run.yaml", framework="mmengine", files=folder)
    with pytest.raises(ConfigError, match="is not a directory"):
        load_recipe(folder / "run.yaml", framework="mmengine", files=tmp_path / "none")
