"""The schema of metadata: the table, its page, files that are written, and files from before."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import sympy as sp
import torch
from torch import nn

import closedform as cf
from closedform.errors import SessionError, ThreadsWarning
from closedform.exporters.onnx_metadata import KEYS, SCHEMA, SCHEMA_KEY, check_schema
from closedform.training import TrainSession, export
from tests.support.torch_exporter import traced_once

ROOT = Path(__file__).parents[2]
BEFORE = Path(__file__).parents[1] / "reference" / "files_of_schema_0.zip"
"""A schedule and a training step as the package wrote them before the schema had a version."""


def test_the_page_is_the_table() -> None:
    text = (ROOT / "docs" / "metadata_of_onnx_files.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(closedform\.[^`]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(entry.key, entry.content, entry.files) for entry in KEYS]
    assert f"schema is {SCHEMA}" in text


def keys_of(model: onnx.ModelProto) -> set[str]:
    return {entry.key for entry in model.metadata_props}


def test_the_table_has_each_key_that_is_written(tmp_path: Path) -> None:
    lr = cf.schedules.cosine(1e-3, 0, 10)
    models = [
        cf.to_onnx(lr, claims=lr.verify()),
        cf.to_onnx(lr, validate=False),
        *cf.to_onnx(
            cf.transforms.weight_average(
                cf.transforms.skip_nonfinite(
                    cf.transforms.clip_by_global_norm(cf.optimizers.sgd(lr), 1)
                ),
                0.9,
            ),
            params={"w": (2,)},
            groups=[cf.Group("w", factors={"lr": 0.5})],
        ).values(),
    ]
    with traced_once(test_the_table_has_each_key_that_is_written):
        models += export(
            nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 5)),
            "cross_entropy",
            (torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, dtype=torch.long)),
            cf.optimizers.sgd(lr),
            tmp_path,
        ).values()
    written = set().union(*map(keys_of, models))
    assert written <= {entry.key for entry in KEYS}
    for model in models:
        assert {e.key: e.value for e in model.metadata_props}[SCHEMA_KEY] == str(SCHEMA)
    # Conditions on sizes and names in a file are those of other models.
    assert {entry.key for entry in KEYS} - written <= {"closedform.sizes", "closedform.names"}


def test_no_key_in_the_source_is_missing_in_the_table() -> None:
    source = ROOT / "src" / "closedform"
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    pattern = re.compile(r'(?:METADATA|KEY|NAMES|metadata\[)[^=\n]*= "(closedform\.\w+)"')
    keys = {key for text in texts for key in pattern.findall(text)}
    assert "closedform.sizes" in keys
    assert keys <= {entry.key for entry in KEYS}


def test_files_of_schema_0_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(BEFORE.read_bytes())) as files:
        files.extractall(tmp_path)
    assert all(SCHEMA_KEY not in keys_of(onnx.load(path)) for path in tmp_path.glob("*.onnx"))
    assert cf.verify_file(tmp_path / "lr.onnx").exit_code() == 0
    assert cf.from_onnx(tmp_path / "lr.onnx").exact(50) == sp.Rational(1, 2000)
    # Its sum of rows is a ScatterND.
    with pytest.warns(ThreadsWarning):
        session = TrainSession(tmp_path)
    tokens, targets = np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), np.array([0, 1])
    first = session.step((tokens, targets)).loss
    assert session.step((tokens, targets)).loss < first
    with pytest.raises(SessionError, match=r"'x' must have values in -?\d\.\.4, got 5"):
        session.step((tokens + 2, targets))
    with pytest.raises(SessionError, match="this step is for sizes with"):
        session.step((tokens[:, :3], targets))


@pytest.mark.parametrize("text", ["2", "1.0", "", "later"])
def test_a_later_schema_is_refused(text: str, tmp_path: Path) -> None:
    message = rf"closedform.schema must be an integer up to 1, got '{text}' \(here\)"
    with pytest.raises(SessionError, match=message):
        check_schema({SCHEMA_KEY: text}, "here")
    with zipfile.ZipFile(BEFORE) as files:
        files.extractall(tmp_path)
    model = onnx.load(tmp_path / "train.onnx")
    model.metadata_props.add(key=SCHEMA_KEY, value=text)
    onnx.save(model, tmp_path / "train.onnx")
    message = r"closedform\.schema must be an integer up to 1"
    with pytest.warns(ThreadsWarning), pytest.raises(SessionError, match=message):
        TrainSession(tmp_path)
