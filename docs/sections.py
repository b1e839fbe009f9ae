"""The generated section of a page, between two marks."""

from __future__ import annotations


def replace_section(text: str, begin: str, end: str, section: str) -> str:
    """Returns a page whose section between two marks is a new one.

    Raises:
        ValueError: A mark does not occur exactly once.
    """
    before, old_section = text.split(begin)
    _, after = old_section.split(end)
    return f"{before}{begin}{section}{end}{after}"
