"""Rewrites of expressions on a domain, each subexpression once for a domain."""

from __future__ import annotations

from abc import ABC, abstractmethod

import sympy as sp

from closedform.lowering.analysis.domain import Domain


class Rewriter(ABC):
    """A rewrite of expressions by their structure and the domain on which they are taken."""

    def __init__(self) -> None:
        self._known: dict[tuple[sp.Basic, Domain], sp.Basic] = {}

    def visit(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        """Returns the rewritten expression; symbols and numbers stay as they are."""
        if not expr.args or expr.is_number:
            return expr
        key = (expr, domain)
        if key not in self._known:
            self._known[key] = self._rewrite(expr, domain)
        return self._known[key]

    @abstractmethod
    def _rewrite(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        """Rewrites an expression with operands; it visits those itself."""
