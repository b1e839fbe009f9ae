"""Values that a reader may take for another one and an engine does not: edits of ``tampered``.

Each puts a few nodes before an operand of a file. Read over the real numbers, and without what
engines do with NaN, infinities, integers that leave their type and odd constants, they would be the
operand. At some steps, in some types or in some versions an engine computes another value.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from tests.verify.tampered import KINDS, Edit, Edited

NUMPY: Mapping[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT64: np.int64,
    TensorProto.INT32: np.int32,
}
LIMITS = (-1, 0, 5, 20, 500)
HIGH, LOW = 2**63 - 1, -(2**63)


@dataclass
class Insertion:
    """Nodes before an operand.

    Attributes:
        edited: The model.
        operand: The operand that is replaced, a float.
        kind: Its element type.
        others: Other values of this type that are computed before.
        step: The name of the step; "" in a local function.
        nodes: The new nodes.
    """

    edited: Edited
    operand: str
    kind: int
    others: list[str]
    step: str
    nodes: list[NodeProto] = field(default_factory=list)

    @property
    def draw(self) -> random.Random:
        return self.edited.draw

    def call(self, operator: str, *operands: str, **attributes: Any) -> str:
        result = f"tampered_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, operands, [result], **attributes))
        return result

    def number(self, value: float, kind: int | None = None) -> str:
        array = np.asarray(value, NUMPY[self.kind if kind is None else kind])
        return self.tensor(numpy_helper.from_array(array))

    def tensor(self, tensor: TensorProto) -> str:
        return self.call("Constant", value=tensor)

    def truth(self, value: bool) -> str:
        return self.tensor(numpy_helper.from_array(np.asarray(value)))

    def cast(self, operand: str, kind: int | None = None, **attributes: Any) -> str:
        return self.call("Cast", operand, to=self.kind if kind is None else kind, **attributes)

    def clock(self) -> str:
        """The step or another value, as a float."""
        if self.step and self.draw.random() < 0.7:
            return self.cast(self.step)
        return self.draw.choice([self.operand, *self.others])

    def whole(self) -> str:
        """The step, or a value as an integer."""
        if self.step:
            return self.step
        return self.cast(self.operand, TensorProto.INT64)

    def partial(self) -> str:
        """A value that is NaN or an infinity at some steps, at all or at none."""
        return self.draw.choice(PARTIAL)(self)

    def other(self) -> str:
        """A value that is not the operand."""
        match self.draw.randrange(3):
            case 0:
                return self.call("Neg", self.operand)
            case 1:
                return self.call("Mul", self.operand, self.number(10))
            case _:
                return self.draw.choice(self.others) if self.others else self.number(4)

    def choose(self, condition: str, then: str | None = None, otherwise: str | None = None) -> str:
        """The operand unless it is said which value."""
        return self.call("Where", condition, then or self.operand, otherwise or self.operand)


def _below(made: Insertion) -> str:
    return made.call("Sub", made.number(made.draw.choice(LIMITS)), made.clock())


def _quotient_of_itself(made: Insertion) -> str:
    clock = made.clock()
    return made.call("Div", clock, clock)


PARTIAL: tuple[Callable[[Insertion], str], ...] = (
    _quotient_of_itself,
    lambda made: made.call("Div", made.number(0), made.clock()),
    lambda made: made.call("Sqrt", _below(made)),
    lambda made: made.call("Log", _below(made)),
    lambda made: made.call("Reciprocal", _below(made)),
    lambda made: made.call("Pow", _below(made), made.number(made.draw.choice((0.5, -1, 1 / 3)))),
    lambda made: made.call("Mod", made.clock(), _below(made), fmod=1),
    lambda made: made.call("Sub", made.number(-1), made.call("Sqrt", _below(made))),
    lambda made: made.call("Reciprocal", made.call("Mul", made.clock(), made.number(-0.0))),
)

Value = Callable[[Insertion], str]


# --- tests for NaN and infinities ----------------------------------------------------------------


def _is_nan(made: Insertion, value: str) -> str:
    """Whether a value is NaN, in one of the ways to write it."""
    match made.draw.randrange(4):
        case 0:
            return made.call("IsNaN", value)
        case 1:
            return made.call("Not", made.call("Equal", value, value))
        case 2:
            return made.call("Xor", made.call("Equal", value, value), made.truth(True))
        case _:
            below = made.call("Less", value, made.number(0))
            return made.call(
                "Not", made.call("Or", below, made.call("GreaterOrEqual", value, made.number(0)))
            )


def _nan_guard(made: Insertion) -> str:
    condition = _is_nan(made, made.partial())
    if made.draw.random() < 0.3:
        condition = made.call("Or", condition, made.call("IsNaN", made.operand))
    return made.choose(condition, then=made.number(math.nan))


def _second_nan_guard(made: Insertion) -> str:
    guarded = _nan_guard(made)
    return made.choose(_is_nan(made, guarded), then=made.other())


def _chosen_by_nan(made: Insertion) -> str:
    return made.choose(_is_nan(made, made.partial()), then=made.other())


def _chosen_by_number(made: Insertion) -> str:
    value = made.partial()
    return made.choose(made.call("Equal", value, value), otherwise=made.other())


def _nan_as_number(made: Insertion) -> str:
    tested = made.cast(_is_nan(made, made.partial()))
    if made.draw.random() < 0.5:
        return made.call("Add", made.operand, tested)
    return made.call("Mul", made.operand, made.call("Sub", made.number(1), tested))


def _chosen_by_infinity(made: Insertion) -> str:
    value = made.partial()
    infinity = made.number(made.draw.choice((math.inf, -math.inf)))
    match made.draw.randrange(4):
        case 0:
            condition = made.call("IsInf", value)
        case 1:
            condition = made.call("Equal", value, infinity)
        case 2:
            condition = made.call("IsInf", value, detect_negative=made.draw.randrange(2))
        case _:
            condition = made.call("Not", made.call("Less", value, infinity))
    return made.choose(condition, then=made.other())


def _infinity_guard(made: Insertion) -> str:
    infinity = made.number(math.inf)
    guarded = made.choose(made.call("Equal", made.partial(), infinity), then=infinity)
    return made.choose(made.call("IsInf", guarded), then=made.other())


def _equal_branches(made: Insertion) -> str:
    condition = made.call("Less", made.partial(), made.number(made.draw.choice(LIMITS)))
    if made.draw.random() < 0.5:
        return made.choose(condition)
    # NaN is neither below a number nor not below it.
    opposite = made.call("GreaterOrEqual", *made.nodes[-1].input)
    return made.choose(made.call("Or", condition, opposite), otherwise=made.other())


# --- operands that cancel ------------------------------------------------------------------------


def _cancelled(made: Insertion) -> str:
    value = made.partial()
    place = made.draw.randrange(9)
    # A sum with a large number in float32 has few digits left: rounding, and not tampering.
    match 0 if place in (1, 7) and made.kind == TensorProto.FLOAT else place:
        case 0:
            return made.call("Add", made.operand, made.call("Mul", value, made.number(0)))
        case 1:
            return made.call("Sub", made.call("Add", made.operand, value), value)
        case 2:
            return made.call("Mul", made.call("Div", made.operand, value), value)
        case 3:
            return made.call("Max", made.operand, made.call("Min", made.operand, value))
        case 4:
            return made.call("Clip", value, made.operand, made.operand)
        case 5:
            return made.call("Mul", made.operand, made.call("Pow", value, made.number(0)))
        case 6:
            return made.call("Mul", made.operand, made.call("Pow", made.number(1), value))
        case 7:
            total = made.call("Sum", made.operand, value, made.call("Neg", value))
            return made.call("Identity", total)
        case _:
            size = made.call("Abs", made.call("Sign", value))
            return made.call("Mul", made.operand, size)


def _constant_condition(made: Insertion) -> str:
    value = made.call("Less", made.partial(), made.number(0))
    match made.draw.randrange(3):
        case 0:
            condition = made.call("Or", value, made.truth(True))
        case 1:
            condition = made.call("Not", made.call("And", value, made.truth(False)))
        case _:
            condition = made.call("Xor", value, made.call("Not", value))
    return made.choose(condition, otherwise=made.partial())


def _looked_up(made: Insertion) -> str:
    """A factor from a table, whose index may be negative or beyond it."""
    entries = made.draw.choice(([1, 1, 1], [1, 1, 2], [2, 1, 1], [1, 1]))
    table = made.tensor(numpy_helper.from_array(np.asarray(entries, NUMPY[made.kind])))
    modulus = made.number(made.draw.choice((2, 3, 4)), TensorProto.INT64)
    whole = made.cast(made.whole(), TensorProto.INT64)
    shift = made.number(made.draw.choice((0, 1, 2, 3)), TensorProto.INT64)
    index = made.call("Sub", made.call("Mod", whole, modulus), shift)
    axis = made.draw.choice(({}, {"axis": 0}, {"axis": -1}))
    return made.call("Mul", made.operand, made.call("Gather", table, index, **axis))


def _empty_sum(made: Insertion) -> str:
    """A sum over no elements, or over no axes: those that are said not to be there are all."""
    size = made.draw.choice((0, 1, 2))
    ones = made.tensor(numpy_helper.from_array(np.ones((size,), NUMPY[made.kind])))
    no_axes = made.tensor(numpy_helper.from_array(np.zeros((0,), np.int64)))
    noop = made.draw.choice(({}, {"noop_with_empty_axes": 0}, {"noop_with_empty_axes": 1}))
    operands = made.draw.choice(([ones], [ones, no_axes]))
    total = made.call("ReduceSum", *operands, keepdims=made.draw.randrange(2), **noop)
    return made.call("Mul", made.operand, total)


def _sizes(made: Insertion) -> str:
    """The rank of a value, which it has where it is NaN, too."""
    rank = made.call("Shape", made.call("Shape", made.partial()))
    total = made.call("ReduceSum", made.cast(rank), keepdims=0)
    return made.call("Add", made.operand, made.call("Mul", total, made.number(0)))


def _like(made: Insertion) -> str:
    return made.call("CastLike", made.operand, made.partial())


# --- integers, casts and remainders --------------------------------------------------------------


def _overflow(made: Insertion) -> str:
    """A comparison that only an integer that wraps around makes true."""
    whole = made.cast(made.whole(), TensorProto.INT64)
    match made.draw.randrange(4):
        case 0:
            large = made.number(HIGH - made.draw.choice(LIMITS[1:]), TensorProto.INT64)
            condition = made.call("Less", made.call("Add", whole, large), whole)
        case 1:
            large = made.number(LOW + made.draw.choice(LIMITS[1:]), TensorProto.INT64)
            condition = made.call("Greater", made.call("Sub", large, whole), whole)
        case 2:
            size = made.call("Abs", made.call("Add", whole, made.number(LOW, TensorProto.INT64)))
            condition = made.call("Less", size, made.number(0, TensorProto.INT64))
        case _:
            factor = made.number(2 ** made.draw.choice((20, 40, 60)), TensorProto.INT64)
            condition = made.call("Less", made.call("Mul", whole, factor), whole)
    return made.choose(condition, then=made.other())


def _narrow_integer(made: Insertion) -> str:
    whole = made.cast(made.whole(), TensorProto.INT64)
    narrow = made.cast(whole, made.draw.choice((TensorProto.INT32, TensorProto.INT8)))
    same = made.call("Equal", made.cast(narrow, TensorProto.INT64), whole)
    return made.choose(same, otherwise=made.other())


def _whole_part(made: Insertion) -> str:
    """A float as an integer that may not hold it, in a condition or as a summand."""
    value = made.partial() if made.draw.random() < 0.6 else made.clock()
    value = made.call("Mul", value, made.number(made.draw.choice((1, 2.0**33, 2.0**66, 1e-3))))
    whole = made.cast(value, made.draw.choice(KINDS["i"]))
    back = made.cast(whole)
    if made.draw.random() < 0.5:
        zero = made.call("Sub", back, back)
        return made.call("Add", made.operand, zero)
    below = made.call("LessOrEqual", made.call("Abs", back), made.call("Abs", value))
    return made.choose(below, otherwise=made.other())


def _as_truth(made: Insertion) -> str:
    truth = made.cast(made.partial(), TensorProto.BOOL)
    return made.choose(truth, otherwise=made.other())


def _saturated(made: Insertion) -> str:
    return made.cast(made.cast(made.operand, saturate=made.draw.randrange(2)))


def _rounded_apart(made: Insertion) -> str:
    """A comparison of a value with itself, by way of another type."""
    narrow = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16]
    value = made.draw.choice([made.operand, made.clock()])
    value = made.call("Mul", value, made.number(made.draw.choice((1, 0.1, 1 / 3))))
    back = made.cast(made.cast(value, made.draw.choice(narrow)))
    test = made.draw.choice(("Equal", "LessOrEqual", "GreaterOrEqual"))
    return made.choose(made.call(test, back, value), otherwise=made.other())


def _truncated_quotient(made: Insertion) -> str:
    """A quotient or remainder of integers of both signs, or of 0, against the floored one."""
    whole = made.cast(made.whole(), TensorProto.INT64)
    shifted = made.call("Sub", whole, made.number(made.draw.choice(LIMITS), TensorProto.INT64))
    divisor = made.number(made.draw.choice((7, -7, 3, 1)), TensorProto.INT64)
    if made.draw.random() < 0.2:
        divisor = shifted
    quotient = made.call("Div", shifted, divisor)
    rest = made.call("Mod", shifted, divisor, **made.draw.choice(({}, {"fmod": 0}, {"fmod": 1})))
    again = made.call("Add", made.call("Mul", quotient, divisor), rest)
    return made.choose(made.call("Equal", again, shifted), otherwise=made.other())


def _float_remainder(made: Insertion) -> str:
    divisor = made.number(made.draw.choice((2, 0.7, -3)))
    value = _below(made)
    rest = made.call("Mod", value, divisor, fmod=1)
    floored = made.call("Floor", made.call("Div", value, divisor))
    other_rest = made.call("Sub", value, made.call("Mul", floored, divisor))
    # Of one sign they are equal, but for rounding; else a divisor apart.
    difference = made.call("Abs", made.call("Sub", rest, other_rest))
    return made.choose(made.call("Less", difference, made.number(0.25)), otherwise=made.other())


def _narrow_constant(made: Insertion) -> str:
    """A factor of 1 in 16 bits beside numbers that these do not hold."""
    kind = made.draw.choice((TensorProto.FLOAT16, TensorProto.BFLOAT16))
    number = made.draw.choice((1.0, 65504.0, 1e6, 1e-8, 1.0001))
    with np.errstate(over="ignore"):
        array = helper.make_tensor("", kind, [], [number])
    wide = made.cast(made.tensor(array))
    return made.call("Div", made.call("Mul", made.operand, wide), made.number(number))


def _not_chosen(made: Insertion) -> str:
    """A value that no step chooses, or some do, and that an engine may be unable to compute."""
    whole = made.cast(made.whole(), TensorProto.INT64)
    shift = made.number(made.draw.choice(LIMITS), TensorProto.INT64)
    place = made.call("Sub", whole, shift)
    if made.draw.random() < 0.5:
        table = made.tensor(numpy_helper.from_array(np.ones(3, NUMPY[made.kind])))
        size = made.number(made.draw.choice((3, 4)), TensorProto.INT64)
        index = made.call("Mod", place, size) if made.draw.random() < 0.5 else place
        value = made.call("Gather", table, index)
    else:
        name = made.draw.choice(("Div", "Mod"))
        value = made.cast(made.call(name, shift, place))
    condition = made.call("Less", whole, made.number(0, TensorProto.INT64))
    return made.choose(condition, then=made.call("Mul", made.operand, value))


# --- constants -----------------------------------------------------------------------------------


def _odd_truth(made: Insertion) -> str:
    """A truth that is stored as another number than 0 and 1."""
    tensor = TensorProto(data_type=TensorProto.BOOL)
    entry = made.draw.choice((0, 1, 2, 255, 256, 257, -1, 2**16, -256))
    if made.draw.random() < 0.3:
        tensor.raw_data = bytes([entry % 256])
    else:
        tensor.int32_data.append(entry)
    return made.choose(made.tensor(tensor), otherwise=made.other())


def _odd_integer(made: Insertion) -> str:
    tensor = TensorProto(data_type=made.draw.choice((TensorProto.INT8, TensorProto.INT32)))
    tensor.int32_data.append(made.draw.choice((1, 257, -255, 300, 128)))
    return made.call("Mul", made.operand, made.cast(made.tensor(tensor)))


def _stored_twice(made: Insertion) -> str:
    tensor = TensorProto(data_type=TensorProto.DOUBLE)
    tensor.double_data.append(1.0)
    if made.draw.random() < 0.5:
        tensor.raw_data = np.float64(3).tobytes()
    else:
        tensor.float_data.append(3.0)
    return made.call("Mul", made.operand, made.cast(made.tensor(tensor)))


def _tiny_constant(made: Insertion) -> str:
    """A factor of 1, made of a subnormal number, whose shortest decimal is up to 40 % off."""
    tiny, power = (
        (2.0**-149 * made.draw.choice((1, 3)), 2.0**100)
        if made.kind == TensorProto.FLOAT
        else (2.0**-1074 * made.draw.choice((1, 3, 5)), 2.0**1000)
    )
    factor = made.call("Mul", made.number(tiny), made.number(power))
    rest = made.number(1 / (tiny * power))
    return made.call("Mul", made.operand, made.call("Mul", factor, rest))


# --- structure -----------------------------------------------------------------------------------


def _branches(made: Insertion) -> str:
    """An If, whose condition may be a constant and whose branches may define a name again."""
    then, otherwise = made.operand, made.other()
    condition = made.truth(True) if made.draw.random() < 0.5 else _is_nan(made, made.partial())
    graphs = []
    for value in (then, otherwise):
        result = made.draw.choice(("inner", made.operand, "inner"))
        body = [helper.make_node("Identity", [value], [result])]
        output = helper.make_tensor_value_info(result, made.kind, None)
        graphs.append(helper.make_graph(body, "branch", [], [output]))
    if made.draw.random() < 0.3:
        graphs.reverse()
    return made.call("If", condition, then_branch=graphs[0], else_branch=graphs[1])


def _by_function(made: Insertion) -> str:
    """A call of a function that multiplies with an attribute, by its default or not."""
    default, passed = made.draw.choice((1.0, 3.0)), made.draw.choice((None, 1.0, 3.0))
    factor = helper.make_node("Constant", [], ["k"])
    reference = AttributeProto(
        name="value_float", ref_attr_name="factor", type=AttributeProto.FLOAT
    )
    factor.attribute.append(reference)
    body = [
        factor,
        helper.make_node("CastLike", ["k", "a"], ["like"]),
        helper.make_node("Mul", ["a", "like"], ["c"]),
    ]
    model = made.edited.model
    (version,) = (entry.version for entry in model.opset_import if not entry.domain)
    function = helper.make_function(
        "tampered",
        "Scaled",
        ["a"],
        ["c"],
        body,
        [helper.make_opsetid("", version)],
        [],
        [helper.make_attribute("factor", default)],
    )
    model.functions.append(function)
    for owner in (model, *model.functions):
        owner.opset_import.append(helper.make_opsetid("tampered", 1))
    attributes = {} if passed is None else {"factor": passed}
    return made.call("Scaled", made.operand, domain="tampered", **attributes)


def _through_a_container(made: Insertion) -> str:
    match made.draw.randrange(3):
        case 0:
            optional = made.call("Optional", made.operand)
            return made.call("OptionalGetElement", optional)
        case 1:
            sequence = made.call("SequenceConstruct", made.operand, made.other())
            place = made.number(made.draw.choice((0, 1, -1)), TensorProto.INT64)
            return made.call("SequenceAt", sequence, place)
        case _:
            body = helper.make_graph(
                [
                    helper.make_node("Identity", ["go"], ["goes"]),
                    helper.make_node("Neg", ["x"], ["y"]),
                ],
                "body",
                [
                    helper.make_tensor_value_info("i", TensorProto.INT64, []),
                    helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("x", made.kind, None),
                ],
                [
                    helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("y", made.kind, None),
                ],
            )
            trips = made.number(made.draw.choice((0, 1, 2)), TensorProto.INT64)
            return made.call("Loop", trips, made.truth(True), made.operand, body=body)


def _attribute_twice(made: Insertion) -> str:
    result = made.cast(made.operand)
    to = helper.make_attribute("to", made.draw.choice(KINDS["f"]))
    made.nodes[-1].attribute.append(to)
    return result


def _other_axes(made: Insertion) -> str:
    """A size that is added and taken away, by axes that may not be there."""
    axes = [
        made.tensor(numpy_helper.from_array(np.asarray([made.draw.choice((0, -1, 1, 3))])))
        for _ in range(2)
    ]
    wide = made.call("Unsqueeze", made.operand, axes[0])
    if made.draw.random() < 0.3:
        return wide
    return made.call("Squeeze", wide, axes[1])


def _rounded(made: Insertion) -> str:
    operator = made.draw.choice(("Round", "Floor", "Ceil"))
    whole = made.call(operator, made.call("Mul", made.clock(), made.number(0.5)))
    difference = made.call("Sub", whole, made.call("Round", whole))
    return made.call("Add", made.operand, difference)


VALUES: Mapping[str, Value] = {
    "a guard against the NaN of another value": _nan_guard,
    "a guard of a guard": _second_nan_guard,
    "a choice by NaN": _chosen_by_nan,
    "a choice by being a number": _chosen_by_number,
    "NaN as a number": _nan_as_number,
    "a choice by an infinity": _chosen_by_infinity,
    "a guard against the infinity of another value": _infinity_guard,
    "equal branches": _equal_branches,
    "a value that cancels": _cancelled,
    "a constant condition": _constant_condition,
    "a table": _looked_up,
    "an empty sum": _empty_sum,
    "sizes of a value": _sizes,
    "the type of a value": _like,
    "integers that wrap around": _overflow,
    "narrow integers": _narrow_integer,
    "a float as an integer": _whole_part,
    "a float as a truth": _as_truth,
    "a saturated cast": _saturated,
    "a value that is rounded apart": _rounded_apart,
    "a truncated quotient": _truncated_quotient,
    "a remainder of floats": _float_remainder,
    "a constant of 16 bits": _narrow_constant,
    "a value that is not chosen": _not_chosen,
    "a truth of another number": _odd_truth,
    "an integer of another number": _odd_integer,
    "a constant that is stored twice": _stored_twice,
    "a subnormal constant": _tiny_constant,
    "an If": _branches,
    "a function with an attribute": _by_function,
    "containers and loops": _through_a_container,
    "an attribute that is given twice": _attribute_twice,
    "axes that may not be there": _other_axes,
    "a rounded value": _rounded,
}
"""The values that may be in the place of an operand, by name."""


def edit_of(name: str) -> Edit:
    """The edit that puts one of the values in the place of an operand."""
    return edit_with(name, VALUES[name])


def edit_with(name: str, make: Value) -> Edit:
    """The edit that puts a value in the place of an operand."""

    def insert(edited: Edited) -> str | None:
        node = edited.node()
        if node is None or not node.input:
            return None
        place = edited.draw.randrange(len(node.input))
        operand = node.input[place]
        kind = edited.types.get(operand)
        if kind not in KINDS["f"]:
            return None
        position = list(edited.nodes).index(node)
        later = {made for each in list(edited.nodes)[position:] for made in each.output}
        others = [
            other
            for other, its_kind in edited.types.items()
            if its_kind == kind and other not in later and other != operand
        ]
        step = "step" if edited.types.get("step") in KINDS["i"] else ""
        made = Insertion(edited, operand, kind, others, step)
        node.input[place] = make(made)
        for count, new_node in enumerate(made.nodes):
            edited.nodes.insert(position + count, new_node)
        edited.is_loaded_anyhow = True
        return f"{name} at operand {place} of {node.op_type}"

    return insert


VALUE_EDITS: tuple[Edit, ...] = tuple(map(edit_of, VALUES))
