"""Passes: frozen dataclasses that map a graph to a graph of the same meaning."""

from closedform.ir.passes.algebra import Algebra, Select
from closedform.ir.passes.pipeline import DEFAULT, Pass, Pipeline
from closedform.ir.passes.rewrite import Fold, Share

__all__ = ["DEFAULT", "Algebra", "Fold", "Pass", "Pipeline", "Select", "Share"]
