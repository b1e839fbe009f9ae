from tools.defects import Defect
from tools.one_recipe import recipe

DEFECTS = (
    Defect(
        """\
SFTConfig(learning_rate=1.0, lr_scheduler_type="cosine", warmup_steps=4, max_steps=10)
""",
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        name="cosine-1",
        until=16,
        suffix=".py",
    ),
)
