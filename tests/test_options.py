"""Options of graphs and specifications of models: checked and converted where they are built."""

from typing import Any

import pytest

from closedform import Group, optimizers
from closedform.errors import DefinitionError, ExportError
from closedform.ir.types import DType
from closedform.options import GraphOptions, ModelSpec, Precision

INVALID: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "f16"}, "dtype must be f64 or f32, got 'f16'"),
    ({"scalar_dtype": "i64"}, "scalar_dtype must be f64 or f32, got 'i64'"),
    (
        {"step_shape": (2**24, 2**25)},
        "step_shape must have at most 2**48 elements, got 562949953421312: look for a size that "
        "is a number of elements",
    ),
    ({"step_dtype": "i16"}, "step_dtype must be i64 or i32, got 'i16'"),
    ({"precision": "double"}, "precision must be single or double-float, got 'double'"),
    ({"inputs": "lr"}, "inputs must be a list of names, got str 'lr': give inputs=('lr',)"),
    (
        {"precision": "double-float", "dtype": "f32"},
        "precision 'double-float' computes in float32, got scalar_dtype f64: "
        'give dtype="f32" and scalar_dtype="f32"',
    ),
    (
        {"precision": "double-float", "scalar_dtype": "f32"},
        "precision 'double-float' computes in float32, got dtype f64: "
        'give dtype="f32" and scalar_dtype="f32"',
    ),
]


@pytest.mark.parametrize(("given", "message"), INVALID, ids=[text for _, text in INVALID])
def test_invalid_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError) as caught:
        GraphOptions(**given)
    assert str(caught.value) == message


def test_strings_become_dtypes_and_names_a_tuple() -> None:
    options = GraphOptions(dtype="f32", scalar_dtype="f32", inputs=["a"], precision="double-float")
    assert options.dtype is DType.F32
    assert options.precision is Precision.DOUBLE_FLOAT
    assert options.inputs == ("a",)
    assert options == GraphOptions(
        dtype=DType.F32, scalar_dtype=DType.F32, inputs=("a",), precision=Precision.DOUBLE_FLOAT
    )


def test_the_default_dtype_depends_on_the_source() -> None:
    options = GraphOptions()
    assert (options.value_dtype, options.tensor_dtype) == (DType.F64, DType.F32)
    narrow = GraphOptions(dtype="f64")
    assert (narrow.value_dtype, narrow.tensor_dtype) == (DType.F64, DType.F64)


def test_a_model_assigns_its_parameters_once() -> None:
    shapes = {"w": (2, 3), "b": (3,)}
    spec = ModelSpec(optimizers.sgd(0.1), shapes, [Group("b", factors={"lr": 2})])
    assert [list(one.params) for one in spec.assignments] == [["w"], ["b"]]
    shapes["later"] = (1,)
    assert list(spec.params) == ["w", "b"]


@pytest.mark.parametrize(
    ("params", "groups", "error", "message"),
    [
        (
            {},
            (),
            ExportError,
            "a rule is compiled for parameters, got none (rule 'sgd'): "
            'give params={"w": (3, 4), …}',
        ),
        (
            {"w": 3},
            (),
            ExportError,
            "the shape of parameter 'w' must be a tuple of integers >= 0, got 3 (rule 'sgd'): "
            'give params={"w": (3, 4), …}, such as array.shape',
        ),
        (
            {"w": (10**20, 2)},
            (),
            ExportError,
            "the shape of parameter 'w' must have at most 2**48 elements, got "
            "200000000000000000000 (rule 'sgd'): look for a size that is a number of elements",
        ),
        (
            {"w": (3,)},
            (Group("b"),),
            DefinitionError,
            "group ['b'] matches no remaining parameter (rule 'sgd'): "
            "a glob matches the whole name, and the first matching group wins",
        ),
    ],
)
def test_invalid_models(params: Any, groups: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        ModelSpec(optimizers.sgd(0.1), params, groups)
    assert str(caught.value) == message
