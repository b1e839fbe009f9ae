"""Runs the files of a folder in the runtime of this environment; needs NumPy and it alone.

``python run_files.py RUNTIME FOLDER RESULTS [FIRST]`` appends one line of JSON for each file from
number FIRST on, so that a runtime that kills the process is found and gone on after.
"""

import base64
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def decode(coded: Any) -> Any:
    flat = np.frombuffer(base64.b64decode(coded["data"]), np.dtype(coded["dtype"]))
    return flat.reshape(coded["shape"]).copy()


def encode(array: Any) -> Any:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def onnxruntime(path: str, inputs: Any) -> Any:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def reference(path: str, inputs: Any) -> Any:
    session = importlib.import_module("onnx.reference").ReferenceEvaluator(path)
    return dict(zip(session.output_names, session.run(None, inputs), strict=True))


def openvino(path: str, inputs: Any) -> Any:
    core = importlib.import_module("openvino").Core()
    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(path, "CPU", options)
    results = compiled(inputs)
    # An output that is an input has the names of both.
    return {name: results[port] for port in compiled.outputs for name in port.names}


def tract(path: str, inputs: Any) -> Any:
    runtime = importlib.import_module("tract")
    short = {"float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool"}
    model = runtime.onnx().load(path)
    names = [model.input_name(place) for place in range(model.input_count())]
    for place, name in enumerate(names):
        sizes = [str(size) for size in inputs[name].shape]
        model.set_input_fact(place, ",".join([*sizes, short[str(inputs[name].dtype)]]))
    outputs = OUTPUTS[Path(path).name]
    results = model.into_model().into_runnable().run([inputs[name] for name in names])
    return dict(zip(outputs, [result.to_numpy() for result in results], strict=True))


RUNTIMES = {
    "onnxruntime": onnxruntime,
    "onnx": reference,
    "openvino": openvino,
    "tract": tract,
}
OUTPUTS: dict[str, list[str]] = {}


def main(runtime: str, folder: str, results: str, first: str = "0") -> None:
    rows = json.loads((Path(folder) / "index.json").read_text())
    OUTPUTS.update({row["file"]: list(row["expected"]) for row in rows})
    with open(results, "a") as file:
        for row in rows[int(first) :]:
            inputs = {name: decode(coded) for name, coded in row["inputs"].items()}
            try:
                with np.errstate(all="ignore"):
                    outputs = RUNTIMES[runtime](str(Path(folder) / row["file"]), inputs)
                outputs = {name: encode(np.asarray(outputs[name])) for name in row["expected"]}
                line = {"name": row["name"], "outputs": outputs}
            except Exception as error:
                line = {"name": row["name"], "error": f"{type(error).__name__}: {error}"}
            file.write(json.dumps(line) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
