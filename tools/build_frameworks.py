"""Writes the registry of the frameworks, their table, and their pages with defects.

`make frameworks` runs it. Each config of the recipe is in the framework's own form, and its values
are those that the framework computes.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib import colormaps, pyplot, rc_context

from closedform import frameworks
from closedform.analysis.difference import CurveDifference, diff
from closedform.analysis.writing import writable
from closedform.language import Schedule
from closedform.plotting import vector
from closedform.recipes import Recipe, load_recipe
from closedform.recipes import registry as registry_module
from closedform.recipes.defects import Defect as Declared
from closedform.recipes.defects import Note
from closedform.recipes.document import document_of
from closedform.recipes.framework import Framework
from tools.defects import Defect, defects
from tools.one_recipe import CONFIGS
from tools.sections import DOCS, ROOT

PAGE = DOCS / "frameworks.md"
PLOT = DOCS / "frameworks" / "one_recipe.svg"
REGISTRY = ROOT / "src" / "closedform" / "recipes" / "registry.py"
FRAMEWORKS = ROOT / "src" / "closedform" / "frameworks"
_TABLE = "_NAMES = (\n"
FIVE = ("levanter", "torchtune", "deepspeed", "detectron2", "maxtext")
"""Frameworks whose curves differ in different ways, for the front page of the site."""
FIVE_PLOT = DOCS / "frameworks" / "five_curves.svg"
_FIVE_HEIGHT = 210
PEAK, LOW, WARMUP, TOTAL = 1.0, 0.1, 4, 10
STEPS = np.arange(TOTAL + 2)

FACTS: Mapping[str, Mapping[str, int]] = {
    "automodel": {"total_updates": TOTAL},
    "torchtune": {"updates_per_epoch": TOTAL},
}
"""The facts that a config does not contain."""

_LINEAR = {"class": "LinearLR", "kwargs": {"start_factor": 1e-8, "total_iters": WARMUP}}
_COSINE = {
    "class": "CosineAnnealingLR",
    "kwargs": {"T_max": TOTAL - WARMUP, "eta_min": LOW},
}
CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "optax": (
        "warmup_cosine_decay_schedule",
        {
            "init_value": 0.0,
            "peak_value": PEAK,
            "warmup_steps": WARMUP,
            "decay_steps": TOTAL,
            "end_value": LOW,
        },
    ),
    "timm": (
        "CosineLRScheduler",
        {"t_initial": TOTAL, "lr_min": LOW, "warmup_t": WARMUP, "warmup_lr_init": 0.0},
    ),
    "torch": ("SequentialLR", {"schedulers": [_LINEAR, _COSINE], "milestones": [WARMUP]}),
}
"""The recipe by scheduler classes, where a framework has no config file."""


@dataclass(slots=True)
class Curve:
    """A curve, and the frameworks that compute it.

    Attributes:
        values: Its values at ``STEPS``.
        names: The frameworks.
    """

    values: np.ndarray[Any, np.dtype[np.float64]]
    names: list[str] = field(default_factory=list)


def schedule_of(name: str) -> Schedule:
    """Returns the schedule that a framework makes of the recipe."""
    if name in CLASSES:
        class_name, arguments = CLASSES[name]
        return frameworks.schedule(name, class_name, arguments, base=PEAK)
    config = yaml.safe_load(CONFIGS[name])
    return load_recipe(config, framework=name, facts=FACTS.get(name, {})).schedule("lr")


def curves() -> list[Curve]:
    """Returns the different curves of the recipe, the most common ones first."""
    found: list[Curve] = []
    for name in sorted({*CONFIGS, *CLASSES}):
        values = np.asarray(schedule_of(name)(STEPS))
        # float64 of one formula written in two ways; torch's warmup begins at 1e-8.
        same = next((one for one in found if np.allclose(one.values, values, atol=2e-8)), None)
        if same is None:
            same = Curve(values)
            found.append(same)
        same.names.append(name)
    return sorted(found, key=lambda one: (-len(one.names), one.names))


def draw(path: Path, found: list[Curve]) -> None:
    """Draws the curves into a file."""
    with rc_context({"svg.hashsalt": "closedform", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        colors = colormaps["tab20"].colors  # type: ignore[attr-defined]
        for index, one in enumerate(found):
            style = {"color": colors[2 * index % 20 + index // 10], "lw": 1.4}
            axes.plot(
                STEPS, one.values, ".-", **style, label=f"{index + 1}: {', '.join(one.names)}"
            )
        axes.set_xlabel("update")
        axes.set_ylabel("learning rate")
        axes.set_title(f"cosine, peak {PEAK:g}, warmup {WARMUP}, total {TOTAL}, minimum {LOW:g}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def five_curves() -> str:
    """Returns a plot of five of the curves, in the colors of the page that it becomes a part of."""
    lines = {name: np.asarray(schedule_of(name)(STEPS), dtype=np.float64) for name in FIVE}
    return vector.draw({name: (STEPS, values) for name, values in lines.items()}, _FIVE_HEIGHT)


def _table(found: list[Curve]) -> list[str]:
    names = [f"{index + 1}. {', '.join(one.names)}" for index, one in enumerate(found)]
    header = " | ".join(str(index + 1) for index in range(len(found)))
    lines = [*names, "", f"| update | {header} |", "| --- " * (len(found) + 1) + "|"]
    for at, step in enumerate(STEPS):
        values = " | ".join(f"{one.values[at]:.3g}" for one in found)
        lines.append(f"| {step} | {values} |")
    return lines


def _index() -> list[str]:
    """The table of all frameworks, which the site filters."""
    lines = [
        '<div class="filtered" markdown>',
        "",
        "| framework | configs | classes | defects | tier |",
        "| --- | --- | --- | --- | --- |",
    ]
    written = set(writable())
    for name in sorted(frameworks.FRAMEWORKS):
        framework = frameworks.FRAMEWORKS[name]
        ways = [
            *(["read"] if framework.reader is not None else []),
            *(["written"] if name in written else []),
        ]
        count = len(framework.schedules) + len(framework.optimizers)
        page_of_defects = f"[{len(framework.defects) or ''} known](frameworks/{name}.md)"
        cells = (
            f"[{name}](#{_anchor(name)})",
            " and ".join(ways),
            str(count or ""),
            page_of_defects.replace("[ ", "[") if name in paged() else "",
            framework.tier.value,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "</div>", ""]


def _anchor(name: str) -> str:
    """The anchor of a heading, as the site's table of contents makes it."""
    return re.sub(r"[^\w\s-]", "", name).lower()


