"""The primitives of JAX by name, as rules on values."""

from __future__ import annotations

from collections.abc import Mapping

from closedform.importers.optax.control import CONTROL
from closedform.importers.optax.elementwise import ELEMENTWISE
from closedform.importers.optax.interpreter import PrimitiveRule
from closedform.importers.optax.structure import STRUCTURE

RULES: Mapping[str, PrimitiveRule] = {**ELEMENTWISE, **STRUCTURE, **CONTROL}
"""The rule of each primitive; calls of other jaxprs are interpreted where they are."""
