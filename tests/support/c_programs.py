"""Graphs and headers as C: compiled with warnings as errors, loaded, and called with arrays."""

import contextlib
import ctypes
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from closedform.errors import ExportError
from closedform.exporters.c_function import SIZE, Parameter, Passing, write_function
from closedform.exporters.c_header import Header
from closedform.exporters.c_header import document as header_text
from closedform.ir.graph import Array, Graph
from closedform.ir.types import DType
from closedform.runtime.c_library import CLibrary

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
"""The flags of every header in the tests."""


def graph_header(name: str, graph: Graph) -> Header:
    """Returns a header with the function of a graph: inputs in order, then outputs by address."""
    parameters = []
    for place, node in enumerate(graph.inputs):
        passing = Passing.READ if node.type.shape else Passing.VALUE
        port = str(node.attribute("name"))
        parameters.append(Parameter(f"in{place}", port, node.type.dtype, passing))
    if any(isinstance(dim, str) for node in graph.inputs for dim in node.type.shape):
        parameters.append(Parameter(SIZE, SIZE, DType.I64, Passing.VALUE))
    for place, output in enumerate(graph.outputs):
        node = graph.nodes[output.index]
        passing = Passing.WRITE if node.type.shape else Passing.RESULT
        parameters.append(Parameter(f"out{place}", output.name, node.type.dtype, passing))
    function = write_function(name, graph, parameters)
    return Header(name, (function,), header_text(name, [name], [function.text]))


_LIBRARIES: dict[Graph, tuple[CLibrary, str]] = {}


def prepare_c(graphs: Iterable[Graph]) -> None:
    """Compiles graphs, of which some may be refused, in one run of the compiler."""
    headers: dict[Graph, Header] = {}
    for graph in graphs:
        if graph not in _LIBRARIES and graph not in headers:
            with contextlib.suppress(ExportError):
                headers[graph] = graph_header(f"graph_{len(_LIBRARIES) + len(headers)}", graph)
    if headers:
        library = compiled(list(headers.values()))
        _LIBRARIES.update({graph: (library, one.name) for graph, one in headers.items()})


def run_c(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the outputs of the C function of a graph.

    Raises:
        ExportError: C has no such function.
    """
    if graph not in _LIBRARIES:
        header = graph_header(f"graph_{len(_LIBRARIES)}", graph)
        _LIBRARIES[graph] = compiled([header]), header.name
    return run_graph(*_LIBRARIES[graph], graph, inputs)


def run_graph(
    library: CLibrary, name: str, graph: Graph, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Returns the outputs of the function of a graph."""
    sizes = {
        dim: size
        for node in graph.inputs
        for dim, size in zip(
            node.type.shape, np.shape(inputs[str(node.attribute("name"))]), strict=True
        )
    }
    arrays = {key: np.ascontiguousarray(value) for key, value in inputs.items()}
    results = {
        output.name: np.empty(
            [sizes.get(dim, dim) for dim in graph.nodes[output.index].type.shape],
            graph.nodes[output.index].type.dtype.numpy,
        )
        for output in graph.outputs
    }
    described = library.find_function(name)
    assert described is not None
    call(library, name, {**arrays, **results}, max([0, *map(np.size, arrays.values())]))
    return results


def call(library: CLibrary, name: str, arrays: Mapping[str, Array], size: int = 0) -> object:
    """Calls a function with the arrays of its ports; returns what it returns."""
    described = library.find_function(name)
    assert described is not None, name
    given: list[object] = []
    for parameter in described.parameters:
        if parameter.port == SIZE:
            given.append(size)
        elif parameter.passing is Passing.VALUE:
            given.append(arrays[parameter.port].item())
        else:
            given.append(arrays[parameter.port].ctypes.data_as(ctypes.c_void_p))
    return library.function(name)(*given)


def compiled(headers: Sequence[Header], flags: Sequence[str] = STRICT) -> CLibrary:
    """Returns the headers compiled with warnings as errors."""
    return CLibrary(headers, flags)
