"""Entries of a framework: the name of a class, its arguments and its builder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    DefinitionError,
    UnknownNameError,
    nearest,
)
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.recipes.clock import Facts, missing_facts


class Required:
    """The default of an argument that has none."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = Required()


_ONE_GROUP: Sequence[Mapping[str, Any]] = ({},)
MAX_NESTING = 32
"""How deep schedules may be nested."""

Arguments = Mapping[str, Any]
"""The arguments of a class by their names, defaults filled in."""

Check = Callable[[object, str, str], Any]
"""From a value, the argument's name and the place, for errors, to the value that is meant."""


def as_given(value: object, name: str, where: str) -> Any:
    """Returns the value unchecked: the builder looks at it."""
    del name, where
    return value


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a class.

    Attributes:
        name: Its name in that class.
        default: Its default, ``REQUIRED`` for none.
        check: What a value must be; a default of None is not checked.
    """

    name: str
    default: Any = REQUIRED
    check: Check = as_given


@dataclass(frozen=True, slots=True)
class Context:
    """The context in which a schedule is built, in addition to its arguments.

    Attributes:
        framework: Name of the framework.
        entries: The schedules of the framework by class name.
        key: The entry of the param group that is scheduled.
        base: Value of that entry before scheduling, where the framework's classes read it.
        bases: That value in every group.
        group: The param group, from which a schedule may take factors.
        group_index: Its position, for arguments that are a list with one for each group.
        as_implemented: Whether to build the schedule as the framework implements it, defects
            included.
        frozen: Whether an outer composite keeps the children of composites at their step 0.
        is_halted: Whether that outer composite is a chain, which keeps inner chains at step 0, too.
        path: The classes from the outermost to this one, for errors.
        facts: Numbers of the run that the arguments do not contain, by the framework's own names.
        version: The version of the framework; the newest one if it is empty.
    """

    framework: str
    entries: Mapping[str, ScheduleEntry]
    key: str = "lr"
    base: Any = None
    bases: Sequence[Any] = ()
    group: Mapping[str, Any] = field(default_factory=dict)
    group_index: int = 0
    as_implemented: bool = False
    frozen: bool = False
    is_halted: bool = False
    path: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    @property
    def where(self) -> str:
        """The place in errors: the framework, and the classes from the outermost inwards."""
        return " > ".join((self.framework, *self.path))

    @property
    def numbers(self) -> Facts:
        """The facts that are numbers of the run, by the names of ``Facts``."""
        return Facts.among(self.facts)

    def fact(self, name: str) -> Any:
        """Returns a fact by the framework's own name.

        Raises:
            MissingFactsError: It is not given.
        """
        if self.facts.get(name) is None:
            raise missing_facts(name, self.where, "give them as facts={…}")
        return self.facts[name]

    def with_facts(self, **facts: object) -> Context:
        """Returns the context with further facts, which a config determines."""
        return replace(self, facts={**self.facts, **facts})

    @property
    def groups(self) -> Sequence[Mapping[str, Any]]:
        """The param groups of the fact ``group_lrs`` or ``param_groups``; else one."""
        rates, groups = self.facts.get("group_lrs"), self.facts.get("param_groups")
        if rates is not None:
            return [{} if rate is None else {"lr": rate} for rate in rates]
        return _ONE_GROUP if groups is None else groups

    @property
    def place_of_group(self) -> int:
        """The fact ``group_index``, 0 by default.

        Raises:
            DefinitionError: There is no such param group.
        """
        index, last = self.facts.get("group_index", 0), len(self.groups) - 1
        # bool is a subclass of int: True would be group 1.
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= last:
            raise DefinitionError(
                f"group_index must be in 0..{last}, got {index!r}", where=self.where
            )
        return index

    def of_group(self, key: str, base: object) -> sp.Expr:
        """Returns a number of the param group of the fact ``group_index``.

        Args:
            key: The entry of the param group.
            base: The number of the optimizer, where the group has none or there are no groups.

        Raises:
            DefinitionError: The index is out of range, or the entry is not a finite number.
        """
        if self.groups is _ONE_GROUP:
            return exact_number(base, key)
        return exact_number(self.groups[self.place_of_group].get(key, base), key)


ScheduleBuilder = Callable[[Mapping[str, Any], Context], Schedule]
RuleOfArguments = Callable[[Mapping[str, Any]], UpdateRule]
RuleBuilder = Callable[[Mapping[str, Any], Context], UpdateRule]
Touches = Callable[[Mapping[str, Any], str], bool]
"""From the arguments and a key of the param group to whether the class drives that key."""


def touches_all(arguments: Mapping[str, Any], key: str) -> bool:
    """Returns True: the class drives every key."""
    del arguments, key
    return True


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A scheduler class of a framework.

    Attributes:
        name: The class name.
        builds: The names in the library of the schedules that it builds; ``closedform list`` reads
            them.
        parameters: Its arguments after the optimizer, in their order.
        build: From the arguments, defaults filled in, to the schedule.
        generic: Name by which the builder knows each argument, where it differs.
        children: The argument that holds sub-schedules, if it has one.
        touches: Whether it drives the key that is asked for.
        rule: The builder of the update rule of a class that is driven by a metric.
    """

    name: str
    builds: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    build: ScheduleBuilder
    generic: Mapping[str, str] = field(default_factory=dict)
    children: str | None = None
    touches: Touches = touches_all
    rule: RuleBuilder | None = None


