import sympy as sp

from closedform.language import Schedule, t
from closedform.schedules import constant, cosine, linear
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        """\
{
  "train_batch_size": 8,
  "optimizer": {"type": "Muon", "params": {"lr": 1.0, "muon_lr": 2.0, "adam_lr": 1.0}},
  "scheduler": {
    "type": "WarmupLR",
    "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 4, "warmup_type": "linear"}
  }
}
""",
        lambda: constant(0).then(linear(0, 2, 4).then(constant(2), at=4), at=1),
        "a line from 0 to muon_lr, one update late as every schedule of DeepSpeed",
        {"total_updates": 10},
        name="one-peak-for-groups",
        suffix=".json",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: WarmupLR
  params: {warmup_min_lr: 0.0, warmup_max_lr: 1.0, warmup_num_steps: 4, warmup_type: linear}
""",
        lambda: linear(0, 1, 4).then(constant(1), at=4),
        "a line from 0 to 1 in 4 updates, and then 1",
        {"total_updates": 10},
        name="one-update-late",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: WarmupLR
  params: {warmup_min_lr: 0.0, warmup_max_lr: 1.0, warmup_num_steps: 100}
""",
        lambda: linear(0, 1, 100).then(constant(1), at=100),
        "a line from 0 to 1 in 100 updates, and then 1",
        {"total_updates": 200},
        name="logarithmic-warmup",
    ),
    Defect(
        CONFIGS["deepspeed"],
        lambda: constant(0, steps=1).then(recipe(), at=1),
        f"one update late, {ONE_RECIPE}",
        name="peak-left-out",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: WarmupCosineLR
  params: {warmup_min_ratio: 0.1, warmup_num_steps: 4, total_num_steps: 10, cos_min_ratio: 0.1,
    warmup_type: linear}
""",
        lambda: constant(0.1, steps=1).then(
            linear(0.1, 1, 4).then(cosine(1, 0.1, 6).then(constant(0.1), at=6), at=4), at=1
        ),
        "one update late, a line from 0.1 to 1 in 4 updates, a cosine to 0.1 in 6, then 0.1",
        name="starts-at-zero",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler: {type: WarmupLR, params: {warmup_num_steps: 4, warmup_type: linear}}
""",
        lambda: constant(0, steps=1).then(linear(0, 0.001, 4).then(constant(0.001), at=4), at=1),
        "one update late, a line from 0 to the default of warmup_max_lr in 4 updates",
        {"total_updates": 10},
        name="default-peak-is-the-rate",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: WarmupLR
  params: {warmup_max_lr: 1.0, warmup_num_steps: 4, warmup_type: linear}
""",
        lambda: constant(0, steps=1).then(linear(0, 1, 4).then(constant(1), at=4), at=1),
        "one update late, a line from 0 to 1 in 4 updates, and then 1",
        {"total_updates": 10},
        name="starts-at-the-full-rate",
        version="v0.14.0",
    ),
    Defect(
        """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: OneCycle
  params: {cycle_min_lr: 0.0, cycle_max_lr: 1.0, cycle_first_step_size: 4,
    cycle_first_stair_count: 2}
""",
        lambda: Schedule(
            sp.Piecewise((0, t < 2), (sp.S.Half, t < 4), (1, t < 5), (sp.S.Half, t < 7), (0, True))
        ),
        "two stairs up in 4 updates, and two down",
        {"total_updates": 10},
        name="stairs-ignored",
        version="v0.19.0",
    ),
)
