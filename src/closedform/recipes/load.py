"""The recipe of a training config, whichever framework it is written for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    ConfigError,
    MissingFactsError,
    UnknownNameError,
)
from closedform.language import Schedule, exact_number
from closedform.recipes.clock import CHECKED, Facts
from closedform.recipes.document import Document, FileSource, entries, join_path, read_document
from closedform.recipes.framework import Framework, Tier
from closedform.recipes.inheritance import merge_files
from closedform.recipes.raw_section import RELATED, entry_name, key_name
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Recipe
from closedform.recipes.registry import FRAMEWORKS, known_version, unknown_framework

_GENERAL = ("transformers",)
"""Frameworks that others build on: a config with keys of both is of the other framework."""
_INCLUDES: Mapping[str, tuple[str, ...]] = {
    "gpt-neox": ("deepspeed", "ms-swift"),
    "ms-swift": ("megatron",),
    "nemo": ("ms-swift",),
    "slime": ("megatron",),
    "verl": ("nemo",),
}
"""Framework -> the frameworks whose keys its configs have as well: it precedes them."""
GENERIC = "generic"
"""The framework of configs of no known framework, which are read by the names of their keys."""
AGREEMENT = 1e-6
"""The relative difference that a fact may have from the config: float32 rounds by up to 6e-8."""


def load_recipe(
    source: str | PathLike[str] | Mapping[str, Any] | Document,
    framework: str | None = None,
    version: str | None = None,
    facts: Mapping[str, Any] | Facts | None = None,
    as_implemented: bool = True,
    files: FileSource | None = None,
    paths: Mapping[str, str] | None = None,
) -> Recipe:
    """Returns the recipe of a config.

    Args:
        source: The path of a YAML, JSON, TOML, Python, gin or command-line file, by its ending, or
            a mapping, which is not changed. Nothing in it is run.
        framework: The framework that it is written for; found by its content if not given;
            ``"generic"`` for none that is known: its keys are read by their names, and
            ``recipe.notes`` lists what was read and assumed.
        version: A version of the framework, where its semantics changed; the newest if not given.
        facts: Numbers of the run that the config does not contain, by the names of
            :class:`~closedform.recipes.clock.Facts` or of the framework.
        as_implemented: True for what the framework computes, defects included and named in
            ``recipe.notes``; False for its documented formula. A config that departs from a
            documentation without a formula is refused then.
        files: The files that the config inherits from, includes or names: a directory, or texts by
            their paths. See :func:`~closedform.recipes.inheritance.merge_files`. Without it, a
            DeepSpeed config that TrainingArguments name is looked for in the config's folder.
        paths: For ``"generic"``, the path in the config, or the value, of concepts whose keys have
            other names, or several of which have one: ``{"lr": "train.optim.lr"}``.

    Raises:
        ConfigError: The file cannot be read, its framework is not clear, a class, key or argument
            near the optimizer is unknown, a value is not valid, or a fact contradicts the config.
        DefinitionError: ``as_implemented=False``, and there is no documented formula.
        MissingFactsError: Facts are missing; the message lists all of them.
        ArgumentError: A fact is unknown.
        UnknownNameError: There is no such framework or version.

    Example:
        >>> recipe = load_recipe(
        ...     {
        ...         "trainer": {
        ...             "init": {
        ...                 "optimizer": {"AdamW": {"weight_decay": 0.1}},
        ...                 "schedulers": [
        ...                     {
        ...                         "LinearLR": {
        ...                             "initial_learning_rate": 0.0,
        ...                             "end_learning_rate": 1e-3,
        ...                             "total_iters": 10,
        ...                         }
        ...                     }
        ...                 ],
        ...                 "loop": {"max_steps": 100},
        ...             }
        ...         }
        ...     }
        ... )
        >>> recipe.optimizer().name, recipe.schedule("lr").exact(5), recipe.horizon
        ('adamw', 1/2000, 100)
    """
    document = read_document(source)
    if files is not None:
        document = merge_files(document, files)
    if paths is not None and framework != GENERIC:
        raise ArgumentError(
            f"paths are for framework='generic', got {framework!r}", hint="leave them out"
        )
    declaration, reader = _reader(document, framework, paths)
    guessed_by = () if framework is not None else deciding_keys(document, reader.matches)
    run_facts = facts if isinstance(facts, Facts) else Facts.of(facts or {}, declaration.facts)
    reading = Reading(
        document,
        run_facts,
        known_version(declaration, version),
        framework or declaration.name,
        as_implemented,
        declaration.defects,
        declaration.clock,
    )
    try:
        recipe = replace(
            reader.read(reading), facts=run_facts, document=document, guessed_by=guessed_by
        )
        _check_used(document, framework)
    except MissingFactsError:
        _check_used(document, framework)
        raise
    except ConfigError as error:
        if framework is not None:
            raise
        explanation = (
            f"the config was taken for {declaration.name} by {', '.join(guessed_by[:4])}; "
            "framework='generic' reads the keys by their names"
        )
        hint = explanation if error.hint is None else f"{error.hint}; {explanation}"
        raise type(error)(error.what, where=error.where, hint=hint) from error
    # A formula divides by a number of the config, or converts it: the framework fails there, too.
    except ArithmeticError as error:
        raise ConfigError(
            f"the numbers of the config have no schedule ({type(error).__name__}: {error})",
            where=document.source,
            hint="look for a length of 0 and for numbers that are too large",
        ) from error
    _check_facts(recipe, run_facts, document)
    return recipe if run_facts.group is None else recipe.with_default_group(run_facts.group)


def load_schedules(
    source: str | PathLike[str] | Mapping[str, Any],
) -> tuple[dict[str, Schedule], int | None]:
    """Returns the learning rate and other values that change by key, and the number of updates.

    Raises:
        ConfigError: As ``load_recipe``.
    """
    recipe = load_recipe(source)
    return recipe.changing_schedules, recipe.horizon


def readable() -> tuple[str, ...]:
    """Returns the frameworks whose configs can be read.

    Example:
        >>> "cerebras" in readable()
        True
    """
    return tuple(name for name, declaration in FRAMEWORKS.items() if declaration.reader is not None)


def _reader(
    document: Document, framework: str | None, paths: Mapping[str, str] | None = None
) -> tuple[Framework, Reader]:
    """The framework and its reader: the one that is named, or the only one that matches."""
    if framework == GENERIC:
        from closedform.recipes.generic.reader import framework_of

        return framework_of(paths)
    if framework is not None:
        if framework not in FRAMEWORKS:
            raise unknown_framework(framework, [*FRAMEWORKS, GENERIC])
        reader = FRAMEWORKS[framework].reader
        if reader is None:
            raise UnknownNameError(
                f"configs of {framework} are not read",
                hint=f"there are readers for {', '.join(readable())}; framework='generic' reads "
                "other configs by the names of their keys",
            )
        return FRAMEWORKS[framework], reader
    matching = {
        name: declaration.reader
        for name, declaration in FRAMEWORKS.items()
        if declaration.reader is not None and declaration.reader.matches(document)
    }
    # A general reader, such as of TrainingArguments, matches configs of the programs that extend
    # it.
    special = {name: reader for name, reader in matching.items() if not reader.is_general}
    matching = special or matching
    later = {label for name in matching for label in _INCLUDES.get(name, ())}
    if len(matching) > 1:
        matching = {k: v for k, v in matching.items() if k not in {*_GENERAL, *later}}
    # Frameworks that share a reader read the config in the same way: the first one names it.
    if len({id(reader) for reader in matching.values()}) == 1:
        name = next(iter(matching))
        return FRAMEWORKS[name], matching[name]
    if matching:
        raise ConfigError(
            f"the config can be one of {', '.join(matching)}",
            where=document.source,
            hint=f"name it: framework={next(iter(matching))!r}",
        )
    # Imported only here: a config that is recognized does not need it.
    from closedform.recipes.nearness import unrecognized_error

    raise unrecognized_error(document, lambda name: _reads_most(document, name))


def _check_used(document: Document, framework: str | None) -> None:
    """Refuses a config of which the framework that was named has read nothing."""
    # A reader of another package may read the document without sections.
    if framework in (None, GENERIC) or FRAMEWORKS[framework].tier is Tier.COMMUNITY:
        return
    paths = {
        entry_name(key.rpartition(".")[2], value): path
        for path, key, value in entries(document.content)
        if not isinstance(value, Mapping)
    }
    if any(RELATED.search(paths[name]) for name in document.keys_read & paths.keys()):
        return
    from closedform.recipes.nearness import describe_keys, keys_of_schedule

    keys = keys_of_schedule(document)
    # A section that is the block of a class counts by its name: its class reads the arguments.
    sections = {key_name(name) for path in keys for name in re.split(r"\.|\[\d+\]", path)[:-1]}
    if keys and document.keys_read.isdisjoint(sections | paths.keys()):
        raise ConfigError(
            f"no key of the config is one that {framework} reads; {describe_keys(document)}",
            where=document.source,
            hint="name another framework; framework='generic' reads the keys by their names",
        )


def _reads_most(document: Document, framework: str) -> bool:
    """Whether a framework reads a config without an error, and at least half of its keys."""
    from closedform.recipes.nearness import keys_of_schedule

    trial = replace(document, keys_read=set())
    try:
        load_recipe(trial, framework)
    except MissingFactsError:
        pass
    except ClosedFormError:
        return False
    names = {*map(key_name, keys_of_schedule(document).values())}
    return 2 * len(names & {entry.partition(" = ")[0] for entry in trial.keys_read}) >= len(names)


def deciding_keys(document: Document, matches: Callable[[Document], bool]) -> tuple[str, ...]:
    """Returns paths that suffice for a document to match, none of which can be left out.

    The search halves the keys that remain; it asks about 2 k log n times for k of n keys.

    Example:
        >>> config = read_document({"model": "gpt", "optim": {"lr": 1, "eps": 2}})
        >>> deciding_keys(config, lambda part: "lr" in part.content.get("optim", {}))
        ('optim.lr',)
    """

    def search(base: list[str], candidates: list[str]) -> list[str]:
        if matches(replace(document, content=part(document.content, {*base}))):
            return []
        if len(candidates) == 1:
            return candidates
        half = len(candidates) // 2
        second = search([*base, *candidates[:half]], candidates[half:])
        return search([*base, *second], candidates[:half]) + second

    paths = [
        path
        for path, _, value in entries(document.content)
        if not (isinstance(value, Mapping) and value)
    ]
    sufficient_paths = search([], paths) if paths else []
    return tuple(sufficient_paths) or (document.program or "its text",)


def part(content: Mapping[Any, Any], paths: set[str], path: str = "") -> dict[Any, Any]:
    """Returns the entries of some paths, with the mappings that they are in."""
    entries = {}
    for key, value in content.items():
        place = join_path(path, key)
        if not isinstance(value, Mapping) or not value:
            if place in paths:
                entries[key] = value
        elif inner := part(value, paths, place):
            entries[key] = inner
    return entries


def _check_facts(recipe: Recipe, facts: Facts, document: Document) -> None:
    """Refuses facts that contradict what the config determines."""
    config_facts = {"total_updates": recipe.horizon, **recipe.derived}
    for name in CHECKED:
        fact, expected = getattr(facts, name), config_facts.get(name)
        if fact is None or expected is None:
            continue
        gap = abs(exact_number(fact, name) - exact_number(expected, name))
        if gap > AGREEMENT * abs(exact_number(expected, name)):
            raise ConfigError(
                f"the fact {name} must agree with the config, which gives {expected}, got {fact}",
                where=document.source,
                hint="leave the fact out",
            )
