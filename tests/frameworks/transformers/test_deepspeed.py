"""TrainingArguments that name a DeepSpeed config: which of the two decides, and with what.

``deepspeed.jsonl`` has pairs of both with the values of a run: HfTrainerDeepSpeedConfig of
transformers 5.23.0 inserted and compared the values, the scheduler classes of DeepSpeed 0.19.8 and
get_scheduler of transformers stepped torch's AdamW (2.13.0), on a CPU.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closedform as cf
from closedform.analysis.linting import lint
from closedform.errors import ConfigError, ConflictError, UnknownNameError
from closedform.recipes import Recipe, load_recipe
from tests.support.commands import CliRunner

RECORDS = Path(__file__).with_name("deepspeed.jsonl").read_text(encoding="utf-8")
PAIRS: list[dict[str, Any]] = [json.loads(line) for line in RECORDS.splitlines()]
COSINE = {
    "learning_rate": 3e-4,
    "max_steps": 200,
    "warmup_steps": 20,
    "lr_scheduler_type": "cosine",
}
WARMUP = {
    "type": "WarmupLR",
    "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "warmup_type": "linear"},
}
ROUNDING = 1e-12
"""As of other records: at most some thousand roundings of float64."""


def read(folder: Path, arguments: Any, deepspeed: Any, path: str = "ds.json") -> Recipe:
    """The recipe of a file of arguments next to one of DeepSpeed."""
    (folder / "ds.json").write_text(json.dumps(deepspeed), encoding="utf-8")
    config = folder / "run.json"
    config.write_text(json.dumps({**arguments, "deepspeed": path}), encoding="utf-8")
    return load_recipe(config, framework="transformers")


def refused_keys(error: ConfigError) -> list[str]:
    """The keys of DeepSpeed whose values are not the Trainer's, as an error lists them."""
    return [part.partition(" is ")[0] for part in error.what.partition(": ")[2].split("; ")]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair["name"]))
def test_values_are_those_of_the_run(pair: dict[str, Any], tmp_path: Path) -> None:
    if "error" in pair:
        with pytest.raises(ConfigError, match="the Trainer refuses values") as caught:
            read(tmp_path, pair["arguments"], pair["deepspeed"])
        keys = [line.removeprefix("ds ").partition("=")[0] for line in pair["error"]]
        assert sorted(refused_keys(caught.value)) == sorted(keys)
        return
    recipe = read(tmp_path, pair["arguments"], pair["deepspeed"])
    schedules = recipe.schedules
    for key in ("lr", "weight_decay", *({"beta1"} & schedules.keys())):
        values = np.array([float(schedules[key](step)) for step in pair["steps"]])
        expected = np.array(pair[key])
        assert np.max(np.abs(values - expected)) <= ROUNDING * np.max(np.abs(expected)), key
    if "beta1" not in schedules:
        assert {*pair["beta1"]} == {float(recipe.optimizer().hyperparameters["beta1"])}
    assert len(recipe.param_groups) == pair["groups"]
    assert float(recipe.param_groups[-1].schedules["weight_decay"](0)) == pair["no_decay"]
    threshold = 0 if recipe.clipping is None else float(recipe.clipping.threshold)
    assert threshold == pair["clipping"]


def test_the_file_that_wins_is_named(tmp_path: Path) -> None:
    adam = {"type": "AdamW", "params": {"lr": "auto"}}
    both = {"optimizer": adam, "scheduler": WARMUP, "gradient_clipping": "auto"}
    notes = read(tmp_path, COSINE, both).notes
    assert notes["deepspeed-scheduler"] == (
        "optimizer AdamW of ds.json takes the place of optim adamw_torch; scheduler WarmupLR of "
        "ds.json takes the place of lr_scheduler_type cosine"
    )
    assert {*notes} == {"one-update-late", "deepspeed-scheduler"}
    notes = read(tmp_path, COSINE, {"scheduler": WARMUP}).notes
    assert notes["deepspeed-clipping"] == (
        "max_grad_norm 1 has no effect: ds.json has no gradient_clipping"
    )
    assert {*read(tmp_path, COSINE, {"gradient_clipping": "auto"}).notes} == {"cosine-1"}


def test_lint_has_the_first_update_that_another_file_decides(tmp_path: Path) -> None:
    recipe = read(tmp_path, COSINE, {"scheduler": WARMUP, "gradient_clipping": 1.0})
    (finding,) = (one for one in lint(recipe) if one.rule == "schedule-replaced")
    assert (finding.update, finding.evidence) == (1, {1: "0"})
    assert finding.message == (
        "lr is 0 at update 1; by the config without the other file it would be 1.5e-05"
    )
    equal = read(tmp_path, COSINE, {"gradient_clipping": 1.0})
    assert "schedule-replaced" not in {one.rule for one in lint(equal)}


def test_a_pair_that_the_trainer_refuses_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"gradient_clipping": 3.5}), encoding="utf-8")
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**COSINE, "deepspeed": "ds.json"}), encoding="utf-8")
    (finding,) = lint(config, framework="transformers")
    message = str(finding)
    assert message == (
        "error refused-by-framework: the Trainer refuses values that are not its own: "
        "gradient_clipping is 3.5, the Trainer has 1 (ds.json): write 'auto' into the DeepSpeed "
        "config"
    )
    result = CliRunner().invoke(["lint", str(config), "--framework", "transformers"])
    assert (result.exit_code, result.output.strip()) == (1, message)
    # A guessed framework is named behind it.
    result = CliRunner().invoke(["lint", str(config)])
    assert (result.exit_code, result.output.startswith(message)) == (1, True)
    assert "--generic reads" in result.output
    with pytest.raises(ConflictError, match=r"gradient_clipping is 3\.5"):
        lint(config, framework="transformers", ignore=("refused-by-framework",))
    with pytest.raises(UnknownNameError, match="there is no rule 'nonsense'"):
        lint(config, framework="transformers", ignore=("nonsense",))


