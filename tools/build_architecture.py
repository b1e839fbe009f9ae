"""Draws docs/architecture.svg: the packages of src/closedform by layer, and what each imports.

``make docs`` runs it. A package is shown with the first line of its docstring; a frame holds
those that import each other. A line leads down from a frame to one whose names it imports, if
no other line leads there through a frame between the two: the rest follows from these.
"""

from __future__ import annotations

import ast
import html
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence

import networkx as nx

from tests.support.import_graph import LAYERS, PACKAGE, graph_of_sources
from tools.sections import DOCS

FILE = DOCS / "architecture.svg"
WIDTH, MARGIN, GAP = 1080, 12, 14
LINE, PADDING, BETWEEN = 13, 8, 34
LETTER = 5.6
"""The mean width of a letter at 10.5 pixels."""
WIDEST = 400
BASE = "errors"
"""The lowest layer is shown as one: its files are those that every package may use."""
BASE_SENTENCE = "files of one concept each, used everywhere"


def sentence(name: str) -> str:
    """Returns what a package or file holds: the first line of its docstring."""
    folder = PACKAGE / name / "__init__.py"
    path = folder if folder.exists() else PACKAGE / f"{name}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".").replace("``", "")


def rows() -> list[list[list[tuple[str, str]]]]:
    """Returns the layers from the highest: frames of packages, each with its sentence."""
    frames: dict[int, dict[str, list[tuple[str, str]]]] = defaultdict(dict)
    for name, layer in LAYERS.items():
        if layer.group == LAYERS[BASE].group:
            frames[0] = {layer.group: [(layer.group.replace(" ", ", "), BASE_SENTENCE)]}
        else:
            frames[layer.height].setdefault(layer.group, []).append((name, sentence(name)))
    return [list(frames[height].values()) for height in sorted(frames, reverse=True)]


def edges() -> list[tuple[str, str]]:
    """Returns the imports between frames, without those that follow from two others."""
    frames = nx.DiGraph()
    for importer, imported in graph_of_sources().edges:
        upper, lower = (
            LAYERS[module.split(".")[1] if "." in module else "__init__"].group
            for module in (importer, imported)
        )
        if upper != lower:
            frames.add_edge(upper, lower)
    return sorted(nx.transitive_reduction(frames).edges)


def draw() -> str:
    """Returns the picture as the text of an SVG file."""
    boxes: dict[str, tuple[float, float, float, float]] = {}
    shapes: list[str] = []
    top = float(MARGIN)
    for row in rows():
        count = sum(len(frame) for frame in row)
        free = WIDTH - 2 * MARGIN - GAP * (len(row) - 1)
        width = min(free / count, WIDEST if "," not in row[0][0][0] else free)
        texts = {
            name: textwrap.wrap(words, int((width - 2 * PADDING) / LETTER))
            for frame in row
            for name, words in frame
        }
        height = 2 * PADDING + LINE * (1 + max(map(len, texts.values())))
        left = (WIDTH - count * width - GAP * (len(row) - 1)) / 2
        for frame in row:
            group = LAYERS[frame[0][0].split(",")[0]].group
            boxes[group] = (left, top, len(frame) * width, height)
            shapes.append(_rectangle(*boxes[group]))
            for name, _ in frame:
                shapes.append(_package(left + PADDING, top + PADDING, name, texts[name]))
                left += width
            left += GAP
        top += height + BETWEEN
    starts = _ports(boxes, edges())
    ends = _ports(boxes, [(lower, upper) for upper, lower in edges()])
    lines = [
        _line(
            (starts[upper, lower], boxes[upper][1] + boxes[upper][3]),
            (ends[lower, upper], boxes[lower][1]),
        )
        for upper, lower in edges()
    ]
    bottom = top - BETWEEN + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom:.0f}" '
            'role="img" aria-label="The packages by layer, and their imports" '
            'font-family="sans-serif" font-size="10.5" fill="#1f2a30">',
            f'<rect width="{WIDTH}" height="{bottom:.0f}" fill="#ffffff"/>',
            *lines,
            *shapes,
            "</svg>\n",
        ]
    )


def _rectangle(left: float, top: float, width: float, height: float) -> str:
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" '
        'fill="#eef4f6" stroke="#2b6073"/>'
    )


def _package(left: float, top: float, name: str, texts: list[str]) -> str:
    lines = "".join(
        f'<tspan x="{left:.0f}" dy="{LINE}">{html.escape(text)}</tspan>' for text in texts
    )
    title = f'<tspan x="{left:.0f}" font-weight="bold" font-size="12">{html.escape(name)}</tspan>'
    return f'<text y="{top + LINE - 2:.0f}">{title}{lines}</text>'


def _ports(
    boxes: Mapping[str, tuple[float, float, float, float]], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Returns where each pair leaves its first box: from left to right as the second ones stand."""
    others: dict[str, list[str]] = defaultdict(list)
    for box, other in pairs:
        others[box].append(other)
    places = {}
    for box, names in others.items():
        names.sort(key=lambda name: boxes[name][0] + boxes[name][2] / 2)
        for index, name in enumerate(names):
            places[box, name] = boxes[box][0] + boxes[box][2] * (index + 1) / (len(names) + 1)
    return places


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve; it is dashed where it passes behind the boxes of another layer."""
    middle = (start[1] + end[1]) / 2
    dashes = ' stroke-dasharray="4 3"' if end[1] - start[1] > BETWEEN else ""
    return (
        f'<path d="M{start[0]:.0f} {start[1]:.0f}C{start[0]:.0f} {middle:.0f} '
        f'{end[0]:.0f} {middle:.0f} {end[0]:.0f} {end[1]:.0f}" '
        f'fill="none" stroke="#5f8391" stroke-width="1.3"{dashes}/>'
    )


def main() -> None:
    """Writes the picture."""
    FILE.write_text(draw(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
