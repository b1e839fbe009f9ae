"""One recipe, a cosine with a warmup, as the config of each framework.

tools/build_frameworks.py compares its curves; tools/defects.py has it as a counterexample of
several frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping

CONFIGS: Mapping[str, str] = {
    "automodel": """\
step_scheduler: {max_steps: 10, num_epochs: 1}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0}
lr_scheduler: {lr_decay_style: cosine, lr_warmup_steps: 4, min_lr: 0.1}
""",
    "axolotl": """\
optimizer: adamw_torch
learning_rate: 1.0
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
warmup_steps: 4
max_steps: 10
""",
    "composer": """\
optimizers: {decoupled_adamw: {lr: 1.0}}
schedulers: [{cosine_decay_with_warmup: {t_warmup: 4ba, t_max: 1dur, alpha_f: 0.1}}]
max_duration: 10ba
""",
    "deepspeed": """\
train_batch_size: 1
optimizer: {type: Adam, params: {lr: 1.0}}
scheduler:
  type: WarmupCosineLR
  params:
    {warmup_num_steps: 4, total_num_steps: 10, cos_min_ratio: 0.1, warmup_type: linear}
""",
    "detectron2": """\
SOLVER:
  {BASE_LR: 1.0, BASE_LR_END: 0.1, MAX_ITER: 10, LR_SCHEDULER_NAME: WarmupCosineLR,
   WARMUP_ITERS: 4, WARMUP_FACTOR: 0.0}
""",
    "fairseq": """\
optimization: {max_update: 10, lr: [1.0]}
optimizer: {_name: adam}
lr_scheduler: {_name: cosine, warmup_updates: 4, warmup_init_lr: 0.0, min_lr: 0.1}
""",
    "gpt-neox": """\
optimizer: {type: Adam, params: {lr: 1.0}}
min_lr: 0.1
lr_decay_style: cosine
lr_decay_iters: 10
train_iters: 10
warmup: 0.4
""",
    "levanter": """\
trainer: {num_train_steps: 10}
optimizer: {learning_rate: 1.0, lr_schedule: cosine, warmup: 4, min_lr_ratio: 0.1}
""",
    "litgpt": """\
train: {max_steps: 10, lr_warmup_steps: 4, min_lr: 0.1}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1.0}}
""",
    "llm-foundry": """\
optimizer: {name: decoupled_adamw, lr: 1.0}
scheduler: {name: cosine_with_warmup, t_warmup: 4ba, alpha_f: 0.1}
max_duration: 10ba
""",
    "maxtext": """\
learning_rate: 1.0
lr_schedule_type: cosine
learning_rate_final_fraction: 0.1
warmup_steps_fraction: 0.4
learning_rate_schedule_steps: -1
steps: 10
""",
    "megatron": """\
lr: 1.0
min_lr: 0.1
lr_decay_style: cosine
lr_decay_iters: 10
lr_warmup_iters: 4
train_iters: 10
global_batch_size: 8
""",
    "nanotron": """\
optimizer:
  learning_rate_scheduler:
    {learning_rate: 1.0, min_decay_lr: 0.1, lr_decay_style: cosine, lr_decay_steps: 6,
     lr_warmup_style: linear, lr_warmup_steps: 4}
  optimizer_factory: {name: adamW, adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-8}
  weight_decay: 0.0
tokens: {train_steps: 10}
""",
    "nemo": """\
model:
  optim: {name: adamw, lr: 1.0, sched: {name: CosineAnnealing, warmup_steps: 4, min_lr: 0.1}}
trainer: {max_steps: 10}
""",
    "olmo": """\
optimizer: {name: adamw, learning_rate: 1.0}
scheduler: {name: cosine_with_warmup, t_warmup: 4, alpha_f: 0.1}
max_duration: 10
""",
    "torchtitan": """\
optimizer: {name: AdamW, lr: 1.0}
lr_scheduler: {warmup_steps: 4, decay_type: cosine, min_lr_factor: 0.1}
training: {steps: 10}
""",
    "torchtune": """\
epochs: 1
max_steps_per_epoch: 10
optimizer: {_component_: torch.optim.AdamW, lr: 1.0}
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 4
""",
    "transformers": """\
learning_rate: 1.0
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_steps: 4
max_steps: 10
""",
}
"""The recipe in the form of each framework."""
