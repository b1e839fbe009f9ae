from closedform.schedules import linear
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        CONFIGS["automodel"],
        recipe,
        ONE_RECIPE,
        {"total_updates": 10},
        title="A warmup begins at a tenth of the rate unless init_lr is given.",
    ),
    Defect(
        """\
step_scheduler: {max_steps: 10, num_epochs: 1}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0}
lr_scheduler: {lr_decay_style: linear, lr_warmup_steps: 0}
""",
        lambda: linear(1, 0, 10),
        "a line from 1 to 0 in the 10 updates of the run, and then 0",
        {"total_updates": 10},
        title="The minimum is a hundredth of the rate unless min_lr is given.",
        until=11,
    ),
)
