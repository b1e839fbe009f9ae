from tools.defects import Defect
from tools.one_recipe import recipe

DEFECTS = (
    Defect(
        """\
optimization: {max_update: 10, lr: [1.0]}
optimizer: {_name: adam}
lr_scheduler: {_name: cosine, warmup_updates: 4, warmup_init_lr: 0.0, min_lr: 0.1,
  lr_period_updates: 3}
""",
        lambda: recipe(7),
        "a cosine to the minimum in the 3 updates of lr_period_updates, and then the minimum",
        name="cosine-restarts",
    ),
)
