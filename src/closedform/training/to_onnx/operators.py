"""torch's operators, of which a table may name some that a version of torch has removed."""

from __future__ import annotations

from typing import Any

import torch


class AbsentOperator:
    """An operator that the installed torch does not have; equal to no target of a graph.

    Tables of decompositions name operators when they are imported. `aten::cholesky` is gone from
    torch 2.14: a plain attribute would make all of the tables unusable, for an operator that no
    traced model of that version can contain.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, overload: str) -> AbsentOperator:
        if overload.startswith("__"):  # protocols of copy and pickle
            raise AttributeError(overload)
        return AbsentOperator(f"{self.name}.{overload}")

    def __repr__(self) -> str:
        return f"AbsentOperator({self.name!r})"


class _Operators:
    """A namespace of `torch.ops` that returns an `AbsentOperator` for a name that it lacks."""

    def __init__(self, namespace: str) -> None:
        self._name = namespace
        self._packets = getattr(torch.ops, namespace)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._packets, name)
        except AttributeError:
            return AbsentOperator(f"{self._name}.{name}")


ATEN, PRIMS = _Operators("aten"), _Operators("prims")
