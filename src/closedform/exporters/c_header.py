"""C11 headers of schedules and rules: functions, and a comment with the formula and its clock.

A header needs only math.h, or what ``CLOSEDFORM_MATH_H`` names in its place; it allocates nothing
and keeps no state.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from closedform.compiler import compile_evaluation, compile_parts, has_evaluation
from closedform.errors import ExportError
from closedform.exporters.c_function import (
    COLUMNS,
    RESERVED,
    SIZE,
    CFunction,
    Parameter,
    Passing,
    function_head,
    identifiers,
    write_function,
)
from closedform.exporters.c_ops import BF16, KEYWORDS, UNIFORM, c_type, conversion, literal
from closedform.ir import naming
from closedform.ir.graph import Graph, Role
from closedform.ir.types import LAST_STEP, DType, Shape
from closedform.language.functions import WHOLE_TENSOR, ReduceSum, Uniform
from closedform.language.printing import text
from closedform.language.schedule import Schedule
from closedform.language.symbols import PARAM
from closedform.language.update_rule import UpdateRule
from closedform.options import CLOCK, GraphOptions, ModelSpec, Precision
from closedform.version import __version__

ANY_PARAM = "all"
"""The name that graphs of a rule have for the parameter."""

_SHAPE: Shape = ("n",)

_FLAGS = (
    "Each operation is rounded, with any level of optimisation and -march=native: pragmas below "
    "say so to gcc and clang, another compiler needs its flag for it (-ffp-contract=off). "
    "-ffast-math and the parts of it that change values are refused where the compiler shows them. "
    "-O3 -fno-math-errno vectorises the loops."
)

_REFUSED = """\
#if defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "each operation must be rounded: compile without -ffast-math and its parts \
(-funsafe-math-optimizations, -freciprocal-math, -fassociative-math)"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0
#error "infinities and NaN have their meaning: compile without -ffinite-math-only"
#endif
#if defined(__NO_SIGNED_ZEROS__)
#error "zeros have signs: compile without -fno-signed-zeros"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 \\
    && __FLT_EVAL_METHOD__ != 16 && __FLT_EVAL_METHOD__ != 32
#error "each operation must be rounded to its own type: compile with -msse2 -mfpmath=sse"
#endif"""
"""Errors for flags that change values, where a macro shows them.

gcc 12 has a macro for each part of -ffast-math, clang 14 for the whole and for
-ffinite-math-only. FLT_EVAL_METHOD 16 (AVX-512 FP16) and 32 evaluate float and double in their own
types, by annex H of C23.
"""

_DOUBLE = """\
CLOSEDFORM_STATIC_ASSERT(sizeof(1.0) == sizeof(double),
    "constants have their own type: compile without -fsingle-precision-constant");"""

_KEYWORD = r"\bCLOSEDFORM_(BOOL|RESTRICT)\b|\bdouble\b"

_ROUNDED = """\
#if defined(__clang__)
#pragma float_control(push)
#pragma float_control(precise, on)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("-ffp-contract=off", "-fno-associative-math", "-fno-reciprocal-math")
#endif"""
"""gcc ignores the pragma of C11 and contracts products and sums outside of -std=c11; its own pragma
would enable a lone -fassociative-math, which the command line disables."""

_RESTORED = """\
#if defined(__clang__)
#pragma float_control(pop)
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif"""


@dataclass(frozen=True, slots=True)
class Header:
    """A C11 header.

    Attributes:
        name: The prefix of its functions.
        functions: Its functions, without ``<name>_init`` of a rule.
        text: Its text.
    """

    name: str
    functions: tuple[CFunction, ...]
    text: str


def schedule_header(
    schedule: Schedule,
    graph: Graph,
    name: str | None = None,
    *,
    notes: Sequence[str] = (),
) -> Header:
    """Returns the header of a schedule: ``<name>(t, inputs…)`` returns its value.

    Outside of its domain, from 0 to the last step of its dtype, the value is NaN.

    Args:
        schedule: The schedule.
        graph: Its graph, of a step of rank 0.
        name: The name of the function; that of the schedule if not given.
        notes: Further paragraphs of its comment, such as the bound of its error.

    Raises:
        ExportError: The name is not an identifier that is free in C.
    """
    name = name or schedule.name
    _check_name(name, f"schedule {schedule.name!r}")
    ports = [str(node.attribute("name")) for node in graph.inputs]
    names = identifiers(ports, {p: "t" if p == naming.STEP else p for p in ports})
    parameters = [
        Parameter(names[port], port, node.type.dtype, Passing.VALUE)
        for port, node in zip(ports, graph.inputs, strict=True)
    ]
    guard = _domain_guard(names[naming.STEP], graph)
    function = write_function(name, graph, parameters, result="value", guard=guard)
    comment = [
        f"{name}: the value of a schedule at step t.",
        f"{name}(t) = {text(schedule.expr)}",
        *_values(schedule.hyperparameters),
        f"{_clock(graph)} Outside the value is NaN.",
        *notes,
    ]
    return Header(name, (function,), document(name, comment, [function.text]))


