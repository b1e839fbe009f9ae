"""The parser of the text form (``text.py`` has the grammar): recursive descent, nothing evaluated.

The text is not trusted. Every error names the line, what was expected and what was found; the
graph is checked before it is returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from closedform.errors import GraphError, nearest
from closedform.ir.check import IDENTIFIER, check
from closedform.ir.graph import Graph, Node, Output, Role
from closedform.ir.literals import parse_number
from closedform.ir.ops import OPS, AttributeValue, Op
from closedform.ir.types import Dim, DType, Shape, TensorType

# The sign of an exponent is a part of its number: 1e-05, 0x1p-3. Digits are bounded, since int()
# refuses more than 4300 of them with another error.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<value>%[0-9]{1,9})
    | (?P<arrow>->)
    | (?P<bits>nan\(0x[0-9a-f]+\))
    | (?P<word>-?[A-Za-z0-9_.]+(?:(?<=[ep])[-+][0-9]+)?)
    | (?P<sign>[(){}\[\]:,=])""",
    re.VERBOSE,
)
BARE_NAME = re.compile(r"[A-Za-z0-9_.]+")
_LARGEST = 2**31
"""Most bytes of a constant, as in ONNX; a longer run is refused before it is laid out."""

Item = TypeVar("Item")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of the text, its kind (a group of the pattern) and its line."""

    kind: str
    text: str
    line: int


def parse_graph(text: str) -> Graph:
    """Returns the graph of a text.

    Raises:
        GraphError: The text is not of the form, or its graph breaks a rule of ``check``.
    """
    parser = _Parser(_tokens(text))
    graph = parser.graph()
    check(graph, "as parsed")
    return graph


def _tokens(text: str) -> list[Token]:
    tokens = []
    line, position = 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise GraphError(f"{text[position]!r} begins no token", where=f"line {line}")
        if match.lastgroup != "space":
            tokens.append(Token(str(match.lastgroup), match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    tokens.append(Token("end", "", line))
    return tokens


@dataclass(slots=True)
class _Parser:
    tokens: list[Token]
    position: int = 0
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    values: int = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def next(self) -> Token:
        token = self.token
        self.position += token.kind != "end"
        return token

    def error(self, expected: str, token: Token, hint: str | None = None) -> GraphError:
        got = repr(token.text) if token.kind != "end" else "the end of the text"
        return GraphError(f"expected {expected}, got {got}", where=f"line {token.line}", hint=hint)

    def expect(self, text: str) -> None:
        token = self.next()
        if token.text != text:
            raise self.error(repr(text), token)

    def skip(self, text: str) -> bool:
        if self.token.text != text:
            return False
        self.next()
        return True

    def parse_list(self, item: Callable[[], Item], open_: str, close: str) -> list[Item]:
        """Items between brackets with commas between them."""
        self.expect(open_)
        items: list[Item] = []
        if self.skip(close):
            return items
        while True:
            items.append(item())
            token = self.next()
            if token.text == close:
                return items
            if token.text != ",":
                raise self.error(f"',' or {close!r}", token)

    def graph(self) -> Graph:
        self.expect("graph")
        name = self.identifier("the name of the graph")
        self.parse_list(self.input, "(", ")")
        self.expect("->")
        declared_outputs = self.parse_list(self.declared_output, "(", ")")
        self.expect("{")
        while self.token.kind == "value":
            self.line()
        outputs = tuple(self.output(name, type_) for name, type_ in declared_outputs)
        self.expect("}")
        if self.token.kind != "end":
            raise self.error("the end of the text", self.token)
        return Graph(name, tuple(self.nodes), outputs)

    def identifier(self, meaning: str) -> str:
        token = self.next()
        if not IDENTIFIER.fullmatch(token.text):
            raise self.error(meaning, token, "an identifier has letters, digits and _")
        return token.text

    def name(self, meaning: str) -> str:
        token = self.next()
        if BARE_NAME.fullmatch(token.text):
            return token.text
        if token.kind != "string":
            raise self.error(meaning, token)
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self.error(f"{meaning} as a JSON string", token) from None

    def input(self) -> None:
        line = self.token.line
        name = self.name("the name of an input")
        self.expect(":")
        type_ = self.type()
        role = self.choice(Role, "a role")
        if name in self.names:
            raise GraphError(f"input {name!r} is declared twice", where=f"line {line}")
        self.names[name] = len(self.nodes)
        self.nodes.append(_leaf(Op.INPUT, type_, name=name, role=role))

    def choice(self, kind: type[Choice], meaning: str) -> Choice:
        token = self.next()
        try:
            return kind(token.text)
        except ValueError:
            choices = ", ".join(kind)
            raise self.error(meaning, token, f"known are {choices}") from None

    def type(self) -> TensorType:
        dtype = self.choice(DType, "a dtype")
        return TensorType(dtype, self.shape())

    def shape(self) -> Shape:
        return tuple(self.parse_list(self.dim, "[", "]"))

    def dim(self) -> Dim:
        token = self.next()
        if re.fullmatch(r"[0-9]{1,18}", token.text):
            return int(token.text)
        if not IDENTIFIER.fullmatch(token.text):
            raise self.error("an integer or an identifier", token)
        return token.text

    def declared_output(self) -> tuple[str, TensorType]:
        name = self.name("the name of an output")
        self.expect(":")
        return name, self.type()

    def line(self) -> None:
        token = self.next()
        if token.text != f"%{self.values}":
            raise self.error(f"'%{self.values}', the next number", token)
        self.expect("=")
        op_token = self.next()
        if op_token.text not in OPS or op_token.text == Op.INPUT:
            raise self.error("an op", op_token, nearest(op_token.text, map(str, OPS)))
        op = Op(op_token.text)
        node = self.const() if op is Op.CONST else self.application(op)
        self.values += 1
        self.nodes.append(node)

    def application(self, op: Op) -> Node:
        operands = tuple(self.parse_list(self.operand, "(", ")"))
        attributes: dict[str, AttributeValue] = {}
        while self.token.text != ":":
            token = self.next()
            if token.text not in OPS[op].attributes or token.text in attributes:
                attribute_names = " ".join(f"{name}=…" for name in OPS[op].attributes)
                raise self.error(
                    "':' and the type", token, f"attributes of {op}: {attribute_names or 'none'}"
                )
            self.expect("=")
            attributes[token.text] = self.attribute(token.text)
        self.expect(":")
        return Node(op, operands, tuple(sorted(attributes.items())), self.type())

    def attribute(self, name: str) -> AttributeValue:
        if name == "to":
            return self.choice(DType, "a dtype")
        if name in ("axis", "start", "stop", "seed"):
            return self.dim()
        if name != "keepdims":
            return self.shape()
        token = self.next()
        if token.text not in ("true", "false"):
            raise self.error("true or false", token)
        return token.text == "true"

    def operand(self) -> int:
        token = self.token
        if token.kind == "value":
            self.next()
            number = int(token.text[1:])
            # Only earlier values: no text is a graph with a cycle.
            if number >= self.values:
                raise self.error("an earlier value", token)
            return len(self.names) + number
        name = self.name("an operand: %number or the name of an input")
        if name not in self.names:
            hint = nearest(name, self.names) if self.names else "the graph has no inputs"
            raise self.error("the name of an input", token, hint)
        return self.names[name]

    def output(self, name: str, type_: TensorType) -> Output:
        token = self.token
        if self.name(f"a value or the output {name!r}") != name:
            raise self.error(f"the output {name!r}", token, "outputs come in the declared order")
        self.expect("=")
        index = self.operand()
        if self.nodes[index].type != type_:
            raise GraphError(
                f"output {name!r} is declared as {type_}, its value is {self.nodes[index].type}",
                where=f"line {token.line}",
            )
        return Output(name, index)

    def const(self) -> Node:
        """The type comes after the literals, so they are read once it is known."""
        line = self.token.line
        is_scalar = self.token.text != "["
        runs = [self.run()] if is_scalar else self.parse_list(self.run, "[", "]")
        self.expect(":")
        type_ = self.type()
        size = sum(count for _, count in runs)
        if is_scalar != (not type_.shape):
            raise GraphError(
                f"a constant of type {type_} is written {'with' if type_.shape else 'without'} "
                "brackets",
                where=f"line {line}",
            )
        if size * type_.dtype.numpy.itemsize > _LARGEST:
            raise GraphError(
                f"a constant has at most {_LARGEST} bytes, got {size} numbers of {type_.dtype}",
                where=f"line {line}",
            )
        data = b"".join(_number(token, type_.dtype) * count for token, count in runs)
        return _leaf(Op.CONST, type_, data=data)

    def run(self) -> tuple[Token, int]:
        token = self.next()
        if token.kind not in ("word", "bits"):
            raise self.error("a number", token)
        if not self.skip("x"):
            return token, 1
        count = self.next()
        if not re.fullmatch(r"[1-9][0-9]{0,11}", count.text):
            raise self.error("a count", count)
        return token, int(count.text)


def _leaf(op: Op, type_: TensorType, **attributes: AttributeValue) -> Node:
    all_attributes = {"dtype": type_.dtype, "shape": type_.shape, **attributes}
    return Node(op, (), tuple(sorted(all_attributes.items())), type_)


def _number(token: Token, dtype: DType) -> bytes:
    try:
        return parse_number(token.text, dtype)
    except GraphError as error:
        raise GraphError(error.what, where=f"line {token.line}", hint=error.hint) from None
