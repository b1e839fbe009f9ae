"""States of schedulers, judged by torch's own rates for 460 updates.

The rates of each class change beyond the updates that are compared with the schedule (160), so a
state that is read as a constant would be a wrong schedule.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, StepLR

import closedform as cf
from closedform.errors import TraceError
from closedform.language import Schedule

UPDATES = 460
Make = Callable[[torch.optim.Optimizer], LRScheduler]


def rates_of(make: Make, updates: int = UPDATES) -> Iterator[float]:
    """The rates that a scheduler sets."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    optimizer.param_groups[0].update(sizes=[1.0, 2.0], phase="warm")
    scheduler = make(optimizer)
    for _ in range(updates):
        yield float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def schedule_of(make: Make) -> Schedule:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    sizes = optimizer.param_groups[0]["sizes"] = [1.0, 2.0]
    optimizer.param_groups[0]["phase"] = "warm"
    schedule = cf.from_torch(make(optimizer))
    assert sizes == [1.0, 2.0]
    assert isinstance(schedule, Schedule)
    return schedule


def differs(schedule: Schedule, make: Make) -> list[int]:
    """The updates at which the scheduler sets another rate; recurrences of torch round."""
    return [
        update
        for update, rate in enumerate(rates_of(make))
        if not abs(float(schedule.exact(update)) - rate) <= 1e-9 * 0.1
    ]


def class_of(body: str) -> type[LRScheduler]:
    """The class whose ``get_lr`` has a body."""
    lines = "".join(f"        {line}\n" for line in body.split("; "))
    names: dict[str, Any] = {"LRScheduler": LRScheduler}
    exec(f"class Own(LRScheduler):\n    memory = 1.0\n    def get_lr(self):\n{lines}", names)
    result: type[LRScheduler] = names["Own"]
    return result


PLACES = {
    "of the class": "self.memory",
    "of the group": "group['momentum']",
    "a new entry": "group['memory']",
    "of the bases": "self.base_lrs[0]",
    "of the optimizer": "self.optimizer.memory",
    "of a list": "group['sizes'][0]",
}
CHANGES = {
    "a count": "{place} = {value} + 1",
    "the largest": "{place} = max({value}, self.last_epoch)",
    "at a restart": "if self.last_epoch % 300 == 299: {place} = {value} / 2",
    "a flag": "if self.last_epoch == 300: {place} = True",
}
USES = {
    "a threshold": "return [b * (0.1 if {value} > 350 else 1) for b in (0.1,)]",
    "a factor": "return [0.1 / (1 + {value})]",
}


@pytest.mark.parametrize(
    ("place", "change", "use"), [*itertools.product(PLACES.values(), CHANGES.values(), USES)]
)
def test_a_state_is_refused_by_name(place: str, change: str, use: str) -> None:
    value = place.replace("['memory']", ".get('memory', 1.0)")
    if place.endswith("optimizer.memory"):
        value = "getattr(self.optimizer, 'memory', 1.0)"
    text = (
        "group = self.optimizer.param_groups[0]; "
        + change.format(place=place, value=value)
        + "; "
        + USES[use].format(value=value)
    )
    message = "it has a state|changes a list that exists outside"
    with pytest.raises(TraceError, match=message) as error:
        schedule_of(class_of(text))
    assert "Own" in str(error.value)