def rule_header(
    rule: UpdateRule,
    options: GraphOptions,
    name: str | None = None,
    *,
    notes: Sequence[str] = (),
    judge: Callable[[Sequence[Graph | None]], str] | None = None,
) -> Header:
    """Returns the header of a rule on flat arrays.

    - ``<name>_init(param, states…, n)`` fills the states; it is left out where there are none.
    - ``<name>_sums_<k>(sums…, param, grad, …)`` adds the terms of some sums over all parameters.
      Call it for each array, k by k, before any step, with sums that are 0.
    - ``<name>_step(param, grad, states…, inputs…, n, t, …)`` updates param and states in place. A
      state that is one number is given by its address. A rule with sums over the elements of a
      tensor, such as LAMB, takes whole tensors, any other one any part of them.
    - ``<name>_next(t, shared…, …)`` updates the states of the model and returns the next t, after
      the steps of all arrays; it is left out where the next t is t + 1 and there are none.
    - ``<name>_evaluate(evaluated, param, states…, n, t)`` writes the point of evaluation, where
      that is not the parameter; t is the number of steps done.

    Hyperparameters without a value, states of the model and sums follow as numbers.

    Args:
        rule: The rule.
        options: How it is compiled.
        name: The prefix of the functions; the name of the rule if not given.
        notes: Further paragraphs of its comment.
        judge: From the graphs of the rule, its sums and its step, to one more paragraph.

    Raises:
        ExportError: The name is not an identifier that is free in C, or the rule looks at shapes or
            takes means or maxima of tensors, or stores tensors in f16.
    """
    name = name or rule.name
    _check_rule(rule, name, in_parts=False)
    # One graph for a vector of any length serves all parameters.
    ((graphs,),) = compile_parts(name, [(rule, [_SHAPE])], options)
    verdicts = [] if judge is None else [judge(graphs)]
    return _RuleHeader(rule, options, name, graphs).header([*notes, *verdicts])


def rule_headers(
    rules: Mapping[str, UpdateRule],
    options: GraphOptions,
    *,
    notes: Sequence[str] = (),
    in_parts: bool = True,
) -> list[Header]:
    """Returns the headers of the rules of one model, whose sums are over all its parameters.

    Args:
        rules: The rules by the prefix of their functions.
        options: How they are compiled.
        notes: Further paragraphs of each comment.
        in_parts: Whether each rule must be elementwise, to be called for parts of tensors, but for
            random numbers, which take the whole tensor.

    Raises:
        ExportError: As :func:`rule_header`.
    """
    for name, rule in rules.items():
        _check_rule(rule, name, in_parts)
    members = [(rule, [_SHAPE]) for rule in rules.values()]
    programs = compile_parts(next(iter(rules)), members, options)
    return [
        _RuleHeader(rule, options, name, graphs).header(notes)
        for (name, rule), (graphs,) in zip(rules.items(), programs, strict=True)
    ]


def _check_rule(rule: UpdateRule, name: str, in_parts: bool) -> None:
    where = f"rule {rule.name!r}"
    _check_name(name, where)
    if in_parts and not (rule.is_elementwise or rule.is_drawn):
        raise ExportError(
            "C functions are called for parts of tensors, and this rule looks at shapes or at "
            "whole tensors",
            where=where,
            hint="export it with to_onnx",
        )
    if not _is_flat(rule):
        raise ExportError(
            "C functions are written for flat arrays and sums over their elements, and this rule "
            "looks at shapes, or takes means or maxima",
            where=where,
            hint="export it with to_onnx",
        )
    if "f16" in (rule.stored, *(spec.stored for spec in rule.states.values())):
        raise ExportError(
            "C11 has no type for f16, in which the rule stores tensors",
            where=where,
            hint="export it with to_onnx",
        )


