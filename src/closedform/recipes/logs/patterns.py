"""Patterns on lines of text: ``step {step} .* lr {lr}``, matched in time linear in the line.

A pattern is text in which four things have a meaning: ``{name}`` is a number, ``.*`` is anything,
a blank is any number of blanks, at least one, and ``{{`` is a brace. Nothing else is special, so
that a part of a line can be pasted unchanged. Unlike in a regular expression, each stretch between
two ``.*`` matches in one way from a given place, and the first place counts, so that nothing is
tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from closedform.errors import ArgumentError

LONGEST_PATTERN = 1000
LONGEST_LINE = 20_000
"""Characters of a line beyond which it is cut."""

# Bounded: a number that is tried from each place of a line takes no more than this.
_NUMBER = re.compile(
    r"[ \t]{0,60}+([+-]?(?:\d[\d,_]{0,60}+\.?\d{0,60}+|\.\d{1,60}+)(?:[eE][+-]?\d{1,4}+)?)"
)
_BLANKS = re.compile(r"\s++")
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,40})\}")
_COLORS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")

TQDM = "tqdm"

PRESETS: Mapping[str, tuple[str, ...]] = {
    "nanochat": ("step {step}/{total} .*| lrm: {lrm}",),
    "megatron": (
        "iteration {step}/{total} .*| learning rate: {lr}",
        "iteration {step}/{total} .* lr: {lr}",
    ),
    "torchtitan": ("step: {step} .* lr: {lr}",),
    "mmengine": (
        "Epoch(train) [{epoch}][{batch}/{batches}] .* lr: {lr}",
        "Iter(train) [{step}/{total}] .* lr: {lr}",
        "Epoch [{epoch}][{batch}/{batches}] .*lr: {lr}",
        "Iter [{step}/{total}] .*lr: {lr}",
    ),
    "fairseq": (
        "num_updates={step}, lr={lr}",
        '"num_updates": "{step}", "lr": "{lr}"',
        '"train_num_updates": "{step}", "train_lr": "{lr}"',
    ),
    "deepspeed": ("step={step}, skipped={skipped}, lr=[{lr}",),
    "transformers": (
        "{{'.*'learning_rate': {lr}, .*'epoch': {epoch}",
        "{{'.*'learning_rate': '{lr}', .*'epoch': '{epoch}'",
    ),
    TQDM: (
        "poch {epoch}: .*| {batch}/{batches} [.* lr={lr}",
        "poch {epoch}/{epochs}: .*| {batch}/{batches} [.* lr={lr}",
        "| {step}/{total} [.* lr={lr}",
    ),
}
"""Name of a program -> the patterns of its lines.

Sources: nanochat's base_train.py (``lrm`` is the multiplier of all rates), Megatron-LM's
``training_log``, torchtitan's ``MetricsProcessor`` with the rate among the extra metrics,
mmengine's ``LogProcessor`` and the text logger of mmcv 1, fairseq's ``simple`` and ``json``
progress bars, DeepSpeed's report of progress, the dictionaries that transformers' Trainer prints,
bars of tqdm with the rate behind them, with an epoch before them where Lightning draws them.
"""

OFFSETS: Mapping[str, int] = {"mmengine": 1, "torchtitan": 1, "transformers": 1}
"""Name of a program -> the step that it prints with the rate of update 0; 0 if not listed.

Megatron, fairseq and DeepSpeed read the rate after the scheduler has stepped: it is that of the
next update.
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern on lines.

    Attributes:
        text: The pattern as it is written.
        stretches: The stretches between two ``.*``, each a sequence of literals, blanks (None) and
            fields, as ``(name,)``.
    """

    text: str
    stretches: tuple[tuple[str | tuple[str] | None, ...], ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the numbers, in order."""
        return tuple(
            part[0] for stretch in self.stretches for part in stretch if isinstance(part, tuple)
        )

    def match(self, line: str) -> dict[str, str] | None:
        """Returns the numbers of a line by the names of their fields; None if it does not match."""
        text = _COLORS.sub("", line[:LONGEST_LINE])
        numbers: dict[str, str] = {}
        place = 0
        for stretch in self.stretches:
            end = _find(stretch, text, place, numbers)
            if end is None:
                return None
            place = end
        return numbers


