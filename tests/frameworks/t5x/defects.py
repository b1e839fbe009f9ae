from closedform.schedules import constant, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
TRAIN_STEPS = 10
utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'
utils.create_learning_rate_scheduler.base_learning_rate = 1.0
utils.create_learning_rate_scheduler.warmup_steps = 4
utils.create_learning_rate_scheduler.min_learning_rate = 0.1
""",
        lambda: linear(0, 1, 4).then(constant(1), at=4),
        "a line from 0 to 1 in 4 updates",
        name="least-rate",
        suffix=".gin",
    ),
)
