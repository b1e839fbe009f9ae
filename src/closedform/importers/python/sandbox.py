"""The sandbox of traced code: the same code, where everything that it uses is wrapped.

A function is made again from its code object; its globals, closure and defaults are wrapped when
they are first used, and the user's own objects are not changed. A value of the user is one object
in the sandbox, too. A subclass states the policy: which numbers carry expressions, which functions
have versions for them, and what is refused.
"""

from __future__ import annotations

import builtins
import copy
import dis
import functools
import logging
import operator
import types
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import numpy as np

from closedform.importers.python.containers import (
    TracedArray,
    TracedDeque,
    TracedDict,
    TracedList,
    TracedSet,
    TracedTuple,
    container_name,
    traced_copy,
)
from closedform.importers.python.decider import Decider
from closedform.importers.python.exact import ExactFloat, ExactFloat64, ExactInt
from closedform.importers.python.functions import (
    FOLDS,
    dispatcher,
    fold_builtin,
    has_traced,
    known_functions,
    traced_type,
)
from closedform.importers.python.identity import imported_answer, is_same_object, with_identity
from closedform.importers.python.number import Number, Truth, native_of, power_with_modulus
from closedform.importers.python.place import Place, UserValue
from closedform.importers.python.tape import plain_value
from closedform.importers.python.text import Silent

HEAP_TYPE = 1 << 9
"""The flag Py_TPFLAGS_HEAPTYPE of CPython, of types that are defined in Python."""
MISSING: Any = object()
"""The content of a variable without a value."""
CACHED = type(functools.cache(lambda: None))
"""The type of functions with a cache."""

_GLOBAL_STORES = ("STORE_GLOBAL", "DELETE_GLOBAL")
_CELL_STORES = ("STORE_DEREF", "DELETE_DEREF")
_ATTRIBUTE_STORES = ("STORE_ATTR", "DELETE_ATTR")