def parse_pattern(text: str) -> Pattern:
    """Returns the pattern that a text denotes.

    Raises:
        ArgumentError: It is too long, has a brace without a name, or lacks a field.

    Example:
        >>> pattern = parse_pattern("step {step} .* lr {lr}")
        >>> pattern.match("[0] step   7 loss 3.1 lr 2.5e-4 (ok)")
        {'step': '7', 'lr': '2.5e-4'}
    """
    where = f"pattern {text[:80]!r}"
    if len(text) > LONGEST_PATTERN:
        raise ArgumentError(
            f"a pattern must have at most {LONGEST_PATTERN} characters, got {len(text)}",
            where=where,
        )
    stretches = tuple(
        tuple(_parts(stretch, where)) for stretch in re.split(r"\s*\.\*", text.strip()) if stretch
    )
    pattern = Pattern(text, stretches)
    names = set(pattern.fields)
    if not names & {"lr", "lrm"} or not names & {"step", "epoch"}:
        raise ArgumentError(
            "a pattern must have a count and a rate, got "
            + (", ".join(f"{{{name}}}" for name in pattern.fields) or "no field"),
            where=where,
            hint="write 'step {step} .* lr {lr}'; {epoch} and {lrm}, a multiplier, may stand there",
        )
    return pattern


def patterns_of(name: str) -> tuple[Pattern, ...]:
    """Returns the patterns of a program, or the one that a text denotes.

    Raises:
        ArgumentError: It is neither the name of a program nor a pattern.
    """
    if name in PRESETS:
        return tuple(map(parse_pattern, PRESETS[name]))
    if "{" not in name:
        raise ArgumentError(
            f"{name!r} is neither a pattern nor one of {', '.join(PRESETS)}",
            hint="write 'step {step} .* lr {lr}'",
        )
    return (parse_pattern(name),)


def updates_of(numbers: Mapping[str, str]) -> dict[str, str]:
    """Returns the numbers of a line with its count of updates as ``step``.

    DeepSpeed counts updates that its loss scaler skips, for which the scheduler waits. A batch
    counts within its epoch, of which ``batches`` is the length.

    Example:
        >>> updates_of({"step": "30", "skipped": "2"})["step"]
        '28'
    """
    counts = [numbers.get(name, "") for name in ("step", "skipped")]
    # 18 digits: the counts stay below 2^63.
    if all(count.isdecimal() and len(count) < 19 for count in counts):
        return {**numbers, "step": str(int(counts[0]) - int(counts[1]))}
    if "batch" in numbers:
        return {**numbers, "step": numbers["batch"]}
    return dict(numbers)


def _parts(stretch: str, where: str) -> Iterator[str | tuple[str] | None]:
    place = 0
    literal = ""
    while place < len(stretch):
        field = _FIELD.match(stretch, place)
        blanks = _BLANKS.match(stretch, place)
        if field is None and blanks is None:
            character = stretch[place]
            if character in "{}":
                if stretch[place : place + 2] != 2 * character:
                    raise ArgumentError(
                        f"{stretch[place : place + 20]!r} is not a field",
                        where=where,
                        hint="write {step} or {lr}, and {{ for a brace",
                    )
                place += 1
            literal += character
            place += 1
            continue
        if literal:
            yield literal
            literal = ""
        if field is not None:
            yield (field[1],)
            place = field.end()
        elif blanks is not None:
            yield None
            place = blanks.end()
    if literal:
        yield literal


def _find(
    stretch: tuple[str | tuple[str] | None, ...], text: str, place: int, numbers: dict[str, str]
) -> int | None:
    """The end of the first match of a stretch from a place on; its numbers are added."""
    first = stretch[0]
    while place <= len(text):
        if isinstance(first, str):
            place = text.find(first, place)
            if place < 0:
                return None
        elif first is None:
            blank = _BLANKS.search(text, place)
            if blank is None:
                return None
            place = blank.start()
        stretch_numbers: dict[str, str] = {}
        end = _match_at(stretch, text, place, stretch_numbers)
        if end is not None:
            numbers |= stretch_numbers
            return end
        place = place + 1 if first is not None else _after_blanks(text, place)
    return None


def _after_blanks(text: str, place: int) -> int:
    blank = _BLANKS.match(text, place)
    return place + 1 if blank is None else blank.end()


def _match_at(
    stretch: tuple[str | tuple[str] | None, ...], text: str, place: int, numbers: dict[str, str]
) -> int | None:
    for part in stretch:
        if isinstance(part, str):
            if not text.startswith(part, place):
                return None
            place += len(part)
            continue
        match = (_BLANKS if part is None else _NUMBER).match(text, place)
        if match is None:
            # A blank before a number that is padded with blanks, as in "[  50/1000]".
            if part is None and place > 0 and text[place - 1].isspace():
                continue
            return None
        place = match.end()
        if part is not None:
            number = match[1].replace(",", "").replace("_", "")
            if part[0] in numbers and numbers[part[0]] != number:
                return None
            numbers[part[0]] = number
            if match[1].endswith((",", "_")):
                place -= len(match[1]) - len(match[1].rstrip(",_"))
    return place
