"""Passes: frozen dataclasses that map a graph to a graph of the same meaning."""

from closedform.ir.passes.algebra import Algebra
from closedform.ir.passes.fold import Fold
from closedform.ir.passes.pipeline import DEFAULT, Pass, Pipeline
from closedform.ir.passes.select import Select
from closedform.ir.passes.share import Share

__all__ = ["DEFAULT", "Algebra", "Fold", "Pass", "Pipeline", "Select", "Share"]
