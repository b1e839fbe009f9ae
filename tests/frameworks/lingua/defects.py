from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
steps: 10
optim: {lr: 1.0, scheduler: constant, warmup: 4}
""",
        lambda: linear(0, 1, 4),
        "a line from 0 to 1 in the 4 updates of the warmup, and then 1",
        name="warmup-of-constant",
    ),
)
