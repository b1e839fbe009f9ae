"""Constants of libraries that a step may read, and states of the process that it may not."""

import copy
import datetime
import functools
import gc
import logging
import os
import platform
import random
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.language.symbols import GRAD, PARAM, hyper

logger = logging.getLogger(__name__)


class Questioning(torch.optim.Optimizer):
    """Steps down where a question has an answer, and up elsewhere."""

    def __init__(self, params: Any, question: Callable[[], Any]) -> None:
        super().__init__(params, {"lr": 0.5})
        self.question = question

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(param.grad, alpha=-group["lr"] if self.question() else group["lr"])


class Reporting(torch.optim.Optimizer):
    """Steps by a function of the gradient and the learning rate."""

    def __init__(self, params: Any, change: Callable[[Any, Any], Any]) -> None:
        super().__init__(params, {"lr": 0.5})
        self.change = change

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.sub_(self.change(param.grad, group["lr"]))


def params() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(2, 3))]


def is_down(rule: Any, sign: int = -1) -> bool:
    return bool(sp.expand(rule.param - PARAM - sign * hyper("lr") * GRAD) == 0)


QUESTIONS: dict[str, Callable[[], Any]] = {
    "default dtype": lambda: torch.get_default_dtype() == torch.float32,
    "limits of the default dtype": lambda: torch.finfo(torch.get_default_dtype()).bits == 32,
    "gradients": lambda: not torch.is_grad_enabled(),
    "compiling": lambda: not torch.compiler.is_compiling(),
    "deprecated": lambda: not torch._utils.is_compiling(),
    "version of torch": lambda: tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 0),
    "version of Python": lambda: sys.version_info >= (3, 8),
    "limits of floats": lambda: sys.float_info.epsilon < 1 < sys.maxsize,
    "system": lambda: sys.platform == platform.system().lower() or os.name,
    "devices": lambda: torch.cuda.device_count() >= 0 and torch.get_num_threads() > 0,
    "anomalies": lambda: not torch.is_anomaly_enabled(),
    "distributed": lambda: not torch.distributed.is_available() or True,
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_constant_of_a_library_is_read(name: str) -> None:
    assert is_down(cf.from_torch(Questioning(params(), QUESTIONS[name])))


def test_the_default_dtype_is_that_of_the_user() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        rule = cf.from_torch(Questioning(params(), QUESTIONS["default dtype"]))
        assert is_down(rule, 1)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_settings_of_torch_are_restored() -> None:
    before = torch.get_default_dtype, torch.compile, torch.finfo
    cf.from_torch(Questioning(params(), QUESTIONS["default dtype"]))
    with pytest.raises(TraceError):
        cf.from_torch(Questioning(params(), time.time))
    assert (torch.get_default_dtype, torch.compile, torch.finfo) == before
    assert torch.get_default_dtype() == torch.float32


