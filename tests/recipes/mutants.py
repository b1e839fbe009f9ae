"""Configs of the corpus with errors: other values, lines and characters."""

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.reference.records import Row, corpus

VALUES = (
    *("null", "-1", "0", "1e400", "1e308", "-0.5", '"x"', "[]", "{}", "[1, 2]", "true", ".nan"),
    *("99999999999999999999", "0.1", "1e-400", "{a: 1}", "'é'", "3", "1000000000", "[[1]]", "~"),
    *("None", 'float("inf")', '"1e-3"', "dict(a=1)", "True", "(1,)", "-3"),
)
TOKEN = re.compile(r"[-+]?\d[\d_.eE+-]*|'[^']*'|\w+")
FACTS = {
    "total_updates": 1000,
    "updates_per_epoch": 50,
    "dataset_size": 10_000,
    "global_batch_size": 64,
}


# Configs of frameworks that the corpus does not have.
OTHERS: tuple[Row, ...] = (
    {
        "file": "ultralytics/train.yaml",
        "text": "epochs: 20\nbatch: 16\noptimizer: SGD\nlr0: 0.01\nlrf: 0.1\ncos_lr: True\n"
        "momentum: 0.9\nweight_decay: 0.0005\nwarmup_epochs: 2.0\nwarmup_bias_lr: 0.1\nnbs: 64\n",
    },
    {
        "file": "ultralytics/auto.yaml",
        "text": "epochs: 3\nbatch: 8\noptimizer: auto\nlr0: 0.01\nlrf: 0.01\nnc: 80\n",
    },
    {
        "file": "paddle/resnet.yaml",
        "text": "Global:\n  epochs: 12\nOptimizer:\n  name: Momentum\n  momentum: 0.9\n  lr:\n"
        "    name: Cosine\n    learning_rate: 0.4\n    warmup_epoch: 5\n    by_epoch: False\n"
        "  regularizer:\n    name: 'L2'\n    coeff: 0.0001\n",
    },
    {
        "file": "paddle/steps.yaml",
        "text": "Global: {epochs: 12}\nOptimizer:\n  name: AdamW\n  beta1: 0.9\n  clip_norm: 10\n"
        "  no_weight_decay_name: norm bias\n  lr:\n    name: Piecewise\n"
        "    decay_epochs: [3, 6, 9]\n    values: [0.1, 0.01, 0.001, 0.0001]\n",
    },
)


class Mutant(NamedTuple):
    """A changed config, with the facts of the original."""

    file: str
    text: str
    facts: Row


def mutants(count: int, seed: int) -> Iterator[Mutant]:
    """Yields changed configs, from as many frameworks as there are in turn."""
    rows = [*corpus(), *OTHERS]
    names = sorted({row["file"].partition("/")[0] for row in rows})
    groups = [[row for row in rows if row["file"].startswith(f"{name}/")] for name in names]
    for index in range(count):
        drawn = random.Random(seed + index)
        row = drawn.choice(groups[index % len(groups)])
        facts = row["expected"]["facts"] if "expected" in row else FACTS
        yield Mutant(row["file"], changed(row["text"], drawn), facts)


def changed(text: str, drawn: random.Random) -> str:
    """Returns a text with one to three changes."""
    lines = text.split("\n")
    for _ in range(drawn.choice((1, 1, 1, 2, 3))):
        if not lines:
            break
        place = drawn.randrange(len(lines))
        line, kind = lines[place], drawn.random()
        if kind < 0.55:
            tokens = list(TOKEN.finditer(line))
            if tokens:
                one = drawn.choice(tokens)
                lines[place] = line[: one.start()] + drawn.choice(VALUES) + line[one.end() :]
        elif kind < 0.7:
            del lines[place]
        elif kind < 0.8:
            lines.insert(place, drawn.choice(lines))
        elif kind < 0.9 and line:
            at = drawn.randrange(len(line))
            character = drawn.choice("()[]{}:,=\"'% @&*!#\t")
            lines[place] = line[:at] + character + line[at + drawn.choice((0, 1)) :]
        else:
            lines[place] = line[: drawn.randrange(len(line) + 1)]
    return "\n".join(lines)
