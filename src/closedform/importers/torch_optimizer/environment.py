"""An allow-list of the objects that the code of an optimizer may touch while its step is traced.

Every function of the optimizer, of its bases and of what they call is rebuilt: the same code, with
globals, closures and defaults that are wrapped when they are first used. A value is wrapped into
what carries expressions (``math.sqrt``, ``max``, ``float``), stays what it is (constants,
functions of torch, which the modes of ``interpreter`` see, and pure functions of Python), or is
refused when it is used: a clock, random numbers, the address of an object, a file. What is on no
list is refused.

Functions and variables outside of the optimizer are constants: containers are copied, and a run
that changes a copy, a variable of a module, of a closure or of a class is refused, since the rule
has no place for such a state.
"""

from __future__ import annotations

import builtins
import enum
import functools
import itertools
import logging
import math
import operator
import re
import sys
import types
import typing
import warnings
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from closedform.code_files import files_of, is_in_standard_library, is_standard
from closedform.errors import TraceError
from closedform.importers.python.identity import imported_answer, with_identity
from closedform.importers.python.place import UserValue
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.numpy_scalars import NUMPY_TYPES
from closedform.importers.torch_optimizer.place import TORCH_FILES
from closedform.importers.torch_optimizer.positions import (
    Owners,
    counting_len,
    position_enumerate,
    position_range,
)
from closedform.importers.torch_optimizer.reported import Reported
from closedform.importers.torch_optimizer.scalars import FUNCTIONS, SYMBOLIC
from closedform.importers.torch_optimizer.subject import (
    PURE_MODULES,
    is_member,
    is_of_library,
    is_plain_object,
)
from closedform.importers.torch_optimizer.texts import (
    guard_text,
    has_traced,
    hides_formats,
    with_guarded_texts,
)

# Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE of CPython.
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8
"""The flags of types that are defined in Python, and of those whose members cannot change."""

_HINT = "a rule is a function of parameter, gradient, states, step and hyperparameters"

_CONSTANTS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(Ellipsis),
    type(NotImplemented),
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    re.Pattern,
    typing.TypeVar,
)
"""Types whose objects do not change and do nothing."""

_TYPES: frozenset[Any] = frozenset(
    {
        bool,
        str,
        bytes,
        list,
        dict,
        tuple,
        set,
        frozenset,
        object,
        slice,
        property,
        super,
        staticmethod,
        classmethod,
        map,
        filter,
        zip,
        reversed,
        deque,
        defaultdict,
        OrderedDict,
        Counter,
        ChainMap,
        torch.Tensor,
        torch.nn.Parameter,
        torch.Size,
        torch.dtype,
        torch.device,
        torch.iinfo,
        types.FunctionType,
        types.MethodType,
        types.ModuleType,
        types.NoneType,
        types.GenericAlias,
        itertools.chain,
        itertools.islice,
        itertools.product,
        itertools.repeat,
        itertools.starmap,
        itertools.compress,
        itertools.takewhile,
        itertools.dropwhile,
        itertools.zip_longest,
        itertools.pairwise,
        functools.partial,
        operator.attrgetter,
        operator.itemgetter,
        operator.methodcaller,
    }
)
"""Types of C whose objects hold values and do nothing else."""

_BUILTINS = frozenset(
    {
        abs,
        all,
        any,
        callable,
        delattr,
        dir,
        divmod,
        format,
        getattr,
        hasattr,
        isinstance,
        issubclass,
        iter,
        next,
        pow,
        repr,
        round,
        setattr,
        sorted,
        vars,
        builtins.__build_class__,
        functools.reduce,
    }
)
"""Functions of C that reach a number by its methods, or that do not take numbers."""

_NUMBER_MODULES = frozenset({"math", "cmath", "bisect", "heapq", "_bisect", "_heapq", "numpy"})
"""Modules of functions that are pure, and that would take a number without its expression."""

