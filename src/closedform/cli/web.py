"""``closedform web``: a static page that trains in the browser."""

from __future__ import annotations

from pathlib import Path

from closedform.cli.arguments import folder_option, packages_option
from closedform.cli.parser import UsageError, argument, command, option

HELP = """\
Write a static page that trains with TRAIN in the browser.

examples:
  closedform web build/train.onnx -o site --data digits.safetensors
  closedform web lora/train.onnx -o site --text letters.txt
  closedform web lora/train.onnx -o site --text letters.txt --device webgpu
"""


@command
class Options:
    """The options of ``closedform web``."""

    train: Path = argument("train.onnx, in the same folder as init.onnx", type=Path)
    data: Path | None = option("the safetensors file that the page loads initially", type=Path)
    text: Path | None = option(
        "fine-tune a language model on a text; the UTF-8 file that the page loads initially",
        type=Path,
    )
    alphabet: Path | None = option(
        "with --text: a UTF-8 file with the characters of the tokens 0, 1, …; "
        "default: tokens are bytes",
        type=Path,
        metavar="FILE",
    )
    device: str = option(
        "where the page trains: webgpu for a step that was exported with target='webgpu'; "
        "without an adapter it trains in WebAssembly",
        choices=("wasm", "webgpu"),
        default="wasm",
    )
    output: Path = folder_option()
    packages: Path | None = packages_option()


def run(options: Options) -> None:
    """Writes the page."""
    if options.text is None:
        from closedform.web.training import write_training_page

        if options.alphabet is not None:
            raise UsageError("--alphabet goes with --text")
        print_page(
            write_training_page(
                options.train,
                options.output,
                data=options.data,
                packages=options.packages,
                device=options.device,
            )
        )
        return
    from closedform.web.text import read_text, write_text_page

    if options.data is not None:
        raise UsageError("--data and --text are for different pages: give one of them")
    letters = None if options.alphabet is None else read_text(options.alphabet)
    page = write_text_page(
        options.train,
        options.output,
        text=options.text,
        alphabet=letters,
        packages=options.packages,
        device=options.device,
    )
    print_page(page)


def print_page(page: Path) -> None:
    """Prints where a page is, and how to look at it."""
    print(f"wrote {page}")
    print(f"serve it with: python -m http.server --directory {page.parent} 8000")
