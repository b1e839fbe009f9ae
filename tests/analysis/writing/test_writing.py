"""Configs written from recipes: proved equal, and checked against values of the frameworks."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import schedules
from closedform.analysis.difference import diff
from closedform.analysis.writing import Verdict, writable, write_recipe
from closedform.analysis.writing.fits import simple
from closedform.analysis.writing.recognition import recognize_form
from closedform.errors import ArgumentError, UnknownNameError
from closedform.language import Schedule
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.forms import CurveName
from closedform.verify.terms.verdict import Status
from tests.reference.records import Row, corpus

SAME = 1e-12
"""As in tests/recipes/test_corpus.py: the frameworks compute in float64."""
SINGLE = 5e-7
"""Some compute in float32, as the record says."""

ROWS = {
    row["file"]: row
    for row in corpus()
    if "expected" in row and row["file"].partition("/")[0] in writable()
}

# File -> why its own framework has no config for it that is written here.
OTHER = {
    "deepspeed/051-one-cycle-0.json": "the stairs of OneCycle",
    "deepspeed/053-test-test_other_optimizer.json": "the stairs of OneCycle",
    "deepspeed/058-fp16-test-onecycle.json": "the stairs of OneCycle",
    "detectron2/041-lazy-new_baselines-mask_rcnn_R_50_FPN_100ep_LSJ.py": "floats of a LazyConfig",
    "detectron2/043-lazy-configs-mask_rcnn_mvitv2_t_3x.py": "floats of a LazyConfig",
    "detectron2/046-lazy-COCO-cascade_mask_rcnn_mvitv2_b_in21k_100ep.py": "floats of a LazyConfig",
    "nemo/023-megatron_gpt_config_hyena.yaml": "a constant phase as long as the run",
    "nemo/056-g2p_conformer_ctc.yaml": "Noam with an irrational factor",
    "torchtitan/021-train_configs-debug_model.toml": "a decay over no update, of an old version",
}

# File -> the parts beside the learning rate that its own framework's writer leaves out.
_SPARK = {"the schedule of the weight decay"} | {
    f"the param group {name!r}" for name in ("bias", "flat", "mask_token")
}
LEFT_OUT = {
    "fairseq/059-gan-w2vu2.yaml": {"the param group 'discriminator'"},
    "megatron/054-gpt3_moe_mcore_te_ep8_resume_torch_dist_dist_muon.yaml": {
        "the optimizer megatron muon"
    },
    "mmengine/020-deploy-mobileone-s0_deploy_8xb32_in1k.py": {"the param group 'norm'"},
    "mmengine/034-spark-spark_sparse-convnext-small_16xb256-amp-coslr-800e_in1.py": _SPARK,
    "mmengine/035-spark-spark_sparse-resnet50_8xb512-amp-coslr-1600e_in1k.py": _SPARK,
    "llm-foundry/002-mcli-mcli-llama3-70b-instruct-finetune.yaml": {"the optimizer DecoupledLionW"},
    "llm-foundry/003-mcli-mcli-llama3-finetune.yaml": {"the optimizer DecoupledLionW"},
}


def read(row: Row, folder: Path) -> Recipe:
    framework, _, name = row["file"].partition("/")
    path = folder / name
    path.write_text(row["text"], encoding="utf-8")
    return load_recipe(path, framework=framework, facts=row["expected"]["facts"])


@pytest.mark.sample(every=24)
@pytest.mark.parametrize("file", ROWS)
def test_read_write_read_is_proved_equal(file: str, tmp_path: Path) -> None:
    recipe = read(ROWS[file], tmp_path)
    total = ROWS[file]["expected"]["facts"].get("total_steps", 1000)
    written = write_recipe(recipe, recipe.framework, None if recipe.horizon else total)
    length = recipe.horizon or total
    if file in OTHER:
        assert written.verdict is not Verdict.EXACT
        assert (written.until or 0) < length
        return
    is_whole = written.verdict is Verdict.UNTIL and (written.until or 0) >= length
    assert written.verdict is Verdict.EXACT or is_whole, written.why
    assert set(written.left_out) == LEFT_OUT.get(file, set())
    path = tmp_path / f"again{written.suffix}"
    path.write_text(written.text, encoding="utf-8")
    version = written.version or None
    again = load_recipe(path, recipe.framework, version, written.facts)
    curves = diff(recipe, again, length).curves
    assert {one.verdict for one in curves if one.key == "lr"} == {Status.PROVED}
    if file not in LEFT_OUT:
        assert {one.verdict for one in curves} == {Status.PROVED}
    assert again.horizon in (None, length)


# Configs with a warmup and a decay: one of each of the five systems with the most configs in the
# corpus, and of three others.
LARGEST = ("automodel", "ms-swift", "mmengine", "axolotl", "big_vision")
SAMPLES = (
    "automodel/034-deepseek_v4_flash_pretrain.yaml",
    "ms-swift/022-lora_llm_vit_full-sft.args",
    "mmengine/030-simmim-simmim_swin-base-w6_16xb128-amp-coslr-100e_in1k-192px.py",
    "axolotl/012-pythia-lora.yaml",
    "big_vision/033-proj-paligemma-transfers-gqa.py",
    "megatron/012-scripts-run_video_vlm_train.args",
    "torchtitan/005-train_configs-deepseek_v3_671b.toml",
    "olmo/012-official-0724-OLMo-1B.yaml",
)
TARGETS = (*LARGEST, "megatron", "torchtitan", "composer", "olmo", "transformers", "deepspeed")


@pytest.mark.parametrize(
    "changes",
    [
        {"lr_scheduler_type": "linear"},
        {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2.0}},
    ],
)
def test_big_vision_keeps_the_warmup_before_a_line(changes: Row) -> None:
    config = {"learning_rate": 1e-3, "max_steps": 100, "warmup_steps": 10, **changes}
    written = write_recipe(load_recipe(config, framework="transformers"), "big_vision")
    assert written.verdict is Verdict.EXACT
    assert "warmup_steps=10" in written.text


def test_the_largest_systems_are_those_with_the_most_configs() -> None:
    counts = Counter(file.partition("/")[0] for file in ROWS)
    assert {name for name, _ in counts.most_common(5)} == set(LARGEST)


WITHOUT_A_COSINE = {
    *((file, "big_vision") for file in (*SAMPLES[1:3], *SAMPLES[5:])),
    (SAMPLES[7], "composer"),
}
"""Configs whose curve the target cannot express."""


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(("file", "target"), list(itertools.product(SAMPLES, TARGETS)))
def test_verdicts_hold_for_the_values_of_the_framework(
    file: str, target: str, tmp_path: Path
) -> None:
    data = ROWS[file]["expected"]
    recipe = read(ROWS[file], tmp_path)
    written = write_recipe(recipe, target)
    assert (written.verdict is Verdict.IMPOSSIBLE) == ((file, target) in WITHOUT_A_COSINE)
    if written.verdict is Verdict.IMPOSSIBLE:
        assert (written.text, written.recipe) == ("", None)
        assert written.why
        return
    assert written.recipe is not None
    assert recipe.horizon is not None
    pairs = [
        (step, value)
        for step, value in zip(data["steps"], data["lr"], strict=True)
        if written.verdict is Verdict.EXACT or step < recipe.horizon
        if written.verdict is not Verdict.UNTIL or step < (written.until or 0)
    ]
    wanted = np.array([value for _, value in pairs])
    found = np.array([float(written.recipe.schedule()(step)) for step, _ in pairs])
    apart = np.abs(found - wanted).max() / wanted.max()
    same = SINGLE if "float32" in data["how"] else SAME
    if written.verdict in (Verdict.EXACT, Verdict.UNTIL):
        assert apart <= same
        return
    assert written.gap is not None
    assert written.at is not None
    # The largest gap is at least that at the steps of the record, and is where it says.
    assert apart <= written.gap * (1 + 1e-9) + same
    both = [float(one.schedule()(written.at)) for one in (recipe, written.recipe)]
    assert abs(both[0] - both[1]) == pytest.approx(written.gap * wanted.max(), rel=1e-2)


B8 = {"global_batch_size": 8}


@pytest.mark.parametrize("rate", [1e-3, 1e20])
def test_restarts_are_written_back(rate: float) -> None:
    config = {
        "learning_rate": rate,
        "warmup_steps": 100,
        "lr_scheduler_type": "cosine_with_restarts",
        "lr_scheduler_kwargs": {"num_cycles": 2},
        "max_steps": 1000,
    }
    written = write_recipe(load_recipe(config), "transformers")
    assert written.verdict is Verdict.EXACT
    assert "lr_scheduler_type: cosine_with_restarts" in written.text


def test_conversion_between_two_clocks_is_exact() -> None:
    flags = {"lr": 1e-3, "min-lr": 1e-4, "train-iters": 100, "lr-warmup-iters": 10}
    config = {**flags, "lr-decay-style": "cosine", "adam-beta2": 0.95, "clip-grad": 0.5}
    recipe = load_recipe(config, framework="megatron", facts=B8)
    written = cf.write_recipe(recipe, "transformers")
    # After the run the Trainer's cosine rises again.
    assert (written.verdict, written.until) == (Verdict.UNTIL, 101)
    longer = load_recipe(
        {**config, "train-iters": 150, "lr-decay-iters": 100}, "megatron", facts=B8
    )
    written = cf.write_recipe(longer, "transformers")
    assert (written.verdict, written.until, written.at) == (Verdict.UNTIL, 101, 149)
    assert "cosine_with_min_lr" in written.text
    assert written.recipe is not None
    assert written.recipe.clipping == recipe.clipping
    assert written.recipe.optimizer().hyperparameters["beta2"] == sp.Rational(19, 20)


def test_facts_are_those_that_the_config_does_not_have() -> None:
    samples = {"train-samples": 1001, "lr-decay-samples": 1003, "lr-warmup-samples": 13}
    flags = {"lr": 1e-3, "global-batch-size": 7, **samples}
    recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 7})
    written = write_recipe(recipe, "megatron")
    assert (written.verdict, written.facts) == (Verdict.EXACT, {"global_batch_size": 7})
    assert "--lr-warmup-samples 13\n" in written.text


@pytest.mark.parametrize(
    ("schedule", "curve", "numbers"),
    [
        (schedules.constant(0.1), CurveName.CONSTANT, (0.1, 0.1, 0, 100)),
        (schedules.linear(1, 0.5, 100), CurveName.LINEAR, (1, 0.5, 0, 100)),
        (schedules.cosine(1, 0.1, 80), CurveName.COSINE, (1, 0.1, 0, 80)),
        (
            schedules.linear(0, 0.3, 7).then(schedules.cosine(0.3, 0.01, 93)),
            CurveName.COSINE,
            (0.3, 0.01, 7, 100),
        ),
        (
            schedules.linear(0, 1, 5)
            .then(schedules.constant(1, steps=45))
            .then(schedules.linear(1, 0.25, 50)),
            CurveName.LINEAR,
            (1, 0.25, 50, 100),
        ),
    ],
)
def test_form_is_recognized_with_its_parameters(
    schedule: Schedule, curve: CurveName, numbers: tuple[Any, ...]
) -> None:
    form = recognize_form(schedule, 100)
    assert form is not None
    assert form.curve is curve
    assert (form.peak, form.low, form.begin, form.end) == tuple(
        sp.Rational(str(number)) for number in numbers
    )


def test_numbers_of_many_digits_become_simple_ones() -> None:
    assert simple(sp.Float("9.65e-6", 60)) == sp.Rational("9.65e-6")
    assert simple((sp.Integer(1) / 7).evalf(60)) == sp.Rational(1, 7)
    assert simple(sp.pi.evalf(60)) is None


def test_recipes_that_cannot_be_written_say_why() -> None:
    steps = {
        "optimizers": {"adamw": {"lr": 1e-3}},
        "schedulers": [{"multistep": {"milestones": ["10ba", "20ba", "30ba"]}}],
        "max_duration": "100ba",
    }
    written = write_recipe(load_recipe(steps, framework="composer"), "olmo")
    assert (written.verdict, written.text) == (Verdict.IMPOSSIBLE, "")
    assert written.why == "olmo has no multistep decay"
    root = {"learning_rate": 1e-3, "max_steps": 100, "lr_scheduler_type": "inverse_sqrt"}
    written = write_recipe(load_recipe(root, framework="transformers"), "automodel")
    assert written.why == "automodel has no inverse root decay"


@pytest.mark.parametrize("warmup", [0, 1, 2, 7])
@pytest.mark.parametrize("timescale", [None, 1, 5])
def test_an_inverse_root_with_a_short_warmup_is_written(warmup: int, timescale: int | None) -> None:
    config: dict[str, Any] = {"learning_rate": 1e-3, "lr_scheduler_type": "inverse_sqrt"}
    config |= {"warmup_steps": warmup, "max_steps": 12345}
    if timescale is not None:
        config["lr_scheduler_kwargs"] = {"timescale": timescale}
    written = write_recipe(load_recipe(config, framework="transformers"), "transformers")
    assert written.verdict is Verdict.EXACT


def test_parts_that_are_not_written_are_listed() -> None:
    config = {
        "lr": 1e-3,
        "train-iters": 100,
        "decoupled-lr": 1e-2,
        "optimizer": "muon",
        "weight-decay-incr-style": "linear",
        "start-weight-decay": 0,
        "end-weight-decay": 0.1,
    }
    recipe = load_recipe(config, framework="megatron", facts={"global_batch_size": 1})
    written = write_recipe(recipe, "automodel")
    assert set(written.left_out) == {
        "the param group 'decoupled_lr'",
        "the param group 'no_decay'",
        "the schedule of the weight decay",
        "the optimizer megatron muon",
    }


def test_mistakes_of_the_call() -> None:
    recipe = load_recipe({"optimizer": {"_component_": "torch.optim.AdamW"}}, "torchtune")
    with pytest.raises(ArgumentError, match="the updates of the run are needed"):
        write_recipe(recipe, "megatron")
    with pytest.raises(UnknownNameError, match=r"no framework 'megatrn'.*'megatron'"):
        write_recipe(recipe, "megatrn")
    assert set(TARGETS) <= set(writable())


def test_optimizers_without_a_name_are_left_out() -> None:
    config = {
        "optimizers": {"sgd": {"lr": 0.1, "momentum": 0.9}},
        "schedulers": [{"cosine_decay": {}}],
        "max_duration": "100ba",
    }
    recipe = load_recipe(config, framework="composer")
    assert write_recipe(recipe, "olmo").left_out == ("the optimizer SGD",)
    written = write_recipe(recipe, "automodel")
    # Automodel clips gradients unless a config says otherwise.
    assert written.verdict is Verdict.EXACT
    assert written.left_out == ("the clipping of gradients",)
    assert written.recipe is not None
    assert written.recipe.optimizer().hyperparameters["momentum"] == sp.Rational(9, 10)