_TRACED_PARTS_OF_TORCH = frozenset(
    {
        "__init__",
        "_compile",
        "_dynamo",
        "_foreach_utils",
        "_jit_internal",
        "_linalg_utils",
        "_tensor",
        "_utils",
        "_utils_internal",
        "_higher_order_ops",
        "amp",
        "autograd",
        "backends",
        "compiler",
        "distributed",
        "functional",
        "jit",
        "linalg",
        "nn",
        "optim",
        "overrides",
        "special",
        "utils",
    }
)
"""Modules of torch whose functions see only their arguments, and whose operations are traced."""

_TORCH_QUESTIONS = frozenset(
    {
        "is_autocast_enabled",
        "is_grad_enabled",
        "is_inference_mode_enabled",
        "is_available",
        "is_current_stream_capturing",
        "is_initialized",
        "is_built",
        "_get_tracing_state",
        "_is_tracing",
        "_cuda_isCurrentStreamCapturing",
        "_log_api_usage_once",
        "_set_grad_enabled",
        "set_grad_enabled",
    }
)
"""Functions of torch without tensors whose answers are of the machine or of the mode."""

_NOT_OF_DATA = frozenset({"from_numpy", "frombuffer", "from_file", "load", "manual_seed"})
"""Functions of torch whose results depend on something other than their tensors."""

_TORCH_MODULES = frozenset({"torch._C._nn", "torch._C._linalg", "torch._C._special"})


