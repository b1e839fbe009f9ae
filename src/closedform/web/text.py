"""A page that fine-tunes a language model on a text in the browser, and writes with it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from closedform.errors import ExportError
from closedform.ir.naming import BATCH, PARAM
from closedform.runtime.onnx_session import OnnxSession, Port, open_session
from closedform.training.session import EVAL_FILE
from closedform.web.folder import copy_runtime, write_folder, write_loop_page
from closedform.web.training import (
    check_file,
    checked_device,
    external_files,
    gpu_files,
    gpu_manifest,
    indices_of,
    inputs_of,
    open_training,
    training_files,
    write_model_of_page,
)

TEXT_FILE = "text.txt"
MOST_TEXT = 16 << 20
"""Bytes of a text that a page begins with, at most."""

_BYTES = 256
_DEFAULT_CONTEXT = 64


def write_text_page(
    train: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    text: str | os.PathLike[str] | None = None,
    alphabet: str | None = None,
    packages: str | os.PathLike[str] | None = None,
    device: str = "wasm",
) -> Path:
    """Writes a static page that fine-tunes a causal language model on a pasted text.

    Each step trains on windows of the text, drawn from a seed. The page shows the losses, samples
    from the model at a temperature, and downloads the trained parameters (with LoRA, the adapter)
    as a safetensors file. It needs a static file server and no network access.

    Args:
        train: The file ``train.onnx``, in the same folder as ``init.onnx`` and ``eval.onnx``. Its
            batch is an int64 tensor of tokens, ``[rows, context]``, and optionally one of the
            tokens that follow; ``eval.onnx`` maps the tokens to logits, ``[rows, context,
            tokens]`` or ``[rows, tokens, context]``.
        folder: The folder of the page; an existing page is replaced.
        text: A UTF-8 file of at most 16 MiB that the page loads initially.
        alphabet: The characters of the tokens 0, 1, …; None if tokens are the bytes of UTF-8.
        packages: The node_modules folder with onnxruntime-web; searched for upward from the current
            folder if None.
        device: ``"wasm"`` or ``"webgpu"``, as for a page with data. The model writes in
            WebAssembly.

    Raises:
        ExportError: The files are not a language model with these tokens, a file or npm
            package is missing, the text is not UTF-8 or too long, or the folder contains other
            files.
    """
    source, where_to = Path(train), checked_device(device)
    where = f"file {str(source)!r}"
    session = open_training(source)
    files = training_files(source, (EVAL_FILE, *gpu_files(source, where_to)))
    tokens = _tokens(session, where)
    forward = open_session(files[EVAL_FILE])
    count = _BYTES if alphabet is None else _checked_alphabet(alphabet)
    manifest: dict[str, Any] = {
        "title": session.raw.get_modelmeta().custom_metadata_map.get(
            "closedform.model", session.name
        ),
        "inputs": inputs_of(session),
        "indices": indices_of(session),
        "external": external_files(files),
        "forward": inputs_of(forward),
        "context": tokens.shape[1],
        "initialContext": tokens.shape[1] or _DEFAULT_CONTEXT,
        "classAxis": _class_axis(forward, count, f"file {str(files[EVAL_FILE])!r}"),
        "alphabet": alphabet,
        "text": None if text is None else TEXT_FILE,
        "trained": [name for name in session.inputs if name.startswith(PARAM)],
        **gpu_manifest(source, where_to),
    }
    if text is not None:
        files[TEXT_FILE] = Path(text)
        read_text(Path(text))

    def fill(target: Path) -> None:
        copy_runtime(target, None if packages is None else Path(packages), device=where_to)
        write_loop_page(target, "text", device=where_to)
        for name, path in files.items():
            shutil.copyfile(path, target / name)
        manifest.update(write_model_of_page(target, source, session))
        (target / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    write_folder(Path(folder), fill)
    return Path(folder) / "index.html"


def _tokens(session: OnnxSession, where: str) -> Port:
    """The tokens of a batch: its first tensor, where its others are tensors of the same kind."""
    batch = {name: port for name, port in session.inputs.items() if name.startswith(BATCH)}
    ports = list(batch.values())
    is_fit = 1 <= len(ports) <= 2 and all(
        port.dtype.name == "int64" and len(port.shape) == 2 and port.shape == ports[0].shape
        for port in ports
    )
    if not is_fit:
        ports_text = ", ".join(
            f"{name} {port.dtype}{list(port.shape)}" for name, port in batch.items()
        )
        raise ExportError(
            "the batch of a language model must be int64 tokens [rows, context], and optionally "
            f"the tokens that follow; got {ports_text}",
            where=where,
            hint="export the model with a batch (tokens, following), or write a page with data",
        )
    return ports[0]


def _class_axis(forward: OnnxSession, count: int, where: str) -> int:
    """The axis of the tokens in the logits."""
    ports = list(forward.outputs.values())
    shape = ports[0].shape
    axes = [axis for axis in (2, 1) if len(shape) == 3 and shape[axis] == count]
    if not axes:
        raise ExportError(
            f"the first output must be logits of {count} tokens, [rows, context, {count}], "
            f"got {list(shape)}",
            where=where,
            hint="give the alphabet of the model, or train one whose tokens are bytes",
        )
    return axes[0]


def _checked_alphabet(alphabet: str) -> int:
    duplicates = sorted({letter for letter in alphabet if alphabet.count(letter) > 1})
    if not alphabet or duplicates:
        problem = f"{duplicates[0]!r} twice" if duplicates else "none"
        raise ExportError(f"the alphabet must have different characters, got {problem}")
    return len(alphabet)


def read_text(path: Path) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
        ExportError: The file does not exist, is longer than 16 MiB, or is not UTF-8.
    """
    check_file(path)
    where = f"file {str(path)!r}"
    if path.stat().st_size > MOST_TEXT:
        raise ExportError(
            f"the text must have at most {MOST_TEXT} bytes, got {path.stat().st_size}",
            where=where,
            hint="begin with a part of it",
        )
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExportError(f"the text is not UTF-8: {error}", where=where) from error