class Sandbox(ABC):
    """Wraps what traced code uses.

    Args:
        run: Decides on the numbers of the run.

    Attributes:
        subject: What is traced, for errors.
        outside: Where the user's other objects are, for errors.
        state_hint: The way out of a change of such an object.
    """

    subject = "the function"
    outside = "outside of it"
    state_hint: str
    hint: str
    """The way out of a use of something that is refused."""

    def __init__(self, run: Decider) -> None:
        self.run = run
        self._functions = known_functions()
        self._known: dict[int, tuple[Any, Any]] = {}
        self._cells: dict[int, tuple[types.CellType, types.CellType, str, Any]] = {}
        self._namespaces: dict[int, Namespace] = {}
        self._clones: list[types.FunctionType] = []
        self._watched: list[tuple[Any, Any, str]] = []
        self._signatures: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self._members: dict[type, dict[str, Any]] = {}
        self.builtins = Namespace(self.builtin)
        # import_name() of CPython 3.12 does not ask __missing__.
        self.builtins["__import__"] = self._import

    # --- policy ------------------------------------------------------------------------------

    @abstractmethod
    def refuse(self, reason: str, hint: str, place: Place | None = None) -> BaseException:
        """Returns the signal that ends the run, at a place or at the line that is running."""

    @abstractmethod
    def constant(self, value: UserValue) -> Any:
        """Returns what takes the place of a number or text; ``MISSING`` for other values."""

    @abstractmethod
    def special(self, value: UserValue) -> Any:
        """Returns what takes the place of a value with a rule of its policy, or ``MISSING``."""

    @abstractmethod
    def function(self, function: types.FunctionType) -> Any:
        """Returns what takes the place of a function of Python."""

    @abstractmethod
    def kind(self, kind: type) -> Any:
        """Returns what takes the place of a class."""

    @abstractmethod
    def instance(self, value: UserValue) -> Any:
        """Returns what takes the place of any other object."""

    @abstractmethod
    def code(self, code: types.CodeType) -> types.CodeType:
        """Returns the code of a function with its constants wrapped."""

    @abstractmethod
    def builtin(self, name: str) -> Any:
        """Returns a builtin for traced code.

        Raises:
            KeyError: There is none.
        """

    @abstractmethod
    def module_member(self, module: types.ModuleType | type, name: str) -> Any:
        """Returns a member of a module for traced code."""

    def variable(self, name: str, value: UserValue) -> Any:
        """Returns what a variable of a function holds."""
        return self.wrap(value)

    def cell_content(self, name: str, value: UserValue) -> Any:
        """Returns what a variable in a closure holds."""
        return self.variable(name, value)

    @abstractmethod
    def note_silence(self, name: str) -> None:
        """Notes that a report of traced code is left out."""

    # --- values ------------------------------------------------------------------------------

    def wrap(self, value: UserValue) -> Any:
        """Returns what takes the place of a value of the user."""
        constant = self.constant(value)
        if constant is not MISSING:
            return constant
        entry = self._known.get(id(value))
        if entry is None:
            # The value is stored next to its mirror, so that its id is not used again.
            entry = (value, self._mirror(value))
            self._known[id(value)] = entry
            self._known.setdefault(id(entry[1]), (entry[1], entry[1]))  # it is wrapped already
        return entry[1]

    def adopt(self, value: UserValue) -> None:
        """Lets traced code use, and change, an object that is made anew for each run."""
        self._known[id(value)] = (value, value)

    def _mirror(self, value: Any) -> Any:
        special = self.special(value)
        if special is not MISSING:
            return special
        if value is operator.is_ or value is operator.is_not:
            is_equal = value is operator.is_
            return lambda left, right: is_same_object(left, right, self.refuse) is is_equal
        if value is warnings.warn:
            return Silent("warnings.warn", self.note_silence)
        if isinstance(value, CACHED):
            # The cache would return the numbers of an earlier run.
            return self.wrap(value.__wrapped__)
        match value:
            case types.ModuleType():
                return Module(self, value)
            case logging.Logger() | logging.LoggerAdapter():
                return Silent("logger", self.note_silence)
            case types.FunctionType() if str(value.__module__).partition(".")[0] == "logging":
                return Silent(f"logging.{value.__name__}", self.note_silence)
            case types.FunctionType():
                return self.function(value)
            case type():
                return self.kind(value)
            case types.MethodType():
                return types.MethodType(self.wrap(value.__func__), self.wrap(value.__self__))
            case functools.partial():
                names = {key: self.variable(key, item) for key, item in value.keywords.items()}
                return functools.partial(
                    self.wrap(value.func), *map(self.wrap, value.args), **names
                )
            case staticmethod() | classmethod() | property() | functools.cached_property():
                return self.member(value)
        return self.instance(value)

    def member(self, member: UserValue) -> Any:
        """Returns a function, property or other member of a class with rebuilt functions."""
        match member:
            case types.FunctionType():
                return self.wrap(member)
            case staticmethod() | classmethod():
                return type(member)(self.wrap(member.__func__))
            case property():
                parts = (member.fget, member.fset, member.fdel)
                return property(*(part and self.wrap(part) for part in parts))
            # A property computes anew in each run; the cached value would stay in the object.
            case functools.cached_property():
                return property(self.wrap(member.func))
            case _ if isinstance(member, CACHED):
                return self.wrap(member.__wrapped__)
            case _:
                return member

    def refusing_object(self, reason: str) -> Refused:
        """Returns an object that is refused when it is used."""
        return Refused(lambda: self.refuse(reason, self.hint))

    def refusing_kind(self, kind: type, reason: str) -> RefusedKind:
        """Returns a class that can be asked about, and refuses to make objects."""
        refuse: Callable[[], BaseException] = lambda: self.refuse(reason, self.hint)  # noqa: E731
        return RefusedKind(kind.__name__, (), {"native": kind, "refuse": staticmethod(refuse)})

    def _import(self, *args: Any, **names: Any) -> Any:
        answer = imported_answer(args, self.refuse)
        return self.wrap(builtins.__import__(*args, **names)) if answer is None else answer

    # --- numbers -----------------------------------------------------------------------------

    def version(self, value: UserValue) -> Any:
        """Returns a function or type of Python for traced numbers; ``MISSING`` for other values."""
        # By id: an equal function is not the same one, and some are not hashable.
        name, implementation, is_of_torch = self._functions.get(id(value), ("", None, False))
        is_tensor_function = is_of_torch and not self.run.is_exact
        if implementation is not None and not (is_tensor_function or isinstance(value, type)):
            return dispatcher(value, name, implementation, self.run, is_single=is_of_torch)
        if value in (bool, int, float):
            return traced_type(value, self.run)
        if isinstance(value, types.BuiltinFunctionType):
            implementation = FOLDS.get(value)
            if implementation is not None:
                return fold_builtin(value, implementation, self.run)
            if value in (isinstance, issubclass, hasattr, getattr, pow):
                return getattr(self, value.__name__)
        return type_of(self) if value is type else MISSING

    def pow(self, base: UserValue, exp: UserValue, mod: UserValue = None) -> Any:
        """Returns ``pow`` for traced code."""
        if mod is None:
            return base**exp
        if has_traced((base, exp, mod)):
            return power_with_modulus(self.run, base, exp, mod)
        return pow(plain_value(base), plain_value(exp), plain_value(mod))

    def native_class(self, kind: UserValue) -> Any:
        """Returns the class, or the tuple of classes, that a stand-in takes the place of."""
        if isinstance(kind, tuple | types.UnionType):
            members = kind if isinstance(kind, tuple) else kind.__args__
            return tuple(map(self.native_class, members))
        return native_of(kind)

    def isinstance(self, value: UserValue, kind: UserValue) -> bool:
        """Returns ``isinstance`` for traced code."""
        if isinstance(value, Number | Truth):
            return issubclass(value.kind, self.native_class(kind))
        return isinstance(value, kind)

    def issubclass(self, value: UserValue, kind: UserValue) -> bool:
        """Returns ``issubclass`` for traced code."""
        return issubclass(self.native_class(value), self.native_class(kind))

    def hasattr(self, owner: UserValue, name: str) -> bool:
        """Returns ``hasattr`` for traced code."""
        if isinstance(owner, Number | Truth):
            return hasattr(owner.kind, name)
        return hasattr(owner, name)

    def getattr(self, owner: UserValue, name: str, *default: UserValue) -> Any:
        """Returns ``getattr`` for traced code."""
        if isinstance(owner, Number | Truth) and not hasattr(owner.kind, name):
            if default:
                return default[0]
            raise AttributeError(f"'{owner.kind.__name__}' object has no attribute '{name}'")
        return getattr(owner, name, *default)

    def kind_of(self, value: UserValue) -> Any:
        """Returns what ``type`` of a value gives."""
        if isinstance(value, Number | Truth):
            return self.wrap(value.kind)
        natives = (native for mirror, native in _NATIVES.items() if type(value) is mirror)
        return self.wrap(next(natives, type(value)))

    # --- functions ---------------------------------------------------------------------------

    def rebuilt(self, function: types.FunctionType) -> types.FunctionType:
        """Returns a function with the same code in this sandbox."""
        entry = self._known.get(id(function))
        if entry is not None:
            return entry[1]  # type: ignore[no-any-return]
        variables = function.__globals__
        namespace = self._namespaces.get(id(variables))
        if namespace is None:
            namespace = Namespace(lambda name: self.variable(name, variables[name]))
            namespace["__builtins__"] = namespace.loaded["__builtins__"] = self.builtins
            self._namespaces[id(variables)] = namespace
        code = with_identity(function.__code__, self.refuse)
        for inner in all_codes(code):
            for name in stored_names(inner, ("DELETE_GLOBAL",)).keys() & variables.keys():
                namespace.__getitem__(name)  # del does not ask __missing__
        return self._clone(function, self.code(code), namespace)

    def with_closure(self, function: types.FunctionType) -> types.FunctionType:
        """Returns a function of a library; the functions that it was given are rebuilt."""
        contents = [_content(cell) for cell in function.__closure__ or ()]
        if not any(isinstance(item, types.FunctionType | types.MethodType) for item in contents):
            return function
        return self._clone(function, function.__code__, function.__globals__)

    def _clone(
        self, function: types.FunctionType, code: types.CodeType, variables: dict[str, Any]
    ) -> types.FunctionType:
        originals = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        # Functions that share a variable share its new cell, which the first of them fills.
        new = {name: cell for name, cell in originals.items() if id(cell) not in self._cells}
        for name, cell in new.items():
            self._cells[id(cell)] = (cell, types.CellType(), name, MISSING)
        cells = tuple(self._cells[id(cell)][1] for cell in originals.values()) or None
        clone = types.FunctionType(code, variables, function.__name__, None, cells)
        # A function may call itself: it is known before what it uses is wrapped.
        self._known[id(function)] = (function, clone)
        self._known[id(clone)] = (clone, clone)
        self._clones.append(clone)
        clone.__qualname__ = function.__qualname__
        clone.__module__ = function.__module__
        defaults = function.__defaults__
        if defaults is not None:
            names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
            clone.__defaults__ = tuple(map(self.variable, names, defaults))
        if function.__kwdefaults__:
            clone.__kwdefaults__ = {
                name: self.variable(name, value) for name, value in function.__kwdefaults__.items()
            }
        for name, cell in new.items():
            content = _content(cell)
            new_cell = self._cells[id(cell)][1]
            if content is not MISSING:
                new_cell.cell_contents = self.cell_content(name, content)
            self._cells[id(cell)] = (cell, new_cell, name, _content(new_cell))
        vars(clone).update((name, self.wrap(value)) for name, value in vars(function).items())
        self.watch(vars(clone), f"the function {clone.__name__!r}")
        self._signatures.append((clone, _signature(clone)))
        return clone

    def copied_container(self, value: UserValue) -> Any:
        """Returns a copy of a container, which a run may not change; None for anything else."""
        duplicate = traced_copy(value, self.change_error, self.wrap)
        # NumPy itself refuses to change an array.
        if duplicate is not None and not isinstance(duplicate, np.ndarray):
            self.watch(duplicate, container_name(duplicate))
        return duplicate

    def copied_tensor(self, tensor: UserValue) -> Any:
        """Returns a copy of a tensor, with its gradient, which a run may not change."""
        duplicate = copy.deepcopy(tensor) if tensor.is_leaf else tensor.detach().clone()
        self.watch(duplicate, "a tensor")
        self.watch(vars(duplicate), "a tensor")
        return duplicate

    # --- changes -----------------------------------------------------------------------------

    def watch(self, owner: UserValue, name: str) -> None:
        """Refuses, after a run, that an object has changed.

        Args:
            owner: A container, the attributes of an object, a class, or a tensor.
            name: Its name in the error; that of the object for attributes.
        """
        if isinstance(owner, type):
            self.keep_members(owner)
        self._watched.append((owner, _snapshot(_state_of(owner)), name))

    def keep_members(self, kind: type) -> None:
        """Keeps what a class has, for :meth:`restore_members`."""
        self._members.setdefault(kind, dict(vars(kind)))

    def restore_members(self) -> None:
        """Gives the classes that are watched the members that they had before."""
        for kind, members in self._members.items():
            for name in {**members, **vars(kind)}:
                if vars(kind).get(name, MISSING) is members.get(name, MISSING):
                    continue
                # Past a metaclass with a __setattr__ of the user.
                if name in members:
                    type.__setattr__(kind, name, members[name])
                else:
                    type.__delattr__(kind, name)
        self._members.clear()

    def check_unchanged(self) -> None:
        """Raises the signal of :meth:`refuse` if the run has changed anything outside of it."""
        for owner, before, name in self._watched:
            state = _state_of(owner)
            if is_same(state, before):
                continue
            if type(state) is not dict:
                raise self.change_error(name)
            attribute = next(
                key
                for key in {**before, **state}
                if not is_same(state.get(key, MISSING), before.get(key, MISSING))
            )
            place = self._place_of(attribute, self._clones, _ATTRIBUTE_STORES)
            raise self.change_error(f"the attribute {attribute!r} of {name}", place)
        for clone, before in self._signatures:
            if not all(map(operator.is_, _signature(clone), before)):
                raise self.change_error(f"the code or a default of the function {clone.__name__!r}")
        for _, cell, name, before in self._cells.values():
            if _content(cell) is not before:
                functions = [
                    f for f in self._clones if any(cell is own for own in f.__closure__ or ())
                ]
                raise self._assignment_error(name, functions, _CELL_STORES)
        for namespace in self._namespaces.values():
            for name in namespace.changed_names():
                functions = [f for f in self._clones if f.__globals__ is namespace]
                raise self._assignment_error(name, functions, _GLOBAL_STORES)

    def change_error(self, name: str, place: Place | None = None) -> BaseException:
        """Returns the signal of a change of an object of the user."""
        return self.refuse(
            f"{self.subject} changes {name} that exists {self.outside}", self.state_hint, place
        )

    def _assignment_error(
        self, name: str, functions: Iterable[types.FunctionType], stores: tuple[str, ...]
    ) -> BaseException:
        return self.refuse(
            f"{self.subject} assigns {name!r}, a variable {self.outside}",
            self.state_hint,
            self._place_of(name, functions, stores),
        )

    def _place_of(
        self, name: str, functions: Iterable[types.FunctionType], stores: tuple[str, ...]
    ) -> Place | None:
        """The first line of functions that assigns a name by some instructions."""
        return next(
            (
                Place.of(code, line)
                for function in functions
                for code in all_codes(function.__code__)
                for line in [stored_names(code, stores).get(name)]
                if line is not None
            ),
            None,
        )


