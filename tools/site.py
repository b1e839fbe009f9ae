"""Pages of the site that are made from other files: `mkdocs.yml` names this file as a hook.

The benchmarks and the changelog are their files, and notebooks are pages with their outputs. The
reference has an entry for each name in ``__all__`` of the public packages, so that a name cannot be
left out.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import closedform

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools import redirects, source_links
from tools import run_notebooks as notebooks

ROOT = Path(__file__).parents[1]
COPIES = {
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/RESULTS.md",
}
OUTSIDE = (
    "",
    "https://github.com/closedform/closedform/blob/main/",
    "https://raw.githubusercontent.com/closedform/closedform/main/",
)
"""How files outside docs/ link to a page in it."""
KATEX = ROOT / "build" / "web" / "node_modules" / "katex" / "dist"
"""The npm package, which ``make docs`` installs where npm is available."""
KATEX_ONLINE = "https://unpkg.com/katex@0.19/dist"
KATEX_SCRIPTS = ("katex.min.js", "contrib/auto-render.min.js")
KATEX_STYLES = ("katex.min.css",)
EXPLORE = ROOT / "build" / "explore"
FIGURE = "<!-- figure -->"
FIGURE_FILE = ROOT / "docs" / "frameworks" / "five_curves.svg"
"""The figure of the front page, in the colors of the page that it is a part of."""
PACKAGES = {
    "core": ("closedform", "The functions and classes of the package itself."),
    "schedules": ("closedform.schedules", "Schedules of the library; see also the gallery."),
    "optimizers": ("closedform.optimizers", "Update rules of the library."),
    "transforms": ("closedform.transforms", "Update rules made from update rules."),
    "claims": ("closedform.claims", "Claims that `verify` proves or refutes."),
    "frameworks": ("closedform.frameworks", "Schedules and optimizers of other frameworks."),
    "laws": ("closedform.laws", "Published laws of the loss: predictions, fits and designs."),
    "training": ("closedform.training", "A whole training step as one graph."),
    "torch": ("closedform.torch", "Drop-in schedulers and optimizers for torch."),
    "errors": ("closedform.errors", "Exceptions."),
}


def public_names(package: str) -> list[str]:
    """Returns the public names of a package that are not modules."""
    module = _module(package)
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


def _module(package: str) -> Any:
    parent, _, name = package.rpartition(".")
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return getattr(importlib.import_module(parent), name)


def entries(package: str) -> Iterator[str]:
    """Yields the directive or the line of each public name."""
    module = _module(package)
    for name in public_names(package):
        value = getattr(module, name)
        home = getattr(value, "__module__", None)
        if package == "closedform" and home == "closedform.errors":
            continue  # on its own page
        if (inspect.isclass(value) or inspect.isfunction(value)) and home is not None:
            yield f"::: {home}.{value.__qualname__}\n"
        else:
            yield f"## `{name}`\n\n{_description(package, name, value)}\n"


def _description(package: str, name: str, value: object) -> str:
    """A constant: its value or kind."""
    kind = type(value).__name__
    shown = repr(value)
    return f"`{package}.{name}`, {kind}: `{shown if len(shown) < 100 else kind}`"


def page(title: str) -> str:
    """Returns the text of a page of the reference."""
    package, sentence = PACKAGES[title]
    heading = f"# `{package}`\n\n{sentence}\n\n"
    return heading + "\n".join(entries(package))


def katex_files(source: Path = KATEX) -> dict[str, Path]:
    """Returns the files of KaTeX by their path in the site; none without the npm package."""
    if not (source / "katex.min.js").is_file():
        return {}
    fonts = sorted(path.name for path in (source / "fonts").glob("*.woff2"))
    names = (*KATEX_SCRIPTS, *KATEX_STYLES, *(f"fonts/{name}" for name in fonts))
    return {f"katex/{name}": source / name for name in names}


def on_config(config: Any) -> Any:
    """Adds the scripts of KaTeX: those of the site, or without the npm package those of unpkg."""
    base = "katex" if katex_files() else KATEX_ONLINE
    config["extra_javascript"] += [f"{base}/{name}" for name in KATEX_SCRIPTS]
    config["extra_css"] += [f"{base}/{name}" for name in KATEX_STYLES]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Puts the figure of the front page into it; links into src lead to the repository."""
    if page.file.src_uri == "index.md":
        return markdown.replace(FIGURE, FIGURE_FILE.read_text(encoding="utf-8"))
    return source_links.with_addresses(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Makes an empty head of a column a cell: a head is what screen readers say of its cells."""
    return re.sub(r"<th(?: style=\"[^\"]*\")?></th>", "<td></td>", html)


def on_post_build(*, config: Any) -> None:
    """Adds old addresses, and the gallery that ``closedform gallery -o build/explore`` writes."""
    redirects.write(Path(config["site_dir"]), config["extra"]["redirects"])
    if EXPLORE.is_dir():
        shutil.copytree(EXPLORE, Path(config["site_dir"]) / "explore", dirs_exist_ok=True)


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages, and KaTeX."""
    for notebook in sorted(notebooks.FOLDER.glob("*.ipynb")):
        text = notebooks.as_markdown(notebooks.read(notebook), notebook.stem)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
    for path, file in katex_files().items():
        files.append(File.generated(config, path, abs_src_path=str(file)))
    for path, source in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for base in OUTSIDE:
            text = text.replace(f"]({base}docs/", "](")
        files.append(File.generated(config, path, content=text))
    for title in PACKAGES:
        files.append(File.generated(config, f"api/{title}.md", content=page(title)))
    rows = "\n".join(
        f"- [`{package}`]({title}.md): {sentence}"
        for title, (package, sentence) in PACKAGES.items()
    )
    text = f"# Reference\n\nclosedform {closedform.__version__}.\n\n{rows}\n"
    files.append(File.generated(config, "api/index.md", content=text))
    return files
