"""`Effort`: work counts, time does not; a limit of wall-clock time names itself."""

from threading import Thread

import pytest

from closedform.effort import METER, UNLIMITED, Effort, OutOfEffort, spend


def test_work_is_charged_to_every_effort_that_has_begun() -> None:
    whole = Effort.of(100)
    part = whole.portion(30)
    spend(20)
    assert (whole.left, part.left) == (80, 10)
    assert part.portion(50).left == 10
    assert whole.portion(50).left == 50


def test_an_effort_ends() -> None:
    effort = Effort.of(10)
    effort.spend(10)
    effort.check()
    assert effort.left == 0
    with pytest.raises(OutOfEffort):
        effort.spend(1)
    with pytest.raises(OutOfEffort):
        effort.step(5)
    assert effort.portion(5).left == 0
    assert "larger" in effort.why()


def test_without_a_limit_nothing_ends() -> None:
    spend(10**9)
    UNLIMITED.check()
    assert UNLIMITED.left > 10**18
    assert UNLIMITED.step(7).left == 7


def test_wall_clock_time_is_a_limit_only_where_it_is_asked_for() -> None:
    late = Effort.of(10**9, seconds=-1.0)
    assert late.is_late
    assert late.left == 0
    assert late.seconds_left == 0
    with pytest.raises(OutOfEffort):
        late.check()
    assert late.portion(5).is_late
    assert late.why().startswith("the limit of -1 s of wall-clock time was reached")
    assert "depends on the machine" in late.why()
    assert not Effort.of(-1).is_late
    assert not Effort.of(10, seconds=1000.0).is_late


def test_each_thread_has_its_own_meter() -> None:
    effort = Effort.of(100)
    thread = Thread(target=spend, args=(1000,))
    thread.start()
    thread.join()
    assert effort.left == 100
    assert METER.work >= 0
