"""Pages of the site that had another name: what stands at the old address.

``extra.redirects`` of mkdocs.yml maps them. A link into a page keeps its anchor; a browser without
scripts comes to the top of the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath


def folder(page: str) -> PurePosixPath:
    """Returns the folder of a page in the site, which has an index.html for each page."""
    path = PurePosixPath(page).with_suffix("")
    return path.parent if path.name == "index" else path


def text(target: str) -> str:
    """Returns the page that leads to another address."""
    return (
        f'<!doctype html>\n<meta charset="utf-8">\n<title>Moved</title>\n'
        f'<link rel="canonical" href="{target}">\n'
        f'<script>location.replace("{target}" + location.hash)</script>\n'
        f'<meta http-equiv="refresh" content="0; url={target}">\n'
        f'<p>This page has moved: <a href="{target}">{target}</a>.</p>\n'
    )


def write(site: Path, redirects: Mapping[str, str]) -> None:
    """Writes the pages at the old addresses."""
    for old, new in redirects.items():
        up = "../" * len(folder(old).parts)
        (site / folder(old)).mkdir(parents=True, exist_ok=True)
        (site / folder(old) / "index.html").write_text(text(f"{up}{folder(new)}/"), "utf-8")