def test_show_diff_and_lint_say_which_file_wins(tmp_path: Path) -> None:
    recipe = read(tmp_path, COSINE, {"scheduler": WARMUP, "gradient_clipping": 1.0})
    difference = cf.diff(recipe, load_recipe(COSINE, framework="transformers"))
    assert difference.curves[0].first_step == 1
    config, alone = tmp_path / "run.json", tmp_path / "alone.json"
    alone.write_text(json.dumps(COSINE), encoding="utf-8")
    for words in (["show", config], ["lint", config], ["diff", config, alone]):
        output = CliRunner().invoke([*map(str, words)], {"COLUMNS": "200"}).output
        # show folds its notes.
        text = " ".join(output.split())
        assert "scheduler WarmupLR of ds.json takes the place of lr_scheduler_type cosine" in text


PLACES = {
    "next to the config": ("ds.json", "run/ds.json", None),
    "in a folder below": ("zero/ds.json", "run/zero/ds.json", None),
    "from the root of the files": ("zero/ds.json", "zero/ds.json", "."),
    "from the config in the files": ("ds.json", "run/ds.json", "."),
    "above the config": ("../ds.json", "ds.json", "."),
}
FALLBACK = "a scheduler or optimizer in the DeepSpeed config takes the place of this one"


@pytest.mark.parametrize("name", PLACES)
def test_place_of_the_file(name: str, tmp_path: Path) -> None:
    path, place, files = PLACES[name]
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(json.dumps({"scheduler": WARMUP}), encoding="utf-8")
    config = tmp_path / "run" / "run.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({**COSINE, "deepspeed": path}), encoding="utf-8")
    recipe = load_recipe(config, files=None if files is None else tmp_path / files)
    assert recipe.notes["deepspeed-scheduler"] == (
        f"scheduler WarmupLR of {path} takes the place of lr_scheduler_type cosine"
    )
    assert recipe.schedule().exact(100) == recipe.derived["lr"]


@pytest.mark.parametrize("path", ["absent.json", "../ds.json", "{root}/ds.json", "default-zero2"])
def test_a_file_that_may_not_be_read_is_left_to_the_note(path: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "ds.json").write_text(json.dumps({"scheduler": WARMUP}), encoding="utf-8")
    config = tmp_path / "run" / "run.json"
    text = json.dumps({**COSINE, "deepspeed": path.format(root=tmp_path)})
    config.write_text(text, encoding="utf-8")
    recipe = load_recipe(config)
    assert recipe.notes["deepspeed-scheduler"] == FALLBACK
    assert recipe.schedule().name == "cosine"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    (tmp_path / "run" / "link.json").symlink_to(tmp_path / "ds.json")
    config = tmp_path / "run" / "run.json"
    config.write_text(json.dumps({**COSINE, "deepspeed": "link.json"}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"the file 'link.json' is outside of .*run"):
        load_recipe(config)


def test_a_mapping_is_read_in_place() -> None:
    recipe = load_recipe({**COSINE, "deepspeed": {"scheduler": WARMUP}})
    assert recipe.notes["deepspeed-scheduler"] == (
        "scheduler WarmupLR of <mapping>: deepspeed takes the place of lr_scheduler_type cosine"
    )
    wrong = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.8, 0.9]}}}
    with pytest.raises(ConfigError) as caught:
        load_recipe({**COSINE, "deepspeed": wrong}, framework="transformers")
    assert str(caught.value) == (
        "the Trainer refuses values that are not its own: optimizer.params.lr is 0.001, the "
        "Trainer has 0.0003; optimizer.params.betas is (0.8, 0.9), the Trainer has (0.9, 0.999) "
        "(<mapping>: deepspeed): write 'auto' into the DeepSpeed config"
    )


def test_axolotl_hands_its_config_to_the_trainer(tmp_path: Path) -> None:
    """axolotl PR 909: constant_with_warmup next to WarmupDecayLR is a decay."""
    params = {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}
    scheduler = {"type": "WarmupDecayLR", "params": {**params, "warmup_type": "linear"}}
    (tmp_path / "zero2.json").write_text(json.dumps({"scheduler": scheduler}), encoding="utf-8")
    config = tmp_path / "run.yaml"
    config.write_text(
        "base_model: m\nlearning_rate: 1.0e-3\nlr_scheduler: constant_with_warmup\n"
        "warmup_steps: 10\nmax_steps: 110\nmicro_batch_size: 1\ndeepspeed: zero2.json\n",
        encoding="utf-8",
    )
    recipe = load_recipe(config)
    assert (recipe.framework, recipe.clipping) == ("axolotl", None)
    assert recipe.notes["deepspeed-scheduler"] == (
        "scheduler WarmupDecayLR of zero2.json takes the place of lr_scheduler constant_with_warmup"
    )
    # One update late: half of the decay of 100 updates is over at update 61.
    assert recipe.schedule().exact(61) == recipe.derived["lr"] / 2
    assert recipe.replaced_schedules["lr"].exact(61) == recipe.derived["lr"]
