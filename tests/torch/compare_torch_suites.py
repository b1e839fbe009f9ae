"""torch's own optimizer suite: the inputs and errors of ``common_optimizers`` in the torch wheel.

Each input of torch's tests is trained by torch's class and by ours with each backend, saved and
loaded in both directions; each invalid input must be rejected.
"""

import copy
import functools
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from closedform.errors import ClosedFormError
from closedform.torch import optim
from closedform.torch.engine.kernels import BACKENDS
from tests.support.torch_testing import torch_testing
from tests.torch.training import COMPILING, parameters, steps, values

DIFFERENT = {
    "differentiable": "a step is not recorded by autograd: refused",
    "SparseAdam": "steps the rows that a sparse gradient has: not offered",
    "LBFGS": "a step of several evaluations of the model is not an update rule: not offered",
}
"""The deliberate differences from torch, of the kind "steps that are not update rules"."""


def suite() -> Any:
    """``torch.testing._internal.common_optimizers``."""
    return torch_testing("common_optimizers")


def offered() -> Iterator[Any]:
    """The entries of torch's table for the classes that there are here."""
    for info in suite().optim_db:
        if info.optim_cls.__name__ in optim.OPTIMIZERS:
            yield info


def _inputs(device: str) -> list[Any]:
    return [
        pytest.param(info, given, id=f"{info.optim_cls.__name__}-{number}-{given.desc}")
        for info in offered()
        for number, given in enumerate(info.optim_inputs_func(device=device))
    ]


def _errors(device: str) -> list[Any]:
    return [
        pytest.param(
            info, given, id=f"{info.optim_cls.__name__}-{number}-{given.optimizer_error_input.desc}"
        )
        for info in offered()
        for number, given in enumerate(info.optim_error_inputs_func(device, torch.float32))
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The inputs of torch's table for the device of ``--device``; GPUs have more of them."""
    if "given" in metafunc.fixturenames:
        is_input = "backend" in metafunc.fixturenames
        device = metafunc.config.getoption("--device")
        metafunc.parametrize(("info", "given"), (_inputs if is_input else _errors)(device))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


def _shapes(name: str) -> list[tuple[int, ...]]:
    return [(3, 4), (5, 2)] if name == "Muon" else [(3, 4), (5,), ()]


def _trained(
    make: Any, name: str, kwargs: dict[str, Any], device: str
) -> tuple[Any, list[nn.Parameter]]:
    params = parameters(_shapes(name), dtype=torch.float64, device=device)
    optimizer = make(params, **copy.deepcopy(kwargs))
    steps(optimizer, params, 4)
    return optimizer, params


def _close(got: list[Tensor], wanted: list[Tensor], name: str, kwargs: Mapping[str, Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        # float64 on both sides, six steps of some ten roundings; RAdam subtracts numbers of 1e3.
        # ASGD saves its rate of 0.02 in float32, which rounds by 6e-8; Muon iterates in bfloat16,
        # where an ulp is 2^-8. Capturable steps of torch compute bias corrections in the float32
        # of the count: 6e-8 in each of six steps.
        bound = {"Muon": 0.02, "ASGD": 1e-8}.get(name, 1e-9)
        bound = max(bound, 6 * 6e-8 if kwargs.get("capturable") else 0)
        torch.testing.assert_close(one, other, rtol=bound, atol=bound)


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_of_torchs_suite_trains_and_is_saved_as_there(
    info: Any, given: Any, backend: str, device: str
) -> None:
    name = info.optim_cls.__name__
    kwargs = dict(given.kwargs)
    ours: Any = functools.partial(optim.OPTIMIZERS[name], backend=backend)
    if kwargs.get("differentiable"):
        with pytest.raises(ClosedFormError, match="differentiable=True is not supported"):
            _trained(ours, name, kwargs, device)
        return
    theirs, wanted = _trained(info.optim_cls, name, kwargs, device)
    optimizer, got = _trained(ours, name, kwargs, device)
    _close(values(got), values(wanted), name, kwargs)
    # In both directions, and through pickle.
    saved, foreign = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(theirs.state_dict())
    back = info.optim_cls(wanted, **copy.deepcopy(kwargs))
    back.load_state_dict(pickle.loads(pickle.dumps(saved)))
    other = ours(got, **copy.deepcopy(kwargs))
    other.load_state_dict(foreign)
    steps(back, wanted, 2, seed=3)
    steps(other, got, 2, seed=3)
    _close(values(got), values(wanted), name, kwargs)


def test_an_invalid_input_of_torchs_suite_is_rejected(info: Any, given: Any) -> None:
    ours: Any = optim.OPTIMIZERS[info.optim_cls.__name__]
    invalid = given.optimizer_error_input
    is_constructed = given.error_on == suite().OptimizerErrorEnum.CONSTRUCTION_ERROR
    if issubclass(given.error_type, Warning):
        with pytest.warns(given.error_type, match=given.error_regex):
            ours(copy.deepcopy(invalid.params), **invalid.kwargs)
        return

    def run() -> None:
        # Complex parameters and the like, which torch rejects at a step, are rejected before it.
        optimizer = ours(copy.deepcopy(invalid.params), **invalid.kwargs)
        assert not is_constructed
        optimizer.step()

    with pytest.raises((ValueError, TypeError, RuntimeError)):
        run()


def test_all_classes_of_torchs_suite_are_offered_or_named() -> None:
    names = {info.optim_cls.__name__ for info in suite().optim_db}
    assert names - set(optim.OPTIMIZERS) == {"LBFGS", "SparseAdam"}
    print({reason: DIFFERENT[reason] for reason in DIFFERENT})
