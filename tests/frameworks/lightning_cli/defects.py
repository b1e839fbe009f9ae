from closedform.schedules import cosine
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
trainer: {max_steps: 20}
optimizer: {class_path: torch.optim.SGD, init_args: {lr: 1.0}}
lr_scheduler:
  class_path: torch.optim.lr_scheduler.CosineAnnealingLR
  init_args: {T_max: 20}
""",
        lambda: cosine(1, 0, 20),
        "with 5 updates in an epoch and 20 of the run, a cosine to 0 at update 20",
        {"updates_per_epoch": 5},
        name="by-epoch",
    ),
)
