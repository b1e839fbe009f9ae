import sympy as sp

from closedform.language import Schedule, t
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        CONFIGS["olmo"],
        recipe,
        ONE_RECIPE,
        title="The clock counts the update itself, and a warmup begins at a tenth of the rate.",
    ),
    Defect(
        """\
optimizer: {name: adamw, learning_rate: 1.0}
scheduler: {name: inverse_sqrt_with_warmup, t_warmup: 0}
max_duration: 10
""",
        lambda: Schedule(1 / sp.sqrt(t + 1)),
        "the rate over the square root of the update",
        name="zero-for-ever",
    ),
)
