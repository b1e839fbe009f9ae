"""Random Python functions of the step, made of the constructs that schedules are written with.

A function is a syntax tree that is drawn from a grammar of typed expressions and statements. It is
compiled here, in the tests; the library itself runs no text.
"""

import ast
import bisect
import functools
import linecache
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np


class Config:
    """A config whose attributes are read."""

    scale = 0.5

    def __init__(self, rate: float, marks: list[int]) -> None:
        self.rate = rate
        self.marks = marks

    def at(self, step: int) -> float:
        """Returns a rate of the step."""
        return self.rate * self.scale ** sum(step >= mark for mark in self.marks)

    @property
    def last(self) -> int:
        """The last mark."""
        return self.marks[-1]


def clipped(value: Any, low: Any = 0, high: Any = 1) -> Any:
    """Returns a value between two limits."""
    return max(low, min(high, value))


def scaled(value: Any, *, factor: Any) -> Any:
    """Returns a value times a factor."""
    return value * factor


def decayed(rate: float) -> Callable[[Any], Any]:
    """Returns a function with a variable of its own."""

    def function(step: Any) -> Any:
        return rate / (1 + step)

    return function


INT_TYPES = ("int", "float", "(int, str)")
ATTRIBUTES = ("real", "shape", "bit_length")
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64")


