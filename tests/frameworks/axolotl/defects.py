from closedform.language import Schedule, t
from closedform.schedules import constant, cosine, linear
from tools.defects import Defect
from tools.one_recipe import ONE_RECIPE, recipe

DEFECTS = (
    Defect(
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
        name="cosine_min_lr-1",
        until=16,
    ),
    Defect(
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
        name="cosine_quadratic_warmup-1",
        until=10,
    ),
)