@dataclass(frozen=True, slots=True)
class OptimizerEntry:
    """An optimizer class of a framework.

    Attributes:
        name: The name of the class.
        parameters: Its arguments after the parameters.
        build: Its builder.
        group_entries: Entries of its param groups that are not arguments.
    """

    name: str
    parameters: tuple[Parameter, ...]
    build: RuleOfArguments
    group_entries: Mapping[str, Any] = field(default_factory=dict)


def parameters(**defaults: object) -> tuple[Parameter, ...]:
    """Returns arguments in order, by their defaults; the builder checks their values.

    Example:
        >>> [(p.name, p.default) for p in parameters(lr=REQUIRED, momentum=0)]
        [('lr', <required>), ('momentum', 0)]
    """
    return tuple(Parameter(name, default) for name, default in defaults.items())


def parameters_of(
    make: Callable[..., UpdateRule], *left_out: str, **changes: object
) -> tuple[Parameter, ...]:
    """Returns the positional arguments of a rule of the library, some left out.

    Args:
        make: The function that builds the rule.
        *left_out: The arguments that the class does not have.
        **changes: The defaults of the class where they differ from the library's.

    Example:
        >>> from closedform.optimizers import lion
        >>> [(p.name, p.default) for p in parameters_of(lion, "betas", weight_decay=0.1)]
        [('lr', 0.0001), ('weight_decay', 0.1)]
    """
    arguments = inspect.signature(make).parameters.values()
    return tuple(
        Parameter(p.name, changes.get(p.name, p.default))
        for p in arguments
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in left_out
    )


def passed_to(make: Callable[..., UpdateRule], **choices: object) -> RuleOfArguments:
    """Returns the builder that passes all arguments on to a rule of the library, with choices."""
    return lambda arguments: make(**arguments, **choices)


def values_of(make: Callable[..., Schedule], *names: str, **keywords: str) -> ScheduleBuilder:
    """Returns the builder that passes arguments on to a schedule of the library, by their names.

    Example:
        >>> from closedform.schedules import linear
        >>> build = values_of(linear, "first", "last", steps="count")
        >>> build({"first": 0, "last": 1, "count": 4}, Context("own", {})).exact(1)
        1/4
    """

    def build(arguments: Mapping[str, Any], context: Context) -> Schedule:
        del context
        by_keyword = {keyword: arguments[name] for keyword, name in keywords.items()}
        return make(*(arguments[name] for name in names), **by_keyword)

    return build


@contextmanager
def locate_errors(where: str) -> Iterator[None]:
    """Adds a location to the errors raised within that do not have one."""
    try:
        yield
    except ClosedFormError as error:
        if error.where is not None:
            raise
        # The class stays the same, so that callers can tell missing facts from invalid arguments.
        raise type(error)(error.what, where=where, hint=error.hint) from error


def own_schedule(name: str, make: Callable[..., Schedule], **defaults: Any) -> ScheduleEntry:
    """Returns an entry for a custom scheduler class, for the ``own`` argument of ``schedule``.

    Args:
        name: The class name.
        make: From the arguments, by name, to the schedule.
        **defaults: The arguments with their defaults, ``REQUIRED`` for an argument without one.

    Example:
        >>> from closedform.schedules import constant
        >>> own_schedule("MyLR", lambda rate: constant(rate), rate=REQUIRED).name
        'MyLR'
    """

    def build(values: Mapping[str, Any], context: Context) -> Schedule:
        del context
        arguments = {key: value for key, value in values.items() if key in defaults}
        schedule = make(**arguments)
        if not isinstance(schedule, Schedule):
            raise DefinitionError(
                f"a class of your own must return a Schedule, got {type(schedule).__name__}"
            )
        return schedule

    own_parameters = tuple(Parameter(key, value) for key, value in defaults.items())
    all_parameters = (*own_parameters, Parameter("param_group_tags", None))
    return ScheduleEntry(name, ("function",), all_parameters, build)


def build_schedule(name: object, kwargs: object, context: Context) -> Schedule:
    """Returns the schedule of a class with its arguments, in its context.

    Raises:
        UnknownNameError: The framework has no such class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The arguments are not valid.
    """
    entry = find_schedule(name, context)
    inner = replace(context, path=(*context.path, entry.name))
    # Checked before the arguments are read: a config that contains itself ends here.
    if len(inner.path) > MAX_NESTING:
        raise DefinitionError(
            f"schedules must not be nested deeper than {MAX_NESTING}",
            where=f"{context.framework} > {inner.path[0]} > …",
        )
    arguments = generic_arguments(entry, kwargs, inner.where)
    if not entry.touches(arguments, context.key):
        raise DefinitionError(
            f"{entry.name} leaves {context.key} as it is with these arguments", where=inner.where
        )
    with locate_errors(inner.where):
        return entry.build(arguments, inner)


