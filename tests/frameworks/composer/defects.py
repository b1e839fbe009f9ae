import sympy as sp

from closedform.language import Schedule, t
from closedform.schedules import linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
optimizers: {adamw: {lr: 1.0}}
schedulers:
- multistep: {milestones: [5ba], gamma: 0.1}
- linear_decay: {alpha_f: 0.0}
max_duration: 10ba
""",
        lambda: Schedule(
            sp.Piecewise((1, t < 5), (sp.Rational(1, 10), True)) * (1 - sp.Min(10, t) / 10)
        ),
        "the product of the steps and the line",
        name="last-scheduler-wins",
    ),
    Defect(
        """\
optimizers: {adamw: {lr: 1.0}}
schedulers:
- linear_decay_with_warmup: {t_warmup: 4ba, alpha_f: 0.0, scale_warmup: true}
scale_schedule_ratio: 2.0
max_duration: 10ba
""",
        lambda: linear(0, 1, 8).then(linear(1, 0, 12), at=8),
        "twice the run: a warmup of 8 updates, and a line to 0 at update 20",
        name="scaled-warmup",
        until=20,
    ),
)
