from closedform.schedules import constant, cosine
from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(CONFIGS["maxtext"], recipe, ONE_RECIPE, name="last-update-final", until=10),
    Defect(
        """\
learning_rate: 1.0
lr_schedule_type: cosine
learning_rate_final_fraction: 0.5
warmup_steps_fraction: 0.0
learning_rate_schedule_steps: 5
steps: 10
""",
        lambda: cosine(1, 0.5, 4).then(constant(0.5), at=4),
        "a cosine to half of the rate, which then stays",
        name="zero-after-schedule",
    ),
    Defect(
        """\
learning_rate: 1.0
lr_schedule_type: wsd
wsd_decay_style: linear
learning_rate_final_fraction: 0.1
warmup_steps_fraction: 0.0
wsd_decay_steps_fraction: 0.1
learning_rate_schedule_steps: -1
steps: 10
""",
        lambda: constant(1, steps=9).then(constant(0.1), at=9),
        "the rate in 9 updates, and a tenth of it after the decay of one update",
        name="peak-after-line",
    ),
)
