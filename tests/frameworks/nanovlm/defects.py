import sympy as sp

from closedform.language import Schedule, t
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
lr_mp: 1.0
max_training_steps: 20
""",
        lambda: Schedule(
            sp.Piecewise(
                (sp.S.One, t < 1),
                (
                    (11 + 9 * sp.cos(sp.pi * (t - sp.Rational(3, 5)) / sp.Rational(97, 5))) / 20,
                    t < 21,
                ),
                (sp.Rational(1, 10), True),
            )
        ),
        "a warmup of one update, which has the rate of 1, and a cosine to 0.1 at update 20",
        name="short-run",
    ),
)
