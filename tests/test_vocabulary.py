"""The vocabulary of code, tests and docs: standard terms instead of private ones.

Identifiers are split into words, so that ``KeptStep`` and ``kept_step`` both contain "kept".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for pattern in (
        *(f"{folder}/**/*.py" for folder in ("src", "tests", "examples", "benchmarks", "tools")),
        *("docs/**/*.md", "benchmarks/*.md", "*.md"),
    )
    for path in ROOT.glob(pattern)
)


@dataclass(frozen=True, slots=True)
class Term:
    """A pattern of the private vocabulary.

    Attributes:
        pattern: A regular expression for the text with identifiers split into words.
        instead: The standard terms.
        allowed: A regular expression for ordinary uses, or None.
    """

    pattern: str
    instead: str
    allowed: str | None = None


TERMS = (
    Term("houses?|streets?|doors?", "architecture, package, layer"),
    Term("rooms?", "package, layer", r"(leaves?|much|more|no|has) room|room (for|to)\b"),
    Term("lanes?|crews?", "worker, worker pool"),
    Term("pieces?", "tile, segment or branch"),
    Term("kept", "captured, stored, unchanged", r"(is|are|be) kept"),
    Term("opened", "with_inputs, unbound", r"(file|session|store|is) opened|opened (with|by|in)"),
    Term(
        "divided",
        "partial sums, partitioned",
        r"divided (by|in|before)|divided out|(be|is|are) divided",
    ),
    Term("courses?", "trajectory, trend"),
    Term("ladders?", "escalation"),
    Term("waves", "trigonometry"),
    Term("held", "safe operand, stored", r"(is|are|be|value) held|held (at|by|in|out)"),
    Term("dialects?", "frameworks"),
    Term("(as|is|are) shipped", "as implemented", r"renamed keywords\(.*as shipped="),
    Term(r"(is|are|be) no\b", "is not a", r"there (is|are) no|(is|are|be) no (longer|more|less)"),
    Term("(is|are) told", "is reported"),
)

# The files that define, test or list deprecated names and words, and the flags of recorded values.
ALIASES = {
    "CHANGELOG.md",
    "tools/theorems.py",
    "src/closedform/__init__.py",
    "src/closedform/deprecation.py",
    "tests/test_architecture.py",
    "tests/test_names.py",
    "tests/test_vocabulary.py",
}


def words(text: str) -> str:
    """The text in lower case, with identifiers split at underscores and capitals."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


@cache
def words_of(path: Path) -> str:
    return words(path.read_text(encoding="utf-8"))


def uses(term: Term, text: str) -> Iterator[int]:
    """The lines of a text of words on which a term is used in its private meaning."""
    pattern = re.compile(rf"\b({term.pattern})\b")
    if not pattern.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        ordinary = [m.span() for m in re.finditer(term.allowed, line)] if term.allowed else []
        for found in pattern.finditer(line):
            if not any(start <= found.start() and found.end() <= end for start, end in ordinary):
                yield number


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.pattern)
def test_no_private_vocabulary(term: Term) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        if path.relative_to(ROOT).as_posix() not in ALIASES
        for number in uses(term, words_of(path))
    ]
    assert not found, f"say {term.instead}: " + ", ".join(found)


CLAUSE = re.compile(r'(^\s*r?"""|# )(What|Which|Whatever)\b', re.MULTILINE)


def test_descriptions_begin_with_a_noun_or_a_verb() -> None:
    """No docstring or comment that begins with a clause: "What a pass returns"."""
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        for path in FILES
        if path.suffix == ".py" and path.name != "test_vocabulary.py"
        for text in [path.read_text(encoding="utf-8")]
        for match in CLAUSE.finditer(text)
    ]
    assert not found, "name the thing: " + ", ".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class KeptStep:\n    pass", [1]),
        ("x = 1\nkept_step = 2", [2]),
        ("keptness", []),
    ],
)
def test_identifiers_are_split(text: str, expected: list[int]) -> None:
    assert list(uses(Term("kept", ""), words(text))) == expected


def test_ordinary_uses_are_allowed() -> None:
    term = Term("divided", "", r"divided by")
    assert list(uses(term, "it is divided by two\nthe divided sums")) == [2]
