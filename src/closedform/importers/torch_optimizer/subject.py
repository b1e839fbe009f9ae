"""A copy of an optimizer with two new parameters, and every number that it stores.

The user's optimizer, its parameters and their gradients are read and never changed. Numbers are
named by where they are: in the state of a parameter, in the param group, in an attribute.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import sys
import types
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.code_files import is_standard
from closedform.errors import TraceError
from closedform.importers.python.place import UserValue
from closedform.importers.python.sandbox import HEAP_TYPE
from closedform.importers.tensors.values import Sizes
from closedform.importers.torch_optimizer.inputs import is_mask, random_mask
from closedform.importers.torch_optimizer.place import TORCH_FILES
from closedform.importers.torch_optimizer.reported import Shown
from closedform.importers.torch_optimizer.shapes import Shape
from closedform.language.literals import literal

Path = tuple[Any, ...]
STATE, GROUP, ATTRIBUTE = "state", "group", "attribute"
DEFAULTS, COMMON = "defaults", "common"


def at_place(path: Path, place: int) -> Path:
    """Returns the path of the same state of another parameter; other paths as they are."""
    return (STATE, place, *path[2:]) if path[0] == STATE else path


def keys_of(path: Path) -> Path:
    """Returns the keys of a path within a state, the param group or the attributes."""
    return path[2:] if path[0] == STATE else path[1:]


_OWN = frozenset({
    "state", "param_groups", "step", "_zero_grad_profile_name",
    "_warned_capturable_if_run_uncaptured",
})  # fmt: skip
_NUMBERS = frozenset({"lr", "weight_decay", "momentum", "eps", "dampening"})
# initial_lr is written by LR schedulers, param_names by torch.optim for named parameters.
_NOT_HYPER = frozenset({"params", "initial_lr", "param_names"})


PURE_MODULES = frozenset({
    "__future__", "_collections_abc", "_functools", "_operator", "abc", "collections",
    "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools", "numbers",
    "operator", "types", "typing", "typing_extensions", "warnings",
})  # fmt: skip
"""Modules of the standard library whose functions only call what they are given."""

PACKAGES = frozenset({"closedform", "numpy", "sympy", "torch"})
"""Packages whose functions are known one by one, and not followed."""


def is_member(kind: type) -> bool:
    """Whether a class is what its module has under its name, and not made elsewhere."""
    member: Any = sys.modules.get(str(kind.__module__))
    for name in kind.__qualname__.split("."):
        member = getattr(member, name, None)
    return member is kind


def is_of_library(kind: type) -> bool:
    """Whether a class is of the standard library or of one of the ``PACKAGES``."""
    module = str(kind.__module__)
    is_known = module.partition(".")[0] in PACKAGES or is_standard(module)
    return is_known and is_member(kind)


def is_plain_object(value: UserValue) -> bool:
    """Whether an object has its state only in its attributes, and its methods in Python."""
    if isinstance(value, type | types.FunctionType | types.ModuleType):
        return False
    for kind in type(value).__mro__[:-1]:
        if not kind.__flags__ & HEAP_TYPE:
            return False
        if is_of_library(kind) and str(kind.__module__) not in PURE_MODULES:
            return False
        # The end of a copy would close what the object has open.
        if "__del__" in vars(kind):
            return False
        # Types of C and slots have state that vars() does not show.
        members = vars(kind).values()
        if any(isinstance(m, _MEMBERS_IN_C) and m.__objclass__ is kind for m in members):
            return False
    return hasattr(value, "__dict__")


_MEMBERS_IN_C = (
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a copy of an optimizer shows its numbers to the step.

    Attributes:
        dtype: The dtype that the step sees as that of tensors of float64.
        has_tensors: Whether hyperparameters that are tensors stay tensors.
    """

    dtype: torch.dtype = torch.float64
    has_tensors: bool = False


PLAIN = Form()


def forms_of(group: Mapping[str, Any]) -> list[Form]:
    """Returns the forms in which a step may be taken, the usual one first.

    Steps may insist on float32, or on a learning rate in a tensor.
    """
    has_tensors = any(isinstance(group.get(key), torch.Tensor) for key in _NUMBERS)
    is_narrow = any(param.dtype != torch.float64 for param in group["params"])
    dtypes = [torch.float64, *([torch.float32] if is_narrow else [])]
    kinds = [False, *([True] if has_tensors else [])]
    return [Form(dtype, kind) for dtype in dtypes for kind in kinds]


