"""Readers of native configs: their input and their result.

**How to write a reader.** A reader is the file ``reader.py`` of a framework's folder, with a
constant ``READER = Reader(read, matches)``, which the folder's ``__init__.py`` gives to
``Framework(…, reader=READER)``.

1. ``matches(document)`` says whether a config of unknown origin can be of this framework, by keys
   that others do not have (``"trainer" in document.content``). It must not raise an exception.
2. ``read(reading)`` returns a :class:`~closedform.recipes.recipe.Recipe`. It goes through the
   sections of ``section.whole(reading.document)``: ``section.number("lr")``, ``integer``,
   ``text``, ``flag``, ``numbers``, ``section``, ``sections`` check types, fill in defaults and
   raise errors with the place. Each section that concerns the optimizer is checked by
   ``section.check(KNOWN)``, a flat file by ``section.check_related(KNOWN)``: unknown keys are
   errors with a hint.
3. What the config does not determine is a fact: ``reading.facts.total_updates``, or
   ``reading.facts.require("total_updates", "global_batch_size", where=…)``, which lists all that
   are missing in one error. Ask for all facts at once. Never guess.
4. Schedules come from the entries of the framework that exist already:
   ``build.built(FRAMEWORK_SCHEDULES…)``, see :func:`closedform.recipes.build.built`, within
   ``with section.located("scheduler"):`` so that errors have the place. A value that does not
   change is ``constant(value)``. Every recipe has "lr"; "weight_decay" as well where the optimizer
   has one.
5. The optimizer is an :class:`~closedform.recipes.recipe.OptimizerPlan`: usually
   ``rules.planned(name, arguments)``, which knows the common names.
6. ``derived`` repeats what the config determines of ``clock.CHECKED`` (lr, total_updates,
   warmup_updates, weight_decay): ``load_recipe`` compares them with the facts of the user.
7. ``notes`` are the framework's defects that concern this config, by a short name each:
   ``{"cosine-climbs": "the cosine rises again after the run"}``.
8. Tests: the folder's name in ``READ`` of ``tests/recipes/test_corpus.py``, with the tolerance
   that the framework's own precision asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from closedform.recipes.clock import Facts
from closedform.recipes.document import Document
from closedform.recipes.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Reading:
    """The input of a reader.

    Attributes:
        document: The config.
        facts: The facts of the user.
        version: The version of the framework, one of ``Framework.versions``; the newest one by
            default.
        framework: The framework's name that was asked for: several may share a reader.
        as_implemented: Whether to return what the framework computes, defects included; otherwise
            its documented formula, where the two differ.
    """

    document: Document
    facts: Facts
    version: str = ""
    framework: str = ""
    as_implemented: bool = True


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a framework's configs.

    Attributes:
        read: From a reading to the recipe; it raises ConfigError for a config that is not valid,
            and ArgumentError for missing facts.
        matches: Whether a config can be one of this framework.
        is_general: Whether other readers that match go before this one.
    """

    read: Callable[[Reading], Recipe]
    matches: Callable[[Document], bool]
    is_general: bool = False
