"""Every differentiable operator of torch's table in a step for WebGPU: equal, or refused."""

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto

from closedform.errors import ExportError
from closedform.training.to_onnx.trace import trace
from closedform.training.webgpu.step import WEBGPU_FILE, webgpu_models
from tests.training.op_samples import Sample, operators, samples
from tests.training.webgpu_files import KINDS, Arrays

REFUSED = {
    "asinh": "Asinh: WGSL's is off by 5e-6",
    "bfloat16": "Cast to bfloat16",
    "fft.fft": "DFT",
    "fft.ifft": "DFT",
    "fmod": "Mod",
    "half": "Cast to float16",
    "nn.functional.conv_transpose3d": "ConvTranspose of a tensor with 5 axes",
}


@pytest.mark.parametrize("name", operators())
def test_the_step_for_webgpu_equals_the_ordinary_one(name: str) -> None:
    op = operators()[name]
    sample = next(iter(samples(op)), None)
    if sample is None:
        pytest.skip("torch has no usual sample")
    model = Sample(op, sample)
    try:
        traced = trace(model, None, (model.batch,), dynamic_axes={}, check=False)
        ordinary = ort.InferenceSession(traced.step.SerializeToString())
    except Exception:  # of any kind: compare_op_samples.py judges them
        pytest.skip("not exported")
    feeds = {f"param.{key}": value for key, value in traced.params.items()}
    feeds |= {f"buffer.{key}": value for key, value in traced.buffers.items()}
    ports = {port.name: port for port in ordinary.get_inputs()}
    batch = [key for key in ports if key.startswith("batch.")]
    feeds |= {key: value.numpy() for key, value in zip(batch, model.batch, strict=False)}
    generator = np.random.default_rng(0)
    feeds |= {
        key: generator.random(port.shape, np.float32)
        for key, port in ports.items()
        if key.startswith("random.")
    }
    if name in REFUSED:
        with pytest.raises(ExportError, match=f"has no kernel for {REFUSED[name]}"):
            webgpu_models(traced.step, "model M")
        return
    wanted = _run(traced.step, feeds)
    models = webgpu_models(traced.step, "model M")
    results = dict[str, Any]()
    for file in sorted(models, key=lambda file: file == WEBGPU_FILE):
        if models[file].graph.output:
            results |= _run(models[file], feeds | results)
    for key, value in wanted.items():
        finite = np.abs(value[np.isfinite(value)])
        # Roundings of float32 of the largest value.
        bound = 1e-5 * max(finite.max(initial=0), 1e-3)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(results[key].astype(float) - value) <= bound
        is_same = (results[key] == value) | (np.isnan(results[key]) & np.isnan(value))
        assert (is_near | is_same).all(), (key, results[key], value)


def _run(model: ModelProto, values: Arrays) -> Arrays:
    session = ort.InferenceSession(model.SerializeToString())
    feeds = {
        port.name: np.asarray(values[port.name]).astype(KINDS[port.type])
        for port in session.get_inputs()
    }
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(None, feeds), strict=True))