class Namespace(dict[str, Any]):
    """Variables of rebuilt functions, of which each is wrapped when it is first used.

    Args:
        resolve: Returns the value of a variable.
    """

    def __init__(self, resolve: Callable[[str], Any]) -> None:
        super().__init__()
        self._resolve = resolve
        self.loaded: dict[str, Any] = {}

    def __missing__(self, name: str) -> Any:
        value = self._resolve(name)
        self[name] = self.loaded[name] = value
        return value

    def changed_names(self) -> Iterator[str]:
        """Yields the variables that were assigned or deleted."""
        for name in {**self.loaded, **self}:
            # A warning leaves __warningregistry__ in the module that it names.
            if name != "__warningregistry__" and self.get(name, MISSING) is not self.loaded.get(
                name, MISSING
            ):
                yield name


class Module:
    """A module, or a class of dates, whose members are wrapped when they are used."""

    def __init__(self, sandbox: Sandbox, module: types.ModuleType | type) -> None:
        vars(self).update(_sandbox=sandbox, _module=module)

    def __getattr__(self, name: str) -> Any:
        sandbox: Sandbox = vars(self)["_sandbox"]
        return sandbox.module_member(vars(self)["_module"], name)

    def __setattr__(self, name: str, *value: UserValue) -> None:
        sandbox: Sandbox = vars(self)["_sandbox"]
        change, module = "assigns" if value else "deletes", vars(self)["_module"].__name__
        raise sandbox.refuse(f"{sandbox.subject} {change} {name!r} of {module}", sandbox.state_hint)

    __delattr__ = __setattr__


