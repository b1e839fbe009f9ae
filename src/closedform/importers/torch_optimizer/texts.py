"""Texts of traced code that could format a number: C would read its value without its expression.

``"%f" % number`` reads the value of a subclass of float directly, past ``__format__`` and
``__str__``. A constant, a variable or a stored text with a ``%`` is therefore a ``Text`` in traced
code, which refuses to take numbers of the step, and makes texts that refuse them, too.
"""

from __future__ import annotations

import dis
import types
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from closedform.importers.python.place import UserValue
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.positions import Position
from closedform.importers.torch_optimizer.scalars import SYMBOLIC

_DEPTH = 4


def has_traced(value: UserValue, depth: int = _DEPTH) -> bool:
    """Returns whether a value holds a number with an expression, a place, or a tensor."""
    if isinstance(value, (*SYMBOLIC, Position, torch.Tensor)):
        return True
    if depth and isinstance(value, Mapping):
        return any(has_traced(item, depth - 1) for item in value.values())
    if depth and isinstance(value, list | tuple | set | deque):
        return any(has_traced(item, depth - 1) for item in value)
    return False


class Text(str):
    """A text with a ``%`` in traced code."""

    run: Run

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copies as a plain text."""
        return str, (_plain(self),)


class Bytes(bytes):
    """Bytes with a ``%`` in traced code."""

    run: Run

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        """Copies as plain bytes."""
        return bytes, (_plain(self),)


def guard_text(value: Any, run: Run) -> Any:
    """Returns a text, or a tuple of constants, that refuses to format numbers of the step."""
    if type(value) is tuple:
        items = tuple(guard_text(item, run) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if type(value) is str and "%" in value:
        text = Text(value)
        text.run = run
        return text
    if type(value) is bytes and b"%" in value:
        content = Bytes(value)
        content.run = run
        return content
    return value


def _guarded_result(result: Any, run: Run) -> Any:
    if isinstance(result, list):
        return [guard_text(item, run) for item in result]
    return guard_text(result, run)


def _method(kind: type, name: str) -> Callable[..., Any]:
    function = getattr(kind, name)

    def apply(self: Any, *args: Any, **options: Any) -> Any:
        if has_traced((args, options)):
            raise self.run.refuse("a text of a number or tensor of the step is not traced")
        return _guarded_result(function(self, *args, **options), self.run)

    return apply


_PLAIN = frozenset(
    {
        "__class__",
        "__delattr__",
        "__dir__",
        "__doc__",
        "__eq__",
        "__format__",
        "__ge__",
        "__getattribute__",
        "__getnewargs__",
        "__getstate__",
        "__gt__",
        "__hash__",
        "__init__",
        "__init_subclass__",
        "__le__",
        "__len__",
        "__lt__",
        "__ne__",
        "__new__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__setattr__",
        "__sizeof__",
        "__subclasshook__",
        "__contains__",
        "__bytes__",
        "__buffer__",
    }
)
for _kind, _base in ((Text, str), (Bytes, bytes)):
    for _name in dir(_base):
        if _name not in _PLAIN and callable(getattr(_base, _name)) and _name != "maketrans":
            setattr(_kind, _name, _method(_base, _name))


def _plain(text: Any) -> Any:
    return str.__str__(text) if isinstance(text, str) else bytes.__getitem__(text, slice(None))


def _joined_after(self: Any, before: Any) -> Any:
    if not isinstance(before, str | bytes):
        return NotImplemented
    return guard_text(before + _plain(self), self.run)


def _iterate(self: Any) -> Any:
    return iter([guard_text(item, self.run) for item in _plain(self)])


def _refuse_format(self: Text, spec: str) -> str:
    raise self.run.refuse("a text with a % is put into another text", hint=_HINT)


_HINT = "format numbers outside of the step, or by f-strings without %"
setattr(Text, "__radd__", lambda self, before: _joined_after(self, before))  # noqa: B010
setattr(Bytes, "__radd__", lambda self, before: _joined_after(self, before))  # noqa: B010
setattr(Text, "__iter__", _iterate)  # noqa: B010
setattr(Text, "__format__", _refuse_format)  # noqa: B010


def with_guarded_texts(code: types.CodeType, run: Run) -> types.CodeType:
    """Returns code whose constant texts refuse to format numbers of the step."""
    constants = tuple(
        with_guarded_texts(item, run) if isinstance(item, types.CodeType) else guard_text(item, run)
        for item in code.co_consts
    )
    if all(a is b for a, b in zip(constants, code.co_consts, strict=True)):
        return code
    return code.replace(co_consts=constants)


def hides_formats(code: types.CodeType) -> bool:
    """Returns whether code can format numbers by a text other than a ``Text``.

    The interpreter joins the parts of an f-string itself, and ``str.__mod__`` asks no ``Text``.
    """
    if any(hides_formats(item) for item in code.co_consts if isinstance(item, types.CodeType)):
        return True
    if "__mod__" in code.co_names or "__rmod__" in code.co_names:
        return True
    if not any(isinstance(item, str) and "%" in item for item in code.co_consts):
        return False
    steps = list(dis.get_instructions(code))
    has_remainder = any(s.opname == "BINARY_OP" and s.argrepr in ("%", "%=") for s in steps)
    return has_remainder and any(s.opname == "BUILD_STRING" for s in steps)
