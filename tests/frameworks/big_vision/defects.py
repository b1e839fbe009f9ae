from closedform.schedules import constant, linear
from tools.defects import Defect

DEFECTS = (
    Defect(
        """\
import ml_collections as mlc


def get_config(arg=None):
  config = mlc.ConfigDict()
  config.total_steps = 10
  config.lr = 1.0
  config.input = dict(batch_size=1)
  config.optax_name = 'scale_by_adam'
  config.schedule = dict(decay_type='stair', cooldown_steps=5)
  return config
""",
        lambda: constant(1, steps=5).then(linear(1, 0, 5), at=5),
        "the rate, and a line to 0 in the last 5 updates",
        name="negative-after-the-run",
        until=15,
        suffix=".py",
    ),
)
