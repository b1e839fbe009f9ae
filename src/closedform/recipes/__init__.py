"""Training configs and the classes of frameworks, as schedules, update rules and recipes.

Config files are not trusted: nothing in them is evaluated, and their size, depth and form are
limited.
"""

from closedform.recipes.document import Document, read_document
from closedform.recipes.load import load_recipe, load_schedules
from closedform.recipes.recipe import Recipe

__all__ = ["Document", "Recipe", "load_recipe", "load_schedules", "read_document"]


def __dir__() -> list[str]:
    return sorted(__all__)
