"""``to_c``: a schedule or a step of a rule as a C11 header."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from closedform.api.compiling import check_source
from closedform.compiler import compile_schedule, find_nonfinite, refuse_nonfinite
from closedform.ir.types import DType
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, Precision

if TYPE_CHECKING:
    from closedform.exporters.c_header import Header
    from closedform.ir.graph import Graph
    from closedform.verify.terms.verdict import Verdict


def to_c(
    source: Schedule | UpdateRule,
    *,
    name: str | None = None,
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
    validate: bool = True,
) -> str:
    """Returns a C11 header that computes a schedule, or one step of a rule on flat arrays.

    A schedule is ``double NAME(int64_t t)``; hyperparameters that are inputs follow. A rule is
    ``void NAME_step(float *param, const float *grad, float *state…, size_t n, int64_t t)`` on
    arrays that do not overlap, with ``NAME_init`` for its states; a rule with sums over all
    parameters or states of the model has further functions
    (:func:`closedform.exporters.c_header.rule_header`). The functions are ``static inline``, unless
    ``CLOSEDFORM_API`` is defined; they allocate nothing and need only math.h, or the file that
    ``CLOSEDFORM_MATH_H`` names in its place. The comment of the header has the formula and the
    proved bound of the error. The header is valid C++11, too. A schedule is NaN at a step outside
    of its domain.

    Compile without ``-ffast-math``; ``-O3 -fno-math-errno``
    vectorises the loops of rules.

    Args:
        source: The schedule, or the rule.
        name: The name of the function, or the prefix of the functions of a rule; the name of the
            source if not given.
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: For a schedule: names of hyperparameters that become parameters of the function.
        precision: "single" or "double-float", which needs no double and of math.h floorf, sqrtf
            and logf only, except for sums over all parameters, which are added in double; see
            :class:`closedform.options.GraphOptions`.
        validate: Whether the graph that is printed is proved equal to its source over the real
            numbers. The verdict is in the comment; the text itself is not read back. Of a rule with
            sums over all parameters, and in pairs of float32, nothing is proved.

    Raises:
        VerificationError: The graph is not its source.
        ExportError: An option does not apply to the source or has no such value, the name is not
            free in C, or the rule looks at shapes or takes means or maxima of tensors.
        LoweringError: An expression cannot be expressed in a graph, or its value is found to be
            NaN or infinite in floats at a step of its domain.

    Warns:
        UnprovedWarning: The graph is not proved to be its source; the message has the reason, and
            the range of steps that is proved.

    Example:
        >>> import closedform as cf
        >>> header = cf.to_c(cf.schedules.linear(1, 0, 100), name="learning_rate")
        >>> start = header.index("CLOSEDFORM_API double")
        >>> print(header[start : header.index("#if", start)].rstrip())
        CLOSEDFORM_API double learning_rate(int64_t t)
        {
            if (t < 0 || t > INT64_C(1125899906842624)) {
                return NAN;
            }
            const double v1 = (double)t;
            const double v2 = 100.0 - v1;
            const double v3 = v2 / 100.0;
            const CLOSEDFORM_BOOL v4 = t < INT64_C(100);
            const double v5 = v4 ? v3 : 0.0;
            return v5;
        }
    """
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        inputs=inputs,
        precision=precision,
    )
    header, verdict = header_and_verdict(source, options, name, validate=validate)
    from closedform.verify.translation.verdicts import warn_unless_proved

    warn_unless_proved(verdict, f"the C of {source.name!r}")
    return header.text


def header_and_verdict(
    source: Schedule | UpdateRule, options: GraphOptions, name: str | None, *, validate: bool = True
) -> tuple[Header, Verdict]:
    """Returns the header that ``to_c`` writes, and the verdict on its graph; see there."""
    from closedform.exporters.c_header import rule_header, schedule_header
    from closedform.verify.certificates.notes import error_note
    from closedform.verify.translation.verdicts import (
        NOT_VALIDATED,
        graph_verdict,
        refuse_refuted,
        step_verdict,
        translation_note,
    )

    if isinstance(source, UpdateRule):
        check_source(source, options, params={})
        schedules = {
            key: value
            for key, value in source.hyperparameters.items()
            if isinstance(value, Schedule)
        }
        # A schedule in a rule is a scalar: its error is that of the scalar dtype.
        scalar_options = replace(options, dtype=options.scalar_dtype)
        notes = [
            f"{key}: {error_note(value, scalar_options, compile_schedule(value, scalar_options))}"
            for key, value in schedules.items()
        ]
        verdict = NOT_VALIDATED

        def judge(graphs: Sequence[Graph | None]) -> str:
            nonlocal verdict
            if validate:
                verdict = step_verdict(source, graphs, options)
                refuse_refuted(verdict, f"rule {source.name!r}")
            return translation_note(verdict)

        header = rule_header(source, options, name, notes=notes, judge=judge)
        return header, verdict
    check_source(source, options)
    graph = compile_schedule(source, options)
    refuse_nonfinite(source, graph, find_nonfinite(source, graph))
    verdict = graph_verdict(source, graph, options) if validate else NOT_VALIDATED
    refuse_refuted(verdict, f"schedule {source.name!r}")
    notes = [error_note(source, options, graph), translation_note(verdict)]
    return schedule_header(source, graph, name, notes=notes), verdict