class Refused:
    """An object that is refused when it is used.

    Args:
        refuse: Returns the signal.
    """

    def __init__(self, refuse: Callable[[], BaseException]) -> None:
        vars(self)["_refuse"] = refuse

    def __getattr__(self, name: str) -> Any:
        raise vars(self)["_refuse"]()

    def __setattr__(self, name: str, value: UserValue) -> None:
        raise vars(self)["_refuse"]()

    def __deepcopy__(self, memo: object) -> Refused:
        return self


class RefusedKind(type):
    """A class that can be asked about, and refuses to make objects."""

    native: type
    refuse: Callable[[], BaseException]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.native)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.native)

    def __call__(cls, *_: Any, **__: Any) -> Any:
        """Refuses to make an object."""
        raise cls.refuse()

    def __getattr__(cls, name: str) -> Any:
        raise cls.refuse()


def type_of(sandbox: Sandbox) -> type:
    """Returns the class in the place of ``type``, which is ``int`` of a step."""

    class Kind(type):
        def __call__(cls, *args: Any, **names: Any) -> Any:
            if len(args) == 1 and not names:
                return sandbox.kind_of(args[0])
            return type(*args, **names)

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, type)

    return Kind("type", (type,), {"native": type})


_NATIVES = {
    ExactInt: int, ExactFloat: float, ExactFloat64: np.float64, TracedArray: np.ndarray,
    TracedList: list, TracedDeque: deque, TracedTuple: tuple, TracedDict: dict, TracedSet: set,
}  # fmt: skip


