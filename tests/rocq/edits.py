"""Edits of the text of a proof: a number, an operator, a relation or a hypothesis is changed."""

import random
import re
from collections.abc import Callable, Iterator

Edit = Callable[[str, random.Random], str]


def _with_change(pattern: str, change: Callable[[str, random.Random], str]) -> Edit:
    def edit(line: str, chance: random.Random) -> str:
        matches = list(re.finditer(pattern, line))
        if not matches:
            return line
        match = chance.choice(matches)
        return line[: match.start()] + change(match[0], chance) + line[match.end() :]

    return edit


def _without_a_hypothesis(line: str, chance: random.Random) -> str:
    if not line.startswith("Lemma steps : ") or " -> " not in line:
        return line
    parts = line.split(" -> ")
    dropped = chance.randrange(len(parts) - 1)
    parts = [part for place, part in enumerate(parts) if place != dropped]
    text = " -> ".join(parts)
    return text if text.startswith("Lemma steps : ") else f"Lemma steps : {text}"


def _another(*texts: str) -> Callable[[str, random.Random], str]:
    return lambda text, chance: chance.choice([new for new in texts if new != text])


EDITS: dict[str, Edit] = {
    "a number": _with_change(
        r"(?<![\w.])\d+(?![\w.])", lambda text, chance: str(int(text) + chance.choice((1, 2, 5)))
    ),
    "an operator": _with_change(r" [-+*/] ", _another(" + ", " * ", " - ")),
    "a bound": _with_change(
        r"Some \((?:-?\d+|\(-\d+\)) # \d+\)",
        _another("Some (1 # 3)", "Some (0 # 1)", "Some (-1 # 1)"),
    ),
    "a relation": _with_change(r" (?:<=|<|=|<>) ", _another(" < ", " <= ")),
    "a fact": _with_change(
        r"\bf\d+\b", lambda text, chance: f"f{int(text[1:]) + chance.choice((-1, 1, 2))}"
    ),
    "a hypothesis": _without_a_hypothesis,
}


def edited_texts(text: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yields the kind of an edit, and the text with one line edited so; comments are left."""
    chance = random.Random(seed)
    lines = text.split("\n")
    start = next(place for place, line in enumerate(lines) if line.startswith("Section Proof."))
    while count:
        kind = chance.choice(sorted(EDITS))
        place = chance.randrange(start, len(lines))
        line = EDITS[kind](lines[place], chance)
        if line != lines[place]:
            count -= 1
            yield kind, "\n".join((*lines[:place], line, *lines[place + 1 :]))