def _is_flat(rule: UpdateRule) -> bool:
    """Whether a tensor may be given as a flat array: the rule looks at no axis and at no size."""
    whole = [node for expr in rule.all_expressions() for node in expr.atoms(*WHOLE_TENSOR)]
    are_sums = all(
        isinstance(node, Uniform) or (isinstance(node, ReduceSum) and len(node.args) == 1)
        for node in whole
    )
    are_flat = all(spec.shape in ("param", "scalar") for spec in rule.states.values())
    return rule.is_for_all_shapes and are_sums and are_flat


class _RuleHeader:
    """The header of a rule under construction."""

    def __init__(
        self, rule: UpdateRule, options: GraphOptions, name: str, graphs: Sequence[Graph | None]
    ) -> None:
        self._rule = rule
        self._name = name
        self._dtype = options.tensor_dtype
        self._scalars = (
            "pairs of float"
            if options.precision is Precision.DOUBLE_FLOAT
            else f"{c_type(options.scalar_dtype)} precision"
        )
        # Graphs of the sums, in their order, then the step.
        *stages, step = graphs
        if step is None:
            raise ExportError("the rule has no step", where=f"rule {rule.name!r}")
        self._step = step
        self._stages = stages
        spec = ModelSpec(rule, {ANY_PARAM: _SHAPE})
        self._point = compile_evaluation(spec, options) if has_evaluation(spec) else None
        self._states = [naming.state(ANY_PARAM, label) for label in rule.states]
        self._single = {
            naming.state(ANY_PARAM, label)
            for label, spec in rule.states.items()
            if spec.shape == "scalar"
        }
        self._shared = [naming.shared(label) for label in rule.shared]
        ports = self._all_ports()
        self._names = identifiers(list(ports), ports)

    def _all_ports(self) -> dict[str, str]:
        """Each port of any graph with the name that it should have in C."""
        names = {naming.param(ANY_PARAM): "param", naming.grad(ANY_PARAM): "grad"}
        names |= {port: port.rpartition(".")[2] for port in self._states}
        for label in self._rule.inputs:
            names[naming.tensor_input(ANY_PARAM, label)] = label
        names[naming.STEP] = "t"
        names |= {naming.shared(label): label for label in self._rule.shared}
        for graph in (*self._stages, self._step, self._point):
            for node in () if graph is None else graph.inputs:
                port = node.attribute("name")
                names.setdefault(port, port.replace(".", "_"))
        return names

    def header(self, notes: Sequence[str]) -> Header:
        """Returns the header."""
        functions = [
            self._sums(place, graph)
            for place, graph in enumerate(self._stages)
            if graph is not None
        ]
        functions.append(self._update())
        if self._shared or self._is_clock_conditional():
            functions.append(self._next())
        if self._point is not None:
            functions.append(self._evaluation(self._point))
        init = self._init()
        texts = [*([] if init is None else [init]), *(function.text for function in functions)]
        comment = [*self._comment(), *notes]
        return Header(self._name, tuple(functions), document(self._name, comment, texts))

    # --- parameters ----------------------------------------------------------------------------

    def _arrays(self, passing: Passing) -> list[Parameter]:
        """Param, grad, states and inputs, then the number of elements."""
        param, grad = naming.param(ANY_PARAM), naming.grad(ANY_PARAM)
        tensors = [param, grad, *self._states]
        tensors += [naming.tensor_input(ANY_PARAM, label) for label in self._rule.inputs]
        parameters = []
        for port in tensors:
            is_carried = port == param or port in self._states
            how = passing if is_carried else Passing.READ
            if port in self._single and how is Passing.READ:
                how = Passing.VALUE
            parameters.append(Parameter(self._names[port], port, self._dtype_of(port), how))
        return [*parameters, Parameter(SIZE, SIZE, DType.I64, Passing.VALUE)]

    def _dtype_of(self, port: str) -> DType:
        """The dtype of an array; only states may differ from the parameter."""
        label = port.rpartition(".")[2]
        is_state = port in self._states
        spec = self._rule.states[label] if is_state else self._rule
        return self._dtype if spec.stored is None else DType(spec.stored)

    def _numbers(self, graph: Graph) -> list[Parameter]:
        """The clock, hyperparameters, states of the model and sums."""
        nodes = {
            str(node.attribute("name")): node
            for node in graph.inputs
            if not node.type.shape and node.attribute("name") not in self._single
        }
        return [
            Parameter(self._names[port], port, node.type.dtype, Passing.VALUE)
            for port, node in nodes.items()
        ]

    # --- functions -----------------------------------------------------------------------------

    def _sums(self, place: int, graph: Graph) -> CFunction:
        sums = [output.name for output in graph.outputs if output.name.startswith(naming.TOTAL)]
        targets = [Parameter(port.replace(".", "_"), port, DType.F64, Passing.ADD) for port in sums]
        parameters = [*self._arrays(Passing.READ), *self._numbers(graph)]
        return write_function(f"{self._name}_sums_{place}", graph, [*targets, *parameters])

    def _update(self) -> CFunction:
        graph = self._step
        parameters = [*self._arrays(Passing.UPDATE), *self._numbers(graph)]
        ports = [naming.param(ANY_PARAM), *self._states]
        updates = {port: naming.following(port) for port in ports}
        return write_function(f"{self._name}_step", graph, parameters, updates=updates)

    def _is_clock_conditional(self) -> bool:
        return bool(self._rule.advances != sp.true)

    def _next(self) -> CFunction:
        graph = self._step
        dtypes = {node.attribute("name"): node.type.dtype for node in graph.inputs}
        targets = [
            Parameter(
                f"next_{self._names[port]}", naming.following(port), dtypes[port], Passing.RESULT
            )
            for port in self._shared
        ]
        result = naming.following(naming.STEP)
        parameters = [*targets, *self._numbers(graph)]
        return write_function(f"{self._name}_next", graph, parameters, result=result)

    def _evaluation(self, graph: Graph) -> CFunction:
        inputs = {node.attribute("name"): node for node in graph.inputs}
        dtype = self._dtype_of(naming.param(ANY_PARAM))
        target = Parameter("evaluated", naming.evaluation(ANY_PARAM), dtype, Passing.WRITE)
        arrays = [
            array
            for array in self._arrays(Passing.READ)
            if array.port in inputs or array.port == SIZE
        ]
        parameters = [target, *arrays, *self._numbers(graph)]
        return write_function(f"{self._name}_evaluate", graph, parameters)

    def _init(self) -> str | None:
        """The text of the function that fills the states."""
        if not self._rule.states:
            return None
        dtypes = {self._names[port]: self._dtype_of(port) for port in self._states}
        param = self._dtype_of(naming.param(ANY_PARAM))
        starts = {
            # Rounded to the dtype here, so that the literal is exact.
            name: conversion("param[i]", param, dtype)
            if spec.initial == PARAM
            else literal(dtype.numpy.type(float(spec.initial)).item(), dtype)
            for (name, dtype), spec in zip(dtypes.items(), self._rule.states.values(), strict=True)
        }
        states = [f"{c_type(dtype)} *CLOSEDFORM_RESTRICT {name}" for name, dtype in dtypes.items()]
        declarations = [
            f"const {c_type(param)} *CLOSEDFORM_RESTRICT param",
            *states,
            f"size_t {SIZE}",
        ]
        head = function_head(f"CLOSEDFORM_API void {self._name}_init", declarations)
        is_read = any("param[i]" in start for start in starts.values())
        # -Wunused-parameter in user code.
        void_casts = [] if is_read else ["    (void)param;"]
        # States of rank 0 are given by address, not as arrays.
        single = {self._names[port] for port in self._single}
        numbers = [f"    *{name} = {starts[name]};" for name in starts if name in single]
        stores = [f"        {name}[i] = {starts[name]};" for name in starts if name not in single]
        loop = [f"    for (size_t i = 0; i < {SIZE}; ++i) {{", *stores, "    }"]
        loop = loop if stores else [f"    (void){SIZE};"]
        return "\n".join([head, "{", *void_casts, *numbers, *loop, "}"])

    # --- the comment ---------------------------------------------------------------------------

    def _comment(self) -> list[str]:
        rule = self._rule
        kind = f"{self._dtype_of(naming.param(ANY_PARAM)).numpy} parameters"
        lines = [f"{self._name}: one optimizer step, for {kind}, updated in place."]
        lines += [f"{key} = {text(expr)}" for key, expr in rule.definitions.items()]
        lines += [f"next {key} = {text(expr)}" for key, expr in rule.expressions().items()]
        for label, spec in rule.shared.items():
            lines.append(f"next {label} (of the model) = {text(spec.next)}, first {spec.initial}")
        if rule.evaluation is not None:
            lines.append(f"evaluated at {text(rule.evaluation)}")
        lines += _values(rule.hyperparameters)
        lines.append(_clock(self._step))
        lines.append(
            f"Arrays must not overlap. Numbers of the model are computed in {self._scalars} and "
            f"rounded once to {self._dtype.numpy}; then each operation on elements is rounded "
            "once, as IEEE 754 prescribes."
        )
        return lines


