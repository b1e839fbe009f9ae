"""Runs of rules that wait for a metric, in the evaluator."""

from collections.abc import Sequence

import numpy as np

from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec


def run_metric_rule(rule: UpdateRule, start: float, metrics: Sequence[float]) -> list[float]:
    """The value after each metric, in float64."""
    graph = compile_step(ModelSpec(rule, {"lr": ()}), GraphOptions(dtype="f64"))
    states = evaluate(compile_init(ModelSpec(rule, {"lr": ()}), GraphOptions(dtype="f64")), {})
    inputs = {**states, "param.lr": np.array(float(start))}
    values = []
    for metric in metrics:
        results = evaluate(graph, {**inputs, "grad.lr": np.array(float(metric))})
        inputs = {name.removeprefix("next."): value for name, value in results.items()}
        values.append(float(inputs["param.lr"]))
    return values
