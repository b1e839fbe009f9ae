"""Drop-in steps whose products are of bfloat16, as on a GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import profile

from closedform.exporters import torch_module
from closedform.torch import optim
from tests.torch.training import COMPILING, largest_difference

pytestmark = pytest.mark.filterwarnings(COMPILING)

SHAPES = [(8, 8), (8, 8), (9, 6)]


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiplies bfloat16 on the CPU."""
    monkeypatch.setattr(torch_module, "multiplies_bf16", lambda device: True)


def trained(make: Callable[..., torch.optim.Optimizer], **options: Any) -> list[torch.Tensor]:
    torch.manual_seed(5)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    optimizer = make(params, lr=0.02, ns_steps=2, **options)
    for _ in range(3):
        for param in params:
            param.grad = torch.randn_like(param)
        with profile() as events:
            optimizer.step()
    # Two iterations have four sums with a product for each parameter.
    assert [event.name for event in events.events() or ()].count("aten::addmm") == 4 * len(SHAPES)
    return [param.detach() for param in params]


@pytest.mark.usefixtures("natively")
@pytest.mark.sample(every=2)
@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_muon_follows_torch_on_bfloat16(backend: str) -> None:
    # The products have the bits of torch; the other roundings of three steps are of float32.
    ours, theirs = trained(optim.Muon, backend=backend), trained(torch.optim.Muon)
    assert largest_difference(ours, theirs) < 3e-6


@pytest.mark.usefixtures("natively")
def test_a_step_in_a_trace_multiplies_bfloat16() -> None:
    def compiled(*args: Any, **options: Any) -> torch.optim.Optimizer:
        optimizer = optim.Muon(*args, **options)
        optimizer.step = torch.compile(optimizer.step, backend="aot_eager")  # type: ignore[method-assign]
        return optimizer

    assert largest_difference(trained(compiled), trained(optim.Muon)) < 3e-6


def test_factors_of_products_are_constants_of_the_drop_in() -> None:
    (param,) = params = [torch.nn.Parameter(torch.eye(3))]
    param.grad = torch.ones(3, 3)
    optimizer = optim.Muon(params, lr=0.02)
    optimizer.step()
    (group,) = optimizer._compiled.values()
    names = {name for name, *_ in group.specialization.inputs}
    assert names == {"lr", "weight_decay", "momentum", "eps"}
    optimizer.param_groups[0]["ns_coefficients"] = (2.0, -1.5, 0.5)
    before = param.detach().clone()
    optimizer.step()
    assert not torch.equal(before, param)
    assert optimizer._compiled[0] is not group
