"""The sandbox of a function of the step.

Numbers are exact and may be steps, containers are frozen copies, and an object whose methods are
called gets a subclass whose methods are rebuilt, and a copy of its attributes.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import random
import sys
import threading
import types
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.containers import local_array
from closedform.importers.python.exact import ExactInt, exact_constant, number_of
from closedform.importers.python.functions import (
    has_traced,
    known_functions,
    loaded_modules,
    traced_type,
)
from closedform.importers.python.number import Number, Truth, native_of, record
from closedform.importers.python.place import Place, Untraceable, UserValue
from closedform.importers.python.purity import (
    CONTAINER_TYPES,
    IMMUTABLE_TYPES,
    PURE,
    is_immutable,
    is_pure_function,
)
from closedform.importers.python.run import Run
from closedform.importers.python.sandbox import CACHED, HEAP_TYPE, MISSING, Module, Sandbox, is_same
from closedform.importers.python.tape import plain_value
from closedform.importers.python.text import Silent
from closedform.language import Schedule, t

_REFUSED: Mapping[str, str] = {
    "random": "draws random numbers",
    "secrets": "draws random numbers",
    "numpy.random": "draws random numbers",
    "time": "reads the time",
    "os": "reads the system",
    "io": "reads or writes a file",
    "subprocess": "runs a program",
    "socket": "uses the network",
}
"""Modules whose functions are not functions of the step."""

_REFUSED_NAMES = {
    "datetime": ("now", "today", "utcnow"),
    "torch": ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "load"),
}
_REFUSED_BUILTINS = {
    "open": "reads or writes a file",
    "input": "reads the keyboard",
    "breakpoint": "stops the program",
    "hash": "depends on the process",
    "globals": "gives variables outside of the function",
    "delattr": "deletes an attribute",
    **dict.fromkeys(("id", "memoryview"), "gives an address"),
    **dict.fromkeys(("eval", "exec", "compile"), "runs a text"),
    **dict.fromkeys(("locals", "vars", "dir"), "gives variables by their names"),
}


class Environment(Sandbox):
    """Wraps what a traced function uses.

    Args:
        run: The run of the function.
        symbols: The numbers that take the place of variables of the function, by name.
    """

    hint = state_hint = (
        "a schedule is a pure function of the step: compute the value before, and use it"
    )

    def __init__(self, run: Run, symbols: Mapping[str, Number]) -> None:
        super().__init__(run)
        self.run: Run = run
        self.symbols = symbols
        self.used: set[str] = set()
        self._codes: list[types.CodeType] = []
        self._objects: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []
        self._outer: set[int] = set()
        self._reads: set[tuple[int, str]] = set()
        self._writes: set[tuple[int, str]] = set()
        self._assigned: set[tuple[int, str]] = set()
        self._metaclasses: dict[type, type] = {}

    # --- runs --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Forgets what an earlier run assigned."""
        self._assigned.clear()
        for instance, attributes, slots in self._objects:
            _restore(instance, attributes, slots)

    def _import(self, *args: Any, **names: Any) -> Any:
        """Returns what ``__import__`` does; the function may be the first to import a module."""
        before = loaded_modules()
        module = super()._import(*args, **names)
        if loaded_modules() != before:
            self._functions = known_functions()
        return module

    def refuse(self, reason: str, hint: str, place: Place | None = None) -> Untraceable:
        """Returns the signal that ends the run."""
        return self.run.refuse(reason, hint, place)

    def note_silence(self, name: str) -> None:
        """Notes that a report of traced code is left out."""
        self.run.notes[f"{name} is left out ({self.run.place()})"] = None

    # --- values ------------------------------------------------------------------------------

    def variable(self, name: str, value: UserValue) -> Any:
        """Returns a variable of the function: a symbol where it is a hyperparameter."""
        if name in self.symbols:
            self.used.add(name)
            return self.symbols[name]
        return self.wrap(value)

    def constant(self, value: UserValue) -> Any:
        """Returns a number of Python with its exact value, and a text as it is."""
        if value is None or isinstance(value, bool | str | bytes | Number | Truth):
            return value
        if type(value) is int:
            return ExactInt(value)
        if type(value) is not float:
            return MISSING
        if not math.isfinite(value):
            return value
        exact = number_of(value)
        return exact_constant(value, self.run.prover.exact(value) if exact is None else exact)

    def special(self, value: UserValue) -> Any:
        """Returns a container, a known function, or what is refused."""
        # First of all: the attributes of a dict may be its keys.
        duplicate = self.copied_container(value)
        if duplicate is not None:
            return duplicate
        version = self.version(value)
        if version is not MISSING:
            return version
        reason = _refusal_reason(value)
        if reason is not None:
            return self.refusing_object(reason)
        if isinstance(value, Schedule):
            return self._of_schedule(value)
        return self._symbolic(value) if _is_symbolic(value) else MISSING

    def function(self, function: types.FunctionType) -> types.FunctionType:
        """Returns a function of Python rebuilt, whichever module it is of."""
        return self.rebuilt(function)

    def instance(self, value: UserValue) -> Any:
        """Returns an object, a function in C, or a mirror of an object of the user."""
        if isinstance(value, types.BuiltinMethodType) and not (
            isinstance(value.__self__, types.ModuleType | type | None)
            or is_immutable(value.__self__)
        ):
            return getattr(self.wrap(value.__self__), value.__name__)
        if is_immutable(value):
            return value
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return self.constant(value.item())
        if isinstance(value, torch_tensor_types()):
            return self.copied_tensor(value)
        if isinstance(value, _FUNCTIONS) or _is_dispatched(value):
            return self._in_c(value)
        return self._mirror_object(value)

    def _in_c(self, value: Any) -> Any:
        """A function in C: itself, if it is known to have no effects."""
        if not is_pure_function(value):
            owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
            module = getattr(owner, "__name__", None) or getattr(value, "__module__", None)
            name = f"{module or type(value).__name__}.{getattr(value, '__name__', value)}"
            return self.refusing_object(
                f"{name} is not known to be a function of only its arguments"
            )
        if str(getattr(value, "__module__", "")).partition(".")[0] != "numpy":
            return value

        def function(*args: UserValue, **names: UserValue) -> Any:
            natives = {key: native_of(arg) for key, arg in names.items()}
            return local_array(value(*map(native_of, args), **natives))

        function.native = value  # type: ignore[attr-defined]
        return function

    def kind(self, kind: type) -> Any:
        """Returns a class: numbers are made of steps; the methods of a user's class are rebuilt."""
        if kind.__module__ == "datetime":
            return Module(self, kind)
        if issubclass(kind, np.number | np.bool_ | Fraction | Decimal):
            return traced_type(kind, self.run)
        if kind in CONTAINER_TYPES or issubclass(kind, BaseException | Enum):
            if kind.__flags__ & HEAP_TYPE:
                self.watch(kind, f"the class {kind.__name__!r}")
            return kind
        if issubclass(kind, IMMUTABLE_TYPES) and not kind.__flags__ & HEAP_TYPE:
            return kind
        mirror = self._mirrored_class(kind) if kind.__module__ not in _REFUSED else None
        if mirror is not None:
            return mirror
        if kind.__module__ in ("abc", "collections.abc", "numbers", "typing", "builtins"):
            return kind
        return self.refusing_kind(kind, f"{kind.__qualname__} is not a class that can be traced")

    def _of_schedule(self, schedule: Schedule) -> Callable[[Any], Any]:
        """A schedule as a function of traced steps."""

        def at(step: UserValue) -> Any:
            if not isinstance(step, Number):
                return self.constant(schedule(step))
            expr = schedule.bound.xreplace({t: step.expr})
            return record(self.run, schedule, (step,), lambda: Number(self.run, expr))

        return at

    def _symbolic(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of SymPy or of this package: it gets the expressions of traced numbers."""

        def on_expressions(*args: UserValue, **names: UserValue) -> Any:
            if has_traced(args) or has_traced(names.values()):
                expressions = tuple(map(_as_expression, args))
                keywords = {key: _as_expression(value) for key, value in names.items()}
                result = function(*expressions, **keywords)
                if not isinstance(result, sp.Expr):
                    raise self.run.refuse(
                        f"a {type(result).__name__} of SymPy or closedform that depends on the step"
                    )
                return record(self.run, function, args, lambda: Number(self.run, result), names)
            result = function(*args, **names)
            return self.wrap(result) if isinstance(result, Schedule) else result

        return on_expressions

    # --- functions ---------------------------------------------------------------------------

    def cell_content(self, name: str, value: UserValue) -> Any:
        """Returns what a variable in a closure holds; ``super()`` reads the class in one."""
        if name == "__class__" and isinstance(value, type):
            return self._mirrored_class(value) or value
        return self.variable(name, value)

    def code(self, code: types.CodeType) -> types.CodeType:
        """Returns the code of a function with its constants wrapped."""
        new_code = code.replace(co_consts=tuple(map(self._code_constant, code.co_consts)))
        self._codes.append(new_code)  # an id is that of this code while it exists
        self.run.codes.add(id(new_code))
        return new_code

    def _code_constant(self, value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return self.code(value)
        if type(value) is float:
            return self.constant(value)
        if type(value) is tuple:
            return tuple(map(self._code_constant, value))
        return self.wrap(value) if isinstance(value, frozenset) else value

    # --- objects -----------------------------------------------------------------------------

    def _mirror_object(self, value: Any) -> Any:
        """An object with rebuilt methods and a copy of its attributes.

        Raises:
            Untraceable: It cannot be copied so: it may have a state.
        """
        kind = type(value)
        mirror = None if isinstance(value, _STATES) else self._mirrored_class(kind)
        try:
            if mirror is None:
                raise TypeError
            instance: Any = object.__new__(mirror) if kind is not _NAMESPACE else mirror()
        except TypeError:
            raise self.run.refuse(
                f"the function uses a {kind.__module__}.{kind.__qualname__}, "
                "which may have a state",
                hint="compute what it gives before, and use a list or a number",
            ) from None
        names = [name for base in kind.__mro__ for name in _slots(base)]
        slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
        attributes = dict(getattr(value, "__dict__", {}))
        _restore(instance, attributes, slots)
        self._objects.append((instance, attributes, slots))
        self._outer.add(id(instance))
        return instance

    def _mirrored_class(self, kind: type) -> type | None:
        """A subclass whose methods, also those that are inherited, are rebuilt."""
        is_python = bool(kind.__flags__ & HEAP_TYPE) or kind is _NAMESPACE
        if not is_python or issubclass(kind, type | BaseException | Enum):
            return None
        entry = self._known.get(id(kind))
        if entry is not None and entry[1] is not kind:
            existing: type = entry[1]
            return existing
        parents = [self._mirrored_class(base) for base in kind.__bases__]
        bases = (*(parent for parent in parents if parent is not None), kind)
        try:
            metaclass: Any = self._metaclass(type(kind))
            mirror: type = metaclass(kind.__name__, bases, {"__module__": kind.__module__})
        except TypeError:
            return None
        self._known[id(kind)] = (kind, mirror)
        self._known[id(mirror)] = (mirror, mirror)
        for name, member in list(vars(kind).items()):
            if isinstance(member, _MEMBERS) and name not in _OBSERVED:
                type.__setattr__(mirror, name, _Member(self, mirror, name, member))
        _observe(mirror, self)
        return mirror

    def _metaclass(self, kind: type) -> type:
        """A metaclass whose classes refuse to be changed, and wrap their attributes."""
        if issubclass(kind, _Guarded):
            return kind
        guarded_class = self._metaclasses.get(kind)
        if guarded_class is None:
            guarded_class = type("Class", (_Guarded, kind), {"environment": self})
            self._metaclasses[kind] = guarded_class
        return guarded_class

    def attribute(self, owner: UserValue, name: str, value: UserValue) -> Any:
        """Returns an attribute of a mirrored object, and notes that it was read."""
        if isinstance(value, types.MethodType) and value.__self__ is owner:
            return value
        key = (id(owner), name)
        if key[0] not in self._outer:  # an object that the function makes
            return value if name in _dict_of(owner) else self.wrap(value)
        if key in self._assigned:
            return value
        self._reads.add(key)
        self._check_state(key)
        return self.variable(name, value)

    def assign(self, owner: UserValue, name: str, value: UserValue) -> None:
        """Assigns an attribute of a mirrored object for the rest of the run.

        Raises:
            Untraceable: It is read before, on this path or on another one: the object has a state.
        """
        key = (id(owner), name)
        if key[0] in self._outer:
            self._assigned.add(key)
            is_constant = is_same_constant(value, _dict_of(owner).get(name, MISSING))
            if not is_constant or name in self.symbols:
                self._writes.add(key)
            self._check_state(key)
        object.__setattr__(owner, name, value)

    def _check_state(self, key: tuple[int, str]) -> None:
        if key in self._reads and key in self._writes:
            raise self.run.refuse(
                f"the function reads the attribute {key[1]!r} and then assigns it: it has a state",
                hint=self.hint,
            )

    # --- modules and builtins ----------------------------------------------------------------

    def module_member(self, module: types.ModuleType | type, name: str) -> Any:
        """Returns a member of a module for traced code."""
        value = getattr(module, name)
        reason = _REFUSED.get(module.__name__)
        constants = int | float | str | types.ModuleType | None
        if reason is not None and not isinstance(value, constants):
            return self.refusing_object(f"{module.__name__}.{name} {reason}")
        package = str(getattr(module, "__module__", module.__name__))
        if name in _REFUSED_NAMES.get(package, ()):
            use = "reads the time" if package == "datetime" else "draws random numbers"
            return self.refusing_object(f"{module.__name__}.{name} {use}")
        return self.wrap(value)

    def builtin(self, name: str) -> Any:
        """Returns a builtin for traced code."""
        if name in ("print", "setattr"):
            return Silent(name, self.note_silence) if name == "print" else setattr
        native = vars(builtins)[name]
        if self.version(native) is not MISSING:
            return self.wrap(native)
        reason = _REFUSED_BUILTINS.get(name)
        return PURE[name] if reason is None else self.refusing_object(f"{name} {reason}")


class _Guarded(type):
    """The class of mirrored classes."""

    environment: Environment

    def __setattr__(cls, name: str, value: UserValue) -> None:
        if not name.startswith(("__", "_abc")):
            raise cls.environment.run.refuse(
                f"the function assigns the attribute {name!r} of the class {cls.__name__!r}: "
                "it has a state",
                hint=cls.environment.hint,
            )
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        raise cls.environment.run.refuse(
            f"the function deletes the attribute {name!r} of the class {cls.__name__!r}",
            hint=cls.environment.hint,
        )

    def __getattribute__(cls, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith(("_", "mro")) or isinstance(value, types.MethodType):
            return value
        return type.__getattribute__(cls, "environment").variable(name, value)


def torch_tensor_types() -> tuple[type, ...]:
    """Returns the type of tensors, if torch is imported."""
    torch = sys.modules.get("torch")
    return () if torch is None or not hasattr(torch, "Tensor") else (torch.Tensor,)


def is_same_constant(value: UserValue, before: UserValue) -> bool:
    """Returns whether a value that is assigned is the constant that is there already."""
    return is_same(plain_value(value), plain_value(before))


def _dict_of(owner: Any) -> Mapping[str, Any]:
    """The attributes of an object that its class does not have."""
    with contextlib.suppress(AttributeError):
        return object.__getattribute__(owner, "__dict__")  # type: ignore[no-any-return]
    return {}


def _is_dispatched(value: Any) -> bool:
    """Whether a value is a function of NumPy or jax with a special type."""
    module = str(type(value).__module__).partition(".")[0]
    return callable(value) and module in ("numpy", "jax", "jaxlib")


_MEMBERS = (
    types.FunctionType, staticmethod, classmethod, property, functools.cached_property, CACHED,
)  # fmt: skip
_OBSERVED = ("__getattribute__", "__setattr__", "__new__", "__init_subclass__")
_NAMESPACE = types.SimpleNamespace
_STATES = (random.Random, threading.local)
"""Objects of Python classes that have a state."""
_FUNCTIONS = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, np.ufunc,
)  # fmt: skip


class _Member:
    """A member of a mirrored class, which is rebuilt when it is first used."""

    def __init__(self, environment: Environment, kind: type, name: str, member: Any) -> None:
        self._environment = environment
        self._kind = kind
        self._name = name
        self._member = member

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        method = self._environment.member(self._member)
        type.__setattr__(self._kind, self._name, method)
        return method.__get__(owner, kind)


def _slots(kind: type) -> tuple[str, ...]:
    """The attributes of a class that are not in the dict of its objects."""
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _restore(instance: Any, attributes: Mapping[str, Any], slots: Mapping[str, Any]) -> None:
    """Gives a mirrored object the attributes of the user's object."""
    namespace = object.__getattribute__(instance, "__dict__")
    namespace.clear()
    namespace.update(attributes)
    for name, value in slots.items():
        object.__setattr__(instance, name, value)


def _observe(kind: type, environment: Environment) -> None:
    """Lets an environment see the attributes that a class's objects read and assign."""

    def read(self: UserValue, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return value if name.startswith("__") else environment.attribute(self, name, value)

    def assign(self: UserValue, name: str, value: UserValue) -> None:
        environment.assign(self, name, value)

    type.__setattr__(kind, "__getattribute__", read)
    type.__setattr__(kind, "__setattr__", assign)


def _is_symbolic(value: Any) -> bool:
    """Whether a value is a class or function of SymPy, or of this package.

    A function that only states such a module, as in a doctest, is one of the user. Curves of
    frameworks are plain functions.
    """
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return False
    module = str(value.__module__)
    if module.startswith("closedform.frameworks.") and module.endswith(".curves"):
        return False
    place = value.__qualname__.partition(".")[0]
    is_member = hasattr(sys.modules.get(module), place)
    return is_member and module.partition(".")[0] in ("sympy", "closedform")


def _as_expression(value: Any) -> Any:
    if isinstance(value, Number):
        return value.expr
    if isinstance(value, Truth):
        return value.condition
    return type(value)(map(_as_expression, value)) if type(value) in (list, tuple) else value


def _refusal_reason(value: Any) -> str | None:
    """The reason why a value that is called is not a function of the step; None if it may be."""
    if isinstance(value, types.ModuleType | type) or not callable(value):
        return None
    module = getattr(value, "__module__", None)
    owner = getattr(value, "__self__", None)
    if owner is not None and module is None:
        module = type(owner).__module__
    name = getattr(value, "__name__", "")
    reason = _REFUSED.get(str(module))
    if str(module) in ("numpy.random.mtrand", "numpy.random._generator"):
        reason = _REFUSED["numpy.random"]
    if isinstance(owner, types.ModuleType | type) and reason is None:
        reason = _REFUSED.get(owner.__name__ if isinstance(owner, types.ModuleType) else "")
    if name in _REFUSED_NAMES.get(str(module).partition(".")[0], ()):
        reason = "draws random numbers"
    return None if reason is None else f"{module}.{name} {reason}"
