from closedform.schedules import constant, cosine_annealing, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
actor_rollout_ref.actor.optim.lr=1.0
actor_rollout_ref.actor.optim.lr_warmup_steps=0
actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.4
trainer.total_training_steps=10
""",
        lambda: linear(0, 1, 4).then(constant(1), at=4),
        "lr_warmup_steps of 0 delegates to the ratio: a line from 0 to 1 in 4 training steps",
        name="zero-warmup-steps",
        suffix=".args",
    ),
    Defect(
        """\
optim: {lr: 1.0, lr_scheduler: cosine, lr_warmup_steps_ratio: 0.4}
trainer: {total_epochs: 4, total_training_steps: 10}
""",
        lambda: linear(0, 1, 4).then(cosine_annealing(1, 0, 6), at=4),
        "a line from 0 to 1 in 4 updates, and a cosine to 0 at update 10",
        {"updates_per_epoch": 5},
        name="horizon-of-epochs",
    ),
)
