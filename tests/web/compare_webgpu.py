"""Training on WebGPU in headless Chromium with the software adapter, beside onnxruntime on a CPU.

`make compare-web` runs it. No real GPU takes part: results on one were not measured.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load, save_file
from torch import nn
from torch.nn import functional

from closedform import UpdateRule, optimizers, schedules, transforms
from closedform.runtime.onnx_session import open_session
from closedform.training import TrainSession, export
from closedform.training.webgpu.kernels import KERNELS, SHAPE_OPERATORS, sizes_on_host
from closedform.training.webgpu.step import WEBGPU_FILE
from closedform.training.webgpu.translation import infer
from closedform.web.text import write_text_page
from closedform.web.training import write_training_page
from tests.training.models import CASES, batches
from tests.training.webgpu_files import Arrays, export_entry, losses_of
from tests.training.zoo import ZOO
from tests.web.compare_browser import sampled
from tests.web.language_model import LanguageModel, next_token, with_adapters
from tests.web.site import CHROMIUM, HERE, PACKAGES, node, served, with_wrong_label

STEPS, ROWS, BATCHES = 100, 8, 20

# Sums in another order, carried on by 100 steps: relative, and absolute where a loss is as small as
# the rounding of its logits (10 · 2^-24).
TOLERANCE, ROUNDING = 1e-5, 1e-6

RATE = schedules.linear(0, 3e-3, 5).then(schedules.cosine(3e-3, 3e-4, 95))
ADAMW = transforms.clip_by_global_norm(optimizers.adamw(RATE, weight_decay=0.1), 1.0)
MOMENTUM = transforms.clip_by_global_norm(optimizers.sgd(0.02, momentum=0.9), 1.0)


@dataclass(frozen=True)
class Situation:
    """A model that is trained: `write` exports it to a folder; `draw` gives a batch."""

    write: Callable[[Path], object]
    draw: Callable[[], Arrays]


def _of_case(name: str) -> Situation:
    case = CASES[name]
    drawn = batches(case, STEPS, ROWS)

    def write(folder: Path) -> None:
        torch.manual_seed(0)
        example = tuple(map(torch.as_tensor, next(batches(case, 1, ROWS))))
        export(case.model(), functional.cross_entropy, example, case.rule, folder, target="webgpu")

    return Situation(write, lambda: dict(zip(("input", "target"), next(drawn), strict=True)))


def _of_text(change: Callable[[LanguageModel], nn.Module]) -> Situation:
    """A causal transformer of two layers on arithmetic progressions."""
    generator = np.random.default_rng(0)

    def draw() -> Arrays:
        line = (generator.integers(0, 48, (ROWS, 1)) + 7 * np.arange(17)) % 48
        return {"tokens": line[:, :-1], "following": line[:, 1:]}

    def write(folder: Path) -> None:
        torch.manual_seed(0)
        model = change(LanguageModel(16, width=32, layers=2, tokens=48))
        example = tuple(torch.as_tensor(array) for array in draw().values())
        export(model, next_token, example, ADAMW, folder, target="webgpu")

    return Situation(write, draw)


def _of_zoo(name: str, rule: UpdateRule = MOMENTUM) -> Situation:
    entry = ZOO[name]

    def draw() -> Arrays:
        read = entry.batch(ROWS)
        names = ("x", "target") if len(read) == 2 else tuple(map(str, range(len(read))))
        return dict(zip(names, (tensor.numpy() for tensor in read), strict=True))

    return Situation(lambda folder: export_entry(entry, rule, folder), draw)


SITUATIONS: dict[str, Callable[[], Situation]] = {
    "mlp": lambda: _of_case("mlp"),
    "cnn": lambda: _of_case("convnet"),
    "gpt": lambda: _of_text(lambda model: model),
    "lora": lambda: _of_text(with_adapters),
    **{
        name: lambda name=name: _of_zoo(name)  # type: ignore[misc]
        for name in (
            "batch norm",
            "group norm",
            "lstm",
            "encoder with dropout",
            "convolutions",
            "transposed convolution",
            "embedding bag, maximum",
            "class weights",
            "autoencoder",
            "grid sample",
            "top k",
            "binary cross entropy",
        )
    },
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The pages, served on this machine."""
    root = tmp_path_factory.mktemp("webgpu")
    with served(root) as address:
        yield address, root


