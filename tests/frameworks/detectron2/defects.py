from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(CONFIGS["detectron2"], recipe, ONE_RECIPE, name="warmup-ends-below-peak", until=10),
)
