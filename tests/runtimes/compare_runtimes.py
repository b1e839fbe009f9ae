"""Every schedule and rule as a file in every runtime that reads ONNX: ``make compare-runtimes``.

Each runtime is installed into an environment of its own below ``build/runtimes``. The results go to
``tools/results/runtimes.json``, from which ``tools/build_runtimes.py`` writes the page.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform.exporters.onnx_targets import find_target
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.options import GraphOptions
from tests.runtimes.file_set import write
from tests.runtimes.op_probes import allowed, measured, probes
from tests.runtimes.runtimes import RUNTIMES, Runtime
from tests.support.values import decode

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "runtimes"
RESULTS = ROOT / "tools" / "results" / "runtimes.json"
Files = Callable[[Runtime], tuple[Path, dict[str, dict[str, str]]]]
LEAST = {"schedules": 75, "rules": 17}


def environment(runtime: Runtime) -> Path:
    """Returns the folder of a runtime, installed where it is not yet."""
    folder = BUILD / runtime.packages[0]
    stamp = folder / "installed"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        install(runtime, folder)
        stamp.touch()
    return folder


def install(runtime: Runtime, folder: Path) -> None:
    """Installs the packages of a runtime into an environment of its own."""
    if runtime.engine == "web":
        missing = [name for name in ("node", "npm") if shutil.which(name) is None]
        if missing:
            pytest.fail(f"{' and '.join(missing)} missing: apt-get install nodejs npm", False)
        words: list[str] = [
            "npm",
            "install",
            "--silent",
            "--no-fund",
            "--no-audit",
            "--ignore-scripts",
        ]
        subprocess.run([*words, "--prefix", str(folder), *runtime.packages], check=True)
        return
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *runtime.packages], check=True)


def run(runtime: Runtime, files: Path, results: Path) -> None:
    """Runs the files; one that ends the process has a line of its own."""
    folder = environment(runtime)
    rows = json.loads((files / "index.json").read_text(encoding="utf-8"))
    if runtime.engine == "web":
        paths = [HERE / "run_files.mjs", folder / "node_modules", files, results]
        subprocess.run(["node", *map(str, paths)], check=True, timeout=900)
        return
    done = 0
    while done < len(rows):
        python, script = str(folder / "bin" / "python"), str(HERE / "run_files.py")
        words = [python, script, runtime.engine, str(files), str(results), str(done)]
        ended = subprocess.run(words, check=False, timeout=900, capture_output=True)
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        done = len(lines)
        if done < len(rows):
            line = {"name": rows[done]["name"], "error": f"ends the process: {ended.returncode}"}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done += 1


def difference(runtime: Runtime, row: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Returns how the outputs of a file differ from its values, in words; "" if they do not."""
    extra = sum(more * row["ops"].get(op, 0) for op, more in runtime.ulp.items())
    for name, coded in row["expected"].items():
        wanted, found = decode(coded), decode(outputs[name])
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            return f"{name} is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
        if not wanted.size:
            continue
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
        limit, unit = row["limits"][name]
        if not apart <= limit + extra * unit:
            return f"{name} is {apart:.3g} away, {limit + extra * unit:.3g} allowed"
    return ""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files for a runtime, written once for all of one target, and why entries have none."""
    written: dict[str, tuple[Path, dict[str, dict[str, str]]]] = {}

    def of(runtime: Runtime) -> tuple[Path, dict[str, dict[str, str]]]:
        target = find_target(runtime.target)
        key = f"{target.opset} {sorted(target.dtypes)} {sorted(runtime.options.items())}"
        if key not in written:
            folder = tmp_path_factory.mktemp("files")
            written[key] = folder, write(folder, target, runtime.options)
        folder, refused = written[key]
        return folder, {kind: dict(names) for kind, names in refused.items()}

    return of


def kind_of(runtime: Runtime) -> DType:
    """The dtype of the probes of a runtime."""
    return GraphOptions(**{"dtype": "f64", **runtime.options}).value_dtype


def over(runtime: Runtime, errors: Mapping[str, float]) -> list[str]:
    """The probes that are further off than the op table admits."""
    found = probes(kind_of(runtime))
    return [label for label, graph, _ in found if errors[label] > allowed(graph, {})]


def check_probes(runtime: Runtime, errors: Mapping[str, float]) -> None:
    """No operation is further off than its row says, and no row is there without need."""
    needed: set[Op] = set()
    for label, graph, _ in probes(kind_of(runtime)):
        assert errors[label] <= allowed(graph, runtime.ulp), (label, errors[label])
        if errors[label] > allowed(graph, {}):
            needed |= {node.op for node in graph.nodes}
    assert set(runtime.ulp) <= needed


@pytest.mark.parametrize("name", RUNTIMES)
def test_runtime_computes_the_values(name: str, tmp_path: Path, files: Files) -> None:
    runtime = RUNTIMES[name]
    target = find_target(runtime.target)
    folder, refused = files(runtime)
    run(runtime, folder, tmp_path / "results")
    rows = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    lines = (tmp_path / "results").read_text(encoding="utf-8").splitlines()
    passed = dict.fromkeys(LEAST, 0)
    wrong: list[str] = []
    graphs = {label: (graph, given) for label, graph, given in probes(kind_of(runtime))}
    errors: dict[str, float] = {}
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        assert row["name"] == line["name"]
        if row["kind"] == "probes":
            graph, inputs = graphs[row["name"]]
            errors[row["name"]] = measured(graph, inputs, decode(line["outputs"]["result"]))
            continue
        if "error" in line:
            refused[row["kind"]][row["name"]] = line["error"].strip().splitlines()[-1][-160:]
            continue
        found = difference(runtime, row, line["outputs"])
        passed[row["kind"]] += not found
        wrong += [f"{row['name']}: {found}"] * bool(found)
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[name] = {
        "target": runtime.target,
        "opset": target.opset,
        "options": dict(runtime.options),
        "note": runtime.note,
        "over": {label: round(errors[label], 2) for label in over(runtime, errors)},
        "passed": passed,
        "refused": refused,
    }
    assert not wrong, wrong
    check_probes(runtime, errors)
    assert all(passed[kind] >= least for kind, least in LEAST.items()), passed
    ordered = {key: known[key] for key in RUNTIMES if key in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