_USES = """
call iter next len bool getitem setitem contains add radd sub rsub mul rmul truediv rtruediv lt le
gt ge eq ne hash float int index enter exit str repr format iadd matmul neg abs
"""


def _use(self: Refused, *_: Any, **__: Any) -> Any:
    raise vars(self)["_refuse"]()


for _name in _USES.split():
    setattr(Refused, f"__{_name}__", _use)


# --- objects that stay the same -------------------------------------------------------------------


def _signature(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def _state_of(owner: Any) -> Any:
    """The part of an object that a run could change."""
    if isinstance(owner, type):
        # An Enum keeps members that are made by `|` in _value2member_map_; annotations are cached.
        prefixes = ("_",) if issubclass(owner, Enum) else ("__annotat", "_abc")
        return {k: v for k, v in vars(owner).items() if not k.startswith(prefixes)}
    # torch counts writes in place to each tensor.
    return owner._version if hasattr(type(owner), "_version") else owner


_SEQUENCES = (list, tuple, deque, TracedList, TracedTuple, TracedDeque)


def _snapshot(value: Any) -> Any:
    """A copy of containers; the objects in them are the same."""
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in dict.items(value)}
    if type(value) in _SEQUENCES:
        return list(map(_snapshot, value))
    return set(value) if isinstance(value, set) else value