class Environment:
    """Wraps what the code of an optimizer uses in one run.

    Args:
        run: The run.
        owners: Which parameter a tensor belongs to.
        reported: The dtype that the parameters have.
    """

    def __init__(self, run: Run, owners: Owners, precision: Reported) -> None:
        self.run = run
        self._replaced = {
            # By id: an equal function is not the same one, and some are not hashable.
            **_REPLACED,
            id(len): counting_len(run, owners),
            id(range): position_range(run),
            id(enumerate): position_enumerate(run, owners),
        }
        self._reported = precision
        self._known: dict[int, tuple[Any, Any]] = {}
        self._namespaces: dict[int, Namespace] = {}
        self._cells: dict[int, tuple[types.CellType, types.CellType, str, Any]] = {}
        self._classes: dict[type, dict[str, Any]] = {}
        self._copies: list[tuple[Any, Any, str]] = []
        self._objects: list[tuple[dict[str, Any], dict[str, Any], str]] = []
        self._tensors: list[tuple[torch.Tensor, int]] = []
        self._undone: list[tuple[type, str, Any]] = []
        self._rebuilt: list[tuple[types.FunctionType, dict[str, Any]]] = []
        self.builtins = _Builtins(self)

    @contextmanager
    def enter(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Wraps what a copy of an optimizer and its classes hold; the classes are restored."""
        try:
            for kind in type(optimizer).__mro__:
                self._patch(kind)
            self.adopt(vars(optimizer))
            finfo: Any = torch.finfo
            # Optimizers read eps of the parameters' dtype, which is not the one that the trace runs
            # in.
            torch.finfo = self._reported.finfo  # type: ignore[misc, assignment]
            try:
                with _torch_modules():
                    yield
            finally:
                torch.finfo = finfo  # type: ignore[misc]
        finally:
            for kind, name, value in reversed(self._undone):
                type.__setattr__(kind, name, value)

    def check_unchanged(self) -> None:
        """Refuses a run that has changed a variable outside of the optimizer.

        Raises:
            TraceError: It has; the message names the variable.
        """
        for namespace in self._namespaces.values():
            for name, value in namespace.items():
                if name != "__builtins__" and namespace.loaded.get(name, _MISSING) is not value:
                    raise self._change_error(f"the variable {name!r} of a module")
        for _, cell, name, before in self._cells.values():
            if _content(cell) is not before:
                raise self._change_error(f"{name!r}, a variable outside of its functions")
        for kind, members in self._classes.items():
            for name, value in vars(kind).items():
                if members.get(name, _MISSING) is not value and not _is_dunder(name):
                    raise self._change_error(f"the attribute {name!r} of the class {kind.__name__}")
        for copy, original, name in self._copies:
            if not _is_same(copy, original):
                raise self._change_error(f"a {name} that exists outside of the optimizer")
        for attributes, before, name in self._objects:
            if not _is_same(attributes, before):
                raise self._change_error(f"an object of the class {name}")
        for tensor, version in self._tensors:
            # torch counts writes in place to each tensor.
            if tensor._version != version:
                raise self._change_error("a tensor that exists outside of the optimizer")
        for function, attributes in self._rebuilt:
            if not _is_same(function.__dict__, attributes):
                raise self._change_error(f"an attribute of the function {function.__name__}")

    def _change_error(self, target: str) -> TraceError:
        return self.run.refuse(
            f"the step changes {target}", hint="keep states in self.state[p] or in the param group"
        )

    # --- values ------------------------------------------------------------------------------

    def adopt(self, container: UserValue) -> None:
        """Wraps the functions and objects that the optimizer stores, in place."""
        self._adopt(container, set())

    def _adopt(self, container: Any, visited_ids: set[int]) -> None:
        if id(container) in visited_ids:
            return
        visited_ids.add(id(container))
        entries: Iterator[tuple[Any, Any]] = (
            iter(list(container.items()))
            if isinstance(container, dict)
            else iter(list(enumerate(container)))
        )
        for key, value in entries:
            if isinstance(value, str | bytes):
                if guard_text(value, self.run) is not value:
                    container[key] = guard_text(value, self.run)
                continue
            if value is None or isinstance(value, (*_CONSTANTS, torch.Tensor)):
                continue
            if isinstance(value, dict | list | deque):
                self._adopt(value, visited_ids)
            elif isinstance(value, torch.optim.Optimizer):
                continue
            elif is_plain_object(value):
                self._patch(type(value))
                self._adopt(vars(value), visited_ids)
            elif isinstance(container, dict | list | deque):
                mirror = self.wrap(value)
                if mirror is not value:
                    container[key] = mirror

    def wrap(self, value: UserValue) -> Any:
        """Returns what takes the place of a value of the user."""
        if isinstance(value, str | bytes):
            return guard_text(value, self.run)
        if value is None or isinstance(value, (*_CONSTANTS, *SYMBOLIC)):
            return value
        entry = self._known.get(id(value))
        if entry is None:
            # The value is stored next to its mirror, so that its id is not used again.
            entry = (value, self._mirror_value(value))
            self._known[id(value)] = entry
            self._known.setdefault(id(entry[1]), (entry[1], entry[1]))  # it is wrapped already
        return entry[1]

    def _mirror_value(self, value: Any) -> Any:
        replacement = self._replaced.get(id(value))
        if replacement is not None:
            return replacement
        if isinstance(value, torch.Tensor):
            self._tensors.append((value, value._version))
            return value
        match value:
            case types.ModuleType():
                return Module(self, value)
            case type():
                return self._type(value)
            case types.FunctionType():
                return self._function(value)
            case types.MethodType(__self__=Reported()):
                return value
            case types.MethodType():
                return types.MethodType(self.wrap(value.__func__), self.wrap(value.__self__))
            case functools.partial():
                names = {key: self.wrap(item) for key, item in value.keywords.items()}
                return functools.partial(
                    self.wrap(value.func), *map(self.wrap, value.args), **names
                )
            case _Refused() | Module():
                return value
            case logging.Logger() | logging.LoggerAdapter():
                # A message would need the text of a number.
                return _Silent()
            case enum.Enum() | np.ufunc() | property() | BaseException():
                return value
            case classmethod():
                return classmethod(self.wrap(value.__func__))
            case staticmethod():
                return staticmethod(self.wrap(value.__func__))
        # A cache would return the symbols of an earlier run.
        if isinstance(value, _CACHED):
            return self.wrap(value.__wrapped__)
        if _module_of(type(value)) in ("typing", "types", "typing_extensions"):
            return value
        if type(value) in _COPIED:
            return self._copy(value)
        if isinstance(value, np.generic):
            return value.item() if isinstance(value, np.bool_ | np.integer) else value
        if _is_of_torch(type(value)):
            return value
        if callable(value) and not is_plain_object(value):
            return self._callable(value)
        if is_plain_object(value):
            self._patch(type(value))
            attributes = vars(value)
            self._objects.append((attributes, _snapshot(attributes), type(value).__name__))
            return value
        return self._refusal(f"an object of the type {_name_of(type(value))}")

    def _refusal(self, subject: str) -> Any:
        return _Refused(self.run, subject)

    def _copy(self, value: Any) -> Any:
        if isinstance(value, dict):
            items = {self.wrap(key): self.wrap(item) for key, item in value.items()}
            if isinstance(value, defaultdict):
                copy: Any = defaultdict(value.default_factory, items)
            else:
                copy = type(value)(items)
        elif isinstance(value, set | frozenset):
            copy = value.copy()
        else:
            copy = type(value)(map(self.wrap, value))
        self._copies.append((copy, _snapshot(copy), type(value).__name__))
        return copy

    def _callable(self, value: Any) -> Any:
        """A function of C, or an object that is called."""
        if value in _BUILTINS:
            return value
        name = _name_of(value)
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None)
        if module is None and isinstance(owner, types.ModuleType):
            module = owner.__name__
        if isinstance(owner, str | bytes | tuple | type):
            return self._without_numbers(value, name)
        root = str(module).partition(".")[0]
        if root == "torch":
            return self._of_torch(value, str(module), name)
        if module in PURE_MODULES:
            return value
        if module in _NUMBER_MODULES:
            return self._without_numbers(value, name)
        return self._refusal(name)

    def _of_torch(self, value: Any, module: str, name: str) -> Any:
        short = str(getattr(value, "__name__", ""))
        is_operation = getattr(torch._C._VariableFunctions, short, None) is value
        if (is_operation or module in _TORCH_MODULES) and short not in _NOT_OF_DATA:
            return value
        if short in _TORCH_QUESTIONS:
            return value
        if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return value
        # torch._dynamo.disable and functools.wraps leave the function in these attributes.
        if hasattr(value, "_torchdynamo_orig_callable") or hasattr(value, "__wrapped__"):
            return self.wrap(
                getattr(value, "_torchdynamo_orig_callable", None) or value.__wrapped__
            )
        return self._refusal(name)

    def _without_numbers(self, function: Callable[..., Any], name: str) -> Any:
        """A pure function that has no version for numbers with expressions."""

        def apply(*args: Any, **options: Any) -> Any:
            if has_traced((args, options)):
                raise self.run.refuse(f"{name} of a number or tensor of the step is not traced")
            return function(*args, **options)

        return apply

    # --- functions and classes ---------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> Any:
        file = function.__code__.co_filename
        module = str(function.__module__)
        root = module.partition(".")[0]
        parts = TORCH_FILES.parts_of(file)
        if parts is not None:
            is_question = function.__name__ in _TORCH_QUESTIONS
            if not is_question and parts[0].removesuffix(".py") not in _TRACED_PARTS_OF_TORCH:
                return self._refusal(_name_of(function))
            return self._with_closure(function)
        if file in _OWN_FILES:
            return function
        if function is warnings.warn or root == "logging":
            return _Silent()
        if root in sys.stdlib_module_names and is_in_standard_library(file):
            if module in PURE_MODULES:
                return self._with_closure(function)
            return self._refusal(_name_of(function))
        if root in ("closedform", "sympy") and file in files_of(root):
            return self._without_numbers(function, _name_of(function))
        if root == "numpy" and file in files_of(root):
            return self._refusal(_name_of(function))
        return self._rebuild(function)

    def _rebuild(self, function: types.FunctionType) -> Any:
        if hides_formats(function.__code__):
            return self._refusal(f"{function.__name__}, which formats by a text that it makes")
        variables = function.__globals__
        namespace = self._namespaces.get(id(variables))
        if namespace is None:
            namespace = self._namespaces[id(variables)] = Namespace(self, variables)
        code = with_identity(with_guarded_texts(function.__code__, self.run), self.run.refuse)
        # Defaults and cells are wrapped later: they may refer to the function itself.
        clone = types.FunctionType(
            code, namespace, function.__name__, None, self._closure(function)
        )
        return self._complete(clone, function)

    def _with_closure(self, function: types.FunctionType) -> types.FunctionType:
        """A function of a library; what it was given to call is rebuilt."""
        contents = [_content(cell) for cell in function.__closure__ or ()]
        if not any(
            isinstance(content, types.FunctionType | types.MethodType) for content in contents
        ):
            return function
        clone = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            self._closure(function),
        )
        clone.__kwdefaults__ = function.__kwdefaults__
        clone.__dict__.update(function.__dict__)
        clone.__qualname__ = function.__qualname__
        clone.__module__ = function.__module__
        self._known[id(function)] = (function, clone)
        self._fill(clone, function)
        return clone

    def _complete(
        self, clone: types.FunctionType, function: types.FunctionType
    ) -> types.FunctionType:
        # A function may call itself: it is known before what it uses is wrapped.
        self._known[id(function)] = (function, clone)
        self._known[id(clone)] = (clone, clone)
        clone.__qualname__ = function.__qualname__
        clone.__module__ = function.__module__
        clone.__dict__.update(function.__dict__)
        if function.__defaults__ is not None:
            clone.__defaults__ = tuple(map(self.wrap, function.__defaults__))
        if function.__kwdefaults__:
            clone.__kwdefaults__ = {k: self.wrap(v) for k, v in function.__kwdefaults__.items()}
        self._fill(clone, function)
        self._rebuilt.append((clone, _snapshot(clone.__dict__)))
        return clone

    def _closure(self, function: types.FunctionType) -> tuple[types.CellType, ...] | None:
        if function.__closure__ is None:
            return None
        return tuple(
            # Functions that share a variable share its new cell.
            self._cells[id(cell)][1] if id(cell) in self._cells else types.CellType()
            for cell in function.__closure__
        )

    def _fill(self, clone: types.FunctionType, function: types.FunctionType) -> None:
        names = function.__code__.co_freevars
        cells = zip(names, clone.__closure__ or (), function.__closure__ or (), strict=True)
        for name, cell, original in cells:
            if id(original) in self._cells:
                continue
            self._cells[id(original)] = (original, cell, name, _MISSING)
            content = _content(original)
            if content is not _MISSING:
                cell.cell_contents = self.wrap(content)
            self._cells[id(original)] = (original, cell, name, _content(cell))

    def _type(self, kind: type) -> Any:
        if kind in _TYPES or issubclass(kind, BaseException | enum.Enum):
            return kind
        module = _module_of(kind)
        root = module.partition(".")[0]
        if kind in NUMPY_TYPES:
            return NUMPY_TYPES[kind]
        if root == "torch":
            return kind if _is_of_torch(kind) else _refused_type(self.run, kind)
        if module in PURE_MODULES and is_member(kind):
            return kind
        if self._is_theirs(kind):
            self._patch(kind)
            return kind
        return _refused_type(self.run, kind)

    def _is_theirs(self, kind: type) -> bool:
        """Whether a class is of the user or of a package that is followed."""
        is_changeable = kind.__flags__ & _HEAP_TYPE and not kind.__flags__ & _IMMUTABLE_TYPE
        if not is_changeable:
            return False
        return not is_of_library(kind)

    def _patch(self, kind: type) -> None:
        """Rebuilds the functions of a class in place, until the run ends."""
        if kind in self._classes:
            return
        if not self._is_theirs(kind):
            return
        self._classes[kind] = {}
        for base in kind.__mro__[1:]:
            self._patch(base)
        for name, value in list(vars(kind).items()):
            # __doc__, __module__ and the like do nothing.
            if name in _INHERITED or (_is_dunder(name) and not callable(value)):
                continue
            if isinstance(value, property):
                parts = (value.fget, value.fset, value.fdel)
                replacement: Any = property(*(part and self.wrap(part) for part in parts))
            # A property computes anew in each run; the cached value would stay in the object.
            elif isinstance(value, functools.cached_property):
                replacement = property(self.wrap(value.func))
            elif isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                continue
            else:
                replacement = self.wrap(value)
            if replacement is not value:
                self._undone.append((kind, name, value))
                # Past a metaclass with a __setattr__ of the user.
                type.__setattr__(kind, name, replacement)
        self._classes[kind] = dict(vars(kind))


class Namespace(dict[str, Any]):
    """The globals of a rebuilt function: each is wrapped when it is first used."""

    def __init__(self, environment: Environment, variables: Mapping[str, Any]) -> None:
        super().__init__({"__builtins__": environment.builtins})
        self._environment = environment
        self._own = variables
        self.loaded: dict[str, Any] = {"__builtins__": environment.builtins}

    def __missing__(self, name: str) -> Any:
        value = self._environment.wrap(self._own[name])
        self[name] = self.loaded[name] = value
        return value


class _Builtins(dict[str, Any]):
    """The builtins of a rebuilt function."""

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self._environment = environment
        self["__import__"] = self._import
        self["print"] = _Silent()

    def __missing__(self, name: str) -> Any:
        original = vars(builtins)[name]
        value = self[name] = self._environment.wrap(original)
        return value

    def _import(self, *args: Any, **names: Any) -> Any:
        answer = imported_answer(args, self._environment.run.refuse)
        if answer is not None:
            return answer
        return self._environment.wrap(builtins.__import__(*args, **names))


class Module:
    """A module whose members are wrapped when they are used."""

    def __init__(self, environment: Environment, module: types.ModuleType) -> None:
        self._environment = environment
        self._module = module

    def __getattr__(self, name: str) -> Any:
        environment, module = self._environment, self._module
        value = getattr(module, name)
        is_data = isinstance(value, (*_CONSTANTS, dict, list, set)) and not isinstance(
            value, torch.dtype | torch.layout | torch.memory_format
        )
        if is_data and is_standard(module.__name__) and module.__name__ not in _WITH_NUMBERS:
            return environment._refusal(f"{module.__name__}.{name}")
        return environment.wrap(value)

    def __setattr__(self, name: str, value: UserValue) -> None:
        if name in ("_environment", "_module"):
            object.__setattr__(self, name, value)
            return
        raise self._environment._change_error(f"the variable {name!r} of a module")


class _Silent:
    """A logger, or a function that only reports: it does nothing."""

    def __getattr__(self, name: str) -> _Silent:
        return self

    def __call__(self, *_: Any, **__: Any) -> None:
        return None


class _Refused:
    """An object that is refused when it is used."""

    def __init__(self, run: Run, subject: str) -> None:
        vars(self)["_run"] = run
        vars(self)["_what"] = subject

    def __getattr__(self, name: str) -> Any:
        raise self._run.refuse(f"the step uses {self._what}", hint=_HINT)

    def __setattr__(self, name: str, value: UserValue) -> None:
        self.__getattr__(name)

    def __deepcopy__(self, memo: object) -> _Refused:
        return self


def _refuse(name: str) -> Callable[..., Any]:
    def method(self: _Refused, *_: Any, **__: Any) -> Any:
        return self.__getattr__(name)

    return method


for _name in (
    "__call__",
    "__iter__",
    "__next__",
    "__len__",
    "__bool__",
    "__getitem__",
    "__setitem__",
    "__contains__",
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__eq__",
    "__ne__",
    "__hash__",
    "__float__",
    "__int__",
    "__index__",
    "__enter__",
    "__exit__",
    "__str__",
    "__repr__",
    "__format__",
    "__iadd__",
    "__matmul__",
    "__neg__",
    "__abs__",
):
    setattr(_Refused, _name, _refuse(_name))


def _refused_type(run: Run, kind: type) -> Any:
    """A type that can be asked about, and refuses to make objects."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, kind)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, kind)

        def __call__(cls, *_: Any, **__: Any) -> Any:
            raise run.refuse(f"the step uses {_name_of(kind)}", hint=_HINT)

        def __getattr__(cls, name: str) -> Any:
            raise run.refuse(f"the step uses {_name_of(kind)}.{name}", hint=_HINT)

    return Meta(kind.__name__, (), {})


# --- questions about values ----------------------------------------------------------------------


def _is_of_torch(kind: type) -> bool:
    """Whether a class is of a file of torch whose operations are traced."""
    root, _, inner = _module_of(kind).partition(".")
    if root != "torch" or not kind.__flags__ & _HEAP_TYPE:
        return False
    return not inner or inner.partition(".")[0] in _TRACED_PARTS_OF_TORCH


def _module_of(kind: type) -> str:
    return str(getattr(kind, "__module__", ""))


def _name_of(value: Any) -> str:
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None)
    if module is None and owner is not None:
        module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__))
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


