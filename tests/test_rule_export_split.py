"""The parts of a step as files: what a sharded runtime needs, with onnxruntime and json alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import closedform as cf

RULES = {
    "prodigy": cf.optimizers.prodigy(d0=1e-2),
    "scaled": cf.transforms.dynamic_loss_scaling(
        cf.transforms.clip_by_global_norm(cf.optimizers.adamw(0.1), 1), 4
    ),
    "plain": cf.optimizers.adamw(cf.schedules.linear(0.1, 0, 10)),
}
WHOLE = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([4.0], np.float32)}
SHARDS = {"w.top": WHOLE["w"][:1], "w.bottom": WHOLE["w"][1:], "b": WHOLE["b"]}


class Files:
    """A folder of models that are run by name; inputs that a model does not have are left out."""

    def __init__(self, folder: Path) -> None:
        self.calls: dict[str, Any] = json.loads((folder / "calls.json").read_text())
        self.sessions = {
            path.stem: ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            for path in folder.glob("*.onnx")
        }

    def run(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        session = self.sessions[name]
        names = [output.name for output in session.get_outputs()]
        feed = {port.name: given[port.name] for port in session.get_inputs()}
        return dict(zip(names, session.run(names, feed), strict=True))


def of_tensor(known: dict[str, Any], param: str) -> dict[str, Any]:
    """The names of a parameter's values in a graph of one tensor."""
    named = {"param": known[f"param.{param}"], "grad": known[f"grad.{param}"]}
    states = [key for key in known if key.startswith(f"state.{param}.")]
    return named | {f"state.{key.rsplit('.', 1)[1]}": known[key] for key in states}


def step(files: Files, known: dict[str, Any]) -> dict[str, Any]:
    known = dict(known)
    for place, calls in enumerate(files.calls["stages"]):
        name = f"partial_{place}_scalars"
        scalars = files.run(name, known) if name in files.sessions else {}
        totals: dict[str, Any] = {}
        for call in calls:
            taken = {f"scalar.{i}": scalars[key] for i, key in enumerate(call["scalars"])}
            parts = files.run(call["graph"], of_tensor(known, call["param"]) | taken)
            for key, part in parts.items():
                totals[key] = np.asarray(totals.get(key, 0) + part)
        known |= totals
    scalars = files.run("scalars", known)
    after = {key: value for key, value in scalars.items() if key.startswith("next.")}
    for call in files.calls["apply"]:
        taken = {f"scalar.{i}": scalars[key] for i, key in enumerate(call["scalars"])}
        results = files.run(call["graph"], of_tensor(known, call["param"]) | taken)
        after[f"next.param.{call['param']}"] = results.pop("next.param")
        for key, value in results.items():
            after[f"next.state.{call['param']}.{key.removeprefix('next.state.')}"] = value
    return known | {key.removeprefix("next."): value for key, value in after.items()}


@pytest.mark.parametrize("name", RULES)
def test_shards_step_as_the_whole_does(name: str, tmp_path: Path) -> None:
    rule = RULES[name]
    shapes = {key: array.shape for key, array in SHARDS.items()}
    written = cf.to_onnx(rule, tmp_path, params=shapes, split=True)
    assert isinstance(written, dict)
    assert {"init", "step", "scalars", "apply_0"} <= set(written)
    assert any(key.startswith("partial_0_") for key in written) == (name != "plain")
    files = Files(tmp_path)
    known: dict[str, Any] = {f"param.{key}": array for key, array in SHARDS.items()}
    known |= files.run("init", known)
    session = cf.OptimizerSession(rule, WHOLE)
    for _ in range(3):
        whole = {key: array * np.float32(0.7) for key, array in session.params.items()}
        session.step({key: np.ascontiguousarray(array) for key, array in whole.items()})
        known |= {f"grad.{key}": known[f"param.{key}"] * np.float32(0.7) for key in SHARDS}
        known = step(files, known)
    assert int(known["step"]) == session.t == 3
    for key, value in session.shared.items():
        np.testing.assert_allclose(known[f"shared.{key}"], value, rtol=1e-6)
    joined = np.concatenate([known["param.w.top"], known["param.w.bottom"]])
    # Sums of five float32 numbers, folded in another order: a rounding of 6e-8 each.
    np.testing.assert_allclose(joined, session.params["w"], rtol=1e-6)
    np.testing.assert_allclose(known["param.b"], session.params["b"], rtol=1e-6)
