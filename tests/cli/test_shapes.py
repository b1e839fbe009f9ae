"""Shapes from the command line and from files."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from closedform.cli.arguments import parse_shapes
from closedform.cli.parser import UsageError
from tests.support.commands import CliRunner

TENSORS: dict[str, Any] = {
    "layer.weight": np.zeros((3, 4), np.float32),
    "scale": np.zeros((), np.float32),
}
SHAPES = {"layer.weight": (3, 4), "scale": ()}


def test_shapes_of_files_and_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", **TENSORS)
    save_file(TENSORS, tmp_path / "model.safetensors")
    for name in ("model.npz", "model.safetensors"):
        assert parse_shapes([str(tmp_path / name), "b=7"]) == {**SHAPES, "b": (7,)}


def test_files_without_shapes(tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz")
    for name in ("bad.npz", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"neither one nor the other")
    np.savez(tmp_path / "one.npz", **TENSORS)
    for words, message in (
        (["empty.npz"], "empty.npz' contains no tensors"),
        (["bad.npz"], "bad.npz' is not a valid npz file: "),
        (["bad.safetensors"], "bad.safetensors' is not a valid safetensors file: "),
        (["none.npz"], "none.npz': No such file or directory"),
        (["one.npz", "one.npz"], "parameter 'layer.weight' is given twice"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_shapes([str(tmp_path / word) for word in words])


def test_export_of_an_optimizer_for_the_tensors_of_a_file(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    words = ["--optimizer", "adafactor", "--lr", "1e-3", "--params"]
    given = [*words, str(tmp_path / "model.safetensors"), "-o", str(tmp_path / "made")]
    result = CliRunner().invoke(["export", *given])
    assert result.exit_code == 0, result.output
    model = onnx.load(tmp_path / "made" / "step.onnx")
    inputs = {value.name for value in model.graph.input}
    rows = "state.layer.weight.exp_avg_sq_row"
    assert {"param.layer.weight", rows, "state.scale.exp_avg_sq"} <= inputs
    assert not model.functions
    words = [*given, "--functions", "--target", "onnxruntime>=1.17", "--force"]
    called = CliRunner().invoke(["export", *words])
    assert called.exit_code == 0
    model = onnx.load(tmp_path / "made" / "step.onnx")
    assert model.functions
    assert model.opset_import[0].version == 20


def test_export_needs_one_name(tmp_path: Path) -> None:
    for words, message in (
        (["-o", str(tmp_path)], "give NAME or --optimizer"),
        (["adam", "--optimizer", "sgd", "-o", str(tmp_path)], "got 'adam' and --optimizer"),
        (["--optimizer", "cosine", "-o", str(tmp_path)], "no optimizer 'cosine'"),
    ):
        result = CliRunner().invoke(["export", *words])
        assert result.exit_code != 0
        output = " ".join((result.output + str(result.exception)).replace("│", " ").split())
        assert message in output


def test_show_prints_the_formulas_of_an_optimizer() -> None:
    result = CliRunner().invoke(["show", "optimizer:adamw", "--weight-decay", "0.1"])
    assert result.exit_code == 0
    assert "exp_avg_sq <- beta2*state.exp_avg_sq + grad**2*(1 - beta2)" in result.output
    assert "exp_avg starts at 0, shape of param" in result.output
    assert "weight_decay = 1/10" in result.output
