"""Options of a compilation: those of the graph, and the model that a rule steps.

Both are frozen, checked where they are built, and passed on whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from closedform.errors import ExportError, describe
from closedform.ir.types import DType, Shape
from closedform.language.groups import Assignment, Group, assign
from closedform.language.update_rule import UpdateRule
from closedform.magnitude import MOST_ELEMENTS, number_text

CLOCK = "t is the number of optimizer steps done; the first step runs with t = 0"
"""The convention of the clock, written into every artefact."""

DEFAULT_OPSET = 21
"""The ONNX opset of exports."""


class Precision(StrEnum):
    """The number formats in which schedules and the scalars of rules are computed."""

    SINGLE = "single"
    DOUBLE_FLOAT = "double-float"


@dataclass(frozen=True, slots=True, init=False)
class GraphOptions:
    """How an expression becomes a graph.

    Attributes:
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32; results are rounded once.
        step_dtype: Dtype of the step, i64 or i32.
        step_shape: Shape of a schedule's step, ``()`` for one step or ``("n",)`` for any number.
        inputs: Names of hyperparameters of a schedule that become inputs of the graph.
        precision: "single" computes schedules and the scalars of a rule in the scalar dtype;
            "double-float" in pairs of float32, for devices without float64: a graph of f32 and
            integers whose value is within 0.501 ulp. States of the whole model, such as the
            estimate of Prodigy, are f32 between steps.

    Raises:
        ExportError: An option has no such value, ``inputs`` is a string, or double-float is
            requested with a dtype other than f32.

    Example:
        >>> GraphOptions(dtype="f32", step_shape=("n",)).dtype
        <DType.F32: 'f32'>
        >>> GraphOptions(step_dtype="i16")
        Traceback (most recent call last):
        closedform.errors.ExportError: step_dtype must be i64 or i32, got 'i16'
    """

    dtype: DType | None
    scalar_dtype: DType
    step_dtype: DType
    step_shape: Shape
    inputs: tuple[str, ...]
    precision: Precision

    def __init__(
        self,
        *,
        dtype: DType | str | None = None,
        scalar_dtype: DType | str = DType.F64,
        step_dtype: DType | str = DType.I64,
        step_shape: Shape = (),
        inputs: Iterable[str] = (),
        precision: Precision | str = Precision.SINGLE,
    ) -> None:
        if isinstance(inputs, str):
            raise ExportError(
                f"inputs must be a list of names, got str {inputs!r}",
                hint=f"give inputs=({inputs!r},)",
            )
        values = {
            "dtype": None if dtype is None else _choice("dtype", dtype, _FLOATS),
            "scalar_dtype": _choice("scalar_dtype", scalar_dtype, _FLOATS),
            "step_dtype": _choice("step_dtype", step_dtype, _INTEGERS),
            "step_shape": _shape(step_shape),
            "inputs": tuple(inputs),
            "precision": _precision(precision),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.precision is Precision.DOUBLE_FLOAT:
            for name in ("dtype", "scalar_dtype"):
                if values[name] is not DType.F32:
                    raise ExportError(
                        "precision 'double-float' computes in float32, got "
                        f"{name} {values[name] or DType.F64}",
                        hint='give dtype="f32" and scalar_dtype="f32"',
                    )

    @property
    def value_dtype(self) -> DType:
        """The dtype of a schedule's value."""
        return DType.F64 if self.dtype is None else self.dtype

    @property
    def tensor_dtype(self) -> DType:
        """The dtype in which the tensors of a rule are computed."""
        return DType.F32 if self.dtype is None else self.dtype


_FLOATS = (DType.F64, DType.F32)
_INTEGERS = (DType.I64, DType.I32)


_LONG_NAMES = {dtype.row.name: dtype for dtype in (*_FLOATS, *_INTEGERS)}
"""Names of NumPy and torch."""


def _choice(argument: str, value: DType | str, choices: Sequence[DType]) -> DType:
    name = _LONG_NAMES.get(value, value)
    if name not in choices:
        raise ExportError(f"{argument} must be {' or '.join(choices)}, got {value!r}")
    return DType(name)


