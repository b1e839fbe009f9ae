"""Real configs with mutations: each is read, or refused by an error of ours, in little time.

5,000 mutants of all forms: characters removed and inserted, numbers replaced by others and by what
is not a number, lines deleted, moved and repeated, files cut. Run by ``make compare``.
"""

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes import load_recipe
from closedform.recipes.frameworks import FRAMEWORKS
from tests.reference.records import Row, corpus

COUNT = 5000
SECONDS = 20.0
"""Processor time of a mutant; a config takes some hundredths of a second."""

NUMBER = re.compile(r"(?<![\w.])-?\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?(?![\w.])")
NUMBERS = ("0", "-1", "1e400", "nan", ".inf", "1e-300", "999999999999", "0.5", "true", "null", "[]")
WORDS = ("{", "}", "[", "]", ":", "&a", "*a", "!!python/object/apply:os.system", "${X}", "'", "\\")


def mutated(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    index = rng.randrange(len(lines) or 1)
    match rng.randrange(8):
        case 0:
            return text[: rng.randrange(len(text) + 1)]
        case 1:
            at = rng.randrange(len(text) + 1)
            return text[:at] + rng.choice(WORDS) + text[at:]
        case 2:
            at = rng.randrange(len(text) or 1)
            return text[:at] + text[at + 1 :]
        case 3:
            return "".join(lines[:index] + lines[index + 1 :])
        case 4:
            return "".join([*lines, lines[index] if lines else ""])
        case 5:
            rng.shuffle(lines)
            return "".join(lines)
    found = list(NUMBER.finditer(text))
    if not found:
        return text + text
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(NUMBERS) + text[one.end() :]


def attempt(row: Row, text: str, folder: Path, *, is_named: bool) -> str:
    """The outcome of a mutant: the kind of error, or "read"."""
    framework, _, name = row["file"].partition("/")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    facts = row.get("expected", {}).get("facts", {})
    try:
        recipe = load_recipe(path, framework if is_named else None, facts=facts)
        for index in range(len(recipe.param_groups)):
            recipe.schedule("lr", index)(0)
        recipe.optimizer()
    except ClosedFormError as error:
        return type(error).__name__
    return "read"


def test_mutants_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(18)
    rows = [
        row
        for row in corpus()
        if getattr(FRAMEWORKS.get(row["file"].partition("/")[0]), "reader", None) is not None
    ]
    outcomes: Counter[str] = Counter()
    crashes = []
    for number in range(COUNT):
        row = rng.choice(rows)
        text = row["text"]
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = mutated(text, rng)
        begin = time.process_time()
        try:
            outcomes[attempt(row, text, tmp_path, is_named=number % 4 != 0)] += 1
        except Exception as error:
            crashes.append(f"{row['file']}: {type(error).__name__}: {error!s:.200}\n{text[:3000]}")
        taken = time.process_time() - begin
        if taken > SECONDS:
            crashes.append(f"{row['file']}: {taken:.0f} s\n{text[:3000]}")
    print(outcomes)
    if crashes:
        pytest.fail(f"{len(crashes)} of {COUNT}:\n" + "\n---\n".join(crashes[:20]))