STATEFUL: dict[str, tuple[Callable[[], Any], str]] = {
    "clock": (lambda: time.perf_counter() > 0, "time.perf_counter"),
    "date": (lambda: datetime.datetime.now().year > 0, "datetime.datetime"),
    "random": (lambda: random.random() < 2, "random.Random.random"),
    "numpy random": (
        lambda: np.random.rand() < 2,  # noqa: NPY002
        "numpy.random",
    ),
    "uuid": (lambda: uuid.uuid4(), "uuid.uuid4"),
    "thread": (lambda: threading.get_ident(), "get_ident"),
    "process": (lambda: os.getpid(), "getpid"),
    "environment": (lambda: os.environ.get("HOME"), "os.environ"),
    "file": (lambda: open(os.devnull).close(), "open"),
    "address": (lambda: id(logger), "id"),
    "seed": (lambda: torch.initial_seed(), "initial_seed"),
    "memory": (lambda: torch.cuda.memory_allocated() >= 0, "memory_allocated"),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_state_of_the_process_is_refused_at_its_line(name: str) -> None:
    question, message = STATEFUL[name]
    with pytest.raises(TraceError) as caught:
        cf.from_torch(Questioning(params(), question))
    assert "the step uses " in str(caught.value)
    assert message in str(caught.value)
    assert f"test_optimizer_policy.py:{question.__code__.co_firstlineno}" in str(caught.value)


def scaled(gradient: Any, rate: Any) -> Any:
    return gradient * rate


@torch.compile(backend="eager", fullgraph=True, dynamic=False)
def compiled(gradient: Any, rate: Any) -> Any:
    return gradient * rate


@torch.compiler.disable  # type: ignore[untyped-decorator]
def disabled(gradient: Any, rate: Any) -> Any:
    return gradient * rate


@functools.wraps(compiled)
def around_compiled(gradient: Any, rate: Any) -> Any:
    return -compiled(gradient, rate)


def compiled_late(gradient: Any, rate: Any) -> Any:
    return torch.compile(scaled, mode="max-autotune", fullgraph=True)(gradient, rate)


def compiled_by_decorator(gradient: Any, rate: Any) -> Any:
    @torch.compile(fullgraph=True)
    def inner(gradient: Any) -> Any:
        return gradient * rate

    return inner(gradient)


def uses_a_clock(gradient: Any, rate: Any) -> Any:
    return gradient * rate if time.time() > 0 else gradient


CHANGES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "compiled": (compiled, -1),
    "disabled": (disabled, -1),
    "around compiled": (around_compiled, 1),
    "compiled late": (compiled_late, -1),
    "compiled by a decorator": (compiled_by_decorator, -1),
    "compiled outside": (torch.compile(scaled, backend="eager"), -1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_compiled_function_is_traced(name: str) -> None:
    change, sign = CHANGES[name]
    assert is_down(cf.from_torch(Reporting(params(), change)), sign)


def test_a_clock_in_a_compiled_function_is_refused() -> None:
    with pytest.raises(TraceError, match=r"the step uses time\.time"):
        cf.from_torch(Reporting(params(), torch.compile(uses_a_clock, backend="eager")))


def logs(gradient: Any, rate: Any) -> Any:
    logger.debug(f"rate {rate}")
    warnings.warn(f"{rate!r} is small", stacklevel=1)
    return gradient * rate


def raises_a_text(gradient: Any, rate: Any) -> Any:
    if gradient.dim() > 5:
        raise ValueError(f"rate {rate}")
    return gradient * rate


def returns_a_text(gradient: Any, rate: Any) -> Any:
    return gradient * len(f"{rate}")


@pytest.mark.filterwarnings("ignore:.* is small")
@pytest.mark.parametrize("change", [logs, raises_a_text])
def test_a_text_that_is_only_shown_is_left_out(change: Callable[[Any, Any], Any]) -> None:
    assert is_down(cf.from_torch(Reporting(params(), change)))


def test_a_text_that_a_step_depends_on_is_refused() -> None:
    with pytest.raises(TraceError, match="a text of the number lr is not traced") as caught:
        cf.from_torch(Reporting(params(), returns_a_text))
    line = returns_a_text.__code__.co_firstlineno + 1
    assert f"{Path(__file__).name}:{line}" in str(caught.value)


def test_a_step_with_schedulers_is_looked_through() -> None:
    optimizer = torch.optim.SGD(params(), lr=0.5)
    torch.optim.lr_scheduler.StepLR(optimizer, 3)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    assert is_down(cf.from_torch(optimizer))


SIZES: dict[str, Callable[[torch.Tensor, Any, Any], torch.Tensor]] = {
    "zeros": lambda g, n, m: torch.zeros(n, m) + 1,
    "ones": lambda g, n, m: torch.ones(n, m),
    "empty": lambda g, n, m: torch.empty(n, m).fill_(1.0),
    "full": lambda g, n, m: torch.full((n, m), 1.0),
    "new_zeros": lambda g, n, m: g.new_zeros(n, m) + 1,
    "new_ones": lambda g, n, m: g.new_ones(n, m),
    "new_empty": lambda g, n, m: g.new_empty(n, m).fill_(1.0),
    "expand": lambda g, n, m: torch.ones(n, 1).expand(n, m),
    "broadcast_to": lambda g, n, m: torch.ones(n, 1).broadcast_to(n, m),
    "view": lambda g, n, m: torch.ones(n, m).view(n, m),
    "reshape": lambda g, n, m: torch.ones(m, n).t().reshape(n, m),
}


def of_both(pair: list[Any], rate: Any) -> Any:
    pair[0].mul_(rate)
    return pair[1]


COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda g, rate: copy.deepcopy(g) * rate,
    "data": lambda g, rate: copy.deepcopy(g.data).mul_(rate),
    "list": lambda g, rate: copy.deepcopy([g, (rate, g)])[1][1].mul_(rate),
    "dict": lambda g, rate: copy.deepcopy({"lr": rate, "own": {"grad": g}})["own"]["grad"] * rate,
    "a type": lambda g, rate: copy.deepcopy(g).type(g.type()) * rate,
    "a name of a type": lambda g, rate: (
        g.type("torch.DoubleTensor") * (rate if "Float" in g.type() or "Double" in g.type() else 1)
    ),
    "alias": lambda g, rate: of_both(copy.deepcopy([g, g]), rate),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_deep_copy_of_a_tensor_is_read(name: str) -> None:
    assert is_down(cf.from_torch(Reporting(params(), COPIES[name])))


class Closing:
    """Notes its end."""

    ends: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.rate = 1.0

    def __del__(self) -> None:
        self.ends.append("closed")


OPEN = Closing()


def test_an_object_whose_end_does_something_is_not_copied() -> None:
    with pytest.raises(TraceError, match=r"uses an object of the type .*\.Closing"):
        cf.from_torch(Reporting(params(), lambda g, rate: g * rate * OPEN.rate))
    gc.collect()
    assert not Closing.ends


def tree() -> dict[str, Any]:
    root: dict[str, Any] = {"rate": 1.0}
    root["child"] = {"parent": root}
    return root


def test_a_deep_copy_of_what_holds_itself_ends() -> None:
    def change(gradient: Any, rate: Any) -> Any:
        return gradient * rate * copy.deepcopy(tree())["child"]["parent"]["rate"]

    assert is_down(cf.from_torch(Reporting(params(), change)))


def test_a_method_of_tensors_that_the_user_has_set_stays() -> None:
    expand = torch.Tensor.expand

    def patched(tensor: torch.Tensor, *sizes: Any) -> torch.Tensor:
        return expand(tensor, *sizes)

    torch.Tensor.expand = patched  # type: ignore[assignment, method-assign]
    try:
        cf.from_torch(torch.optim.SGD(params(), lr=0.1))
        assert torch.Tensor.expand is patched
    finally:
        del torch.Tensor.expand
    assert torch.Tensor.expand is expand


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_given_one_by_one(name: str) -> None:
    make = SIZES[name]
    before = {name: vars(torch.Tensor).get(name) for name in dir(torch.Tensor)}

    def change(gradient: Any, rate: Any) -> Any:
        return gradient * rate * make(gradient, gradient.size(0), gradient.shape[1])

    assert is_down(cf.from_torch(Reporting(params(), change)))
    assert {name: vars(torch.Tensor).get(name) for name in dir(torch.Tensor)} == before
