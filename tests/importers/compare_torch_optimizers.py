"""Every optimizer of torch and of pytorch_optimizer: traced, exported, run beside the original.

Not collected with the tests, since pytorch_optimizer is not a development dependency. In an
environment that has it::

    python -m pytest -s tests/importers/compare_torch_optimizers.py

Each optimizer that takes no closure and no second-order information is traced at its defaults. The
files of the rule run 50 steps in onnxruntime in float64 beside the genuine optimizer, in which
float32 is float64, too; the largest difference is relative to the largest element of the parameter.
Rules that round to bf16 are compared without their roundings, with originals without them.
The table that is printed has a line for each, and the refused ones with their reason.
"""

import inspect
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_optimizer
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.tensors.check import without_rounding
from closedform.importers.torch_optimizer.subject import InDouble
from tests.support.torch_draws import Recorder

pytestmark = pytest.mark.packages()
STEPS = 50
SHAPES: dict[str, tuple[int, ...]] = {"first": (6, 4), "second": (5, 7)}
TALL: dict[str, tuple[int, ...]] = {"first": (7, 5), "second": (6, 4)}

# The arguments that a class needs beside its parameters.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    # Its form for lists decides by torch.where where that for single tensors does in Python.
    "stablespam": {"foreach": True},
    "fadam": {"momentum_dtype": torch.float64, "fim_dtype": torch.float64},
    # Its states of 8 bits are in groups of 32 elements of the flattened parameter.
    "flashadamw": {"quantize": False},
    "ranger21": {"num_iterations": 100},
    # No element of a normal parameter is below its default of 1e-3: none would move.
    "sara": {"threshold": 0.5},
}
WITH_MUON_GROUPS = ("adago", "adamuon", "muon", "muonclip", "normuon", "distributedmuon")
WITH_MODEL = ("adammini",)

NO_STEP_OF_THEIR_OWN = {
    "adahessian": "second-order information: the graph of the gradient",
    "sophiah": "second-order information: the graph of the gradient",
    "alig": "takes a closure",
    "bsam": "takes a closure",
    "lbfgs": "takes a closure",
    "lomo": "updates in hooks of the backward pass, and has no step()",
    "adalomo": "updates in hooks of the backward pass, and has no step()",
}
"""Those that are not counted."""

REFUSED = {
    "alice": "aten.sort",
    "dash": "random numbers of the shape [1, 7, 16]",
    "demo": "einops",
    "focus": "differs from the optimizer",  # the sign of a difference that is 0 but for rounding
    "kron": "numpy.random",
    "lorarite": "mat1 and mat2 shapes cannot be multiplied",  # pairs of factors
    "magma": "the param groups of another optimizer",
    "soap": "aten.flip",
    "spam": "changed by an index that is not a mask",  # a new mask, at every 500th step
    "spectralsphere": "decides more than 16 times",
    "splus": "differs from the optimizer",  # LAPACK's basis of the eigenspace of 0
    "swats": "'phase' changes",
}
"""Those that are refused, and a part of the reason that is given."""

# The sums of a step in another order, 50 times; an optimizer whose step jumps at a rounding (the
# sign of a difference that is 0) would not stay below it.
TOLERANCE = 1e-10
MEDIAN_SECONDS = 2.0


def parameters(shapes: Mapping[str, tuple[int, ...]]) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(5)
    return [torch.nn.Parameter(torch.tensor(rng.normal(size=shape))) for shape in shapes.values()]


def built(name: str, params: Sequence[torch.nn.Parameter]) -> Any:
    kind: Any = pytorch_optimizer.load_optimizer(name)
    known = inspect.signature(kind.__init__).parameters
    options = {"lr": 1e-2, "foreach": False, **ARGUMENTS.get(name, {})}
    given = {key: value for key, value in options.items() if key in known}
    if name in WITH_MUON_GROUPS:
        return kind([{"params": list(params), "use_muon": True}], **given)
    if name in WITH_MODEL:
        model = torch.nn.Module()
        for place, param in enumerate(params):
            model.register_parameter(f"weight{place}", param)
        return kind(model, **given)
    return kind(list(params), **given)


