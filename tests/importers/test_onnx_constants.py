"""A constant has the numbers that onnxruntime makes of it, or is refused."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import closedform as cf
from closedform.errors import ClosedFormError, VerificationError
from closedform.importers.onnx_constants import array_of

KINDS = {
    name: getattr(TensorProto, name)
    for name in (
        *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT32", "INT16", "INT8", "UINT8"),
        *("UINT16", "UINT32", "UINT64", "BOOL", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"),
    )
}
READ = {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT32", "INT8", "BOOL"}
READ |= {"UINT32", "UINT64"}
INTEGERS = (0, 1, 2, 3, 127, 128, 255, 256, 257, 65535, 65536, 70000, 2**31 - 1)
SIGNED = (*INTEGERS, -1, -128, -129, -255, -256, -(2**31))
FIELDS: dict[str, tuple[Any, ...]] = {
    "float_data": (0.0, -0.0, 1.0, 0.1, 1.4e-45, 1e-40, 3.4e38, math.inf, math.nan),
    "double_data": (0.0, -0.0, 1.0, 0.1, 5e-324, 1e-310, 1.7e308, -math.inf, math.nan),
    "int32_data": SIGNED,
    "int64_data": (*SIGNED, 2**63 - 1, -(2**63)),
    "uint64_data": (*INTEGERS, 2**32 - 1, 2**32, 2**64 - 1),
}
BYTES = tuple(
    bytes(size) if value is None else bytes([value] * size)
    for size, value in itertools.product((0, 1, 2, 3, 4, 8), (None, 1, 2, 0x7F, 0x80, 0xFF))
)


def tensors(kind: int) -> Iterator[TensorProto]:
    """Each field with each entry, bytes of each size, shapes that do not fit, and two fields."""

    def tensor(*dims: int) -> TensorProto:
        return TensorProto(name="c", data_type=kind, dims=dims)

    for field, entries in FIELDS.items():
        for entry in entries:
            single = tensor()
            getattr(single, field).append(entry)
            yield single
        pair = tensor(2)
        getattr(pair, field).extend(entries[1:3])
        yield pair
        for dims in ((), (3,), (0,), (1, 2)):
            other = tensor(*dims)
            getattr(other, field).extend(entries[1:3])
            yield other
        both = tensor()
        getattr(both, field).append(entries[2])
        both.raw_data = np.float64(1).tobytes()[: 1 if kind == TensorProto.BOOL else 8]
        yield both
    for data in BYTES:
        for dims in ((), (1,), (2,), (0,)):
            raw = tensor(*dims)
            raw.raw_data = data
            yield raw
    yield from (tensor(), tensor(0))
    two = tensor()
    two.float_data.append(1)
    two.double_data.append(2)
    yield two


def in_onnxruntime(tensor: TensorProto) -> Any:
    """The constant as a session has it, of 16-bit floats as float32; None if it is refused."""
    kind, node = tensor.data_type, helper.make_node("Identity", ["c"], ["y"])
    if kind == TensorProto.BFLOAT16:
        kind = TensorProto.FLOAT
        node = helper.make_node("Cast", ["c"], ["y"], to=kind)
    output = helper.make_tensor_value_info("y", kind, list(tensor.dims))
    graph = helper.make_graph([node], "constant", [], [output], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, {})[0]
    except Exception:  # onnxruntime's own errors
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_is_that_of_onnxruntime_or_refused(kind: str) -> None:
    read = 0
    for tensor in tensors(KINDS[kind]):
        try:
            array = array_of(tensor, "c")
        except VerificationError:
            continue
        computed = in_onnxruntime(tensor)
        assert computed is not None, f"onnxruntime refuses {tensor}"
        wide = array.astype(np.float32) if kind == "BFLOAT16" else array
        assert wide.shape == computed.shape
        assert wide.dtype == computed.dtype
        assert wide.tobytes() == computed.tobytes() or np.isnan(wide).any(), tensor
        read += 1
    assert (read > 10) is (kind in READ)


def stored(kind: int, field: str, *entries: Any, dims: tuple[int, ...] = ()) -> TensorProto:
    tensor = TensorProto(name="c", data_type=kind, dims=dims)
    if field == "raw_data":
        tensor.raw_data = entries[0]
    else:
        getattr(tensor, field).extend(entries)
    return tensor


def _external() -> TensorProto:
    tensor = stored(TensorProto.DOUBLE, "double_data", 1.0)
    tensor.data_location = TensorProto.EXTERNAL
    return tensor


def _twice() -> TensorProto:
    tensor = stored(TensorProto.DOUBLE, "double_data", 1.0)
    tensor.raw_data = np.float64(2).tobytes()
    return tensor


REFUSED = {
    "its type is not supported, or its data is in another file": _external(),
    "its data do not have its shape": stored(TensorProto.DOUBLE, "double_data", 1.0, dims=(2,)),
    "DOUBLE is stored in double_data or raw_data, and it has ['float_data']": stored(
        TensorProto.DOUBLE, "float_data", 1.0
    ),
    "DOUBLE is stored in double_data or raw_data, and it has ['double_data', 'raw_data']": _twice(),
    "its entry 256 is not in 0..1: engines differ in what they make of it": stored(
        TensorProto.BOOL, "int32_data", 256
    ),
    "its entry 2 is not in 0..1: engines differ in what they make of it": stored(
        TensorProto.BOOL, "raw_data", b"\2"
    ),
    "its entry 300 is not in -128..127: engines differ in what they make of it": stored(
        TensorProto.INT8, "int32_data", 300
    ),
    "its entry -1 is not in 0..65535: engines differ in what they make of it": stored(
        TensorProto.FLOAT16, "int32_data", -1
    ),
}


@pytest.mark.parametrize("hint", REFUSED)
def test_refused(hint: str) -> None:
    with pytest.raises(VerificationError) as caught:
        array_of(REFUSED[hint], "c")
    assert str(caught.value) == f"the constant 'c' cannot be read: {hint}"


def constant_model(tensor: TensorProto) -> Any:
    """``t * c``, in the type of the constant."""
    nodes = [
        helper.make_node("Cast", ["step"], ["d"], to=tensor.data_type),
        helper.make_node("Mul", ["d", "c"], ["value"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("step", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("value", tensor.data_type, [])],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("units", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("kind", "field", "unit"),
    [(TensorProto.FLOAT, "float_data", 2**149), (TensorProto.DOUBLE, "double_data", 2**1074)],
)
def test_a_subnormal_constant_is_what_it_holds(
    kind: int, field: str, unit: int, units: int
) -> None:
    """Its shortest decimal is up to 40 % off: 1.4e-45 prints as 1e-45."""
    model = constant_model(stored(kind, field, units / unit))
    assert cf.from_onnx(model).exact(1) * unit == units


def test_a_constant_beside_the_subnormal_ones_is_its_decimal() -> None:
    model = constant_model(stored(TensorProto.FLOAT, "float_data", 1.5e-38))
    assert cf.from_onnx(model).exact(1) * 10**39 == 15


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_constant_of_16_bits_is_what_it_holds(kind: int) -> None:
    model = constant_model(stored(TensorProto.DOUBLE, "double_data", 1.0))
    del model.graph.initializer[:]
    model.graph.initializer.append(helper.make_tensor("half", kind, [], [0.1]))
    model.graph.node.insert(0, helper.make_node("Cast", ["half"], ["c"], to=TensorProto.DOUBLE))
    (computed,) = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"step": np.array(1)})
    assert cf.from_onnx(model).exact(1) == Fraction(float(computed))


def test_a_truth_of_another_number_chooses_no_branch() -> None:
    nodes = [
        helper.make_node("Cast", ["step"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Where", ["c", "d", "four"], ["value"]),
    ]
    graph = helper.make_graph(
        nodes,
        "choice",
        [helper.make_tensor_value_info("step", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("value", TensorProto.DOUBLE, [])],
        [
            stored(TensorProto.BOOL, "int32_data", 256),
            helper.make_tensor("four", TensorProto.DOUBLE, [], [4.0]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ClosedFormError, match=r"its entry 256 is not in 0\.\.1"):
        cf.from_onnx(model)
