"""HTML for notebooks: a title, tables and formulas, all of them escaped.

Colors are inherited, for light and dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

MOST_ROWS = 40
"""Rows of a table in a notebook; a screen has about as many lines."""

_CELL = "text-align:left"


def block(title: str, *parts: str) -> str:
    """Returns a title and elements below it.

    Example:
        >>> block("a < b", paragraph("x"))
        '<div><b>a &lt; b</b><div>x</div></div>'
    """
    return f"<div><b>{html.escape(title)}</b>{''.join(parts)}</div>"


def paragraph(text: str) -> str:
    """Returns a text in lines of its own; empty for an empty one."""
    return f"<div>{html.escape(text)}</div>" if text else ""


def formula(latex: str) -> str:
    """Returns a formula of LaTeX, which MathJax and KaTeX set."""
    return f"<div>$\\displaystyle {html.escape(latex)}$</div>"


def code(lines: Iterable[str]) -> str:
    """Returns lines of code; empty without any."""
    text = html.escape("\n".join(lines))
    return f'<pre style="white-space:pre-wrap;background:none">{text}</pre>' if text else ""


def definitions(texts: Mapping[str, str]) -> str:
    """Returns names with their descriptions; empty without any."""
    return table([(f"{name}:", text) for name, text in texts.items()])


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Returns a table, of many rows the first ones; empty without rows.

    Example:
        >>> print(table([("a", "1")], ("name", "value")).replace(f' style="{_CELL}"', ""))
        <table><thead><tr><th>name</th><th>value</th></tr></thead><tbody><tr><td>a</td><td>1</td></tr></tbody></table>
    """
    if not rows:
        return ""
    title = f"<thead>{_row('th', head)}</thead>" if head else ""
    body = "".join(_row("td", row) for row in rows[:MOST_ROWS])
    rest = len(rows) - MOST_ROWS
    note = paragraph(f"… and {rest:,} more") if rest > 0 else ""
    return f"<table>{title}<tbody>{body}</tbody></table>{note}"


def _row(tag: str, cells: Iterable[str]) -> str:
    elements = "".join(f'<{tag} style="{_CELL}">{html.escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{elements}</tr>"
