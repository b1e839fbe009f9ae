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
import copy
import enum
import functools
import inspect
import math
import sys
import types
from collections import ChainMap, Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from closedform.code_files import files_of, is_in_standard_library, is_standard
from closedform.errors import TraceError
from closedform.importers.python.functions import traced_type
from closedform.importers.python.number import Number
from closedform.importers.python.place import Place, UserValue
from closedform.importers.python.purity import CONSTANT_TYPES, HOLDERS, PURE
from closedform.importers.python.sandbox import (
    HEAP_TYPE,
    MISSING,
    Module,
    Refused,
    Sandbox,
    all_codes,
)
from closedform.importers.python.text import Silent
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.place import TORCH_FILES
from closedform.importers.torch_optimizer.positions import (
    Owner,
    counting_len,
    items_within,
    position_enumerate,
    position_range,
    with_plain_sizes,
)
from closedform.importers.torch_optimizer.reported import (
    Reported,
    original_of,
    replace_members,
    settings,
)
from closedform.importers.torch_optimizer.subject import (
    PURE_MODULES,
    is_member,
    is_of_library,
    is_plain_object,
)

_IMMUTABLE_TYPE = 1 << 8
"""The flag Py_TPFLAGS_IMMUTABLETYPE of CPython, of types whose members cannot change."""

