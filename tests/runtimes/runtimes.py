"""The runtimes that the files are run in: one row each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from closedform.ir.ops import Op

SMALL: Mapping[str, Any] = MappingProxyType(
    {"dtype": "f32", "scalar_dtype": "f32", "step_dtype": "i32"}
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """One runtime of a version.

    Attributes:
        engine: Its function in ``run_files.py``, or "web" for ``run_files.mjs``.
        target: Its target in ``closedform.exporters.onnx_targets``.
        packages: What is installed for it: by pip, or by npm for "web".
        options: Options of ``GraphOptions``.
        ulp: What its operations may be off beyond the op table, with ``note`` as the reason;
            ``op_probes.py`` measures each.
        note: How it differs, for the page.
    """

    engine: str
    target: str
    packages: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    ulp: Mapping[Op, float] = field(default_factory=dict)
    note: str = ""


def _onnxruntime(version: str, *others: str) -> Runtime:
    target = f"onnxruntime>={version.rpartition('.')[0]}"
    return Runtime("onnxruntime", target, (f"onnxruntime=={version}", *others))


RUNTIMES: Mapping[str, Runtime] = {
    "onnxruntime 1.16": _onnxruntime("1.16.3", "numpy<2"),
    "onnxruntime 1.17": _onnxruntime("1.17.0", "numpy<2"),
    "onnxruntime 1.20": _onnxruntime("1.20.0"),
    "onnxruntime 1.23": _onnxruntime("1.23.0"),
    "onnxruntime 1.32": _onnxruntime("1.32.0"),
    "onnxruntime 1.32, 32 bits": Runtime(
        "onnxruntime",
        "32-bit",
        ("onnxruntime==1.32.0",),
        options={**SMALL, "precision": "double-float"},
    ),
    "onnxruntime-web 1.30": Runtime("web", "onnxruntime-web>=1.30", ("onnxruntime-web@1.30",)),
    "onnx.reference 1.23": Runtime("onnx", "onnx>=1.17", ("onnx==1.23.2",)),
    "tract 0.23": Runtime(
        "tract",
        "tract",
        ("tract==0.23.9", "numpy"),
        ulp={Op.DIV: 1.0, Op.MUL: 1.0},
        note="divides by multiplying with the inverse, and multiplies constants first; has no "
        "bfloat16",
    ),
    "OpenVINO 2026.4": Runtime(
        "openvino",
        "openvino",
        ("openvino==2026.4.1",),
        options=SMALL,
        ulp={Op.ADD: 1.0, Op.SUB: 1.0, Op.MUL: 1.0, Op.DIV: 1.0},
        note="computes float64 in float32 and int64 in int32, so the files have neither; "
        "contracts products and sums, also after moving constants, and divides by multiplying with "
        "the inverse",
    ),
}
