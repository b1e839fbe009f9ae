import sympy as sp

from closedform.language import Schedule, t
from tools.defects import Defect
from tools.one_recipe import ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        """\
{
  "train_module": {
    "optim": {"_CLASS_": "olmo_core.optim.AdamWConfig", "lr": 1.0},
    "scheduler": {
      "_CLASS_": "olmo_core.optim.scheduler.CosWithWarmup", "warmup": 4, "alpha_f": 0.1
    }
  },
  "trainer": {
    "max_duration": {"_CLASS_": "olmo_core.train.Duration", "value": 10, "unit": "steps"}
  }
}
""",
        recipe,
        ONE_RECIPE,
        title="The clock counts the update itself: update 0 is a step into the warmup.",
        suffix=".json",
    ),
    Defect(
        """\
{
  "train_module": {
    "optim": {"_CLASS_": "olmo_core.optim.AdamWConfig", "lr": 1.0},
    "scheduler": {
      "_CLASS_": "olmo_core.optim.scheduler.InvSqrtWithWarmup", "warmup": 0, "alpha_f": 0.1
    }
  },
  "trainer": {
    "max_duration": {"_CLASS_": "olmo_core.train.Duration", "value": 10, "unit": "steps"}
  }
}
""",
        lambda: Schedule(sp.Rational(1, 10) + sp.Rational(9, 10) / sp.sqrt(t + 1)),
        "a tenth of the rate, and the rest over the square root of the update",
        name="no-root-without-a-warmup",
        suffix=".json",
    ),
)
