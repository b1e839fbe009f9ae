"""Convolutions of a model in the blocked layout of onnxruntime, for the machine at hand.

With AVX2 or AVX-512, onnxruntime computes a convolution in blocks of 8 or 16 channels in half of
the time (3 × 3, 32 to 128 channels), but its optimizer writes blocks for constant weights only. A
session rewrites its graph in memory: operators bring weights that are inputs into the order of the
blocks. The file is unchanged.

The operators are those that the optimizer writes, and belong to the version of onnxruntime: they
are used only where it brings weights into the order that is assumed here, and a graph that
onnxruntime does not take is loaded as it is in the file.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.exporters.onnx_join import with_nodes

DOMAIN = "com.microsoft.nchwc"

_OF_ONES = "strides", "dilations"
"""Attributes of a transposed convolution that must be ones."""


def block_convolutions(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto | None:
    """Returns a model with blocked convolutions; None if the model or the machine has none.

    Args:
        model: The model, without external data.
        shapes: The shapes of values of float32 without free sizes.

    These are convolutions in float32 whose channels are multiples of a block, with one group or one
    channel a group, and whose kernels have several places: those of one place are products of
    matrices, for which the new order does not pay. A transposed convolution without strides is a
    convolution with a mirrored weight.
    """
    if not any(node.op_type in ("Conv", "ConvTranspose") for node in model.graph.node):
        return None
    block = block_size()
    if not block:
        return None
    builder = _Builder(block)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += builder.convolution(node, shapes) or [node]
    if not builder.count:
        return None
    result = with_nodes(model, nodes)
    result.graph.initializer.extend(builder.constants.values())
    result.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return result


@functools.cache
def block_size() -> int:
    """Returns the channels of a block of onnxruntime on this machine; 0 where it has no blocks.

    Its optimizer is given a convolution, and the weight in the result is compared.
    """
    # Any weights without repeated elements: each place of the result tells its source.
    draws = np.random.default_rng(0)
    weights = [draws.standard_normal((32, n, 3, 3), np.float32) for n in (32, 1)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"], pads=[1] * 4),
        helper.make_node("Conv", ["h", "w1"], ["y"], pads=[1] * 4, group=32),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, 8, 8]) for n in "xy"]
    constants = [numpy_helper.from_array(w, f"w{index}") for index, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "probe", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "probe.onnx")
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimized_graph = onnx.load(options.optimized_model_filepath).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in optimized_graph.initializer}
    reordered_weights = [
        arrays[node.input[1]]
        for node in optimized_graph.node
        if node.domain == DOMAIN and node.op_type == "Conv" and node.input[1] in arrays
    ]
    for block in (16, 8):
        expected = [_reorder(weight, block) for weight in weights]
        if len(reordered_weights) == 2 and all(map(np.array_equal, reordered_weights, expected)):
            return block
    return 0


def _reorder(weight: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """A weight as an array of its shape with the elements in the order of blocks."""
    split, order = _order(weight.shape, block)
    return weight.reshape(split).transpose(order).reshape(weight.shape)


def _order(shape: Sequence[int], block: int) -> tuple[list[int], list[int]]:
    """The axes O/b, b, I/b, b and the places, and their order; those of inputs only if I > 1."""
    outputs, inputs, height, width = shape
    if inputs == 1:
        return [outputs // block, block, height * width], [0, 2, 1]
    split = [outputs // block, block, inputs // block, block, height * width]
    return split, [0, 2, 4, 3, 1]


def _moves(
    shape: Sequence[int], block: int, *, is_transposed: bool
) -> list[tuple[list[int], list[int]]]:
    """The shapes and permutations that bring a weight into the order of blocks, places at axis 1.

    Each transposes the two last axes or moves rows, for which onnxruntime 1.31 has fast paths: for
    128 × 128 × 3 × 3 both take 51 µs, and ``_order`` in one transpose 362 µs. The reshape between
    them keeps its optimizer from merging them.
    """
    outputs, inputs, height, width = shape
    places = height * width
    if inputs == 1:
        return [([outputs // block, block, places], [0, 2, 1])]
    if is_transposed:
        blocks = outputs * inputs // block**2
        return [
            ([outputs, inputs // block, block * places], [1, 0, 2]),
            ([blocks, block**2, places], [0, 2, 1]),
        ]
    return [
        ([outputs * inputs // block, block, places], [0, 2, 1]),
        ([outputs // block, block, inputs * places], [0, 2, 1]),
    ]


class _Builder:
    """Writes blocked convolutions.

    Args:
        block: The channels of a block.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        self.count = 0
        self.constants: dict[str, TensorProto] = {}

    def convolution(self, node: NodeProto, shapes: Mapping[str, Sequence[int]]) -> list[NodeProto]:
        """Returns the nodes of a convolution; none if it stays as it is."""
        if node.op_type not in ("Conv", "ConvTranspose") or node.domain or len(node.input) != 2:
            return []
        shape = list(shapes.get(node.input[1], ()))
        attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        group = attributes.get("group", 1)
        # [outputs, inputs, height, width]; NCHWc kernels of onnxruntime have two axes of space.
        has_places = len(shape) == 4 and shape[2:] != [1, 1]
        if not has_places or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            return []
        is_transposed = node.op_type == "ConvTranspose"
        channels = shape[:1] if group > 1 else shape[:2]
        if any(n % self._block for n in channels) or (group > 1 and shape[:2] != [group, 1]):
            return []
        pads = list(attributes.get("pads", [0] * 4))
        if is_transposed:
            plain = {"auto_pad", "group", "pads", "kernel_shape", *_OF_ONES, "output_padding"}
            numbers = [number for name in _OF_ONES for number in attributes.get(name, [1])]
            # A transposed convolution with pad p is a convolution with the mirrored kernel and pad
            # k - 1 - p.
            pads = [size - 1 - pad for size, pad in zip(shape[2:] * 2, pads, strict=True)]
            if (
                not attributes.keys() <= plain
                or set(numbers) != {1}
                or any(attributes.get("output_padding", []))
                or min(pads) < 0
            ):
                return []
        self.count += 1
        return self._blocked_nodes(node, shape, attributes, pads, is_transposed=is_transposed)

    def _blocked_nodes(
        self,
        node: NodeProto,
        shape: list[int],
        attributes: dict[str, Any],
        pads: list[int],
        *,
        is_transposed: bool,
    ) -> list[NodeProto]:
        label = f"blocked.{self.count}"
        image, weight, result = (f"{label}.{i}" for i in range(3))
        group = attributes.get("group", 1)
        outputs, weight_shape = shape[0], shape
        if is_transposed and group == 1:  # the weight's first axis is that of the inputs
            outputs, weight_shape = shape[1], [shape[1], shape[0], *shape[2:]]
        nodes = [helper.make_node("ReorderInput", [node.input[0]], [image], domain=DOMAIN)]
        source = node.input[1]

        def append(kind: str, *operands: str, **settings: Any) -> None:
            nonlocal source
            target = f"{label}.weight.{len(nodes)}"
            nodes.append(helper.make_node(kind, [source, *operands], [target], **settings))
            source = target

        for sizes, permutation in _moves(shape, self._block, is_transposed=is_transposed):
            append("Reshape", self._constant(sizes))
            append("Transpose", perm=permutation)
        if is_transposed:
            # After the moves a place is a row of whole blocks: along the last axis, Gather copies
            # single elements.
            places = math.prod(shape[2:])
            append("Gather", self._constant(list(reversed(range(places)))), axis=1)
        nodes += [
            helper.make_node("Reshape", [source, self._constant(weight_shape)], [weight]),
            helper.make_node(
                "Conv",
                [image, weight],
                [result],
                domain=DOMAIN,
                group=group,
                pads=pads,
                kernel_shape=shape[2:],
                strides=[1, 1] if is_transposed else attributes.get("strides", [1, 1]),
                dilations=[1, 1] if is_transposed else attributes.get("dilations", [1, 1]),
            ),
            helper.make_node(
                "ReorderOutput", [result], list(node.output), domain=DOMAIN, channels=outputs
            ),
        ]
        return nodes

    def _constant(self, numbers: list[int]) -> str:
        name = "blocked.numbers." + "_".join(map(str, numbers))
        self.constants.setdefault(name, numpy_helper.from_array(np.array(numbers), name))
        return name
