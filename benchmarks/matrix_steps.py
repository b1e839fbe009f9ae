"""Steps of rules of matrices in onnxruntime, compared with torch code of a 1,024² matrix: time.

python -m benchmarks.matrix_steps

The peers are ``torch.optim.Muon`` and ``SOAP``, ``Shampoo`` and ``Kron`` of pytorch_optimizer, all
in float32. They are measured in a process of an environment that has the package: this one, or
``.venv-compare``, which ``make compare`` makes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import closedform as cf
from benchmarks._side_by_side import Row, Task, compared, machine, medians, readable, show
from closedform.language import matrices

SIZE = 1024
BAR = 1.5
COMPARE = Path(sys.executable).parents[2] / ".venv-compare" / "bin" / "python"


def matrix() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)


def in_onnxruntime(rule: cf.UpdateRule) -> Task:
    session = cf.OptimizerSession(rule, {"w": matrix()})
    draws = np.random.default_rng(1)
    grads, noise = (
        {"w": draws.normal(size=(SIZE, SIZE)).astype(np.float32)} for _ in ("gradient", "noise")
    )
    return lambda: session.step(grads, {"noise": noise} if rule.inputs else {})


def in_torch(kind: Callable[..., Any], **options: Any) -> Task:
    parameter = torch.nn.Parameter(torch.from_numpy(matrix()))
    gradient = np.random.default_rng(1).normal(size=(SIZE, SIZE))
    parameter.grad = torch.from_numpy(gradient.astype(np.float32))
    step: Task = kind([parameter], **options).step
    return step


def product(dtype: torch.dtype) -> Task:
    """A product of two matrices in torch."""
    factor = torch.from_numpy(matrix()).to(dtype)
    return lambda: factor @ factor


def muon_rows() -> Iterator[Row]:
    """Muon; torch iterates in bfloat16."""
    ours, peer, single, short = medians(
        in_onnxruntime(cf.optimizers.muon(1e-3)),
        in_torch(torch.optim.Muon, lr=1e-3),
        product(torch.float32),
        product(torch.bfloat16),
        rounds=11,
    )
    reason = (
        "torch iterates in bfloat16, for which onnxruntime has no product on a CPU: each of the 15 "
        f"products takes torch {readable(short)}, and in float32 {readable(single)}"
    )
    yield compared("Muon, 1,024²", BAR, ours, peer, "torch", reason)


def authors_rows() -> Iterator[Row]:
    """SOAP between two bases, Shampoo and Kron, in an environment that has pytorch_optimizer."""
    if importlib.util.find_spec("pytorch_optimizer") is None:
        command = [str(COMPARE), "-m", "benchmarks.matrix_steps", "--json"]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
        yield from (Row(**fields) for fields in json.loads(run.stdout.splitlines()[-1]))
        return
    import pytorch_optimizer as package

    peer = "pytorch_optimizer"
    rules = cf.optimizers
    tasks = (
        in_onnxruntime(rules.soap(1e-3, precondition_frequency=None)),
        in_torch(package.SOAP, lr=1e-3, precondition_frequency=2**30),
    )
    ours, theirs = medians(*tasks, rounds=11)
    yield compared("SOAP between two bases, 1,024²", BAR, ours, theirs, peer)
    tasks = in_onnxruntime(rules.kron(1e-3)), in_torch(package.Kron, lr=1e-3, balance_prob=0.0)
    ours, theirs = medians(*tasks, rounds=11)
    yield compared("Kron, 1,024²", BAR, ours, theirs, f"{peer}, which draws noise")
    tasks = in_onnxruntime(rules.shampoo(1e-3)), in_torch(package.Shampoo, lr=1e-3)
    ours, theirs, single = medians(*tasks, product(torch.float32), rounds=3, warm=1)
    steps = matrices.SINGLE_STEPS
    reason = (
        f"{steps} steps of four products for each root, of which torch's own take "
        f"{readable(8 * steps * single)}, where the peer calls a singular value decomposition"
    )
    yield compared("Shampoo, 1,024²", BAR, ours, theirs, peer, reason)


SUMMARY = (
    "A matrix of 1,024² in float32, in onnxruntime and in torch, each on all cores. SOAP is "
    "measured between two bases: its QR decomposition is for axes of up to "
    f"{matrices.MOST_COLUMNS} elements. `Kron` of the package draws its noise in the step; here it "
    "is an input."
)
"""The paragraph below the table of results."""

PARTS = (muon_rows, authors_rows)
"""The functions whose rows ``make bench`` measures."""

if __name__ == "__main__":
    rows = (row for part in PARTS for row in part())
    if "--json" in sys.argv:
        names = ("task", "figure", "bar", "detail", "reason")
        print(json.dumps([{name: getattr(row, name) for name in names} for row in authors_rows()]))
    else:
        print(machine(("closedform", "torch", "numpy", "onnxruntime")))
        show(rows)
