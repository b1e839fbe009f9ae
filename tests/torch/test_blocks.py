"""Rules that step by blocks: halves of a parameter step as the whole does."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.language import PARAM, SIZE, Sizes, State, UpdateRule, all_but, reduce_max, reshape
from closedform.language.functions import positions
from closedform.torch import Optimizer
from closedform.torch.blocks import steps_by_blocks
from tests.torch.engines import LIBRARY
from tests.torch.training import parameters

SHAPE, HALF = (64, 64), (32, 64)
TRANSFORMS = {
    "8 bits": cf.transforms.eight_bit_states,
    "4 bits": cf.transforms.four_bit_states,
}


def coded(name: str, bits: str) -> UpdateRule | None:
    """A rule of the library with coded states; None if it has none to code."""
    rule = LIBRARY[name]()
    names = [key for key, spec in rule.states.items() if spec.shape == "param" and not spec.initial]
    if not names or any(rule.states[key].exists != True for key in names):  # noqa: E712
        return None
    return TRANSFORMS[bits](rule, names, (), block=256, least_size=256)


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("bits", TRANSFORMS)
@pytest.mark.parametrize("name", LIBRARY)
def test_halves_step_as_the_whole_where_it_steps_by_blocks(name: str, bits: str) -> None:
    rule = coded(name, bits)
    if rule is None or not steps_by_blocks(rule.for_shape(HALF), HALF):
        assert name not in ("adamw", "lion", "adagrad")
        return
    (whole,) = parameters([SHAPE])
    halves = [nn.Parameter(part.clone()) for part in whole.detach().chunk(2)]
    optimizers = [Optimizer([param], rule) for param in (whole, *halves)]
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        whole.grad = torch.randn(SHAPE, generator=generator)
        for half, grad in zip(halves, whole.grad.chunk(2), strict=True):
            half.grad = grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(whole, torch.cat([half.detach() for half in halves]))
    states = optimizers[0].state[whole]
    parts = [optimizer.state[half] for optimizer, half in zip(optimizers[1:], halves, strict=True)]
    for key, value in states.items():
        if value.dim():
            assert torch.equal(value, torch.cat([part[key] for part in parts])), key


def scaled_rule(scale: object, sizes: tuple[object, ...]) -> UpdateRule:
    """SGD with a state of some sizes, whose next value is given."""
    rule = cf.optimizers.sgd(lr=0.1)
    spec = State(scale, 0, Sizes(sizes))
    return replace(rule, states={"scale": spec}).for_shape(SHAPE)


def test_what_looks_beyond_a_block_does_not_step_by_blocks() -> None:
    blocks = reshape(PARAM, (SIZE / 256, 256))
    sizes = (SIZE / 256, 1)
    own = reduce_max(blocks, (1,), True)
    assert steps_by_blocks(scaled_rule(own, sizes), SHAPE)
    across = reduce_max(blocks, (0,), True)
    row = reshape(reduce_max(PARAM, (1,), True), sizes)
    places = positions(blocks, 0)
    scales = [own * across, own + reduce_max(places, (1,), True), own * reduce_max(PARAM), row]
    scales += [own * reduce_max(blocks, axes, True) for axes in ((-2,), (0, 1), all_but(1))]
    for scale in scales:
        assert not steps_by_blocks(scaled_rule(scale, sizes), SHAPE), scale
    assert steps_by_blocks(scaled_rule(reduce_max(blocks, (-1,), True), sizes), SHAPE)
    # As many blocks as elements in one: without the axis, a maximum meets those of other blocks.
    square = reshape(PARAM, (SIZE / 64, 64))
    for keeps, is_within in ((True, True), (False, False)):
        scale = reduce_max(square * reduce_max(square, (1,), keeps), (1,), True)
        assert steps_by_blocks(scaled_rule(scale, (SIZE / 64, 1)), SHAPE) == is_within
    evaluated = replace(scaled_rule(own, sizes), evaluation=PARAM * reduce_max(PARAM))
    assert not steps_by_blocks(evaluated, SHAPE)
    for name in ("adafactor", "muon", "soap", "lamb", "adamw"):
        assert not steps_by_blocks(LIBRARY[name]().for_shape(SHAPE), SHAPE), name
