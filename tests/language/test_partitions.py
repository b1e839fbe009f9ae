"""Partitions: each block of a parameter is stepped as a separate parameter.

Two proofs for each rule and layout. The expressions of a block are those of the rule for the shape
of the block, symbol by symbol, with the slices of the tensors as its tensors; and the results of
steps in NumPy are those of separate parameters bit for bit, by indices that are written here by
hand.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sympy as sp
from numpy.typing import NDArray

from closedform import optimizers, transforms
from closedform.compiler import compile_init, compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, UpdateRule, local, state
from closedform.language.functions import Block, Joined, LikeBlock, LikeParam
from closedform.language.partitions import Partition, Partitions, partition
from closedform.language.shapes import shape_values
from closedform.options import GraphOptions, ModelSpec

Array = NDArray[Any]
Factory = Callable[..., UpdateRule]

RULES: dict[str, Factory] = {
    "muon": lambda **blocks: optimizers.muon(0.02, ns_steps=3, **blocks),
    "muon, RMS of AdamW": lambda **blocks: optimizers.muon(
        0.02, ns_steps=2, scale="match_rms_adamw", decay="scaled", **blocks
    ),
    "normuon": lambda **blocks: optimizers.normuon(0.02, 0.1, ns_steps=2, **blocks),
    "adamuon": lambda **blocks: optimizers.adamuon(0.02, ns_steps=2, **blocks),
    "scion": lambda **blocks: optimizers.scion(0.02, ns_steps=2, constrained=True, **blocks),
    "dion": lambda **blocks: optimizers.dion(0.02, rank=2, **blocks),
    "soap": lambda **blocks: optimizers.soap(0.02, precondition_frequency=2, **blocks),
    "shampoo": lambda **blocks: optimizers.shampoo(0.02, 0.5, root_steps=4, **blocks),
}

Layout = tuple[Partitions, tuple[int, ...], list[Any]]


def _rows(*sizes: int) -> list[slice]:
    ends = np.cumsum((0, *sizes))
    return [slice(start, stop) for start, stop in pairwise(ends)]


LAYOUTS: dict[str, Layout] = {
    "q, k, v of Llama": ((6, 2, 2), (10, 4), _rows(6, 2, 2)),
    "columns of GPT-2's Conv1D": (
        Partition(3, axis=1),
        (4, 9),
        [(slice(None), part) for part in _rows(3, 3, 3)],
    ),
    "the last axis": (
        Partition((4, 2), axis=-1),
        (3, 6),
        [(slice(None), part) for part in _rows(4, 2)],
    ),
    "gate and up": (2, (8, 3), _rows(4, 4)),
    "heads": (4, (12, 5), _rows(3, 3, 3, 3)),
    "experts": ((1,) * 8, (8, 3, 4), list(range(8))),
    # Each of two heads has two rows of q, of k and of v.
    "heads of GPT-NeoX": (
        Partition(3, groups=2),
        (12, 4),
        [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]],
    ),
    # Each of two groups has four rows of q and two of k and v.
    "groups of Megatron": (
        Partition((8, 4, 4), groups=2),
        (16, 3),
        [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]],
    ),
}
CASES = [(rule, layout) for rule in RULES for layout in LAYOUTS]


def _states_of(rule: UpdateRule, place: int) -> Iterator[tuple[str, str]]:
    """The names of the states of a rule, and of the tensors that have their blocks."""
    for name, spec in rule.states.items():
        yield name, name if spec.shape == "param" else f"block_{place}_{name}"


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_a_block_has_the_expressions_of_a_separate_parameter(name: str, layout: str) -> None:
    blocks, shape, indices = LAYOUTS[layout]
    rule, joint_rule = RULES[name](), RULES[name](partitions=blocks).for_shape(shape)
    assert isinstance(joint_rule.param, Joined)
    for place, index in enumerate(indices):
        block_shape = np.empty(shape)[index].shape
        block_rule = rule.for_shape(block_shape)
        names = {
            local(f"block_{place}.{symbol.name}"): symbol
            for symbol in (PARAM, GRAD, *map(state, rule.states))
        }
        names |= {local(f"block_{place}_{key}"): local(key) for key in block_rule.definitions}

        def of_block(expr: sp.Expr, names: Any = names) -> sp.Expr:
            return expr.xreplace(names).replace(LikeBlock, lambda x, *_: LikeParam(x))

        definitions = {
            key.removeprefix(f"block_{place}_"): of_block(expr)
            for key, expr in joint_rule.definitions.items()
            if key.startswith(f"block_{place}_")
        }
        assert definitions == block_rule.definitions
        assert of_block(joint_rule.param.args[place]) == block_rule.param
        for tensor in (PARAM, GRAD):
            block = joint_rule.definitions.get(f"block_{place}.{tensor.name}")
            assert block is None or block.args[:2] == (tensor, place)
            assert block is None or isinstance(block, Block)
        for own, joint in _states_of(block_rule, place):
            following = joint_rule.states[joint].next
            if own == joint:
                following = following.args[place]
            else:
                sizes = joint_rule.state_shape(joint, shape)
                assert sizes == block_rule.state_shape(own, block_shape)
            assert of_block(following) == block_rule.states[own].next


def _step_of(rule: UpdateRule, shape: tuple[int, ...], feed: dict[str, Array]) -> dict[str, Array]:
    options = GraphOptions(dtype=DType.F64)
    graph = compile_step(ModelSpec(rule, {"w": shape}), options)
    if "step" not in feed:
        feed |= evaluate(compile_init(ModelSpec(rule, {"w": shape}), options), {})
    results = evaluate(graph, feed)
    return {name.removeprefix("next."): value for name, value in results.items()}


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(("name", "layout"), CASES)
def test_steps_are_those_of_separate_parameters(name: str, layout: str) -> None:
    blocks, shape, indices = LAYOUTS[layout]
    rule, joint_rule = RULES[name](), RULES[name](partitions=blocks)
    rng = np.random.default_rng(7)
    start, gradients = rng.normal(size=shape), rng.normal(size=(3, *shape))
    joint: dict[str, Array] = {"param.w": start}
    for gradient in gradients:
        joint = _step_of(joint_rule, shape, joint | {"grad.w": gradient})
    for place, index in enumerate(indices):
        feed: dict[str, Array] = {"param.w": start[index]}
        for gradient in gradients:
            feed = _step_of(rule, start[index].shape, feed | {"grad.w": gradient[index]})
        np.testing.assert_array_equal(joint["param.w"][index], feed["param.w"])
        for own, name_of_joint in _states_of(rule.for_shape(start[index].shape), place):
            value = joint[f"state.w.{name_of_joint}"]
            part = value[index] if own == name_of_joint else value
            np.testing.assert_array_equal(part, feed[f"state.w.{own}"])


@pytest.mark.parametrize("name", ["muon", "normuon", "adamuon", "scion"])
def test_a_batch_is_stepped_as_its_matrices(name: str) -> None:
    """The axes before the last two are a batch, as the entries of a stack are."""
    shape = (3, 4, 2)
    rng = np.random.default_rng(8)
    start, gradients = rng.normal(size=shape), rng.normal(size=(2, *shape))
    results = []
    for rule in (RULES[name](), RULES[name](partitions=(1,) * 3)):
        feed: dict[str, Array] = {"param.w": start}
        for gradient in gradients:
            feed = _step_of(rule, shape, feed | {"grad.w": gradient})
        results.append(feed["param.w"])
    # Products of a batch and of a matrix are added in other orders.
    np.testing.assert_allclose(results[0], results[1], rtol=1e-13)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no block": (
        lambda: partition(optimizers.muon(), 0),
        "blocks must be an integer >= 1, got 0 (partition)",
    ),
    "a size": (
        lambda: partition(optimizers.muon(), (3, -2)),
        "the size of a block must be an integer >= 1, got -2 (partition)",
    ),
    "no size": (
        lambda: Partition(()),
        "the number of blocks must be an integer >= 1, got 0 (partition)",
    ),
    "many blocks": (
        lambda: Partition(513),
        "blocks must be at most 512, got 513 (partition)",
    ),
    "groups": (
        lambda: Partition((4, 3), groups=2),
        "2 groups do not divide the sizes (4, 3) (partition): a size is that of the whole block, "
        "in all groups together",
    ),
    "no group": (
        lambda: Partition(3, groups=0),
        "groups must be an integer >= 1, got 0 (partition)",
    ),
    "an axis": (
        lambda: Partition(3, axis=9),
        "an axis must be an integer in -8..7, got 9 (axis_size)",
    ),
    "a stack": (
        lambda: Partition((1, 1), axis=1),
        "a stack has its entries along axis 0, in one group (partition)",
    ),
    "sizes of another parameter": (
        lambda: optimizers.muon(partitions=(4, 2)).for_shape((7, 3)),
        "the rule is only for shapes with Eq(shape[0], 6) & (shape.rank >= 2) (rule 'muon', shape "
        "[7, 3]): give the other parameters another rule: groups=[Group('*.bias', rule=…), …]",
    ),
    "a number that does not divide": (
        lambda: optimizers.muon(partitions=Partition(3, groups=2)).for_shape((9, 3)),
        "the rule is only for shapes with (shape.rank >= 2) & Eq(Mod(shape[0], 6), 0) (rule "
        "'muon', shape [9, 3]): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
    "an entry of a stack that is a vector": (
        lambda: optimizers.muon(partitions=(1, 1)).for_shape((2, 3)),
        "the rule is only for shapes with Eq(shape[0], 2) & (shape.rank - 1 >= 2) (rule 'muon', "
        "shape [2, 3]): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
    "twice": (
        lambda: partition(optimizers.muon(partitions=2), 2),
        "rule 'muon' is partitioned already, or looks at the whole model (partition): partition "
        "the rule first, and then apply other transforms",
    ),
    "a sum over the model": (
        lambda: partition(transforms.clip_by_global_norm(optimizers.muon(), 1), 2),
        "rule 'muon' is partitioned already, or looks at the whole model (partition): partition "
        "the rule first, and then apply other transforms",
    ),
    "a state without an axis": (
        lambda: partition(optimizers.adafactor(), 2),
        "a state without axes of the parameter has no blocks (partition)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_partition_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("division", "shape", "block"),
    [
        (Partition((4, 2)), (6,), (4,)),
        (Partition((4, 2)), (6, 5), (4, 5)),
        (Partition((4, 2), axis=-1), (5, 6), (5, 4)),
        (Partition(2, axis=1), (3, 8, 5), (3, 4, 5)),
        (Partition(2, axis=-2), (7, 3, 8, 5), (7, 3, 4, 5)),
        (Partition((1,) * 3), (3, 4, 5), (4, 5)),
    ],
)
def test_the_shape_of_a_block_has_its_numbers(
    division: Partition, shape: tuple[int, ...], block: tuple[int, ...]
) -> None:
    symbols = division.shape_symbols(division.sizes[0])
    for symbol, number in shape_values(block).items():
        assert symbols.get(symbol, symbol).xreplace(shape_values(shape)) == number
