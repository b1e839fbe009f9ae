"""The site: pages and public names; `make docs` builds it strictly."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

import closedform as cf

ROOT = Path(__file__).parents[1]
GENERATED = {"index.md", "changelog.md", "benchmarks.md"}
"""Pages that docs/site.py makes, as all those of api/."""


def pages(entry: Any) -> list[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


def navigation() -> list[str]:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return pages(config["nav"])


def test_each_page_is_in_the_navigation_once() -> None:
    listed = [page for page in navigation() if not page.startswith("api/")]
    written = {
        path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")
    }
    assert sorted(listed) == sorted(written | GENERATED)


@pytest.mark.parametrize(
    "package", ["schedules", "optimizers", "transforms", "claims", "frameworks", "training", None]
)
def test_each_public_name_is_documented(package: str | None) -> None:
    module = cf if package is None else getattr(cf, package)
    values = {name: getattr(module, name) for name in module.__all__}
    documented = {
        name: value
        for name, value in values.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    assert documented
    assert [name for name, value in documented.items() if not inspect.getdoc(value)] == []


def test_no_page_loads_a_script_a_style_or_a_font_from_another_site() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    added = [*config["extra_javascript"], *config.get("extra_css", ())]
    assert [address for address in added if "://" in address] == []
    assert config["theme"]["font"] is False


def test_each_page_of_the_reference_is_in_the_navigation() -> None:
    source = (ROOT / "docs" / "site.py").read_text(encoding="utf-8")
    listed = {page for page in navigation() if page.startswith("api/")} - {"api/index.md"}
    assert listed
    assert all(f'"{Path(page).stem}": ("closedform' in source for page in listed)