def largest_difference(
    rules: cf.UpdateRule | list[cf.UpdateRule],
    optimizer: torch.optim.Optimizer,
    params: Sequence[torch.nn.Parameter],
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
) -> float:
    """The largest relative difference between the files of the rule and the optimizer."""
    traced = rules if isinstance(rules, list) else [rules]
    rule, *others = [without_rounding(rule) for rule in traced]
    # Where a sum is beside the middle of two numbers of 16 bits, its last bits decide.
    precision = InDouble(is_exact=rule is not traced[0])
    groups = [cf.Group(name, rule=own) for name, own in zip(list(shapes)[1:], others, strict=False)]
    cf.to_onnx(rule, folder, params=dict(shapes), groups=groups, dtype="f64", validate=False)
    start = {name: p.detach().numpy().copy() for name, p in zip(shapes, params, strict=True)}
    session = cf.OptimizerSession.from_files(folder, start)
    rng = np.random.default_rng(9)
    worst = 0.0
    for _ in range(STEPS):
        gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        for name, param in zip(shapes, params, strict=True):
            param.grad = torch.tensor(gradients[name])
        with precision, Recorder() as recorder:
            optimizer.step()
        params_by_name = dict(zip(shapes, params, strict=True))
        session.step(gradients, inputs_of(rule, optimizer, recorder, params_by_name))
        for name, param in zip(shapes, params, strict=True):
            expected = param.detach().numpy()
            gap = np.max(np.abs(session.params[name] - expected)) / np.max(np.abs(expected))
            worst = max(worst, float(gap) if np.isfinite(gap) else np.inf)
    return worst


def inputs_of(
    rule: cf.UpdateRule,
    optimizer: torch.optim.Optimizer,
    recorder: Recorder,
    params: Mapping[str, torch.nn.Parameter],
) -> dict[str, dict[str, Any]]:
    """The inputs of a step: masks that the optimizer stores, and the random numbers of its step."""
    inputs: dict[str, dict[str, Any]] = {label: {} for label in rule.inputs}
    for name, param in params.items():
        values = recorder.inputs(rule.inputs, tuple(param.shape))
        for label, by_name in inputs.items():
            mask = optimizer.state[param].get(label)
            by_name[name] = values[label] if mask is None else mask.double().numpy()
    return inputs


@pytest.fixture(scope="module", autouse=True)
def _group_of_one_process(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A process group, for distributed optimizers: each process steps a part of the parameters."""
    folder = tmp_path_factory.mktemp("group")
    address = f"file://{folder / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(autouse=True)
def _double() -> Any:
    """Numbers that an optimizer makes without a dtype are float64, as its parameters."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_default_dtype(before)


def measured(name: str, optimizer: Any, params: Any, shapes: Any, folder: Path) -> tuple[Any, ...]:
    begin = time.perf_counter()
    try:
        rule = cf.from_torch(optimizer)
    except TraceError as error:
        return name, "refused", time.perf_counter() - begin, str(error)
    seconds = time.perf_counter() - begin
    return name, largest_difference(rule, optimizer, params, shapes, folder), seconds, ""


def line(row: tuple[Any, ...]) -> str:
    name, outcome, seconds, reason = row
    shown = f"{outcome:.1e}" if isinstance(outcome, float) else outcome
    return f"{name:24} {shown:10} {seconds:6.2f} s  {reason[:200]}"


def report(rows: Sequence[tuple[Any, ...]]) -> None:
    print()
    for row in rows:
        print(line(row))


TORCH = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
)


def test_every_optimizer_of_torch_is_traced(tmp_path: Path) -> None:
    rows = []
    torch.optim.SGD(parameters(SHAPES)).step()  # imports torch._dynamo, once in a process
    for name in (*TORCH, "Muon"):
        for foreach in (False, True) if name in TORCH else (None,):
            params = parameters(SHAPES)
            options = {} if foreach is None else {"foreach": foreach}
            optimizer = getattr(torch.optim, name)(params, lr=1e-2, **options)
            label = f"torch {name} {'foreach' if foreach else 'loop'}"
            rows.append(measured(label, optimizer, params, SHAPES, tmp_path / label))
    report(rows)
    assert all(isinstance(row[1], float) and row[1] <= TOLERANCE for row in rows)
    assert statistics.median(row[2] for row in rows) <= MEDIAN_SECONDS


def test_the_optimizers_of_pytorch_optimizer_are_traced(tmp_path: Path) -> None:
    names = sorted(set(pytorch_optimizer.get_supported_optimizers()) - set(NO_STEP_OF_THEIR_OWN))
    rows = []
    for name in names:
        # Rules of matrices are for the side on which the first of the two shapes is.
        shapes = TALL
        params = parameters(shapes)
        try:
            optimizer = built(name, params)
        except (TypeError, ValueError, AttributeError, RuntimeError, ImportError) as error:
            rows.append((name, "not built", 0.0, str(error)))
            print(line(rows[-1]), flush=True)
            continue
        rows.append(measured(name, optimizer, params, shapes, tmp_path / name))
        print(line(rows[-1]), flush=True)
    traced = [row for row in rows if isinstance(row[1], float) and row[1] <= TOLERANCE]
    seconds = statistics.median(row[2] for row in traced)
    print(f"{len(traced)} of {len(rows)} traced, {seconds:.2f} s median")
    differing = [row for row in rows if isinstance(row[1], float) and not row[1] <= TOLERANCE]
    assert not differing
    wrong = [
        row for row in rows if isinstance(row[1], str) and REFUSED.get(row[0], "?") not in row[3]
    ]
    assert not wrong
    assert seconds <= MEDIAN_SECONDS
