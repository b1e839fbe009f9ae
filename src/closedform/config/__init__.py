"""Training configs in YAML or dicts: their optimizer and schedules as a recipe.

Files are not trusted: nothing in them is evaluated, and their size, depth and form are limited.
"""

from closedform.config.document import Document, read_document
from closedform.config.recipe import Recipe, load_config, load_schedules

__all__ = ["Document", "Recipe", "load_config", "load_schedules", "read_document"]
