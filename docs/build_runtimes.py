"""Writes docs/runtimes.md: which runtimes run the files of which schedules and rules.

`make runtimes` runs it, on the results that `make compare-runtimes` stored in runtimes.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from closedform.exporters.onnx_targets import ALL_DTYPES, TARGETS, lowest_ir_version

DOCS = Path(__file__).parent
PAGE = DOCS / "runtimes.md"
RESULTS = DOCS / "runtimes.json"

_HEAD = """\
# Runtimes that read ONNX

Written by `make runtimes` from the results of `make compare-runtimes`, which runs one file of every
schedule of the library, of every scheduler class of every framework, and one step of every rule, in
each runtime. A file passes if all its outputs are the values of the evaluator within what the
[op table](how_to_add_an_op.md) admits, and what the last column adds.

| runtime | target | opset | IR | schedules | rules | refused | differences |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

_TARGETS = """
## Targets

`cf.to_onnx(…, target="onnxruntime>=1.17")` and `closedform export --target` choose the versions of
a file. A target without a version is the lowest one of the table. The IR version is the lowest that
the opset needs.

| target | opset | IR | local functions | dtypes |
| --- | --- | --- | --- | --- |
"""

_TAIL = """
- Up to 1.23, onnxruntime has no `Cos` of float64: cosines are written as sines.
- Local functions (`inline=False`) do not load in tract and OpenVINO; a flat step is the default.
- OpenVINO computes float64 in float32, and int64 in int32, without a message: export for it with
  `dtype="f32"`, `scalar_dtype="f32"` and `step_dtype="i32"`.
- `target="32-bit"` is for devices without float64 and int64. The written file is checked: every
  input, output, constant and value between nodes is f32, i32 or bool.

```python
import closedform as cf

lr = cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))
model = cf.to_onnx(lr, "lr.onnx", target="onnxruntime>=1.17")
assert (model.opset_import[0].version, model.ir_version) == (20, 9)
```
"""


def page() -> str:
    """Returns the text of the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [_row(name, result) for name, result in results.items()]
    targets = [
        f"| `{name}{_version(lowest)}` | {target.opset} | {lowest_ir_version(target.opset)} | "
        f"{'yes' if target.has_functions else 'no'} | {_dtypes(target.dtypes)} |"
        for name, versions in TARGETS.items()
        for lowest, target in versions.items()
    ]
    return "\n".join([_HEAD + "\n".join(rows), _TARGETS + "\n".join(targets), _TAIL])


def _version(lowest: tuple[int, ...]) -> str:
    return f">={'.'.join(map(str, lowest))}" if lowest else ""


def _dtypes(dtypes: frozenset[Any]) -> str:
    return "all" if dtypes == ALL_DTYPES else ", ".join(sorted(dtypes))


def _row(name: str, result: Mapping[str, Any]) -> str:
    passed, refused = result["passed"], result["refused"]
    counts = [
        f"{passed[kind]} of {passed[kind] + len(refused[kind])}" for kind in ("schedules", "rules")
    ]
    reasons = [
        f"`{entry}`: {reason.replace('|', '/')}"
        for of in refused.values()
        for entry, reason in of.items()
    ]
    cells = [name, f"`{result['target']}`", str(result["opset"])]
    cells += [str(lowest_ir_version(result["opset"])), *counts, "; ".join(reasons) or "none"]
    return f"| {' | '.join(cells)} | {result['note'] or 'none'} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
