"""Steps of optimizers on one CUDA GPU, next to torch's own optimizers: ``make gpu``.

python -m benchmarks.gpu             every section; minutes
python -m benchmarks.gpu muon        some sections; the stored rows of others stay
python -m benchmarks.gpu --device cpu  every section with small shapes, to try the script

Writes ``tools/results/gpu.json`` after each row; ``tools/build_gpu.py`` writes the page. torch 2.11
or newer; a section that fails is stored with its error, and the others run. The section "captured"
stores, for example, ("AdamW: 1,000 replays, largest difference to eager steps", 0.0, bar 0).
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import closedform as cf
from benchmarks._side_by_side import Row, Task, compared, machine, medians, readable, show
from closedform.language import UpdateRule
from closedform.torch import Optimizer, optim
from tests.torch.training import largest_difference
from tools.sections import RESULTS_FOLDER, ROOT, add_figures

RESULTS = RESULTS_FOLDER / "gpu.json"
LOGS = ROOT / "build" / "gpu"
PACKAGES = ("closedform", "torch", "onnxruntime", "numpy")
REPLAYS = 1_000

RATE = cf.schedules.linear(0, 1e-2, 100).then(cf.schedules.cosine(1e-2, 1e-4, 900))
DECAY = cf.schedules.linear(0.1, 0.01, 500)
CAPTURED: Mapping[str, Callable[[], UpdateRule]] = {
    "AdamW": lambda: cf.optimizers.adamw(RATE, weight_decay=DECAY),
    "Lion": lambda: cf.optimizers.lion(RATE, weight_decay=DECAY),
    "SGD": lambda: cf.optimizers.sgd(RATE, momentum=0.9, weight_decay=DECAY),
    "Muon": lambda: cf.optimizers.muon(RATE, weight_decay=DECAY),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The device of the measurements.

    Attributes:
        device: ``"cuda"``, or ``"cpu"`` for small shapes.
    """

    device: str

    @property
    def is_small(self) -> bool:
        """Whether shapes are small and rounds few."""
        return self.device == "cpu"

    def size(self, large: int, small: int) -> int:
        """Returns a size of a shape, or a count of shapes."""
        return small if self.is_small else large

    def synchronize(self) -> None:
        """Waits for the device."""
        if not self.is_small:
            torch.cuda.synchronize()

    def parameters(
        self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype = torch.float32
    ) -> list[nn.Parameter]:
        """Returns parameters with gradients."""
        torch.manual_seed(0)
        parameters = [
            nn.Parameter(torch.randn(shape, device=self.device, dtype=dtype)) for shape in shapes
        ]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return parameters

    def device_times(self, *tasks: Task, calls: int = 10) -> list[float]:
        """Returns the median time of each task in seconds: windows of calls, then a wait."""

        def window(task: Task) -> None:
            for _ in range(calls):
                task()
            self.synchronize()

        windows = [functools.partial(window, task) for task in tasks]
        return [taken / calls for taken in medians(*windows, rounds=self.size(15, 3), warm=3)]

    def host_times(self, *tasks: Task, calls: int = 10) -> list[float]:
        """Returns the median time of each call in seconds, without the wait for the device."""
        rounds = self.size(30, 3)
        taken: list[list[float]] = [[] for _ in tasks]
        for round_number in range(rounds + 3):
            for index, task in enumerate(tasks):
                self.synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    task()
                if round_number >= 3:
                    taken[index].append((time.perf_counter() - start) / calls)
        return [sorted(times)[rounds // 2] for times in taken]


# --- equal values ------------------------------------------------------------------------------


def table_rows(setting: Setting) -> Iterator[Row]:
    """The table of inputs of torch's own tests: eager, and compiled for three classes."""
    chosen = "eager or rejected or offered or (compile and (AdamW or SGD or RMSprop))"
    if setting.is_small:
        chosen = "(eager or rejected) and (SGD or AdamW)"
    words = ["tests/torch/compare_torch_suites.py", "--device", setting.device, "-k", chosen]
    yield tests_row(setting, "torch's table of optimizers: tests that fail", "table", *words)


def drop_in_rows(setting: Setting) -> Iterator[Row]:
    """The test of a captured step of the drop-in for torch's AdamW."""
    test = "tests/torch/test_optimizer.py::test_a_step_is_captured_in_a_cuda_graph"
    yield tests_row(setting, "a drop-in in a CUDA graph: tests that fail", "drop-in", test)


def jax_rows(setting: Setting) -> Iterator[Row]:
    """Every schedule and rule in JAX on the device."""
    words = ["tests/exporters/test_jax.py"]
    yield tests_row(setting, "to_jax, every schedule and rule: tests that fail", "jax", *words)


def tests_row(setting: Setting, task: str, log: str, *words: str) -> Row:
    """Returns the row of a run of pytest; its output is in build/gpu."""
    workers = [
        "-n",
        str(setting.size(12, 1)),
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        "-rfE",
        "--tb=short",
    ]
    command = [sys.executable, "-m", "pytest", *workers, *words]
    LOGS.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    (LOGS / f"{log}.log").write_text(run.stdout, encoding="utf-8")
    last = (run.stdout.strip().splitlines() or [""])[-1].strip("= ")
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if not counts and "skipped" not in last:
        raise RuntimeError(f"pytest ended with status {run.returncode}: {last}")
    return Row(task, failed, 0, last, noise=0)


def captured_rows(setting: Setting) -> Iterator[Row]:
    """Training steps with schedules of rate and decay in one CUDA graph, next to eager steps."""
    for name, make in CAPTURED.items():
        make_optimizer = functools.partial(Optimizer, rule=make())
        eager = _train(setting, make_optimizer, is_captured=False)
        replayed = _train(setting, make_optimizer, is_captured=True)
        task = f"{name}: {REPLAYS:,} replays, largest difference to eager steps"
        yield Row(task, largest_difference(eager, replayed), 0, noise=0)
    as_tensor = functools.partial(torch.tensor, device=setting.device)
    for word, as_rate in (("a number", float), ("a tensor", as_tensor)):
        states = [
            _train(
                setting,
                # A tensor is filled by the scheduler: each run has its own.
                functools.partial(
                    torch.optim.AdamW, lr=as_rate(1e-2), capturable=not setting.is_small
                ),
                is_captured=is_captured,
                schedule=lambda t: 0.99**t,
            )
            for is_captured in (False, True)
        ]
        task = f"torch's AdamW under LambdaLR, the rate {word}: largest difference to eager steps"
        yield Row(task, largest_difference(*states), None, "no bar: torch's own")


def _train(
    setting: Setting,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    is_captured: bool,
    schedule: Callable[[int], float] | None = None,
) -> list[Tensor]:
    """Steps of a loss of squares; in a CUDA graph from the second step on, if it is captured.

    On a CPU, ``torch.compile`` takes the place of the graph.
    """
    params = setting.parameters([(64, 32), (32, 48)])
    targets = [torch.ones_like(param) for param in params]
    optimizer = make(params)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if schedule else None

    @torch.no_grad()
    def train() -> None:
        for param, target in zip(params, targets, strict=True):
            assert param.grad is not None
            param.grad.copy_(param - target)
        optimizer.step()

    count = setting.size(REPLAYS, 20)
    step: Task = train
    train()
    if scheduler:
        scheduler.step()
    if is_captured and setting.is_small and scheduler is None:
        step = torch.compile(train, backend="aot_eager")
    elif is_captured and not setting.is_small:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            train()
        step = graph.replay
    for _ in range(count):
        step()
        if scheduler:
            scheduler.step()
    setting.synchronize()
    return [param.detach().clone() for param in params]


# --- times and memory --------------------------------------------------------------------------


def large_rows(setting: Setting) -> Iterator[Row]:
    """AdamW of 32 matrices of 2,048², in float32 and bfloat16; bytes that are read and written."""
    source = torch.empty(setting.size(2**30, 2**16), device=setting.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    (seconds,) = setting.device_times(lambda: target.copy_(source))
    yield Row("copy of 1 GiB", 2 * source.numel() / seconds / 1e9, None, unit="GB/s")
    side = setting.size(2048, 64)
    shapes = [(side, side)] * setting.size(32, 4)
    # Bytes of an element: the parameter twice, the gradient, two states twice. Ours are float32.
    for dtype, ours, theirs in ((torch.float32, 28, 28), (torch.bfloat16, 22, 14)):
        yield from _adamw_rows(setting, shapes, dtype, ours, theirs)


def _adamw_rows(
    setting: Setting,
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    ours: int,
    theirs: int,
) -> Iterator[Row]:
    elements = sum(rows * columns for rows, columns in shapes)
    backends = ("eager", "compile")
    forms: dict[str, dict[str, Any]] = {
        "default": {},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
        "capturable": {"foreach": True, "capturable": not setting.is_small},
    }
    here = [
        optim.AdamW(setting.parameters(shapes, dtype), lr=1e-3, backend=backend).step
        for backend in backends
    ]
    torchs = [
        torch.optim.AdamW(setting.parameters(shapes, dtype), lr=1e-3, **form).step
        for form in forms.values()
    ]
    seconds_of_steps = setting.device_times(*here, *torchs)
    times = dict(zip([*backends, *forms], seconds_of_steps, strict=True))
    word = f"AdamW, {len(shapes)} × {shapes[0][0]:,}², {str(dtype).removeprefix('torch.')}"
    for name, seconds in times.items():
        count = ours if name in backends else theirs
        task = f"{word}: {name if name in backends else f'torch, {name}'}"
        speed = f"{readable(seconds)}, {count} bytes an element"
        yield Row(task, count * elements / seconds / 1e9, None, speed, unit="GB/s")
    per_byte = theirs / ours
    note = "" if ours == theirs else ", time per byte"
    for name, peer, bar in (("compile", "fused", 1.15), ("eager", "foreach", 1.0)):
        task = f"{word}: {name} / torch, {peer}{note}"
        yield compared(task, bar, times[name] * per_byte, times[peer], peer)


def small_rows(setting: Setting) -> Iterator[Row]:
    """Models of many small tensors: time of the host, and of the device, for a step."""
    models: dict[str, list[tuple[int, ...]]] = {
        "200 × 100": [(100,)] * 200,
        "ResNet-18": resnet_shapes(),
        "BERT": bert_shapes(setting.size(12, 1), setting.size(768, 16)),
    }
    for model, shapes in models.items():
        for kind, arguments in (("AdamW", {}), ("SGD", {"momentum": 0.9})):
            mine: Any = optim.OPTIMIZERS[kind]
            theirs: Any = getattr(torch.optim, kind)
            tasks = [
                *(
                    mine(setting.parameters(shapes), lr=1e-3, backend=backend, **arguments).step
                    for backend in ("eager", "compile")
                ),
                *(
                    theirs(setting.parameters(shapes), lr=1e-3, **form, **arguments).step
                    for form in ({"foreach": True}, {"fused": True})
                ),
            ]
            for word, times in (
                ("host", setting.host_times(*tasks)),
                ("step", setting.device_times(*tasks)),
            ):
                eager, compiled, foreach, fused = times
                task = f"{kind}, {model}, {word}"
                yield compared(f"{task}: eager / torch, foreach", 1.0, eager, foreach, "foreach")
                yield compared(f"{task}: compile / torch, fused", None, compiled, fused, "fused")


def resnet_shapes() -> list[tuple[int, ...]]:
    """The shapes of the parameters of ResNet-18: He et al. 2015, table 1."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    entering = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(width, entering, 3, 3), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            if block == 0 and width != entering:
                shapes += [(width, entering, 1, 1), (width,), (width,)]
            entering = width
    return [*shapes, (1000, 512), (1000,)]


def bert_shapes(layers: int, width: int) -> list[tuple[int, ...]]:
    """The shapes of the layers of BERT, without embeddings: Devlin et al. 2018, section 3."""
    square, bias = [(width, width), (width,)], (width,)
    wide = [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [*(4 * square), bias, bias, *wide, bias, bias] * layers


def muon_rows(setting: Setting) -> Iterator[Row]:
    """Muon on the matrices of a layer of Qwen3-30B-A3B with eight experts, next to torch's."""
    side = setting.size(2048, 64)
    shapes = [(side, side)] * 2 + [(side // 4, side)] * 2 + [(side, side)] * setting.size(24, 3)
    backends = ("eager", "compile")
    tasks = [
        optim.Muon(setting.parameters(shapes), lr=1e-3, backend=backend).step
        for backend in backends
    ]
    tasks.append(torch.optim.Muon(setting.parameters(shapes), lr=1e-3).step)
    *ours, theirs = setting.device_times(*tasks, calls=3)
    # Each of five iterations: a product m·m over n, and two of m·m over m and n; m ≤ n.
    flops = sum(5 * (4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3) for s in shapes)
    for backend, taken in zip(backends, ours, strict=True):
        task = f"Muon, {len(shapes)} matrices of Qwen3: {backend} / torch"
        row = compared(task, 1.1, taken, theirs, "torch")
        detail = f"{row.detail}; {flops / taken / 1e12:.3g} and {flops / theirs / 1e12:.3g} TFLOP/s"
        yield Row(row.task, row.figure, row.bar, detail)


def memory_rows(setting: Setting) -> Iterator[Row]:
    """Peak memory of a step in copies of the parameters: parameters, gradients, states and more."""
    if setting.is_small:
        return
    shapes = [(2048, 2048)] * 32
    makers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "eager": functools.partial(optim.AdamW, lr=1e-3),
        "compile": functools.partial(optim.AdamW, lr=1e-3, backend="compile"),
        "torch, foreach": functools.partial(torch.optim.AdamW, lr=1e-3, foreach=True),
        "torch, fused": functools.partial(torch.optim.AdamW, lr=1e-3, fused=True),
    }
    peaks = {}
    for name, make in makers.items():
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        params = setting.parameters(shapes)
        optimizer = make(params)
        optimizer.step()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        setting.synchronize()
        size = sum(param.numel() * param.element_size() for param in params)
        peaks[name] = (torch.cuda.max_memory_allocated() - before) / size
        del optimizer, params
    for name, bar in (("eager", peaks["torch, foreach"]), ("compile", 4 + 1 / 32)):
        # torch counts 512 bytes at least for a tensor.
        task = f"peak memory of a step of AdamW, 32 × 2,048²: {name}"
        detail = ", ".join(f"{other} {value:.4g}" for other, value in peaks.items())
        yield Row(task, peaks[name], bar * 1.001, detail, unit="copies", noise=0)


def sharded_rows(setting: Setting) -> Iterator[Row]:
    """Parameters of ``fully_shard`` on a mesh of one device, next to plain parameters."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    width, depth = setting.size(512, 16), setting.size(24, 3)

    def model(*, is_sharded: bool) -> list[nn.Parameter]:
        layers = [nn.Linear(width, width, device=setting.device) for _ in range(depth)]
        if is_sharded:
            for layer in layers:
                fully_shard(layer, mesh=mesh)
        for layer in layers:
            layer(torch.ones(4, width, device=setting.device)).sum().backward()
        return [param for layer in layers for param in layer.parameters()]

    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group(
            "gloo" if setting.is_small else "nccl",
            init_method=f"file://{folder}/rendezvous",
            rank=0,
            world_size=1,
        )
        try:
            mesh = init_device_mesh(setting.device, (1,))
            tasks = [
                make(model(is_sharded=is_sharded), lr=1e-3).step
                for make in (optim.AdamW, torch.optim.AdamW)
                for is_sharded in (True, False)
            ]
            for word, times in (
                ("host", setting.host_times(*tasks)),
                ("step", setting.device_times(*tasks)),
            ):
                ours, plain, theirs, torchs_plain = times
                task = f"AdamW, {2 * depth} tensors of fully_shard, {word}"
                yield compared(f"{task}: sharded / plain", 1.2, ours, plain, "plain")
                yield compared(
                    f"{task}: torch, sharded / plain", None, theirs, torchs_plain, "plain"
                )
        finally:
            distributed.destroy_process_group()


SECTIONS: Mapping[str, Callable[[Setting], Iterator[Row]]] = {
    "captured": captured_rows,
    "drop-in": drop_in_rows,
    "large": large_rows,
    "muon": muon_rows,
    "memory": memory_rows,
    "sharded": sharded_rows,
    "table": table_rows,
    "jax": jax_rows,
    "small": small_rows,
}
"""The sections in the order in which they run."""


def measure(setting: Setting, names: Sequence[str], results: Path) -> bool:
    """Measures sections and stores each; returns whether all bars are met."""
    results.parent.mkdir(parents=True, exist_ok=True)
    is_met = True
    for name in names:
        print(f"== {name}", flush=True)
        section: dict[str, Any] = {"machine": _machine(setting), "error": "", "rows": []}
        try:
            for row in SECTIONS[name](setting):
                show([row])
                section["rows"].append(asdict(row))
                is_met = is_met and row.is_met
                add_figures(results, {name: section})
        except Exception as failure:  # the other sections still run
            traceback.print_exc()
            section["error"] = f"{type(failure).__name__}: {failure}".strip()[:500]
            is_met = False
        add_figures(results, {name: section})
    return is_met


def _machine(setting: Setting) -> str:
    words = machine(PACKAGES)
    return words if setting.is_small else f"{torch.cuda.get_device_name()}; {words}"


def main(words: Sequence[str] | None = None) -> int:
    """Measures and writes the results; returns 1 if a bar is missed or a section fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections {sorted(unknown)}; choose from {', '.join(SECTIONS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA GPU; --device cpu tries the script with small shapes")
    if options.device == "cpu":
        torch.set_num_threads(1)  # small shapes: a second thread would only be waited for
    is_met = measure(Setting(options.device), options.sections or list(SECTIONS), options.results)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
