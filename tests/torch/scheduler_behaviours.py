"""Behaviours of torch's schedulers: one for each test of torch's ``test_lrscheduler.py``.

A behaviour is an observation, made with the classes of torch and with ours. Its names are those of
torch's tests, and what is observed is stated here. ``python -m tests.torch.scheduler_behaviours``
prints the table of docs/torch.md.
"""

import gc
import io
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.lr_scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import SWALR

from closedform.torch import lr_scheduler
from tests.torch.training import parameters

Library = Any
"""A namespace with the scheduler classes."""
Make = Callable[[Library, torch.optim.Optimizer], Any]
Observe = Callable[[Library], Any]

THEIRS: Library = SimpleNamespace(**vars(torch.optim.lr_scheduler), SWALR=SWALR)
OURS: Library = SimpleNamespace(
    **{**lr_scheduler.SCHEDULERS, "ReduceLROnPlateau": ReduceLROnPlateau, "SWALR": SWALR}
)
"""Our 14 classes; torch's classes that are driven by a metric or by averaging are beside them."""

FUNCTIONS = "a state has no functions, and a function is not restored from one"
ARGUMENTS = "arguments are attributes of the scheduler, and not entries of groups"
CLOCK = "`T_cur` is read from the clock and is not set"
ERRORS = "another class or text of the error"


@dataclass(frozen=True)
class Behaviour:
    """A behaviour of torch's schedulers.

    Attributes:
        group: The kind of behaviour, which is a row of the table.
        name: torch's test.
        observations: What is observed with a library, one for each parameter of torch's test.
        different: The reason of a deliberate difference.
    """

    group: str
    name: str
    observations: tuple[Observe, ...]
    different: str | None = None


# --- optimizers and what is observed of them ----------------------------------------------------


def _sgd(rates: Sequence[Any] = (0.05, 0.5)) -> torch.optim.Optimizer:
    """Two groups, of which the second has a tensor as rate: in float64, to compare closely."""
    last = torch.tensor(rates[1], dtype=torch.float64)
    groups: list[dict[str, Any]] = [
        {"params": parameters([(2,)])},
        {"params": parameters([(3,)]), "lr": last},
    ]
    return torch.optim.SGD(groups, lr=rates[0])


def _adam() -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": parameters([(2,)])},
        {"params": parameters([(3,)]), "lr": 0.5},
    ]
    return torch.optim.Adam(groups, lr=0.05)


def _one_tensor() -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters([(2,)]), lr=torch.tensor(2.0, dtype=torch.float64))


def _entries(optimizer: torch.optim.Optimizer) -> list[float]:
    found = []
    for group in optimizer.param_groups:
        betas = group.get("betas", (0,))
        found += [float(group["lr"]), float(group.get("momentum", 0)), float(betas[0])]
    return found


def _floats(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values]


def _step(scheduler: Any, metric: float) -> None:
    scheduler.step(*([metric] if isinstance(scheduler, ReduceLROnPlateau) else []))


def values(
    *makes: Make,
    steps: int = 10,
    optimizer: Callable[[], torch.optim.Optimizer] = _sgd,
    metrics: Sequence[float] = (),
) -> Observe:
    """Returns the entries of groups, and ``get_last_lr``, at each of some steps."""

    def observe(of: Library) -> Any:
        made = optimizer()
        with warnings.catch_warnings():  # which torch gives for sequences of chains
            warnings.simplefilter("ignore")
            schedulers = [make(of, made) for make in makes]
        found = [_entries(made)]
        for count in range(steps):
            made.step()
            for one in schedulers:
                _step(one, metrics[count] if metrics else 0.0)
            rates = [rate for one in schedulers for rate in _floats(one.get_last_lr())]
            found.append([*_entries(made), *rates])
        return found

    return observe


def at_epochs(make: Make, epochs: Sequence[float], *, is_deprecated: bool = True) -> Observe:
    """Returns the entries of groups after ``step(epoch)``, and the number of warnings."""

    def observe(of: Library) -> Any:
        made = _sgd()
        scheduler = make(of, made)
        made.step()
        found = []
        for epoch in epochs:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                scheduler.step(epoch)
            texts = [str(one.message) for one in caught]
            assert texts == [EPOCH_DEPRECATION_WARNING] * is_deprecated
            found.append(_entries(made))
        return found

    return observe


def closed_form(make: Make, steps: int = 20) -> Observe:
    """Returns the rates of steps and of ``step(epoch)``, which must be equal."""

    def observe(of: Library) -> Any:
        stepped, jumped = _sgd(), _sgd()
        one, other = make(of, stepped), make(of, jumped)
        stepped.step()
        jumped.step()
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for count in range(1, steps):
                one.step()
                other.step(count)
                found.append(_entries(stepped))
                torch.testing.assert_close(found[-1], _entries(jumped), rtol=1e-12, atol=1e-15)
        return found

    return observe


