"""The factors of `scaling.mup` next to those of the package `mup` of its authors."""

from collections.abc import Callable, Mapping

import pytest
import torch
from mup import MuAdam, MuAdamW, MuReadout, MuSGD, set_base_shapes
from torch import nn

from closedform import scaling
from closedform.language import UpdateRule
from closedform.optimizers import adam, adamw, sgd
from tests.scaling.models import CLASSES, FEATURES, VOCABULARY, Mlp, Transformer

pytestmark = pytest.mark.packages()


class Rectangular(nn.Module):
    """Widths that do not grow by one factor."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, first)
        self.up, self.down = nn.Linear(first, second), nn.Linear(second, first)
        self.convolution = nn.Conv1d(first, second, 3)
        self.norm = nn.LayerNorm(second)
        self.fixed = nn.Linear(FEATURES, 5)
        self.head = nn.Linear(second, CLASSES)


MODELS: Mapping[str, tuple[Callable[[int], nn.Module], str]] = {
    "mlp": (lambda scale: Mlp(64 * scale), "head"),
    "transformer": (lambda scale: Transformer(64 * scale), "head"),
    "rectangular": (lambda scale: Rectangular(32 * scale, 48 * scale**2), "head"),
}
OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], UpdateRule]] = {
    "adam": (MuAdam, adam(0.01, weight_decay=0.1)),
    "adamw": (MuAdamW, adamw(0.01, weight_decay=0.1)),
    "sgd": (MuSGD, sgd(0.01, weight_decay=0.1)),
}


def with_readout(make: Callable[[int], nn.Module], scale: int, name: str) -> nn.Module:
    model = make(scale)
    head = getattr(model, name)
    setattr(model, name, MuReadout(head.in_features, head.out_features))
    return model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [2, 8])
def test_rates_and_decays_are_those_of_the_package(name: str, optimizer: str, scale: int) -> None:
    make, head = MODELS[name]
    model = with_readout(make, scale, head)
    set_base_shapes(
        model, with_readout(make, 1, head), delta=with_readout(make, 2, head), rescale_params=False
    )
    make_optimizer, rule = OPTIMIZERS[optimizer]
    groups = make_optimizer(model.parameters(), lr=0.01, weight_decay=0.1).param_groups
    expected = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in groups
        for parameter in group["params"]
    }
    scales = scaling.mup(make(scale), make(1), rule)
    for parameter_name, parameter in model.named_parameters():
        entry = scales[parameter_name]
        factors = float(entry.rate) * 0.01, float(entry.weight_decay) * 0.1
        assert factors == pytest.approx(expected[id(parameter)], rel=1e-14), parameter_name
    readout = getattr(model, head)
    assert float(scales[f"{head}.weight"].multiplier) == 1 / readout.width_mult()


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_output_weights_begin_as_those_of_the_package(name: str) -> None:
    """The package multiplies the deviation of output weights by the root of the width."""
    make, head = MODELS[name]
    torch.manual_seed(0)
    model = with_readout(make, 16, head)
    before = getattr(model, head).weight.detach().clone()
    set_base_shapes(model, with_readout(make, 1, head), delta=with_readout(make, 2, head))
    ratio = getattr(model, head).weight.detach() / before
    # torch draws them with a deviation of fan_in**-1/2: in all, a constant one, the factor 1.
    assert torch.allclose(ratio, torch.full_like(ratio, 4.0))
    assert scaling.mup(make(16), make(1), adam())[f"{head}.weight"].deviation == 1