def _shape(value: object) -> Shape:
    if isinstance(value, tuple) and all(map(_is_size, value)):
        _check_elements(value, "step_shape")
        return value
    name = value if isinstance(value, str) and value.isidentifier() else "n"
    raise ExportError(
        f"step_shape must be a tuple of integers >= 0 and names, got {describe(value)}",
        hint=f'give () for one step, or ("{name}",) for any number of steps',
    )


def _is_size(size: object) -> bool:
    return size.isidentifier() if isinstance(size, str) else type(size) is int and size >= 0


def _check_elements(shape: Shape, description: str, where: str | None = None) -> None:
    """Refuses a shape of more elements than a tensor has."""
    count = math.prod(size for size in shape if isinstance(size, int))
    if count > MOST_ELEMENTS:
        raise ExportError(
            f"{description} must have at most 2**48 elements, got {number_text(count)}",
            where=where,
            hint="look for a size that is a number of elements",
        )


def _precision(value: Precision | str) -> Precision:
    if value not in list(Precision):
        raise ExportError(f"precision must be {' or '.join(Precision)}, got {value!r}")
    return Precision(value)


ANY_STEPS = GraphOptions(step_shape=("n",))
"""The options of a graph that takes any number of steps in one run."""


IN_PAIRS = GraphOptions(
    dtype=DType.F32,
    scalar_dtype=DType.F32,
    step_dtype=DType.I32,
    precision=Precision.DOUBLE_FLOAT,
)
"""The options of graphs for arrays without float64, whose schedules and scalars lose nothing."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The parameters of a model with the rules that step them.

    Args:
        rule: The rule of the parameters that no group matches.
        params: Shapes by parameter name, in the order of the model.
        groups: Parameters with a separate rule; the first group that matches a name wins.

    Attributes:
        assignments: Each rule with the parameters that it steps.

    Raises:
        ExportError: There are no parameters, or a shape is not a tuple of sizes.
        DefinitionError: A group matches no remaining parameter.

    Example:
        >>> from closedform import optimizers
        >>> spec = ModelSpec(optimizers.sgd(0.1), {"w": (4, 3), "b": (3,)})
        >>> [list(assignment.params) for assignment in spec.assignments]
        [['w', 'b']]
    """

    rule: UpdateRule
    params: Mapping[str, Shape]
    groups: Sequence[Group] = ()
    assignments: tuple[Assignment, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = f"rule {self.rule.name!r}"
        if not isinstance(self.params, Mapping):
            raise ExportError(
                f"params must be a mapping from name to shape, got {describe(self.params)}",
                where=where,
                hint='give params={"w": (3, 4), …}',
            )
        if not isinstance(self.groups, Sequence) or not all(
            isinstance(group, Group) for group in self.groups
        ):
            raise ExportError(
                f"groups must be a list of Groups, got {describe(self.groups)}",
                where=where,
                hint='make each with closedform.Group("*.bias", changes={"weight_decay": 0})',
            )
        if not self.params:
            raise ExportError(
                "a rule is compiled for parameters, got none",
                where=where,
                hint='give params={"w": (3, 4), …}',
            )
        for name, shape in self.params.items():
            _check_shape(name, shape, where)
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        object.__setattr__(self, "groups", tuple(self.groups))
        assignments = tuple(assign(self.rule, self.params, self.groups))
        object.__setattr__(self, "assignments", assignments)


def _check_shape(name: str, shape: Shape, where: str) -> None:
    sizes = shape if isinstance(shape, tuple) else (None,)
    if not all(isinstance(n, str) or (type(n) is int and n >= 0) for n in sizes):
        raise ExportError(
            f"the shape of parameter {name!r} must be a tuple of integers >= 0, got {shape!r}",
            where=where,
            hint='give params={"w": (3, 4), …}, such as array.shape',
        )
    _check_elements(shape, f"the shape of parameter {name!r}", where)
