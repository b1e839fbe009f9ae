"""Docstrings for the site: formulas and roles of reStructuredText as Markdown."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

MATH = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +.*|[ \t]*(?=\n\1 +)))*)", re.MULTILINE)
# griffe reads an Example as a note; as Examples it is code.
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:func|class|meth|mod|attr):`~?([^`]+)`")


def markdown(text: str) -> str:
    """Returns a docstring with its formulas between dollars and its roles as code."""

    def formula(match: re.Match[str]) -> str:
        lines = textwrap.dedent("\n".join(match[2].split("\n"))).strip()
        body = f"\\begin{{aligned}}{lines}\\end{{aligned}}" if "\\\\" in lines else lines
        return "\n".join(f"{match[1]}{line}" for line in ("", "$$", *body.split("\n"), "$$", ""))

    plain = EXAMPLE.sub(r"\1Examples:", MATH.sub(formula, text))
    return ROLE.sub(r"`\1`", plain).replace("``", "`")


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Rewrites each docstring when it is loaded."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Changes the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
