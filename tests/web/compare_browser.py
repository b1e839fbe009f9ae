"""Training and gallery in Node and in headless Chromium, beside onnxruntime here.

Needs Node, Chromium and npm packages: `make compare-web` brings them to build/web.
"""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.numpy import load, save_file

from closedform import optimizers, schedules
from closedform.language import Schedule
from closedform.runtime.schedule import ScheduleSession
from closedform.schedules.examples import EXAMPLES
from closedform.training import TrainSession, export
from closedform.web.gallery import write_gallery
from closedform.web.text import write_text_page
from closedform.web.training import write_training_page
from tests.support.external_data import store_externally
from tests.training.models import CASES, batches
from tests.training.test_sixteen_bits import exported
from tests.training.test_training import made
from tests.web.language_model import TOKENS, LanguageModel, next_token, with_adapters
from tests.web.site import (
    BUILD,
    CHROMIUM,
    HERE,
    PACKAGES,
    node,
    served,
    with_wrong_label,
)

STEPS, ROWS = 60, 16

# Another build of onnxruntime adds float32 products in another order.
TOLERANCE = 1e-4

AGAIN = r"Write the page again with `closedform gallery`\."
FAULTS = {
    "missing": rf"^graphs/cosine\.onnx could not be loaded \(HTTP 404\)\. {AGAIN} Retry$",
    "damaged": rf"^graphs/cosine\.onnx cannot be run by onnxruntime-web: .*{AGAIN} Retry$",
    "runtime": rf"^onnxruntime-web could not be loaded from ort/: .*{AGAIN} Retry$",
    "noManifest": rf"^manifest\.json could not be loaded \(HTTP 404\)\. {AGAIN}$",
    "noServer": r"^manifest\.json .* does not respond\. Start it again with `python -m",
    "noSchedule": "^The address names no schedule. Choose one under",
    "unknownSchedule": '^There is no schedule "cosin". Choose one under',
    "unknownInput": 'no hyperparameter "stop" .* there are: end, start, steps. The initial values',
    "notANumber": '^end must be a number, such as 0.1; got "abc". The initial values are shown.',
    "notAnInteger": '^steps must be an integer, such as 100; got "2.5". The initial values',
    "undefinedValues": "^With these values it is not defined at step 0. Change or reset them.",
    "steps": '^The steps must be an integer of at least 1; got "0".',
    "done": "^3 steps are done. Increase the number of steps, or start again.",
    "notSafetensors": "^The file is not a safetensors file: it has fewer than 8 bytes.",
}
"""The messages of the pages, by the fault in chromium_faults.mjs."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The pages, served on this machine."""
    root = tmp_path_factory.mktemp("sites")
    with served(root) as address:
        yield address, root


def trained_here(name: str, folder: Path) -> tuple[list[float], Path]:
    """Losses of onnxruntime in this process, and the same batches as one data file.

    The trained model is beside it, as ``trained.onnx``.
    """
    case = CASES[name]
    session, _ = made(folder, case)
    rows = list(batches(case, STEPS, rows=ROWS))
    results = session.fit(rows, progress=False)
    session.to_onnx(folder / "trained.onnx")
    names = list(TrainSession(folder)._batch)
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    data = folder / "data.safetensors"
    save_file(
        {
            key.removeprefix("batch."): np.ascontiguousarray(column)
            for key, column in zip(names, columns, strict=True)
        },
        data,
    )
    return [result.loss for result in results], data


