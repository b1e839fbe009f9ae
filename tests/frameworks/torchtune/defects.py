from tools.defects import Defect
from tools.one_recipe import CONFIGS, recipe

DEFECTS = (
    Defect(
        CONFIGS["torchtune"],
        lambda: recipe(10, 0.0),
        "a line from 0 to 1 in 4 updates, a cosine to 0 at update 10, then 0",
        {"updates_per_epoch": 10},
        name="cosine-climbs",
        until=16,
    ),
)
