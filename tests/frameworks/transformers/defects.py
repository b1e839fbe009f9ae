import sympy as sp

from closedform.language import Schedule, t
from closedform.schedules import cosine, inverse_square_root, linear
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        """\
learning_rate: 1.0
lr_scheduler_type: cosine_warmup_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_steps: 4
max_steps: 10
""",
        lambda: Schedule((t + 1) / 4).then(cosine(1, 0.1, 6), at=4),
        "a line from 1/4 to 1 in 4 updates, and a cosine from 1 at update 4 to 0.1 at update 10",
        name="cosine_warmup_with_min_lr-1",
        until=10,
    ),
    Defect(
        """\
learning_rate: 1.0
lr_scheduler_type: inverse_sqrt
lr_scheduler_kwargs: {timescale: 8}
warmup_steps: 4
max_steps: 10
""",
        lambda: linear(0, 1, 4).then(inverse_square_root(1, sp.sqrt(8), 8).shift(8), at=4),
        "a line from 0 to 1 in 4 updates, then 1 / sqrt(1 + (t - 4) / 8)",
        name="inverse_sqrt-1",
        until=16,
        version="4.57.1",
    ),
    Defect(CONFIGS["transformers"], recipe, ONE_RECIPE, name="cosine_with_min_lr-1", until=16),
)
