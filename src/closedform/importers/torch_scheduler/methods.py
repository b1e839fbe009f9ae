"""Methods of schedulers, traced with the step and the rate before as symbols."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.python.number import Number
from closedform.importers.python.place import UserValue, place_of_function
from closedform.importers.python.prover import Prover
from closedform.importers.python.rebuild import Environment, is_same_constant
from closedform.importers.python.trace import Traced, TracedProgram, run_program
from closedform.importers.torch_scheduler.groups import (
    BY_A_FUNCTION,
    METHODS,
    entries_of,
    field_of,
    of_group,
)
from closedform.language.symbols import internal_symbol

PREVIOUS = internal_symbol("previous", "recurrence", real=True)


@dataclass(frozen=True, slots=True)
class Writes:
    """The names of what a method assigns, but the rate, in param groups and in the optimizer.

    Attributes:
        names: All of them.
        unknown: Those of which a later call may find a value where the first call finds none, or
            none where it finds one.
    """

    names: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def note(self, before: Mapping[str, Any], after: Mapping[str, Any], rate: str) -> None:
        """Notes the differences of the entries before a call and after it."""
        for name in {**before, **after}:
            is_kept = name in after and name in before
            if name == rate or (is_kept and _is_same_entry(after[name], before[name])):
                continue
            self.names.add(name)
            if not is_kept:
                self.unknown.add(name)


def run_method(
    scheduler: UserValue,
    method: str,
    prover: Prover,
    index: int,
    *,
    first: int,
    is_initial: bool | None = None,
) -> Traced:
    """Returns the result of a method for a param group, with the clock at the step.

    What the method assigns is unknown in a second run, which is refused where it uses that.

    Args:
        scheduler: The scheduler.
        method: The name of the method.
        prover: What decides comparisons.
        index: The index of the group.
        first: The first step.
        is_initial: Whether the constructor calls the method; at step 0 if None.

    Raises:
        TraceError: It depends on an entry of a param group that the method assigns.
    """
    call = _Call(scheduler, method, index, is_initial)
    writes = Writes()
    trace = call.run(prover, first, writes, Writes())
    if writes.names:
        again = call.run(prover, first, Writes(), writes)
        symbols = _symbols(again)
        for name in writes.names:
            if symbols & call.symbols_of(name).free_symbols:
                raise TraceError(
                    _state_reason(name),
                    where=f"{type(scheduler).__name__}, param group {index}",
                    hint=BY_A_FUNCTION,
                )
    return trace


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a method for one param group.

    Attributes:
        scheduler: The scheduler.
        method: The name of the method.
        index: The index of the group.
        is_initial: Whether the constructor calls it; at step 0 if None.
    """

    scheduler: UserValue
    method: str
    index: int
    is_initial: bool | None

    def symbols_of(self, name: str) -> sp.Tuple:
        """Symbols in the places of the numbers of an entry; none for one of other values."""
        value = entries_of(self.scheduler)[self.index].get(name)
        items = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
            return sp.Tuple()
        return sp.Tuple(
            *(internal_symbol(f"{name}_{place}", "entry", real=True) for place in range(len(items)))
        )

    def run(self, prover: Prover, first: int, writes: Writes, earlier: Writes) -> Traced:
        """Runs the method.

        Args:
            prover: What decides comparisons.
            first: The first step.
            writes: Gets what the method assigns.
            earlier: What earlier calls have assigned.
        """
        kind = type(self.scheduler)
        symbols = {name: self.symbols_of(name) for name in sorted(earlier.names)}

        def build(environment: Environment) -> Callable[[Number], Any]:
            # Without its constructor, which would take a step.
            stand_in: Any = object.__new__(kind)
            stand_in.__dict__.update({**vars(self.scheduler), "optimizer": None})
            instance = environment.wrap(stand_in)
            return lambda step: self._result(environment, instance, step, symbols, writes, earlier)

        place = place_of_function(getattr(kind, self.method))
        program = TracedProgram(kind.__name__, build, None, place, first)
        all_symbols = [PREVIOUS, *(symbol for entry in symbols.values() for symbol in entry)]
        # A variable of the scheduler may have the name of a symbol, but none with a space.
        return run_program(program, prover, {f"symbol {s.name}": s for s in all_symbols})

    def _result(
        self,
        environment: Environment,
        instance: Any,
        step: Number,
        symbols: Mapping[str, sp.Tuple],
        writes: Writes,
        earlier: Writes,
    ) -> Any:
        """The value of the group at a step."""
        rate = field_of(self.scheduler)
        previous = Number(environment.run, PREVIOUS)

        def value_of(name: str, value: Any) -> Any:
            """An entry as the method finds it: symbols where earlier calls have assigned it."""
            if name not in earlier.names:
                # A copy: the method may change a list in place.
                return list(value) if type(value) is list else _constant(environment, value)
            numbers = [Number(environment.run, symbol) for symbol in symbols[name]]
            if not numbers:  # It holds something else than numbers: any use of it is refused.
                return environment.refusing_object(_state_reason(name))
            return type(value)(numbers) if isinstance(value, list | tuple) else numbers[0]

        def refuse(name: str) -> BaseException:
            return environment.refuse(_state_reason(name), BY_A_FUNCTION)

        param_groups = [
            _Entries({**{k: value_of(k, v) for k, v in group.items()}, rate: previous})
            for group in entries_of(self.scheduler)
        ]
        entries_before = [
            {k: list(v) if type(v) is list else v for k, v in dict.items(group)}
            for group in param_groups
        ]
        for group in param_groups:
            group.unknown, group.refuse = set(earlier.unknown), refuse

        actual = self.scheduler.optimizer

        class Optimizer(types.SimpleNamespace):
            def __getattr__(self, name: str) -> Any:
                if name in earlier.unknown:
                    raise refuse(name)
                # Code that asks whether it is there would take another way.
                if hasattr(actual, name):
                    reason = f"the scheduler reads {name!r} of the optimizer: it has a state"
                    raise environment.refuse(reason, BY_A_FUNCTION)
                raise AttributeError(name)

        optimizer = Optimizer(param_groups=param_groups)
        environment.adopt(optimizer)
        set_attribute = functools.partial(object.__setattr__, instance)
        set_attribute("optimizer", optimizer)
        try:
            is_first = environment.run.first == 0
            return self._value(instance, step, set_attribute, param_groups, previous, is_first)
        finally:
            for before, group in zip(entries_before, param_groups, strict=True):
                writes.note(before, dict(dict.items(group)), rate)
            writes.note({"param_groups": param_groups}, vars(optimizer), "")

    def _value(
        self,
        instance: Any,
        step: Number,
        set_attribute: Callable[[str, Any], None],
        param_groups: list[_Entries],
        previous: Number,
        is_first: bool,
    ) -> Any:
        method = self.method
        if method in METHODS:
            values = getattr(instance, method)(step)
            return previous if values is None else of_group(values, self.index)
        set_attribute("last_epoch", step)
        set_attribute("_step_count", step + 1)
        set_attribute("_is_initial", is_first if self.is_initial is None else self.is_initial)
        set_attribute("_get_lr_called_within_step", True)
        if hasattr(self.scheduler, "_last_lr"):
            set_attribute("_last_lr", [previous] * len(param_groups))
        if method == "step":
            instance.step(step)
            return param_groups[self.index][field_of(self.scheduler)]
        return getattr(instance, method)()[self.index]


