"""Sections of a config as annotated classes, declared once and read by both entrances.

A key is an attribute: its annotation is the type, and names the quantity; its value the default::

    class Scheduler(Section, irrelevant="last_epoch verbose"):
        learning_rate: Rate
        lr_warmup_steps: Steps = 0
        lr_decay_style: Literal["linear", "cosine"] = "linear"
        lr_decay_steps: Steps | None = integer(None, least=1)

``Scheduler.read(section)`` refuses unknown keys, checks the types, fills in the defaults and
returns a ``Scheduler``, whose attributes are exact numbers. ``load_recipe`` and
``frameworks.schedule`` read the same class, the latter by :func:`section_entries`.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeGuard,
    dataclass_transform,
    get_args,
    get_origin,
)

import sympy as sp

from closedform.errors import ConfigError, DefinitionError, nearest
from closedform.language import Schedule, exact_number
from closedform.recipes.defects import Note, check_documented
from closedform.recipes.document import Document
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.quantities import Quantity
from closedform.recipes.raw_section import RawSection, document_section


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section.

    Attributes:
        read: From the section, the name of the key and the default to the value.
        default: The value where the key is absent; ``REQUIRED`` for a key that must be given.
        inner: The sections that it holds.
        quantity: The quantity that its value is.
    """

    read: Callable[[RawSection, str, Any], Any]
    default: object = REQUIRED
    inner: tuple[type[Section], ...] = ()
    quantity: Quantity | None = None


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


def section(kind: type[Section], *, is_optional: bool = False) -> Key:
    """Returns a key that holds a section.

    Args:
        kind: The class of the section.
        is_optional: Whether an absent or empty mapping is None; otherwise an empty one is read.
    """

    def read(outer: RawSection, key: str, default: Any) -> Any:
        inner = outer.section(key)
        return None if is_optional and not inner.content else kind.read(inner)

    return Key(read, None, (kind,))


def sections(kind: type[Section]) -> Key:
    """Returns a key that holds a list of sections; an absent list is an empty one."""
    return Key(
        lambda outer, key, default: tuple(kind.read(entry) for entry in outer.sections(key)),
        None,
        (kind,),
    )


def variants(kinds: Mapping[str, type[Section]], default: str, by: str = "type") -> Any:
    """Returns a key that holds a mapping one of whose entries chooses its class, or that entry.

    Args:
        kinds: The class of each kind, which declares the entry that chooses as well.
        default: The kind of an absent mapping.
        by: The name of the entry that chooses.
    """
    # The key that chooses may itself have a default, which differs from the kind of an absent
    # section.
    absent = kinds[default].keys[by].default

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


IRRELEVANT = Key(lambda section, key, default: None, None)
"""A key that the schedules and the optimizer do not depend on; it is not read."""

