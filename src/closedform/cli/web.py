"""``closedform web``: a static page that trains in the browser."""

from __future__ import annotations

from pathlib import Path

from closedform.cli.parser import Parser, UsageError

_HELP = """\
Write a static page that trains with TRAIN in the browser.

examples:
  closedform web build/train.onnx -o site --data digits.safetensors
  closedform web lora/train.onnx -o site --text letters.txt
  closedform web lora/train.onnx -o site --text letters.txt --device webgpu
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("train", type=Path, help="train.onnx, in the same folder as init.onnx")
    command.add_argument(
        "--data", type=Path, help="the safetensors file that the page loads initially"
    )
    command.add_argument(
        "--text",
        type=Path,
        help="fine-tune a language model on a text; the UTF-8 file that the page loads initially",
    )
    command.add_argument(
        "--alphabet",
        type=Path,
        metavar="FILE",
        help="with --text: a UTF-8 file with the characters of the tokens 0, 1, …; "
        "default: tokens are bytes",
    )
    command.add_argument(
        "--device",
        choices=("wasm", "webgpu"),
        default="wasm",
        help="where the page trains: webgpu for a step that was exported with target='webgpu'; "
        "without an adapter it trains in WebAssembly",
    )
    add_page_options(command)
    return command


def add_page_options(command: Parser) -> None:
    """Declares the options of a page."""
    command.add_argument("-o", "--output", type=Path, required=True, help="the folder of the page")
    command.add_argument(
        "--packages",
        type=Path,
        help="the node_modules folder with onnxruntime-web; default: searched for upward",
    )


def run(
    *,
    train: Path,
    output: Path,
    data: Path | None,
    text: Path | None,
    alphabet: Path | None,
    packages: Path | None,
    device: str,
) -> None:
    """Writes the page."""
    if text is None:
        from closedform.web.training import write_training_page

        if alphabet is not None:
            raise UsageError("--alphabet goes with --text")
        print_page(write_training_page(train, output, data=data, packages=packages, device=device))
        return
    from closedform.web.text import read_text, write_text_page

    if data is not None:
        raise UsageError("--data and --text are for different pages: give one of them")
    letters = None if alphabet is None else read_text(alphabet)
    page = write_text_page(
        train, output, text=text, alphabet=letters, packages=packages, device=device
    )
    print_page(page)


def print_page(page: Path) -> None:
    """Prints where a page is, and how to look at it."""
    print(f"wrote {page}")
    print(f"serve it with: python -m http.server --directory {page.parent} 8000")