def assert_same_model(path: Path, other: Path) -> None:
    """Asserts that two files are one graph, with weights that differ by roundings of a training."""
    models = [onnx.load(file) for file in (path, other)]
    weights = [
        {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} for model in models
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        assert array.dtype == weights[1][name].dtype
        assert np.allclose(array, weights[1][name], rtol=1e-2, atol=1e-3), name
    for model in models:
        onnx.checker.check_model(model, full_check=True)
        del model.graph.initializer[:]
    assert models[0] == models[1]


@pytest.mark.parametrize("name", CASES)
def test_node_and_chromium_train_as_here(name: str, sites: tuple[str, Path]) -> None:
    address, root = sites
    here, data = trained_here(name, root / f"{name}-files")
    train = root / f"{name}-files" / "train.onnx"
    write_training_page(train, root / name, data=data, packages=PACKAGES)
    in_node = node("node_train.mjs", str(root / name), str(PACKAGES), str(STEPS), str(ROWS))
    assert in_node == pytest.approx(here, rel=TOLERANCE)
    assert_same_model(root / name / "trained.onnx", train.with_name("trained.onnx"))
    shot = BUILD / f"train-{name}.png"
    words = (f"{address}/{name}/", str(STEPS), str(ROWS), str(shot), str(PACKAGES), str(CHROMIUM))
    in_chromium = node("chromium_train.mjs", *words)
    assert in_chromium["errors"] == []
    assert in_chromium["losses"] == pytest.approx(here, rel=TOLERANCE)
    assert in_chromium["foreign"] == []
    assert shot.stat().st_size > 10_000


def test_pages_read_external_data(sites: tuple[str, Path]) -> None:
    address, root = sites
    here, data = trained_here("mlp", root / "external-files")
    init = root / "external-files" / "init.onnx"
    store_externally(init)
    write_training_page(init.with_name("train.onnx"), root / "ext", data=data, packages=PACKAGES)
    in_node = node("node_train.mjs", str(root / "ext"), str(PACKAGES), str(STEPS), str(ROWS))
    assert in_node == pytest.approx(here, rel=TOLERANCE)
    shot = BUILD / "train-external.png"
    words = (f"{address}/ext/", str(STEPS), str(ROWS), str(shot), str(PACKAGES), str(CHROMIUM))
    in_chromium = node("chromium_train.mjs", *words)
    assert in_chromium["errors"] == []
    assert in_chromium["losses"] == pytest.approx(here, rel=TOLERANCE)


def test_a_wrong_label_stops_a_page_before_its_step(sites: tuple[str, Path]) -> None:
    address, root = sites
    here, data = trained_here("mlp", root / "label-files")
    write_training_page(data.with_name("train.onnx"), root / "label", data=data, packages=PACKAGES)
    row = 2 * ROWS + 3
    files = [str(with_wrong_label(data, row)), str(data)]
    options = json.dumps({"steps": STEPS, "rows": ROWS, "files": files})
    words = (f"{address}/label/", str(PACKAGES), str(CHROMIUM), options)
    stopped, corrected = node("chromium_indices.mjs", *words)["runs"]
    # ONNX would count it from the end, and train the last class.
    assert f"got -1 in row {row} of the data" in stopped["message"]
    assert stopped["losses"] == pytest.approx(here[:2], rel=TOLERANCE)
    assert corrected["message"] == ""
    assert corrected["losses"] == pytest.approx(here, rel=TOLERANCE)


def test_node_trains_masters_of_float16_as_here(tmp_path: Path) -> None:
    case = CASES["mlp"]
    session, _ = exported(tmp_path / "files", case, "f16", is_widened=True, initial=1024)
    # In 20 steps no gradient of these is rounded to another float16 by the other order of sums.
    rows = list(batches(case, 20, rows=ROWS))
    here = [result.loss for result in session.fit(rows, progress=False)]
    inputs, targets = (np.concatenate(column) for column in zip(*rows, strict=True))
    save_file({"input": inputs, "target": targets}, tmp_path / "data")
    train = tmp_path / "files" / "train.onnx"
    write_training_page(train, tmp_path / "site", data=tmp_path / "data", packages=PACKAGES)
    in_node = node("node_train.mjs", str(tmp_path / "site"), str(PACKAGES), "20", str(ROWS))
    assert in_node == pytest.approx(here, rel=TOLERANCE)


@pytest.fixture(scope="module")
def gallery(sites: tuple[str, Path]) -> str:
    """The address of the gallery."""
    address, root = sites
    write_gallery(root / "gallery", packages=PACKAGES)
    return f"{address}/gallery/"


@pytest.fixture(scope="module")
def training(sites: tuple[str, Path]) -> str:
    """The address of a page that trains."""
    address, root = sites
    _, data = trained_here("mlp", root / "page-files")
    train = root / "page-files" / "train.onnx"
    write_training_page(train, root / "page", data=data, packages=PACKAGES)
    return f"{address}/page/"


def test_a_slider_moves_its_curve_and_the_page_is_complete(
    gallery: str, sites: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, root = sites
    words = (gallery, "cosine", "end", "0.15", str(PACKAGES), str(CHROMIUM))
    seen = node("chromium_gallery.mjs", *words)
    assert seen["errors"] == []
    assert seen["foreign"] == []
    for name, values in seen["curves"].items():
        example = EXAMPLES[name]
        schedule: Any = example.make()
        # Inputs keep constants from being folded: a few roundings of values of size 1.
        assert values == pytest.approx(schedule(np.arange(example.steps + 1)), abs=1e-13), name
    assert len(seen["curves"]) == len(EXAMPLES) - 1  # the plateau waits for a metric
    assert seen["before"] == seen["curves"]["cosine"]
    example = EXAMPLES["cosine"]
    moved: Any = example.make()
    wanted = moved.bind(end=0.15)(np.arange(example.steps + 1))
    assert seen["after"] == pytest.approx(wanted, abs=1e-13)
    assert abs(seen["after"][-1] - seen["before"][-1]) > 0.04
    assert seen["shared"] == seen["after"]
    assert seen["link"] == f"{gallery}schedule.html?schedule=cosine&end=0.15"

    assert seen["formula"] == 1
    assert seen["downloaded"] == "cosine.onnx"
    assert "keras:CosineDecay" in seen["names"]
    bounds = {"initialProofs": ">= 1/10 and <= 1", "proofs": ">= 0 and <= Max(end, start)"}
    bounds |= {"outsideProofs": bounds["initialProofs"]}
    for key, bound in bounds.items():
        line = f"✓ proved bounded: the value is {bound} "
        assert any(text.startswith(line) for text in seen[key]["lines"]), key
        assert seen[key]["isPast"] == (key == "outsideProofs")
    assert "end from 0 to 0.2" in seen["proofs"]["scope"]
    assert "outside of the first range" in seen["outsideProofs"]["scope"]
    assert seen["longerSteps"] == 2 * example.steps  # steps of 200 in place of 100
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(root / "gallery" / "graphs" / "cosine.onnx", "cosine.onnx")
    for (python, graph), values in (
        (seen["initialCode"], seen["before"]),
        (seen["movedCode"], seen["after"]),
    ):
        names: dict[str, Any] = {}
        exec(python, names)
        exec(graph, names)
        assert names["lr"](np.arange(example.steps + 1)) == pytest.approx(values, abs=1e-13)
        assert names["values"] == pytest.approx(values, abs=1e-15)
        assert ScheduleSession("lr.onnx")(7) == pytest.approx(values[7], abs=1e-13)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"reduce_on_plateau"}))