@dataclass(eq=False)
class Subject:
    """An optimizer with one param group of a few parameters.

    Attributes:
        optimizer: The copy.
        params: Its parameters.
        form: How it shows its numbers to the step.
    """

    optimizer: torch.optim.Optimizer
    params: tuple[torch.Tensor, ...]
    form: Form = PLAIN

    @property
    def group(self) -> dict[str, Any]:
        """The param group."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups[0]

    def clone(self) -> Subject:
        """Returns a separate copy."""
        params = tuple(_parameter(param.detach()) for param in self.params)
        memo: dict[int, Any] = dict(zip(map(id, self.params), params, strict=True))
        copy_of_optimizer = _copy_optimizer(self.optimizer, self.group, memo, params, self.form)
        return Subject(copy_of_optimizer, params, self.form)

    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """Takes one step."""
        for param, gradient in zip(self.params, gradients, strict=True):
            # A step may write to the gradient, and the rule is run on the same one afterwards.
            param.grad = gradient.clone()
        with Shown(self.form.dtype):
            self.optimizer.step()

    def leaves(self) -> dict[Path, Any]:
        """Returns everything that the optimizer stores that is not a container, by path."""
        result: dict[Path, Any] = {}
        state = self.optimizer.state
        for place, param in enumerate(self.params):
            result |= _leaves(dict(state.get(param, {})), (STATE, place))
        group = {key: value for key, value in self.group.items() if key not in _NOT_HYPER}
        result |= _leaves(group, (GROUP,))
        attributes_by_name = {
            key: value
            for key, value in vars(self.optimizer).items()
            if key not in _OWN and not key.endswith("_hooks")
        }
        attributes = {key: value for key, value in attributes_by_name.items() if key != DEFAULTS}
        result |= _leaves(attributes, (ATTRIBUTE,))
        result |= _leaves(attributes_by_name.get(DEFAULTS, {}), (DEFAULTS,))
        # Some optimizers keep states of the whole model in state[name] rather than by parameter.
        common = {key: v for key, v in state.items() if not isinstance(key, torch.Tensor)}
        result |= _leaves(common, (COMMON,))
        return result

    def masks(self, place: int) -> dict[str, torch.Tensor]:
        """Returns the masks that are states of a parameter."""
        param = self.params[place]
        states: Mapping[str, Any] = self.optimizer.state.get(param, {})
        return {key: v for key, v in states.items() if is_mask(v, tuple(param.shape))}

    def replace(self, path: Path, value: UserValue) -> None:
        """Stores another value at a path."""
        kind, *keys = path
        containers: dict[str, Any] = {
            STATE: self.optimizer.state,
            GROUP: self.group,
            ATTRIBUTE: vars(self.optimizer),
            COMMON: self.optimizer.state,
            DEFAULTS: self.optimizer.defaults,
        }
        keys[:1] = [self.params[keys[0]] if kind == STATE else keys[0]]
        _replace(containers[kind], tuple(keys), value)


def check_step(optimizer: torch.optim.Optimizer) -> None:
    """Refuses an optimizer that does not take the step of its class, or not of one gradient.

    Schedulers of torch put a step into the object that counts, and then takes the step of the
    class.

    Raises:
        TraceError: It has a hook, or another step, or its step takes a closure.
    """
    kind = type(optimizer)
    if any(base.__module__.partition(".")[0] == "closedform" for base in kind.__mro__):
        raise TraceError(
            "the optimizer is one of closedform, and computes a rule",
            where=kind.__name__,
            hint="take that rule, such as closedform.optimizers.adamw(…)",
        )
    for parameter in [*inspect.signature(kind.step).parameters.values()][1:]:
        if parameter.default is parameter.empty and "VAR" not in parameter.kind.name:
            raise TraceError(
                f"step() needs the argument {parameter.name!r}, and a rule takes one gradient",
                where=kind.__name__,
                hint="an optimizer that evaluates the loss again, such as LBFGS, has no rule",
            )
    for moment, owner, hook in _hooks(optimizer):
        if _function_file(hook) not in TORCH_FILES:
            raise TraceError(
                f"{owner} the step {moment}-hook {_origin(hook)}, which is not a part of its step",
                where=kind.__name__,
                hint="remove it, and trace the rule without it; or write what it does into the "
                "step of a subclass",
            )
    step = vars(optimizer).get("step", kind.step)
    while getattr(step, "__func__", step) is not kind.step and _function_file(step) in TORCH_FILES:
        step = getattr(step, "__wrapped__", None)
    if getattr(step, "__func__", step) is not kind.step:
        raise TraceError(
            f"the object has a step of its own, {_origin(step)}, instead of that of its class",
            where=kind.__name__,
            hint="remove it, and trace the rule without it; or write it as the step of a subclass",
        )


def _hooks(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, Any]]:
    """The hooks of steps: of the optimizer, and of all optimizers of the process."""
    common = vars(sys.modules[torch.optim.Optimizer.__module__])
    for moment in ("pre", "post"):
        own: Mapping[int, Any] = vars(optimizer).get(f"_optimizer_step_{moment}_hooks", {})
        yield from ((moment, "the optimizer has", hook) for hook in own.values())
        hooks: Mapping[int, Any] = common.get(f"_global_optimizer_{moment}_hooks", {})
        yield from ((moment, "all optimizers have", hook) for hook in hooks.values())


def _function_file(function: Any) -> str:
    """The file of the code of a function, method or partial; "" for a function in C."""
    inner = getattr(function, "func", function)
    inner = getattr(inner, "__func__", inner)
    return str(getattr(getattr(inner, "__code__", None), "co_filename", ""))


def _origin(function: Any) -> str:
    """The name of a function, with the line where it begins."""
    inner = getattr(function, "func", function)  # of functools.partial
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    code = getattr(inner, "__code__", None)
    return (
        f"{name!r}" if code is None else f"{name!r} ({_function_file(inner)}:{code.co_firstlineno})"
    )


def stepped_error(optimizer: torch.optim.Optimizer, place: int, key: str) -> TraceError:
    """Returns the error of an optimizer that has a state of a later step."""
    return TraceError(
        f"the optimizer has taken steps: its state {key!r} is not that of the first one",
        where=f"{type(optimizer).__name__}, param group {place}",
        hint="trace an optimizer before its first step",
    )


def subject_of(
    optimizer: torch.optim.Optimizer,
    place: int,
    shapes: Sequence[Sizes],
    seed: int,
    form: Form = PLAIN,
    *,
    with_states: bool = True,
) -> Subject:
    """Returns a copy of one param group of an optimizer, before its first step.

    Args:
        optimizer: The optimizer.
        place: The place of the param group.
        shapes: The shapes of its parameters.
        seed: Of their values.
        form: How it shows its numbers to the step.
        with_states: Whether the parameters have the states that the constructor has made.

    Raises:
        TraceError: The optimizer stores what depends on its parameters.
    """
    generator = torch.Generator().manual_seed(seed)
    params = tuple(_parameter(_random(shape, generator)) for shape in shapes)
    group = optimizer.param_groups[place]
    memo: dict[int, Any] = {}
    for param_group in optimizer.param_groups:
        for index, param in enumerate(param_group["params"]):
            # deepcopy's memo: wherever the optimizer refers to a parameter, the copy refers to a
            # new one.
            memo[id(param)] = params[0 if param_group is group and index == 0 else 1]
    # In a parameter of different elements a copy of it differs from a number.
    with_elements = (p for p in group["params"] if optimizer.state.get(p) and not _is_uniform(p))
    old = next(with_elements, group["params"][0])
    state_before = optimizer.state.get(old, {}) if with_states else {}
    copy_of_optimizer = _copy_optimizer(optimizer, group, memo, params, form, with_state=False)
    for param in params:
        _check_masks(state_before, old, f"{type(optimizer).__name__}, param group {place}")
        state = {
            key: random_mask(tuple(param.shape), generator)
            if is_mask(value, tuple(old.shape))
            else _fresh(key, value, old, param)
            for key, value in state_before.items()
        }
        changed_keys = [key for key, value in state.items() if value is _CHANGED]
        if changed_keys:
            raise stepped_error(optimizer, place, changed_keys[0])
        copy_of_optimizer.state[param] = state
    return Subject(copy_of_optimizer, params, form)


def _random(shape: Sizes, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def gradients(shapes: Sequence[Sizes], seed: int) -> list[torch.Tensor]:
    """Returns random gradients of these shapes."""
    generator = torch.Generator().manual_seed(seed)
    return [_random(shape, generator) for shape in shapes]


def _parameter(value: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(value.clone())


def _check_masks(state: Mapping[str, Any], param: torch.Tensor, where: str) -> None:
    """Refuses truth values of a constructor that are not inputs of a rule.

    Raises:
        TraceError: There are some.
    """
    for key, value in state.items():
        is_of_truths = isinstance(value, torch.Tensor) and value.dtype == torch.bool
        if is_of_truths and not is_mask(value, tuple(param.shape)):
            raise TraceError(
                f"the state {key!r} holds truth values of the shape {list(value.shape)}, which the "
                "constructor has made of values of the parameter or of random numbers",
                where=where,
                hint="a mask of the shape of the parameter is an input of the rule",
            )
        if is_of_truths and param.numel() < 2:
            # The trace tells the selected elements from all by their number.
            raise TraceError(
                f"the state {key!r} is a mask of a parameter of one element",
                where=where,
                hint="put the parameters of one element into an optimizer without masks",
            )


_CHANGED: Any = object()


def _is_uniform(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or not tensor.numel() or bool((tensor == tensor.reshape(-1)[0]).all())


def _fresh(key: str, value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """A state that a constructor made, for another parameter; it is the same everywhere."""
    if not isinstance(value, torch.Tensor):
        return _CHANGED if key == "step" and value else value
    # Another state that differs among elements depends on data, so a step has been taken.
    if not _is_uniform(value):
        is_copy = value.shape == old.shape and torch.equal(value, old)
        return new.detach().clone() if is_copy else _CHANGED
    number = value.reshape(-1)[0].item() if value.numel() else 0.0
    if value.shape == old.shape and value.dim():
        return torch.full_like(new, number, requires_grad=False)
    # Adagrad makes its sums in the constructor; its step of 0 is a fresh one.
    return _CHANGED if key == "step" and number else value.clone()


def _copy_optimizer(
    optimizer: torch.optim.Optimizer,
    group: Mapping[str, Any],
    memo: dict[int, Any],
    params: Sequence[torch.Tensor],
    form: Form,
    *,
    with_state: bool = True,
) -> torch.optim.Optimizer:
    """A copy without hooks; what cannot be copied is shared."""
    # Without __init__, whose arguments are not known here.
    result: torch.optim.Optimizer = object.__new__(type(optimizer))
    memo[id(optimizer)] = result
    for key, value in vars(optimizer).items():
        if key not in _OWN:
            vars(result)[key] = value if key.endswith("_hooks") else _deep(value, memo)
    options = {
        key: _plain_number(key, _exact_tensors(_deep(value, memo)), form)
        for key, value in group.items()
        if key != "params"
    }
    try:
        # A wrapper has param_groups as a property without a setter.
        result.param_groups = [{"params": list(params), **options}]
    except AttributeError:
        raise TraceError(
            f"{type(optimizer).__name__} has the param groups of another optimizer",
            hint="trace the optimizer that it wraps",
        ) from None
    result.state = defaultdict(dict)
    if with_state:
        for param, state in optimizer.state.items():
            if isinstance(param, torch.Tensor):
                result.state[memo.get(id(param), param)] = _deep(dict(state), memo)
    common: dict[Any, Any] = result.state
    common |= {k: _deep(v, memo) for k, v in optimizer.state.items() if not _is_tensor(k)}
    for name in list(vars(result)):
        if name.endswith("_hooks"):
            vars(result)[name] = type(vars(result)[name])()
    # torch.optim.Optimizer.zero_grad reads it; _patch_step_function of the constructor sets it.
    vars(result)["_zero_grad_profile_name"] = "zero_grad"
    return result


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _deep(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    new_memo = dict(memo)
    try:
        result = copy.deepcopy(value, new_memo)
    except (TypeError, RuntimeError, ValueError):
        pass
    else:
        # deepcopy keeps its operands alive in an entry of its own.
        memo.setdefault(id(memo), []).extend(new_memo.pop(id(new_memo), ()))
        memo.update(new_memo)
        return result
    # A part of it has no copy, such as a lock, and is shared.
    duplicate: Any
    if type(value) in (tuple, set):
        return type(value)(_deep(item, memo) for item in value)
    if type(value) is list:
        memo[id(value)] = duplicate = []
        duplicate.extend(_deep(item, memo) for item in value)
        return duplicate
    if type(value) is dict:
        memo[id(value)] = duplicate = {}
        duplicate.update((key, _deep(item, memo)) for key, item in value.items())
        return duplicate
    if not is_plain_object(value):
        return value
    memo[id(value)] = duplicate = object.__new__(type(value))
    vars(duplicate).update((name, _deep(item, memo)) for name, item in vars(value).items())
    return duplicate


def _exact_tensors(value: Any) -> Any:
    """Numbers in tensors of narrow floats in float64: 0.001 and not the float32 next to it."""
    if type(value) in (list, tuple):
        return type(value)(map(_exact_tensors, value))
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.dtype not in _NARROW:
        return value
    number = float(literal(value.item(), str(value.dtype).removeprefix("torch.")))
    return torch.full_like(value, number, dtype=torch.float64)


def _plain_number(key: str, value: Any, form: Form) -> Any:
    if key in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if key in _NUMBERS and isinstance(value, torch.Tensor) and not form.has_tensors:
        return float(value)
    if key == "fused" and value:
        return False  # the fused kernels compute the formula of the loop
    return value


def _leaves(value: Any, path: Path) -> dict[Path, Any]:
    if isinstance(value, dict):
        pairs: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list | tuple | deque) and not isinstance(value, torch.Size | Shape):
        pairs = iter(enumerate(value))
    elif is_plain_object(value) and len(path) < _DEEPEST:
        pairs = iter(vars(value).items())
    else:
        return {path: value}
    result: dict[Path, Any] = {}
    for key, inner in pairs:
        result |= _leaves(inner, (*path, key))
    return result


_DEEPEST = 8
"""The most keys of a path: objects may refer to each other."""


def _replace(container: Any, path: Path, value: Any) -> None:
    key, *rest = path
    if is_plain_object(container):
        container = vars(container)
    if not rest:
        container[key] = value
        return
    inner = container[key]
    if isinstance(inner, tuple):
        items = list(inner)
        _replace(items, tuple(rest), value)
        container[key] = type(inner)(items)
        return
    _replace(inner, tuple(rest), value)


def is_number(value: UserValue) -> bool:
    """Whether a leaf is a number: of Python, or a tensor of one element."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | np.integer | np.floating) or (
        isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype != torch.bool
    )


