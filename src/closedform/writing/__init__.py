"""Recipes as configs of other frameworks: recognition, texts, and verdicts that are proved."""

from closedform.writing.recipes import Verdict, Written, writable, write_recipe

__all__ = ["Verdict", "Written", "writable", "write_recipe"]
