"""Runs that are resumed with another schedule, horizon or batch size, without a jump."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from closedform.analysis.rescaling import (
    BATCH_RULES,
    SCALINGS,
    dilate,
    dilated_length,
    rate_factor,
)
from closedform.analysis.result import Result
from closedform.errors import ArgumentError, DefinitionError, DomainError, nearest
from closedform.language import Schedule, exact_number, t
from closedform.language.aliases import Number
from closedform.language.exact import to_float
from closedform.language.schedule import whole_steps
from closedform.verify.claims.values import equal_to
from closedform.verify.terms.verdict import Status


@dataclass(frozen=True, slots=True)
class Resumed(Result):
    """A schedule that is changed while its run is under way.

    Attributes:
        schedule: The whole schedule: the old one before ``at``, then the new one.
        at: The first update of the new one.
        before: The value that the old schedule has at ``at``.
        after: The value of the new one there.
        history: Whether the updates before ``at`` are PROVED to have the values that they had.
        continuity: Whether the value is PROVED not to jump at ``at``.
        old_length: The length of the old schedule, None if it has none.
        new_length: The length of the whole.
        factor: The factor that the new schedule was multiplied by.
    """

    DATA = (
        *("at", "before", "after", "history", "continuity", "old_length", "new_length"),
        "factor",
    )

    schedule: Schedule
    at: int
    before: sp.Expr
    after: sp.Expr
    history: Status
    continuity: Status
    old_length: int | None
    new_length: int | None
    factor: sp.Expr

    def lines(self) -> list[str]:
        """Returns the report of the change."""
        lines = [
            f"resumed at update {self.at}: {_decimal(self.before)} -> {_decimal(self.after)}",
            f"no jump there: {self.continuity}; unchanged before it: {self.history}",
            f"length: {self.old_length} -> {self.new_length}",
        ]
        if self.factor != 1:
            lines.append(f"the new schedule is multiplied by {_decimal(self.factor)}")
        return lines


def resume(
    schedule: Schedule,
    at: int,
    new: Schedule | None = None,
    *,
    total: int | None = None,
    batch_sizes: tuple[Number, Number] | None = None,
    scaling: str = "none",
    is_continuous: bool = True,
) -> Resumed:
    r"""Returns a schedule that is changed at an update of its run, with a report of the change.

    With ``new``, the value goes on with ``new`` in its own time, multiplied so that it does not
    jump. With ``total``, what remains is stretched or shortened to end at that update:

    .. math:: g(t) = f\!\left(n + (t - n) \frac{N - n}{M - n}\right) \quad\text{for}\quad t \ge n

    With ``batch_sizes``, an update has another number of samples from then on, and the schedule
    remains the same function of the samples: the remaining time runs r = new / old times as fast.

    Args:
        schedule: The schedule f of the run, with length N for ``total``.
        at: The first update n with the change.
        new: The schedule that follows, from its own step 0.
        total: The new number of updates M of the whole run, above ``at``.
        batch_sizes: The batch sizes before and after, in samples or tokens.
        scaling: The change of the value with the batch size: ``none``, ``linear`` (by r) or
            ``sqrt`` (by the root of r). With a scaling the value jumps.
        is_continuous: Whether ``new`` is multiplied by a factor to begin where f has come to.

    Raises:
        ArgumentError: Not exactly one of ``new``, ``total`` and ``batch_sizes`` is given.
        DefinitionError: A number is not such a number, or the schedule has no length for
            ``total`` or open hyperparameters.
        DomainError: ``new`` begins at 0 and the schedule has not come to 0, or ``total`` is not
            above ``at``.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.cosine(1, 0, 100)
        >>> longer = resume(lr, 50, total=150)
        >>> longer.schedule.exact(50), longer.schedule.exact(100), longer.schedule.exact(150)
        (1/2, 1/2 - sqrt(2)/4, 0)
        >>> str(longer.continuity)
        'PROVED'
    """
    count = sum(value is not None for value in (new, total, batch_sizes))
    several = ArgumentError(
        f"exactly one of new, total and batch_sizes must be given, got {count}", where="resume"
    )
    if count > 1:
        raise several
    mark = whole_steps(at, "at")
    before = schedule.exact(int(mark))
    if new is not None:
        tail, factor, length = _follow(schedule, new, mark, before, is_continuous=is_continuous)
    elif total is not None:
        tail, factor, length = _stretch(schedule, mark, total)
    elif batch_sizes is not None:
        tail, factor, length = _rescale(schedule, mark, batch_sizes, scaling)
    else:
        raise several
    expr = sp.Piecewise((schedule.bound, sp.Lt(t, mark)), (tail, True))
    whole = Schedule(tail if mark == 0 else expr, name=schedule.name, length=length)
    return Resumed(
        whole,
        int(mark),
        before,
        whole.exact(int(mark)),
        equal_to(whole, schedule, where=t < mark).verify().status if mark else Status.PROVED,
        _continuity_status(schedule, tail, mark),
        None if schedule.length is None else int(schedule.length),
        None if length is None else int(length),
        factor,
    )


Tail = tuple[sp.Expr, sp.Expr, sp.Expr | None]
"""The expression from the change on, the factor of the new schedule, and the whole length."""


def _follow(
    schedule: Schedule, new: Schedule, mark: sp.Integer, before: sp.Expr, *, is_continuous: bool
) -> Tail:
    first = new.exact(0)
    factor: sp.Expr = sp.S.One
    if is_continuous and first != before:
        if first == 0:
            raise DomainError(
                f"the new schedule begins at 0 and the run has come to {before}",
                where=f"schedule {new.name!r}",
                hint="no factor joins them: begin it above 0, or pass is_continuous=False",
            )
        factor = before / first
    length = None if new.length is None else mark + new.length
    return factor * new.bound.xreplace({t: t - mark}), factor, length


def _stretch(schedule: Schedule, mark: sp.Integer, total: int) -> Tail:
    end = whole_steps(total, "total")
    if end <= mark:
        raise DomainError(f"total must be above at, got {total} and {mark}", where="resume")
    if schedule.length is None or schedule.length <= mark:
        raise DefinitionError(
            f"a new total needs a schedule that ends after update {mark}, got the length "
            f"{schedule.length}",
            where=f"schedule {schedule.name!r}",
            hint="give the schedule that follows as new",
        )
    ratio = (schedule.length - mark) / (end - mark)
    return dilate(schedule, mark, ratio), sp.S.One, end


def _rescale(
    schedule: Schedule, mark: sp.Integer, sizes: tuple[Number, Number], scaling: str
) -> Tail:
    if scaling not in SCALINGS:
        raise DefinitionError(
            f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}",
            hint=nearest(str(scaling), SCALINGS),
        )
    old, now = (exact_number(size, "a batch size") for size in sizes)
    if not (old > 0 and now > 0 and old.is_Rational and now.is_Rational):
        raise DefinitionError(f"batch sizes must be rational and above 0, got {sizes}")
    ratio = now / old
    factor = rate_factor(BATCH_RULES[scaling], ratio)
    length = None if schedule.length is None else dilated_length(schedule.length, mark, ratio)
    return factor * dilate(schedule, mark, ratio), factor, length


def _continuity_status(schedule: Schedule, tail: sp.Expr, mark: sp.Integer) -> Status:
    """The verdict on the claim that both schedules have one value at the change.

    The claim is only about the step of the change: jumps elsewhere belong to the parts.
    """
    new = Schedule(tail, name="tail")
    return equal_to(new, schedule, where=sp.Eq(t, mark)).verify().status


def _decimal(number: sp.Expr) -> str:
    return str(number) if number.is_Rational else f"{number} = {to_float(number):.6g}"
