from tools.defects import Defect
from tools.one_recipe import CONFIGS, ONE_RECIPE, recipe

DEFECTS = (
    Defect(
        f"stage: sft\nfinetuning_type: full\n{CONFIGS['transformers']}",
        recipe,
        ONE_RECIPE,
        name="cosine_with_min_lr-1",
        until=16,
    ),
)
