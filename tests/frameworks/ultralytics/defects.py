from closedform.schedules import constant, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
epochs: 4
batch: 64
optimizer: SGD
lr0: 1.0
lrf: 0.0
warmup_epochs: 2.0
""",
        lambda: linear(0, 1, 10).then(constant(0.5), at=10),
        "with 5 updates in an epoch, a line from 0 to lr0 in 10 updates",
        {"updates_per_epoch": 5},
        name="warmup-to-current-epoch",
        until=11,
    ),
    Defect(
        """\
epochs: 4
batch: 64
optimizer: auto
lr0: 1.0
lrf: 1.0
warmup_epochs: 0.0
""",
        lambda: constant(1),
        "the rate lr0",
        {"updates_per_epoch": 5, "dataset_size": 320, "nc": 80},
        name="auto-ignores-lr0",
    ),
)