def test_the_code_of_each_page_makes_its_schedule(name: str, sites: tuple[str, Path]) -> None:
    _, root = sites
    made = EXAMPLES[name].make()
    assert isinstance(made, Schedule)
    entries = json.loads((root / "gallery" / "manifest.json").read_text())["entries"]
    entry = next(entry for entry in entries if entry["name"] == name)
    names: dict[str, Any] = {}
    exec("\n".join([*entry["imports"], f"lr = {entry['code']}"]), names)
    assert names["lr"] == made


def test_pages_fit_three_widths_in_light_and_dark(gallery: str, training: str) -> None:
    shots = BUILD / "shots"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir()
    status = "document.getElementById('status').textContent"
    pages = (
        f"gallery|{gallery}?search=restarts|!/oading/.test({status})",
        f"schedule|{gallery}schedule.html?schedule=tri_stage|document.getElementById('value')?.textContent",
        f"long|{gallery}schedule.html?schedule=wsd_checkpoints|document.getElementById('value')?.textContent",
        f"wrong|{gallery}schedule.html?schedule=cosine&end=abc|document.getElementById('value')?.textContent",
        f"train|{training}|!document.getElementById('run').disabled",
    )
    seen = node("chromium_shots.mjs", str(shots), str(PACKAGES), str(CHROMIUM), *pages)
    assert seen == {"wide": [], "errors": []}
    assert len(list(shots.glob("*.png"))) == len(pages) * 3 * 2


def test_faults_are_shown_and_stop_nothing_else(gallery: str, training: str) -> None:
    words = (gallery, "noam", "cosine", training, str(PACKAGES), str(CHROMIUM))
    seen = node("chromium_faults.mjs", *words)
    count = len(EXAMPLES) - 1
    # While the graph of noam loads, and after it.
    found = [name for name in EXAMPLES if "cosine" in name]
    assert set(found) <= set(seen["whileLoading"]) < set(EXAMPLES)
    assert "loading" in seen["statusWhileLoading"]
    assert seen["searchAddress"] == f"{gallery}?search=cosine"
    assert seen["noMatch"].startswith("No schedule matches. Search for")
    assert seen["afterLoading"] == f"{count} schedules"
    # By keyboard: "/", Tab, Enter and an arrow.
    assert seen["focused"] == "constant"
    assert seen["address"] == f"{gallery}schedule.html?schedule=constant"
    assert seen["value"] == "t = 1: 0.1"
    assert seen["statusWithMissing"] == f"{count} schedules, 1 could not be drawn"
    assert set(EXAMPLES) - set(seen["drawnWithMissing"]) == {"cosine", "reduce_on_plateau"}
    assert seen["errorAfterRetry"] == 0
    for fault, message in FAULTS.items():
        assert re.search(message, seen[fault]), (fault, seen[fault])
    assert seen["fields"] == ["7", False]
    assert seen["trainingAddress"] == f"{training}?batch=7&steps=3&seed=5&shuffle=0"