@dataclass(frozen=True)
class Page:
    """A page with its files, and the run of onnxruntime on a CPU on the same batches."""

    address: str
    folder: Path
    losses: list[float]
    state: Arrays


def _page(sites: tuple[str, Path], name: str, steps: int) -> Page:
    address, root = sites
    label = re.sub(r"\W+", "-", name)
    folder = root / f"{label}-files"
    situation = SITUATIONS[name]()
    situation.write(folder)
    ports = open_session(folder / "train.onnx").inputs
    torch.manual_seed(1)
    drawn = [situation.draw() for _ in range(BATCHES)]
    inputs = [port.removeprefix("batch.") for port in ports if port.startswith("batch.")]
    columns = [np.concatenate([batch[key] for batch in drawn]) for key in drawn[0]]
    # In the order of the export, whatever the model calls them.
    data = {key: np.ascontiguousarray(column) for key, column in zip(inputs, columns, strict=True)}
    save_file(data, folder / "data.safetensors")
    write_training_page(
        folder / "train.onnx",
        root / label,
        data=folder / "data.safetensors",
        packages=PACKAGES,
        device="webgpu",
    )
    manifest = json.loads((root / label / "manifest.json").read_text())
    manifest["webgpu"]["logLevel"] = "verbose"
    (root / label / "manifest.json").write_text(json.dumps(manifest))
    random = [name for name in ports if name.startswith("random.")]
    feeds = []
    for step in range(steps):
        at = step % BATCHES * ROWS
        batch = {f"batch.{key}": value[at : at + ROWS] for key, value in data.items()}
        numbers = {
            name: _numbers(name, place + 2, step, [size or ROWS for size in ports[name].shape])
            for place, name in enumerate(random)
        }
        feeds.append(batch | numbers)
    losses, state = losses_of(folder, feeds, is_webgpu=False)
    return Page(f"{address}/{label}/", folder, losses, state)


def _numbers(name: str, seed: int, step: int, sizes: list[int]) -> NDArray[Any]:
    """The random numbers of a page: mulberry32, as trainer.js has it."""
    count = int(np.prod(sizes))
    kind = name.split(".")[1]
    drawn = _uniform(seed, step, 2 * count if kind == "normal" else count)
    if kind == "normal":
        radius = np.sqrt(-2 * np.log(1 - drawn[::2]))
        drawn = radius * np.cos(2 * np.pi * drawn[1::2])
    elif kind == "exponential":
        drawn = -np.log(1 - drawn)
    return drawn.reshape(sizes).astype(np.float32)


