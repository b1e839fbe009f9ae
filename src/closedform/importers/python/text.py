"""Texts of the step that nothing depends on: of an exception that is raised, or of a log."""

from __future__ import annotations

import dis
from collections.abc import Callable, Container
from types import FrameType
from typing import Any

_SHOWING = {
    "BINARY_OP", "BUILD_STRING", "BUILD_TUPLE", "CACHE", "CONVERT_VALUE", "EXTENDED_ARG",
    "FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC", "KW_NAMES", "LOAD_ATTR", "LOAD_CONST",
    "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_SMALL_INT", "NOP",
    "NOT_TAKEN", "PRECALL", "PUSH_NULL",
}  # fmt: skip
"""Instructions that put a text together, between its making and the call that takes it."""
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_KW"}


class Silent:
    """A logger, or a function that only reports: it does nothing.

    Args:
        name: Its name.
        note: Notes that a report is left out.
    """

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name = name
        self._note = note

    def __getattr__(self, name: str) -> Silent:
        return Silent(f"{self._name}.{name}", self._note)

    def __call__(self, *_: Any, **__: Any) -> Silent:
        """Notes the call."""
        self._note(self._name)
        return self

    def __bool__(self) -> bool:
        return False  # no message is wanted


def is_only_shown(frame: FrameType, codes: Container[int]) -> bool:
    """Returns whether the text that an instruction makes is only raised or logged.

    Without a branch in between it is part of an exception that is raised outside of any handler, or
    the argument of a call of :class:`Silent`, whose result is not used.

    Args:
        frame: The frame that makes the text.
        codes: The ids of the codes of the traced functions.
    """
    code = frame.f_code
    if id(code) not in codes:
        return False
    instructions = list(dis.get_instructions(code))
    places = [index for index, item in enumerate(instructions) if item.offset == frame.f_lasti]
    if not places:
        return False
    calls: list[dis.Instruction] = []
    for instruction in instructions[places[0] + 1 :]:
        name = instruction.opname
        if name in _CALLS:
            calls.append(instruction)
        elif name == "RAISE_VARARGS":
            return not _is_handled(frame, codes)
        elif name == "POP_TOP":
            return len(calls) == 1 and _is_silent(calls[0], instructions[: places[0]], frame)
        elif name not in _SHOWING or "[" in instruction.argrepr.partition(" ")[0]:
            return False
    return False


def _is_handled(frame: FrameType | None, codes: Container[int]) -> bool:
    """Whether a traced function may catch an exception that a frame raises."""
    while frame is not None:
        if id(frame.f_code) in codes:
            entries: Any = dis.Bytecode(frame.f_code).exception_entries  # type: ignore[attr-defined]
            if any(entry.start <= frame.f_lasti < entry.end for entry in entries):
                return True
        frame = frame.f_back
    return False


def _is_silent(call: dis.Instruction, before: list[dis.Instruction], frame: FrameType) -> bool:
    """Whether the function that an instruction calls only reports."""
    place = call.positions
    if place is None or place.col_offset is None:
        return False
    start = (place.lineno, place.col_offset)
    loads = [
        index
        for index, load in enumerate(before)
        if load.opname.startswith("LOAD_")
        and load.positions is not None
        and (load.positions.lineno, load.positions.col_offset) == start
    ]
    if not loads:
        return False
    value = _variable(before[loads[0]], frame)
    for instruction in before[loads[0] + 1 :]:
        if isinstance(value, Silent):
            return True
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            continue
        value = getattr(value, str(instruction.argval), None)
    return isinstance(value, Silent)


def _variable(instruction: dis.Instruction, frame: FrameType) -> Any:
    name = str(instruction.argval)
    if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        try:
            return frame.f_globals[name]
        except KeyError:
            return frame.f_builtins.get(name)
    return frame.f_locals.get(name)
