"""A page that trains a model in the browser from the files of ``closedform.training.export``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from closedform.errors import ExportError
from closedform.exporters.onnx_model import serialize
from closedform.exporters.onnx_weights import external_locations
from closedform.files import check_regular
from closedform.ir.naming import BATCH
from closedform.runtime.checks import check_stored
from closedform.runtime.onnx_session import OnnxSession, open_session
from closedform.training import index_ranges
from closedform.training.inference import read_forward
from closedform.training.session import CARRIED, EVAL_FILE, INIT_FILE, LOSS, STEPS, TRAIN_FILE
from closedform.training.state_file import read_state
from closedform.training.webgpu.step import SCALARS_FILE, WEBGPU_FILE
from closedform.web.folder import Device, copy_runtime, write_folder, write_loop_page

DATA_FILE, MODEL_FILE = "data.safetensors", "model.onnx"

_MOST_BYTES = 2**31 - 1
"""Bytes of a model's external data. A module of WebAssembly with 32 bits addresses twice as much,
for data and parameters, and Chromium has no larger array: 2.01 GB train, 2.22 GB do not load.
"""


def write_training_page(
    train: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    packages: str | os.PathLike[str] | None = None,
    device: str = "wasm",
) -> Path:
    """Writes a static page that trains with ``train.onnx`` and returns the path of ``index.html``.

    The page reads its data from a safetensors file with one tensor per input of the batch, rows
    first. It needs a static file server (``python -m http.server``) and no network access.

    Args:
        train: The file ``train.onnx``, in the same folder as ``init.onnx``.
        folder: The folder of the page; an existing page is replaced.
        data: The data file that the page loads initially.
        packages: The node_modules folder with onnxruntime-web; searched for upward from the current
            folder if None.
        device: ``"wasm"``, or ``"webgpu"`` for a page that trains on the GPU where the browser has
            an adapter, and in WebAssembly elsewhere; the step is exported with
            ``target="webgpu"``.

    Raises:
        ExportError: The model is not a training step, a file or npm package is missing, the data
            have other names, dtypes or sizes than the batch, onnxruntime-web does not support a
            dtype, the device is unknown, or the folder contains other files.
        StateError: The data is not a safetensors file.
    """
    source, where_to = Path(train), checked_device(device)
    session = open_training(source)
    files = training_files(source, gpu_files(source, where_to))
    if data is not None:
        files[DATA_FILE] = Path(data)
        _check_data(Path(data), session)

    def fill(target: Path) -> None:
        copy_runtime(target, None if packages is None else Path(packages), device=where_to)
        write_loop_page(target, "train", device=where_to)
        for name, path in files.items():
            shutil.copyfile(path, target / name)
        manifest = _manifest(session, DATA_FILE if data is not None else None)
        manifest |= {"external": external_files(files), **gpu_manifest(source, where_to)}
        manifest |= write_model_of_page(target, source, session)
        (target / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    write_folder(Path(folder), fill)
    return Path(folder) / "index.html"


def open_training(path: Path) -> OnnxSession:
    """Returns the session of a training step that onnxruntime-web can run.

    Raises:
        ExportError: The model is not a training step, or has a dtype that it does not support.
    """
    where = f"file {str(path)!r}"
    session = open_session(path)
    if LOSS not in session.outputs or "step" not in session.inputs:
        raise ExportError(
            "the model is not a training step: it has no input 'step' or no output 'loss'",
            where=where,
            hint="export one with closedform.training.export",
        )
    _check_dtypes(session, where)
    return session


def training_files(train: Path, companions: Iterable[str] = ()) -> dict[str, Path]:
    """Returns the files of a training folder by name: models with their external data.

    Raises:
        ExportError: A file is missing.
    """
    files = {TRAIN_FILE: train}
    for name in (INIT_FILE, *companions):
        files[name] = train.with_name(name)
    for path in files.values():
        check_file(path)
    for locations in external_files(files).values():
        files |= {name: train.with_name(name) for name in locations}
    return files


def external_files(files: Mapping[str, Path]) -> dict[str, list[str]]:
    """Returns the files with the external data of the models among the files of a page, by model.

    Raises:
        ExportError: A file is missing, in another folder, or they are too large for WebAssembly.
    """
    names_by_model: dict[str, list[str]] = {}
    for name, path in files.items():
        if path.suffix != ".onnx":
            continue
        where = f"file {str(path)!r}"
        locations = external_locations(path)
        for location in locations:
            # A path such as ../x would copy a file from outside of the folder to a public page.
            if Path(location).name != location:
                raise ExportError(
                    f"its external data must be in its folder, got {location!r}",
                    where=where,
                    hint="save it again with onnx.save(…, save_as_external_data=True)",
                )
            check_file(path.with_name(location))
        total = sum(path.with_name(location).stat().st_size for location in locations)
        if total > _MOST_BYTES:
            raise ExportError(
                f"its external data has {total} bytes; a page trains at most {_MOST_BYTES}",
                where=where,
                hint="train it with TrainSession, or export a smaller model",
            )
        if locations:
            names_by_model[name] = locations
    return names_by_model


def write_model_of_page(folder: Path, train: Path, session: OnnxSession) -> dict[str, Any]:
    """Writes the model without its weights, which a page appends, where there is an ``eval.onnx``.

    Returns:
        The entry of a manifest: the weights of the model by name, and the tensors of the step.
    """
    source = train.with_name(EVAL_FILE)
    if not source.is_file():
        return {}
    inputs_of_step = [name for name in session.inputs if name.startswith(CARRIED)]
    model, weights = read_forward(source, inputs_of_step, f"file {str(source)!r}")
    inputs = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    (folder / MODEL_FILE).write_bytes(serialize(model))
    return {"weights": weights}


def checked_device(device: str) -> Device:
    """Returns a device by its name.

    Raises:
        ExportError: There is no such device.
    """
    if device not in list(Device):
        raise ExportError(f"device must be {' or '.join(Device)}, got {device!r}")
    return Device(device)


def gpu_files(train: Path, device: Device) -> tuple[str, ...]:
    """Returns the names of the further files of a step that the device needs.

    Raises:
        ExportError: The step was exported without them.
    """
    if device is Device.WASM:
        return ()
    if not train.with_name(WEBGPU_FILE).is_file():
        raise ExportError(
            f"the step was exported without {WEBGPU_FILE}",
            where=f"folder {str(train.parent)!r}",
            hint='export it with closedform.training.export(…, target="webgpu")',
        )
    return WEBGPU_FILE, SCALARS_FILE


def gpu_manifest(train: Path, device: Device) -> dict[str, Any]:
    """Returns the entry of a manifest that says how the step for WebGPU is fed."""
    if device is Device.WASM:
        return {}
    step, scalars = (open_session(train.with_name(name)) for name in (WEBGPU_FILE, SCALARS_FILE))
    return {
        "webgpu": {
            "inputs": inputs_of(step),
            "outputs": list(step.outputs),
            "scalars": inputs_of(scalars),
            "scalarOutputs": list(scalars.outputs),
        }
    }


def inputs_of(session: OnnxSession) -> list[dict[str, Any]]:
    """Returns the inputs of a graph for a manifest: ``null`` is a free size, named in symbols."""
    return [
        {
            "name": name,
            "dtype": str(port.dtype),
            "dims": list(port.shape),
            "symbols": list(port.symbols),
        }
        for name, port in session.inputs.items()
    ]


def indices_of(session: OnnxSession) -> list[dict[str, Any]]:
    """Returns the ranges of the integer inputs of a step for a manifest."""
    return index_ranges.without_formulas(index_ranges.read(session.metadata))


def check_file(path: Path) -> None:
    """Raises an ExportError where a file does not exist, or is a pipe or a device."""
    check_regular(path, ExportError)
    if not path.is_file():
        raise ExportError("the file does not exist", where=f"file {str(path)!r}")


def _check_data(path: Path, session: OnnxSession) -> None:
    """Raises an error where a file has no rows for a tensor of the batch, or others."""
    check_file(path)
    where, places = f"file {str(path)!r}", read_state(path)
    ports = {n.removeprefix(BATCH): p for n, p in session.inputs.items() if n.startswith(BATCH)}
    for name, port in ports.items():
        if name not in places:
            raise ExportError(
                f"the data has no tensor {name!r} {port}",
                where=where,
                hint=f"it has {', '.join(map(repr, places)) or 'none'}: rename its tensors",
            )
        check_stored(places[name], port, repr(name), where, ExportError)
    rows = sorted({places[name].shape[0] for name, port in ports.items() if port.shape})
    if len(rows) > 1 or 0 in rows:
        raise ExportError(
            f"the tensors of the data must have one number of rows, and some; got {rows}",
            where=where,
        )


def _check_dtypes(session: OnnxSession, where: str) -> None:
    for name, port in (*session.inputs.items(), *session.outputs.items()):
        if port.dtype.name == "bfloat16":
            raise ExportError(
                f"{name!r} is bfloat16, which onnxruntime-web does not support",
                where=where,
                hint="export the model in float16 or float32",
            )
    if session.outputs[LOSS].dtype.name == "float16":
        raise ExportError(
            "the loss is float16, which the page cannot plot",
            where=where,
            hint="compute it in float32, with output.float() in the loss",
        )


def _manifest(session: OnnxSession, data: str | None) -> dict[str, Any]:
    meta = session.raw.get_modelmeta().custom_metadata_map
    return {
        "title": meta.get("closedform.model", session.name),
        "data": data,
        "steps": int(meta[STEPS]) if meta.get(STEPS, "").isdecimal() else None,
        "inputs": inputs_of(session),
        "indices": indices_of(session),
    }
