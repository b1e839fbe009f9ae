from closedform.recipes.clock import hold
from closedform.schedules import cosine, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
Global: {epochs: 4}
Optimizer:
  name: Momentum
  momentum: 0.9
  lr: {name: Cosine, learning_rate: 1.0, warmup_epoch: 2}
""",
        lambda: linear(0, 1, 10).then(cosine(1, 0, 10), at=10),
        "with 5 updates in an epoch, a warmup of 10 updates",
        {"updates_per_epoch": 5},
        name="warmup-in-updates",
        until=20,
    ),
    Defect(
        """\
Global: {epochs: 4}
Optimizer:
  name: Momentum
  momentum: 0.9
  lr: {name: Cosine, learning_rate: 1.0, warmup_epoch: 2, by_epoch: true}
""",
        lambda: hold(linear(0, 1, 2).then(cosine(1, 0, 2), at=2), 3),
        "with 3 updates in an epoch, a warmup of 2 epochs, one value in each",
        {"updates_per_epoch": 3},
        name="warmup-scaled-twice",
        until=12,
    ),
)