READ: dict[str, Make] = {
    "a value for others": class_of(
        "self.memory = self.last_epoch; return [0.1 / (1 + self.memory)]"
    ),
    "an entry for the optimizer": class_of(
        "group = self.optimizer.param_groups[0]; group['momentum'] = 0.9 - 1e-4 * self.last_epoch; "
        "return [0.1 / (1 + self.last_epoch)]"
    ),
    "the value that it has": class_of(
        "self.memory = 1.0; return [0.1 * self.memory / (1 + self.last_epoch)]"
    ),
    "the last rates": class_of(
        "return [rate * 0.99 for rate in self._last_lr] if self.last_epoch else self.base_lrs"
    ),
    "a name of the reader": class_of(
        "self.previous = 2; return [0.1 / (self.previous + self.last_epoch)]"
    ),
    "momentum of OneCycleLR": lambda o: OneCycleLR(o, 0.2, total_steps=UPDATES + 1),
    "momentum of CyclicLR": lambda o: CyclicLR(o, 0.01, 0.1, step_size_up=100),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_not_a_state_is_read(name: str) -> None:
    assert differs(schedule_of(READ[name]), READ[name]) == []


VALUES = {
    "a text": "'warm' if self.last_epoch < 5 else 'down'",
    "a truth": "self.last_epoch < 5",
    "nothing": "None",
    "a number": "0.9 - 1e-4 * self.last_epoch",
    "a list": "[self.last_epoch]",
}
ENTRIES = {
    "a new entry": "group['memory'] = {value}",
    "an entry of its own text": "group['phase'] = {value}",
    "an entry that is updated": "group.update(memory={value})",
    "an entry that is read back": "group['memory'] = {value}; group['memory']",
    "an attribute of the optimizer": "self.optimizer.memory = {value}",
    "at some steps": "if self.last_epoch % 7 == 3: group['memory'] = {value}",
    "an entry that is deleted": "group['memory'] = {value}; del group['memory']",
}
GROUP = "group = self.optimizer.param_groups[0]; "
RESULT = "; return [0.1 / (1 + self.last_epoch)]"


@pytest.mark.parametrize(("entry", "value"), [*itertools.product(ENTRIES, VALUES)])
def test_an_entry_that_is_only_written_is_not_a_state(entry: str, value: str) -> None:
    make = class_of(GROUP + ENTRIES[entry].format(value=VALUES[value]) + RESULT)
    assert differs(schedule_of(make), make) == []


ASKED = {
    "whether there is one": "'memory' in group",
    "the entry": "group['memory'] if self.last_epoch > 300 else 1",
    "the entry or another": "group.get('memory', 1)",
    "an entry that it takes out": "group.pop('memory', 1)",
    "an entry that it makes": "group.setdefault('memory', 1)",
    "their number": "len(group)",
    "their names": "[name for name in group]",
    "a copy": "dict(group)",
    "unpacked": "{**group}",
    "an attribute": "getattr(self.optimizer, 'memory', 1)",
    "whether there is an attribute": "hasattr(self.optimizer, 'memory')",
}


@pytest.mark.parametrize("question", ASKED)
def test_a_question_for_an_entry_that_is_written_is_refused(question: str) -> None:
    place = "self.optimizer.memory" if "optimizer" in ASKED[question] else "group['memory']"
    text = (
        f"{GROUP}rate = 0.1 if ({ASKED[question]}) else 0.05; "
        f"if self.last_epoch == 300: {place} = 'late'; return [rate]"
    )
    with pytest.raises(TraceError, match="assigns 'memory' of the param groups or of the") as error:
        schedule_of(class_of(text))
    assert "Own" in str(error.value)


@pytest.mark.parametrize(
    "question", ["hasattr(self.optimizer, 'defaults')", "self.optimizer.defaults['lr'] > 0"]
)
def test_a_question_for_the_optimizer_is_refused(question: str) -> None:
    """A handler of AttributeError would take a way that no run takes."""
    text = (
        f"try: rate = 0.1 if ({question}) else 0.05\n"
        "        except AttributeError: rate = 0.0\n"
        "        return [rate]"
    )
    with pytest.raises(TraceError, match="the scheduler reads 'defaults' of the optimizer"):
        schedule_of(class_of(text))


class Logging(LRScheduler):
    """Notes its first step in a list."""

    def __init__(self, optimizer: Any) -> None:
        self.log: list[int] = []
        super().__init__(optimizer)

    def _initial_step(self) -> None:
        self.log.append(1)
        super()._initial_step()

    def get_lr(self) -> list[float | torch.Tensor]:
        return [base / (1 + self.last_epoch) for base in self.base_lrs]


def test_the_comparison_leaves_the_lists_of_a_scheduler() -> None:
    scheduler = Logging(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))
    cf.from_torch(scheduler)
    assert scheduler.log == [1]


def test_a_text_that_is_read_before_it_is_written_is_refused() -> None:
    text = (
        GROUP + "rate = 0.1 if group['phase'] == 'warm' else 0.05; "
        "group['phase'] = 'warm' if self.last_epoch < 300 else 'down'; return [rate]"
    )
    with pytest.raises(TraceError, match="assigns 'phase' of the param groups or of the optimizer"):
        schedule_of(class_of(text))


def test_a_list_of_a_group_that_is_only_written_stays_that_of_the_user() -> None:
    make = class_of(GROUP + "if self.last_epoch > 9: group['sizes'][0] = 0.0" + RESULT)
    assert differs(schedule_of(make), make) == []


class Failing(LRScheduler):
    """Raises an exception where it finds that it runs without a trace."""

    def get_lr(self) -> list[float | torch.Tensor]:
        if type(self.optimizer) is torch.optim.SGD and self.last_epoch == 7:
            raise ArithmeticError("no rate")
        return [base / (1 + self.last_epoch) for base in self.base_lrs]


def test_an_exception_of_the_comparison_is_named_by_its_line() -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if 'ArithmeticError("no rate")' in text)
    with pytest.raises(TraceError) as error:
        schedule_of(Failing)
    assert (
        "the scheduler raises ArithmeticError at step 7, where the schedule has a value: no rate"
        in str(error.value)
    )
    assert f"{Path(__file__).name}:{line}" in str(error.value)


class Previous(LRScheduler):
    """A constant with the name that a rate before has in formulas."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.previous = 0.5
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [base * self.previous / (1 + self.last_epoch) for base in self.base_lrs]


def test_a_constant_named_previous_is_not_a_rate() -> None:
    assert differs(schedule_of(Previous), Previous) == []


class OwnUpdate(LRScheduler):
    def get_lr(self) -> list[float | torch.Tensor]:
        return [base / (1 + self.last_epoch) for base in self.base_lrs]

    def _update_lr(self, epoch: int | None = None) -> None:
        super()._update_lr(epoch)
        if self.last_epoch > 300:
            self.optimizer.param_groups[0]["lr"] = 0.7


def with_own_step(optimizer: torch.optim.Optimizer) -> LRScheduler:
    scheduler = StepLR(optimizer, 30)
    setattr(scheduler, "step", lambda: None)  # noqa: B010
    return scheduler


@pytest.mark.parametrize(("make", "name"), [(OwnUpdate, "_update_lr"), (with_own_step, "step")])
def test_a_method_in_the_place_of_torchs_is_refused(make: Make, name: str) -> None:
    with pytest.raises(TraceError, match=f"has a method {name} instead of torch's"):
        schedule_of(make)


class CountsItself(LRScheduler):
    """Restarts that a subclass counts in its own ``step``, as a much-used package has them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.place = -1
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [base * (1 - self.place / 60) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        self.place = (self.place + 1) % 60
        self.last_epoch += 1
        self.optimizer.param_groups[0]["lr"] = self.get_lr()[0]


def test_a_step_that_counts_by_itself_is_refused_by_the_name_of_its_count() -> None:
    with pytest.raises(TraceError, match=r"reads the attribute 'place' and then assigns it"):
        schedule_of(CountsItself)