def build_rule(name: object, kwargs: object, context: Context) -> UpdateRule:
    """Returns the update rule of a class that is driven by a metric.

    Raises:
        UnknownNameError: The framework has no such class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The class is a function of the step, or the arguments are not valid.
    """
    entry = find_schedule(name, context)
    inner = replace(context, path=(entry.name,))
    if entry.rule is None:
        raise DefinitionError(
            f"{entry.name} is driven by the step, not by a metric",
            where=inner.where,
            hint="build it with closedform.frameworks.schedule",
        )
    with locate_errors(inner.where):
        return entry.rule(generic_arguments(entry, kwargs, inner.where), inner)


def is_touched(name: object, kwargs: object, context: Context) -> bool:
    """Returns whether a class with these arguments drives the key at all.

    Raises:
        UnknownNameError: The framework has no such class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: A value is not valid for its argument.
    """
    entry = find_schedule(name, context)
    arguments = generic_arguments(entry, kwargs, f"{context.framework} > {entry.name}")
    return entry.touches(arguments, context.key)


def generic_arguments(entry: ScheduleEntry, kwargs: object, where: str) -> dict[str, Any]:
    """Returns the arguments of a class by the names that its builder knows, defaults filled in.

    Raises:
        ArgumentError: An argument is missing or unknown.
        DefinitionError: A value is not valid for its argument.
    """
    arguments = fill(entry.parameters, kwargs, where)
    return {entry.generic.get(key, key): value for key, value in arguments.items()}


def find_schedule(name: object, context: Context) -> ScheduleEntry:
    """Returns the entry of a scheduler class.

    Raises:
        UnknownNameError: The framework has no such class.
    """
    if not isinstance(name, str) or name not in context.entries:
        raise UnknownNameError(
            f"{context.framework} has no scheduler {name!r}",
            where=context.where if context.path else None,
            hint=nearest(str(name), context.entries),
        )
    return context.entries[name]


def fill(parameters: tuple[Parameter, ...], kwargs: object, where: str) -> dict[str, Any]:
    """Returns the arguments checked, defaults filled in, in the order of the parameters.

    Raises:
        ArgumentError: ``kwargs`` is not a mapping, or an argument is unknown or missing.
        DefinitionError: A value is not valid for its argument.
    """
    if not isinstance(kwargs, Mapping):
        raise ArgumentError(
            f"arguments must be a mapping of names to values, got {type(kwargs).__name__}",
            where=where,
        )
    names = [parameter.name for parameter in parameters]
    for key in kwargs:
        if key not in names:
            raise ArgumentError(
                f"unknown argument {key!r}", where=where, hint=nearest(str(key), names)
            )
    missing = [p.name for p in parameters if p.default is REQUIRED and p.name not in kwargs]
    if missing:
        raise ArgumentError(
            f"missing argument {missing[0]!r}",
            where=where,
            hint=f"it needs {', '.join(p.name for p in parameters if p.default is REQUIRED)}",
        )
    arguments = {}
    for parameter in parameters:
        value = kwargs.get(parameter.name, parameter.default)
        # None is valid where it is the default; checks need not know of it.
        is_open = value is None and parameter.default is None
        arguments[parameter.name] = (
            value if is_open else parameter.check(value, parameter.name, where)
        )
    return arguments


def sub_schedule(spec: object) -> tuple[str, Mapping[str, Any]]:
    """Returns class name and arguments of ``{"class": name, "kwargs": {...}}``.

    Raises:
        ArgumentError: It has not that form.
    """
    expected = 'a sub-schedule must be {"class": name, "kwargs": {...}}'
    if not isinstance(spec, Mapping) or not set(spec) <= {"class", "kwargs"} or "class" not in spec:
        raise ArgumentError(f"{expected}, got {spec!r}")
    kwargs = spec.get("kwargs", {})
    if not isinstance(kwargs, Mapping):
        raise ArgumentError(f"{expected}, got kwargs {kwargs!r}")
    return spec["class"], kwargs


def sub_schedules(specs: object, name: str) -> tuple[Mapping[str, Any], ...]:
    """Returns a non-empty list of sub-schedules as given.

    Raises:
        ArgumentError: It is not a list.
        DefinitionError: It is empty.
    """
    if not isinstance(specs, list | tuple):
        raise ArgumentError(f"{name} must be a list of sub-schedules, got {type(specs).__name__}")
    if not specs:
        raise DefinitionError(f"{name} must hold at least one schedule")
    return tuple(specs)


def check_joints(
    marks: Sequence[object],
    members: Sequence[object],
    marks_name: str = "milestones",
    members_name: str = "schedulers",
) -> None:
    """Raises DefinitionError unless there is a mark between each member and the next."""
    if len(marks) != len(members) - 1:
        raise DefinitionError(
            f"{marks_name} must be one fewer than {members_name}: expected {len(members) - 1}, "
            f"got {len(marks)}"
        )
