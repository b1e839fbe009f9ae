"""Readers of mmengine, detectron2, fairseq, levanter, maxtext, t5x, big_vision, lightning-cli.

The curves of real configs are in ``test_corpus.py``; these are groups, notes and errors.
"""

from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ClosedFormError, UnknownNameError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.recipe import ClippingKind

SUFFIX = {"t5x": ".gin", "big_vision": ".py", "mmengine": ".py"}

MMENGINE = """
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=0.1, weight_decay=0.05),
    clip_grad=dict(max_norm=2.0),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys={'backbone': dict(lr_mult=0.1)}))
param_scheduler = [dict(type='LinearLR', by_epoch=False, end=5, start_factor=0.5)]
train_cfg = dict(by_epoch=True, max_epochs=3)
"""
SOLVER = "SOLVER:\n  BASE_LR: 0.1\n  MAX_ITER: 100\n  STEPS: (50,)\n  WARMUP_ITERS: 10\n"
LAZY = """
from ..common.optim import SGD as optimizer
from ..common.coco_schedule import lr_multiplier_1x as lr_multiplier
optimizer.lr = 0.04
train.max_iter = 90000
lr_multiplier.warmup_factor = 0.5
"""
FAIRSEQ = """
optimization: {lr: [0.1], max_update: 100}
optimizer: adam
lr_scheduler: {_name: cosine, warmup_updates: 10}
"""
COMPOSITE = """
optimization: {lr: [0.5], max_update: 100}
optimizer:
  _name: composite
  groups:
    slow: {lr_float: 0.1, optimizer: adam, lr_scheduler: fixed}
    fast: {lr: [0.2], optimizer: adam, lr_scheduler: fixed}
lr_scheduler: pass_through
"""
LEVANTER = "trainer: {num_train_steps: 100}\noptimizer: {learning_rate: 0.1, warmup: 10}\n"
MAXTEXT = "steps: 100\nlearning_rate: 0.1\nwarmup_steps_fraction: 0.1\n"
T5X = "utils.create_learning_rate_scheduler:\n  factors = 'constant'\n  base_learning_rate = 0.1\n"
BIG_VISION = """
def get_config(arg='res=64'):
  arg = bvcc.parse_arg(arg, res=224, runlocal=False, mode='xm')
  c = mlc.ConfigDict()
  c.input = {}
  c.input.batch_size = {64: 32, 224: 8}[arg.res] if not arg.runlocal else 2
  c.total_steps = 100
  if arg.mode == 'xm' and not arg.runlocal:
    c.lr = 0.1
  else:
    c.lr = 0.2
  c.wd = 0.01
  c.optax_name = 'scale_by_adam'
  c.update(dict(grad_clip_norm=1.0))
  c.schedule = [('img/.*', None), ('llm/.*', dict(decay_type='cosine', warmup_steps=10))]
  return c
"""
LIGHTNING = """
trainer: {max_epochs: 3}
optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1, momentum: 0.9}}
lr_scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 1}}
"""
EXAMPLES = {
    "mmengine": MMENGINE,
    "detectron2": SOLVER,
    "fairseq": FAIRSEQ,
    "levanter": LEVANTER,
    "maxtext": MAXTEXT,
    "t5x": T5X,
    "big_vision": BIG_VISION,
    "lightning-cli": LIGHTNING,
}


def load(folder: Path, framework: str, text: str, suffix: str = "", **facts: Any) -> Recipe:
    path = folder / f"config{suffix or SUFFIX.get(framework, '.yaml')}"
    path.write_text(text, encoding="utf-8")
    given = (
        {"updates_per_epoch": 4, **facts} if framework in ("mmengine", "lightning-cli") else facts
    )
    return load_recipe(path, framework=framework, facts=given)


def rates(recipe: Recipe, *steps: int, group: int | str = 0) -> list[float]:
    return [float(recipe.schedule("lr", group).exact(step)) for step in steps]


@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_framework_is_recognized_by_its_keys(framework: str, tmp_path: Path) -> None:
    path = tmp_path / f"config{SUFFIX.get(framework, '.yaml')}"
    path.write_text(EXAMPLES[framework], encoding="utf-8")
    facts = {"updates_per_epoch": 4}
    assert load_recipe(path, facts=facts).framework == framework


def test_mmengine_groups(tmp_path: Path) -> None:
    recipe = load(tmp_path, "mmengine", MMENGINE)
    assert recipe.horizon == 12
    assert [group.name for group in recipe.param_groups] == ["", "norm", "backbone"]
    assert rates(recipe, 0, 4, 9) == [0.05, 0.1, 0.1]
    assert rates(recipe, 4, group="backbone") == [0.01]
    assert recipe.schedule("weight_decay", "norm").exact(0) == 0
    assert recipe.clipping is not None
    assert recipe.clipping.threshold == 2


