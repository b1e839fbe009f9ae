"""Defects of frameworks, each with a counterexample: a config, and the schedule that it suggests.

tools/build_frameworks.py computes the differences and writes a page for each framework. A defect is
a difference between the values and those that a reader of the config's keys, or of the framework's
documentation, expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy as sp

from closedform.frameworks import FRAMEWORKS
from closedform.language import Schedule, t
from closedform.recipes.clock import hold
from closedform.schedules import (
    constant,
    cosine,
    cosine_annealing,
    inverse_square_root,
    linear,
    polynomial,
)
from tools.one_recipe import CONFIGS


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of a framework.

    Attributes:
        framework: The framework.
        title: The defect, as a sentence; empty for the text of the framework's table.
        config: The text of the config.
        expected: The schedule that the config suggests.
        suggests: The reason, as the rest of a sentence that begins with "Expected:".
        facts: The facts of the run.
        until: The updates that are compared; by default the whole run.
        suffix: The ending of the config's file.
        name: The name of the defect in the framework's table, where it is one of those. For a
            departure with a documented formula, ``expected`` is the documented schedule.
        version: The version of the framework; the newest if not given.
    """

    framework: str
    title: str
    config: str
    expected: Callable[[], Schedule]
    suggests: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    until: int | None = None
    suffix: str = ".yaml"
    name: str = ""
    version: str | None = None

    @property
    def heading(self) -> str:
        """The title, or the text of the framework's table."""
        if self.title:
            return self.title.rstrip(".")
        text = FRAMEWORKS[self.framework].defects[self.name].text
        is_word = text.partition(" ")[0].isalpha()
        return text[0].upper() + text[1:] if is_word else text


def recipe(end: int = 10, low: float = 0.1) -> Schedule:
    """The cosine with peak 1, a warmup of 4 updates, and the minimum from update ``end`` on."""
    fall = cosine(1, low, end - 4).then(constant(low), at=end - 4)
    return linear(0, 1, 4).then(fall, at=4)


ONE_RECIPE = "a line from 0 to 1 in 4 updates, a cosine to 0.1 at update 10, then 0.1"

