from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
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
)
