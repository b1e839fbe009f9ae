"""Operators of ONNX that are not linear, on tensors of index sums: functions, norms, maxima."""

import functools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import z3
from onnx import NodeProto

from closedform.errors import VerificationError
from tests.proofs.gradients.contractions import CONTRACTIONS
from tests.proofs.gradients.formulas import apply, exponential, logarithm, power
from tests.proofs.gradients.index_sums import (
    PLACE,
    Index,
    Sum,
    Summand,
    fresh,
    product,
    scale,
)
from tests.proofs.gradients.normal_forms import name_function, normal, substitute
from tests.proofs.gradients.tensors import (
    Indices,
    Tensor,
    as_index,
    axes_of,
    broadcast,
    integers,
    is_one,
    is_within,
    joint_shape,
    operand_index,
    reduced_shape,
)

ONE: Sum = (Summand(Fraction(1)),)
_MINUS = Fraction(-1)


def map_numbers(tensor: Tensor, function: Callable[[Sum], Sum]) -> Tensor:
    """Returns the tensor of a function of each number, whose form is found once for all places."""
    # Free indices stand for every place, so that a function is applied once and not at each read.
    places = tuple(0 if is_one(size) else fresh("p") for size in tensor.shape)
    value = function(tensor.at(places))
    free = [place for place in places if not isinstance(place, int)]

    def at(index: Indices) -> Sum:
        moving = [i for i, size in zip(index, tensor.shape, strict=True) if not is_one(size)]
        return substitute(value, tuple(zip(free, moving, strict=True)))

    return Tensor(tensor.shape, at)


def combine(form: Callable[..., Sum], *tensors: Tensor) -> Tensor:
    """Returns a combination of the numbers of tensors, broadcast to one shape."""
    return Tensor(
        joint_shape(tensors),
        lambda index: form(*(broadcast(index, tensor) for tensor in tensors)),
    )


def divide(first: Tensor, second: Tensor) -> Tensor:
    """Returns the quotient of two tensors."""
    return combine(product, first, map_numbers(second, lambda value: power(value, _MINUS)))


def _subtract(first: Tensor, second: Tensor) -> Tensor:
    return combine(lambda a, b: (*a, *scale(b, _MINUS)), first, second)


def _multiply(*tensors: Tensor) -> Tensor:
    return functools.reduce(lambda a, b: combine(product, a, b), tensors)


def _function(form: Callable[[Sum], Sum]) -> Callable[..., Tensor]:
    return lambda node, operands, attributes: map_numbers(operands[0], form)


def _reduce(
    name: str, node: NodeProto, operands: Sequence[Any], attributes: Any, *, keeps: bool | None
) -> Tensor:
    options = dict(attributes) if keeps is None else {**attributes, "keepdims": keeps}
    result: Tensor = CONTRACTIONS[name](node, operands, options)
    return result


def _reduction(before: Callable[[Sum], Sum] | None, after: Callable[[Sum], Sum] | None) -> Any:
    """The sum over axes of a function, under another function."""

    def compute(node: NodeProto, operands: Sequence[Any], attributes: Any) -> Tensor:
        value, *axes = operands
        inner = map_numbers(value, before) if before is not None else value
        result = _reduce("ReduceSum", node, [inner, *axes], attributes, keeps=None)
        return map_numbers(result, after) if after is not None else result

    return compute


def _square(value: Sum) -> Sum:
    return power(value, Fraction(2))


def _root(value: Sum) -> Sum:
    return power(value, Fraction(1, 2))


def _axis_sum(node: NodeProto, value: Tensor, axis: int, name: str = "ReduceSum") -> Tensor:
    axes = Tensor((1,), lambda index: z3.IntVal(axis), is_real=False)
    return _reduce(name, node, [value, axes], {}, keeps=True)


