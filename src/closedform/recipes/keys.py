"""The keys of a config: their types and defaults, declared once and read by both entrances.

A section of a config is a :class:`Keys`, a mapping from the names of its keys to :class:`Key`::

    SCHEDULER = Keys(
        learning_rate=number(),
        lr_warmup_steps=integer(0),
        lr_decay_style=choice("linear", "cosine", default="linear"),
    )

``SCHEDULER.read(section)`` refuses unknown keys, checks the types, fills in the defaults and
returns :class:`Values`, whose attributes are exact numbers: ``values.lr_warmup_steps``.
``load_recipe`` and ``frameworks.schedule`` read the same declaration, the latter by
:func:`section_entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from closedform.errors import ConfigError, nearest
from closedform.language import exact_number
from closedform.recipes.document import Document
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.entries import REQUIRED
from closedform.recipes.quantities import Quantity
from closedform.recipes.raw_section import RawSection, document_section


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section.

    Attributes:
        read: From the section, the name of the key and the default to the value.
        default: The value where the key is absent; ``REQUIRED`` for a key that must be given.
        inner: The keys of the mappings that it holds.
        quantity: The quantity that its value is.
    """

    read: Callable[[RawSection, str, Any], Any]
    default: object = REQUIRED
    inner: tuple[Declaration, ...] = ()
    quantity: Quantity | None = None


class Declaration(Protocol):
    """The keys of a section, or its class."""

    def read(self, origin: RawSection) -> Any:
        """Returns the values of a section."""

    def all_spellings(self) -> set[str]:
        """Returns the keys as a config spells them, with the keys of inner mappings."""

    def default_of(self, name: str) -> object:
        """Returns the default of a key."""


def read_by(read: Callable[[RawSection, str, Any], Any], default: object = REQUIRED) -> Any:
    """Returns a key that a function reads."""
    return Key(read, default)


def number(default: object = REQUIRED) -> Any:
    """Returns a key that holds a finite number, read exactly."""

    def read(section: RawSection, key: str, value: Any) -> Any:
        result = section.number(key, value)
        return result if result is None else exact_number(result)

    return Key(read, default)


def integer(
    default: object = REQUIRED, *, least: int | None = None, may_be_open: bool = False
) -> Any:
    """Returns a key that holds an integer.

    Args:
        default: Its value where the key is absent.
        least: Its smallest value.
        may_be_open: Whether a value that the file does not determine counts as absent, because the
            reader has a fact for it.
    """

    def read(section: RawSection, key: str, value: Any) -> Any:
        if may_be_open and isinstance(section.content.get(key), Unresolved):
            return value
        count = section.integer(key, value)
        if least is not None and count is not None and count < least:
            raise section.error(f"{key} must be at least {least}, got {count}", key)
        return count

    return Key(read, default)


def text(default: object = REQUIRED) -> Any:
    """Returns a key that holds a text."""
    return Key(RawSection.text, default)


def flag(default: object = REQUIRED) -> Any:
    """Returns a key that holds a boolean."""
    return Key(RawSection.flag, default)


def numbers(default: object = REQUIRED) -> Any:
    """Returns a key that holds a tuple of finite numbers, read exactly."""

    def read(section: RawSection, key: str, value: Any) -> Any:
        items = section.numbers(key, value)
        return items if items is None else tuple(exact_number(item) for item in items)

    return Key(read, default)


def number_or_numbers(default: object = REQUIRED) -> Any:
    """Returns a key that holds a number, or a tuple of them: one for each param group."""

    def read(section: RawSection, key: str, value: Any) -> Any:
        is_list = isinstance(section.value(key), list | tuple)
        return (numbers() if is_list else number(value)).read(section, key, value)

    return Key(read, default)


def integers(default: object = REQUIRED) -> Any:
    """Returns a key that holds a tuple of integers."""

    def read(section: RawSection, key: str, value: Any) -> Any:
        items = section.numbers(key, value)
        if items is not None and any(item != int(item) for item in items):
            raise section.error(f"{key} must hold integers, got {list(items)!r:.60}", key)
        return items if items is None else tuple(int(item) for item in items)

    return Key(read, default)


def choice(*names: str, default: object = REQUIRED) -> Any:
    """Returns a key that holds one of a few names."""

    def read(section: RawSection, key: str, value: Any) -> Any:
        name = section.text(key, value)
        if name is not None and name not in names:
            raise section.error(f"there is no {key} {name!r:.60}", key, nearest(name, names))
        return name

    return Key(read, default)


def anything(default: object = None) -> Any:
    """Returns a key whose value its user checks."""
    return Key(RawSection.value, default)


def irrelevant() -> Any:
    """Returns a key that the schedules and the optimizer do not depend on; it is not read."""
    return Key(lambda section, key, default: None, None)


def mapping() -> Any:
    """Returns a key that holds a mapping whose entries its user checks, as a section."""
    return Key(lambda outer, key, default: outer.section(key), None)


def nullable(key: Key) -> Any:
    """Returns a key that is None, not its default, where the config has null."""

    def read(section: RawSection, name: str, value: Any) -> Any:
        is_null = name in section.content and section.content[name] is None
        return None if is_null else key.read(section, name, value)

    return Key(read, key.default, key.inner)


def where_needed(key: Key) -> Key:
    """Returns a key whose value is a function without arguments, which reads it when called.

    A value that the file does not determine is refused only by that call.
    """
    return replace(
        key,
        read=lambda section, name, default: lambda: key.read(section, name, key.default),
        default=None,
    )


