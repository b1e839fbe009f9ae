"""Passes: frozen dataclasses that map a graph to a graph of the same meaning."""

from closedform.ir.passes.algebra import Algebra, Select
from closedform.ir.passes.rewrite import Fold, Pass, Pipeline, Share

DEFAULT = Pipeline((Fold(), Algebra(), Select(), Share()), name="default")
"""The passes of every compiled graph."""

__all__ = ["DEFAULT", "Algebra", "Fold", "Pass", "Pipeline", "Select", "Share"]
