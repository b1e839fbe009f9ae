"""Faults planted in the backward of an exported operator."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from closedform.errors import VerificationError
from closedform.runtime.onnx_session import open_session
from tests.proofs.gradients.torch_rules.elementwise import Elementwise, X, Z
from tests.proofs.gradients.torch_rules.pullbacks import OUTPUT
from tests.proofs.gradients.torch_rules.rules import Rule


def backward_nodes(model: ModelProto) -> list[int]:
    """The places of nodes that the forward does not read, the last first."""
    names, forward = {OUTPUT}, set()
    for place in reversed(range(len(model.graph.node))):
        node = model.graph.node[place]
        if names & set(node.output):
            names.update(node.input)
            forward.add(place)
    return [p for p in reversed(range(len(model.graph.node))) if p not in forward]


def _edit(model: ModelProto, place: int, edit: Callable[[NodeProto], None]) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    # onnxruntime refuses shapes that the fault changes, also where only a shape is read.
    del copy.graph.value_info[:]
    edit(copy.graph.node[place])
    return copy


def _after(model: ModelProto, op_type: str) -> ModelProto:
    """The last gradient, negated or doubled."""
    copy = ModelProto()
    copy.CopyFrom(model)
    name = copy.graph.output[-1].name
    for node in copy.graph.node:
        node.output[:] = ["before" if output == name else output for output in node.output]
        node.input[:] = ["before" if operand == name else operand for operand in node.input]
    operands = ["before"] if op_type == "Neg" else ["before", "before"]
    copy.graph.node.append(helper.make_node(op_type, operands, [name]))
    return copy


def _first_places(model: ModelProto, place: int) -> ModelProto:
    """A scatter or gather that takes its first place everywhere."""
    copy = ModelProto()
    copy.CopyFrom(model)
    node = copy.graph.node[place]
    indices = node.input[1]
    node.input[1] = "first places"
    zeros = helper.make_node("Sub", [indices, indices], ["first places"])
    copy.graph.node.insert(place, zeros)
    return copy


def _swap(node: NodeProto) -> None:
    first, second, *rest = node.input
    node.input[:] = [second, first, *rest]


def _take_branch(branch: int) -> Callable[[NodeProto], None]:
    def edit(node: NodeProto) -> None:
        operand = node.input[branch]
        node.op_type = "Identity"
        node.input[:] = [operand]

    return edit


def _turn(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "perm":
            attribute.ints[:] = [*attribute.ints[1:], attribute.ints[0]]
        if attribute.name in ("transA", "transB", "reverse", "exclusive"):
            attribute.i = 1 - attribute.i
        if attribute.name == "axis":
            attribute.i = 1 - attribute.i if attribute.i in (0, 1) else 0


def faults(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """Yields the kind of each fault, and the model with it.

    A sign, a factor, swapped operands, a term, factor, sum or mask that is left out, a wrong axis,
    wrong places.
    """
    yield "sign", _after(model, "Neg")
    yield "factor", _after(model, "Add")
    places = backward_nodes(model)
    for place in places:
        node = model.graph.node[place]
        has_axis = any(
            a.name in ("perm", "axis", "transA", "transB", "reverse") for a in node.attribute
        )
        if node.op_type in ("Sub", "Div") and node.input[0] != node.input[1]:
            yield f"swapped operands of {node.op_type}", _edit(model, place, _swap)
        if node.op_type in ("Add", "Mul", "Sub"):
            for branch in (0, 1):
                yield (
                    f"{node.op_type} without an operand",
                    _edit(model, place, _take_branch(branch)),
                )
        if node.op_type == "ReduceSum":
            yield "a sum that is left out", _edit(model, place, _take_branch(0))
        if node.op_type in ("GatherElements", "ScatterElements"):
            yield f"places of {node.op_type}", _first_places(model, place)
        if node.op_type == "Where":
            for branch in (1, 2):
                yield f"branch {branch} without a mask", _edit(model, place, _take_branch(branch))
        if has_axis and node.op_type in ("Transpose", "Gemm", "CumSum", "GatherElements"):
            yield f"axis of {node.op_type}", _edit(model, place, _turn)


def is_visible(model: ModelProto, fault: ModelProto, inputs: Mapping[str, Any]) -> bool:
    """Whether a fault changes a number in onnxruntime; otherwise it is another form of the same."""
    results = []
    for one in (model, fault):
        try:
            results.append(open_session(one, is_optimized=False).raw.run(None, dict(inputs)))
        except Exception:  # onnxruntime's errors share no other base: a fault of shapes
            return True
    return any(
        a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)
        for a, b in zip(*results, strict=True)
    )


def draw_inputs(model: ModelProto, rule: Rule) -> dict[str, Any]:
    """Numbers in the domain of a rule, with its kinks, and indices in their ranges."""
    generator = np.random.default_rng(0)
    sizes: dict[str, int] = {}
    drawn = {}
    for value in model.graph.input:
        type_ = value.type.tensor_type
        shape = [
            dim.dim_value
            or sizes.setdefault(
                dim.dim_param, 64 if isinstance(rule, Elementwise) else len(sizes) + 5
            )
            for dim in type_.shape.dim
        ]
        if type_.elem_type == TensorProto.INT64:
            drawn[value.name] = generator.integers(0, 2, shape)
        elif isinstance(rule, Elementwise) and rule.domain:
            drawn[value.name] = generator.uniform(0.05, 0.95, shape).astype(np.float32)
            if "acosh" in {node.op_type.lower() for node in model.graph.node}:
                drawn[value.name] += 1
        else:
            drawn[value.name] = (3 * generator.normal(size=shape)).astype(np.float32)
    if isinstance(rule, Elementwise):
        for place, kink in enumerate(rule.kinks):
            operand = kink.place[X]
            row = place + 1
            if operand == Z:
                drawn["batch.x"][row] = drawn["batch.z"][row]
            else:  # python-flint 0.7 has no float of a fraction
                drawn["batch.x"][row] = int(operand.value.p) / int(operand.value.q)
    return drawn


def planted_faults(rule: Rule, most: int | None = None) -> int:
    """The number of visible faults of which none is proved, up to a number of them."""
    model = rule.export()
    inputs = draw_inputs(model, rule)
    count = 0
    for kind, fault in faults(model):
        # A mask that only matters outside of the domain is not part of the claim.
        if not is_visible(model, fault, inputs):
            continue
        count += 1
        try:
            verdict = rule.judge(fault)
        except VerificationError:
            continue
        assert not verdict.proved, kind
        if count == most:
            break
    return count