def _origin(framework: Framework) -> str:
    """The repository, and the commit that the formulas follow, with a link if it is a hash."""
    repository, commit = framework.repository, framework.commit
    is_hash = commit.isalnum() and not commit.isdecimal()
    at = f"[`{commit}`]({repository}/tree/{commit})" if is_hash else f"`{commit}`"
    return f"[{repository.partition('github.com/')[2]}]({repository}) at {at}"


def _section(name: str) -> list[str]:
    framework = frameworks.FRAMEWORKS[name]
    lines = [f"### {name}", "", f"{_origin(framework)}, {framework.tier}.", ""]
    if framework.versions:
        lines += ["Versions: " + ", ".join(f"`{one}`" for one in framework.versions) + ".", ""]
    if framework.reader is not None:
        lines += [f'Configs: `closedform.load_recipe(path, framework="{name}")`.', ""]
    if framework.schedules:
        lines += ["Schedules: " + ", ".join(f"`{one}`" for one in framework.schedules) + ".", ""]
    if framework.optimizers:
        lines += ["Optimizers: " + ", ".join(f"`{one}`" for one in framework.optimizers) + ".", ""]
    if name in writable():
        lines += [f'Written by `closedform.write_recipe(recipe, "{name}")`.', ""]
    if framework.upstream:
        unit = framework.clock.unit.value.replace("_", "-")
        offset = f", {framework.clock.offset:+} at each update" if framework.clock.offset else ""
        lines += [f"Formulas: `{framework.upstream}`. Clock: {unit}{offset}.", ""]
    if name in paged():
        lines += [f"[Defects](frameworks/{name}.md).", ""]
    if name in CONFIGS:
        lines += ["```yaml", CONFIGS[name].rstrip("\n"), "```", ""]
    return lines


def paged() -> list[str]:
    """Returns the frameworks that have a page: those with defects."""
    names = {example.framework for example in defects()}
    for name, framework in frameworks.FRAMEWORKS.items():
        if framework.defects:
            names.add(name)
    return sorted(names)


def _documented(note: Note[...]) -> str:
    if not isinstance(note, Declared):
        return "not contradicted"
    return note.documented or "no formula: `as_implemented=False` is refused"


def _declared(framework: Framework) -> list[str]:
    """The table of the declared defects."""
    lines = ["| defect | documentation | classes | code |", "| --- | --- | --- | --- |"]
    for defect in framework.defects.values():
        classes = "all" if defect.classes is None else ", ".join(f"`{c}`" for c in defect.classes)
        where = f"{classes or 'configs'}{''.join(f', {v}' for v in defect.versions)}"
        cells = (defect.text, _documented(defect), where, f"`{defect.upstream}`")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def page() -> str:
    """Returns the text of the page."""
    found = curves()
    count = sum(len(one.names) for one in found)
    within = len({tuple(np.round(one.values[:TOTAL], 7)) for one in found})
    lines = [
        "# Frameworks",
        "",
        "The same numbers in two frameworks are not the same learning rates. This page lists the "
        "frameworks whose configs and classes are read, the ones that are written, and where each "
        "departs from its own documentation.",
        "",
        "The values of an official framework are tested beside those that its own code computed, "
        "at the commit below. A frozen one is official as well, but its repository is archived or "
        "another one has replaced it, so that its formulas stay as they are. A community framework "
        "comes with [another package](how_to_add_a_framework.md#6-in-another-package). "
        "`closedform list --frameworks` prints the table.",
        "",
        *_index(),
        "## One recipe",
        "",
        f"A cosine with peak {PEAK:g}, a warmup of {WARMUP} updates, {TOTAL} updates in all and "
        f"the minimum {LOW:g}, in the form of {count} frameworks, is {len(found)} different "
        f"curves, {within} during the run:",
        "",
        *_table(found),
        "",
        "The last two rows are updates after the end.",
        "",
        "![The curves](frameworks/one_recipe.svg)",
        "",
        "The configs are below. `closedform diff A B` compares two of them, for every update.",
        "",
        "## By framework",
        "",
    ]
    for name in sorted(frameworks.FRAMEWORKS):
        lines += _section(name)
    return "\n".join([*lines, "<!-- Written by `make frameworks`. -->", ""])