def warned(make: Make, *, is_wrong: bool, is_replaced: bool = False, resumed: bool = False) -> Any:
    """Returns which warnings two steps give in the right or the wrong order."""

    def observe(of: Library) -> Any:
        optimizer = _sgd()
        if resumed:
            for group in optimizer.param_groups:
                group["initial_lr"] = 0.01
        scheduler = make(of, optimizer)
        if is_replaced:
            before = optimizer.step
            optimizer.step = lambda *args: before(*args)  # type: ignore[method-assign, assignment]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                if is_wrong:
                    scheduler.step()
                optimizer.step()
                if not is_wrong:
                    scheduler.step()
        texts = [str(one.message) for one in caught if one.category is UserWarning]
        marks = ("how-to-adjust-learning-rate", "`optimizer.step()` has been overridden")
        return [[mark in text for mark in marks] for text in texts]

    return observe


def raised(make: Make, kinds: type[Exception] | tuple[type[Exception], ...], text: str = "") -> Any:
    """Returns whether a call raises an error of a kind with a text."""

    def observe(of: Library) -> Any:
        try:
            make(of, _sgd())
        except kinds as error:
            return text in str(error)
        return "no error"

    return observe


def restored(make: Make, other: Make, steps: int = 10, metrics: Sequence[float] = ()) -> Observe:
    """Returns rates before and after a state is loaded by a scheduler with other arguments."""

    def observe(of: Library) -> Any:
        optimizer = _sgd()
        scheduler = make(of, optimizer)
        for count in range(steps):
            optimizer.step()
            _step(scheduler, metrics[count] if metrics else 0.0)
        copied = _sgd()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            second = other(of, copied)
            second.load_state_dict(scheduler.state_dict())
        copied.load_state_dict(optimizer.state_dict())
        found = [_floats(scheduler.get_last_lr()), _floats(second.get_last_lr())]
        assert found[0] == found[1]
        for _ in range(5):
            copied.step()
            _step(second, 1.0)
            found.append(_entries(copied))
        return found

    return observe


def saved(make: Make, *, weights_only: bool) -> Observe:
    """Returns whether a saved state is equal, and loads into an equal scheduler."""

    def observe(of: Library) -> Any:
        optimizer, file = _sgd(), io.BytesIO()
        state = make(of, optimizer).state_dict()
        torch.save(state, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=weights_only)
        is_equal = loaded == state
        second = make(of, optimizer)
        second.load_state_dict(loaded)
        return [is_equal, second.state_dict() == state]

    return observe


def checkpointed(make: Callable[..., Any]) -> Observe:
    """Returns the rate of a scheduler that is made anew beside a loaded optimizer."""

    def observe(of: Library) -> Any:
        optimizer, other = (torch.optim.AdamW(parameters([(2,)])) for _ in range(2))
        scheduler = make(of, optimizer)
        optimizer.step()
        _step(scheduler, 1.0)
        other.load_state_dict(optimizer.state_dict())
        is_metric = isinstance(scheduler, ReduceLROnPlateau)
        second = make(of, other) if is_metric else make(of, other, last_epoch=0)
        return [*_floats(second.get_last_lr()), optimizer.param_groups[0]["lr"]]

    return observe


def initial(make: Make, entries: Sequence[str] = ()) -> Observe:
    """Returns entries of the group after the tensors that were given are changed in place."""

    def observe(of: Library) -> Any:
        given = SimpleNamespace(**vars(of), tensors=[torch.tensor(0.1, dtype=torch.float64)])
        rate = given.tensors[0]
        optimizer = torch.optim.SGD(parameters([(1,)]), lr=rate)
        scheduler = make(given, optimizer)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                for tensor in given.tensors:
                    tensor.mul_(0.5)
                optimizer.step()
                scheduler.step()
                group = optimizer.param_groups[0]
                entered = [float(group[name]) for name in ("initial_lr", *entries)]
                assert scheduler.base_lrs[0] is not group["initial_lr"]
                found.append([*entered, *_floats(scheduler.base_lrs)])
        return found

    return observe


# --- schedulers ---------------------------------------------------------------------------------


