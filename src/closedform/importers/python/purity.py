"""Types without a state, and functions without effects, which a traced function may use.

Everything that is not listed, and that is not code of Python, which is rebuilt, is refused.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import functools
import itertools
import operator
import pathlib
import re
import string
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

CONSTANT_TYPES: tuple[type, ...] = (
    bool, bytes, complex, float, int, str, type(Ellipsis), type(NotImplemented), range, slice,
    re.Pattern, typing.TypeVar,
)  # fmt: skip
"""Types of constants of Python, which do nothing."""

IMMUTABLE_TYPES: tuple[type, ...] = (
    *CONSTANT_TYPES, type(None), Fraction, Decimal, Enum, np.generic, np.dtype, np.finfo,
    np.iinfo, sp.Basic, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    pathlib.PurePath, operator.attrgetter, operator.itemgetter, operator.methodcaller,
    types.GenericAlias, types.UnionType, types.MappingProxyType, string.Formatter,
)  # fmt: skip
"""Types whose objects have no state that a function could change."""

HOLDERS: tuple[type, ...] = (
    list, tuple, dict, set, frozenset, object, property, staticmethod, classmethod, super, filter,
    map, reversed, zip, slice, bool, str, bytes, collections.deque, collections.OrderedDict,
    collections.defaultdict, functools.partial, itertools.chain, itertools.compress,
    itertools.dropwhile, itertools.islice, itertools.pairwise, itertools.product,
    itertools.repeat, itertools.starmap, itertools.takewhile, itertools.zip_longest,
    operator.attrgetter, operator.itemgetter, operator.methodcaller,
)  # fmt: skip
"""Types of C whose objects hold values and do nothing else."""

CONTAINER_TYPES: tuple[type, ...] = (
    *HOLDERS, bytearray, complex, enumerate, range, types.SimpleNamespace, itertools.accumulate,
    itertools.combinations, itertools.count, itertools.cycle, itertools.filterfalse,
    itertools.groupby, itertools.permutations, np.ndarray, np.dtype, np.finfo, np.iinfo,
)  # fmt: skip
"""Types of which a function may make objects."""

_MODULES = frozenset({
    "_bisect", "_collections", "_datetime", "_decimal", "_functools", "_heapq", "_operator", "_sre",
    "_statistics", "_struct", "bisect", "cmath", "collections", "copy", "datetime", "decimal",
    "fractions", "functools", "heapq", "itertools", "math", "operator", "re", "statistics",
    "struct", "typing",
})  # fmt: skip
"""Modules whose functions in C have no effects but on their arguments."""

_NUMPY_NAMES = """
abs all allclose any append arange argmax argmin argsort argwhere around array array_equal
array_split asarray ascontiguousarray atleast_1d atleast_2d average bincount broadcast_to
can_cast ceil clip column_stack concatenate convolve copy corrcoef count_nonzero cross cumprod
cumsum deg2rad diag diff digitize divide dot ediff1d einsum expand_dims extract eye fix
flatnonzero flip full full_like geomspace gradient hstack identity inner interp isclose
iscomplex isin isreal isscalar kron lexsort linspace logspace matmul max maximum mean median
meshgrid min moveaxis nan_to_num nanmax nanmean nanmin nansum ndim nonzero ones ones_like outer
partition percentile polyder polyfit polyint polyval power prod promote_types ptp quantile ravel
repeat reshape result_type roll roots rot90 round select searchsorted shape size sinc sort split
square squeeze stack std sum swapaxes take tile trace transpose trapezoid tri tril trim_zeros
triu unique unwrap var vdot vstack where zeros zeros_like
"""
_NUMPY = frozenset(_NUMPY_NAMES.split())
_TORCH_NAMES = """
abs all allclose any arange argmax argmin as_tensor bucketize cat ceil clamp clip cos cosh
cummax cumprod cumsum deg2rad diff div equal exp exp2 expm1 eye finfo flip floor floor_divide
fmod from_numpy full full_like ge gt iinfo is_floating_point is_tensor isclose isfinite isinf
isnan le lerp linspace log log10 log1p log2 logspace lt max maximum mean min minimum mul ne neg
numel ones ones_like outer pow prod rad2deg reciprocal remainder round rsqrt scalar_tensor
searchsorted sigmoid sign sin sinh softmax sort sqrt square stack std sub sum tan tanh tensor
trunc unique var where zeros zeros_like
"""
_TORCH = frozenset(_TORCH_NAMES.split())

_PURE_BUILTINS_NAMES = """
abs all any ascii bin bool bytes bytearray callable chr classmethod complex dict divmod
enumerate filter format frozenset hex int float isinstance issubclass iter len list map max min
next object oct ord pow property range repr reversed round set slice sorted staticmethod str sum
super tuple zip __build_class__ __name__ __debug__ NotImplemented Ellipsis True False None
"""
PURE_BUILTINS = frozenset(_PURE_BUILTINS_NAMES.split())
"""Builtins that a function may use; of the others only the exceptions."""


def is_immutable(value: object) -> bool:
    """Returns whether a value is of a type without a state."""
    kind = type(value)
    # An object() marks an argument that is not given; typing.List is what isinstance takes.
    is_stateless = kind is object or kind.__module__ == "typing"
    is_of_torch = kind.__module__ == "torch" and kind.__name__ in _TORCH_TYPES
    return isinstance(value, IMMUTABLE_TYPES) or is_stateless or is_of_torch


_TORCH_TYPES = ("dtype", "device", "layout", "memory_format", "Size", "finfo", "iinfo")


def is_pure_function(value: Any) -> bool:
    """Returns whether a function or descriptor in C is known to have no effects."""
    if isinstance(value, np.ufunc):
        return True
    name = str(getattr(value, "__name__", ""))
    owner = getattr(value, "__objclass__", None)
    if owner is not None:
        return issubclass(owner, IMMUTABLE_TYPES) or owner in (tuple, frozenset)
    receiver = getattr(value, "__self__", None)
    if isinstance(receiver, type):  # a class method, such as float.fromhex
        return (
            issubclass(receiver, IMMUTABLE_TYPES)
            or receiver in CONTAINER_TYPES
            or _is_torch(receiver, name)
        )
    module = str(getattr(value, "__module__", None))
    package = module.partition(".")[0]
    if package == "numpy":
        return name in _NUMPY
    if package == "torch" or _package_of(type(receiver)) == "torch":
        return name in _TORCH
    if package == "builtins":
        return name in PURE_BUILTINS
    return module in _MODULES or package in ("jax", "jaxlib", "math")


def _package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_torch(owner: type, name: str) -> bool:
    return _package_of(owner) == "torch" and name in _TORCH


PURE: Mapping[str, Any] = {
    name: value
    for name, value in vars(builtins).items()
    if name in PURE_BUILTINS or (isinstance(value, type) and issubclass(value, BaseException))
}
"""The builtins that a function may use, and the exceptions."""
