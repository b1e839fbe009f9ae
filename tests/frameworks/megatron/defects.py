from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
lr: 1.0
lr_decay_style: linear
train_iters: 10
lr_warmup_fraction: 0.25
global_batch_size: 1
""",
        lambda: linear(0, 1, 3).then(linear(1, 0, 7), at=3),
        "a warmup of a whole number of updates: the fraction of 2.5 is rounded to 3",
        title="A warmup that is a fraction of the decay is not rounded to whole updates.",
    ),
)