def _make(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Makes a scheduler of the class with this name."""

    def make(of: Library, optimizer: torch.optim.Optimizer, **more: Any) -> Any:
        return getattr(of, name)(optimizer, *args, **{**kwargs, **more})

    return make


def _chained(*makes: Make) -> Make:
    return lambda of, optimizer: of.ChainedScheduler([make(of, optimizer) for make in makes])


def _sequence(milestones: list[int], *makes: Make) -> Make:
    def make(of: Library, optimizer: torch.optim.Optimizer) -> Any:
        return of.SequentialLR(optimizer, [one(of, optimizer) for one in makes], milestones)

    return make


def _quarter(_: int) -> float:
    return 0.25


class _Line:
    """A callable with state, as the function of a scheduler."""

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def __call__(self, step: int) -> float:
        return self.slope * step


STEP = _make("StepLR", step_size=3, gamma=0.1)
MULTI = _make("MultiStepLR", [2, 5, 9], gamma=0.1)
CONSTANT = _make("ConstantLR", 0.5, total_iters=5)
LINE = _make("LinearLR", 0.5, total_iters=4)
EXPONENTIAL = _make("ExponentialLR", 0.9)
POLYNOMIAL = _make("PolynomialLR", total_iters=5, power=0.9)
COSINE = _make("CosineAnnealingLR", 10, 1e-10)
LATE = _make("MultiStepLR", [4, 8, 10], gamma=0.1)
FEW = _make("ConstantLR", 0.1, total_iters=3)
_PLATEAU = partial(_make, "ReduceLROnPlateau")
ABSOLUTE = {"threshold_mode": "abs", "patience": 5}
RELATIVE = {"threshold_mode": "rel", "threshold": 0.1}
PLATEAUS: list[tuple[Make, list[float]]] = [
    (_PLATEAU(threshold=0.01, cooldown=5, **ABSOLUTE), [10 - i * 0.0167 for i in range(22)]),
    (_PLATEAU(threshold=0.1, **ABSOLUTE), [10 - i * 0.0165 for i in range(22)]),
    (_PLATEAU("max", cooldown=5, **ABSOLUTE), [-0.8] * 2 + [-0.234] * 20),
    (_PLATEAU("max", patience=3, **RELATIVE), [1.5 * 1.025**i for i in range(22)]),
    (_PLATEAU("max", patience=5, cooldown=5, **RELATIVE), [1.5 * 1.005**i for i in range(22)]),
    (_PLATEAU("min", **RELATIVE), [1.5 * 0.85**i for i in range(22)]),
    (_PLATEAU("min", patience=5, cooldown=5, **RELATIVE), [1.0] * 7 + [0.6] + [0.5] * 14),
    (
        _PLATEAU("max", patience=5, cooldown=5, min_lr=[0.4, 0.3], **RELATIVE),
        [1.5 * 1.005**i for i in range(22)],
    ),
]


def _cyclic(mode: str, *, up: int = 4, down: int | None = None, groups: bool = False) -> Observe:
    low, high = ([1, 3], [5, 7]) if groups else (1, 5)
    given: dict[str, Any] = {"base_momentum": low, "max_momentum": high, "gamma": 0.9}
    make = _make("CyclicLR", low, high, step_size_up=up, step_size_down=down, mode=mode, **given)
    return values(make, steps=24)


def _one_cycle(**kwargs: Any) -> Make:
    given = {"final_div_factor": 2, "base_momentum": 1, "max_momentum": 22, "total_steps": 10}
    return _make("OneCycleLR", 25, **{**given, **kwargs})


def _cosine_then_cyclic(of: Library) -> Any:
    """The rates after the first scheduler is not stepped any more."""
    optimizer = _sgd()
    first = of.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.1)
    second = of.CyclicLR(optimizer, 0.1, 0.3, step_size_up=1, step_size_down=3)
    found = []
    for count in range(40):
        optimizer.step()
        (first if count <= first.T_max else second).step()
        found.append(_entries(optimizer))
    return found[21:]


def _averaging(name: str | None, **kwargs: Any) -> Observe:
    """A scheduler, and from the sixth step on SWALR."""

    def observe(of: Library) -> Any:
        optimizer = _sgd()
        before = None if name is None else getattr(of, name)(optimizer, lambda t: 0.9)
        average = of.SWALR(optimizer, **kwargs)
        found = []
        for count in range(15):
            optimizer.step()
            if count >= 5:
                average.step()
            elif before is not None:
                before.step()
            found.append(_entries(optimizer))
        return found

    return observe


def _released(of: Library) -> Any:
    """Whether a scheduler is freed with its last name, and leaves no cycle."""
    is_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        optimizer = torch.optim.SGD(parameters([(2,)]), lr=0.5)
        scheduler = of.LambdaLR(optimizer, lambda t: 1.0)
        optimizer.step()
        scheduler.step()
        cyclic = of.CyclicLR(optimizer, 1, 5, cycle_momentum=False)
        gone = weakref.ref(scheduler), weakref.ref(cyclic), weakref.ref(optimizer)
        del scheduler, cyclic
        found = [one() is None for one in gone[:2]]
        del optimizer
        return [*found, gone[2]() is None]
    finally:
        if is_enabled:
            gc.enable()


def _first_rates(make: Make) -> Observe:
    def observe(of: Library) -> Any:
        return _floats(make(of, _sgd()).get_last_lr())

    return observe


def _signature_with_epoch(of: Library) -> Any:
    del of

    class Wrong(LRScheduler):
        def get_lr(self, step: int) -> list[float]:  # type: ignore[override]
            return [1.0 * step]

    return raised(lambda _, optimizer: Wrong(optimizer), TypeError)(None)


def _plateau_group(is_list: bool, *, is_forgotten: bool = False) -> Observe:
    """A group that is added under a plateau scheduler."""

    def observe(of: Library) -> Any:
        optimizer, found = _sgd((0.5, 0.5)), []
        limits = {"min_lr": [1e-5, 1e-4]} if is_list else {}
        scheduler = of.ReduceLROnPlateau(optimizer, patience=0 if is_forgotten else 5, **limits)
        for count in range(20):
            if count == 8:
                optimizer.add_param_group({"params": parameters([(2, 3)]), "lr": 0.05})
                if is_list and not is_forgotten:
                    scheduler.min_lrs.append(1e-6)
            optimizer.step()
            try:
                scheduler.step(1.0)
            except RuntimeError as error:
                return "The number of param groups in the" in str(error)
            found.append(_entries(optimizer)[:6])
        return found

    return observe


def _restart_clock(of: Library) -> Any:
    scheduler, found = of.CosineAnnealingWarmRestarts(_sgd(), 4), []
    for epoch in (7, 8, 9):
        scheduler.T_cur = epoch
        scheduler.step()
        found.append(scheduler.T_cur)
    return found


def _function_of(name: str, function: Any, entry: str) -> Observe:
    """Returns whether a state has a function."""

    def observe(of: Library) -> Any:
        given = {"lr_lambda": function} if name == "LambdaLR" else {"scale_fn": function}
        rates = {} if name == "LambdaLR" else {"base_lr": 1, "max_lr": 5}
        scheduler = getattr(of, name)(torch.optim.SGD(parameters([(1,)]), 0.1), **rates, **given)
        return entry in scheduler.state_dict()

    return observe


def _old_one_cycle(of: Library) -> Any:
    scheduler = _one_cycle()(of, _sgd())
    state = scheduler.state_dict()
    state.pop("_anneal_func_type", None)
    state["anneal_func"] = torch.optim.lr_scheduler.OneCycleLR._annealing_cos
    scheduler.load_state_dict(state)
    return "anneal_func" in vars(scheduler)


def _kinds_of_rates(of: Library) -> Any:
    optimizer = _sgd()
    scheduler = of.ReduceLROnPlateau(optimizer, patience=0)
    scheduler.step(1.0)
    scheduler.step(2.0)
    return [isinstance(group["lr"], torch.Tensor) for group in optimizer.param_groups]


def _given(of: Library, *numbers: float) -> list[torch.Tensor]:
    """Tensors that are changed after they are given."""
    made = [torch.tensor(number, dtype=torch.float64) for number in numbers]
    of.tensors.extend(made)
    return made


def _cyclic_of_tensors(of: Library, optimizer: torch.optim.Optimizer) -> Any:
    high, low, top = _given(of, 0.2, 0.8, 0.9)
    momenta = {"base_momentum": low, "max_momentum": top}
    return of.CyclicLR(optimizer, of.tensors[0], high, **momenta)


def _one_cycle_of_tensors(of: Library, optimizer: torch.optim.Optimizer) -> Any:
    low, top = _given(of, 0.85, 0.95)
    momenta = {"base_momentum": low, "max_momentum": top}
    return of.OneCycleLR(optimizer, of.tensors[0], total_steps=10, **momenta)


def _averaging_of_tensors(of: Library, optimizer: torch.optim.Optimizer) -> Any:
    return of.SWALR(optimizer, swa_lr=_given(of, 0.05)[0])


_RESUMABLE: list[Callable[..., Any]] = [
    _make("ExponentialLR", 0.999),
    _make("LambdaLR", lambda t: t // 30),
    _make("MultiplicativeLR", lambda t: 0.95),
    _make("StepLR", 30),
    _make("MultiStepLR", [30, 80]),
    _make("ConstantLR"),
    _make("LinearLR"),
    _make("PolynomialLR"),
    _make("CosineAnnealingLR", 10),
    _make("CosineAnnealingWarmRestarts", 20),
]
_CYCLES = [_make("CyclicLR", 0.01, 0.1), _make("OneCycleLR", 0.01, total_steps=10)]
_AVERAGE = _make("SWALR", swa_lr=0.01)
_SAVED = [
    *_RESUMABLE,
    *_CYCLES,
    _chained(_make("ConstantLR"), _make("ConstantLR")),
    _sequence([2], _make("ConstantLR"), _make("ConstantLR")),
    _make("ReduceLROnPlateau"),
    _AVERAGE,
]


# --- the behaviours -----------------------------------------------------------------------------


def _values() -> Iterator[tuple[str, Observe]]:
    yield "test_step_lr", values(STEP)
    yield "test_multi_step_lr", values(MULTI)
    yield "test_constantlr", values(CONSTANT)
    yield "test_linearlr", values(LINE)
    yield "test_exp_lr", values(EXPONENTIAL)
    yield "test_poly_lr", values(POLYNOMIAL)
    yield "test_cos_anneal_lr", values(COSINE)
    yield "test_lambda_lr", values(_make("LambdaLR", [lambda t: 0.9**t, lambda t: 0.8**t]))
    factors = _make("MultiplicativeLR", [lambda t: 0.9, lambda t: 0.8])
    yield "test_multiplicative_lr", values(factors)
    for factor in (1, 2, 4):
        restarts = _make("CosineAnnealingWarmRestarts", 10, factor, eta_min=1e-10)
        yield "test_CosineAnnealingWarmRestarts_lr1", values(restarts, steps=100)


def _composed() -> Iterator[tuple[str, Observe]]:
    decay = _make("ExponentialLR", 0.8)
    yield "test_sequentiallr1", values(_sequence([3], decay, _make("StepLR", 4)), steps=19)
    yield "test_sequentiallr2", values(_sequence([3], FEW, EXPONENTIAL), steps=13)
    three = _sequence([3, 6], FEW, decay, _make("StepLR", 2))
    yield "test_sequentiallr3", values(three, steps=12)
    ones = _sequence([10], _make("ConstantLR", 1), _make("ConstantLR", 0.1))
    yield "test_sequentiallr4", _first_rates(ones)
    rise = _make("LinearLR", 0.1, total_iters=5)
    chain = _chained(rise, _make("ConstantLR", 0.1, total_iters=5))
    yield "test_sequentiallr5", values(_sequence([5], chain, CONSTANT))
    up, down = _make("LinearLR", 0.1, 0.8, 4), _make("LinearLR", 0.8, 0.1, 4)
    alias = values(_sequence([4], up, down), steps=8, optimizer=_one_tensor)
    yield "test_sequentiallr_does_not_alias_lr_and_initial_lr", alias
    yield "test_chained_lr1", values(_chained(STEP))
    rise = _make("LinearLR", 0.4, total_iters=3)
    yield "test_chained_lr2", values(_chained(rise))
    yield "test_chained_lr3", values(_chained(rise, LATE))
    constant_first = _make("ConstantLR", 0.2, total_iters=4)
    yield "test_chained_lr4", values(_chained(EXPONENTIAL, constant_first, STEP), steps=9)
    yield "test_chained_lr5", values(_chained(POLYNOMIAL, _make("ConstantLR", 0.1)))
    low = _make("LinearLR", 0.4, total_iters=4)
    pairs = {
        "step_and_multistep_lr": (STEP, MULTI),
        "step_and_exp_lr": (STEP, EXPONENTIAL),
        "exp_and_multistep_lr": (MULTI, EXPONENTIAL),
        "exp_and_linearlr": (_make("LinearLR", 0.4, 0.9, 4), EXPONENTIAL),
        "step_and_constantlr": (STEP, _make("ConstantLR", 0.4, total_iters=4)),
        "linearlr_and_multistep_lr": (MULTI, low),
        "cosanneal_and_step_lr": (COSINE, STEP),
        "cosanneal_and_multistep_lr": (COSINE, MULTI),
        "cosanneal_and_linearlr": (low, COSINE),
        "cosanneal_and_exp_lr": (COSINE, _make("ExponentialLR", 0.1)),
    }
    for name, both in pairs.items():
        yield f"test_compound_{name}", values(*both)
    seconds = (STEP, _make("MultiStepLR", [3, 8, 12]), _make("ExponentialLR", 0.1), COSINE, low)
    for index, second in enumerate(seconds, 1):
        plateau, metrics = PLATEAUS[1 if index == 5 else index - 1]
        observed = values(plateau, second, steps=10 if index == 4 else 20, metrics=metrics)
        yield f"test_compound_reduce_lr_on_plateau{index}", observed
    yield "test_cosine_then_cyclic", _cosine_then_cyclic


def _of_cycles() -> Iterator[tuple[str, Observe]]:
    for mode in ("triangular", "triangular2", "exp_range"):
        yield f"test_cycle_lr_{mode}_mode_one_lr", _cyclic(mode)
        yield f"test_cycle_lr_{mode}_mode", _cyclic(mode, groups=True)
        asymmetric = _cyclic(mode, up=2, down=6, groups=mode == "triangular2")
        yield f"test_cycle_lr_{mode}_mode_step_size_up_down", asymmetric
    still = _make("CyclicLR", 1, 5, step_size_up=4, cycle_momentum=False)
    yield "test_cycle_lr_triangular_mode_one_lr_no_momentum", values(still)
    yield "test_cycle_lr_with_momentumless_optimizer", values(still, optimizer=_adam)
    moved = values(_make("CyclicLR", 1, 5), optimizer=_adam)
    yield "test_cycle_lr_cycle_momentum_with_beta1_optimizer", moved
    line = _one_cycle(anneal_strategy="linear")
    yield "test_onecycle_lr_linear_annealing", values(line, steps=9)
    phases = _one_cycle(
        anneal_strategy="linear", pct_start=0.4, final_div_factor=4, three_phase=True
    )
    yield "test_onecycle_lr_linear_annealing_three_phases", values(phases, steps=9)
    yield "test_onecycle_lr_cosine_annealing", values(_one_cycle(), steps=9)
    yield "test_cycle_lr_with_adam", values(line, steps=9, optimizer=_adam)


def _of_metrics() -> Iterator[tuple[str, Observe]]:
    for number, (make, metrics) in enumerate(PLATEAUS, 1):
        yield f"test_reduce_lr_on_plateau{number}", values(make, steps=20, metrics=metrics)
    first = _first_rates(_make("ReduceLROnPlateau"))
    yield "test_reduce_lr_on_plateau_get_last_lr_before_step", first
    yield "test_reduce_lr_on_plateau_preserves_lr_type", _kinds_of_rates
    for is_list in (False, True):
        added = _plateau_group(is_list)
        yield "test_add_param_group_does_not_break_reduce_lr_on_plateau", added
    forgotten = _plateau_group(is_list=True, is_forgotten=True)
    yield "test_add_param_group_errors_reduce_lr_on_plateau", forgotten
    yield "test_swalr_no_anneal", _averaging(None, anneal_epochs=1, swa_lr=0.01)
    cosine = _averaging("MultiplicativeLR", anneal_epochs=5, swa_lr=0.01)
    yield "test_swalr_cosine_anneal_after_multiplicative", cosine
    rates = {"anneal_strategy": "linear", "swa_lr": [0.01, 0.02]}
    line = _averaging("MultiplicativeLR", anneal_epochs=4, **rates)
    yield "test_swalr_linear_anneal_after_multiplicative", line


def _with_epochs() -> Iterator[tuple[str, Observe]]:
    yield "test_multi_step_lr_with_epoch", at_epochs(MULTI, range(10))
    yield "test_constantlr_with_epoch", at_epochs(CONSTANT, range(10))
    yield "test_linearlr_with_epoch", at_epochs(LINE, range(10))
    for name, make in {
        "step_lr": STEP,
        "exponential_lr": EXPONENTIAL,
        "constantlr": CONSTANT,
        "linear_linearlr": LINE,
        "polynomial_lr": POLYNOMIAL,
    }.items():
        yield f"test_{name}_is_constant_for_constant_epoch", at_epochs(make, [2] * 10)
    third = _make("LinearLR", 1 / 3, 0.7, 4)
    for name, make in {
        "step_lr": STEP,
        "linearlr": third,
        "constantlr": _make("ConstantLR", 1 / 3, 4),
        "multi_step_lr": MULTI,
        "exp_lr": EXPONENTIAL,
        "poly_lr": _make("PolynomialLR", power=0.9),
        "cos_anneal_lr": _make("CosineAnnealingLR", 5, 1e-10),
    }.items():
        yield f"test_closed_form_{name}", closed_form(make)
    restarts = partial(_make, "CosineAnnealingWarmRestarts", 10, eta_min=1e-10)
    for factor in (1, 2, 4):
        tenths = at_epochs(restarts(factor), [i / 10 for i in range(300)], is_deprecated=False)
        yield "test_CosineAnnealingWarmRestarts_lr2", tenths
    for factor, epochs in (
        (1, [0, 1, 5, 12, 27, 3, 13]),
        (2, [0, 5, 25, 32, 80, 81, 3]),
        (3, [0.1, 0.3, 2.3, 17.5, 29.5, 50]),
    ):
        jumps = at_epochs(restarts(factor), epochs, is_deprecated=False)
        yield "test_CosineAnnealingWarmRestarts_lr3", jumps


def _last_rates() -> Iterator[tuple[str, Observe]]:
    yield "test_get_last_lr_step_lr", values(STEP)
    yield "test_get_last_lr_multi_step_lr", values(MULTI)
    yield "test_get_last_lr_constantlr", values(CONSTANT)
    yield "test_get_last_lr_linearlr", values(_make("LinearLR", 0.25, 0.6, 4))
    three = _sequence([3, 6], FEW, _make("ExponentialLR", 0.8), _make("StepLR", 2))
    yield "test_get_last_lr_sequentiallr", values(three, steps=12)
    chain = _chained(_make("LinearLR", 0.4, total_iters=3), LATE)
    yield "test_chained_lr2_get_last_lr_before_step", _first_rates(chain)


def _warnings() -> Iterator[tuple[str, Observe]]:
    late = _make("StepLR", 3, last_epoch=10)
    wrong = warned(STEP, is_wrong=True)
    yield "test_old_pattern_warning", wrong
    yield "test_old_pattern_warning_with_arg", wrong
    resumed = warned(late, is_wrong=True, resumed=True)
    yield "test_old_pattern_warning_resuming", resumed
    yield "test_old_pattern_warning_resuming_with_arg", resumed
    replaced = warned(late, is_wrong=True, resumed=True, is_replaced=True)
    yield "test_old_pattern_warning_with_overridden_optim_step", replaced
    right = warned(STEP, is_wrong=False)
    yield "test_new_pattern_no_warning", right
    yield "test_new_pattern_no_warning_with_arg", right
    replaced = warned(STEP, is_wrong=False, is_replaced=True)
    yield "test_new_pattern_no_warning_with_overridden_optim_step", replaced
    pair = _sequence([5], _make("LinearLR", 0.5, 0.1), EXPONENTIAL)
    yield "test_sequentiallr_no_warnings", warned(pair, is_wrong=False)


def _invalid() -> Iterator[tuple[str, Observe]]:
    yield "test_error_when_getlr_has_epoch", _signature_with_epoch
    yield "test_linearlr_start_factor_limits1", raised(_make("LinearLR", 0.0), ValueError)
    yield "test_linearlr_start_factor_limits2", raised(_make("LinearLR", 1.1), ValueError)
    wrong = raised(_make("CyclicLR", 0, 0, mode="CATS"), ValueError)
    yield "test_cycle_lr_invalid_mode", wrong

    def rprop(of: Library, _: torch.optim.Optimizer) -> Any:
        return of.CyclicLR(torch.optim.Rprop(parameters([(1,)])), 1, 5)

    name = "test_cycle_lr_cycle_momentum_fail_with_momentumless_optimizer"
    yield name, raised(rprop, ValueError)
    wrong = raised(_one_cycle(anneal_strategy="CATS"), ValueError)
    yield "test_onecycle_lr_invalid_anneal_strategy", wrong
    yield "test_onecycle_lr_invalid_pct_start", raised(_one_cycle(pct_start=1.1), ValueError)
    wrong = raised(_make("OneCycleLR", 1e-3), ValueError)
    yield "test_onecycle_lr_cannot_calculate_total_steps", wrong
    refused: dict[str, dict[str, Any]] = {
        "anneal_strategy must": {"anneal_strategy": "exponential", "swa_lr": 1.0},
        "anneal_epochs must": {"anneal_epochs": -1, "swa_lr": 1.0},
        "swa_lr must": {"swa_lr": [1.0, 0.1, 0.01]},
    }
    for text, given in refused.items():
        yield "test_swalr_hypers", raised(_make("SWALR", **given), ValueError, text)


def _states() -> Iterator[tuple[str, Observe]]:
    for name, make, other in (
        ("step_lr", STEP, _make("StepLR", 1, 0.005)),
        ("multi_step_lr", MULTI, _make("MultiStepLR", [1, 4, 6], 0.01)),
        ("exp_step_lr", _make("ExponentialLR", 0.1), _make("ExponentialLR", 0.01)),
        ("cosine_lr", COSINE, _make("CosineAnnealingLR", 5, 5e-11)),
        (
            "CosineAnnealingWarmRestarts_lr",
            _make("CosineAnnealingWarmRestarts", 10, 2),
            _make("CosineAnnealingWarmRestarts", 100),
        ),
        (
            "swa_lr",
            _make("SWALR", 0.5, 3),
            _make("SWALR", 5.0, 10, "linear"),
        ),
    ):
        yield f"test_{name}_state_dict", restored(make, other)
    scores = [1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 3.0, 2.0, 1.0]
    plateau = restored(_PLATEAU(patience=2), _PLATEAU("max", 0.5), metrics=scores)
    yield "test_reduce_lr_on_plateau_state_dict", plateau
    for weights_only in (True, False):
        for make in _SAVED:
            yield "test_lr_scheduler_state_dict_load", saved(make, weights_only=weights_only)
    for make in (*_RESUMABLE, *_CYCLES, _AVERAGE):
        yield "test_lr_scheduler_checkpoint", checkpointed(make)
    yield "test_lr_scheduler_checkpoint_on_plateau", checkpointed(_make("ReduceLROnPlateau"))
    resumed = checkpointed(_make("CosineAnnealingLR", 5, 1e-4))
    yield "test_cos_anneal_lr_continue", resumed


def _objects() -> Iterator[tuple[str, Observe]]:
    yield "test_no_cyclic_references", _released
    yield "test_no_cyclic_references_in_step", _released
    yield "test_cycle_lr_removed_after_out_of_scope", _released
    for make in _RESUMABLE:
        yield "test_constant_initial_lr", initial(make)
    yield "test_constant_initial_params_swalr", initial(_averaging_of_tensors, ["swa_lr"])


KINDS = {
    FUNCTIONS: "states of schedulers",
    ARGUMENTS: "states of schedulers",
    CLOCK: "values come from the schedule",
    ERRORS: "classes of errors",
}
"""The kind of each difference, as docs/torch.md lists them."""


def _different() -> Iterator[tuple[str, str, Observe]]:
    line = _function_of("LambdaLR", _Line(10), "lr_lambdas")
    yield "test_lambda_lr_state_dict_obj", FUNCTIONS, line
    function = _function_of("LambdaLR", lambda t: t, "lr_lambdas")
    yield "test_lambda_lr_state_dict_fn", FUNCTIONS, function
    scale = _function_of("CyclicLR", _quarter, "_scale_fn_custom")
    yield "test_cycle_lr_state_dict_picklable", FUNCTIONS, scale
    yield "test_cycle_lr_scale_fn_restored_from_state_dict", FUNCTIONS, scale
    yield "test_onecycle_lr_legacy_state_dict", FUNCTIONS, _old_one_cycle
    yield "test_CosineAnnealingWarmRestarts_T_cur_reset", CLOCK, _restart_clock
    entries = ["base_momentum", "max_momentum"]
    cyclic = initial(_cyclic_of_tensors, entries)
    yield "test_constant_initial_params_cyclelr", ARGUMENTS, cyclic
    one_cycle = initial(_one_cycle_of_tensors, [*entries, "max_lr", "min_lr"])
    yield "test_constant_initial_params_onecyclelr", ARGUMENTS, one_cycle
    name = "test_raise_error_when_last_epoch_is_greater_than_0_and_initial_lr_is_not_specified"
    missing = raised(_make("StepLR", 3, last_epoch=1), LookupError, "param 'initial_lr' is not")
    yield name, ERRORS, missing
    number = raised(_make("MultiplicativeLR", 0.95), (TypeError, ValueError), "lr_lambda should be")
    yield "test_multiplicative_lr_with_lr_lambda", ERRORS, number


_GROUPS: dict[str, Callable[[], Iterator[tuple[str, Observe]]]] = {
    "values of a class": _values,
    "sequences, chains, and two schedulers on one entry": _composed,
    "cycles of the rate and the momentum": _of_cycles,
    "`ReduceLROnPlateau` and `SWALR` of torch beside our classes": _of_metrics,
    "`step(epoch)`": _with_epochs,
    "`get_last_lr`": _last_rates,
    "warnings": _warnings,
    "invalid arguments": _invalid,
    "state dicts and resumption": _states,
    "references, and tensors that are changed after they are given": _objects,
}


def behaviours() -> list[Behaviour]:
    """Returns all behaviours; those of one name together."""
    found: dict[str, Behaviour] = {}
    for group, listed in _GROUPS.items():
        for name, observe in listed():
            before = found[name].observations if name in found else ()
            found[name] = Behaviour(group, name, (*before, observe))
    for name, reason, observe in _different():
        assert name not in found
        found[name] = Behaviour(reason, name, (observe,), reason)
    return list(found.values())


def table() -> str:
    """Returns the table of docs/torch.md."""
    rows: dict[tuple[str, bool], list[str]] = {}
    for one in behaviours():
        rows.setdefault((one.group, one.different is None), []).append(one.name)
    lines = ["| behaviour | tests of torch | here |", "| --- | --- | --- |"]
    for (group, is_same), names in rows.items():
        shown = ", ".join(f"`{name.removeprefix('test_')}`" for name in names)
        here = "same" if is_same else f"{KINDS[group]}: {group}"
        what = group if is_same else "deliberately different"
        lines.append(f"| {what} ({len(names)}) | {shown} | {here} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
