"""Readers of native configs: their input and their result.

**How to write a reader.** A reader is ``Reader(read, matches)`` in the declaration of a framework;
``frameworks/nanotron/__init__.py`` is the model.

1. ``matches(document)`` is whether a config of unknown origin can be of this framework, by keys
   that other frameworks lack (``"trainer" in document.content``). It must not raise an exception.
2. ``read(reading)`` reads the keys of the whole config, ``CONFIG.read_whole(reading.document)``:
   types, defaults and unknown keys are the matter of :mod:`closedform.recipes.section`.
3. What the config does not determine is a fact: ``reading.value_or_fact(value, "total_updates")``,
   or ``reading.facts.require("total_updates", "global_batch_size", where=…)``, which lists all
   missing facts in one error. Ask for all facts at once. Never guess.
4. Schedules come from the curves of the framework, which ``frameworks.schedule`` calls as well:
   ``curve(reading.context, values)``, within ``with values.origin.locate_errors():`` so that errors
   have the place. A value that does not change is ``constant(value)``. Every recipe has "lr";
   "weight_decay" as well where the optimizer has one.
5. The optimizer is an :class:`~closedform.recipes.recipe.OptimizerPlan`: usually
   ``kit.plan_optimizer(name, arguments)``, which knows the common names, or
   ``kit.class_optimizer(section, path)``.
6. ``reading.recipe(groups, …)`` makes the recipe. ``values`` are the arguments of the
   conditions of the framework's defects, which become the notes. ``derived`` repeats what the
   config determines of ``clock.CHECKED`` (lr, total_updates, warmup_updates, weight_decay):
   ``load_recipe`` compares them with the facts of the user.
7. Tests: configs with the values that the framework computes, as lines of
   ``tests/frameworks/NAME/configs.jsonl``, which ``tests/recipes/test_corpus.py`` reads, with the
   tolerance of the framework's own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from closedform.recipes.clock import Clock, Facts, hold
from closedform.recipes.defects import Defect, Note, applicable_notes, check_documented
from closedform.recipes.document import Document
from closedform.recipes.entries import Context
from closedform.recipes.recipe import Clipping, Grouping, ParamGroup, Recipe


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
        defects: The defects and conventions of the framework.
        clock: The clock of the framework.
    """

    document: Document
    facts: Facts
    version: str = ""
    framework: str = ""
    as_implemented: bool = True
    defects: Mapping[str, Note[...]] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    @property
    def context(self) -> Context:
        """The context of the curves of the config."""
        facts = {entry.name: getattr(self.facts, entry.name) for entry in fields(Facts)}
        facts |= facts.pop("framework_facts")
        return Context(
            self.framework,
            {},
            as_implemented=self.as_implemented,
            facts={name: fact for name, fact in facts.items() if fact is not None},
            version=self.version,
        )

    def value_or_fact(self, value: int | None, fact: str) -> int:
        """Returns a number that the config determines, or else a fact.

        Raises:
            ArgumentError: Neither the config nor the facts have it.
        """
        if value is not None:
            return value
        (number,) = self.facts.require(fact, where=self.document.source)
        return int(number)

    def recipe(
        self,
        param_groups: Sequence[ParamGroup],
        *,
        clock: Clock | None = None,
        horizon: int | None,
        clipping: Clipping | None,
        accumulation: int | None,
        values: Sequence[object],
        derived: Mapping[str, Any] | None = None,
        grouping: Grouping | None = None,
    ) -> Recipe:
        """Returns the recipe of the config, with the notes on the defects that concern it.

        Args:
            param_groups: The param groups, with schedules in updates; in the unit of the clock,
                if the clock is stepped.
            clock: The clock that the schedules of this config count, where it is not that of the
                framework.
            horizon: As in ``Recipe``, in the same unit.
            clipping: As in ``Recipe``.
            accumulation: As in ``Recipe``.
            values: The arguments of the conditions of the framework's defects.
            derived: As in ``Recipe``.
            grouping: As in ``Recipe``.

        Raises:
            DefinitionError: The documented formula is asked for, and there is none.
        """
        clock = clock or self.clock
        if not self.as_implemented:
            check_documented(self.defects, self.version, self.document.source, *values)
        notes = applicable_notes(self.defects, self.version, *values)
        # Schedules of a stepped clock are functions of its units: each value serves several
        # updates.
        updates = clock.updates_per_value(self.facts)
        if updates != 1:
            param_groups = [
                replace(
                    group,
                    schedules={
                        key: hold(schedule, updates) for key, schedule in group.schedules.items()
                    },
                )
                for group in param_groups
            ]
            horizon = None if horizon is None else horizon * updates
        return Recipe(
            self.document.name,
            self.framework,
            tuple(param_groups),
            horizon=horizon,
            version=self.version,
            source=self.document.source,
            facts=self.facts,
            clock=clock,
            clipping=clipping,
            accumulation=accumulation,
            notes={
                name: note.text
                for name, note in notes.items()
                # With the documented formula, its defects do not concern the values any more.
                if self.as_implemented or not (isinstance(note, Defect) and note.documented)
            },
            derived=derived or {},
            grouping=grouping,
        )


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
