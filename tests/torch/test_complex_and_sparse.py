"""Complex parameters and sparse gradients: the values and states of torch's classes."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError
from closedform.torch import Optimizer, optim
from tests.torch.training import COMPILING, values

REAL_ONLY = ("Adafactor", "Muon")
"""Classes that refuse complex parameters, as torch's do."""

CLASSES = sorted(optim.OPTIMIZERS.keys() - {*REAL_ONLY})


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(3, 4, dtype=torch.complex128, generator=generator)
    return [nn.Parameter(made), nn.Parameter(made.real[0].clone())]


def _steps(optimizer: Any, params: list[nn.Parameter], count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for param in params:
            param.grad = torch.randn(param.shape, dtype=param.dtype, generator=generator)
        optimizer.step()


def _close(got: list[nn.Parameter], wanted: list[nn.Parameter]) -> None:
    for one, other in zip(values(got), values(wanted), strict=True):
        # float64 on both sides, six steps of some ten roundings. ASGD saves its rate in float32.
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("backend", ["eager", "onnxruntime"])
@pytest.mark.parametrize("name", CLASSES)
def test_complex_parameters_are_stepped_as_torch_does(name: str, backend: str) -> None:
    got, wanted = _parameters(), _parameters()
    kwargs: dict[str, Any] = {"momentum": 0.9} if name == "SGD" else {}
    ours: Any = optim.OPTIMIZERS[name](got, backend=backend, **kwargs)
    theirs: Any = getattr(torch.optim, name)(wanted, **kwargs)
    _steps(ours, got, 3, seed=1)
    _steps(theirs, wanted, 3, seed=1)
    _close(got, wanted)
    saved, foreign = copy.deepcopy(ours.state_dict()), copy.deepcopy(theirs.state_dict())
    back: Any = getattr(torch.optim, name)(wanted, **kwargs)
    back.load_state_dict(pickle.loads(pickle.dumps(saved)))
    other: Any = optim.OPTIMIZERS[name](got, backend=backend, **kwargs)
    other.load_state_dict(foreign)
    _steps(other, got, 3, seed=2)
    _steps(back, wanted, 3, seed=2)
    _close(got, wanted)


@pytest.mark.filterwarnings(COMPILING)
def test_complex_parameters_are_stepped_by_the_compiled_step() -> None:
    got, wanted = _parameters(), _parameters()
    _steps(optim.OPTIMIZERS["AdamW"](got, backend="compile"), got, 3, seed=1)
    _steps(torch.optim.AdamW(wanted), wanted, 3, seed=1)
    _close(got, wanted)


@pytest.mark.parametrize("name", REAL_ONLY)
def test_rules_with_sums_refuse_complex_parameters(name: str) -> None:
    params = [nn.Parameter(torch.zeros(3, 4, dtype=torch.complex64))]
    with pytest.raises(ArgumentError, match="steps real parameters"):
        optim.OPTIMIZERS[name](params)
    averaged = cf.transforms.weight_average(cf.optimizers.sgd(lr=0.1), decay=0.5)
    with pytest.raises(ArgumentError, match="steps real parameters"):
        Optimizer(params, averaged)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.1})],
)
def test_sparse_gradients_are_stepped_as_torch_does(name: str, kwargs: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    got, wanted = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours: Any = optim.OPTIMIZERS[name]([got], **kwargs)
    theirs: Any = getattr(torch.optim, name)([wanted], **kwargs)
    for count in range(6):
        rows = torch.tensor([[1, 3, 1]]) if count % 2 else torch.tensor([[0, 5, 2]])
        drawn = torch.randn(3, 4, dtype=torch.float64, generator=generator)
        for param, optimizer in ((got, ours), (wanted, theirs)):
            param.grad = torch.sparse_coo_tensor(rows, drawn, (6, 4))  # with a repeated row
            optimizer.step()
        assert got.grad is not None
        assert got.grad.is_sparse
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)  # 6 steps of float64
    embedding = nn.Embedding(5, 2, sparse=True)
    before = embedding.weight.detach().clone()
    embedding(torch.tensor([1, 4])).sum().backward()
    optim.OPTIMIZERS["SGD"](embedding.parameters(), lr=0.5).step()
    changed = (embedding.weight.detach() - before).sum(dim=1)
    torch.testing.assert_close(changed, torch.tensor([0.0, -1.0, 0.0, 0.0, -1.0]))
