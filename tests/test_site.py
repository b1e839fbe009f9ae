"""The site: pages and public names; `make docs` builds it strictly."""

import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import closedform as cf
from tools import (
    build_checker,
    build_environments,
    build_rocq,
    build_track_3,
    build_trust,
    redirects,
    source_links,
)
from tools.sections import GeneratedSection

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").iterdir()}
GENERATED = {"changelog.md", "benchmarks.md"} | NOTEBOOKS
"""Pages that tools/site.py makes, as all those of api/."""


def pages(entry: Any) -> list[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


def navigation() -> list[str]:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return pages(config["nav"])


MOST_ITEMS, MOST_PAGES = 7, 9


def test_the_navigation_is_short() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    sizes = [len(pages(item)) for item in config["nav"]]
    assert len(sizes) <= MOST_ITEMS
    assert max(sizes) <= MOST_PAGES, sizes


def test_each_page_is_in_the_navigation_once_or_a_page_of_it_leads_there() -> None:
    folder = ROOT / "docs"
    listed = [page for page in navigation() if not page.startswith("api/")]
    written = {path.relative_to(folder).as_posix() for path in folder.glob("**/*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) <= written | GENERATED
    links = {
        os.path.normpath(Path(page).parent / link)
        for page in listed
        if page in written
        for link in re.findall(r"\]\(([\w./-]+\.md)", (folder / page).read_text(encoding="utf-8"))
    }
    assert (written | GENERATED) - set(listed) - links == set()


def test_old_addresses_lead_to_pages(tmp_path: Path) -> None:
    """From each page that had another name to the one of today, however often it was renamed."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    moves = config["extra"]["redirects"]
    assert {"referee.md", "limits_and_trust.md", "recipes.md"} <= set(moves)
    present = {*navigation(), "docs.md"}
    redirects.write(tmp_path, {**moves, "old/folder/index.md": "docs.md"})
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(written) == len(moves) + 1
    for path in written:
        assert f"{path.parent}.md" not in present
        (target,) = set(
            re.findall(r'(?:href=|url=|replace\()"?([^"]+?)"', (tmp_path / path).read_text())
        )
        leads_to = (tmp_path / path.parent / target).resolve().relative_to(tmp_path)
        assert f"{leads_to}.md" in present


def test_pages_begin_with_their_purpose() -> None:
    """And not with the command that writes them."""
    for path in (ROOT / "docs").glob("**/*.md"):
        _, _, text = path.read_text(encoding="utf-8").partition("\n# ")
        first = " ".join(text.split("\n\n")[1:2]) or path.read_text(encoding="utf-8")[:300]
        assert "`make " not in first.split(". ")[0], path


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/compared_with_other_tools.md"]
)
def test_the_number_of_frameworks_is_that_of_their_table(page: str) -> None:
    table = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    number = len(re.findall(r"^\| \[[^|]+\| read", table, re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8").replace("21 frameworks", "")
    assert {int(figure) for figure in re.findall(r"(\d+) frameworks", text)} == {number}


def test_figures_of_the_page_on_trust_are_not_above_those_of_today() -> None:
    text = (ROOT / "docs" / "what_to_trust.md").read_text(encoding="utf-8")
    _, _, after = text.partition(build_trust.SECTION.begin)
    rows = after.partition(build_trust.SECTION.end)[0].splitlines()[2:]
    figures = list(build_trust.figures())
    assert len(rows) == len(figures)
    for row, figure in zip(rows, figures, strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[0] == figure.subject, "run `make trust`"
        number = int(cells[1].replace(",", ""))
        assert figure.number * 0.8 <= number <= figure.number, f"{figure.subject}: `make trust`"


@pytest.mark.parametrize(
    ("section", "command"),
    [
        (build_rocq.SECTION, "make rocq"),
        (build_checker.SECTION, "make checker"),
        (build_environments.SECTION, "make environments"),
        *((section, "python -m tools track_3") for section in build_track_3.SECTIONS),
    ],
)
def test_a_table_has_the_stored_figures(section: GeneratedSection, command: str) -> None:
    assert section.updated_page() == section.page.read_text(encoding="utf-8"), f"run `{command}`"


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


def test_links_into_the_source_lead_to_definitions() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("**/*.md")]
    texts = [source_links.with_addresses(text) for text in pages if "(../src/" in text]
    assert not any("(../src/" in text for text in texts)
    assert sum(text.count(f"({source_links.ADDRESS}") for text in texts) > 60


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[`Graf`](../src/closedform/ir/graph.py)", "Graf: src/closedform/ir/graph.py does not"),
        ("[`Builder.subtract`](../src/closedform/ir/graph.py)", "Builder.subtract: "),
        ("[graf.py](../src/closedform/ir/graf.py)", "there is no src/closedform/ir/graf.py"),
    ],
)
def test_a_link_to_a_name_that_moved_is_reported(link: str, fault: str) -> None:
    with pytest.raises(LookupError, match=re.escape(fault)):
        source_links.with_addresses(link)


def test_no_page_loads_a_script_a_style_or_a_font_from_another_site() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    added = [*config["extra_javascript"], *config.get("extra_css", ())]
    assert [address for address in added if "://" in address] == []
    assert config["theme"]["font"] is False


def test_each_page_of_the_reference_is_in_the_navigation() -> None:
    source = (ROOT / "tools" / "site.py").read_text(encoding="utf-8")
    listed = {page for page in navigation() if page.startswith("api/")} - {"api/index.md"}
    assert listed
    assert all(f'"{Path(page).stem}": ("closedform' in source for page in listed)
