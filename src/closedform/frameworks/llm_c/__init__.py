"""llm.c: its learning rate, from the arguments of ``train_gpt2cu``."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import sympy as sp

from closedform.frameworks.llm_c import curves
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
STYLES = ("cosine", "linear", "constant", "wsd")


class Arguments(kit.Section):
    """Flags of one letter, with a dash before each."""

    k: str = kit.choice(*STYLES, default="cosine")
    l: kit.Rate = 3e-4  # noqa: E741 - a flag of one letter
    u: kit.Steps = 0
    q: kit.RateRatio = 1
    x: kit.Steps = -1

    @staticmethod
    def spell(name: str) -> str:
        """Returns the spelling of a flag."""
        return f"-{name}"


DEFECTS: Mapping[str, kit.Note[...]] = {
    "binary32": kit.Convention("computed in binary32", "llmc/schedulers.h:28"),
    "past-the-end": kit.Convention(
        "an update after the run fails an assertion",
        "llmc/schedulers.h:34",
        classes=("cosine", "linear", "wsd"),
    ),
}


def _binary32(value: float) -> float:
    """Rounds to binary32."""
    result: float = struct.unpack("f", struct.pack("f", value))[0]
    return result


def _rate(context: kit.Context, arguments: Arguments) -> Schedule:
    style, peak, warmup, total = arguments.k, arguments.l, arguments.u, sp.Integer(arguments.x)
    # -1 stands for one epoch: the batches of the training data.
    if total == -1:
        total = exact_number(context.fact("train_num_batches"), "train_num_batches")
    # The update (int)(0.8f * total), in binary32.
    begin = int(_binary32(_binary32(0.8) * _binary32(float(total))))
    numbers = {"peak": peak, "warmup": warmup, "total": total, "low": peak * arguments.q}
    return kit.curve(style, curves.rate, t, style=style, begin=begin, **numbers)


FRAMEWORK = kit.Framework(
    "llm.c",
    kit.section_entries(
        dict.fromkeys(STYLES, _rate), {"": Arguments}, style=lambda arguments: str(arguments.k)
    ),
    versions=("f1e2ace65149",),
    repository="https://github.com/karpathy/llm.c",
    upstream="llmc/schedulers.h",
    clock=CLOCK,
    defects=DEFECTS,
)
