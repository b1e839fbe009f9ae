"""Folders of static pages: their contents, replacement and errors."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import cross_entropy

from closedform import optimizers, schedules, transforms
from closedform.api.onnx import to_onnx
from closedform.cli.application import parser_of
from closedform.cli.parser import Parser, UsageError
from closedform.errors import ExportError, UnknownNameError
from closedform.runtime.onnx_session import open_session
from closedform.schedules.examples import EXAMPLES
from closedform.training import export
from closedform.web.folder import find_package, write_folder
from closedform.web.gallery import write_gallery
from closedform.web.text import write_text_page
from closedform.web.training import write_training_page
from tests.support.commands import CliRunner
from tests.support.external_data import store_externally
from tests.training.models import CASES, batches
from tests.training.test_training import made

WASM_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
WEBGPU_FILES = (
    "ort.webgpu.min.mjs",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of the names that pages need; compare_browser.py uses the real ones."""
    folder = tmp_path_factory.mktemp("npm")
    dist = folder / "onnxruntime-web" / "dist"
    fonts = folder / "katex" / "dist" / "fonts"
    dist.mkdir(parents=True)
    fonts.mkdir(parents=True)
    for package in folder.iterdir():
        (package / "package.json").write_text("{}")
    for name in (*WASM_FILES, *WEBGPU_FILES):
        (dist / name).write_text(name)
    for name in ("katex.min.js", "katex.min.css"):
        (fonts.parent / name).write_text(name)
    (fonts / "A.woff2").write_text("A")
    (fonts / "A.ttf").write_text("A")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    made(folder, CASES["mlp"])
    return folder / "train.onnx"