class _Entries(dict[str, Any]):
    """A param group, of which a call may not ask for an entry that earlier calls make or delete."""

    unknown: set[str]
    refuse: Callable[[str], BaseException]

    def __setitem__(self, name: str, value: UserValue) -> None:
        self.unknown.discard(name)
        super().__setitem__(name, value)

    def update(self, *args: Any, **entries: Any) -> None:
        """Assigns entries."""
        for name, value in dict(*args, **entries).items():
            self[name] = value


def _reading(method: str, *, is_of_all: bool) -> Callable[..., Any]:
    """A method of a dict that reads one entry, or all."""

    def read(self: _Entries, *args: Any) -> Any:
        names = self.unknown if is_of_all else self.unknown.intersection(args[:1])
        if names:
            raise self.refuse(min(names))
        return getattr(dict, method)(self, *args)

    return read


_OF_ONE = ("__getitem__", "__delitem__", "__contains__", "get", "pop", "setdefault")
_OF_ALL = ("__iter__", "__len__", "__eq__", "__or__", "__ior__", "keys", "values", "items", "copy")
for _method in (*_OF_ONE, *_OF_ALL):
    setattr(_Entries, _method, _reading(_method, is_of_all=_method in _OF_ALL))


def depends_on_previous(trace: Traced) -> bool:
    """Returns whether a value depends on the value before."""
    return any(PREVIOUS in cell.value.free_symbols for cell in trace.cells if cell.value)


def _symbols(trace: Traced) -> set[sp.Basic]:
    """The symbols on which a value, or a decision, depends."""
    values = [cell.value for cell in trace.cells if cell.value is not None]
    facts = [fact for outcome in trace.outcomes for fact in outcome.task.facts]
    return set().union(*(expr.free_symbols for expr in (*values, *facts)))


def _is_same_entry(value: Any, before: Any) -> bool:
    if type(value) is list and type(before) is list and len(value) == len(before):
        return all(map(is_same_constant, value, before))
    return is_same_constant(value, before)


def _state_reason(name: str) -> str:
    return f"the scheduler assigns {name!r} of the param groups or of the optimizer: it has a state"


def _constant(environment: Environment, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return environment.constant(value) if isinstance(value, int | float) else value
