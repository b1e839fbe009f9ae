"""The schedule that an ONNX file computes, whichever tool wrote it."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from onnx import ModelProto

from closedform.errors import VerificationError
from closedform.importers.onnx_graph import defaults_of, load_model, read_model
from closedform.ir import Graph, Role
from closedform.language import Schedule
from closedform.verify.terms import to_sympy
from closedform.verify.terms.from_graph import as_stored, terms_of_graph
from closedform.verify.translation.constants import Constants
from closedform.verify.translation.split_constants import with_split_constants


def from_onnx(source: ModelProto | str | PathLike[str], *, stored: bool = False) -> Schedule:
    """Returns the schedule that an ONNX model computes, over the exact numbers.

    The model has one output, an integer input (the clock), and any number of scalar inputs, which
    become hyperparameters; an input with a default keeps it as its value. Only the operators are
    read, never the metadata, and nothing in the model is run.

    Args:
        source: A file or a model.
        stored: False: a float constant represents the simplest number that rounds to it, a rational
            or a multiple of pi: 0.1 is 1/10. True: it represents the binary fraction it holds.

    Raises:
        VerificationError: The file cannot be read, it is not a schedule, or an operator in it is
            not supported; the message names the node and the operator.

    Example:
        >>> import closedform as cf
        >>> model = cf.to_onnx(cf.schedules.cosine(1, 0, 100), "lr.onnx")  # doctest: +SKIP
        >>> cf.from_onnx("lr.onnx").exact(50)  # doctest: +SKIP
        1/2
    """
    if isinstance(source, ModelProto):
        model, where = source, f"graph {source.graph.name!r}"
    else:
        model, where = load_model(Path(source)), f"file {str(source)!r}"
    graph = read_model(model)
    _check_schedule(graph, where)
    constant = as_stored if stored else with_split_constants(Constants(), graph)
    (term,) = terms_of_graph(graph, constant=constant).values()
    defaults: dict[str, Any] = {**defaults_of(model)}
    return Schedule(to_sympy(term), name=graph.name, **defaults)


def _check_schedule(graph: Graph, where: str) -> None:
    hint = "a schedule maps an integer step, and scalar hyperparameters, to one value"
    if len(graph.outputs) != 1:
        names = ", ".join(output.name for output in graph.outputs)
        raise VerificationError(f"expected one output, got {names}", where=where, hint=hint)
    roles = [node.attribute("role") for node in graph.inputs]
    if Role.STEP not in roles:
        names = ", ".join(str(node.attribute("name")) for node in graph.inputs) or "none"
        raise VerificationError(
            f"no input is the clock; the inputs are {names}", where=where, hint=hint
        )
    for node in graph.inputs:
        role, name = node.attribute("role"), node.attribute("name")
        if role not in (Role.STEP, Role.HYPER) or (role == Role.HYPER and node.type.shape):
            raise VerificationError(
                f"the input {name!r} of type {node.type} is not a hyperparameter",
                where=where,
                hint=hint,
            )
