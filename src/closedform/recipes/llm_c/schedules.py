"""The learning rate of llm.c, from the arguments of ``train_gpt2cu``."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import UndefinedError, by_intervals, power_quotient, quotient
from closedform.recipes.native import check_name, count, fact, number
from closedform.schedules.blends import along_cosine, along_line

STYLES = ("cosine", "linear", "constant", "wsd")


def _binary32(value: float) -> float:
    """Rounds to binary32."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    style = given["-k"]
    check_name(context.path[-1], style, "-k", where)
    peak = number(given["-l"], "-l", where)
    low = peak * number(given["-q"], "-q", where)
    warmup = count(given["-u"], "-u", where)
    total = given["-x"]
    total = count(fact(context, "train_num_batches") if total == -1 else total, "-x", where)
    if style == "constant":
        return by_intervals(style, (lambda: peak, None))
    rise = (lambda: peak * (t + 1) / warmup, warmup)
    length, begin = sp.Integer(total - warmup), _decay_begin(total)

    def fall() -> sp.Expr:
        if style == "linear":
            return along_line(peak, low, quotient(t - warmup, length))
        if style == "cosine":
            return along_cosine(peak, low, quotient(t - warmup, length))
        done = power_quotient(t - begin, sp.Integer(total - begin), sp.S.Half)
        return along_line(peak, low, done)

    flat = (lambda: peak, begin if style == "wsd" else 0)
    return by_intervals(style, rise, flat, (fall, total + 1), (_past_the_end, None))


def _decay_begin(total: int) -> int:
    """The update ``(int)(0.8f * total)``, in binary32."""
    return int(_binary32(_binary32(0.8) * _binary32(total)))


def _past_the_end() -> sp.Expr:
    raise UndefinedError("the assertion that the update is in the run fails")


_PARAMETERS = parameters(**{"-k": "cosine", "-l": 3e-4, "-u": 0, "-q": 1.0, "-x": -1})
_NOTES = ("computed in binary32", "an update after the run fails an assertion")
SCHEDULES = {name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES) for name in STYLES}
