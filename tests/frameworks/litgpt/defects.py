from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(CONFIGS["litgpt"], recipe, ONE_RECIPE, name="minimum-ignored", until=10),
    Defect(
        """\
train: {max_steps: 10, lr_warmup_steps: 4, min_lr: 0.0}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1.0}}
""",
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        name="cosine-climbs",
        until=16,
    ),
)
