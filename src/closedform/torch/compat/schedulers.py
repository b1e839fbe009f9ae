"""Scheduler classes of other libraries, generated from the tables of ``recipes.frameworks``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import sympy as sp
from torch.optim import Optimizer

from closedform import delegation, frameworks
from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    DefinitionError,
    TraceError,
    UnknownNameError,
)
from closedform.frameworks import FRAMEWORKS
from closedform.importers.python import TracedSchedule
from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Parameter, ScheduleEntry
from closedform.torch.compat.arguments import describe_arguments
from closedform.torch.compat.namespaces import (
    Argument,
    bound_arguments,
    keyword_only,
    shown_parameters,
)
from closedform.torch.param_groups import plain
from closedform.torch.schedule_values import FunctionValues, ScheduleValues, TupleValues
from closedform.torch.scheduler import ParamScheduler, ScheduledEntry, check_optimizer

_RESUMED = "last_epoch"
"""An argument of classes there that is the clock here, and not a part of the schedule."""

_CYCLED = {"cycle_momentum": "momentum"}
"""Switches of classes that drive a second entry, and that entry."""

_RUNNING = {"LambdaLR": False, "MultiplicativeLR": True}
"""Classes of torch that call a Python function, and whether they multiply its values."""
_CALLED = "lr_lambda"
"""The argument that is this function, or one for each group."""

_OVERRIDABLE = {"lambdas": "set_value_lambda"}
"""Arguments that a subclass may provide by a method instead."""


class NamedScheduler(ParamScheduler):
    """A scheduler class of another library; its arguments are attributes, as they are there.

    ``as_implemented=True`` reproduces the defects of the library; by default, the schedule is the
    documented formula. A sub-schedule is a scheduler of this package, or
    ``{"class": name, "kwargs": {…}}``. A function of the step is a Python function, which
    :func:`closedform.from_python` reads, a SymPy expression in ``closedform.t``, or
    ``{"expr": text}``. LambdaLR and MultiplicativeLR of torch call a function that cannot be read
    at every step, and warn.
    """

    system: ClassVar[str]
    entry: ClassVar[ScheduleEntry]
    default_key: ClassVar[str]
    _functions: Any

    def __init__(self, *args: Argument, as_implemented: bool = False, **kwargs: Argument) -> None:
        where = f"{self.system} > {type(self).__name__}"
        optimizer, arguments = _bound(type(self).entry, args, kwargs, where)
        for name, method in _OVERRIDABLE.items():
            if hasattr(self, method) and arguments.get(name) is None:
                arguments[name] = getattr(self, method)()
        # torch's classes take it in the constructor; here it moves the clock only.
        last_epoch = arguments.pop(_RESUMED, -1)
        if optimizer is None:
            optimizer = _optimizer_of(arguments.get("schedulers"), where)
        check_optimizer(optimizer, where)
        self._functions = None
        self.kwargs = arguments
        is_called = self.system == "torch" and type(self).entry.name in _RUNNING
        function = arguments.get(_CALLED) if is_called else None
        try:
            self.kwargs = {
                name: _express(value, f"{where}, {name}") for name, value in arguments.items()
            }
        except TraceError as error:
            self._call_python(function, error, where)
        self.as_implemented = as_implemented
        self._keep_arguments()
        key = str(getattr(self, "param_group_key", self.default_key))
        if not key:
            raise ArgumentError(
                "the class is generic and does not have a key to schedule",
                where=where,
                hint="set param_group_key in a subclass, or use its LR or WD class",
            )
        try:
            entries = list(self._build_entries(optimizer, key, last_epoch))
        except DefinitionError as error:
            if not _has_function(function):
                raise
            self._call_python(function, error, where)
            entries = list(self._build_entries(optimizer, key, last_epoch))
        self._start(optimizer, entries, key, last_epoch)

    def _call_python(self, functions: Any, error: ClosedFormError, where: str) -> None:
        """Lets a LambdaLR or MultiplicativeLR of torch call functions without a closed form.

        Raises:
            ArgumentError: It is another class.
        """
        if functions is None:
            raise ArgumentError(
                f"a function of the step must be traceable: {error.what}",
                where=f"{where}, {error.where}",
                hint=error.hint,
            ) from error
        warnings.warn(
            f"{self.entry.name} calls the Python function at every step, since it is not a closed "
            f"form: {error}",
            UserWarning,
            stacklevel=3,
        )
        self._functions = functions

    def _python_entries(
        self, groups: Sequence[Mapping[str, Any]], key: str
    ) -> Iterable[ScheduledEntry]:
        """One entry for each group, with a separate function or the common one."""
        value = self._functions
        functions = value if isinstance(value, list | tuple) else [value] * len(groups)
        if len(functions) != len(groups):
            raise ArgumentError(
                f"expected {len(groups)} functions, one for each param group, got {len(functions)}",
                where=f"{self.system} > {self.entry.name}",
            )
        is_running = _RUNNING[self.entry.name]
        for index, (function, group) in enumerate(zip(functions, groups, strict=True)):
            base = float(group.get(f"initial_{key}", group[key]))
            values = FunctionValues(function, base, is_running=is_running)
            yield ScheduledEntry(index, key, values)

    def _keep_arguments(self) -> None:
        """Sets the arguments as attributes, by the names of the class and of its generic class."""
        for parameter in self.entry.parameters:
            value = self.kwargs.get(parameter.name, parameter.default)
            for name in (parameter.name, self.entry.generic.get(parameter.name)):
                if name is not None and value is not REQUIRED and not hasattr(type(self), name):
                    setattr(self, name, value)

    def _build_entries(
        self, optimizer: Optimizer, key: str, last_epoch: int
    ) -> Iterable[ScheduledEntry]:
        own_entries: list[ScheduleEntry] = []
        # Groups as the formulas of ``recipes`` take them: numbers, without parameters.
        groups = [
            {k: plain(v) for k, v in g.items() if k != "params"} for g in optimizer.param_groups
        ]
        if self._functions is not None:
            yield from self._python_entries(groups, key)
            return
        kwargs = {name: _with_specs(value, own_entries) for name, value in self.kwargs.items()}
        if last_epoch >= 0 and self.system != "cerebras":
            _check_resumable(groups, key, f"{self.system} > {self.entry.name}")

        def build(entry: str, bases: Sequence[Mapping[str, Any]]) -> list[Schedule | None]:
            return frameworks.schedules(
                self.system, self.entry.name, kwargs, bases, entry, self.as_implemented, own_entries
            )

        for index, schedule in enumerate(build(key, groups)):
            if schedule is not None:
                yield ScheduledEntry(index, key, ScheduleValues(schedule))
        for switch, second in _CYCLED.items():
            if self._is_on(switch):
                yield from _momentum_entries(
                    build, second, groups, f"{self.system} > {self.entry.name}"
                )

    def _is_on(self, switch: str) -> bool:
        defaults = {p.name: p.default for p in self.entry.parameters}
        return switch in defaults and bool(self.kwargs.get(switch, defaults[switch]))

    @property
    def spec(self) -> dict[str, Any]:
        """The class and arguments, in the form of a sub-schedule of ``recipes.frameworks``."""
        return {"class": self.entry.name, "kwargs": self.kwargs}


def scheduler_classes(
    system: str,
    module: str,
    base_of: Callable[[str], type[ParamScheduler]] = lambda _: NamedScheduler,
) -> dict[str, type[NamedScheduler]]:
    """Returns the scheduler classes of a library by name; they schedule the learning rate.

    Args:
        system: The library.
        module: The public module of the classes.
        base_of: Returns the base class of a class from its name.
    """
    entries = FRAMEWORKS[system].schedules
    return {
        name: scheduler_class(system, entry, "lr", module, base_of(name))
        for name, entry in entries.items()
    }


def scheduler_class(
    system: str, entry: ScheduleEntry, key: str, module: str, *bases: type[ParamScheduler]
) -> type[NamedScheduler]:
    """Returns the class of an entry, with its signature in the library."""
    parameters = _with_optimizer(entry)
    arguments_text = describe_arguments((*parameters, Parameter("as_implemented")))
    namespace = {
        "__module__": module,
        "__qualname__": entry.name,
        "__doc__": (
            f"The scheduler ``{entry.name}`` of {system} in closed form.\n\n"
            f"``closedform show {system}:{entry.name}`` prints the formula.\n\n{arguments_text}\n"
        ),
        "__signature__": inspect.Signature(
            [*shown_parameters(parameters), *keyword_only(as_implemented=False)]
        ),
        "system": system,
        "entry": entry,
        "default_key": key,
    }
    is_named = any(issubclass(base, NamedScheduler) for base in bases)
    return type(entry.name, bases if is_named else (NamedScheduler, *bases), namespace)


def own_entry(scheduler: ParamScheduler, number: int) -> ScheduleEntry:
    """Returns the entry of a scheduler that is not a class of a library."""
    (first, *other_schedules) = [
        schedule for schedule in scheduler.schedules if schedule is not None
    ]
    if any(schedule != first for schedule in other_schedules) or not isinstance(first, Schedule):
        raise ArgumentError(
            "a sub-schedule must be the same for all groups", where=type(scheduler).__name__
        )

    def make() -> Schedule:
        return first

    return frameworks.own_schedule(f"{type(scheduler).__name__}#{number}", make)


def _with_specs(value: Any, own_entries: list[ScheduleEntry]) -> Any:
    """Sub-schedules as class and arguments; other schedulers are added to ``own_entries``."""
    if isinstance(value, list | tuple):
        return [_with_specs(item, own_entries) for item in value]
    if isinstance(value, NamedScheduler):
        return {"class": value.entry.name, "kwargs": _with_specs(value.kwargs, own_entries)}
    if isinstance(value, ParamScheduler):
        own_entries.append(own_entry(value, len(own_entries)))
        return {"class": own_entries[-1].name, "kwargs": {}}
    if isinstance(value, Mapping):
        return {key: _with_specs(item, own_entries) for key, item in value.items()}
    return value


def _momentum_entries(
    build: Callable[[str, Sequence[Mapping[str, Any]]], list[Schedule | None]],
    key: str,
    groups: Sequence[Mapping[str, Any]],
    where: str,
) -> Iterable[ScheduledEntry]:
    """The entry that is the momentum: itself, or the first of betas."""
    for index, group in enumerate(groups):
        if key not in group and "betas" not in group:
            raise DefinitionError(
                f"the group has neither {key!r} nor 'betas' to cycle",
                where=f"{where}, param group {index}",
                hint="pass cycle_momentum=False",
            )
    bases = [group if key in group else {**group, key: group["betas"][0]} for group in groups]
    for index, (group, schedule) in enumerate(zip(groups, build(key, bases), strict=True)):
        if schedule is None:
            continue
        values = ScheduleValues(schedule)
        if key in group:
            yield ScheduledEntry(index, key, values)
        else:
            # OneCycleLR and CyclicLR of torch write (momentum, *betas[1:]) the same way.
            yield ScheduledEntry(index, "betas", TupleValues((values, None)))


def _check_resumable(groups: Sequence[Mapping[str, Any]], key: str, where: str) -> None:
    for index, group in enumerate(groups):
        if f"initial_{key}" not in group:
            raise UnknownNameError(
                f"the group has no 'initial_{key}', which a resumed scheduler needs",
                where=f"{where}, param group {index}",
                hint="load the optimizer's state first, or set it",
            )


def _has_function(value: Any) -> bool:
    members = value if isinstance(value, list | tuple) else [value]
    return any(callable(m) and not isinstance(m, Schedule | sp.Basic) for m in members)


def _takes_optimizer(entry: ScheduleEntry) -> bool:
    # ChainedScheduler(schedulers, optimizer=None) of torch 2.13 has the optimizer last.
    return not entry.name.startswith("Chained")


def _with_optimizer(entry: ScheduleEntry) -> tuple[Parameter, ...]:
    """The arguments of a class with the optimizer: the first, or an optional last one."""
    if _takes_optimizer(entry):
        return Parameter("optimizer"), *entry.parameters
    return *entry.parameters, Parameter("optimizer", None)


def _bound(
    entry: ScheduleEntry, args: Sequence[Any], kwargs: Mapping[str, Any], where: str
) -> tuple[Any, dict[str, Any]]:
    """The optimizer, and the arguments by name; ``schedules`` rejects unknown ones."""
    names = [parameter.name for parameter in _with_optimizer(entry)]
    arguments = bound_arguments(entry.name, names, args, kwargs, where)
    optimizer = arguments.pop("optimizer", None)
    if optimizer is None and _takes_optimizer(entry):
        raise ArgumentError("missing argument 'optimizer'", where=where)
    return optimizer, arguments


def _optimizer_of(schedulers: Any, where: str) -> Optimizer:
    for scheduler in schedulers if isinstance(schedulers, list | tuple) else ():
        if isinstance(scheduler, ParamScheduler):
            return scheduler.optimizer
    raise ArgumentError(
        "no optimizer: none of the sub-schedules is a scheduler of this package",
        where=where,
        hint="pass optimizer=…",
    )


def _express(value: Any, where: str) -> Any:
    """Functions of the step as expressions in t; other values are unchanged."""
    if isinstance(value, list | tuple):
        return [_express(item, where) for item in value]
    if isinstance(value, Schedule):
        return value.bound
    if not callable(value) or isinstance(value, ParamScheduler | sp.Basic | type):
        return value
    schedule = delegation.functions().from_python(value, name=None, hyper=())
    if isinstance(schedule, TracedSchedule) and schedule.trace.raises:
        raise TraceError(f"it has no value {schedule.trace.raises[0]}", where=where)
    return schedule.bound