def test_the_training_page_is_self_contained(trained: Path, packages: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows"
    save_file({"input": np.zeros((5, 64), np.float32), "target": np.zeros(5, np.int64)}, data)
    page = write_training_page(trained, tmp_path / "site", data=data, packages=packages)
    found = {
        str(path.relative_to(page.parent)) for path in page.parent.rglob("*") if path.is_file()
    }
    assert found == {
        "index.html",
        "train.js",
        "loop.js",
        "fields.js",
        "page.js",
        "served.js",
        "trainer.js",
        "chart.js",
        "style.css",
        "manifest.json",
        "train.onnx",
        "init.onnx",
        "model.onnx",
        "data.safetensors",
        "ort/ort.wasm.min.mjs",
        "ort/ort-wasm-simd-threaded.mjs",
        "ort/ort-wasm-simd-threaded.wasm",
    }
    manifest = json.loads((page.parent / "manifest.json").read_text())
    assert manifest["title"] == "Sequential"
    assert manifest["data"] == "data.safetensors"
    inputs = {entry["name"]: entry for entry in manifest["inputs"]}
    step = {"name": "step", "dtype": "int64", "dims": [], "symbols": []}
    assert inputs["step"] == step
    rows = inputs["batch.input"]
    assert (rows["dtype"], rows["dims"]) == ("float32", [None, 64])
    (labels,) = manifest["indices"]
    assert (labels["input"], labels["low"], labels["free"]) == ("target", 0, [-100])
    text = page.read_text() + "".join(
        (page.parent / name).read_text() for name in found if name.endswith(".js")
    )
    assert "http://www.w3.org/2000/svg" in text
    assert not [part for part in text.split('"') if part.startswith(("https:", "//"))]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a model of the letters a to e."""
    folder = tmp_path_factory.mktemp("letters")
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5))

    def loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits.flatten(0, 1), following.flatten())

    example = torch.zeros(2, 6, dtype=torch.long), torch.zeros(2, 6, dtype=torch.long)
    axes = {"input": {0: "rows", 1: "context"}, "following": {0: "rows", 1: "context"}}
    export(model, loss, example, optimizers.sgd(0.1), folder, dynamic_axes=axes)
    return folder / "train.onnx"


def test_the_page_of_a_text_is_self_contained(
    language_model: Path, packages: Path, tmp_path: Path
) -> None:
    text, letters, site = (tmp_path / name for name in ("text.txt", "letters.txt", "site"))
    text.write_text("abacabadabacabae")
    letters.write_text("abcde")
    words = ["web", str(language_model), "-o", str(site), "--packages", str(packages)]
    result = CliRunner().invoke([*words, "--text", str(text), "--alphabet", str(letters)])
    assert result.exit_code == 0, result.output
    manifest = json.loads((site / "manifest.json").read_text())
    wanted = {"context": None, "initialContext": 64, "classAxis": 2, "alphabet": "abcde"}
    assert wanted.items() <= manifest.items()
    assert manifest["trained"] == ["param.0.weight", "param.1.weight", "param.1.bias"]
    used = {"eval.onnx", "init.onnx", "train.onnx", "text.txt", "fields.js", "loop.js", "text.js"}
    assert used <= {path.name for path in site.iterdir()}
    assert not (site / "train.js").exists()
    for extra, message in (
        (["--alphabet", str(letters)], "--alphabet goes with --text"),
        (["--text", str(text), "--data", str(text)], "--data and --text are for different pages"),
    ):
        result = CliRunner().invoke([*words, *extra])
        assert result.exit_code == 2
        assert message in result.output


def test_text_pages_refuse_what_is_not_a_language_model(
    language_model: Path, trained: Path, packages: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    for train, alphabet, message in (
        (language_model, None, r"logits of 256 tokens, .* got \[None, None, 5\].*alphabet"),
        (language_model, "abcda", "the alphabet must have different characters, got 'a' twice"),
        (trained, None, r"int64 tokens \[rows, context\].* got batch.input float32\[None, 64\]"),
    ):
        with pytest.raises(ExportError, match=message):
            write_text_page(train, site, alphabet=alphabet, packages=packages)
    wrong = tmp_path / "latin.txt"
    wrong.write_bytes(b"gr\xf6\xdfer")
    with pytest.raises(ExportError, match=r"the text is not UTF-8: .*latin\.txt"):
        write_text_page(language_model, site, text=wrong, alphabet="abcde", packages=packages)
    assert not site.exists()


def test_a_page_replaces_a_page_and_nothing_else(
    trained: Path, packages: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    write_training_page(trained, site, packages=packages)
    (site / "old.txt").write_text("old")
    write_training_page(trained, site, packages=packages)
    assert not (site / "old.txt").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("x")
    with pytest.raises(ExportError, match=r"the folder contains other files .*mine"):
        write_training_page(trained, mine, packages=packages)
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]


def test_a_failure_leaves_the_previous_page(tmp_path: Path) -> None:
    site = tmp_path / "site"

    write_folder(site, _page("first"))

    def fails(made: Path) -> None:
        (made / "manifest.json").write_text("second")
        raise ExportError("no second")

    with pytest.raises(ExportError, match="no second"):
        write_folder(site, fails)
    assert (site / "manifest.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize(
    ("call", "count"),
    [("Path.chmod", 0), ("Path.rename", 0), ("Path.rename", 1)],
    ids=["before", "old aside", "new in place"],
)
def test_a_failure_at_any_point_leaves_the_previous_page(
    call: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    write_folder(site, _page("first"))
    name = call.partition(".")[2]
    works: Any = getattr(Path, name)
    calls: list[Path] = []

    def fails_once(path: Path, *arguments: object) -> object:
        calls.append(path)
        if len(calls) == count + 1:
            raise OSError("no space left")
        return works(path, *arguments)

    monkeypatch.setattr(Path, name, fails_once)
    with pytest.raises(ExportError, match=r"cannot write the page: no space left .*site"):
        write_folder(site, _page("second"))
    assert (site / "manifest.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    write_folder(site, _page("third"))
    assert (site / "manifest.json").read_text() == "third"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_an_interruption_between_the_renames_leaves_the_previous_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    write_folder(site, _page("first"))
    works = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if target == site and not path.name.endswith(".old"):
            raise KeyboardInterrupt
        return works(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(site, _page("second"))
    assert (site / "manifest.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_previous_page_that_cannot_be_removed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    write_folder(site, _page("first"))
    works: Any = shutil.rmtree

    def refuses(path: Path, **options: Any) -> None:
        if path.name.endswith(".old"):
            raise OSError("busy")
        works(path, **options)

    monkeypatch.setattr(shutil, "rmtree", refuses)
    message = r"the page is written, but the previous one cannot be removed: busy .*\.site\..*old"
    with pytest.raises(ExportError, match=message):
        write_folder(site, _page("second"))
    assert (site / "manifest.json").read_text() == "second"


def test_a_link_to_a_page_remains_a_link(tmp_path: Path) -> None:
    write_folder(tmp_path / "site", _page("first"))
    link = tmp_path / "link"
    link.symlink_to("site")
    write_folder(link, _page("second"))
    assert link.is_symlink()
    assert (tmp_path / "site" / "manifest.json").read_text() == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "site"]


def _page(text: str) -> Callable[[Path], None]:
    def fill(made: Path) -> None:
        (made / "manifest.json").write_text(text)

    return fill


def test_missing_files_are_reported(trained: Path, packages: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'left-pad' is not installed .*npm install"):
        find_package("left-pad", packages)
    to_onnx(schedules.constant(1), tmp_path / "lr.onnx")
    with pytest.raises(ExportError, match=r"the model is not a training step.*lr\.onnx"):
        write_training_page(tmp_path / "lr.onnx", tmp_path / "site", packages=packages)
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(trained.read_bytes())
    with pytest.raises(ExportError, match=r"the file does not exist .*init\.onnx"):
        write_training_page(alone, tmp_path / "site", packages=packages)
    with pytest.raises(ExportError, match=r"the file does not exist .*no-data"):
        write_training_page(
            trained, tmp_path / "site", data=tmp_path / "no-data", packages=packages
        )
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input": None, "x": "input"},
            r"no tensor 'input' float32\[n,64\].*it has .*'x'",
        ),
        ({"target": np.zeros(5, np.int32)}, r"'target' must be int64\[n\], got dtype int32"),
        ({"input": np.zeros((5, 63), np.float32)}, r"must be float32\[n,64\], got shape \[5, 63\]"),
        ({"target": np.zeros(4, np.int64)}, r"one number of rows, and some; got \[4, 5\]"),
        (None, "cannot read the state"),
    ],
    ids=["name", "dtype", "shape", "rows", "text"],
)
def test_data_of_another_model_is_refused_before_a_page_is_written(
    changes: dict[str, Any] | None, message: str, trained: Path, packages: Path, tmp_path: Path
) -> None:
    data: dict[str, Any] = {"input": np.zeros((5, 64), np.float32)}
    data["target"] = np.zeros(5, np.int64)
    path, site = tmp_path / "data", tmp_path / "site"
    path.write_text("no tensors")
    if changes is not None:
        # A name stands for the tensor of that name.
        data |= {name: data[value] for name, value in changes.items() if isinstance(value, str)}
        data |= {name: value for name, value in changes.items() if not isinstance(value, str)}
        save_file({name: value for name, value in data.items() if value is not None}, path)
    words = ["web", str(trained), "-o", str(site), "--packages", str(packages)]
    result = CliRunner().invoke([*words, "--data", str(path)])
    assert result.exit_code == (4 if changes is None else 2)  # 4: a file that cannot be read
    assert re.search(message, " ".join(result.stderr.split()))
    assert not site.exists()


def test_external_data_is_part_of_the_page(
    trained: Path, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    shutil.copytree(trained.parent, folder)
    data = store_externally(folder / "init.onnx")
    page = write_training_page(folder / "train.onnx", tmp_path / "site", packages=packages)
    assert page.with_name(data.name).read_bytes() == data.read_bytes()
    manifest = json.loads(page.with_name("manifest.json").read_text())
    assert manifest["external"] == {"init.onnx": ["init.onnx.data"]}
    monkeypatch.setattr("closedform.web.training._MOST_BYTES", 100)
    with pytest.raises(ExportError, match=r"has \d+ bytes; a page trains at most 100 .*init\.onnx"):
        write_training_page(folder / "train.onnx", tmp_path / "site", packages=packages)
    data.unlink()
    with pytest.raises(ExportError, match=r"does not exist .*init\.onnx\.data"):
        write_training_page(folder / "train.onnx", tmp_path / "site", packages=packages)


def test_unsupported_dtypes_are_refused(packages: Path, tmp_path: Path) -> None:
    case = CASES["mlp"]
    model = torch.nn.Linear(64, 10).bfloat16()
    example = tuple(map(torch.from_numpy, next(batches(case, 1, rows=4))))
    rule = transforms.master_weights(case.rule)
    export(model, cross_entropy, example, rule, tmp_path / "bf16", compute_dtype="f32")
    with pytest.raises(ExportError, match=r"'param.*' is bfloat16, which .*-web does not support"):
        write_training_page(tmp_path / "bf16" / "train.onnx", tmp_path / "site", packages=packages)
    rule = transforms.master_weights(case.rule, "f16")
    halves = example[0].half(), example[1]
    export(model.half(), cross_entropy, halves, rule, tmp_path / "f16")
    with pytest.raises(ExportError, match=r"the loss is float16, .* with output.float\(\)"):
        write_training_page(tmp_path / "f16" / "train.onnx", tmp_path / "site", packages=packages)


@dataclass(frozen=True, slots=True)
class Gallery:
    """The folder of a page, and the entries of its manifest by name."""

    folder: Path
    entries: dict[str, Any]


@pytest.fixture(scope="module")
def gallery(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """A page of a few schedules: the verdicts of each take seconds."""
    names = ["cosine", "trapezoidal", "polynomial", "function", "chained"]
    target = tmp_path_factory.mktemp("gallery") / "site"
    folder = write_gallery(target, names=names, packages=packages).parent
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    return Gallery(folder, {entry["name"]: entry for entry in entries})


def test_the_curve_of_a_card_is_computed_by_its_graph(gallery: Gallery) -> None:
    for entry in (gallery.entries["cosine"], gallery.entries["trapezoidal"]):
        session = open_session(gallery.folder / entry["file"])
        steps = np.arange(entry["steps"] + 1)
        feeds = {"step": steps.astype(entry["clock"])}
        for given in entry["inputs"]:
            assert given["low"] <= given["value"] <= given["high"]
            feeds[given["name"]] = np.asarray(given["value"], given["dtype"])
        (values,) = session.raw.run(None, feeds)
        made = EXAMPLES[entry["name"]].make()
        # Inputs keep constants from being folded: a few roundings of values of size 1.
        assert values == pytest.approx(made(steps), abs=1e-14)  # type: ignore[operator]
        assert all(verdict["verdict"] in ("PROVED", "NO") for verdict in entry["verdicts"])
    assert "torch:CosineAnnealingLR" not in gallery.entries["cosine"]["systems"]
    assert "keras:CosineDecay" in gallery.entries["cosine"]["systems"]


def test_verdicts_for_all_values_of_the_sliders(gallery: Gallery) -> None:
    cosine, trapezoidal = gallery.entries["cosine"], gallery.entries["trapezoidal"]
    ranges = {row["name"]: (row["low"], row["high"]) for row in cosine["inputs"]}
    assert ranges == {"end": (0, 0.2), "start": (0, 2), "steps": (1, 300)}
    sentences = {row["claim"]: row["sentence"] for row in cosine["range_verdicts"]}
    # The initial value is at most 1; the slider goes to 2.
    assert sentences["bounded"] == "the value is >= 0 and <= Max(end, start)"
    assert {row["verdict"] for row in cosine["range_verdicts"]} == {"PROVED"}
    assert cosine["length"] == {"constant": 0, "multiples": {"steps": 1}}
    assert cosine["domain"] == []
    (condition,) = trapezoidal["domain"]
    assert condition["text"] == "decay + warmup <= steps"
    assert condition["excess"]["multiples"] == {"decay": 1, "steps": -1, "warmup": 1}
    assert not condition["is_strict"]


def test_a_verdict_for_the_sliders_differs_where_a_corner_refutes_it(gallery: Gallery) -> None:
    entry = gallery.entries["polynomial"]
    first = {row["claim"]: row["verdict"] for row in entry["verdicts"]}
    of_range = {row["claim"]: row for row in entry["range_verdicts"]}
    assert first["continuous"] == "PROVED"
    assert of_range["continuous"]["verdict"] == "NO"
    assert "power = 0" in of_range["continuous"]["detail"]


def test_the_page_of_a_schedule_has_its_code_and_proofs(
    gallery: Gallery, packages: Path, tmp_path: Path
) -> None:
    entries = gallery.entries["function"], gallery.entries["chained"]
    assert [entry["imports"] for entry in entries] == [
        ["import sympy as sp", "from closedform.schedules import function"],
        ["from closedform.schedules import chained, cosine, step_decay"],
    ]
    for entry in entries:
        names_there: dict[str, Any] = {}
        exec("\n".join([*entry["imports"], f"lr = {entry['code']}"]), names_there)
        assert names_there["lr"] == EXAMPLES[entry["name"]].make()
    verdicts = {found["claim"]: found for found in entries[1]["verdicts"]}
    assert verdicts["continuous"]["verdict"] == "NO"
    assert verdicts["continuous"]["detail"].endswith("at step 80, up to step 80")
    assert verdicts["non_negative"]["sentence"] == "the value is never below 0"
    with pytest.raises(UnknownNameError, match=r"no schedule 'cosin': did you mean 'cosine'\?"):
        write_gallery(tmp_path / "site", names=["cosin"], packages=packages)


def test_the_commands_print_the_path_of_the_page(
    trained: Path, packages: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    words = ["web", str(trained), "-o", str(site), "--packages", str(packages)]
    result = CliRunner().invoke(words)
    assert result.exit_code == 0
    assert f"wrote {site / 'index.html'}" in result.stdout.replace("\n", "")
    assert f"python -m http.server --directory {site} 8000" in result.stdout.replace("\n", "")
    words = ["gallery", "constant", "-o", str(tmp_path / "all"), "--packages", str(packages)]
    result = CliRunner().invoke(words)
    assert result.exit_code == 0, result.output
    entries = json.loads((tmp_path / "all" / "manifest.json").read_text())["entries"]
    assert [entry["name"] for entry in entries] == ["constant"]


def test_a_page_for_the_gpu_has_its_step_and_its_runtime(
    packages: Path, tmp_path: Path, trained: Path
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    example = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    export(model, cross_entropy, example, optimizers.adamw(0.1), tmp_path / "run", target="webgpu")
    site = tmp_path / "site"
    train = str(tmp_path / "run" / "train.onnx")
    words = ["web", train, "-o", str(site), "--packages", str(packages), "--device", "webgpu"]
    result = CliRunner().invoke(words)
    assert result.exit_code == 0, result.output
    names = {"webgpu.onnx", "scalars.onnx", "webgpu.js", "train.onnx", "init.onnx"}
    assert names <= {path.name for path in site.iterdir()}
    assert {path.name for path in (site / "ort").iterdir()} == {*WASM_FILES, *WEBGPU_FILES}
    manifest = json.loads((site / "manifest.json").read_text())
    step = manifest["webgpu"]
    dtypes = {entry["name"]: entry["dtype"] for entry in step["inputs"]}
    assert dtypes["batch.target"] == "int32"
    assert dtypes["scalar.0"] == "float32"
    assert "step" not in dtypes
    assert "next.param.0.weight" in step["outputs"]
    scalars = {entry["name"]: entry["dtype"] for entry in step["scalars"]}
    assert scalars == {"step": "int64", "buffer.1.num_batches_tracked": "int64"}
    assert {"next.step", "learning_rate", "scalar.0"} <= set(step["scalarOutputs"])
    with pytest.raises(ExportError, match=r"without webgpu.onnx.*target=\"webgpu\""):
        write_training_page(trained, tmp_path / "other", packages=packages, device="webgpu")
    with pytest.raises(ExportError, match="device must be wasm or webgpu, got 'cuda'"):
        write_training_page(trained, tmp_path / "other", packages=packages, device="cuda")
    assert not (tmp_path / "other").exists()


def test_the_gallery_command_takes_any_number_of_names() -> None:
    for words, names in (([], []), (["cosine", "wsd"], ["cosine", "wsd"])):
        values = parser_of("gallery").parse([*words, "-o", "site"])
        assert values == {"names": names, "output": Path("site"), "packages": None}


def test_a_command_without_positional_arguments_takes_options_only() -> None:
    parser = Parser("closedform x", "")
    parser.add_argument("-o")
    assert parser.parse(["-o", "y"]) == {"o": "y"}
    with pytest.raises(UsageError, match="unrecognized arguments: z"):
        parser.parse(["-o", "y", "z"])


def test_arguments_of_an_example_are_by_name(gallery: Gallery) -> None:
    cosine, chained = gallery.entries["cosine"], gallery.entries["chained"]
    by_name = ", ".join(f"{name}={text}" for name, text in cosine["arguments"])
    called: Any = {"cosine": schedules.cosine}
    exec(f"lr = cosine({by_name})", called)
    assert called["lr"] == EXAMPLES["cosine"].make()
    assert {entry["name"] for entry in cosine["inputs"]} <= {
        name for name, _ in cosine["arguments"]
    }
    assert chained["arguments"] is None or chained["name"] == "chained"


def test_the_training_page_has_the_steps_of_the_recipe(packages: Path, tmp_path: Path) -> None:
    model, example = torch.nn.Linear(3, 2), (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
    for lr, steps in ((schedules.cosine(0.1, 0, 400), 400), (0.1, None)):
        export(model, cross_entropy, example, optimizers.sgd(lr), tmp_path / f"run{steps}")
        train = tmp_path / f"run{steps}" / "train.onnx"
        page = write_training_page(train, tmp_path / f"site{steps}", packages=packages)
        assert json.loads((page.parent / "manifest.json").read_text())["steps"] == steps
