"""``is``, and literal patterns such as ``case True``, about values that depend on the step.

CPython compares the addresses of two objects, and asks neither: a traced truth is never the
object ``True``. The instruction is therefore replaced by the one that imports a module, which also
takes two values from the stack and has the same length in each version of CPython, and which calls
the ``__import__`` of the builtins of a function with them.
"""

from __future__ import annotations

import dis
import numbers
import types
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from closedform.importers.python.number import Number, Truth
from closedform.importers.python.place import UserValue

IDENTITY, DIFFERENCE = "is", "is not"
"""The names of the modules that the instructions import; no module has a keyword as its name."""
_MOST_NAMES = 255
"""The largest argument of an instruction of one code unit."""


Refuse = Callable[[str, str], BaseException]
"""Returns the signal that stops a run, from the reason and a hint."""


def with_identity(code: types.CodeType, refuse: Refuse) -> types.CodeType:
    """Returns code that asks its ``__import__`` whether two values are one object."""
    inner = tuple(
        with_identity(item, refuse) if isinstance(item, types.CodeType) else item
        for item in code.co_consts
    )
    code = code.replace(co_consts=inner)
    units = code.co_code
    places = [place for place in range(0, len(units), 2) if units[place] == dis.opmap["IS_OP"]]
    if not places:
        return code
    first = len(code.co_names)
    if first + 1 > _MOST_NAMES:
        raise refuse(f"a function with 'is' and {first} names", "use ==")
    replacement = bytearray(units)
    for place in places:
        # The argument of the instruction says whether the answer is negated.
        replacement[place : place + 2] = dis.opmap["IMPORT_NAME"], first + units[place + 1]
    names = (*code.co_names, IDENTITY, DIFFERENCE)
    return code.replace(co_code=bytes(replacement), co_names=names)


def imported_answer(args: Sequence[Any], refuse: Refuse) -> bool | None:
    """Returns the answer to an instruction for identity; None for one that imports a module.

    Args:
        args: The arguments of ``__import__``.
        refuse: Stops the run.
    """
    if args[:1] not in ((IDENTITY,), (DIFFERENCE,)):
        return None
    right, left = args[3:]
    return is_same_object(left, right, refuse) is (args[0] == IDENTITY)


def is_same_object(left: UserValue, right: UserValue, refuse: Refuse) -> bool:
    """Returns whether two values are one object in the user's function.

    Raises:
        BaseException: Both are numbers, each of which may be a new object or a stored one.
    """
    # `step is None` is false for every number.
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        if not isinstance(left, _SINGLETONS) and not isinstance(right, _SINGLETONS):
            raise refuse("'is' between two numbers, which Python may store twice", "use ==")
        return left is right
    return bool(_truth_of(left) is _truth_of(right))


_NUMBERS = (Number, numbers.Number)
_SINGLETONS = (bool, Enum)
"""Numbers of which each is one object: truths, and members of an IntEnum."""


def _truth_of(value: Any) -> Any:
    """A truth as the object that it is in the function: the run chooses."""
    is_scalar = isinstance(value, Truth) and (
        value.unit is None or isinstance(value.unit, bool | np.bool_)
    )
    # An array or tensor of a truth is neither True nor False.
    return value.value if is_scalar else value
