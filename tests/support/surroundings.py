"""A program whose output depends on nothing but the library: files, verdicts and a recipe.

``python surroundings.py FOLDER`` writes files into a folder that exists, and prints a line with a
digest for each result. tests/test_surroundings.py runs it in several environments.
"""

import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import closedform as cf
from closedform.cli.application import run

COMMANDS = (
    ("list",),
    ("show", "torch:OneCycleLR", "--max-lr", "0.1", "--total-steps", "1000"),
    ("show", "--help"),
    ("plot", "cosine", "--start", "3e-4", "--end", "0", "--steps", "100"),
)
CONFIG = """\
learning_rate: 0.001
lr_scheduler_type: cosine
warmup_steps: 10
max_steps: 100
optim: adamw_torch
weight_decay: 0.1
"""


class _Terminal(io.StringIO):
    encoding = "utf-8"


def output_of(words: tuple[str, ...]) -> str:
    """The output of a command, and its exit code."""
    with (
        contextlib.redirect_stdout(_Terminal()) as out,
        contextlib.redirect_stderr(_Terminal()) as err,
    ):
        code = run(list(words))
    return f"{out.getvalue()}\n{err.getvalue()}\n{code}"


def results(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The names and the bytes of the results."""
    lr = cf.schedules.linear(0, 3e-4, 200).then(cf.schedules.cosine(3e-4, 3e-5, 9_800))
    cf.to_onnx(lr, str(folder / "lr.onnx"))
    cf.to_onnx(cf.optimizers.adamw(), str(folder / "adamw"), params={"w": (2, 3)})
    for path in (folder / "lr.onnx", folder / "adamw/init.onnx", folder / "adamw/step.onnx"):
        yield path.name, path.read_bytes()
    yield "C", cf.to_c(lr).encode()
    rows = [f"{row.claim.sentence}: {row.verdict.status}" for row in lr.verify().findings]
    yield "claims", "\n".join(rows).encode()
    config = folder / "config.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    recipe = cf.load_recipe(str(config), "transformers")
    yield "recipe", f"{recipe}\n{recipe.schedule()(50)!r}".encode()
    for words in COMMANDS:
        yield f"closedform {' '.join(words)}", output_of(words).encode()


def main(folder: Path) -> None:
    """Prints the digest and the size of each result."""
    for name, content in results(folder):
        print(hashlib.sha256(content).hexdigest()[:16], len(content), name)


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    main(Path(sys.argv[1]))