def test_chromium_fine_tunes_adapters_as_here(sites: tuple[str, Path], tmp_path: Path) -> None:
    """LoRA on a transformer of a million parameters: losses, samples and the adapter's file."""
    address, root = sites
    torch.manual_seed(0)
    model = with_adapters(LanguageModel())
    assert sum(param.numel() for param in model.parameters()) > 1_000_000
    tokens = torch.randint(0, TOKENS, (4, 65))
    # At a peak of 1e-2 the loss rises at some step, and there rounding errors grow a thousandfold.
    peak = 3e-3
    lr = schedules.linear(0, peak, 5).then(schedules.cosine(peak, peak / 10, 35))
    rule = optimizers.adamw(lr, weight_decay=0)
    folder = tmp_path / "run"
    export(model, next_token, (tokens[:, :-1], tokens[:, 1:]), rule, folder)
    text = tmp_path / "text.txt"
    text.write_text((HERE.parents[1] / "LICENSE").read_text() + "größer ≥ 1\n")
    write_text_page(folder / "train.onnx", root / "text", text=text, packages=PACKAGES)
    shots = BUILD / "shots"
    shots.mkdir(exist_ok=True)
    steps, rows = 40, 8
    words = (f"{address}/text/", str(steps), str(rows), str(shots), str(PACKAGES), str(CHROMIUM))
    seen = node("chromium_text.mjs", *words)
    assert seen["errors"] == []
    assert seen["foreign"] == []
    assert seen["wide"] == []
    assert re.search(r"The text has 5 tokens; a window takes 65.* longer text", seen["short"])

    ids = np.frombuffer(text.read_bytes(), np.uint8).astype(np.int64)
    session = TrainSession(folder)
    assert sampled(session, "The ", 40, temperature=0) == seen["before"]
    assert sampled(session, "The ", 40, temperature=1) == seen["drawn"]
    windows = [ids[np.array(starts)[:, None] + np.arange(65)] for starts in seen["starts"]]
    assert len(windows) == steps
    assert all(len(window) == rows for window in windows)
    here = [session.step((window[:, :-1], window[:, 1:])).loss for window in windows]
    assert seen["losses"] == pytest.approx(here, rel=TOLERANCE)
    assert here[-1] < here[0] - 0.5
    assert sampled(session, "The ", 40, temperature=1) == seen["after"]
    assert seen["after"] != seen["drawn"]
    assert seen["adapterName"] == f"adapter-{steps}.safetensors"
    adapter = load(base64.b64decode(seen["adapter"]))
    ours = {name.replace(".default", ""): value for name, value in session.params.items()}
    assert adapter.keys() == ours.keys()
    for name, value in ours.items():
        # Adam's first updates are lr in size whatever the gradient's, so that a gradient of
        # rounding noise moves a weight; sums of 40 rates bound the rest.
        assert np.abs(adapter[name] - value).max() < 40 * peak * TOLERANCE * 10, name
    assert seen["shared"] == str(steps)


def sampled(session: TrainSession, prompt: str, count: int, *, temperature: float) -> str:
    """The text that a model goes on with, drawn by the numbers of the page."""
    ids = list(prompt.encode())
    for place in range(count):
        last = ids[-64:]
        logits = session.predict(np.array([last + [0] * (64 - len(last))]))[0, len(last) - 1]
        if temperature == 0:
            ids.append(int(logits.argmax()))
            continue
        weights = np.exp((logits.astype(float) - logits.max()) / temperature)
        ids.append(int(np.searchsorted(weights.cumsum(), mulberry(7, place) * weights.sum())))
    return prompt + bytes(ids[len(prompt) :]).decode("utf-8", errors="replace")


def mulberry(seed: int, step: int) -> float:
    """The first number that mulberry32 draws for a seed and a step, in 24 bits."""
    word = 2**32
    state = (seed * 0x9E3779B1 + step * 0x85EBCA6B + 0x6D2B79F5) % word
    mixed = (state ^ (state >> 15)) * (state | 1) % word
    mixed ^= (mixed + (mixed ^ (mixed >> 7)) * (mixed | 61)) % word
    return ((mixed ^ (mixed >> 14)) >> 8) / 2**24
