from closedform.schedules import constant, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
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
)
