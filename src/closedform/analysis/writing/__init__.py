"""Recipes as configs of other frameworks: recognition, texts, and verdicts that are proved."""

from closedform.analysis.writing.recipes import (
    TextKind,
    Verdict,
    Written,
    check_target,
    writable,
    write_recipe,
)

__all__ = ["TextKind", "Verdict", "Written", "check_target", "writable", "write_recipe"]
