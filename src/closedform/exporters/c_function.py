"""Graph -> C11 function: numbers are computed once, flat arrays in one loop over their elements.

A node of rank 0 is a local variable. Nodes of rank 1 are variables in the body of a loop, so no
array is ever allocated; a sum over the elements is a separate loop. Each operation is a
statement: with ``-ffp-contract=off`` the value of each is rounded once.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from closedform.errors import ExportError
from closedform.exporters.c_ops import C_OPS, C_REFUSED, Site, c_type, literal
from closedform.ir.analysis.ranges import ranges
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import LAST_STEP, Dim, DType

SIZE = "n"
"""The parameter that is the number of elements of the arrays."""

COLUMNS = 100


class Passing(StrEnum):
    """How a parameter of a function is passed."""

    VALUE = "value"
    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    RESULT = "result"
    ADD = "add"

    @property
    def is_array(self) -> bool:
        """Whether it points to the elements of an array."""
        return self in (Passing.READ, Passing.WRITE, Passing.UPDATE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a C function.

    Attributes:
        name: Its identifier in C.
        port: The input of the graph that it is, or the output that it receives; ``SIZE`` for the
            number of elements.
        dtype: Its dtype, or that of what it points to.
        passing: How it is passed: a number by value; an array that is read, written or updated in
            place; a pointer to a number that is set, added to, or updated.
    """

    name: str
    port: str
    dtype: DType
    passing: Passing

    @property
    def declaration(self) -> str:
        """As the head of a function has it."""
        if self.port == SIZE:
            return f"size_t {self.name}"
        type_ = c_type(self.dtype)
        match self.passing:
            case Passing.VALUE:
                return f"{type_} {self.name}"
            case Passing.READ:
                return f"const {type_} *CLOSEDFORM_RESTRICT {self.name}"
            case _:
                return f"{type_} *CLOSEDFORM_RESTRICT {self.name}"