_READERS: Mapping[Any, Callable[[Any], Key]] = MappingProxyType(
    {
        sp.Expr: number,
        sp.Expr | tuple[sp.Expr, ...]: number_or_numbers,
        int: integer,
        str: lambda default: Key(RawSection.text, default),
        bool: lambda default: Key(RawSection.flag, default),
        Any: lambda default: Key(RawSection.value, default),
        tuple[sp.Expr, ...]: numbers,
        tuple[int, ...]: integers,
        RawSection: lambda default: Key(lambda outer, key, default: outer.section(key), None),
    }
)
"""From the type of a key to its reader."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Section:
    """A section of a config; a subclass declares its keys.

    ``"lr" in section`` is whether the config gives the key, and not as null. The attribute of a key
    that is a keyword of Python has one underscore more at its end.

    Args:
        irrelevant: Keys that the schedules and the optimizer do not depend on, with spaces between
            them; they are not read.

    Attributes:
        origin: The section of the config, for errors with the place.
        keys: The keys by the names of their attributes.
        own_keys: The keys that the class declares, and no base of it.
        prefix: The beginning of a key in the arguments of ``frameworks.schedule``.
    """

    origin: RawSection
    keys: ClassVar[Mapping[str, Key]] = MappingProxyType({})
    own_keys: ClassVar[Mapping[str, Key]] = MappingProxyType({})
    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, *, irrelevant: str = "") -> None:
        # As in Python, the first class in the order of resolution that has a key decides.
        kinds = [kind for kind in reversed(cls.__mro__[1:]) if issubclass(kind, Section)]
        table = {name: key for kind in kinds for name, key in kind.own_keys.items()}
        hints = inspect.get_annotations(cls, eval_str=True)
        unread, members = irrelevant.split(), cls.__dict__
        defaults = {name for name, value in members.items() if isinstance(value, Key)}
        for name in (table.keys() & members.keys() | defaults) - hints.keys():
            raise DefinitionError(f"the key {name} has no annotation", where=cls.__qualname__)
        for name in hints.keys() & {*unread, *Section.__annotations__, *Section.__dict__}:
            raise DefinitionError(f"the key {name} has two meanings", where=cls.__qualname__)
        own_keys = {name: _key(hints[name], members.get(name, REQUIRED)) for name in hints}
        cls.own_keys = own_keys | dict.fromkeys(unread, IRRELEVANT)
        cls.keys = MappingProxyType(table | cls.own_keys)

    def __contains__(self, name: str) -> bool:
        return self.spell(name) in self.origin

    @classmethod
    def read(cls, origin: RawSection) -> Self:
        """Returns the values of a section.

        Raises:
            ConfigError: A key is unknown or missing, or a value has another type.
        """
        cls.check(origin)
        values = {
            name: key.read(origin, cls.spell(name), key.default) for name, key in cls.keys.items()
        }
        return cls.of(origin, values)

    @classmethod
    def read_whole(cls, document: Document) -> Self:
        """Returns the values of a whole config.

        Raises:
            ConfigError: As ``read``.
        """
        return cls.read(document_section(document))

    @classmethod
    def of(cls, origin: RawSection, values: Mapping[str, Any]) -> Self:
        """Returns the section of values that are checked."""
        section = cls.__new__(cls)
        section.__dict__.update(values, origin=origin)
        return section

    def replace(self, **values: Any) -> Self:
        """Returns the section with some values replaced.

        Raises:
            AttributeError: It has no such key.
        """
        for name in values.keys() - self.keys.keys():
            raise AttributeError(f"the section has no key {name!r}")
        return self.of(self.origin, {**self.__dict__, **values})

    def of_group(self, name: str, context: Context) -> Any:
        """Returns a value, or that of the param group where it is a list with one for each group.

        Raises:
            ConfigError: The list has another length.
            DefinitionError: There is no such param group.
        """
        value, groups = self.__dict__[name], len(context.groups)
        if not isinstance(value, tuple):
            return value
        if len(value) != groups:
            message = f"{name} must hold one value for each of {groups} param groups"
            raise self.error(f"{message}, got {len(value)}", name)
        return value[context.place_of_group]

    def require(self, name: str) -> Any:
        """Returns a value that must be given here.

        Raises:
            ConfigError: It is missing.
        """
        self.origin.value(self.spell(name), REQUIRED)
        return self.__dict__[name]

    def error(self, message: str, key: str | None = None, hint: str | None = None) -> ConfigError:
        """Returns the error of an entry, with its place; without a key, of the section."""
        return self.origin.error(message, None if key is None else self.spell(key), hint)

    @staticmethod
    def spell(name: str) -> str:
        """Returns the spelling of a key in a config."""
        return name.rstrip("_") if keyword.iskeyword(name.rstrip("_")) else name

    @classmethod
    def spellings(cls) -> tuple[str, ...]:
        """Returns the keys as a config spells them."""
        return tuple(cls.spell(name) for name in cls.keys)

    @classmethod
    def all_spellings(cls) -> set[str]:
        """Returns the keys as a config spells them, with the keys of inner mappings."""
        inner = (kind.all_spellings() for key in cls.keys.values() for kind in key.inner)
        return set(cls.spellings()).union(*inner)

    @classmethod
    def check(cls, origin: RawSection) -> None:
        """Refuses unknown keys of a section.

        Raises:
            ConfigError: A key is unknown.
        """
        origin.check(cls.spellings())


class OpenSection(Section):
    """A section that holds options of the whole training as well.

    Only unknown keys whose names concern the optimizer or its schedules are refused.
    """

    @classmethod
    def check(cls, origin: RawSection) -> None:
        """Refuses unknown keys that concern the optimizer or its schedules.

        Raises:
            ConfigError: There is such a key.
        """
        origin.check_related(cls.spellings())


class ClassSection(Section):
    """A section whose other keys are arguments of a class, which checks them."""

    @classmethod
    def check(cls, origin: RawSection) -> None:
        """Accepts every key."""


class ArgumentSection(OpenSection):
    """The flags of a command line, which are spelled as the names of the keys.

    In the arguments of ``frameworks.schedule`` they keep their two leading dashes.
    """

    prefix = "--"


class FlagSection(ArgumentSection):
    """The flags of a command line with dashes where the names of the keys have underscores."""

    @staticmethod
    def spell(name: str) -> str:
        """Returns the spelling of a flag, without its first dashes."""
        return name.replace("_", "-")


def _key(hint: Any, default: Any) -> Key:
    """Returns the key of an annotation and its default, which may be a key already."""
    is_optional = NoneType in get_args(hint)
    values = [kind for kind in get_args(hint) if kind is not NoneType]
    # Of a union of types that has no reader, the default is the key.
    kind, quantity = functools.reduce(operator.or_, values) if is_optional else hint, None
    if get_origin(kind) is Annotated:
        kind, quantity = get_args(kind)
    if get_origin(kind) is Callable:
        return where_needed(_key(get_args(kind)[1], default))
    key: Key = default if isinstance(default, Key) else _reader(kind, default, is_optional)
    return replace(key, quantity=quantity)


def _reader(kind: Any, default: Any, is_optional: bool) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return choice(*arguments, default=default)
    if origin is tuple and is_section(arguments[0]):
        return sections(arguments[0])
    if is_section(kind):
        return section(kind, is_optional=is_optional)
    return _READERS[kind](default)


def is_section(kind: Any) -> TypeGuard[type[Section]]:
    """Returns whether a value is the class of a section."""
    return isinstance(kind, type) and issubclass(kind, Section)


ScheduleOfSections = Callable[..., Schedule]
"""From the context and the values of the sections to a schedule."""


def section_entries(
    curves: Mapping[str, ScheduleOfSections],
    layout: Mapping[str, type[Section]],
    style: Callable[..., str] | None = None,
    defects: Mapping[str, Note[...]] | None = None,
) -> dict[str, ScheduleEntry]:
    """Returns the classes of ``frameworks.schedule`` whose arguments are sections of a config.

    Args:
        curves: The curves by their names.
        layout: The sections by their names, in the order in which the curves take them; ``""`` is
            the mapping of all arguments.
        style: From the values of the sections to the name of the curve that they ask for, where
            they do.
        defects: The defects of the framework, where their conditions take the arguments of the
            curves.
    """

    def build(arguments: Mapping[str, Any], context: Context) -> Schedule:
        content = {key.removeprefix("--"): value for key, value in arguments.items()}
        document, name = Document(content, context.where), context.path[-1]
        try:
            root = document_section(document)
            values = [
                kind.read(root.section(place) if place else root) for place, kind in layout.items()
            ]
            if style is not None and (style_name := style(*values)) != name:
                # The key that selects it, where it has the name as its value.
                parts = ((part, key) for part in values for key in part.keys)
                keys = (
                    f"{part.prefix}{part.spell(key)}"
                    for part, key in parts
                    if getattr(part, key, None) == style_name
                )
                raise DefinitionError(
                    f"the config must ask for {name!r}, got {style_name!r}",
                    where=context.where,
                    hint=next((f"give {key}={name!r}" for key in keys), None),
                )
            if not context.as_implemented:
                check_documented(defects or {}, context.version, context.where, *values)
            return curves[name](context, *values)
        except ConfigError as error:
            raise DefinitionError(error.what, where=error.where, hint=error.hint) from error

    names: dict[str, object] = dict.fromkeys(layout, REQUIRED)
    if "" in layout:
        names = {f"{layout[''].prefix}{key}": None for key in layout[""].spellings()}
    return {name: ScheduleEntry(name, (), parameters(**names), build) for name in curves}
