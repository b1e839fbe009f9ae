from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        "train_unconditional.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 2\n"
        "--num_epochs 2 --gradient_accumulation_steps 4",
        lambda: linear(0, 1, 2).then(linear(1, 0, 8), at=2),
        "a line from 0 to 1 in 2 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 1, "micro_batches_per_epoch": 20},
        name="unconditional-accumulation",
        until=12,
        suffix=".args",
    ),
    Defect(
        "train_text_to_image_sdxl.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 2\n"
        "--max_train_steps 10 --gradient_accumulation_steps 4",
        lambda: linear(0, 1, 2).then(linear(1, 0, 8), at=2),
        "a line from 0 to 1 in 2 updates, and a line to 0 in the 8 that are left",
        {"num_processes": 2},
        name="accumulation-for-processes",
        until=12,
        suffix=".args",
    ),
    Defect(
        "train_text_to_image.py --learning_rate 1 --lr_scheduler linear --lr_warmup_steps 0\n"
        "--num_train_epochs 2",
        lambda: linear(1, 0, 10),
        "a line to 0 in the 10 updates of the run",
        {"num_processes": 4, "micro_batches_per_epoch": 20},
        name="epochs-of-all-processes",
        until=12,
        suffix=".args",
        version="3511a9623f^",
    ),
)
