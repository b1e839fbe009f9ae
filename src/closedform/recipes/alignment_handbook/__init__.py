"""alignment-handbook: recipes for the trainers of trl."""

from __future__ import annotations

from closedform.recipes.alignment_handbook.reader import READER
from closedform.recipes.framework import Framework
from closedform.recipes.transformers import FRAMEWORK as TRANSFORMERS
from closedform.recipes.transformers.writer import WRITER

FRAMEWORK = Framework(
    "alignment-handbook", {}, {}, versions=TRANSFORMERS.versions, reader=READER, writer=WRITER
)