def is_same(value: UserValue, snapshot: UserValue) -> bool:
    """Returns whether a value is what it was when a snapshot of it was made."""
    if value is snapshot:
        return True
    if isinstance(value, dict):
        return (
            isinstance(snapshot, dict)
            and list(value) == list(snapshot)
            and all(map(is_same, dict.values(value), snapshot.values()))
        )
    if type(value) in _SEQUENCES:
        if not isinstance(snapshot, list) or len(value) != len(snapshot):
            return False
        # Long tables of numbers first, without a call for each.
        return all(map(operator.is_, value, snapshot)) or all(map(is_same, value, snapshot))
    if isinstance(value, set):
        return bool(set.__eq__(value, snapshot))
    if type(value) in (int, float, str, bool):
        return type(value) is type(snapshot) and repr(value) == repr(snapshot)
    return False


def all_codes(code: types.CodeType) -> list[types.CodeType]:
    """Returns a code and the codes of the functions that are defined in it."""
    codes = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            codes += all_codes(constant)
    return codes


def stored_names(code: types.CodeType, ops: tuple[str, ...]) -> dict[str, int]:
    """Returns the names that a code assigns by some instructions, with the line of the first."""
    opcodes = {dis.opmap[name] for name in ops}
    if not opcodes & set(code.co_code[::2]):
        return {}
    lines: dict[str, int] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        if instruction.opname in ops:
            lines.setdefault(str(instruction.argval), line)
    return lines
