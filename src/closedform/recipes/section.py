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

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeGuard,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import sympy as sp

from closedform.errors import ConfigError, DefinitionError
from closedform.language import Schedule
from closedform.recipes import keys
from closedform.recipes.defects import Defect, check_documented
from closedform.recipes.document import Document
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.keys import Key, Keys
from closedform.recipes.raw_section import RawSection, document_section

_READERS: Mapping[Any, Callable[[Any], Key]] = MappingProxyType(
    {
        sp.Expr: keys.number,
        sp.Expr | tuple[sp.Expr, ...]: keys.number_or_numbers,
        int: keys.integer,
        str: keys.text,
        bool: keys.flag,
        Any: keys.anything,
        tuple[sp.Expr, ...]: keys.numbers,
        tuple[int, ...]: keys.integers,
        RawSection: lambda default: keys.mapping(),
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
        prefix: The beginning of a key in the arguments of ``frameworks.schedule``.
    """

    origin: RawSection
    keys: ClassVar[Mapping[str, Key]] = MappingProxyType({})
    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, *, irrelevant: str = "") -> None:
        # As in Python, the first base that has a key decides.
        inherited = [base.keys for base in reversed(cls.__bases__) if issubclass(base, Section)]
        hints = inspect.get_annotations(cls, eval_str=True)
        cls.keys = MappingProxyType(
            {
                **{name: key for table in inherited for name, key in table.items()},
                **{name: _key(hints[name], cls.__dict__.get(name, REQUIRED)) for name in hints},
                **dict.fromkeys(irrelevant.split(), keys.irrelevant()),
            }
        )

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
        return cls._of(origin, values)

    @classmethod
    def read_whole(cls, document: Document) -> Self:
        """Returns the values of a whole config.

        Raises:
            ConfigError: As ``read``.
        """
        return cls.read(document_section(document))

    @classmethod
    def _of(cls, origin: RawSection, values: Mapping[str, Any]) -> Self:
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
        return self._of(self.origin, {**self.__dict__, **values})

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
        return name[:-1] if keyword.iskeyword(name[:-1]) else name

    @classmethod
    def spellings(cls) -> tuple[str, ...]:
        """Returns the keys as a config spells them."""
        return tuple(cls.spell(name) for name in cls.keys)

    @classmethod
    def default_of(cls, name: str) -> object:
        """Returns the default of a key."""
        return cls.keys[name].default

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
    is_union = get_origin(hint) in (Union, UnionType)
    options = get_args(hint) if is_union else (hint,)
    kind, quantity = next(option for option in options if option is not NoneType), None
    if get_origin(kind) is Annotated:
        kind, quantity = get_args(kind)
    if get_origin(kind) is Callable:
        return keys.where_needed(_key(get_args(kind)[1], default))
    key = default if isinstance(default, Key) else _reader(kind, default, NoneType in options)
    return replace(key, quantity=quantity)


def _reader(kind: Any, default: Any, is_optional: bool) -> Key:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return cast(Key, keys.choice(*arguments, default=default))
    if origin is tuple and is_section(arguments[0]):
        return keys.sections(arguments[0])
    return (
        keys.section(kind, is_optional=is_optional) if is_section(kind) else _READERS[kind](default)
    )


def is_section(kind: Any) -> TypeGuard[type[Section]]:
    """Returns whether a value is the class of a section."""
    return isinstance(kind, type) and issubclass(kind, Section)


ScheduleOfSections = Callable[..., Schedule]
"""From the context and the values of the sections to a schedule."""


def section_entries(
    curves: Mapping[str, ScheduleOfSections],
    layout: Mapping[str, Keys | type[Section]],
    style: Callable[..., str] | None = None,
    defects: Mapping[str, Defect] | None = None,
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
                keys.read(root.section(place) if place else root) for place, keys in layout.items()
            ]
            if style is not None and style(*values) != name:
                raise DefinitionError(
                    f"the config must ask for {name!r}, got {style(*values)!r}", where=context.where
                )
            if not context.as_implemented:
                check_documented(defects or {}, context.version, context.where, *values)
            return curves[name](context, *values)
        except ConfigError as error:
            raise DefinitionError(error.what, where=error.where, hint=error.hint) from error

    names: dict[str, object] = dict.fromkeys(layout, REQUIRED)
    if "" in layout:
        kind = layout[""]
        names = {f"{kind.prefix}{spelling}": None for spelling in kind.spellings()}
    return {name: ScheduleEntry(name, (), parameters(**names), build) for name in curves}
