from closedform.schedules import cosine
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
basic_lr_per_img: 1.0
max_epoch: 2
no_aug_epochs: 0
scheduler: cos
warmup_epochs: 1
""",
        lambda: cosine(1, 0, 10),
        "a cosine from 1 to 0 over the 10 updates of the run",
        {"updates_per_epoch": 5, "global_batch_size": 1},
        name="first-rate-of-the-optimizer",
        until=10,
    ),
)
