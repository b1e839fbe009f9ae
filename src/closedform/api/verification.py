"""``verify``, ``verify_file`` and ``certify``: verdicts on sources, files and floats."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.effort import Watch
from closedform.errors import ArgumentError, ExportError, VerificationError, describe
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language.schedule import Schedule, check_schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import ANY_STEPS, GraphOptions, Precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closedform.referee.file_report import FileReport
    from closedform.referee.ports import PortNames
    from closedform.verify.certificates.certificate import Certificate, Engine
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.report import Report


def verify(
    source: Schedule | UpdateRule,
    *claims: Claim,
    assume: Iterable[sp.Basic] = (),
    effort: float = 1.0,
    budget: float | None = None,
) -> Report:
    """Returns the verdicts of claims about a schedule or a rule.

    Args:
        source: The schedule or rule; hyperparameters without a value may have any value.
        *claims: Claims made with ``closedform.claims``; the standard ones if none is given.
        assume: For a schedule: conditions on open hyperparameters, for the standard claims.
        effort: How much work each claim may take, as a multiple of the usual. Work is counted, not
            timed: the verdict is the same on every machine.
        budget: Seconds of wall-clock time for each claim, in addition; None for no such limit. A
            verdict that this limit ends depends on the machine, and says so.

    Raises:
        VerificationError: An argument is not a claim, ``effort`` or ``budget`` is not above 0, or
            the prover has no meaning for the source.

    Example:
        >>> import closedform as cf
        >>> from closedform.api.verification import verify
        >>> print(verify(cf.schedules.linear(0, 1, 10))["bounded"].claim.sentence)
        the value is >= 0 and <= 1
    """
    from closedform.verify.claims.standard import verify_rule, verify_schedule

    if isinstance(source, UpdateRule):
        return verify_rule(source, *claims, effort=effort, budget=budget)
    return verify_schedule(source, *claims, assume=assume, effort=effort, budget=budget)


def verify_file(
    path: str | os.PathLike[str],
    *,
    against: str | UpdateRule | Mapping[str, UpdateRule] | None = None,
    ports: PortNames | None = None,
    key: str = "lr",
    effort: float = 1.0,
    budget: float | None = None,
    seconds: float = 60.0,
    memory: int = 2 * 2**30,
) -> FileReport:
    """Returns what is found out about an ONNX file that anyone made, within hard limits.

    The file is read in a separate process. Claims about a schedule are asked again; what the file
    says of its own source is reported as stated, not checked. A file that needs more than the
    limits, or ends the process, is UNKNOWN with the reason.

    Args:
        path: The file.
        against: A source that it is compared with, as ``closedform verify`` takes it:
            ``"cosine --start 1 --end 0 --steps 100"``, ``"adamw"``, a config file, or
            ``"file.py:name"``, which is run; needs the extra ``cli``. For the step of an optimizer
            also a rule, such as one that was traced from optax, or the rule of each parameter by
            name.
        ports: For a step that another tool wrote: what its inputs and outputs are, such as
            ``{"in_0": "grad.w", "in_1": "param.w", "in_2": "state.w.exp_avg"}``, or the path of a
            JSON file of this; None for what their use says.
        key: The scheduled hyperparameter, for a config.
        effort: How much work each claim and the comparison may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each of them, in addition; None for no such limit.
        seconds: Wall-clock seconds for the whole file.
        memory: Bytes of memory for it; not enforced on Windows.

    Raises:
        VerificationError: The file cannot be read, or a limit is not above 0.
        ArgumentError: The source is unknown, its arguments do not fit it, or it is of another kind
            than the file.
    """
    from closedform.referee.file_report import FileReport, unknown_report
    from closedform.verify.isolation import Ended, run_limited

    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be the path of an ONNX file, got {describe(path)}")
    request = {
        "path": os.fspath(path),
        "against": against if isinstance(against, str) else None,
        "source": None if isinstance(against, str) or against is None else _as_data(against),
        "ports": os.fspath(ports) if isinstance(ports, os.PathLike) else ports,
        "key": key,
        "effort": effort,
        "budget": budget,
    }
    watch = Watch()
    try:
        reply = run_limited("closedform.cli.worker", request, seconds=seconds, memory=memory)
    except Ended as ended:
        return unknown_report(os.fspath(path), str(ended), watch.seconds)
    if "error" not in reply:
        return FileReport.of_data(reply["report"])
    message, where, hint = reply["error"]
    kind = ArgumentError if reply["is_usage"] else VerificationError
    raise kind(message, where=where, hint=hint)


def _as_data(rules: UpdateRule | Mapping[str, UpdateRule]) -> dict[str, object]:
    """Rules by parameter, for the process that reads a file; "" for one of all parameters."""
    from closedform.language.rule_data import rule_as_data

    by_param = dict(rules) if isinstance(rules, Mapping) else {"": rules}
    for entry in by_param.values():
        if not isinstance(entry, UpdateRule):
            raise ArgumentError(
                f"against must be text, a rule or rules by parameter, got {describe(entry)}",
                hint="a schedule is given as text: 'cosine --start 1 --end 0 --steps 100', or "
                "'file.py:name'"
                if isinstance(entry, Schedule)
                else None,
            )
    return {param: rule_as_data(rule) for param, rule in by_param.items()}


def certify(
    schedule: Schedule,
    graph: Graph | None = None,
    steps: range | Sequence[int] | NDArray[np.int64] | None = None,
    *,
    engine: str | Engine = "evaluate",
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    precision: Precision | str = Precision.SINGLE,
) -> Certificate:
    """Returns how far a compiled schedule is from its exact value.

    Args:
        schedule: The schedule; its expression gives the exact values.
        graph: Its graph, compiled with ``step_shape=("n",)``; compiled here with the options below
            if it is not given.
        steps: A range, or single steps. Up to a million all are compared. By default the length
            of the schedule and one step more, or a million.
        engine: "evaluate" is the reference evaluator, "onnxruntime" the exported model there; a
            function takes an array of steps and returns an array of values, such as
            ``lambda s: module(torch.from_numpy(s)).numpy()``.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        precision: "single" or "double-float".

    Raises:
        VerificationError: The schedule is open, there are no steps or some are out of range, the
            graph does not take an array of steps, or the engine returns something other than
            floats.
        ExportError: An option has no such value, or is given with a graph.

    Example:
        >>> import closedform as cf
        >>> lr = cf.schedules.cosine(1e-3, 1e-5, 1000)
        >>> certificate = cf.certify(lr, dtype="f32")
        >>> certificate.is_exhaustive, certificate.measured.steps
        (True, 1001)
        >>> certificate.measured.ulp.value < 0.5001
        True
    """
    from closedform.verify.certificates.certificate import certify as certify_graph

    check_schedule(schedule, "certify takes a Schedule")
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        step_shape=("n",),
        precision=precision,
    )
    if graph is None:
        graph = compile_schedule(schedule, options)
    elif options != ANY_STEPS:
        raise ExportError(
            "options of the compiler are for a graph that is compiled here, got a graph as well",
            where=f"schedule {schedule.name!r}",
            hint="leave them out",
        )
    return certify_graph(schedule, graph, steps, engine=engine)
