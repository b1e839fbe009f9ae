"""A recipe: the schedules and the optimizer of a training run, by param groups, in updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from closedform.delegation import functions
from closedform.errors import UnknownNameError, nearest
from closedform.language import Group, Schedule, UpdateRule, from_param_groups, t
from closedform.recipes.clock import Clock, Facts
from closedform.recipes.document import Document
from closedform.recipes.summary import summarize
from closedform.schedules import constant

if TYPE_CHECKING:
    from closedform.analysis.rescaling import Rescaled
    from closedform.language.aliases import Number


class ClippingKind(StrEnum):
    """The quantity that clipping limits."""

    NORM = "norm"
    PARAM_NORM = "param_norm"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Clipping:
    """The clipping of gradients.

    Attributes:
        threshold: The largest norm of all gradients together, the largest norm of the gradient of
            each parameter, or the largest absolute value.
        kind: The quantity that ``threshold`` limits.
    """

    threshold: Any
    kind: ClippingKind = ClippingKind.NORM


RuleOfSchedules = Callable[[Mapping[str, Schedule]], UpdateRule]
"""From the schedules of a param group to its update rule."""


@dataclass(frozen=True, slots=True)
class OptimizerPlan:
    """An optimizer as a config names it; its rule is built when it is asked for.

    Attributes:
        name: The name of the class in the config.
        arguments: Its arguments, as the config has them.
        build: The builder of the rule from the schedules of the group. It raises UnknownNameError
            where the library does not have the optimizer.
    """

    name: str
    arguments: Mapping[str, Any]
    build: RuleOfSchedules


class Role(StrEnum):
    """The part of the model that a param group covers; the groups of two recipes pair by it.

    A recipe that has no group for a role treats its parameters as the default group does, except
    for ``NAMED``.
    """

    DEFAULT = "default"
    NO_DECAY = "no_decay"
    NORM = "norm"
    BIAS = "bias"
    EMBEDDING = "embedding"
    OUTPUT = "output"
    EMBEDDING_AND_OUTPUT = "embedding_and_output"
    FROZEN = "frozen"
    NAMED = "named"

    @classmethod
    def of(cls, name: str) -> Role:
        """Returns the role that a name states; ``NAMED`` for a name of the config."""
        if not name:
            return cls.DEFAULT
        return cls(name) if name in _STATED else cls.NAMED


_MOST_CURVES = 8

_STATED = (Role.NORM, Role.BIAS, Role.EMBEDDING)
"""Roles that frameworks use as names of groups."""


@dataclass(frozen=True, slots=True)
class ParamGroup:
    """A param group of a recipe.

    Attributes:
        schedules: Key of the param group ("lr", "weight_decay", "momentum", …) -> its schedule in
            updates. A value that does not change is a constant schedule.
        optimizer: Its optimizer.
        role: The part of the model that it covers; ``NAMED`` for a group that only the config
            describes, by its name and patterns.
        name: Its name in the config for ``NAMED``, otherwise the role; empty for the default group.
        patterns: The patterns on names of parameters that the config gives, in its own syntax.
    """

    schedules: Mapping[str, Schedule]
    optimizer: OptimizerPlan
    role: Role
    name: str = ""
    patterns: tuple[str, ...] = ()

    def without_decay(self, patterns: Iterable[str] = ()) -> ParamGroup:
        """Returns the group of the parameters of this one that have no weight decay."""
        return replace(
            self,
            schedules={**self.schedules, "weight_decay": constant(0)},
            role=Role.NO_DECAY,
            name=".".join(part for part in (self.name, Role.NO_DECAY.value) if part),
            patterns=tuple(patterns),
        )


def is_constant(schedule: Schedule) -> bool:
    """Returns whether a schedule has no clock in it.

    Example:
        >>> from closedform.schedules import constant
        >>> is_constant(constant(3))
        True
    """
    return t not in schedule.expr.free_symbols


def recipe_of(schedule: Schedule, source: str, total: int | None = None) -> Recipe:
    """Returns the recipe of a learning rate without a config: its optimizer is not known.

    Args:
        schedule: The learning rate, in updates.
        source: Where it comes from.
        total: The updates of the run.
    """

    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        del schedules
        raise UnknownNameError("a schedule names no optimizer", where=source)

    plan = OptimizerPlan("not named", {}, build)
    group = ParamGroup({"lr": schedule}, plan, Role.DEFAULT)
    return Recipe(schedule.name, "python", (group,), horizon=total, source=source)


class Grouping(Protocol):
    """The way in which a framework divides the parameters of a model into param groups."""

    def param_groups(
        self, recipe: Recipe, params: Sequence[str], norms: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Returns the param groups of a model.

        Args:
            recipe: The recipe.
            params: The names of its parameters.
            norms: The names of its normalization modules.
        """