def _snapshot(value: Any) -> Any:
    """A copy of containers; what they hold is the same."""
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in value.items()}
    if type(value) in (list, tuple, deque):
        return [_snapshot(item) for item in value]
    return set(value) if isinstance(value, set) else value


def _is_same(value: Any, snapshot: Any) -> bool:
    if isinstance(value, dict):
        return (
            isinstance(snapshot, dict)
            and list(value) == list(snapshot)
            and all(_is_same(item, snapshot[key]) for key, item in value.items())
        )
    if type(value) in (list, tuple, deque):
        return (
            isinstance(snapshot, list)
            and len(value) == len(snapshot)
            and all(map(_is_same, value, snapshot))
        )
    if isinstance(value, set):
        return bool(value == snapshot)
    if type(value) in (int, float, str, bool):
        return type(value) is type(snapshot) and repr(value) == repr(snapshot)
    return value is snapshot


def _modules_of(package: str) -> list[types.ModuleType]:
    return [m for n, m in list(sys.modules.items()) if n == package or n.startswith(f"{package}.")]


@contextmanager
def _torch_modules() -> Iterator[None]:
    """Gives the modules of torch's own optimizers the functions that carry expressions."""
    previous_values: list[tuple[dict[str, object], str, object]] = []
    try:
        for module in _modules_of("torch.optim"):
            names = vars(module)
            replacements: dict[str, object] = {
                name: _REPLACED[id(getattr(builtins, name))]
                for name in ("max", "min", "float", "int")
                if name not in names
            }
            for name, value in names.items():
                if value is math:
                    replacements[name] = _MATH
            for name, value in replacements.items():
                previous_values.append((names, name, names.get(name, _MISSING)))
                names[name] = value
        yield
    finally:
        for names, name, value in reversed(previous_values):
            if value is _MISSING:
                del names[name]
            else:
                names[name] = value


class _MathModule:
    """``math`` for the optimizers of torch."""

    def __getattr__(self, name: str) -> Any:
        original = getattr(math, name)
        return _REPLACED.get(id(original), original)


_MISSING: Any = object()
_MATH = _MathModule()
_REPLACED: dict[int, Any] = {id(original): version for original, version in FUNCTIONS.items()}
_CACHED = type(functools.cache(lambda: None))
_COPIED = (list, dict, tuple, set, frozenset, deque, defaultdict, OrderedDict, Counter)
_WITH_NUMBERS = ("math", "cmath", "numbers", "operator")
_OWN_FILES = files_of("closedform.importers.torch_optimizer")
_INHERITED = frozenset(
    {
        "__class__",
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__init_subclass__",
        "__new__",
    }
)
