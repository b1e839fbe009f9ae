"""Weights go from arrays to files and back without protobuf; above a limit as external data."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.nn.functional import cross_entropy

from closedform import files, optimizers
from closedform.errors import ExportError, SessionError
from closedform.exporters import onnx_weights
from closedform.exporters.onnx_weights import read_weights, write_weights
from closedform.ir.types import DType
from closedform.training import TrainSession, export

DTYPES: list[Any] = [np.float32, np.float64, np.float16, DType.BF16.numpy, np.int64, np.bool_]
SHAPES = [(), (0,), (3,), (70, 130), (2, 3, 257)]


def _arrays() -> dict[str, Any]:
    draws = np.random.default_rng(0)
    return {
        f"w{i}.{j}": draws.integers(-9, 9, shape).astype(np.dtype(dtype))
        for i, dtype in enumerate(DTYPES)
        for j, shape in enumerate(SHAPES)
    }


def _model(arrays: dict[str, Any]) -> onnx.ModelProto:
    """A model that returns its inputs, with all fields that an export writes."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    inputs, outputs = (
        [helper.make_tensor_value_info(f"{mark}{n}", kinds[n], a.shape) for n, a in arrays.items()]
        for mark in ("", "out.")
    )
    nodes = [helper.make_node("Identity", [name], [f"out.{name}"]) for name in arrays]
    constant = numpy_helper.from_array(np.arange(3), "constant")
    graph = helper.make_graph(nodes, "weights", inputs, outputs, [constant], doc_string="text")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    helper.set_model_props(model, {"key": "value"})
    return model


def _constants(model: onnx.ModelProto) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_a_file_has_the_bytes_of_protobuf(tmp_path: Path) -> None:
    arrays, path = _arrays(), tmp_path / "model.onnx"
    model = _model(arrays)
    write_weights(model, arrays, path)
    assert not model.graph.input
    named = _constants(onnx.load(path))
    for name, array in arrays.items():
        assert named[name].dtype == array.dtype, name
        assert np.array_equal(named[name], array), name
    assert path.read_bytes() == model.SerializeToString(deterministic=True)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("limit", [onnx_weights.LIMIT, 1000])
def test_weights_are_read_in_place(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_weights, "LIMIT", limit)
    arrays, path = _arrays(), tmp_path / "model.onnx"
    write_weights(_model(arrays), arrays, path)
    assert path.with_name("model.onnx.data").exists() == (limit == 1000)
    onnx.checker.check_model(path, full_check=True)
    model, stored = read_weights(path)
    rest = _constants(model)
    assert rest.keys() | stored.keys() == arrays.keys() | {"constant"}
    assert len(model.SerializeToString()) < 20_000
    for name, array in arrays.items():
        assert (name in stored) == (limit == 1000 or array.nbytes >= 1024)
        if name in stored:
            read = np.zeros_like(array)
            stored[name].read_into(read)
            assert np.array_equal(read, array), name
        else:
            assert np.array_equal(rest[name], array), name
    monkeypatch.setattr(onnx_weights, "LIMIT", 10**9)
    write_weights(_model(arrays), arrays, path)  # the data of the previous file goes
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


def test_an_interrupted_write_leaves_no_model_of_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_weights, "LIMIT", 1000)
    arrays, path = _arrays(), tmp_path / "model.onnx"
    write_weights(_model(arrays), arrays, path)
    replace = files.replace_file

    def fail(target: Path, data: Any) -> None:
        if target == path:
            raise OSError("no space")
        replace(target, data)

    monkeypatch.setattr(onnx_weights, "replace_file", fail)
    with pytest.raises(ExportError, match=r"cannot write the model: no space .*model.onnx"):
        write_weights(_model(arrays), {n: a + a for n, a in arrays.items()}, path)
    assert not path.exists()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    arrays, path = _arrays(), tmp_path / "model.onnx"
    write_weights(_model(arrays), arrays, path)
    data = path.read_bytes()
    draws = np.random.default_rng(0)
    for cut in (1, 9, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match=r"protobuf|beyond|parsing"):
            read_weights(path)
    for _ in range(200):  # no other kind of error, and no endless loop
        damaged = bytearray(data)
        damaged[draws.integers(len(data))] ^= 1 << int(draws.integers(8))
        path.write_bytes(damaged)
        try:
            read_weights(path)
        except ValueError:
            continue


class _Table(nn.Sequential):
    """A frozen table and a trained head."""

    def __init__(self) -> None:
        super().__init__(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(32, 70), nn.Linear(70, 4))
        self[0].requires_grad_(False)


def test_a_run_with_external_data_is_that_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = _Table()
    batch = torch.randint(0, 500, (6, 2)), torch.randint(0, 4, (6,))
    sessions = []
    for folder, limit in (("embedded", onnx_weights.LIMIT), ("external", 1000)):
        monkeypatch.setattr(onnx_weights, "LIMIT", limit)
        models = export(model, cross_entropy, batch, optimizers.adamw(1e-2), tmp_path / folder)
        external = [
            onnx.external_data_helper.uses_external_data(t)
            for t in models["init.onnx"].graph.initializer
        ]
        assert any(external) == (limit == 1000)
        assert (tmp_path / folder / "init.onnx.data").exists() == (limit == 1000)
        session = TrainSession(tmp_path / folder, threads=1)
        for name, value in model.named_parameters():
            array = session.params[name] if name in session.params else session.buffers[name]
            assert np.array_equal(array, value.detach().numpy()), name
        for _ in range(3):
            session.step([tensor.numpy() for tensor in batch])
        session.save(tmp_path / folder / "state")
        again = TrainSession(tmp_path / folder, threads=1)
        again.load(tmp_path / folder / "state")
        again.step([tensor.numpy() for tensor in batch])
        again.to_onnx(tmp_path / folder / "model.onnx")
        sessions.append(again)
    embedded, external_run = sessions
    for name, array in embedded.params.items():
        assert np.array_equal(array, external_run.params[name]), name
    results = [
        ort.InferenceSession(tmp_path / folder / "model.onnx").run(
            None, {"input": batch[0].numpy()}
        )
        for folder in ("embedded", "external")
    ]
    assert np.array_equal(results[0][0], results[1][0])
    assert (tmp_path / "external" / "model.onnx.data").stat().st_size > 500 * 16 * 4
    (tmp_path / "external" / "init.onnx.data").write_bytes(b"short")
    with pytest.raises(SessionError, match=r"cannot read the model: .*init.onnx.data' ends within"):
        TrainSession(tmp_path / "external")
