from fractions import Fraction

from closedform.schedules import linear
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        CONFIGS["torchtitan"],
        recipe,
        ONE_RECIPE,
        name="last-update-above-minimum",
        title="A warmup of W updates rises from 1/W, and the last update is above the minimum.",
    ),
    Defect(
        """\
optimizer: {name: AdamW, lr: 1.0}
training: {steps: 10, warmup_steps: 4}
""",
        lambda: linear(Fraction(1, 4), 1, 3).then(linear(1, 0, 6), at=4),
        "a line from 1/4 to 1 in 4 updates, and a line to 0 in the other 6",
        name="one-update-more",
        until=10,
    ),
    Defect(
        """\
optimizer: {name: AdamW, lr: 1.0}
lr_scheduler: {warmup_steps: 0}
training: {steps: 10, batch_size: 8}
""",
        lambda: linear(Fraction(9, 10), 0, 9),
        "a line that is 0 in the last of 10 updates",
        name="one-update-more-of-decay",
        until=10,
    ),
)