_CONSTANTS = (
    *CONSTANT_TYPES, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip
"""Types whose objects do not change and do nothing."""

_TYPES: frozenset[Any] = frozenset({
    *HOLDERS, Counter, ChainMap, torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype,
    torch.device, torch.iinfo, types.FunctionType, types.MethodType, types.ModuleType,
    types.NoneType, types.GenericAlias,
})  # fmt: skip
"""Types of C whose objects hold values and do nothing else."""

_BUILTINS = frozenset({
    *(value for value in PURE.values() if isinstance(value, types.BuiltinFunctionType)),
    dir, vars, functools.reduce,
})  # fmt: skip
"""Functions of C that reach a number by its methods, or that do not take numbers."""

_NUMBER_MODULES = frozenset({"math", "cmath", "bisect", "heapq", "_bisect", "_heapq", "numpy"})
"""Modules of functions that are pure, and that would take a number without its expression."""

_CONSTANT_MEMBERS: Mapping[str, Container[str]] = {
    "sys": (
        "version", "version_info", "hexversion", "implementation", "platform", "byteorder",
        "maxsize", "float_info",
    ),
    "os": ("name",),
    "platform": (
        "system", "machine", "release", "python_version", "python_version_tuple",
        "python_implementation",
    ),
}  # fmt: skip
"""Members of the standard library that are the same as long as the process runs."""

_TRACED_PARTS_OF_TORCH = frozenset({
    "__init__", "_compile", "_dynamo", "_foreach_utils", "_jit_internal", "_linalg_utils",
    "_tensor", "_utils", "_utils_internal", "_higher_order_ops", "amp", "autograd", "backends",
    "compiler", "distributed", "functional", "jit", "linalg", "nn", "optim", "overrides", "special",
    "utils",
})  # fmt: skip
"""Modules of torch whose functions see only their arguments, and whose operations are traced."""

_TORCH_QUESTIONS = frozenset({
    "is_autocast_enabled", "is_grad_enabled", "is_inference_mode_enabled", "is_available",
    "is_current_stream_capturing", "is_initialized", "is_built", "is_anomaly_enabled",
    "device_count", "get_num_threads", "_get_tracing_state", "_is_tracing",
    "_cuda_isCurrentStreamCapturing", "_log_api_usage_once", "_set_grad_enabled",
    "set_grad_enabled",
})  # fmt: skip
"""Functions of torch without tensors whose answers are of the machine or of the mode."""

_SETTERS = ("set_", "use_deterministic_")
"""Beginnings of the names of functions that change settings of the process."""

_NOT_OF_DATA = frozenset({"from_numpy", "frombuffer", "from_file", "load", "manual_seed"})
"""Functions of torch whose results depend on something other than their tensors."""

_TORCH_MODULES = frozenset({"torch._C._nn", "torch._C._linalg", "torch._C._special"})


_CONTAINERS = (dict, list, deque, tuple, torch.optim.Optimizer)
"""Objects of an optimizer that hold its functions and tensors."""

_METHODS_OF_SIZES = ("expand", "new_empty", "new_ones", "new_zeros", "resize_")
_FUNCTIONS_OF_SIZES = (torch.empty, torch.ones, torch.rand, torch.randn, torch.zeros)
"""Functions whose sizes torch reads one by one: of objects with ``__torch_function__`` only one."""


class Environment(Sandbox):
    """Wraps what the code of an optimizer uses in one run.

    Args:
        run: The run.
        owner: Returns which parameter a tensor belongs to.
        precision: The dtype that the parameters have.
    """

    subject = "the step"
    outside = "outside of the optimizer"
    hint = "a rule is a function of parameter, gradient, states, step and hyperparameters"
    state_hint = "keep states in self.state[p] or in the param group"

    def __init__(self, run: Run, owner: Owner, precision: Reported) -> None:
        super().__init__(run)
        self.run: Run = run
        self._replaced = {
            **settings(),
            **{id(function): with_plain_sizes(function) for function in _FUNCTIONS_OF_SIZES},
            id(len): counting_len(run, owner),
            id(range): position_range(run),
            id(enumerate): position_enumerate(run, owner),
            id(copy.deepcopy): _deep_copy,
            **{id(change): self._with_checked_class(change) for change in (setattr, delattr)},
        }
        self._reported = precision
        self._place_of_step: Place | None = None
        self._copies: list[tuple[Any, Any]] = []

    @contextmanager
    def enter(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Wraps what a copy of an optimizer and its classes hold; the classes are restored."""
        sizes = {name: with_plain_sizes(getattr(torch.Tensor, name)) for name in _METHODS_OF_SIZES}
        try:
            for kind in type(optimizer).__mro__:
                self._patch(kind)
            self._own(optimizer)
            with ExitStack() as stack:
                # Optimizers read eps of the parameters' dtype, which is not the one that the trace
                # runs in.
                stack.enter_context(replace_members(torch, {"finfo": self._reported.finfo}))
                stack.enter_context(replace_members(torch.Tensor, sizes))
                for module in (*_modules_of("torch.optim"), torch.nn.utils.clip_grad):
                    stack.enter_context(replace_members(module, self._members_for(module)))
                yield
        finally:
            self.restore_members()

    def end_run(self, kind: type[torch.optim.Optimizer]) -> None:
        """Refuses what the run did that is not modelled, whether it raises an exception or not.

        Raises:
            TraceError: It used, or changed, something outside of the optimizer.
        """
        if self.run.refusal is not None:
            raise self.run.refusal
        # No line of the step is running any more.
        self._place_of_step = Place.of(inspect.unwrap(kind.step).__code__)
        self.check_unchanged()
        for duplicate, original in self._copies:
            if type(duplicate) is not type(original) and not isinstance(original, torch.Tensor):
                raise self.change_error(f"the class of an object of {type(original).__name__!r}")
            # By .data torch counts no write.
            if isinstance(original, torch.Tensor) and not _is_same_tensor(duplicate, original):
                raise self.change_error("a tensor")

    def refuse(self, reason: str, hint: str, place: Place | None = None) -> TraceError:
        """Returns the error that the run ends with."""
        place = place or self._place_of_step
        return self.run.refuse(
            reason, hint, None if place is None else f"{place.file}:{place.line}"
        )

    def note_silence(self, name: str) -> None:
        """Notes nothing: the report of a rule is on its numbers."""

    def check_tensors(self) -> None:
        """Refuses an operation that has changed a tensor outside of the optimizer.

        Raises:
            TraceError: It has; the message names the line that is running.
        """
        for owner, version, name in self._watched:
            if isinstance(owner, torch.Tensor) and owner._version != version:
                raise self.change_error(name)

    def _with_checked_class(self, change: Callable[..., None]) -> Callable[..., None]:
        """Returns ``setattr`` or ``delattr``, which refuse a class of the step, at their line."""

        def apply(owner: Any, name: str, *value: Any) -> None:
            if isinstance(owner, type) and owner in self._members:
                raise self.change_error(f"the attribute {name!r} of the class {owner.__name__!r}")
            change(owner, name, *value)

        return apply

    # --- values ------------------------------------------------------------------------------

    def _own(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets a step change what the optimizer stores, and wraps the functions among it."""
        containers: list[Any] = [optimizer]
        entries: list[tuple[Any, Any]] = []
        visited_ids: set[int] = set()
        while containers:
            container = containers.pop()
            if id(container) in visited_ids:
                continue
            visited_ids.add(id(container))
            if not isinstance(container, tuple):
                self.adopt(container)
            if isinstance(container, torch.optim.Optimizer) or is_plain_object(container):
                self._patch(type(container))
                container = vars(container)
            is_dict = isinstance(container, dict)
            for key, value in list(container.items() if is_dict else enumerate(container)):
                if isinstance(value, torch.Tensor):
                    self.adopt(value)
                elif isinstance(value, _CONTAINERS) or is_plain_object(value):
                    containers.append(value)
                if not isinstance(container, tuple):
                    entries.append((container, key))
        # Functions and tuples, after all that they may refer to is known.
        for container, key in entries:
            container[key] = self.wrap(container[key])

    def constant(self, value: UserValue) -> Any:
        """Returns a number or a text as it is."""
        is_constant = value is None or isinstance(value, (*_CONSTANTS, Number))
        return value if is_constant else MISSING

    def special(self, value: UserValue) -> Any:
        """Returns a function that carries expressions, a tensor, or a container."""
        replacement = self._replaced.get(id(value))
        version = self.version(value) if replacement is None else replacement
        if version is not MISSING:
            return version
        original = original_of(value)
        if original is not value:
            return self.wrap(original)
        if isinstance(value, torch.Tensor):
            # Not as an operation of the step.
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                duplicate = self.copied_tensor(value)
            self._copies.append((duplicate, value))
            return duplicate
        if isinstance(value, Refused | Module | frozenset | enum.Enum | BaseException):
            return value
        if isinstance(value, np.ufunc):
            return self._without_numbers(value, f"numpy.{value.__name__}")
        if isinstance(getattr(value, "__self__", None), Reported):
            return value
        duplicate = None if isinstance(value, np.ndarray) else self.copied_container(value)
        return MISSING if duplicate is None else duplicate

    def instance(self, value: UserValue) -> Any:
        """Returns a function in C, an object of torch, or one with attributes of the user."""
        if _module_of(type(value)) in ("typing", "types", "typing_extensions"):
            return value
        if isinstance(value, np.generic):
            return value.item() if isinstance(value, np.bool_ | np.integer) else value
        if _is_of_torch(type(value)):
            return value
        if callable(value) and not is_plain_object(value):
            return self._callable(value)
        if is_plain_object(value):
            return self._copied_object(value)
        return self._refusal(f"an object of the type {_name_of(type(value))}")

    def _copied_object(self, value: Any) -> Any:
        """An object with the same attributes, which a run may not change."""
        kind = type(value)
        self._patch(kind)
        duplicate = object.__new__(kind)
        self._known[id(value)] = (value, duplicate)  # it may refer to itself
        self.adopt(duplicate)
        vars(duplicate).update((name, self.wrap(item)) for name, item in vars(value).items())
        self.watch(vars(duplicate), f"an object of the class {kind.__name__!r}")
        self._copies.append((duplicate, value))
        return duplicate

    def _refusal(self, subject: str) -> Refused:
        return self.refusing_object(f"the step uses {subject}")

    def module_member(self, module: types.ModuleType | type, name: str) -> Any:
        """Returns a member of a module for traced code."""
        value = getattr(module, name)
        if name in _CONSTANT_MEMBERS.get(module.__name__, ()):
            return value
        is_data = isinstance(value, (*_CONSTANTS, dict, list, set)) and not isinstance(
            value, torch.dtype | torch.layout | torch.memory_format
        )
        if is_data and is_standard(module.__name__) and module.__name__ not in _WITH_NUMBERS:
            return self._refusal(f"{module.__name__}.{name}")
        replacement = self.wrap(value)
        if isinstance(replacement, Refused) and not callable(value):
            return self._refusal(f"{module.__name__}.{name}")
        return replacement

    def builtin(self, name: str) -> Any:
        """Returns a builtin for traced code."""
        value = vars(builtins)[name]
        return Silent(name, self.note_silence) if name == "print" else self.wrap(value)

    def _callable(self, value: Any) -> Any:
        """A function of C, or an object that is called."""
        if value in _BUILTINS:
            return value
        name = _name_of(value)
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None)
        if module is None and isinstance(owner, types.ModuleType):
            module = owner.__name__
        if value is math.prod:
            return value
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
        if hasattr(value, "__wrapped__"):
            return self.wrap(value.__wrapped__)
        return self._refusal(name)

    def _without_numbers(self, function: Callable[..., Any], name: str) -> Any:
        """A pure function that has no version for numbers with expressions."""

        def apply(*args: Any, **options: Any) -> Any:
            if any(
                isinstance(item, Number | torch.Tensor) for item in items_within((args, options))
            ):
                raise self.run.refuse(f"{name} of a number or tensor of the step is not traced")
            return function(*args, **options)

        return apply

    def _members_for(self, module: types.ModuleType) -> dict[str, Any]:
        """The functions of traced code for a module of torch's own optimizers and norms."""
        natives = ("max", "min", "float", "int", "isinstance")
        return {
            **{name: self.builtins[name] for name in natives if name not in vars(module)},
            **{name: self.wrap(math) for name, value in vars(module).items() if value is math},
        }

    # --- functions and classes ---------------------------------------------------------------

    def function(self, function: types.FunctionType) -> Any:
        """Returns a function of Python, rebuilt where it is not of a library."""
        file = function.__code__.co_filename
        module = str(function.__module__)
        root = module.partition(".")[0]
        parts = TORCH_FILES.parts_of(file)
        if parts is not None:
            is_question = function.__name__ in _TORCH_QUESTIONS
            is_traced = parts[0].removesuffix(".py") in _TRACED_PARTS_OF_TORCH
            # The name in the code: a method of the user below torch.no_grad has its name there.
            is_setter = function.__code__.co_name.startswith(_SETTERS)
            if not is_question and (not is_traced or is_setter):
                return self._refusal(_name_of(function))
            return self.with_closure(function)
        if file in _OWN_FILES:
            return function
        if root in sys.stdlib_module_names and is_in_standard_library(file):
            if module in PURE_MODULES:
                return self.with_closure(function)
            return self._refusal(_name_of(function))
        if root in ("closedform", "sympy") and file in files_of(root):
            return self._without_numbers(function, _name_of(function))
        if root == "numpy" and file in files_of(root):
            return self._refusal(_name_of(function))
        return self.rebuilt(function)

    def code(self, code: types.CodeType) -> types.CodeType:
        """Returns the code of a function as it is, and notes it."""
        self.run.codes.update(map(id, all_codes(code)))
        return code

    def kind(self, kind: type) -> Any:
        """Returns a class: itself, a version for numbers with expressions, or one that refuses."""
        if kind in _TYPES or issubclass(kind, BaseException | enum.Enum):
            if self._is_theirs(kind):
                self.watch(kind, f"the class {kind.__name__!r}")
            return kind
        module = _module_of(kind)
        root = module.partition(".")[0]
        is_setter = kind.__name__.startswith(_SETTERS) and kind.__name__ not in _TORCH_QUESTIONS
        if _is_of_torch(kind) and is_setter:
            return self.refusing_kind(kind, f"the step uses {_name_of(kind)}")
        if issubclass(kind, np.number):
            return traced_type(kind, self.run)
        if _is_of_torch(kind) or (module in PURE_MODULES and is_member(kind)):
            if _is_changeable(kind):
                self.watch(kind, f"the class {kind.__name__!r}")
            return kind
        if root != "torch" and self._is_theirs(kind):
            self._patch(kind)
            return kind
        return self.refusing_kind(kind, f"the step uses {_name_of(kind)}")

    def _is_theirs(self, kind: type) -> bool:
        """Whether a class is of the user or of a package that is followed."""
        return _is_changeable(kind) and not is_of_library(kind)

    def _patch(self, kind: type) -> None:
        """Rebuilds the functions of a class in place, until the run ends."""
        if kind in self._members or not self._is_theirs(kind):
            return
        self.keep_members(kind)
        for base in (*kind.__mro__[1:], type(kind)):
            self._patch(base)
        for name, value in list(vars(kind).items()):
            # __doc__, __module__ and the like do nothing.
            if name in _INHERITED or (_is_dunder(name) and not callable(value)):
                continue
            if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                continue
            replacement = self.wrap(value)
            if replacement is not value:
                # Past a metaclass with a __setattr__ of the user.
                type.__setattr__(kind, name, replacement)
        self.watch(kind, f"the class {kind.__name__!r}")


# --- questions about values ----------------------------------------------------------------------


def _is_same_tensor(duplicate: torch.Tensor, original: torch.Tensor) -> bool:
    """Whether a copy of a tensor has its elements, and the attributes of a leaf."""
    if duplicate.shape != original.shape or duplicate.dtype != original.dtype:
        return False
    is_same = torch.isclose(duplicate.detach(), original.detach(), 0, 0, equal_nan=True).all()
    if not original.is_leaf:
        return bool(is_same)
    if duplicate.grad is None or original.grad is None:
        is_same_grad = duplicate.grad is original.grad
    else:
        is_same_grad = _is_same_tensor(duplicate.grad, original.grad)
    return bool(is_same and is_same_grad and duplicate.requires_grad == original.requires_grad)


def _deep_copy(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """``copy.deepcopy``, for which tensors are cloned by a traced operation."""
    memo = {} if memo is None else memo
    containers, visited_ids = [value], set(memo)
    while containers:
        container = containers.pop()
        if id(container) in visited_ids:
            continue
        visited_ids.add(id(container))
        if isinstance(container, torch.Tensor):
            memo[id(container)] = container.detach().clone()
        elif isinstance(container, dict | list | tuple | deque):
            containers += container.values() if isinstance(container, dict) else container
    return copy.deepcopy(value, memo)


def _is_changeable(kind: type) -> bool:
    return bool(kind.__flags__ & HEAP_TYPE) and not kind.__flags__ & _IMMUTABLE_TYPE


def _is_of_torch(kind: type) -> bool:
    """Whether a class is of a file of torch whose operations are traced."""
    root, _, inner = _module_of(kind).partition(".")
    if root != "torch" or not kind.__flags__ & HEAP_TYPE:
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


def _modules_of(package: str) -> list[types.ModuleType]:
    return [m for n, m in list(sys.modules.items()) if n == package or n.startswith(f"{package}.")]


_WITH_NUMBERS = ("math", "cmath", "numbers", "operator")
_OWN_FILES = files_of("closedform.importers.torch_optimizer")
_INHERITED = frozenset({
    "__class__", "__dict__", "__weakref__", "__doc__", "__module__", "__init_subclass__", "__new__",
})  # fmt: skip