def test_mmengine_accumulation_steps_schedulers_for_each_micro_batch(tmp_path: Path) -> None:
    text = MMENGINE.replace("optim_wrapper = dict(", "optim_wrapper = dict(accumulative_counts=2,")
    recipe = load(tmp_path, "mmengine", text)
    # Update 1 is made at micro-batch 3: three quarters of the warmup.
    assert rates(recipe, 1) == [0.0875]
    assert (recipe.horizon, recipe.accumulation) == (12, 2)


def test_mmengine_epochs_never_end_in_a_loop_of_iterations(tmp_path: Path) -> None:
    text = MMENGINE.replace("by_epoch=True, max_epochs=3", "type='IterBasedTrainLoop', max_iters=9")
    text = text.replace("type='LinearLR', by_epoch=False, end=5", "type='LinearLR', end=5")
    recipe = load(tmp_path, "mmengine", text)
    assert rates(recipe, 0, 8) == [0.05, 0.05]
    assert "epochs-never-end" in recipe.notes


def test_detectron2_scales_to_the_workers(tmp_path: Path) -> None:
    text = (
        SOLVER + "  REFERENCE_WORLD_SIZE: 8\n  CLIP_GRADIENTS: {ENABLED: true, CLIP_TYPE: norm}\n"
    )
    recipe = load(tmp_path, "detectron2", text, world_size=4)
    assert recipe.horizon == 200
    assert rates(recipe, 99, 100) == [0.05, 0.005]
    assert recipe.clipping is not None
    assert recipe.clipping.kind is ClippingKind.PARAM_NORM


def test_detectron2_knows_the_common_files_of_lazy_configs(tmp_path: Path) -> None:
    recipe = load(tmp_path, "detectron2", LAZY, ".py")
    assert rates(recipe, 0, 1000, 60_000, 80_000) == [0.02, 0.04, 0.004, 0.0004]
    assert float(recipe.optimizer().hyperparameters["momentum"]) == 0.9


IMPORTED = """
from .mask_rcnn_vitdet_b_100ep import lr_multiplier as base, model, optimizer, train
train.max_iter = 1000
lr_multiplier = L(WarmupParamScheduler)(
    scheduler=L(MultiStepParamScheduler)(values=[1.0, 0.1], milestones=[900, 1000]),
    warmup_length=10 / train.max_iter, warmup_factor=0.5)
optimizer.lr = 0.02
"""


def test_detectron2_curves_do_not_need_an_optimizer_that_is_not_read(tmp_path: Path) -> None:
    recipe = load(tmp_path, "detectron2", IMPORTED, ".py")
    assert rates(recipe, 0, 10, 899, 900) == [0.01, 0.02, 0.02, 0.002]
    with pytest.raises(ClosedFormError, match=r"no optimizer '\.mask_rcnn"):
        recipe.optimizer()


@pytest.mark.parametrize("line", ["optimizer.lr = 0.02", "train.max_iter = 1000"])
def test_detectron2_asks_for_a_file_with_a_number_that_is_missing(
    line: str, tmp_path: Path
) -> None:
    with pytest.raises(ClosedFormError, match=r"is imported from .*, which is not read"):
        load(tmp_path, "detectron2", IMPORTED.replace(line, ""), ".py")


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


def test_levanter_muon_has_a_group_with_the_rate_of_adam(tmp_path: Path) -> None:
    recipe = load(tmp_path, "levanter", LEVANTER.replace("warmup: 10", "warmup: 10, type: muon"))
    assert rates(recipe, 10) == [0.1]
    assert rates(recipe, 10, group="adamw") == [0.0006]


@pytest.mark.parametrize(("text", "threshold"), [("", 1), ("max_grad_norm: null", None)])
def test_levanter_clips_unless_the_threshold_is_null(
    tmp_path: Path, text: str, threshold: int | None
) -> None:
    clipping = load(
        tmp_path,
        "levanter",
        f"{LEVANTER}  {text}\n".replace(
            "optimizer: {learning_rate: 0.1, warmup: 10}", "optimizer:\n  warmup: 10"
        ),
    ).clipping
    assert (None if clipping is None else clipping.threshold) == threshold


def test_a_tag_of_the_application_matters_only_where_its_value_is_needed(tmp_path: Path) -> None:
    recipe = load(tmp_path, "levanter", LEVANTER + "data: !include data/openwebtext.yaml\n")
    assert rates(recipe, 10) == [0.1]


def test_maxtext_reads_words(tmp_path: Path) -> None:
    text = "python3 train.py base.yml steps=100 learning_rate=0.1 warmup_steps_fraction=0.1\n"
    recipe = load(tmp_path, "maxtext", text, ".sh")
    assert rates(recipe, 5, 10) == [0.05, 0.1]


