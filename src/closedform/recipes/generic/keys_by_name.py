"""The keys of a config by their concepts: candidates, and a choice among them or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, ConfigError, UnknownNameError, nearest
from closedform.language import exact_number
from closedform.language.config_names import (
    CLASS_KEYS,
    CONCEPTS,
    LISTS,
    NAMES,
    TEXTS,
    KeyUnit,
    Meaning,
    family,
    fits,
    plain,
)
from closedform.recipes.document import Document, entries
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved
from closedform.recipes.raw_section import RELATED, RawSection

_NEAR = frozenset({"weight_decay", "optimizer", "betas", "beta1", "beta2", "eps", "momentum"})
"""Concepts of the optimizer, of which the key in the section nearest to the rate counts."""
_OF_DECAY = re.compile(
    r"(^|_)(decay|anneal|annealing|cooldown|restart|schedule|scheduler|sched|constant|stable|hold)"
    r"|(^|_)(warm|warmup|ramp|rampup|burn_?in)(_|$)"
    r"|(^|_)(min|minimum|final|end|last|floor)_.*(lr|rate)|(lr|rate)_(min|final|end|last|floor)"
)
"""Names that speak of a decay or a warmup: a curve that leaves such a key out is another one."""
_OF_OTHERS = re.compile(
    r"(^|[._])(weight|weights|wd|ema|average|momentum|entropy|eps|epsilon|beta|tau|teacher|l2|noise)"
    r"([._]|$)",
    re.IGNORECASE,
)
"""Names of what decays besides the rate."""
_OFF = frozenset({"", "0", "0.0", "-1", "false", "none", "null"})
"""Texts of a value that switches an option off."""
UNUSED = "unused"
"""The choice for a key that has no effect in its program."""
BETWEEN = ("linear", "step")
"""The ways between the rows of a table."""
_OF_OPTIMIZER = frozenset({"betas", "beta1", "beta2", "eps", "momentum"})
"""Concepts that no schedule depends on: where several keys can be one, a note says so."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a config, with its place.

    Attributes:
        path: Its path.
        value: The value.
        kind: Its unit.
        is_weak: Whether it counts only where no stronger name is.
    """

    path: str
    value: Any
    kind: KeyUnit = KeyUnit.VALUE
    is_weak: bool = False

    def __str__(self) -> str:
        return f"{self.path} = {self.value!r:.40}"


@dataclass
class Book:
    """The entries of a config, with a record of the entries that were read.

    Attributes:
        document: The config.
        paths: The places, or literals, that the user chose by concept.
        notes: Statements on the values that were read or assumed, by concept.
        paths_read: The paths that were read.
    """

    document: Document
    paths: Mapping[str, str]
    notes: dict[str, str] = field(default_factory=dict)
    paths_read: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.values = {path: value for path, _, value in entries(self.document.content)}
        for concept, choice in self.paths.items():
            if choice == UNUSED and any(map(self._is_below(concept), self.values)):
                continue
            if concept not in CONCEPTS:
                raise UnknownNameError(
                    f"there is no concept {concept!r}", hint=nearest(concept, CONCEPTS)
                )

    def within_block(self, path: str) -> bool:
        """Returns whether a path is within a block that is read by its class."""
        return any(
            path == block or path.startswith((f"{block}.", f"{block}[")) for block in self.blocks
        )

    def candidates(self, concept: str) -> list[Entry]:
        """Returns the entries whose names are of a concept; weak ones if there are no others."""
        result = []
        for path, value in self.values.items():
            if value is None or isinstance(value, Mapping | ConfigCall) or self.within_block(path):
                continue
            if self._is_unused(path):
                continue
            meaning = self._meaning(concept, path, value)
            if meaning is None or not (isinstance(value, Unresolved) or fits(concept, value)):
                continue
            # -1 and 0 commonly stand for no limit.
            if concept == "total" and not isinstance(value, Unresolved) and _number(value) <= 0:
                continue
            result.append(Entry(path, value, meaning.kind, meaning.is_weak))
        strong = [entry for entry in result if not entry.is_weak]
        return strong or result

    def _meaning(self, concept: str, path: str, value: Any) -> Meaning | None:
        outer, _, name = path.rpartition(".")
        meanings = NAMES.get(plain(name), ())
        if concept in TEXTS and plain(name) in (plain(key) for key in CLASS_KEYS) and outer:
            meanings = NAMES.get(
                plain(outer.partition("[")[0] if outer.endswith("]") else outer), ()
            )
        return next((meaning for meaning in meanings if meaning.concept == concept), None)

    def is_named(self, concept: str, path: str) -> bool:
        """Returns whether the name of a key is of a concept."""
        return self._meaning(concept, path, None) is not None

    def choose(self, concept: str) -> Entry | None:
        """Returns the entry of a concept; None where there is none.

        Raises:
            ConfigError: Several entries can be it.
            UnknownNameError: The path that the user chose is not in the config.
        """
        if concept in self.paths:
            return self._use(concept, self._entry_of_choice(concept, self.paths[concept]))
        candidates = self.candidates(concept)
        if len(candidates) > 1:  # an argument of a class is not the length of the run as well
            candidates = [
                entry for entry in candidates if entry.path not in self.paths_read
            ] or candidates
        if len(candidates) > 1 and concept in _NEAR:
            # Configs of GANs and of several models have an optimizer section for each.
            candidates = self._nearest(candidates)
        if len(candidates) > 1 and concept not in ("lr", "decay"):
            first = candidates[0]
            if all((entry.value, entry.kind) == (first.value, first.kind) for entry in candidates):
                self.notes[f"{concept}-twice"] = (
                    f"{' and '.join(entry.path for entry in candidates)} agree: the first was read"
                )
                candidates = candidates[:1]
        if len(candidates) > 1 and concept in _OF_OPTIMIZER:
            names = ", ".join(map(str, candidates[:6]))
            self.notes[concept] = f"{names} can be {CONCEPTS[concept]}: none was read"
            return None
        if len(candidates) > 1:
            raise self.ambiguous(concept, candidates)
        return self._use(concept, candidates[0]) if candidates else None

    def ambiguous(self, concept: str, candidates: list[Entry]) -> ConfigError:
        """Returns the error of several entries for a concept."""
        names = ", ".join(map(str, candidates[:6]))
        return ConfigError(
            f"{len(candidates)} keys can be {CONCEPTS[concept]}: {names}",
            where=self.document.source,
            hint=f"choose one: paths={{{concept!r}: {candidates[0].path!r}}}",
        )

    def missing(self, concept: str, why: str, example: str) -> ConfigError:
        """Returns the error of a concept that no key has; one of another type is named."""
        for path, value in self.values.items():
            is_candidate = value is not None and self._meaning(concept, path, value) is not None
            if (
                is_candidate
                and not isinstance(value, Mapping | ConfigCall)
                and not fits(concept, value)
            ):
                why += f"; {path} = {value!r:.40} is of another type"
                break
        return ConfigError(
            f"the key of {concept} is missing ({CONCEPTS[concept]}): {why}",
            where=self.document.source,
            hint=f"name its path or value: paths={{{concept!r}: {example!r}}}",
        )

    def _entry_of_choice(self, concept: str, choice: str) -> Entry:
        text = str(choice)
        if text in self.values:
            value = self.values[text]
            name = plain(text)
            meaning = next((m for m in NAMES.get(name, ()) if m.concept == concept), None)
            return Entry(text, value, KeyUnit.OPEN if meaning is None else meaning.kind)
        literal = _literal(concept, text)
        if literal is None:
            raise UnknownNameError(
                f"{concept} is neither a path of the config nor a value, got {text!r}",
                where=self.document.source,
                hint=nearest(text, self.values),
            )
        return Entry("", literal, KeyUnit.OPEN)

    def _use(self, concept: str, entry: Entry) -> Entry:
        self.paths_read.add(entry.path)
        value = entry.value
        if isinstance(value, Unresolved):
            raise ConfigError(
                f"{entry.path} is needed, but the file does not determine it: {value.text!r}",
                where=self.document.source,
                hint=f"write its value into the file, or paths={{{concept!r}: '1'}}",
            )
        place = entry.path or "the choice"
        unit = "" if entry.kind is KeyUnit.VALUE else f", in {entry.kind}"
        if entry.kind in (KeyUnit.RUN, KeyUnit.RATIO):
            unit = f", a {entry.kind}"
        if entry.kind is KeyUnit.OPEN:
            unit = ""
        text = f"{value!r:.60}" if not isinstance(value, Mapping | ConfigCall) else "a block"
        self.notes[concept] = f"{place} = {text} was read as {CONCEPTS[concept]}{unit}"
        return entry

    def _nearest(self, candidates: list[Entry]) -> list[Entry]:
        """The entries that share most of their path with the rate."""
        rate = self.paths.get("lr") or next(
            (path for path in self.paths_read if plain(path) in NAMES), ""
        )
        section = rate.rpartition(".")[0]
        shares = [
            (_common_parts(entry.path, rate), entry.path.rpartition(".")[0] == section)
            for entry in candidates
        ]
        return [
            entry for entry, share in zip(candidates, shares, strict=True) if share == max(shares)
        ]

    def number(self, entry: Entry) -> sp.Expr:
        """Returns the number of an entry, exactly.

        Raises:
            ConfigError: It is not a finite number.
        """
        name = entry.path or "value"
        section = RawSection(self.document, {name: entry.value})
        return exact_number(section.number(name))

    @staticmethod
    def _is_below(place: str) -> Callable[[str], bool]:
        return lambda path: path == place or path.startswith((f"{place}.", f"{place}["))

    def _is_unused(self, path: str) -> bool:
        """Whether the user has said that a key has no effect."""
        places = (place for place, choice in self.paths.items() if choice == UNUSED)
        return any(self._is_below(place)(path) for place in places)

    def check_unread(self) -> None:
        """Refuses keys that speak of a decay or a warmup and that were not read.

        Raises:
            ConfigError: There is one, which the user did not call unused.
        """
        # Options of a family with steps stand in many files whose family is another one.
        steps = self.candidates("step_size") + self.candidates("milestones")
        factors = self.candidates("gamma")
        other_keys = {entry.path for entry in steps + factors} if steps and factors else set()
        keys: dict[str, Any] = {}
        for path, value in self.values.items():
            outer = path.partition("[")[0]
            name = plain(outer)
            is_decay = _OF_DECAY.search(name) and not _OF_OTHERS.search(outer)
            is_off = isinstance(value, bool) or str(value).strip().lower() in _OFF
            is_off = is_off or (name.endswith(("freq", "frequency")) and value == 1)
            is_container = isinstance(value, Mapping | ConfigCall | Reference | list | tuple)
            if (
                is_decay
                and not (is_off or is_container or self.within_block(path))
                and self.paths_read.isdisjoint((path, outer))
                and not other_keys & {path, outer}
                and not self._is_unused(path)
                # A choice of the user answers the keys of its concept.
                and not any(self.is_named(concept, path) for concept in self.paths)
            ):
                keys.setdefault(outer, self.values.get(outer, value))
        if keys:
            texts = ", ".join(f"{path} = {value!r:.60}" for path, value in list(keys.items())[:6])
            raise ConfigError(
                f"keys that speak of a decay or a warmup were not understood: {texts}",
                where=self.document.source,
                hint="name the concept of each, as in paths={'min_lr': '1e-5'}, or say that it has "
                f"no effect: paths={{{next(iter(keys))!r}: 'unused'}}",
            )

    def unread(self) -> list[str]:
        """Returns the paths whose names concern a schedule, and that were not read."""
        return [
            path
            for path, value in self.values.items()
            if path not in self.paths_read
            and not self.within_block(path)
            and not isinstance(value, Mapping | ConfigCall | Reference | list | tuple)
            and value is not None
            and (RELATED.search(path.rpartition(".")[2]) or plain(path) in NAMES)
        ]


def _number(value: Any) -> float:
    return float(str(value).replace("_", ""))


def _literal(concept: str, text: str) -> Any:
    """The value that a choice states, None if it does not state a value of the concept."""
    if concept == "unit":
        return text if text in ("update", "epoch") else None
    if concept == "between":
        return text if text in BETWEEN else None
    if concept == "decay":
        return text if family(text) is not None else None
    if concept == "optimizer":
        return text if text.isidentifier() else None
    items = [item for item in text.strip("[]() ").split(",") if item.strip()]
    if concept in LISTS:
        return items if items and all(fits("lr", item) for item in items) else None
    return text if fits("lr", text) else None


def _common_parts(path: str, base: str) -> int:
    count = 0
    for left, right in zip(path.split("."), base.split("."), strict=False):
        if left != right:
            break
        count += 1
    return count


def at(document: Document, message: str, path: str, hint: str | None = None) -> ArgumentError:
    """Returns an error of a value of a config that is an argument."""
    return ArgumentError(message, where=document.place(path), hint=hint)
