from closedform.schedules import constant, cosine, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
optim_wrapper: {optimizer: {type: SGD, lr: 1.0}}
param_scheduler: [{type: CosineAnnealingLR, by_epoch: false, begin: 0, end: 8, eta_min: 0.1}]
train_cfg: {type: IterBasedTrainLoop, max_iters: 10}
""",
        lambda: cosine(1, 0.1, 8).then(constant(0.1), at=8),
        "a cosine to eta_min at update 8, which then stays",
        name="cosine-ends-early",
    ),
    Defect(
        """\
optim_wrapper: {optimizer: {type: SGD, lr: 1.0}}
param_scheduler: [{type: LinearLR, start_factor: 0.2, by_epoch: false, begin: 0, end: 5}]
train_cfg: {type: IterBasedTrainLoop, max_iters: 10}
""",
        lambda: linear(0.2, 1, 5).then(constant(1), at=5),
        "a line from 0.2 to 1 in 5 updates",
        title="LinearLR reaches the rate one step before its end.",
    ),
)
