"""llm.c: its learning rate, from the arguments of ``train_gpt2cu``."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import sympy as sp

from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_line

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


DEFECTS: Mapping[str, kit.Defect[...]] = {
    "binary32": kit.Defect(
        "computed in binary32", "llmc/schedulers.h:28", kind=kit.DefectKind.CONVENTION
    ),
    "past-the-end": kit.Defect(
        "an update after the run fails an assertion",
        "llmc/schedulers.h:34",
        kind=kit.DefectKind.CONVENTION,
        classes=("cosine", "linear", "wsd"),
    ),
}


def _binary32(value: float) -> float:
    """Rounds to binary32."""
    result: float = struct.unpack("f", struct.pack("f", value))[0]
    return result


def _rate(context: kit.Context, arguments: Arguments) -> Schedule:
    style, peak, warmup = arguments.k, arguments.l, sp.Integer(arguments.u)
    total = sp.Integer(arguments.x)
    # -1 stands for one epoch: the batches of the training data.
    if total == -1:
        total = exact_number(context.fact("train_num_batches"), "train_num_batches")
    if style == "constant":
        return kit.by_intervals(style, (lambda: peak, None))
    count = CLOCK.count(context.numbers)
    low, n = peak * arguments.q, count.n
    # The update (int)(0.8f * total), in binary32.
    begin = sp.Integer(int(_binary32(_binary32(0.8) * _binary32(float(total)))))

    def fall() -> sp.Expr:
        if style == "linear":
            return along_line(peak, low, kit.quotient(n - warmup, total - warmup))
        if style == "cosine":
            return along_cosine(peak, low, kit.quotient(n - warmup, total - warmup))
        return along_line(peak, low, kit.power_quotient(n - begin, total - begin, sp.S.Half))

    return kit.by_intervals(
        style,
        # n + 1: update 0 is above 0, and update W - 1 has the peak.
        (lambda: peak * (n + 1) / warmup, count.first_from(warmup)),
        (lambda: peak, count.first_from(begin) if style == "wsd" else 0),
        # schedulers.h:34 asserts that the position is at most 1: update T has a value, T + 1 has
        # none.
        (fall, count.first_after(total)),
        (_past_the_end, None),
    )


def _past_the_end() -> sp.Expr:
    raise kit.UndefinedError("the assertion that the update is in the run fails")


FRAMEWORK = kit.Framework(
    "llm.c",
    kit.section_entries(
        dict.fromkeys(STYLES, _rate), {"": Arguments}, style=lambda arguments: str(arguments.k)
    ),
    versions=("f1e2ace65149",),
    repository="https://github.com/karpathy/llm.c",
    tier=kit.Tier.OFFICIAL,
    upstream="llmc/schedulers.h",
    clock=CLOCK,
    defects=DEFECTS,
)