def section(keys: Declaration, *, is_optional: bool = False) -> Key:
    """Returns a key that holds a mapping with keys.

    Args:
        keys: The keys.
        is_optional: Whether an absent or empty mapping is None; otherwise an empty one is read.
    """

    def read(outer: RawSection, key: str, default: Any) -> Any:
        inner = outer.section(key)
        return None if is_optional and not inner.content else keys.read(inner)

    return Key(read, None, (keys,))


def sections(keys: Declaration) -> Key:
    """Returns a key that holds a list of mappings with keys; an absent list is an empty one."""
    return Key(
        lambda outer, key, default: tuple(keys.read(entry) for entry in outer.sections(key)),
        None,
        (keys,),
    )


def variants(kinds: Mapping[str, Declaration], default: str, by: str = "type") -> Any:
    """Returns a key that holds a mapping one of whose entries chooses its keys, or that entry.

    Args:
        kinds: The keys of each kind, which declare the entry that chooses as well.
        default: The kind of an absent mapping.
        by: The name of the entry that chooses.
    """
    # The key that chooses may itself have a default, which differs from the kind of an absent
    # section.
    absent = kinds[default].default_of(by)

    def read(outer: RawSection, key: str, value: Any) -> Any:
        entry = outer.value(key, value)
        is_kind = isinstance(entry, str)
        place = (
            RawSection(outer.document, {by: entry}, outer.at(key))
            if is_kind
            else outer.section(key)
        )
        kind = place.text(by, absent)
        if kind not in kinds:
            message = f"there is no {key} {kind!r:.60}"
            raise outer.error(message, key, nearest(kind, kinds))
        return kinds[kind].read(place)

    return Key(read, default, tuple(kinds.values()))


class Values:
    """The values of a section, as attributes by the names of their keys.

    ``"lr" in values`` is whether the config gives the key, and not as None.

    Args:
        origin: The section that they were read from, for errors with the place.
        entries: The values, defaults filled in.
        spell: From the name of a key to its spelling in the config.
    """

    def __init__(
        self, origin: RawSection, entries: Mapping[str, Any], spell: Callable[[str], str] = str
    ) -> None:
        self.origin = origin
        self._entries = entries
        self._spell = spell

    def __getattr__(self, name: str) -> Any:
        try:
            return self._entries[name]
        except KeyError:
            # AttributeError, not KeyError: hasattr and copy rely on it.
            raise AttributeError(f"the section has no key {name!r}") from None

    def __contains__(self, name: str) -> bool:
        return self._spell(name) in self.origin

    def replace(self, **entries: Any) -> Values:
        """Returns the values with some replaced."""
        return Values(self.origin, {**self._entries, **entries}, self._spell)

    def require(self, name: str) -> Any:
        """Returns a value that must be given here.

        Raises:
            ConfigError: It is missing.
        """
        self.origin.value(self._spell(name), REQUIRED)
        return self._entries[name]

    def error(self, message: str, key: str | None = None, hint: str | None = None) -> ConfigError:
        """Returns the error of an entry, with its place; without a key, of the section."""
        return self.origin.error(message, None if key is None else self._spell(key), hint)


class Keys(Mapping[str, Key]):
    """The keys of a section.

    Args:
        **keys: The keys by their names.
    """

    prefix = ""

    def __init__(self, **keys: Key) -> None:
        self._keys = keys

    def __getitem__(self, name: str) -> Key:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @staticmethod
    def spell(name: str) -> str:
        """Returns the spelling of a key in a config: its name."""
        return name

    def default_of(self, name: str) -> object:
        """Returns the default of a key."""
        return self[name].default

    def spellings(self) -> tuple[str, ...]:
        """Returns the keys as a config spells them."""
        return tuple(self.spell(name) for name in self)

    def all_spellings(self) -> set[str]:
        """Returns the keys as a config spells them, with the keys of inner mappings."""
        inner = (keys.all_spellings() for key in self.values() for keys in key.inner)
        return set(self.spellings()).union(*inner)

    def check(self, origin: RawSection) -> None:
        """Refuses unknown keys of a section.

        Raises:
            ConfigError: A key is unknown.
        """
        origin.check(self.spellings())

    def read(self, origin: RawSection) -> Values:
        """Returns the values of a section.

        Raises:
            ConfigError: A key is unknown or missing, or a value has another type.
        """
        self.check(origin)
        entries = {
            name: key.read(origin, self.spell(name), key.default) for name, key in self.items()
        }
        return Values(origin, entries, self.spell)

    def read_whole(self, document: Document) -> Values:
        """Returns the values of a whole config.

        Raises:
            ConfigError: As ``read``.
        """
        return self.read(document_section(document))


class OpenKeys(Keys):
    """The keys of a section that holds options of the whole training as well.

    Only unknown keys whose names concern the optimizer or its schedules are refused.
    """

    def check(self, origin: RawSection) -> None:
        """Refuses unknown keys that concern the optimizer or its schedules.

        Raises:
            ConfigError: There is such a key.
        """
        origin.check_related(self.spellings())


class ClassKeys(Keys):
    """The keys of a section whose other keys are arguments of a class, which checks them."""

    def check(self, origin: RawSection) -> None:
        """Accepts every key."""


class ArgumentKeys(OpenKeys):
    """The flags of a command line, which are spelled as the names of the keys.

    In the arguments of ``frameworks.schedule`` they keep their two leading dashes.
    """

    prefix = "--"


class FlagKeys(ArgumentKeys):
    """The flags of a command line with dashes where the names of the keys have underscores."""

    @staticmethod
    def spell(name: str) -> str:
        """Returns the spelling of a flag, without its first dashes."""
        return name.replace("_", "-")
