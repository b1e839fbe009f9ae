"""Weights of a small file as external data, which exports write only above 1.5 GB."""

from pathlib import Path

import onnx


def store_externally(path: Path) -> Path:
    """Writes the weights of a file next to it, and returns the path of their file."""
    data = path.with_name(f"{path.name}.data")
    model = onnx.load(path)
    # Constants of shapes stay inside: onnxruntime infers shapes from them.
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=64)
    return data
