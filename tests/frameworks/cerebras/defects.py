from closedform.language import Schedule, t
from closedform.schedules import cosine, linear, polynomial
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - CosineAnnealingWarmRestarts:
        {initial_learning_rate: 1.0, T_0: 5, T_mult: 1, eta_min: 0.0}
    loop: {max_steps: 20}
""",
        lambda: cosine(1, 0, 5).repeat(5),
        "a cosine in each 5 updates",
        name="restarts-are-constant",
        until=20,
    ),
    Defect(
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - PolynomialLR:
        {initial_learning_rate: 1.0, end_learning_rate: 0.1, total_iters: 5, power: 1.0,
         cycle: true}
    loop: {max_steps: 12}
""",
        lambda: polynomial(1, 0.1, 5, 1, cycle=True),
        "lines to the end rate over 5, then 10, then 15 updates",
        name="cycle-ignored",
        until=12,
    ),
    Defect(
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - LambdaLR: {initial_learning_rate: 0.5, lambdas: ["t/10", "1 - t/20"]}
""",
        lambda: Schedule(t / 20 * (1 - t / 20)),
        "half of the product of the functions",
        name="initial-value-of-each-function",
    ),
    Defect(
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - SequentialLR:
        last_epoch: 1
        schedulers:
        - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4}
        - LinearLR: {initial_learning_rate: 1.0, end_learning_rate: 0.0, total_iters: 4}
""",
        lambda: linear(0, 1, 4).then(linear(1, 0, 4), at=4).shift(2),
        "from update 2 of the sequence on",
        name="last-epoch-of-the-sequence",
    ),
    Defect(
        """\
trainer:
  init:
    optimizer: {SGD: {learning_rate: 1.0, momentum: 0.9}}
    schedulers:
    - SequentialLR:
        schedulers:
        - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 4}
        - SequentialLR:
            schedulers:
            - LinearLR: {initial_learning_rate: 1.0, end_learning_rate: 0.5, total_iters: 4}
            - LinearLR: {initial_learning_rate: 0.5, end_learning_rate: 0.0, total_iters: 4}
""",
        lambda: linear(0, 1, 4).then(linear(1, 0.5, 4).then(linear(0.5, 0, 4), at=4), at=4),
        "the inner sequence, from update 4 on",
        name="members-of-members-stay",
    ),
)