def _uniform(seed: int, step: int, count: int) -> NDArray[np.float64]:
    word = np.uint64(0xFFFFFFFF)
    begin = (seed * 0x9E3779B1 + step * 0x85EBCA6B) & 0xFFFFFFFF
    state = (begin + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x6D2B79F5)) & word

    def times(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (left * right) & word  # below 2^64 modulo 2^64, of which 32 bits are left

    with np.errstate(over="ignore"):
        mixed = times(state ^ (state >> np.uint64(15)), state | np.uint64(1))
        product = times(mixed ^ (mixed >> np.uint64(7)), mixed | np.uint64(61))
        mixed = mixed ^ ((mixed + product) & word)
    return ((mixed ^ (mixed >> np.uint64(14))) >> np.uint64(8)) / 2.0**24


def _train(page: Page, **options: Any) -> dict[str, Any]:
    words = (page.address, str(PACKAGES), str(CHROMIUM))
    options = {"steps": len(page.losses), "rows": ROWS, **options}
    seen: dict[str, Any] = node("chromium_webgpu.mjs", *words, json.dumps(options))
    assert seen["errors"] == []
    assert seen["foreign"] == []
    return seen


def _check_losses(seen: dict[str, Any], page: Page) -> float:
    assert [result["step"] for result in seen["results"]] == list(range(1, len(page.losses) + 1))
    losses = np.array([result["loss"] for result in seen["results"]], float)
    far = np.abs(losses - page.losses)
    assert (far <= TOLERANCE * np.abs(page.losses) + ROUNDING).all(), far
    return float(np.max(far / np.maximum(np.abs(page.losses), 0.1)))


def _check_placement(seen: dict[str, Any], page: Page) -> None:
    """Every operator of tensors is on the GPU; the CPU has sizes, and their casts."""
    graph = infer(onnx.load(page.folder / WEBGPU_FILE))
    sizes = sizes_on_host(graph)
    names = {node.name for node in graph.node}
    of_sizes = {
        node.name
        for node in graph.node
        if set(node.output) <= sizes or (node.op_type == "Cast" and node.input[0] in sizes)
    }
    placed = seen["placed"]
    assert placed["WebGpuExecutionProvider"]["count"] > 20
    for operator, name in placed.get("CPUExecutionProvider", {"nodes": []})["nodes"]:
        # The optimizer of onnxruntime writes sizes anew, under other names.
        is_new = name not in names and operator in SHAPE_OPERATORS
        assert name in of_sizes or is_new, (operator, name)


@pytest.mark.parametrize("name", SITUATIONS)
def test_losses_on_webgpu_are_those_of_the_cpu(name: str, sites: tuple[str, Path]) -> None:
    page = _page(sites, name, STEPS)
    seen = _train(page)
    assert seen["device"] == "Training runs on WebGPU (google swiftshader)."
    assert seen["messages"] == [""]
    distance = _check_losses(seen, page)
    _check_placement(seen, page)
    assert seen["residency"]["gpu"] == seen["residency"]["all"] > 0
    saved = load(base64.b64decode(seen["saved"]))
    assert saved.keys() == page.state.keys()
    for key, value in page.state.items():
        assert saved[key].dtype == value.dtype, key
    state = page.folder / "state.safetensors"
    state.write_bytes(base64.b64decode(seen["saved"]))
    session = TrainSession(page.folder)
    session.load(state)  # the portable files go on from a state of the GPU
    assert session.t == STEPS
    print(f"\n{name}: losses within {distance:.1e}, {seen['residency']['gpu']} tensors on the GPU")


@pytest.fixture(scope="module")
def perceptron(sites: tuple[str, Path]) -> Page:
    """The page of the MLP, 20 steps."""
    return _page(sites, "mlp", 20)


def test_a_failed_step_changes_nothing_and_training_goes_on(perceptron: Page) -> None:
    seen = _train(perceptron, fault=7)
    _check_losses(seen, perceptron)
    before, failure, after = seen["messages"]
    assert (before, after) == ("", "")
    assert "cannot broadcast" in failure
    assert seen["after"] == seen["device"] == "Training runs on WebGPU (google swiftshader)."
    assert seen["residency"]["gpu"] == seen["residency"]["all"]


def test_a_wrong_label_stops_a_page_before_its_step(perceptron: Page) -> None:
    data = perceptron.folder / "data.safetensors"
    row = 2 * ROWS + 3
    files = [str(with_wrong_label(data, row)), str(data)]
    steps = len(perceptron.losses)
    options = {"steps": steps, "rows": ROWS, "files": files, "isWebgpu": True}
    words = (perceptron.address, str(PACKAGES), str(CHROMIUM), json.dumps(options))
    seen = node("chromium_indices.mjs", *words)
    stopped, corrected = seen["runs"]
    assert seen["device"].startswith("Training runs on WebGPU")
    assert f"got -1 in row {row} of the data" in stopped["message"]
    assert len(stopped["losses"]) == 2
    assert corrected["message"] == ""
    np.testing.assert_allclose(corrected["losses"], perceptron.losses, rtol=TOLERANCE)


def test_a_lost_device_is_replaced_by_another_from_the_last_copy(perceptron: Page) -> None:
    seen = _train(perceptron, lost=13, copyEvery=5)
    _check_losses(seen, perceptron)
    assert seen["messages"] == ["", ""]
    assert seen["after"].endswith("Training goes on from the copy of step 10.")
    assert seen["after"].startswith("The GPU was lost (")
    assert seen["residency"]["gpu"] == seen["residency"]["all"]


def test_without_another_device_training_goes_on_in_webassembly(perceptron: Page) -> None:
    seen = _train(perceptron, lost=13, copyEvery=5, adapters=0)
    _check_losses(seen, perceptron)
    assert seen["after"].endswith("training goes on in WebAssembly, from the copy of step 10.")
    assert seen["residency"] is None


def test_without_an_adapter_the_page_trains_in_webassembly(perceptron: Page) -> None:
    seen = _train(perceptron, flags=[])
    _check_losses(seen, perceptron)
    message = "This browser has no WebGPU adapter: training runs in WebAssembly, on the CPU."
    assert seen["device"] == seen["after"] == message
    assert seen["placed"] == {}


def test_a_text_page_fine_tunes_on_webgpu(sites: tuple[str, Path]) -> None:
    """Losses, samples of the state on the GPU, and the file of the adapter."""
    address, root = sites
    torch.manual_seed(0)
    model = with_adapters(LanguageModel(64, width=32, layers=1))
    tokens = torch.randint(0, 256, (4, 65))
    example = (tokens[:, :-1], tokens[:, 1:])
    export(model, next_token, example, ADAMW, root / "text-files", target="webgpu")
    text = root / "text.txt"
    text.write_text((HERE.parents[1] / "LICENSE").read_text())
    train = root / "text-files" / "train.onnx"
    write_text_page(train, root / "text", text=text, packages=PACKAGES, device="webgpu")
    shots = root / "shots"
    shots.mkdir()
    words = (f"{address}/text/", "10", "4", str(shots), str(PACKAGES), str(CHROMIUM), "webgpu")
    seen = node("chromium_text.mjs", *words)
    assert seen["errors"] == []
    assert seen["device"] == "Training runs on WebGPU (google swiftshader)."
    ids = np.frombuffer(text.read_bytes(), np.uint8).astype(np.int64)
    session = TrainSession(train.parent)
    assert sampled(session, "The ", 40, temperature=1) == seen["drawn"]
    windows = [ids[np.array(starts)[:, None] + np.arange(65)] for starts in seen["starts"]]
    here = [session.step((window[:, :-1], window[:, 1:])).loss for window in windows]
    assert seen["losses"] == pytest.approx(here, rel=TOLERANCE)
    assert sampled(session, "The ", 40, temperature=1) == seen["after"]
    adapter = load(base64.b64decode(seen["adapter"]))
    assert adapter.keys() == {name.replace(".default", "") for name in session.params}


# --- the table of kernels ----------------------------------------------------------------------

_GENERATOR = np.random.default_rng(0)
_TYPES: dict[int, Callable[..., NDArray[Any]]] = {
    TensorProto.FLOAT: lambda *sizes: _GENERATOR.uniform(0.1, 0.9, sizes).astype(np.float32),
    TensorProto.INT32: lambda *sizes: _GENERATOR.integers(1, 4, sizes).astype(np.int32),
    TensorProto.BOOL: lambda *sizes: _GENERATOR.random(sizes) < 0.5,
}

Case = tuple[list[Any], dict[str, Any]]
Make = Callable[..., NDArray[Any]]


def _axes(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


_OPERANDS: dict[str, Callable[[Make], Case]] = {
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "And", "PRelu"),
        lambda t: ([t(3, 4), t(4)], {}),
    ),
    **dict.fromkeys(
        ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        lambda t: ([t(3, 4), t(3, 1)], {}),
    ),
    **dict.fromkeys(
        (name for name in KERNELS if name.startswith("Reduce")),
        lambda t: ([t(2, 3, 4), _axes(0, 2)], {"keepdims": 0}),
    ),
    "Acosh": lambda t: ([t(3, 4) + 1], {}),
    "MatMul": lambda t: ([t(2, 3, 4), t(2, 4, 5)], {}),
    "Gemm": lambda t: ([t(4, 3), t(4, 2), t(2)], {"transA": 1}),
    "Einsum": lambda t: ([t(3, 4), t(4, 2)], {"equation": "ij,jk->ik"}),
    "Conv": lambda t: ([t(2, 4, 5, 5), t(6, 2, 3, 3), t(6)], {"group": 2, "pads": [1] * 4}),
    "ConvTranspose": lambda t: ([t(2, 3, 4, 4), t(3, 2, 3, 3)], {"strides": [2, 2]}),
    "MaxPool": lambda t: ([t(2, 3, 4, 4)], {"kernel_shape": [2, 2]}),
    "AveragePool": lambda t: ([t(2, 3, 4, 4)], {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": lambda t: ([t(2, 3, 4, 4)], {}),
    "GlobalMaxPool": lambda t: ([t(2, 3, 4, 4)], {}),
    "DepthToSpace": lambda t: ([t(1, 4, 2, 2)], {"blocksize": 2}),
    "LayerNormalization": lambda t: ([t(3, 4), t(4), t(4)], {"outputs": 3}),
    "InstanceNormalization": lambda t: ([t(2, 3, 4), t(3), t(3)], {}),
    "BatchNormalization": lambda t: ([t(2, 3, 4), t(3), t(3), t(3), t(3)], {}),
    "Where": lambda t: ([_TYPES[TensorProto.BOOL](3, 4), t(3, 4), t(4)], {}),
    "Clip": lambda t: ([t(3, 4), t(), t() + t()], {}),
    "CumSum": lambda t: ([t(3, 4), _axes(1)[0]], {}),
    "Reshape": lambda t: ([t(2, 6), _axes(3, 4)], {}),
    "Squeeze": lambda t: ([t(2, 1, 3), _axes(1)], {}),
    "Unsqueeze": lambda t: ([t(2, 3), _axes(1)], {}),
    "Expand": lambda t: ([t(1, 4), _axes(3, 4)], {}),
    "Tile": lambda t: ([t(2, 3), _axes(1, 2)], {}),
    "Trilu": lambda t: ([t(3, 3)], {}),
    "Transpose": lambda t: ([t(2, 3, 4)], {"perm": [2, 0, 1]}),
    "Pad": lambda t: ([t(2, 3), _axes(0, 1, 0, -1)], {}),
    "Slice": lambda t: ([t(2, 3), _axes(-1), _axes(-9), _axes(1), _axes(-1)], {}),
    "Resize": lambda t: ([t(1, 1, 3, 3), None, _axes(1, 1, 2, 2).astype("f")], {"mode": "linear"}),
    "Range": lambda t: ([np.zeros((), t().dtype), t() * 0 + 5, np.ones((), t().dtype)], {}),
    "Concat": lambda t: ([t(2, 3) for _ in range(7)], {"axis": 1}),
    "Split": lambda t: ([t(14, 2), _axes(*[2] * 7)], {"outputs": 7}),
    "Gather": lambda t: ([t(4, 2), _TYPES[TensorProto.INT32](5)], {}),
    "GatherElements": lambda t: ([t(4, 2), _TYPES[TensorProto.INT32](3, 2)], {}),
    "GatherND": lambda t: ([t(3, 2), _axes(0, 1, 2, 1).reshape(2, 2)], {}),
    "ScatterElements": lambda t: (
        [t(4, 2), _TYPES[TensorProto.INT32](3, 2), t(3, 2)],
        {"reduction": "add"},
    ),
    "ScatterND": lambda t: ([t(4, 2), _axes(1, 1, 3).reshape(3, 1), t(3, 2)], {"reduction": "add"}),
    "TopK": lambda t: ([t(2, 5), _axes(3)], {"outputs": 2}),
}


def _one_matrix(make: Make) -> Case:
    return [make(3, 4)], {}


def _kernel_cases() -> Iterator[tuple[str, onnx.ModelProto, Arrays]]:
    """A model of one node for each operator of the table and each type that it has there."""
    for operator, kernel in KERNELS.items():
        for element in sorted(kernel.types):
            targets = sorted(KERNELS["Cast"].types) if operator == "Cast" else [None]
            for target in targets:
                make = _OPERANDS.get(operator, _one_matrix)
                operands, attributes = make(_TYPES[element])
                if target is not None:
                    attributes = {"to": target}
                kind = TensorProto.DataType.Name(element).lower()
                yield f"{operator}.{kind}.{target or ''}", *_model(operator, operands, attributes)


def _model(
    operator: str, operands: list[Any], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, Arrays]:
    attributes = dict(attributes)
    outputs = [f"y{place}" for place in range(attributes.pop("outputs", 1))]
    host = KERNELS[operator].host
    constants: Arrays = {}
    feeds: Arrays = {}
    names = []
    for place, operand in enumerate(operands):
        if operand is None:
            names.append("")
            continue
        array, name = np.asarray(operand), f"x{place}"
        names.append(name)
        # The scalars of a Clip or Range are read on the CPU.
        is_constant = place in host or array.dtype == np.int64 or array.ndim == 0
        (constants if is_constant else feeds)[name] = array
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, name="node", **attributes)],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), feeds


