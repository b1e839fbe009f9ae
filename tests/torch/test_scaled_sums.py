"""Sums with scaled tensors as one op: drawn programs against their ops one by one."""

import random

import pytest
import torch
from torch import Tensor

from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.naming import NEXT
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.torch import optim
from closedform.torch.engine.flat import inplace
from closedform.torch.engine.scaled_sums import match_scaled_sum
from closedform.torch.engine.specialize import specializer
from closedform.torch.engine.tensor_program import TensorProgram
from tests.torch.training import parameters, steps

VECTORS = ("param", "grad", "state")
NUMBERS = ("first", "second")
LENGTH = 5


def drawn_graph(seed: int) -> Graph:
    """A program of sums, products and quotients of three vectors, two numbers and a constant."""
    draw = random.Random(seed)
    builder = Builder("drawn")
    vectors = [
        builder.input(name, TensorType(DType.F64, (LENGTH,)), Role.STATE) for name in VECTORS
    ]
    numbers = [builder.input(name, TensorType(DType.F64, ()), Role.HYPER) for name in NUMBERS]
    numbers.append(builder.const(0.75, DType.F64))

    def scaled(value: Value) -> Value:
        for _ in range(draw.randrange(3)):
            pair = [value, draw.choice(numbers)]
            op = draw.choice([Op.MUL, Op.MUL, Op.DIV])
            if op is Op.MUL:
                draw.shuffle(pair)
            value = builder.emit(op, *pair)
        return value

    def term(kind: str, addend: Value) -> Value:
        first, second = (draw.choice(vectors) for _ in range(2))
        if kind == "product":
            return builder.emit(Op.MUL, scaled(first), scaled(second))
        if kind == "quotient":
            divisor = builder.emit(Op.ADD, builder.emit(Op.MUL, second, second), numbers[2])
            return builder.emit(Op.DIV, scaled(first), divisor)
        return builder.emit(Op.SUB, first, addend) if kind == "blend" else first

    # Several terms stand before their sums, with ops between that may write over their operands.
    for _ in range(draw.randrange(2, 4)):
        kinds = ["vector", "product", "quotient", "blend"]
        addends = [draw.choice(vectors) for _ in range(draw.randrange(1, 4))]
        terms = [scaled(term(draw.choice(kinds), addend)) for addend in addends]
        vectors.append(builder.emit(Op.ABS, draw.choice(vectors)))
        for pair in map(list, zip(addends, terms, strict=True)):
            op = draw.choice([Op.ADD, Op.SUB])
            if op is Op.ADD:
                draw.shuffle(pair)
            vectors.append(builder.emit(op, *pair))
    outputs = draw.sample(vectors[3:], 2)
    for name, value in zip(("param", "state"), outputs, strict=True):
        builder.output(f"{NEXT}{name}", value)
    return builder.build()


def values_of(length_of_numbers: int, seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    vectors = [torch.randn(LENGTH, dtype=torch.float64) for _ in VECTORS]
    numbers = [torch.rand(length_of_numbers, dtype=torch.float64) + 0.5 for _ in NUMBERS]
    return [*vectors, *(number[0] if length_of_numbers == 1 else number for number in numbers)]


@pytest.mark.parametrize("length_of_numbers", [1, LENGTH])
def test_drawn_programs_are_their_ops_one_by_one(length_of_numbers: int) -> None:
    functions = set()
    for seed in range(300):
        graph = drawn_graph(seed)
        module, source = to_module(graph), inplace(graph)
        sums = [match_scaled_sum(node, source.overwritten) for node in source.ops]
        functions |= {match.function for match in sums if match is not None}
        inputs = values_of(length_of_numbers, seed)
        given = dict(zip((*VECTORS, *NUMBERS), inputs, strict=True))
        arguments = [given[name] for name in module.input_names]
        expected = module(*arguments)
        program = TensorProgram(source)
        before = [argument.clone() for argument in arguments]
        results = program.run(program.start({}), before)
        scale = max(1.0, *(value.abs().max().item() for value in expected))
        for result, value in zip(results, expected, strict=True):
            # At most nine sums of four ops, each of which rounds to 2**-53.
            assert (result - value).abs().max() <= 36 * 2**-52 * scale, seed
        for name, argument, copy in zip(module.input_names, arguments, before, strict=True):
            if name not in ("param", "state"):
                assert torch.equal(argument, copy), (seed, name)
    assert functions == {torch.add, torch.addcmul, torch.addcdiv, torch.lerp}


def test_a_step_writes_the_next_values_over_those_before() -> None:
    for seed in range(300):
        graph = drawn_graph(seed)
        program = TensorProgram(inplace(graph))
        if not {"param", "state"} <= {*program.input_names}:
            continue
        given = dict(zip((*VECTORS, *NUMBERS), values_of(1, seed), strict=True))
        inputs = [given[name].clone() for name in program.input_names]
        copies = [value.clone() for value in inputs]
        results = program.run(program.start({}), copies)
        expected = [result.clone() for result in results]
        program.step(inputs)
        for name, value in zip(program.output_names, expected, strict=True):
            place = program.input_names.index(name.removeprefix(NEXT))
            assert torch.equal(inputs[place], value), (seed, name)


@pytest.mark.parametrize(("name", "count"), [("SGD", 2), ("AdamW", 7), ("Adagrad", 4)])
def test_a_step_has_no_more_ops_than_torchs(name: str, count: int) -> None:
    """torch 2.13's for-loop has 3 (SGD with momentum), 8 and 5 ops."""
    specializer.cache_clear()  # another test may have made a graph that takes a dampening
    params = parameters([(2**7, 2**8)])
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(optim, name)(params, lr=0.1, **options)
    steps(optimizer, params, 1)
    (step,) = optimizer._captured._steps
    assert len(step._kernel.single._calls) == count
