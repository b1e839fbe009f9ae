"""The part of a training step that is products of matrices and convolutions, beside torch's step.

python -m benchmarks.training_floor               a table for all models, one thread

A bar is out of reach where these operators alone, in onnxruntime, take longer than the bar times
the step of torch. Their model has the products of a step in the same order, with the same shapes
and attributes, and nothing else; operands of one shape are one tensor, so that they are rather in
the cache than in a step.

The rates count only the operations of these products, as those of llm.c do: GFLOP/s of the whole
step, here and in torch, and of a product of two matrices of 1024² in the same engine.
"""

from __future__ import annotations

import argparse
import collections
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper

from benchmarks._side_by_side import Task, machine, medians
from benchmarks.training_steps import CASES, NodeTime, files, node_times, session_step, torch_step

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
"""Operators that are sums of products."""


def products(times: Sequence[NodeTime], model: onnx.ModelProto) -> Task:
    """Returns a function that runs only the products of a step."""
    by_name = {node.name: node for node in model.graph.node}
    nodes = []
    inputs: dict[str, list[int]] = {}
    for index, found in enumerate(t for t in times if t.kind in PRODUCTS):
        names = [f"{found.kind}{shape}" for shape in map(tuple, found.inputs)]
        inputs |= dict(zip(names, found.inputs, strict=True))
        node = helper.make_node(found.kind, names, [f"product_{index}"])
        node.attribute.extend(by_name[found.node].attribute)
        nodes.append(node)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, 1, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], 1, None)],
    )
    opsets = model.opset_import
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    # Only the last product is an output: an optimizer would remove the others.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    alone = helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    session = ort.InferenceSession(alone.SerializeToString(), options)
    return lambda: session.run(None, feeds)


def operations(times: Sequence[NodeTime]) -> int:
    """Returns the multiplications and additions of the products of a step."""
    total = 0
    for found in times:
        first, second = [*found.inputs, [], []][:2]
        if found.kind in ("MatMul", "Gemm"):
            (rows, columns), size = found.outputs[0][-2:], math.prod(first)
            batch = math.prod(found.outputs[0][:-2])
            shared = size // (batch * rows) if found.kind == "MatMul" else size // rows
            total += 2 * batch * rows * columns * shared
        elif found.kind == "Conv":
            total += 2 * math.prod(found.outputs[0]) * math.prod(second[1:])
        elif found.kind == "ConvTranspose":
            total += 2 * math.prod(first) * math.prod(second[1:])
    return total


def rates() -> tuple[float, float]:
    """Returns GFLOP/s of a product of two matrices of 1024² in onnxruntime and in torch."""
    size = 1024
    times = [NodeTime("product", "MatMul", [[size, size]] * 2, [[size, size]], 0.0)]
    node = helper.make_node("MatMul", ["a", "b"], ["c"], name="product")
    opset = helper.make_opsetid("", 21)
    graph = helper.make_graph([node], "product", [], [])
    ours = products(times, helper.make_model(graph, opset_imports=[opset], ir_version=10))
    first, second = torch.randn(size, size), torch.randn(size, size)
    seconds = medians(ours, lambda: first @ second, rounds=25, clock=time.process_time)
    in_onnxruntime, in_torch = (2e-9 * size**3 / taken for taken in seconds)
    return in_onnxruntime, in_torch


def rows(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Measures, and returns the rows of the table."""
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            files(case, folder)
            times, model = node_times(case, folder)
            tasks = (
                torch_step(case),
                session_step(case, folder, 1),
                products(times, model),
            )
            peer, ours, floor = medians(*tasks, rounds=rounds, clock=time.process_time)
        rest: dict[str, float] = collections.defaultdict(float)
        for found in times:
            if found.kind not in PRODUCTS:
                rest[found.kind] += found.seconds
        scale = (ours - floor) / sum(rest.values())
        most = sorted(rest.items(), key=lambda item: -item[1])[:8]
        parts = ", ".join(f"{kind} {1e3 * taken * scale:.1f}" for kind, taken in most)
        bar = case.bars[0] * peer
        figures = (peer, bar, ours, floor, ours - floor)
        count = operations(times) / 1e9
        per_second = f"{count / ours:.0f} | {count / peer:.0f} | {count / floor:.0f}"
        cells = (f"| {name}", *(f"{1e3 * s:.1f}" for s in figures), parts, f"{count:.2f}")
        yield f"{' | '.join(cells)} | {per_second} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a part of the names of models", default="")
    parser.add_argument("--rounds", type=int, default=25)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(machine(("torch", "onnxruntime")))
    in_onnxruntime, in_torch = rates()
    print(f"1024²: onnxruntime {in_onnxruntime:.0f} GFLOP/s, torch {in_torch:.0f} GFLOP/s")
    times = "torch | bar | onnxruntime | its products | its rest | rest by operator"
    print(f"| model | {times} | GFLOP | onnxruntime, GFLOP/s | torch | its products |")
    print("|" + " --- |" * 11)
    for row in rows([name for name in CASES if given.only in name], given.rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