def _softmax(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    above = map_numbers(operands[0], exponential)
    axis = attributes.get("axis", -1) % len(above.shape)
    return divide(above, _axis_sum(node, above, axis))


def _log_softmax(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    value = operands[0]
    axis = attributes.get("axis", -1) % len(value.shape)
    total_ = _axis_sum(node, map_numbers(value, exponential), axis)
    return _subtract(value, map_numbers(total_, logarithm))


def _number(value: float) -> Tensor:
    # Attributes of ONNX are float32: epsilon is the exact value of the float, not 1e-5.
    constant = (Summand(Fraction(float(np.float32(value)))),) if value else ()
    return Tensor((), lambda index: constant)


def _normalise(
    node: NodeProto, value: Tensor, axes: Sequence[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor less its mean over its deviation, the mean, and the inverse of the deviation."""
    places = Tensor((len(axes),), _entries(axes), is_real=False)
    mean = _reduce("ReduceMean", node, [value, places], {}, keeps=True)
    deviation = _subtract(value, mean)
    squares = combine(product, deviation, deviation)
    # The biased variance, as LayerNormalization of ONNX divides by the count.
    variance = _reduce("ReduceMean", node, [squares, places], {}, keeps=True)
    radicand = combine(lambda a, b: (*a, *b), variance, _number(epsilon))
    inverse = map_numbers(radicand, lambda sums: power(sums, Fraction(-1, 2)))
    return combine(product, deviation, inverse), mean, inverse


def _entries(numbers: Sequence[int]) -> Callable[[Indices], Any]:
    def at(index: Indices) -> Any:
        result = z3.IntVal(numbers[-1])
        for place, number in enumerate(numbers[:-1]):
            # A table as nested choices, of at most as many entries as a tensor has axes.
            result = z3.If(as_index(index[0]) == place, z3.IntVal(number), result)
        return z3.simplify(result)

    return at


def _layer_norm(node: NodeProto, operands: Sequence[Any], attributes: Any) -> list[Tensor]:
    value, *factors = operands
    rank = len(value.shape)
    first = attributes.get("axis", -1) % rank
    epsilon = attributes.get("epsilon", 1e-5)
    result, mean, inverse = _normalise(node, value, range(first, rank), epsilon)
    if factors:
        result = _multiply(result, factors[0])
    if len(factors) > 1 and factors[1] is not None:
        result = combine(lambda a, b: (*a, *b), result, factors[1])
    return [result, mean, inverse]


def _of_channels(tensor: Tensor, rank: int) -> Tensor:
    """A vector of channels in a shape of which they are axis 1."""
    return Tensor((*tensor.shape, *[1] * (rank - 2)), lambda index: tensor.at(index[:1]))


def _batch_norm(node: NodeProto, operands: Sequence[Any], attributes: Any) -> Tensor:
    value, weight, bias, mean, variance = operands
    rank = len(value.shape)
    if attributes.get("training_mode", 0):
        raise VerificationError("this BatchNormalization is not read")
    weight, bias, mean = (_of_channels(t, rank) for t in (weight, bias, mean))
    radicand = combine(
        lambda a, b: (*a, *b), _of_channels(variance, rank), _number(attributes["epsilon"])
    )
    inverse = map_numbers(radicand, lambda sums: power(sums, Fraction(-1, 2)))
    multiple = _multiply(_subtract(value, mean), inverse, weight)
    return combine(lambda a, b: (*a, *b), multiple, bias)


def _instance_norm(node: NodeProto, operands: Sequence[Any], attributes: Any) -> Tensor:
    value, weight, bias = operands
    rank = len(value.shape)
    epsilon = attributes.get("epsilon", 1e-5)
    result, _, _ = _normalise(node, value, range(2, rank), epsilon)
    multiple = _multiply(result, _of_channels(weight, rank))
    return combine(lambda a, b: (*a, *b), multiple, _of_channels(bias, rank))


def _power(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    base, exponent = operands
    if not base.is_real:
        raise VerificationError("a power of integers is not read")
    if exponent.is_real:
        number = _constant(exponent)
    else:
        entry = z3.simplify(as_index(exponent.at(tuple(0 for _ in exponent.shape))))
        number = Fraction(entry.as_long()) if z3.is_int_value(entry) else None
    if number is None:
        raise VerificationError("a power with an exponent that varies is not read")
    return map_numbers(base, lambda value: power(value, number))


def _constant(tensor: Tensor) -> Fraction | None:
    value = normal(tensor.at(tuple(fresh("p") for _ in tensor.shape)))
    if not value:
        return Fraction(0)
    is_number = not (value[0].accesses or value[0].bound) and z3.is_true(value[0].condition)
    return value[0].factor if len(value) == 1 and is_number else None


def _extreme(name: str) -> Callable[..., Any]:
    def compute(node: NodeProto, operands: Sequence[Any], attributes: Any) -> Tensor:
        value = operands[0]
        rank = len(value.shape)
        axes = axes_of(node, operands, rank) or list(range(rank))
        keeps = bool(attributes.get("keepdims", 1))
        if not value.is_real:
            return _extreme_truth(name, value, axes, keeps=keeps)
        places = places_of_extremes(name, value, axes)

        def at(index: Indices) -> Sum:
            outer = operand_index(index, axes, rank, keeps=keeps)
            element: Sum = value.at(tuple(places(outer)))
            return element

        return Tensor(reduced_shape(value.shape, axes, keeps=keeps), at)

    return compute


def _extreme_truth(name: str, value: Tensor, axes: Sequence[int], *, keeps: bool) -> Tensor:
    """Whether one of the truths along axes holds (the largest), or all of them do."""
    rank = len(value.shape)

    def at(index: Indices) -> Any:
        outer = operand_index(index, axes, rank, keeps=keeps)
        bound = {a: fresh("p") for a in axes}
        place = tuple(bound.get(a, i) for a, i in enumerate(outer))
        truth = value.at(place)
        if not z3.is_bool(truth):
            raise VerificationError("an extreme of integers is not read")
        inside = is_within(tuple(bound.values()), tuple(value.shape[a] for a in axes))
        names = list(bound.values())
        if name == "largest":
            return z3.simplify(z3.Exists(names, z3.And(inside, truth)))
        return z3.simplify(z3.ForAll(names, z3.Implies(inside, truth)))

    return Tensor(reduced_shape(value.shape, axes, keeps=keeps), at, is_real=False)


def place_function(name: str, value: Tensor, axes: Sequence[int]) -> Callable[..., Any]:
    """Returns a function from an index, further arguments and a size to a place below the size.

    It has no definition: off ties there is one place. It is named by the numbers across these axes,
    so that equal numbers have equal places; ``step`` tells the places along several axes apart.
    """
    free = tuple(0 if is_one(size) else fresh("p") for size in value.shape)
    key, order = name_function(name, normal(value.at(free)))
    roles = [next((a for a, i in enumerate(free) if as_index(i).eq(o)), None) for o in order]
    across = [a for a in roles if a is not None and a not in axes]
    along = [f"{roles.index(a)}" if a in roles else f"of {a}" for a in axes]

    def place(index: Sequence[Index], *arguments: Any, step: int | None = None) -> Any:
        operands = [*(as_index(index[a]) for a in across), *arguments]
        sorts = [z3.IntSort()] * (len(operands) + 1)
        suffix = "" if step is None else f", {step}"
        return z3.Function(f"{PLACE}{key} along {along}{suffix}", *sorts)(*operands)

    return place


def places_of_extremes(
    name: str, value: Tensor, axes: Sequence[int]
) -> Callable[[Sequence[Index]], list[Index]]:
    """Returns a function from a place across axes to the place of the largest or smallest one."""
    inner = [axis for axis in axes if not is_one(value.shape[axis])]
    place = place_function(name, value, inner)

    def places(index: Sequence[Index]) -> list[Index]:
        result = list(index)
        for step, axis in enumerate(inner):
            # The place of a maximum depends on the places across the reduced axes; two tensors of
            # one normal form share the function, so that gather and scatter of a maximum cancel.
            result[axis] = place(index, as_index(value.shape[axis]), step=step)
        return result

    return places


def _integer_product(node: NodeProto, operands: Sequence[Any], attributes: Any) -> Tensor:
    if operands[0].is_real or len(operands[0].shape) != 1:
        raise VerificationError("this ReduceProd is not read")
    result: Index = 1
    for entry in integers(operands[0]):
        result = entry if is_one(result) else result * entry
    shape = (1,) if attributes.get("keepdims", 1) else ()
    return Tensor(shape, lambda index: as_index(result), is_real=False)


NONLINEAR: Mapping[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm,
    "Exp": _function(exponential),
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "Log": _function(logarithm),
    "LogSoftmax": _log_softmax,
    "Pow": _power,
    "Reciprocal": _function(lambda value: power(value, _MINUS)),
    "ReduceL2": _reduction(_square, _root),
    "ReduceLogSumExp": _reduction(exponential, logarithm),
    "ReduceMax": _extreme("largest"),
    "ReduceMin": _extreme("smallest"),
    "ReduceProd": _integer_product,
    "ReduceSumSquare": _reduction(_square, None),
    "Sigmoid": _function(lambda value: apply("logistic", value)),
    "Softmax": _softmax,
    "Softplus": _function(lambda value: logarithm((*ONE, *exponential(value)))),
    "Sqrt": _function(_root),
    "Tanh": _function(lambda value: apply("tanh", value)),
}
"""Operators that are not linear, by name."""
