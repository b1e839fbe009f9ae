from closedform.schedules import linear
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(CONFIGS["gpt-neox"], recipe, ONE_RECIPE, name="first-updates-equal"),
    Defect(
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
        name="fraction-ignored",
        until=10,
    ),
)
