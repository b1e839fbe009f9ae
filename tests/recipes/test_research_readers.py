"""Readers of mmengine, detectron2, fairseq, levanter, maxtext, t5x, big_vision, lightning-cli.

The curves of real configs are in ``test_corpus.py``, and the tests of one of these frameworks in
its folder of ``tests/frameworks``; these are their keys and their errors.
"""

from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ClosedFormError, UnknownNameError
from closedform.recipes import Recipe, load_recipe

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
FAIRSEQ = """
optimization: {lr: [0.1], max_update: 100}
optimizer: adam
lr_scheduler: {_name: cosine, warmup_updates: 10}
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
