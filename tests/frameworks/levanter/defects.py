from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
trainer: {num_train_steps: 10}
optimizer: {learning_rate: 1.0, lr_schedule: linear, warmup: 1, min_lr_ratio: 0.0}
""",
        lambda: linear(0, 1, 1).then(linear(1, 0, 9), at=1),
        "a warmup of one update, as 4 is one of 4 updates",
        title="A warmup of 1 is the whole run.",
    ),
)
