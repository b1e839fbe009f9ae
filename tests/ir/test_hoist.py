"""hoist: what depends on no tensor is computed in a graph of its own, before it is written over."""

import numpy as np
import pytest

import closedform as cf
from closedform.compiler import compile_step
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Builder, Graph, Role, input_names, scalar
from closedform.ir.ops import Op
from closedform.ir.program import NUMBER, hoist
from closedform.ir.types import DType, TensorType
from closedform.language import UpdateRule
from closedform.options import ModelSpec

RULES = {
    "sgd": cf.optimizers.sgd(lr=0.1, momentum=0.9),
    "adamw": cf.optimizers.adamw(lr=cf.schedules.cosine(1e-2, 0, 100), weight_decay=0.1),
    "nadam": cf.optimizers.nadam(lr=1e-2),
    "lamb": cf.optimizers.lamb(lr=1e-2),
    "clipped": cf.transforms.clip_by_global_norm(cf.optimizers.adamw(lr=1e-2), 1.0),
    "careful": cf.transforms.skip_nonfinite(cf.optimizers.adamw(lr=1e-2)),
}


def drawn(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a step graph: the clock at 7, positive numbers elsewhere."""
    draws = np.random.default_rng(seed)
    found = {}
    for node in graph.inputs:
        shape = tuple(int(size) for size in node.type.shape)
        values = np.asarray(draws.uniform(0.25, 0.75, size=shape))
        is_integer = node.type.dtype.is_integer
        name = node.attribute("name")
        found[name] = np.asarray(7 if is_integer else values, node.type.dtype.numpy)
    return found


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("shape", [(3, 4), (0,), ()])
def test_the_two_graphs_agree_with_the_one(name: str, shape: tuple[int, ...]) -> None:
    rule: UpdateRule = RULES[name]
    graph = compile_step(ModelSpec(rule, {"a": shape, "b": shape}))
    inputs = drawn(graph)
    first, second = hoist(graph)
    numbers = evaluate(first, {key: inputs[key] for key in input_names(first)})
    given = {**inputs, **{key: numbers[key] for key in numbers if key.startswith(NUMBER)}}
    tensors = evaluate(second, {key: given[key] for key in input_names(second)})
    wanted = evaluate(graph, inputs)
    found = {**numbers, **tensors}
    assert wanted.keys() == {key for key in found if not key.startswith(NUMBER)}
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype
        assert np.array_equal(found[key], value, equal_nan=True)


def test_the_second_graph_reads_no_number_that_the_first_may_write() -> None:
    for name, rule in RULES.items():
        first, second = hoist(compile_step(ModelSpec(rule, {"a": (3,), "b": (2, 2)})))
        assert not set(input_names(first)) & set(input_names(second)), name
        assert not {node.op for node in second.nodes} & {Op.POW, Op.COS, Op.SIN}, name
        dtypes = {node.type.dtype for node in second.nodes if not node.type.shape}
        assert (DType.F64 in dtypes) == (name in {"clipped", "careful"}), name


def test_an_input_that_tensors_need_is_handed_over() -> None:
    b = Builder("two")
    step = b.input("step", scalar(DType.F32), Role.STEP)
    param = b.input("param.a", TensorType(DType.F32, (2,)), Role.PARAM)
    one = b.const(1, DType.F32)
    b.output("next.step", b.emit(Op.ADD, step, one))
    b.output("next.param.a", b.emit(Op.MUL, b.emit(Op.ADD, param, one), step))
    first, second = hoist(b.build())
    assert [output.name for output in first.outputs] == ["number.0", "next.step"]
    assert sorted(input_names(second)) == ["number.0", "param.a"]


def test_a_graph_of_tensors_alone_has_no_numbers() -> None:
    b = Builder("alone")
    grad = b.input("grad.a", TensorType(DType.F32, (2,)), Role.GRAD)
    b.output("sum.0", b.emit(Op.REDUCE_SUM, grad, axes=(0,), keepdims=False))
    graph = b.build()
    first, second = hoist(graph)
    assert (first.nodes, first.outputs, second) == ((), (), graph)
