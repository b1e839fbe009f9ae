"""The frameworks that come near a config that no framework recognizes, by their declared keys.

A framework takes part by its declarations: the sections of its modules, and the arguments of its
classes. A key that few frameworks have says more than one that many have.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from closedform.errors import ConfigError
from closedform.language.config_names import NAMES
from closedform.recipes.document import Document, entries
from closedform.recipes.documents.values import ConfigCall
from closedform.recipes.framework import Framework
from closedform.recipes.raw_section import RELATED
from closedform.recipes.registry import FRAMEWORKS
from closedform.recipes.section import is_section

_MOST_KEYS = 12
_MOST_FRAMEWORKS = 3


@dataclass(frozen=True, slots=True)
class Near:
    """A framework that has some of the keys of a config.

    Attributes:
        name: The framework.
        known_keys: The names of the config's keys that it has.
        unknown_keys: The names that it does not have, which speak against it.
    """

    name: str
    known_keys: tuple[str, ...]
    unknown_keys: tuple[str, ...]

    def __str__(self) -> str:
        has = f"{self.name} (has {_enumerate(self.known_keys, 4)}"
        return f"{has}; not {_enumerate(self.unknown_keys, 4)})" if self.unknown_keys else f"{has})"


def keys_of_schedule(document: Document) -> dict[str, str]:
    """Returns the paths of the keys whose names concern a schedule, and these names."""
    result = {}
    for path, name, value in entries(document.content):
        if isinstance(value, Mapping | ConfigCall) or not name:
            continue
        last = name.rpartition(".")[2]
        # The length of a run decides a schedule as well.
        is_length = any(meaning.concept == "total" for meaning in NAMES.get(_plain(last), ()))
        if is_length or RELATED.search(last):
            result[path] = last
    return result


def declared_names(framework: Framework, module: str) -> set[str]:
    """Returns the names of the keys and arguments that a framework declares.

    Args:
        framework: The framework.
        module: Its module, whose own modules below it count as well.
    """
    modules = {module}
    if framework.reader is not None:
        modules.add(framework.reader.read.__module__)
    names: set[str] = set()
    # The keys are module constants; a framework's modules are loaded when its declaration is.
    for label, loaded_module in sorted(sys.modules.items()):
        if label in modules or label.startswith(f"{module}."):
            for value in vars(loaded_module).values():
                if is_section(value):
                    names |= value.all_spellings()
    tables = [entry.parameters for entry in framework.schedules.values()]
    tables += [entry.parameters for entry in framework.optimizers.values()]
    names |= {parameter.name for table in tables for parameter in table}
    return {_plain(name) for name in names}


def near_frameworks(document: Document) -> list[Near]:
    """Returns the frameworks that have most of a config's keys, the nearest first."""
    keys = dict.fromkeys(keys_of_schedule(document).values())
    readable = {name: entry for name, entry in FRAMEWORKS.items() if entry.reader is not None}
    names_of = {
        name: declared_names(entry, FRAMEWORKS.module(name)) for name, entry in readable.items()
    }
    # A key counts 1 / n if n frameworks have it: rare keys identify a framework.
    counts = Counter(key for names in names_of.values() for key in keys if _plain(key) in names)
    scores = {
        name: sum(1 / counts[key] for key in keys if _plain(key) in names)
        for name, names in names_of.items()
    }
    # Among programs that share a reader, the general one goes first.
    general = {name: e.reader is not None and e.reader.is_general for name, e in readable.items()}
    best = sorted(
        (name for name in scores if scores[name]),
        key=lambda name: (-scores[name], not general[name], name),
    )
    return [
        Near(
            name,
            tuple(key for key in keys if _plain(key) in names_of[name]),
            tuple(key for key in keys if _plain(key) not in names_of[name]),
        )
        for name in best[:_MOST_FRAMEWORKS]
    ]


def unrecognized_error(document: Document, reads: Callable[[str], bool]) -> ConfigError:
    """Returns the error of a config that no framework recognizes: its keys, and what to do.

    Args:
        document: The config.
        reads: Whether a framework reads it without an error.
    """
    keys = keys_of_schedule(document)
    near = near_frameworks(document)
    ways = ["framework='generic' reads the keys by their names"] if keys else []
    if near:
        text = f"near are {', '.join(map(str, near))}"
        reading = next((entry.name for entry in near if reads(entry.name)), None)
        if reading is None:
            ways.append(text)
        else:
            ways.insert(0, f"{text}: framework={reading!r} reads it so")
    functions = _functions(document)
    if functions:
        calls = ", ".join(f"{document.source}:{name}" for name in functions[:3])
        ways.append(f"a function of the file is a schedule as well: {calls}")
    if not ways:
        readable = (name for name, entry in FRAMEWORKS.items() if entry.reader is not None)
        ways.append(f"name it, as in framework='cerebras'; there are {', '.join(readable)}")
    return ConfigError(
        f"the framework of the config is not recognized; {describe_keys(document)}",
        where=document.source,
        hint="; ".join(ways),
    )


def describe_keys(document: Document) -> str:
    """Returns the clause of an error with the keys of a config that are of a schedule."""
    keys = tuple(keys_of_schedule(document))
    if keys:
        return f"of a schedule it has {_enumerate(keys, _MOST_KEYS)}"
    top = tuple(str(key) for key in document.content)
    return f"no key is of a schedule: it has {_enumerate(top, _MOST_KEYS) if top else 'none'}"


def _functions(document: Document) -> list[str]:
    """The public functions at the top of a Python file that take an argument."""
    if document.python is None:
        return []
    return [
        node.name
        for node in document.python.tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and (node.args.args or node.args.posonlyargs)
    ]


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _enumerate(names: tuple[str, ...], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