def test_big_vision_walks_get_config(tmp_path: Path) -> None:
    recipe = load(tmp_path, "big_vision", BIG_VISION)
    assert [group.name for group in recipe.param_groups] == ["llm/.*", "img/.*"]
    assert rates(recipe, 5, 10) == [0.05, 0.1]
    # The weight decay is multiplied by the schedule alone.
    assert float(recipe.schedule("weight_decay").exact(5)) == 0.005
    assert rates(recipe, 10, group="img/.*") == [0]
    assert recipe.clipping is not None


def test_lightning_steps_once_an_epoch(tmp_path: Path) -> None:
    recipe = load(tmp_path, "lightning-cli", LIGHTNING)
    assert rates(recipe, 3, 4, 8) == [0.1, 0.01, 0.001]
    assert recipe.horizon == 12


def test_an_optimizer_that_the_library_lacks_is_an_error_only_when_asked_for(
    tmp_path: Path,
) -> None:
    recipe = load(tmp_path, "levanter", LEVANTER.replace("warmup: 10", "type: kron"))
    assert rates(recipe, 0) == [0]
    with pytest.raises(UnknownNameError, match="'kron' of this config is not the library's rule"):
        recipe.optimizer()


@pytest.mark.parametrize(
    ("framework", "old", "new", "message"),
    [
        (
            "mmengine",
            "paramwise_cfg=dict(",
            "paramwise_cfg=dict(lr_mul=2, ",
            "unknown key 'lr_mul'",
        ),
        ("mmengine", "max_norm=2.0", "max_nrm=2.0", "unknown key 'max_nrm'"),
        ("mmengine", "train_cfg", "lr_config = dict(policy='step')\ntrain_cfg", "key of MMCV 1"),
        ("mmengine", "optim_wrapper", "_base_ = ['a.py']\noptim_wrapper", "inherits from _base_"),
        ("mmengine", "LinearLR", "LinaerLR", "unknown param scheduler 'LinaerLR'"),
        ("detectron2", "STEPS", "STEP", "unknown key 'STEP'"),
        (
            "detectron2",
            "MAX_ITER",
            "LR_SCHEDULER_NAME: Warmup\n  MAX_ITER",
            "no LR_SCHEDULER_NAME .Warmup.",
        ),
        ("detectron2", "SOLVER", "_BASE_: a.yaml\nSOLVER", "inherits from _BASE_"),
        ("fairseq", "warmup_updates", "warmup_steps", "unknown key 'warmup_steps'"),
        ("fairseq", "optimizer: adam", "", "optimizer is missing"),
        ("fairseq", "optimizer: adam", "optimizer: adm", "fairseq has no optimizer 'adm'"),
        ("fairseq", "cosine", "cosin", "fairseq has no scheduler 'cosin'"),
        ("levanter", "warmup", "warmup_ratio", "unknown key 'warmup_ratio'"),
        ("levanter", "warmup: 10", "haps: [3]", "haps is not read"),
        ("levanter", "num_train_steps: 100", "", "missing facts: total_updates"),
        (
            "levanter",
            "learning_rate: 0.1",
            "learning_rate: !env RATE",
            "does not determine it: '!env",
        ),
        ("maxtext", "warmup_steps_fraction", "warmup_fraction", "unknown key 'warmup_fraction'"),
        ("maxtext", "steps: 100", "", "missing facts: total_updates"),
        ("t5x", "factors = 'constant'", "factor = 'constant'", "unknown key 'factor'"),
        ("t5x", "utils.", "include 'a.gin'\nutils.", ""),
        ("t5x", "'constant'", "'constnt'", "there is no factor 'constnt'"),
        ("big_vision", "c.lr = 0.1", "c.lr = f(arg)", "lr must be a finite number"),
        ("big_vision", "c.wd", "c.weight_decay", "unknown key 'weight_decay'"),
        ("big_vision", "get_config", "make_config", "there is no function get_config"),
        (
            "big_vision",
            "c.total_steps = 100",
            "for i in [1]:\n    c.total_steps = i",
            "total_steps is",
        ),
        ("lightning-cli", "StepLR", "StpLR", "there is no scheduler 'StpLR'"),
        ("lightning-cli", "StepLR", "ReduceLROnPlateau", "driven by a metric"),
        ("lightning-cli", "init_args: {step", "args: {step", "unknown key 'args'"),
    ],
)
def test_refused(framework: str, old: str, new: str, message: str, tmp_path: Path) -> None:
    text = EXAMPLES[framework]
    assert old in text
    changed = text.replace(old, new, 1)
    if not message:  # An include alone does not matter where the file binds what is needed.
        assert rates(load(tmp_path, framework, changed), 0) == [0.1]
        return
    with pytest.raises(ClosedFormError, match=message):
        load(tmp_path, framework, changed)