_COSINE_WITH_MIN = """\
learning_rate: 1.0
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_steps: 4
max_steps: 10
"""
"""The arguments of transformers in the configs of several frameworks."""

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "automodel",
        "A warmup begins at a tenth of the rate unless init_lr is given.",
        CONFIGS["automodel"],
        recipe,
        ONE_RECIPE,
        {"total_updates": 10},
    ),
    Defect(
        "automodel",
        "The minimum is a hundredth of the rate unless min_lr is given.",
        """\
step_scheduler: {max_steps: 10, num_epochs: 1}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0}
lr_scheduler: {lr_decay_style: linear, lr_warmup_steps: 0}
""",
        lambda: linear(1, 0, 10),
        "a line from 1 to 0 in the 10 updates of the run, and then 0",
        {"total_updates": 10},
        11,
    ),
    Defect(
        "open-instruct",
        "",
        """\
learning_rate: 1.0
lr_scheduler_type: linear
warmup_ratio: 0.0
num_train_epochs: 2
gradient_accumulation_steps: 2
""",
        lambda: linear(1, 0, 6),
        "a line from 1 to 0 in the 6 updates of the run",
        {"world_size": 2, "micro_batches_per_epoch": 9},
        name="unfinished-decay",
    ),
    Defect(
        "deepspeed",
        "",
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
        suffix=".json",
        name="one-peak-for-groups",
    ),
    Defect(
        "verl",
        "",
        """\
actor_rollout_ref.actor.optim.lr=1.0
actor_rollout_ref.actor.optim.lr_warmup_steps=0
actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.4
trainer.total_training_steps=10
""",
        lambda: linear(0, 1, 4).then(constant(1), at=4),
        "lr_warmup_steps of 0 delegates to the ratio: a line from 0 to 1 in 4 training steps",
        suffix=".args",
        name="zero-warmup-steps",
    ),
    Defect(
        "verl",
        "",
        """\
optim: {lr: 1.0, lr_scheduler: cosine, lr_warmup_steps_ratio: 0.4}
trainer: {total_epochs: 4, total_training_steps: 10}
""",
        lambda: linear(0, 1, 4).then(cosine_annealing(1, 0, 6), at=4),
        "a line from 0 to 1 in 4 updates, and a cosine to 0 at update 10",
        {"updates_per_epoch": 5},
        name="horizon-of-epochs",
    ),
    Defect(
        "axolotl",
        "",
        """\
learning_rate: 1.0
lr_scheduler: constant_with_warmup
optimizer: adamw_torch
warmup_steps: 1
max_steps: 10
micro_batch_size: 1
""",
        lambda: linear(0, 1, 1).then(constant(1), at=1),
        "0 in update 0, and 1 from update 1 on",
        name="warmup-of-one",
    ),
    Defect(
        "axolotl",
        "",
        """\
learning_rate: 1.0
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
optimizer: adamw_torch
warmup_steps: 4
max_steps: 10
micro_batch_size: 1
""",
        recipe,
        ONE_RECIPE,
        {},
        16,
        name="cosine_min_lr-1",
    ),
    Defect(
        "axolotl",
        "",
        """\
learning_rate: 1.0
lr_scheduler: cosine
lr_quadratic_warmup: true
cosine_min_lr_ratio: 0.1
optimizer: adamw_torch
warmup_steps: 4
max_steps: 10
micro_batch_size: 1
""",
        lambda: Schedule(t**2 / 16).then(cosine(1, 0.1, 6), at=4),
        "t**2 / 16 in 4 updates, a cosine to 0.1 at update 10",
        {},
        10,
        name="cosine_quadratic_warmup-1",
    ),
    Defect(
        "composer",
        "",
        """\
optimizers: {adamw: {lr: 1.0}}
schedulers:
- multistep: {milestones: [5ba], gamma: 0.1}
- linear_decay: {alpha_f: 0.0}
max_duration: 10ba
""",
        lambda: Schedule(
            sp.Piecewise((1, t < 5), (sp.Rational(1, 10), True)) * (1 - sp.Min(10, t) / 10)
        ),
        "the product of the steps and the line",
        name="last-scheduler-wins",
    ),
    Defect(
        "composer",
        "",
        """\
optimizers: {adamw: {lr: 1.0}}
schedulers:
- linear_decay_with_warmup: {t_warmup: 4ba, alpha_f: 0.0, scale_warmup: true}
scale_schedule_ratio: 2.0
max_duration: 10ba
""",
        lambda: linear(0, 1, 8).then(linear(1, 0, 12), at=8),
        "twice the run: a warmup of 8 updates, and a line to 0 at update 20",
        {},
        20,
        name="scaled-warmup",
    ),
    Defect(
        "deepspeed",
        "",
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
        "deepspeed",
        "",
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
        "deepspeed",
        "",
        CONFIGS["deepspeed"],
        lambda: constant(0, steps=1).then(recipe(), at=1),
        f"one update late, {ONE_RECIPE}",
        name="peak-left-out",
    ),
    Defect(
        "deepspeed",
        "",
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
        "deepspeed",
        "",
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
        "deepspeed",
        "",
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
        "deepspeed",
        "",
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
    Defect(
        "detectron2",
        "",
        CONFIGS["detectron2"],
        recipe,
        ONE_RECIPE,
        {},
        10,
        name="warmup-ends-below-peak",
    ),
    Defect(
        "diffusers",
        "",
        "train_unconditional.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 2\n"
        "--num_epochs 2 --gradient_accumulation_steps 4",
        lambda: linear(0, 1, 2).then(linear(1, 0, 8), at=2),
        "a line from 0 to 1 in 2 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 1, "micro_batches_per_epoch": 20},
        12,
        suffix=".args",
        name="unconditional-accumulation",
    ),
    Defect(
        "diffusers",
        "",
        "train_text_to_image_sdxl.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 2\n"
        "--max_train_steps 10 --gradient_accumulation_steps 4",
        lambda: linear(0, 1, 2).then(linear(1, 0, 8), at=2),
        "a line from 0 to 1 in 2 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 2},
        12,
        suffix=".args",
        name="accumulation-for-processes",
    ),
    Defect(
        "diffusers",
        "",
        "train_text_to_image.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 0\n"
        "--num_train_epochs 2",
        lambda: linear(1, 0, 10),
        "a line to 0 in the 10 updates of the run",
        {"num_processes": 4, "micro_batches_per_epoch": 20},
        12,
        suffix=".args",
        name="epochs-of-all-processes",
        version="3511a9623f^",
    ),
    Defect(
        "fairseq",
        "",
        """\
optimization: {max_update: 10, lr: [1.0]}
optimizer: {_name: adam}
lr_scheduler: {_name: cosine, warmup_updates: 4, warmup_init_lr: 0.0, min_lr: 0.1,
  lr_period_updates: 3}
""",
        lambda: recipe(7),
        "a cosine to the minimum in the 3 updates of lr_period_updates, and then the minimum",
        name="cosine-restarts",
    ),
    Defect(
        "gpt-neox",
        "",
        CONFIGS["gpt-neox"],
        recipe,
        ONE_RECIPE,
        name="first-updates-equal",
    ),
    Defect(
        "gpt-neox",
        "",
        """\
optimizer: {type: Adam, params: {lr: 1.0}}
lr_decay_style: linear
lr_decay_iters: 10
lr_decay_fraction: 0.5
train_iters: 10
warmup: 0.0
""",
        lambda: linear(1, 0, 5),
        "a line to 0 in half of the 10 updates, as the documentation of lr_decay_fraction says",
        {},
        10,
        name="fraction-ignored",
    ),
    Defect(
        "kohya",
        "",
        "--learning_rate 1 --lr_scheduler linear --lr_warmup_steps 4 --max_train_steps 12",
        lambda: linear(0, 1, 4).then(linear(1, 0, 8), at=4),
        "a line from 0 to 1 in 4 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 4},
        14,
        suffix=".args",
        name="whole-lengths",
    ),
    Defect(
        "kohya",
        "",
        "--learning_rate 1 --lr_scheduler_type LinearLR --max_train_steps 12\n"
        "--lr_scheduler_args start_factor=1 end_factor=0.5 total_iters=8",
        lambda: linear(1, 0.5, 8),
        "a line from 1 to a half in 8 updates",
        {"num_processes": 4},
        14,
        suffix=".args",
        name="steps-of-torch",
    ),
    Defect(
        "levanter",
        "A warmup of 1 is the whole run.",
        """\
trainer: {num_train_steps: 10}
optimizer: {learning_rate: 1.0, lr_schedule: linear, warmup: 1, min_lr_ratio: 0.0}
""",
        lambda: linear(0, 1, 1).then(linear(1, 0, 9), at=1),
        "a warmup of one update, as 4 is one of 4 updates",
    ),
    Defect(
        "lingua",
        "",
        """\
steps: 10
optim: {lr: 1.0, scheduler: constant, warmup: 4}
""",
        lambda: linear(0, 1, 4),
        "a line from 0 to 1 in the 4 updates of the warmup, and then 1",
        name="warmup-of-constant",
    ),
    Defect(
        "litgpt",
        "",
        CONFIGS["litgpt"],
        recipe,
        ONE_RECIPE,
        {},
        10,
        name="minimum-ignored",
    ),
    Defect(
        "litgpt",
        "",
        """\
train: {max_steps: 10, lr_warmup_steps: 4, min_lr: 0.0}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1.0}}
""",
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        {},
        16,
        name="cosine-climbs",
    ),
    Defect(
        "maxtext",
        "",
        CONFIGS["maxtext"],
        recipe,
        ONE_RECIPE,
        {},
        10,
        name="last-update-final",
    ),
    Defect(
        "maxtext",
        "",
        """\
learning_rate: 1.0
lr_schedule_type: cosine
learning_rate_final_fraction: 0.5
warmup_steps_fraction: 0.0
learning_rate_schedule_steps: 5
steps: 10
""",
        lambda: cosine(1, 0.5, 4).then(constant(0.5), at=4),
        "a cosine to half of the rate, which then stays",
        name="zero-after-schedule",
    ),
    Defect(
        "maxtext",
        "",
        """\
learning_rate: 1.0
lr_schedule_type: wsd
wsd_decay_style: linear
learning_rate_final_fraction: 0.1
warmup_steps_fraction: 0.0
wsd_decay_steps_fraction: 0.1
learning_rate_schedule_steps: -1
steps: 10
""",
        lambda: constant(1, steps=9).then(constant(0.1), at=9),
        "the rate in 9 updates, and a tenth of it after the decay of one update",
        name="peak-after-line",
    ),
    Defect(
        "megatron",
        "A warmup that is a fraction of the decay is not rounded to whole updates.",
        """\
lr: 1.0
lr_decay_style: linear
train_iters: 10
lr_warmup_fraction: 0.25
global_batch_size: 1
""",
        lambda: linear(0, 1, 3).then(linear(1, 0, 7), at=3),
        "a warmup of a whole number of updates: the fraction of 2.5 is rounded to 3",
    ),
    Defect(
        "mmengine",
        "",
        """\
optim_wrapper: {optimizer: {type: SGD, lr: 1.0}}
param_scheduler: [{type: CosineAnnealingLR, by_epoch: false, begin: 0, end: 8, eta_min: 0.1}]
train_cfg: {type: IterBasedTrainLoop, max_iters: 10}
""",
        lambda: cosine(1, 0.1, 8).then(constant(0.1), at=8),
        "a cosine to eta_min at update 8, which then stays",
        name="cosine-ends-early",
    ),
    Defect(
        "mmengine",
        "LinearLR reaches the rate one step before its end.",
        """\
optim_wrapper: {optimizer: {type: SGD, lr: 1.0}}
param_scheduler: [{type: LinearLR, start_factor: 0.2, by_epoch: false, begin: 0, end: 5}]
train_cfg: {type: IterBasedTrainLoop, max_iters: 10}
""",
        lambda: linear(0.2, 1, 5).then(constant(1), at=5),
        "a line from 0.2 to 1 in 5 updates",
    ),
    Defect(
        "ms-swift",
        "",
        """\
tuner_type: full
learning_rate: 1.0
lr_scheduler_type: cosine
warmup_steps: 4
max_steps: 10
""",
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        {},
        16,
        name="cosine-1",
    ),
    Defect(
        "nanovlm",
        "",
        """\
lr_mp: 1.0
max_training_steps: 20
""",
        lambda: Schedule(
            sp.Piecewise(
                (sp.S.One, t < 1),
                (
                    (11 + 9 * sp.cos(sp.pi * (t - sp.Rational(3, 5)) / sp.Rational(97, 5))) / 20,
                    t < 21,
                ),
                (sp.Rational(1, 10), True),
            )
        ),
        "a warmup of one update, which has the rate of 1, and a cosine to 0.1 at update 20",
        name="short-run",
    ),
    Defect(
        "nanotron",
        "",
        """\
optimizer:
  learning_rate_scheduler:
    {learning_rate: 1.0, lr_decay_style: linear, lr_decay_steps: 6, lr_warmup_style: linear,
     lr_warmup_steps: 4}
  optimizer_factory: {name: adamW, adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-8}
tokens: {train_steps: 10}
""",
        lambda: linear(0, 1, 4).then(linear(1, 0, 6), at=4),
        "a line to 0 in the last 6 updates",
        name="no-decay",
    ),
    Defect(
        "nanotron",
        "",
        """\
optimizer:
  learning_rate_scheduler:
    {learning_rate: 0.5, lr_decay_style: linear, lr_decay_steps: 0, lr_warmup_style: linear,
     lr_warmup_steps: 0, min_decay_lr: 0.1}
  optimizer_factory: {name: adamW, adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-8}
tokens: {train_steps: 10}
""",
        lambda: constant(0.5),
        "the rate",
        name="rate-squared",
    ),
    Defect(
        "nemo",
        "A warmup of W updates rises from 1/(W + 1) of the rate.",
        CONFIGS["nemo"],
        recipe,
        ONE_RECIPE,
    ),
    Defect(
        "nemo",
        "",
        """\
model:
  optim: {name: adamw, lr: 1.0, sched: {name: SquareRootAnnealing, warmup_steps: 4, min_lr: 0.0}}
trainer: {max_steps: 10}
""",
        lambda: Schedule(
            sp.Piecewise(
                ((t + 1) / 5, t < 5),
                (sp.sqrt((10 - sp.Min(10, t)) / sp.Integer(6)), True),
            )
        ),
        "after NeMo's warmup, the square root of what is left of the other 6 updates",
        {},
        10,
        name="jumps-after-the-warmup",
    ),
    Defect(
        "nemo",
        "",
        """\
model:
  optim:
    {name: adamw, lr: 1.0, sched: {name: WarmupHoldAnnealLinear, warmup_steps: 4, min_lr: 0.0}}
trainer: {max_steps: 10}
""",
        lambda: Schedule(
            sp.Piecewise(((t + 1) / 5, t < 5), ((10 - sp.Min(10, t)) / sp.Integer(6), True))
        ),
        "after NeMo's warmup, a line to 0 in the other 6 updates",
        name="no-hold",
    ),
    Defect(
        "olmo",
        "The clock counts the update itself, and a warmup begins at a tenth of the rate.",
        CONFIGS["olmo"],
        recipe,
        ONE_RECIPE,
    ),
    Defect(
        "olmo",
        "",
        """\
optimizer: {name: adamw, learning_rate: 1.0}
scheduler: {name: inverse_sqrt_with_warmup, t_warmup: 0}
max_duration: 10
""",
        lambda: Schedule(1 / sp.sqrt(t + 1)),
        "the rate over the square root of the update",
        name="zero-for-ever",
    ),
    Defect(
        "paddle",
        "",
        """\
Global: {epochs: 4}
Optimizer:
  name: Momentum
  momentum: 0.9
  lr: {name: Cosine, learning_rate: 1.0, warmup_epoch: 2}
""",
        lambda: linear(0, 1, 10).then(cosine(1, 0, 10), at=10),
        "with 5 updates in an epoch, a warmup of 10 updates",
        {"updates_per_epoch": 5},
        20,
        name="warmup-in-updates",
    ),
    Defect(
        "paddle",
        "",
        """\
Global: {epochs: 4}
Optimizer:
  name: Momentum
  momentum: 0.9
  lr: {name: Cosine, learning_rate: 1.0, warmup_epoch: 2, by_epoch: true}
""",
        lambda: hold(linear(0, 1, 2).then(cosine(1, 0, 2), at=2), 3),
        "with 3 updates in an epoch, a warmup of 2 epochs, one value in each",
        {"updates_per_epoch": 3},
        12,
        name="warmup-scaled-twice",
    ),
    Defect(
        "torchtitan",
        "A warmup of W updates rises from 1/W, and the last update is above the minimum.",
        CONFIGS["torchtitan"],
        recipe,
        ONE_RECIPE,
        name="last-update-above-minimum",
    ),
    Defect(
        "torchtitan",
        "",
        """\
optimizer: {name: AdamW, lr: 1.0}
training: {steps: 10, warmup_steps: 4}
""",
        lambda: linear(Fraction(1, 4), 1, 3).then(linear(1, 0, 6), at=4),
        "a line from 1/4 to 1 in 4 updates, and a line to 0 in the other 6",
        {},
        10,
        name="one-update-more",
    ),
    Defect(
        "torchtitan",
        "",
        """\
optimizer: {name: AdamW, lr: 1.0}
lr_scheduler: {warmup_steps: 0}
training: {steps: 10, batch_size: 8}
""",
        lambda: linear(Fraction(9, 10), 0, 9),
        "a line that is 0 in the last of 10 updates",
        {},
        10,
        name="one-update-more-of-decay",
    ),
    Defect(
        "torchtune",
        "",
        CONFIGS["torchtune"],
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        {"updates_per_epoch": 10},
        16,
        name="cosine-climbs",
    ),
    Defect(
        "transformers",
        "",
        """\
learning_rate: 1.0
lr_scheduler_type: cosine_warmup_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_steps: 4
max_steps: 10
""",
        lambda: Schedule((t + 1) / 4).then(cosine(1, 0.1, 6), at=4),
        "a line from 1/4 to 1 in 4 updates, and a cosine from 1 at update 4 to 0.1 at update 10",
        {},
        10,
        name="cosine_warmup_with_min_lr-1",
    ),
    Defect(
        "transformers",
        "",
        """\
learning_rate: 1.0
lr_scheduler_type: inverse_sqrt
lr_scheduler_kwargs: {timescale: 8}
warmup_steps: 4
max_steps: 10
""",
        lambda: linear(0, 1, 4).then(inverse_square_root(1, sp.sqrt(8), 8).shift(8), at=4),
        "a line from 0 to 1 in 4 updates, then 1 / sqrt(1 + (t - 4) / 8)",
        {},
        16,
        name="inverse_sqrt-1",
        version="4.57.1",
    ),
    Defect(
        "transformers",
        "",
        CONFIGS["transformers"],
        recipe,
        ONE_RECIPE,
        {},
        16,
        name="cosine_with_min_lr-1",
    ),
    Defect(
        "ultralytics",
        "",
        """\
epochs: 4
batch: 64
optimizer: SGD
lr0: 1.0
lrf: 0.0
warmup_epochs: 2.0
""",
        lambda: linear(0, 1, 10).then(constant(0.5), at=10),
        "with 5 updates in an epoch, a line from 0 to lr0 in 10 updates",
        {"updates_per_epoch": 5},
        11,
        name="warmup-to-current-epoch",
    ),
    Defect(
        "ultralytics",
        "",
        """\
epochs: 4
batch: 64
optimizer: auto
lr0: 1.0
lrf: 1.0
warmup_epochs: 0.0
""",
        lambda: constant(1),
        "the rate lr0",
        {"updates_per_epoch": 5, "dataset_size": 320, "nc": 80},
        name="auto-ignores-lr0",
    ),
    Defect(
        "t5x",
        "",
        """\
TRAIN_STEPS = 10
utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'
utils.create_learning_rate_scheduler.base_learning_rate = 1.0
utils.create_learning_rate_scheduler.warmup_steps = 4
utils.create_learning_rate_scheduler.min_learning_rate = 0.1
""",
        lambda: linear(0, 1, 4).then(constant(1), at=4),
        "a line from 0 to 1 in 4 updates",
        suffix=".gin",
        name="least-rate",
    ),
    Defect(
        "lightning-cli",
        "",
        """\
trainer: {max_steps: 20}
optimizer: {class_path: torch.optim.SGD, init_args: {lr: 1.0}}
lr_scheduler:
  class_path: torch.optim.lr_scheduler.CosineAnnealingLR
  init_args: {T_max: 20}
""",
        lambda: cosine(1, 0, 20),
        "with 5 updates in an epoch and 20 of the run, a cosine to 0 at update 20",
        {"updates_per_epoch": 5},
        name="by-epoch",
    ),
    Defect(
        "big_vision",
        "",
        """\
import ml_collections as mlc


def get_config(arg=None):
  config = mlc.ConfigDict()
  config.total_steps = 10
  config.lr = 1.0
  config.input = dict(batch_size=1)
  config.optax_name = 'scale_by_adam'
  config.schedule = dict(decay_type='stair', cooldown_steps=5)
  return config
""",
        lambda: constant(1, steps=5).then(linear(1, 0, 5), at=5),
        "the rate, and a line to 0 in the last 5 updates",
        until=15,
        suffix=".py",
        name="negative-after-the-run",
    ),
    Defect(
        "alignment-handbook",
        "",
        f"chat_template: chatml\n{_COSINE_WITH_MIN}",
        recipe,
        ONE_RECIPE,
        {},
        16,
        name="cosine_with_min_lr-1",
    ),
    Defect(
        "llama-factory",
        "",
        f"stage: sft\nfinetuning_type: full\n{_COSINE_WITH_MIN}",
        recipe,
        ONE_RECIPE,
        {},
        16,
        name="cosine_with_min_lr-1",
    ),
    Defect(
        "trl",
        "",
        """\
SFTConfig(learning_rate=1.0, lr_scheduler_type="cosine", warmup_steps=4, max_steps=10)
""",
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        {},
        16,
        ".py",
        name="cosine-1",
    ),
    Defect(
        "llm-foundry",
        "",
        """\
optimizer: {name: decoupled_adamw, lr: 1.0}
scheduler: {name: linear_decay_with_warmup, t_warmup: 4ba, alpha_f: 0.0, scale_warmup: true}
scale_schedule_ratio: 2.0
max_duration: 10ba
""",
        lambda: linear(0, 1, 8).then(linear(1, 0, 12), at=8),
        "twice the run: a warmup of 8 updates, and a line to 0 at update 20",
        {},
        20,
        name="scaled-warmup",
    ),
    Defect(
        "olmo_core",
        "The clock counts the update itself: update 0 is a step into the warmup.",
        """\
{
  "train_module": {
    "optim": {"_CLASS_": "olmo_core.optim.AdamWConfig", "lr": 1.0},
    "scheduler": {
      "_CLASS_": "olmo_core.optim.scheduler.CosWithWarmup", "warmup": 4, "alpha_f": 0.1
    }
  },
  "trainer": {
    "max_duration": {"_CLASS_": "olmo_core.train.Duration", "value": 10, "unit": "steps"}
  }
}
""",
        recipe,
        ONE_RECIPE,
        suffix=".json",
    ),
    Defect(
        "olmo_core",
        "",
        """\
{
  "train_module": {
    "optim": {"_CLASS_": "olmo_core.optim.AdamWConfig", "lr": 1.0},
    "scheduler": {
      "_CLASS_": "olmo_core.optim.scheduler.InvSqrtWithWarmup", "warmup": 0, "alpha_f": 0.1
    }
  },
  "trainer": {
    "max_duration": {"_CLASS_": "olmo_core.train.Duration", "value": 10, "unit": "steps"}
  }
}
""",
        lambda: Schedule(sp.Rational(1, 10) + sp.Rational(9, 10) / sp.sqrt(t + 1)),
        "a tenth of the rate, and the rest over the square root of the update",
        suffix=".json",
        name="no-root-without-a-warmup",
    ),
    Defect(
        "cerebras",
        "",
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - CosineAnnealingWarmRestarts:
        {initial_learning_rate: 1.0, T_0: 5, T_mult: 1, eta_min: 0.0}
    loop: {max_steps: 20}
""",
        lambda: cosine(1, 0, 5).repeat(5),
        "a cosine in each 5 updates",
        {},
        20,
        name="restarts-are-constant",
    ),
    Defect(
        "cerebras",
        "",
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - PolynomialLR:
        {initial_learning_rate: 1.0, end_learning_rate: 0.1, total_iters: 5, power: 1.0,
         cycle: true}
    loop: {max_steps: 12}
""",
        lambda: polynomial(1, 0.1, 5, 1, cycle=True),
        "lines to the end rate over 5, then 10, then 15 updates",
        {},
        12,
        name="cycle-ignored",
    ),
    Defect(
        "cerebras",
        "",
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - LambdaLR: {initial_learning_rate: 0.5, lambdas: ["t/10", "1 - t/20"]}
""",
        lambda: Schedule(t / 20 * (1 - t / 20)),
        "half of the product of the functions",
        name="initial-value-of-each-function",
    ),
    Defect(
        "cerebras",
        "",
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - SequentialLR:
        last_epoch: 1
        schedulers:
        - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4}
        - LinearLR: {initial_learning_rate: 1.0, end_learning_rate: 0.0, total_iters: 4}
""",
        lambda: linear(0, 1, 4).then(linear(1, 0, 4), at=4).shift(2),
        "from update 2 of the sequence on",
        name="last-epoch-of-the-sequence",
    ),
    Defect(
        "cerebras",
        "",
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - SequentialLR:
        schedulers:
        - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4}
        - SequentialLR:
            schedulers:
            - LinearLR: {initial_learning_rate: 1.0, end_learning_rate: 0.5, total_iters: 4}
            - LinearLR: {initial_learning_rate: 0.5, end_learning_rate: 0.0, total_iters: 4}
""",
        lambda: linear(0, 1, 4).then(linear(1, 0.5, 4).then(linear(0.5, 0, 4), at=4), at=4),
        "the inner sequence, from update 4 on",
        name="members-of-members-stay",
    ),
    Defect(
        "yolox",
        "",
        """\
basic_lr_per_img: 1.0
max_epoch: 2
no_aug_epochs: 0
scheduler: cos
warmup_epochs: 1
""",
        lambda: cosine(1, 0, 10),
        "a cosine from 1 to 0 over the 10 updates of the run",
        {"updates_per_epoch": 5, "global_batch_size": 1},
        10,
        name="first-rate-of-the-optimizer",
    ),
)
