"""Writes the steps of onnxsim's optimizers into onnxsim_steps.zip.

It runs where onnxsim 0.8.1 is installed (MIT and Apache-2.0), which builds the graphs and
simplifies them: python tests/referee/make_onnxsim_steps.py
"""

import importlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

SHAPES = {"w": (6, 4), "b": (4,)}
GRADS = {f"{name}_grad": (shape, onnx.TensorProto.FLOAT) for name, shape in SHAPES.items()}
CORRECTIONS = ("m_correction", "v_correction")


def steps() -> Iterator[tuple[str, bytes]]:
    """Yields the files by name."""
    builders: Any = importlib.import_module("onnxsim.qat_graph")
    for optimizer, labels in (("adam", "mv"), ("sgd_momentum", ("mom",))):
        builder = builders.GraphBuilder("step__")
        scalars = ("lr", *CORRECTIONS) if optimizer == "adam" else ("lr",)
        state: dict[str, tuple[tuple[int, ...], str]] = {}
        for name, shape in SHAPES.items():
            inputs = [name, f"{name}_grad", *(f"{name}_{label}" for label in labels)]
            update = getattr(builders, f"{optimizer}_update")
            outputs = update(builder, *inputs, *scalars)
            names = [name, *inputs[2:]]
            state |= {key: (shape, value) for key, value in zip(names, outputs, strict=True)}
        step = builders.make_step_graph(builder, {}, state, scalars, per_step=GRADS)
        yield f"{optimizer}.onnx", step.model.SerializeToString()


if __name__ == "__main__":
    target = Path(__file__).with_name("onnxsim_steps.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in steps():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)