def test_the_provider_has_each_kernel_of_the_table(sites: tuple[str, Path]) -> None:
    address, root = sites
    folder = root / "kernels"
    folder.mkdir()
    (folder / "index.html").write_bytes((HERE / "kernels.html").read_bytes())
    (folder / "ort").symlink_to(PACKAGES / "onnxruntime-web" / "dist")
    cases, wanted = [], []
    for label, model, feeds in _kernel_cases():
        session = ort.InferenceSession(model.SerializeToString())
        wanted.append((label, session.run(None, feeds)))
        onnx.save(model, folder / f"{label}.onnx")
        inputs = {
            name: {
                "dtype": array.dtype.name,
                "dims": array.shape,
                "values": array.ravel().tolist(),
            }
            for name, array in feeds.items()
        }
        cases.append({"file": f"{label}.onnx", "inputs": inputs})
    (folder / "cases.json").write_text(json.dumps(cases))
    words = (f"{address}/kernels/", str(PACKAGES), str(CHROMIUM))
    outcomes = node("chromium_kernels.mjs", *words)
    faults = {}
    for (label, arrays), outcome in zip(wanted, outcomes, strict=True):
        operator = label.split(".")[0]
        if "error" in outcome:
            faults[label] = outcome["error"]
            continue
        placed = outcome["placed"]
        if set(placed) != {"WebGpuExecutionProvider"} and operator != "Shape":
            faults[label] = f"placed on {sorted(placed)}"
        for values, array in zip(outcome["results"], arrays, strict=True):
            got = np.array([float(value) for value in values]).reshape(array.shape)
            # Sums of up to 45 products, on the GPU in another order.
            if not np.allclose(got, array.astype(float), rtol=1e-5, atol=1e-6):
                faults[label] = f"{got} is not {array}"
    assert faults == {}
    print(f"\n{len(cases)} kernels")