@dataclass(frozen=True, slots=True)
class Recipe:
    """The optimization part of a config.

    Attributes:
        name: The file's name without its ending, or ``recipe`` for a mapping.
        framework: The framework that the config is written for.
        param_groups: The param groups, at least one; the first one is the default group.
        horizon: The optimizer updates of the run, None if neither config nor facts determine it.
        version: The version of the framework whose semantics were read; empty where there is one.
        source: The file, or ``<mapping>``.
        facts: The facts that were given.
        clock: The clock of the framework; the schedules are converted to updates already.
        clipping: The clipping of gradients, None for none.
        accumulation: Micro-batches in an update, None if unknown.
        notes: Name -> description of each known defect of the framework that concerns this config.
        derived: The facts of ``clock.CHECKED`` that the config determines.
        grouping: The framework's grouping of a model's parameters, with the options of the config;
            None where it is not modelled.
        replaced_schedules: The schedules that the config has itself, by key, where those of another
            file take their place.
        document: The config as plain data; None for a recipe without one.
        guessed_by: The keys of the config that its framework was found by; empty if it was named.
    """

    name: str
    framework: str
    param_groups: tuple[ParamGroup, ...]
    horizon: int | None = None
    version: str = ""
    source: str = "<mapping>"
    facts: Facts = field(default_factory=Facts)
    clock: Clock = field(default_factory=Clock)
    clipping: Clipping | None = None
    accumulation: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, Any] = field(default_factory=dict)
    grouping: Grouping | None = None
    replaced_schedules: Mapping[str, Schedule] = field(default_factory=dict)
    document: Document | None = field(default=None, repr=False, compare=False)
    guessed_by: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __repr__(self) -> str:
        count = len(self.param_groups)
        facts = [
            self.param_groups[0].optimizer.name,
            f"{count} param group{'s' * (count > 1)}",
            "length not determined" if self.horizon is None else f"{self.horizon:,} updates",
            *([f"{len(self.notes)} note{'s' * (len(self.notes) > 1)}"] if self.notes else []),
        ]
        return f"<Recipe {self.name} ({self.framework}): {', '.join(facts)}>"

    def __str__(self) -> str:
        return "\n".join(summarize(self).lines())

    def _repr_html_(self) -> str:
        return summarize(self).html(self._picture())

    def _picture(self) -> str:
        """The learning rates of the param groups as a plot; empty if all are open."""
        rates: dict[Schedule, str] = {}
        for param_group in self.param_groups:
            rate = param_group.schedules.get("lr")
            if rate is not None and not rate.open:
                rates.setdefault(rate, param_group.name or "default")
        curves = {name: rate for rate, name in list(rates.items())[:_MOST_CURVES]}
        return functions().picture(curves, self.horizon)

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The schedules of the default group, by key."""
        return self.param_groups[0].schedules

    @property
    def changing_schedules(self) -> dict[str, Schedule]:
        """The learning rate of the default group, and its other schedules that change, by key."""
        return {
            key: schedule
            for key, schedule in self.schedules.items()
            if key == "lr" or not is_constant(schedule)
        }

    def group(self, group: int | str = 0) -> ParamGroup:
        """Returns a param group, by its position or its name.

        Raises:
            UnknownNameError: There is none.
        """
        if isinstance(group, int):
            if 0 <= group < len(self.param_groups):
                return self.param_groups[group]
            raise UnknownNameError(
                f"group must be in 0..{len(self.param_groups) - 1}, got {group}", where=self.source
            )
        for candidate in self.param_groups:
            if candidate.name == group:
                return candidate
        names = [candidate.name for candidate in self.param_groups]
        raise UnknownNameError(
            f"there is no param group {group!r}", where=self.source, hint=nearest(group, names)
        )

    def schedule(self, key: str = "lr", group: int | str = 0) -> Schedule:
        """Returns the schedule of a key of a param group, in optimizer updates.

        Args:
            key: "lr", "weight_decay", or another key that the config schedules.
            group: The position of the group, or its name.

        Raises:
            UnknownNameError: There is no such group, or the config does not determine the key.

        Example:
            >>> from closedform.recipes import load_recipe
            >>> optimizer = {"AdamW": {"weight_decay": 0.1, "lr": 1e-3}}
            >>> recipe = load_recipe({"trainer": {"init": {"optimizer": optimizer}}})
            >>> recipe.schedule("lr").exact(7)
            1/1000
        """
        schedules = self.group(group).schedules
        if key not in schedules:
            raise UnknownNameError(
                f"the config does not determine {key!r}",
                where=self.source,
                hint=nearest(key, schedules),
            )
        return schedules[key]

    def optimizer(self, group: int | str = 0) -> UpdateRule:
        """Returns the update rule of a param group, its schedules inside as hyperparameters.

        Raises:
            UnknownNameError: There is no such group, or the library does not have the optimizer.
            ConfigError: An argument of the optimizer is not valid.

        Example:
            >>> from closedform.recipes import load_recipe
            >>> optimizer = {"AdamW": {"weight_decay": 0.1, "lr": 1e-3}}
            >>> load_recipe({"trainer": {"init": {"optimizer": optimizer}}}).optimizer().name
            'adamw'
        """
        param_group = self.group(group)
        return param_group.optimizer.build(param_group.schedules)

    def rescale(
        self,
        *,
        batch: Number = 1,
        tokens: Number = 1,
        width: Number = 1,
        horizon: int | None = None,
        rule: str | None = None,
        keep: Iterable[str] | None = None,
        warmup: int | None = None,
        critical_batch: Number | None = None,
    ) -> Rescaled:
        """Returns the recipe for another batch size, number of tokens or width, and what it keeps.

        Args:
            batch: The factor of the batch size.
            tokens: The factor of the tokens of the run.
            width: The factor of the width of the model; hidden weights get the factor of µP.
            horizon: The updates of the new run, instead of ``tokens``.
            rule: The learning rate by the batch size: ``none``, ``linear``, ``sqrt``, ``sde`` or
                ``critical``. Needed where ``batch`` is not 1.
            keep: The names of the invariants to keep; all that the change admits if not given.
            warmup: The updates of the warmup in the old run; its first rise if not given.
            critical_batch: The critical batch size in samples.

        Raises:
            ArgumentError: A name is unknown, ``rule`` is missing, or the run has no horizon.
            DefinitionError: A factor is not a rational number above 0.
            DomainError: An invariant cannot be kept; the message names it.

        Example:
            >>> from closedform.schedules import trapezoidal
            >>> run = recipe_of(trapezoidal(1, 0, 100, warmup=20, decay=40), "example", 100)
            >>> wider = run.rescale(batch=4, rule="sqrt")
            >>> wider.recipe.horizon, wider.recipe.schedule().exact(5)
            (25, 2)
        """
        return functions().rescale(
            self,
            batch=batch,
            tokens=tokens,
            width=width,
            horizon=horizon,
            rule=rule,
            keep=keep,
            warmup=warmup,
            critical_batch=critical_batch,
        )

    def with_default_group(self, group: str) -> Recipe:
        """Returns the recipe with another param group as the default one.

        Raises:
            UnknownNameError: There is no group of that name.
        """
        first = self.group(group)
        rest = tuple(candidate for candidate in self.param_groups if candidate is not first)
        return replace(self, param_groups=(first, *rest))

    def groups(self, params: Sequence[str], norms: Sequence[str] = ()) -> list[Group]:
        """Returns the groups of a model's parameters, as the config's framework makes them.

        For cerebras, biases and parameters of normalization modules have no weight decay; the
        learning rate of a layer type has its factor.

        Args:
            params: Names of the parameters, in the order of the model.
            norms: Names of its normalization modules.

        Raises:
            ConfigError: A layer type is unknown.
            UnknownNameError: The reader of the framework does not have its grouping.

        Example:
            >>> from closedform.recipes import load_recipe
            >>> optimizer = {"AdamW": {"weight_decay": 0.1, "lr": 1e-3}}
            >>> recipe = load_recipe({"trainer": {"init": {"optimizer": optimizer}}})
            >>> [(g.params, g.changes) for g in recipe.groups(["w", "bias"])]
            [(('w',), {'weight_decay': 1/10}), (('bias',), {'weight_decay': 0.0})]
        """
        if self.grouping is None:
            raise UnknownNameError(
                f"how {self.framework} groups the parameters of a model is not known here",
                where=self.source,
                hint="write the groups from recipe.param_groups",
            )
        return from_param_groups(self.grouping.param_groups(self, params, norms), self.optimizer())