def read(defect: Defect) -> Recipe:
    """Returns the recipe of a counterexample."""
    document = document_of(defect.config, defect.suffix, f"config{defect.suffix}")
    return load_recipe(
        document, framework=defect.framework, version=defect.version, facts=defect.facts
    )


def difference(defect: Defect) -> CurveDifference:
    """Returns the difference of the expected rate and the computed one."""
    recipe = read(defect)
    found = diff(defect.expected(), recipe.schedule(), defect.until or recipe.horizon)
    return found.curves[0]


def _defect(defect: Defect) -> list[str]:
    recipe, found = read(defect), difference(defect)
    form = {".gin": "text"}.get(defect.suffix, defect.suffix.removeprefix("."))
    # Python in a page would be run: these configs belong to other packages.
    lines = [f"## {defect.heading}", "", f"```{'text' if form == 'py' else form}"]
    lines += [defect.config.rstrip("\n"), "```", ""]
    if defect.version:
        lines += [f"Version: {defect.version}.", ""]
    if defect.facts:
        facts = ", ".join(f"`{key}={value}`" for key, value in defect.facts.items())
        lines += [f"Facts: {facts}.", ""]
    first, widest = found.first_step or 0, found.at or 0
    shown = sorted({0, max(0, first - 1), first, first + 1, widest, found.until - 1})
    shown = [step for step in shown if step < found.until]
    rows = [("expected", defect.expected()), ("computed", recipe.schedule())]
    lines += [f"Expected: {defect.suggests}.", ""]
    lines += ["| update | " + " | ".join(str(step) for step in shown) + " |"]
    lines += ["| --- " * (len(shown) + 1) + "|"]
    for label, made in rows:
        values = " | ".join(f"{float(made(step)):.4g}" for step in shown)
        lines.append(f"| {label} | {values} |")
    lines += [
        "",
        f"The first update that differs is {first}; the largest difference is {found.max_gap:.4g}, "
        f"at update {widest}.",
        "",
    ]
    return lines


def framework_page(name: str) -> str:
    """Returns the text of a framework's page."""
    lines = [
        f"# {name}: defects",
        "",
        f"Where the learning rates of {name} differ from what its documentation says or a reader "
        "of the config expects. The computed values agree with the framework's code; "
        "`closedform.load_recipe` returns them, and `as_implemented=False` computes the documented "
        "formula where there is one.",
        "",
    ]
    for defect in defects():
        if defect.framework == name:
            lines += _defect(defect)
    framework = frameworks.FRAMEWORKS[name]
    if framework.defects:
        lines += ["## All known defects", "", *_declared(framework), ""]
    return "\n".join([*lines, "<!-- Written by `make frameworks`. -->", ""])


def registry_text() -> str:
    """Returns the text of the registry: the name of each folder of frameworks/."""
    folders = (source.parent.name for source in sorted(FRAMEWORKS.glob("*/__init__.py")))
    names = (
        importlib.import_module(f"closedform.frameworks.{folder}").FRAMEWORK.name
        for folder in folders
    )
    *lines, last = textwrap.wrap(" ".join(sorted(names)), 93, break_on_hyphens=False)
    texts = [*(f'    "{line} "\n' for line in lines), f'    "{last}"\n']
    begin, _, rest = REGISTRY.read_text(encoding="utf-8").partition(_TABLE)
    return begin + _TABLE + "".join(texts) + rest[rest.index(")\n") :]


def pages() -> dict[Path, str]:
    """Returns the pages that this file writes, with their texts."""
    own = {DOCS / "frameworks" / f"{name}.md": framework_page(name) for name in paged()}
    return {REGISTRY: registry_text(), PAGE: page(), FIVE_PLOT: five_curves() + "\n", **own}


def main() -> None:
    """Writes the registry, the pages and the plot."""
    REGISTRY.write_text(registry_text(), encoding="utf-8")
    importlib.reload(registry_module)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    draw(PLOT, curves())


if __name__ == "__main__":
    main()