@dataclass(frozen=True, slots=True)
class CFunction:
    """A function of a header.

    Attributes:
        name: Its identifier.
        parameters: Its parameters in order.
        result: The dtype of what it returns; None where it returns nothing.
        text: Its definition.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: DType | None
    text: str


def write_function(
    name: str,
    graph: Graph,
    parameters: Sequence[Parameter],
    *,
    result: str | None = None,
    updates: Mapping[str, str] | None = None,
    guard: Sequence[str] = (),
) -> CFunction:
    """Returns the C function that computes outputs of a graph.

    Args:
        name: Its identifier.
        graph: A graph of numbers and of vectors of one size; the other outputs are left out.
        parameters: The inputs and outputs that are passed.
        result: The output that is returned.
        updates: The inputs that are updated in place, each with the output that replaces it.
        guard: Statements before its body.

    Raises:
        ExportError: The graph has an op or a shape that a loop over elements does not compute.
    """
    body = _Body(graph, parameters, result, updates or {}).lines()
    dtype = None if result is None else _output(graph, result).type.dtype
    result_type = "void" if dtype is None else c_type(dtype)
    head = function_head(
        f"CLOSEDFORM_API {result_type} {name}", [p.declaration for p in parameters]
    )
    text = "\n".join([head, "{", *(f"    {line}" for line in (*guard, *body)), "}"])
    return CFunction(name, tuple(parameters), dtype, text)


def function_head(before: str, declarations: Sequence[str]) -> str:
    """Returns the head of a function: on one line, or a line for each parameter."""
    one_line = f"{before}({', '.join(declarations) or 'void'})"
    if len(one_line) <= COLUMNS:
        return one_line
    lines = [f"{before}("]
    for place, declaration in enumerate(declarations):
        end = ")" if place == len(declarations) - 1 else ","
        lines.append(f"    {declaration}{end}")
    return "\n".join(lines)


def _output(graph: Graph, name: str) -> Node:
    return graph.nodes[_place(graph, name)]


def _place(graph: Graph, name: str) -> int:
    return next(output.index for output in graph.outputs if output.name == name)


class _Body:
    """The statements of a function under construction."""

    def __init__(
        self,
        graph: Graph,
        parameters: Sequence[Parameter],
        result: str | None,
        updates: Mapping[str, str],
    ) -> None:
        self._graph = graph
        self._nodes = graph.nodes
        self._result = result
        self._parameters = {parameter.port: parameter for parameter in parameters}
        # The range of a value decides whether a cast or a floor division needs a guard.
        self._intervals = ranges(graph, max(LAST_STEP.values()))
        targets = {updates.get(p.port, p.port): p for p in parameters}
        self._targets = {o.name: targets[o.name] for o in graph.outputs if o.name in targets}
        names = [*self._targets, *([] if result is None else [result])]
        self._places = {name: _place(graph, name) for name in names}
        self._needed = self._needed_nodes(self._places.values())
        self._names: dict[int, str] = {}
        self._lines: list[str] = []
        self._count = 0

    def lines(self) -> list[str]:
        """Returns the statements."""
        self._check()
        for index in self._needed:
            self._number(index)
        stores = {name: index for name, index in self._places.items() if self._is_stored(name)}
        if stores:
            self._store(stores)
        for name, parameter in self._targets.items():
            value = self._places[name]
            if not self._nodes[value].type.shape:
                sign = "+=" if parameter.passing is Passing.ADD else "="
                self._lines.append(f"*{parameter.name} {sign} {self._names[value]};")
        if self._result is not None:
            self._lines.append(f"return {self._names[self._places[self._result]]};")
        return [*self._unused_parameter_reads(), *self._lines]

    def _needed_nodes(self, roots: Iterable[int]) -> list[int]:
        """The nodes that these need, in order."""
        indices = set(roots)
        for index in range(len(self._nodes) - 1, -1, -1):
            if index in indices:
                indices.update(self._nodes[index].operands)
        return sorted(indices)

    def _check(self) -> None:
        for index in self._needed:
            node = self._nodes[index]
            is_scalar_sum = node.op is Op.REDUCE_SUM and not node.type.shape
            if node.op in C_REFUSED or (node.op is Op.REDUCE_SUM and not is_scalar_sum):
                description = f"{node.op} to {node.type}"
            elif node.type.rank > 1:
                description = f"{node.op} of {node.type}"
            elif node.op is Op.LOOKUP and self._nodes[node.operands[0]].op is not Op.CONST:
                description = "lookup in a table that is not a constant"
            else:
                continue
            raise ExportError(
                f"C functions are written for numbers and flat arrays, got {description}",
                where=f"graph {self._graph.name!r}",
            )

    def _unused_parameter_reads(self) -> list[str]:
        """Statements that read parameters which nothing else reads: compilers warn of them."""
        # -Wunused-parameter.
        read = set(re.findall(r"\w+", " ".join(self._lines)))
        names = [parameter.name for parameter in self._parameters.values()]
        return [f"(void){name};" for name in names if name not in read]

    # --- numbers -------------------------------------------------------------------------------

    def _number(self, index: int) -> None:
        """Declares a node of rank 0, or the array of a constant."""
        node = self._nodes[index]
        if index in self._names:
            return
        if node.op is Op.CONST:
            self._constant(index)
        elif node.type.shape:
            return
        elif node.op is Op.INPUT:
            parameter = self._parameters[node.attribute("name")]
            self._names[index] = parameter.name
            # Read before the loop: the pointer is written at the end, and other outputs need the
            # old value.
            if parameter.passing is Passing.UPDATE:
                name = self._names[index] = self._new_name()
                self._lines.append(f"const {c_type(node.type.dtype)} {name} = *{parameter.name};")
        elif node.op is Op.REDUCE_SUM:
            self._sums(index)
        else:
            self._names[index] = self._declare(self._lines, "", index, self._names)

    def _constant(self, index: int) -> None:
        node = self._nodes[index]
        dtype = node.type.dtype
        if not node.type.shape:
            self._names[index] = literal(node.array().item(), dtype)
            return
        name = self._new_name()
        values = ", ".join(literal(v, dtype) for v in node.array().reshape(-1).tolist())
        # textwrap would break 1e-05 at its hyphen.
        rows = textwrap.wrap(values, COLUMNS - 8, break_on_hyphens=False)
        self._lines.append(f"static const {c_type(dtype)} {name}[{node.array().size}] = {{")
        self._lines += [*(f"    {row}" for row in rows), "};"]
        self._names[index] = name

    def _declare(self, lines: list[str], indent: str, index: int, names: Mapping[int, str]) -> str:
        """Adds the declaration of a node, and returns its name."""
        node = self._nodes[index]

        def declare(type_: str, expression: str) -> str:
            name = self._new_name()
            lines.append(f"{indent}const {type_} {name} = {expression};")
            return name

        operands = [names.get(operand, "") for operand in node.operands]
        if node.op is Op.LOOKUP:
            operands[0] = self._names[node.operands[0]]  # the table, not its element
        site = Site(
            node,
            tuple(operands),
            tuple(self._nodes[operand] for operand in node.operands),
            tuple(self._intervals[operand] for operand in node.operands),
            self._intervals[index],
            declare,
        )
        return declare(c_type(node.type.dtype), C_OPS[node.op](site))

    def _new_name(self) -> str:
        parameter_names = {parameter.name for parameter in self._parameters.values()}
        while True:
            self._count += 1
            name = f"v{self._count}"
            if name not in parameter_names:
                return name

    # --- loops ---------------------------------------------------------------------------------

    def _sums(self, first: int) -> None:
        """Adds a loop for a sum and for all others of the same size whose numbers are known."""
        size = self._size(first)
        ready = [
            index
            for index in self._needed
            if self._nodes[index].op is Op.REDUCE_SUM
            and index not in self._names
            and self._size(index) == size
            and self._are_known(index)
        ]
        totals: dict[int, str] = {}
        for index in ready:
            totals[index] = self._new_name()
            dtype = self._nodes[index].type.dtype
            # Single precision would lose the small terms of long sums.
            wide = DType.F64 if dtype is DType.F32 else dtype
            self._lines.append(f"{c_type(wide)} {totals[index]} = 0;")
        lines, names = self._loop([self._nodes[index].operands[0] for index in ready])
        lines += [f"    {totals[i]} += {names[self._nodes[i].operands[0]]};" for i in ready]
        self._close(size, lines)
        for index, total in totals.items():
            is_single = self._nodes[index].type.dtype is DType.F32
            self._names[index] = f"(float){total}" if is_single else total

    def _size(self, total: int) -> Dim:
        return self._nodes[self._nodes[total].operands[0]].type.shape[0]

    def _are_known(self, total: int) -> bool:
        """Whether the numbers that the terms of a sum take are declared."""
        elements = self._elements([self._nodes[total].operands[0]])
        return all(
            operand in self._names or self._nodes[operand].type.shape
            for index in elements
            for operand in self._nodes[index].operands
        )

    def _is_stored(self, name: str) -> bool:
        """Whether an output is an array that is written: one that stays as it is, is not."""
        node = self._nodes[self._places[name]]
        is_same = node.op is Op.INPUT and node.attribute("name") == self._targets[name].port
        return bool(node.type.shape) and not is_same

    def _store(self, stores: Mapping[str, int]) -> None:
        """Adds the loop that writes arrays."""
        size: Dim = SIZE
        for index in stores.values():
            size = self._nodes[index].type.shape[0]
        lines, names = self._loop(list(stores.values()))
        for name, index in stores.items():
            lines.append(f"    {self._targets[name].name}[i] = {names[index]};")
        self._close(size, lines)

    def _close(self, size: Dim, lines: Sequence[str]) -> None:
        count = self._parameters[SIZE].name if isinstance(size, str) else size
        self._lines += [f"for (size_t i = 0; i < {count}; ++i) {{", *lines, "}"]

    def _elements(self, roots: Sequence[int]) -> list[int]:
        """The nodes of rank 1 that these need, in order."""
        indices = set(roots)
        for index in range(len(self._nodes) - 1, -1, -1):
            node = self._nodes[index]
            if index in indices:
                # A table is a constant, and of random numbers only the places are read.
                is_first_left_out = node.op in (Op.LOOKUP, Op.UNIFORM)
                operands = node.operands[1:] if is_first_left_out else node.operands
                indices.update(o for o in operands if self._nodes[o].type.shape)
        return sorted(indices)

    def _loop(self, roots: Sequence[int]) -> tuple[list[str], dict[int, str]]:
        """The statements of one element, and its values by node."""
        names = dict(self._names)
        lines: list[str] = []
        for index in self._elements(roots):
            node = self._nodes[index]
            if node.op is Op.CONST:
                names[index] = f"{self._names[index]}[i]"
            elif node.op is Op.INPUT:
                source = self._parameters[node.attribute("name")].name
                name = self._new_name()
                lines.append(f"    const {c_type(node.type.dtype)} {name} = {source}[i];")
                names[index] = name
            else:
                names[index] = self._declare(lines, "    ", index, names)
        return lines, names


_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while bool true false nullptr typeof alignas alignof constexpr "
    "thread_local static_assert main asm and bitand bitor catch class compl delete explicit export "
    "friend mutable namespace new not operator or private protected public template this throw try "
    "typename using virtual xor"
)
_MATH = (
    "acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb "
    "ldexp log log10 log1p log2 logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma "
    "tgamma ceil floor nearbyint rint lrint llrint round lround llround trunc fmod remainder "
    "remquo copysign nan nextafter nexttoward fdim fmax fmin fma gamma j0 j1 jn y0 y1 yn drem "
    "significand scalb signgam abs labs llabs div ldiv exit abort signal index"
)
_OWN = "i n"

RESERVED = frozenset(" ".join((_KEYWORDS, _MATH, _OWN)).split())
"""Identifiers that mean something else in C, C++ or math.h, or in the functions themselves."""


def identifiers(ports: Sequence[str], preferred_names: Mapping[str, str]) -> dict[str, str]:
    """Returns an identifier for each port, close to the wanted name, all different.

    Example:
        >>> identifiers(["a", "b", "c"], {"a": "exp_avg", "b": "exp", "c": "läh 2"})
        {'a': 'exp_avg', 'b': 'exp_', 'c': 'l_h_2'}
    """
    names: dict[str, str] = {}
    for port in ports:
        name = re.sub(r"[^A-Za-z0-9_]", "_", preferred_names[port])
        name = name if re.match(r"[A-Za-z]", name) else f"x{name}"
        while name in RESERVED or name in names.values():
            name += "_"
        names[port] = name
    return names
