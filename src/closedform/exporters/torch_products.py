"""Products of bfloat16 matrices, which a GPU multiplies as they are.

A graph computes in float32: a product of values that were rounded to bfloat16 is one of float32,
and its result is rounded. Tensor cores take a tenth of the time for the product of the bfloat16
matrices themselves, which adds in float32; it differs by the order of additions and, where a
multiple of a matrix is added, by roundings of float32 before the one to bfloat16. Products on CPUs,
many of which lack such instructions, stay in float32 and agree with the other engines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from closedform.ir.graph import Graph
from closedform.ir.ops import Op
from closedform.ir.types import DType

_MOVES = frozenset({Op.TRANSPOSE, Op.RESHAPE})


def multiplies_bf16(device: torch.device) -> bool:
    """Returns whether matrices on a device are multiplied as bfloat16."""
    return device.type == "cuda"


def multiply_and_add(
    addend: Tensor, left: Tensor, right: Tensor, addend_factor: float, factor: float
) -> Tensor:
    """Returns ``addend_factor · addend + factor · left @ right``, also of batches of matrices."""
    function = torch.addmm if addend.dim() == 2 else torch.baddbmm
    return function(addend, left, right, beta=addend_factor, alpha=factor)


@dataclass(frozen=True, slots=True)
class Bf16Sum:
    """``factor · left @ right + addend_factor · addend``, rounded to bfloat16.

    Attributes:
        left: The index of a matrix in float32 whose elements are numbers of bfloat16.
        right: The index of another one.
        factor: The multiple of the product; 1 without addend.
        addend: The index of a matrix to add, such as ``left``; None if there is none.
        addend_factor: The multiple of it. NaN is a factor that is not a constant.
    """

    left: int
    right: int
    factor: float = 1.0
    addend: int | None = None
    addend_factor: float = 0.0


def bf16_sums(graph: Graph) -> dict[int, Bf16Sum]:
    """Returns the roundings to bfloat16 of a graph that are sums with a product, by their index."""
    return {index: bf16_sum for index, bf16_sum in _sums(graph) if not _is_open(bf16_sum)}


def open_factors(graph: Graph) -> set[str]:
    """Returns the inputs that keep roundings from being such sums: torch has numbers as factors."""
    pending = [index for index, bf16_sum in _sums(graph) if _is_open(bf16_sum)]
    names = set()
    while pending:
        node = graph.nodes[pending.pop()]
        if node.op is Op.INPUT:
            names.add(str(node.attribute("name")))
        pending += [operand for operand in node.operands if not _is_term(graph, operand)]
    return names


def _is_open(bf16_sum: Bf16Sum) -> bool:
    return math.isnan(bf16_sum.factor + bf16_sum.addend_factor)


def _sums(graph: Graph) -> Iterator[tuple[int, Bf16Sum]]:
    for index, node in enumerate(graph.nodes):
        if node.op is Op.CAST and node.type.dtype is DType.BF16:
            terms = _terms(graph, node.operands[0])
            bf16_sum = None if terms is None else _bf16_sum(graph, terms)
            if bf16_sum is not None:
                yield index, bf16_sum


def _bf16_sum(graph: Graph, terms: dict[int, float]) -> Bf16Sum | None:
    products = [term for term in terms if graph.nodes[term].op is Op.MATMUL]
    addends = [term for term in terms if graph.nodes[term].op is not Op.MATMUL]
    if len(products) != 1 or len(addends) > 1:
        return None
    product = graph.nodes[products[0]]
    factor, (left, right) = terms[products[0]], product.operands
    if not addends:
        return Bf16Sum(left, right) if factor == 1 else None
    shapes = [graph.nodes[term].type.shape for term in (left, right, *addends)]
    # torch.addmm and torch.baddbmm take two and three axes, and broadcast no batch axis.
    if len(shapes[2]) not in (2, 3) or len({shape[:-2] for shape in shapes}) > 1:
        return None
    is_whole = shapes[2] == product.type.shape
    return Bf16Sum(left, right, factor, addends[0], terms[addends[0]]) if is_whole else None


def _terms(graph: Graph, index: int) -> dict[int, float] | None:
    """The terms of a sum of multiples of products and matrices of bfloat16, with their factors."""
    node = graph.nodes[index]
    if _is_term(graph, index):
        return {index: 1.0}
    if node.op not in (Op.MUL, Op.ADD, Op.SUB):
        return None
    first, second = node.operands
    if node.op is Op.MUL:
        number, value = _number(graph, first), second
        if number is None:
            number, value = _number(graph, second), first
        terms = None if number is None else _terms(graph, value)
        if number is None or terms is None:
            return None
        return {term: number * factor for term, factor in terms.items()}
    total, added = _terms(graph, first), _terms(graph, second)
    if total is None or added is None:
        return None
    sign = -1 if node.op is Op.SUB else 1
    return total | {term: total.get(term, 0.0) + sign * factor for term, factor in added.items()}


def _number(graph: Graph, index: int) -> float | None:
    """A value of rank 0; NaN if it is not a constant."""
    node = graph.nodes[index]
    if node.type.shape:
        return None
    return float(node.array()) if node.op is Op.CONST else math.nan


def _is_term(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    is_product = node.op is Op.MATMUL
    return _is_bf16(graph, index) or (is_product and all(_is_bf16(graph, x) for x in node.operands))


def _is_bf16(graph: Graph, index: int) -> bool:
    """Whether a value of float32 was just converted from bfloat16, and at most moved."""
    node = graph.nodes[index]
    if node.op in _MOVES:
        return _is_bf16(graph, node.operands[0])
    is_widened = node.op is Op.CAST and node.type.dtype is DType.F32
    return is_widened and graph.nodes[node.operands[0]].type.dtype is DType.BF16
