"""``closedform web`` and ``closedform gallery``: static pages that run graphs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Packages = Annotated[
    Path | None,
    typer.Option(
        help="The node_modules folder with onnxruntime-web; default: searched for upward."
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The folder of the page.")]


def web(
    train: Annotated[Path, typer.Argument(help="train.onnx, in the same folder as init.onnx.")],
    output: Output,
    data: Annotated[
        Path | None, typer.Option(help="The safetensors file that the page loads initially.")
    ] = None,
    packages: Packages = None,
) -> None:
    """Write a static page that trains with TRAIN in the browser.

    closedform web build/train.onnx -o site --data digits.safetensors
    """
    from closedform.web.training import write_training_page

    _print_page(write_training_page(train, output, data=data, packages=packages))


def gallery(output: Output, packages: Packages = None) -> None:
    """Write a static page with every schedule, its curve computed by its ONNX graph."""
    from closedform.web.gallery import write_gallery

    _print_page(write_gallery(output, packages=packages))


def _print_page(page: Path) -> None:
    print(f"wrote {page}")
    print(f"serve it with: python -m http.server --directory {page.parent} 8000")
