"""The function and the module of a model that a traced operator comes from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import traceback
from torch.overrides import TorchFunctionMode, resolve_name

KEY = "custom"
"""The key of an operator's metadata with its place; torch carries it from trace to trace."""

UNKNOWN = "the loss"


class Places(TorchFunctionMode):
    """Notes the calling module and function at each traced operator, also of its gradient.

    A forward runs inside of ``recorded``. Operators of a backward get the place of the forward
    operator whose gradient they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._modules: list[str] = []
        self._calls: list[str] = []
        self._seen: set[Any] = set()
        self._failed: str | None = None

    def here(self) -> str:
        """The innermost place, or that of the first operator that failed."""
        return self._failed or _text(self._now())

    def _now(self) -> dict[str, str]:
        module = self._modules[-1] if self._modules else UNKNOWN
        return {"module": module, **({"call": self._calls[-1]} if self._calls else {})}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._calls.append(_name(function))
        with self._note_place():
            result = function(*args, **(kwargs or {}))
            self._follow(result)
        self._calls.pop()
        return result

    @contextlib.contextmanager
    def _note_place(self) -> Iterator[None]:
        """Notes the place in torch's metadata, and the first place at which an error is raised."""
        meta = traceback.current_meta
        above = meta.get(KEY)
        meta[KEY] = self._now()
        try:
            yield
        except Exception:
            self._failed = self._failed or _text(self._now())
            raise
        finally:
            if above is None:
                meta.pop(KEY, None)
            else:
                meta[KEY] = above

    def _follow(self, result: Any) -> None:
        """Has the gradients of new operators run with their place."""
        leaves = torch.utils._pytree.tree_leaves(result)
        left = [leaf.grad_fn for leaf in leaves if isinstance(leaf, torch.Tensor)]
        place = self._now()
        while left:
            node = left.pop()
            if node is None or node in self._seen:
                continue
            self._seen.add(node)
            node.register_prehook(_placing(place))
            left.extend(above for above, _ in node.next_functions)

    @contextlib.contextmanager
    def record_modules(self, model: torch.nn.Module) -> Iterator[None]:
        """Notes the module of this model that runs."""
        paths = {
            id(module): f"{name or 'the model itself'} ({type(module).__name__})"
            for name, module in model.named_modules()
        }

        def enter(module: torch.nn.Module, *_: Any) -> None:
            if id(module) in paths:
                self._modules.append(paths[id(module)])

        def leave(module: torch.nn.Module, *_: Any) -> None:
            if id(module) in paths:
                self._modules.pop()

        # The backward of an earlier trace leaves its last place.
        traceback.current_meta.pop(KEY, None)
        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave),
        ]
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._seen.clear()  # the nodes hold what they saved for their gradients


def operator_of(node: torch.fx.Node) -> str:
    """Returns the operator of a graph, with the function of the model that calls it."""
    call = (node.meta.get(KEY) or {}).get("call")
    return f"the operator {node.target}" + (f" of {call}" if call else "")


def place_of(node: torch.fx.Node) -> str:
    """Returns the module that an operator of a graph comes from."""
    note = node.meta.get(KEY) or {}
    backward = "the gradient of " if "backward" in note else ""
    return f"{backward}{note.get('module', UNKNOWN)}"


def current_place() -> str:
    """Returns the function of the model and the module that are traced now."""
    return _text(traceback.current_meta.get(KEY) or {})


def _text(place: dict[str, str]) -> str:
    call = f"{place['call']} in " if "call" in place else ""
    return f"{call}{place.get('module', 'the model')}"


def _placing(place: dict[str, str]) -> Callable[[Any], None]:
    def hook(_: Any) -> None:
        traceback.current_meta[KEY] = {**place, "backward": "yes"}

    return hook


def _name(function: Any) -> str:
    try:
        name = resolve_name(function)
    except (AttributeError, TypeError, ValueError):
        name = None
    label = str(name or getattr(function, "__name__", repr(function)))
    return label.replace("torch.Tensor.", "Tensor.")
