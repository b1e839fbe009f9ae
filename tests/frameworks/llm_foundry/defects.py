from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
optimizer: {name: decoupled_adamw, lr: 1.0}
scheduler: {name: linear_decay_with_warmup, t_warmup: 4ba, alpha_f: 0.0, scale_warmup: true}
scale_schedule_ratio: 2.0
max_duration: 10ba
""",
        lambda: linear(0, 1, 8).then(linear(1, 0, 12), at=8),
        "twice the run: a warmup of 8 updates, and a line to 0 at update 20",
        name="scaled-warmup",
        until=20,
    ),
)
