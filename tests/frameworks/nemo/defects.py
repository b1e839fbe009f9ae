import sympy as sp

from closedform.language import Schedule, t
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        CONFIGS["nemo"],
        recipe,
        ONE_RECIPE,
        title="A warmup of W updates rises from 1/(W + 1) of the rate.",
    ),
    Defect(
        """\
model:
  optim: {name: adamw, lr: 1.0, sched: {name: SquareRootAnnealing, warmup_steps: 4, min_lr: 0.0}}
trainer: {max_steps: 10}
""",
        lambda: Schedule(
            sp.Piecewise(
                ((t + 1) / 5, t < 5),
                (sp.sqrt((10 - sp.Min(10, t)) / sp.Integer(6)), True),
            )
        ),
        "after NeMo's warmup, the square root of what is left of the other 6 updates",
        name="jumps-after-the-warmup",
        until=10,
    ),
    Defect(
        """\
model:
  optim:
    {name: adamw, lr: 1.0, sched: {name: WarmupHoldAnnealLinear, warmup_steps: 4, min_lr: 0.0}}
trainer: {max_steps: 10}
""",
        lambda: Schedule(
            sp.Piecewise(((t + 1) / 5, t < 5), ((10 - sp.Min(10, t)) / sp.Integer(6), True))
        ),
        "after NeMo's warmup, a line to 0 in the other 6 updates",
        name="no-hold",
    ),
)