class Writer:
    """Writes the source of one function.

    Args:
        seed: What it is drawn by.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.scope: dict[str, Any] = {
            "math": math, "np": np, "bisect": bisect, "Fraction": Fraction, "Decimal": Decimal,
            "functools": functools, "clipped": clipped, "scaled": scaled,
        }  # fmt: skip
        self.integers = ["step"]
        self.floats: list[str] = []
        self.count = 0

    def name(self, value: Any) -> str:
        """Returns the name of a new global."""
        self.count += 1
        self.scope[f"G{self.count}"] = value
        return f"G{self.count}"

    def one_of(self, *choices: Callable[[int], str]) -> Callable[[int], str]:
        """Returns one of several productions."""
        return self.draw.choice(choices)

    # --- constants and tables ----------------------------------------------------------------

    def integer(self) -> int:
        """Returns a positive integer, mostly small."""
        return self.draw.choice([1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 30, 64, 100, 365, 1000])

    def number(self) -> str:
        """Returns a float."""
        return self.draw.choice(
            ["0.1", "0.5", "0.3", "1e-3", "2.5", "0.25", "3e-4", "1.7", "0.01", "1 / 3", "math.pi"]
        )

    def table(self, kind: str) -> tuple[str, int]:
        """Returns the name of a table and its length."""
        size = self.draw.choice([3, 5, 12, 20, 40])
        if kind == "int":
            entries: list[Any] = [self.draw.randint(0, 120) for _ in range(size)]
        else:
            entries = [self.draw.choice([0.1, 0.25, 1e-3, 0.7, 1.5]) for _ in range(size)]
        return self.name(tuple(entries) if self.draw.random() < 0.3 else entries), size

    def array(self) -> tuple[str, int]:
        """Returns the name of an array of a drawn dtype and its length."""
        dtype, size = self.draw.choice(DTYPES), self.draw.choice([4, 18, 30])
        entries = [self.draw.choice([0, 1, 5, 100, 101, 127, 60]) for _ in range(size)]
        return self.name(np.array(entries, dtype=dtype)), size

    def index(self, depth: int, size: int) -> str:
        """Returns an index within a length."""
        if self.draw.random() < 0.5:
            return f"min(abs({self.int_of(depth - 1)}), {size - 1})"
        return f"({self.int_of(depth - 1)}) % {size}"

    # --- integers ----------------------------------------------------------------------------

    def int_of(self, depth: int) -> str:
        """Returns an expression of an int."""
        draw = self.draw
        if depth <= 0 or draw.random() < 0.15:
            return draw.choice([*self.integers, "step", "step", str(self.integer())])
        n = self.integer()

        def two(d: int) -> str:
            return f"({self.int_of(d)} {draw.choice('+-*')} {self.int_of(d)})"

        def division(d: int) -> str:
            return f"({self.int_of(d)} {draw.choice(['//', '%'])} {draw.choice([n, -n])})"

        def quotient(d: int) -> str:
            return f"divmod({self.int_of(d)}, {n})[{draw.randint(0, 1)}]"

        def bits(d: int) -> str:
            return f"({self.int_of(d)} {draw.choice('&|^')} {n})"

        def shifted(d: int) -> str:
            side = draw.choice(["<<", ">>"])
            return f"({self.int_of(d)} {side} {draw.randint(0, 5)})"

        def limited(d: int) -> str:
            return f"{draw.choice(['min', 'max'])}({self.int_of(d)}, {n})"

        def conditional(d: int) -> str:
            return f"({self.int_of(d)} if {self.truth_of(d)} else {self.int_of(d)})"

        def whole(d: int) -> str:
            name = draw.choice(["int", "math.floor", "math.ceil", "round", "math.trunc"])
            return f"{name}({self.float_of(d)})"

        def entry(d: int) -> str:
            name, size = self.table("int")
            return f"{name}[{self.index(d, size)}]"

        def counted(d: int) -> str:
            marks = self.name(sorted(draw.sample(range(1, 400), 4)))
            return draw.choice(
                [
                    f"sum({self.int_of(d)} >= m for m in {marks})",
                    f"len([m for m in {marks} if m <= {self.int_of(d)}])",
                    f"bisect.bisect_right({marks}, {self.int_of(d)})",
                    f"next((i for i, m in enumerate({marks}) if m > {self.int_of(d)}), 9)",
                ]
            )

        return self.one_of(
            two, two, division, division, quotient, bits, shifted, limited, conditional, whole,
            entry, counted,
            lambda d: f"(-{self.int_of(d)})",
            lambda d: f"(~{self.int_of(d)})",
            lambda d: f"abs({self.int_of(d)})",
            lambda d: f"pow(abs({self.int_of(d)}) % 50, {draw.randint(0, 3)})",
            lambda d: f"pow({self.int_of(d)}, {draw.randint(0, 3)}, {n + 1})",
            lambda d: f"int({self.truth_of(d)})",
            lambda d: f"({self.int_of(d)} or {n})",
            lambda d: f"({self.int_of(d)} and {n})",
            lambda d: f"sorted([{self.int_of(d)}, {n}, {n + 9}])[1]",
            lambda d: f"{{0: {n}, 1: 2}}.get({self.int_of(d)} % 3, 5)",
            lambda d: f"({self.int_of(d)}).{draw.choice(['real', 'numerator', 'conjugate()'])}",
            lambda d: f"len(format({self.int_of(d)} % 13, 'd'))",
            lambda d: f"min(abs({self.int_of(d)}), 70).bit_length()",
        )(depth - 1)  # fmt: skip

    # --- truths ------------------------------------------------------------------------------

    def truth_of(self, depth: int) -> str:
        """Returns a condition."""
        draw = self.draw
        n, m = self.integer(), self.integer()
        relation = draw.choice(["<", "<=", ">", ">=", "==", "!="])
        if depth <= 0:
            return f"step {draw.choice(['<', '>='])} {n * 3}"
        return self.one_of(
            lambda d: f"{self.int_of(d)} {relation} {n}",
            lambda d: f"{self.int_of(d)} {relation} {self.int_of(d - 1)}",
            lambda d: f"{self.float_of(d)} {draw.choice(['<', '<=', '>', '>='])} {self.number()}",
            lambda d: f"{min(n, m)} <= {self.int_of(d)} < {max(n, m) + 5}",
            lambda d: f"(step < {n * 5} {draw.choice(['and', 'or'])} {self.truth_of(d)})",
            lambda d: f"(not {self.truth_of(d)})",
            lambda d: f"{self.int_of(d)} % {n + 1} in (0, {m})",
            lambda d: f"isinstance({self.int_of(d)}, {draw.choice(INT_TYPES)})",
            lambda d: f"type({self.int_of(d)}) is {draw.choice(['int', 'float'])}",
            lambda d: f"hasattr({self.int_of(d)}, {draw.choice(ATTRIBUTES)!r})",
            lambda d: f"(getattr(step, 'real', 0) > {n * m})",
            lambda d: f"all({self.int_of(d)} > k for k in ({n}, {m}))",
            lambda d: f"any({self.int_of(d)} == k for k in ({n}, {m}, 20))",
            lambda d: f"({self.float_of(d)}).is_integer()",
        )(depth - 1)  # fmt: skip

    # --- floats ------------------------------------------------------------------------------

    def float_of(self, depth: int) -> str:
        """Returns an expression of a float."""
        draw = self.draw
        if depth <= 0 or draw.random() < 0.1:
            choices = [f"step * {self.number()}", f"step / {self.integer()}", self.number()]
            return draw.choice([*self.floats, *choices])
        n, x = self.integer(), self.number()

        def numpy_entry(d: int) -> str:
            name, size = self.array()
            other = draw.choice(["+ 1", "* 2", f"- {name}[0]", "* 0.5", f"// {n}", f"+ {name}[1]"])
            return f"float({name}[{self.index(d, size)}] {other})"

        def entry(d: int) -> str:
            name, size = self.table("float")
            return f"float({name}[{self.index(d, size)}])"

        def chosen(d: int) -> str:
            names = self.name({"a": 0.1, "b": 0.5, "0": 0.3, "1": 0.7})
            return draw.choice(
                [
                    f'{names}["a" if {self.truth_of(d)} else "b"]',
                    f"{names}.get(str({self.int_of(d)} % 3), {x})",
                ]
            )

        def smooth(d: int) -> str:
            inner = self.float_of(d)
            return draw.choice(
                [
                    f"math.cos({inner} / {n})", f"math.sin({inner} / {n})",
                    f"math.exp(-abs({inner}) / {n})", f"math.sqrt(abs({inner}))",
                    f"math.log(abs({inner}) + {x})", f"math.tanh({inner} / {n})",
                    f"abs({inner}) ** 0.5", f"0.9 ** (step // {n})", f"np.cos({inner} / {n})",
                    f"math.atan({inner} / {n})", f"np.arctan2({x}, {inner})",
                    f"math.atan2(abs({inner}), {self.float_of(d)} - {n})",
                ]
            )  # fmt: skip

        def numpy_scalar(d: int) -> str:
            kind = draw.choice(["float64", "float64", "float32", "int64", "int32"])
            if kind == "int32":
                return f"float(np.int32({self.int_of(d)} % 1000) * np.int32({n}))"
            if kind == "int64":
                return f"float(np.int64({self.int_of(d)} % 10000) * {n})"
            return f"float(np.{kind}({self.float_of(d)}))"

        def called(d: int) -> str:
            rate = draw.choice([0.1, 0.5, 1e-3])
            marks = sorted(draw.sample(range(1, 500), 3))
            config = self.name(Config(rate, marks))
            part = self.name(functools.partial(scaled, factor=rate))
            local = self.name(decayed(rate))
            return draw.choice(
                [
                    f"{config}.at({self.int_of(d)})", f"min(step, {config}.last) * {config}.rate",
                    f"{part}({self.float_of(d)})", f"{local}(abs({self.int_of(d)}))",
                    f"clipped({self.float_of(d)}, high={x})",
                    f"(lambda y, z={x}: y * z)({self.float_of(d)})",
                ]
            )  # fmt: skip

        return self.one_of(
            smooth, smooth, entry, numpy_entry, chosen, numpy_scalar, called,
            lambda d: f"({self.float_of(d)} {draw.choice('+-*')} {self.float_of(d)})",
            lambda d: f"({self.float_of(d)} * {self.int_of(d)})",
            lambda d: f"({self.int_of(d)} / {n})",
            lambda d: f"({self.float_of(d)} / {x})",
            lambda d: f"({self.float_of(d)} // {x})",
            lambda d: f"({self.float_of(d)} % {x})",
            lambda d: f"({self.float_of(d)} / (1 + abs({self.int_of(d)})))",
            lambda d: f"round({self.float_of(d)}, {draw.randint(0, 4)})",
            lambda d: f"math.fmod({self.float_of(d)}, {x})",
            lambda d: f"float({self.int_of(d)})",
            lambda d: f"({self.float_of(d)} if {self.truth_of(d)} else {self.float_of(d)})",
            lambda d: f"{draw.choice(['min', 'max'])}({self.float_of(d)}, {x})",
            lambda d: f"sum([{self.float_of(d)}, {x}, {self.float_of(d - 1)}])",
            lambda d: f"float(np.clip({self.float_of(d)}, 0.0, {n}))",
            lambda d: f"float(np.where({self.truth_of(d)}, {x}, {self.float_of(d)}))",
            lambda d: f"float(np.interp(step, [0, {n}, {n * 9}], [0.0, 1.0, {x}]))",
            lambda d: f"float(Fraction({self.int_of(d)}, {n}) + Fraction(1, 3))",
            lambda d: f"float(Decimal(\"0.1\") * ({self.int_of(d)}))",
            lambda d: f"({self.truth_of(d)}) * {x}",
        )(depth - 1)  # fmt: skip

    # --- statements --------------------------------------------------------------------------

    def statements(self, depth: int) -> list[str]:
        """Returns the lines of a body, which assigns some variables."""
        draw, lines = self.draw, []
        for _ in range(draw.randint(0, 2)):
            self.count += 1
            name = f"v{self.count}"
            kind = draw.randrange(7)
            if kind == 0:
                lines.append(f"{name} = {self.int_of(depth)}")
                self.integers.append(name)
                continue
            if kind == 1:
                mark = self.integer() * 3
                lines += [f"if step >= {mark}:", f"    {name} = {self.float_of(depth)}"]
                lines += ["else:", f"    {name} = {self.float_of(depth)}"]
            elif kind == 2:
                lines += [f"{name} = 1.0", f"for k in range({draw.randint(1, 4)}):"]
                lines.append(f"    {name} *= 0.5 if step >= {self.integer()} * (k + 1) else 1")
            elif kind == 3:
                lines += ["try:", f"    {name} = {x_over(self)}"]
                lines += ["except ZeroDivisionError:", f"    {name} = {self.number()}"]
            elif kind == 4:
                lines += [f"{name}, rest = min(step, 60), 0.0", f"while {name} >= 16:"]
                lines += [f"    {name} -= 16", f"    rest += {self.number()}"]
                lines.append(f"{name} = {name} * 0.5 + rest")
            elif kind == 5:
                lines += [f"{name} = [{self.float_of(depth)}]"]
                lines += [f"{name}.append({self.float_of(depth - 1)})", f"{name} = sum({name})"]
            else:
                lines.append(f"{name} = {self.float_of(depth)}")
            self.floats.append(name)
        return lines

    def function(self) -> Callable[[int], Any]:
        """Returns the function."""
        lines = [f"    {line}" for line in self.statements(2)]
        result = self.float_of(3) if self.draw.random() < 0.8 else f"({self.int_of(3)}) * 0.1"
        lines.append(f"    return {result}")
        source = "\n".join(["def function(step):", *lines, ""])
        file = f"<generated {id(self)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        scope = {**self.scope, "__name__": __name__}
        exec(compile(ast.parse(source), file, "exec"), scope)
        made: Callable[[int], Any] = scope["function"]
        made.source = source  # type: ignore[attr-defined]
        return made


def x_over(writer: Writer) -> str:
    """Returns a quotient whose divisor is 0 at some steps."""
    return f"{writer.number()} / (({writer.int_of(1)}) % {writer.integer() + 1})"


def generated_function(seed: int) -> Callable[[int], Any]:
    """Returns the function of a seed."""
    return Writer(seed).function()