def _clock(graph: Graph) -> str:
    step = next(node for node in graph.inputs if node.attribute("role") is Role.STEP)
    return f"{CLOCK}; 0 <= t <= {LAST_STEP[step.type.dtype]}."


def _domain_guard(step: str, graph: Graph) -> list[str]:
    """The statement that returns NaN for a step outside of the domain."""
    node = next(node for node in graph.inputs if node.attribute("role") is Role.STEP)
    dtype = node.type.dtype
    last = LAST_STEP[dtype]
    # -Wtype-limits: no value of the type is above its largest one.
    above = "" if last == np.iinfo(dtype.numpy).max else f" || {step} > {literal(last, dtype)}"
    return [f"if ({step} < 0{above}) {{", "    return NAN;", "}"]


def _values(hyperparameters: Mapping[str, object]) -> list[str]:
    """The hyperparameters in a paragraph; there is none without them."""
    values_by_name = {
        key: text(value.bound) if isinstance(value, Schedule) else str(value)
        for key, value in hyperparameters.items()
        if value is not None
    }
    if not values_by_name:
        return []
    return ["with " + ", ".join(f"{key} = {value}" for key, value in values_by_name.items())]


def _check_name(name: str, where: str) -> None:
    # C11 7.1.3 reserves names with two underscores, or one and a capital, in front.
    is_free = name not in RESERVED and not re.match(r"_[_A-Z]", name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not is_free:
        raise ExportError(
            f"the name must be an identifier that is free in C, got {name!r}",
            where=where,
            hint='give name="…", such as name="learning_rate"',
        )


def comment_text(paragraph: str) -> str:
    r"""Returns text that a C comment may hold: ASCII, and neither its ends nor trigraphs.

    Example:
        >>> comment_text("a*/b /* ??/ é")
        'a* /b / * ? ?/ \\xe9'
    """
    plain = " ".join(paragraph.split()).encode("ascii", "backslashreplace").decode("ascii")
    plain = "".join(c if c.isprintable() else "?" for c in plain)
    # Again, since a space between two characters may leave a third one behind: /*/ has both ends.
    while (safe := re.sub(r"\*(?=/)|/(?=\*)|\?(?=\?)", r"\g<0> ", plain)) != plain:
        plain = safe
    return plain


def document(name: str, comment: Sequence[str], functions: Sequence[str]) -> str:
    """Returns the text of a header: its comment, guard and functions."""
    guard = f"CLOSEDFORM_{name.upper()}_H"
    paragraphs = [*comment, _FLAGS, f"Written by closedform {__version__}."]
    lines = []
    for paragraph in paragraphs:
        wrapped_lines = textwrap.wrap(
            comment_text(paragraph), COLUMNS - 3, subsequent_indent="  ", break_on_hyphens=False
        )
        # A wrapped line must not end in a backslash, which would join it to the next.
        lines += [f" * {line}".rstrip("\\").rstrip() for line in wrapped_lines]
    return "\n".join(
        [
            "/*",
            *lines,
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "#ifdef CLOSEDFORM_MATH_H",
            "#include CLOSEDFORM_MATH_H",
            "#ifndef NAN",
            "#define NAN (0.0f / 0.0f)",
            "#endif",
            "#else",
            "#include <math.h>",
            "#endif",
            "",
            _REFUSED,
            *([KEYWORDS] if any(re.search(_KEYWORD, text) for text in functions) else []),
            *([_DOUBLE] if any(re.search(r"\bdouble\b", text) for text in functions) else []),
            "#ifndef CLOSEDFORM_API",
            "#define CLOSEDFORM_API static inline",
            "#endif",
            *([UNIFORM] if any("closedform_bits(" in text for text in functions) else []),
            *([BF16] if any("_bf16(" in text for text in functions) else []),
            "",
            _ROUNDED,
            "",
            "\n\n".join(functions),
            "",
            _RESTORED,
            "",
            "#endif",
            "",
        ]
    )