def number_of(value: UserValue) -> float:
    """Returns the number that a leaf is."""
    return float(value.item() if isinstance(value, torch.Tensor) else value)


def is_counter(numbers: Sequence[float]) -> bool:
    """Whether a number grows by 1 in each step."""
    return all(
        # An integer, too: a state 0.5, 1.5, … may be a sum of numbers that are 1 by chance.
        math.isfinite(after) and after == before + 1 and before == math.floor(before)
        for before, after in itertools.pairwise(numbers)
    )


class InDouble(TorchDispatchMode):
    """Computes in float64 where code asks for float32: a rule has one dtype for its tensors.

    Args:
        is_exact: Whether dtypes of 16 bits are float64, too.
    """

    def __init__(self, *, is_exact: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.narrow = _NARROW if is_exact else _SINGLE

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operator."""
        return func(*args, **in_double(kwargs or {}, self.narrow))


_SINGLE = frozenset({torch.float32})
_NARROW = frozenset({torch.float32, torch.bfloat16, torch.float16})


def in_double(
    options: Mapping[str, Any], narrow: frozenset[torch.dtype] = _SINGLE
) -> dict[str, Any]:
    """Returns the arguments of an operator with float64 for narrower dtypes."""
    return {
        key: torch.float64 if isinstance(value, torch.dtype) and value in narrow else value
        for key, value in options.items()
    }


@contextmanager
def double_precision() -> Iterator[None]:
    """Makes float64 the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
