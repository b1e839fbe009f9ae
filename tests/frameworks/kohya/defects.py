from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        "--learning_rate 1 --lr_scheduler linear --lr_warmup_steps 4 --max_train_steps 12",
        lambda: linear(0, 1, 4).then(linear(1, 0, 8), at=4),
        "a line from 0 to 1 in 4 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 4},
        name="whole-lengths",
        until=14,
        suffix=".args",
    ),
    Defect(
        "--learning_rate 1 --lr_scheduler_type LinearLR --max_train_steps 12\n"
        "--lr_scheduler_args start_factor=1 end_factor=0.5 total_iters=8",
        lambda: linear(1, 0.5, 8),
        "a line from 1 to a half in 8 updates",
        {"num_processes": 4},
        name="steps-of-torch",
        until=14,
        suffix=".args",
    ),
)
