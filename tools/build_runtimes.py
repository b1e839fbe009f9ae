"""Writes docs/runtimes.md: which back ends and runtimes compute which schedules and rules.

`make runtimes` runs it, on the results that `make compare-runtimes` stored in backends.json and
runtimes.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from closedform.exporters.onnx_targets import (
    ALL_DTYPES,
    TARGETS,
    Target,
    find_target,
    lowest_ir_version,
)
from tools.sections import DOCS, RESULTS_FOLDER

PAGE = DOCS / "runtimes.md"
RESULTS = RESULTS_FOLDER / "runtimes.json"
BACKENDS = RESULTS_FOLDER / "backends.json"

_HEAD = """\
# Back ends and runtimes

Where exported schedules and optimizers run, and what each place refuses. `make compare-runtimes`
computes each schedule of the library, every scheduler class of every framework, and one step of
every rule in each. An entry passes if all its outputs are the values of the evaluator within what
the [op table](how_to_add_an_op.md) admits, and what the last column adds.

## Back ends

[ONNX](optimizer_in_onnxruntime.md), [torch](torch.md), [JAX](jax.md), [C](c.md) and [MLX](mlx.md)
have one op table and one printer each: [how to add a back end](how_to_add_a_back_end.md).
[Keras](keras.md) runs the graphs in JAX and torch.

| back end | schedules | rules | refused | differences |
| --- | --- | --- | --- | --- |
"""

_RUNTIMES = """
## Runtimes that read ONNX

One file of each schedule and of the step of each rule. Differences were measured for the operations
of the runtime alone, in units in the last place.

| runtime | target | opset | IR | schedules | rules | refused | differences |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

_TARGETS = """
## Targets

`cf.to_onnx(…, target="onnxruntime>=1.17")` and `closedform export --target` choose the versions of
a file. A target without a version is the lowest one of the table. The IR version is the lowest that
the opset needs.

| target | opset | IR | local functions | dtypes | run in |
| --- | --- | --- | --- | --- | --- |
"""

_TAIL = """
- Up to 1.23, onnxruntime has no `Cos` of float64: cosines are written as sines.
- onnxruntime 1.16 removes a conversion to bfloat16 and back, which rounds: files for it have none.
- Local functions (`inline=False`) do not load in tract and OpenVINO; a flat step is the default.
- OpenVINO computes float64 in float32, and int64 in int32, without a message: export for it with
  `dtype="f32"`, `scalar_dtype="f32"` and `step_dtype="i32"`. It contracts products and sums, on
  which `precision="double-float"` must not rest: it was not tested there.
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
    others = json.loads(BACKENDS.read_text(encoding="utf-8"))
    backends = [
        _line([name, *_counts(result), _reasons(result["refused"]), _note(result)])
        for name, result in others.items()
    ]
    rows = [_row(name, result) for name, result in results.items()]
    targets = [
        f"| `{name}{_version(lowest)}` | {target.opset} | {lowest_ir_version(target.opset)} | "
        f"{'yes' if target.has_functions else 'no'} | {_dtypes(target.dtypes)} | "
        f"{_runs(target, results)} |"
        for name, versions in TARGETS.items()
        for lowest, target in versions.items()
    ]
    head = _HEAD + "\n".join(backends)
    return "\n".join([head, _RUNTIMES + "\n".join(rows), _TARGETS + "\n".join(targets), _TAIL])


def _version(lowest: tuple[int, ...]) -> str:
    return f">={'.'.join(map(str, lowest))}" if lowest else ""


def _dtypes(dtypes: frozenset[Any]) -> str:
    return "all" if dtypes == ALL_DTYPES else ", ".join(sorted(dtypes))


def _runs(target: Target, results: Mapping[str, Mapping[str, Any]]) -> str:
    """The runtimes in which files for a target were run."""
    names = [name for name, one in results.items() if find_target(one["target"]) is target]
    return ", ".join(names) or "not run"


def _counts(result: Mapping[str, Any]) -> list[str]:
    passed, refused = result["passed"], result["refused"]
    kinds = ("schedules", "rules")
    return [f"{passed[kind]} of {passed[kind] + len(refused[kind])}" for kind in kinds]


def _escaped(text: str) -> str:
    """A text in a cell of a table, its asterisks not those of emphasis."""
    return text.replace("|", "/").replace("*", r"\*")


def _reasons(refused: Mapping[str, Mapping[str, str]]) -> str:
    """The entries that are refused, by reason."""
    names: dict[str, list[str]] = {}
    for of in refused.values():
        for entry, reason in of.items():
            names.setdefault(_escaped(reason.strip()), []).append(f"`{entry}`")
    return "; ".join(f"{', '.join(of)}: {reason}" for reason, of in names.items()) or "none"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _note(result: Mapping[str, Any]) -> str:
    """How the values differ, and by how much single operations do."""
    over = [f"`{probe}` {error:g} ulp" for probe, error in result.get("over", {}).items()]
    return (result["note"] or "none") + (f" ({', '.join(over)})" if over else "")


def _row(name: str, result: Mapping[str, Any]) -> str:
    cells = [name, f"`{result['target']}`", str(result["opset"])]
    cells += [str(lowest_ir_version(result["opset"])), *_counts(result)]
    return _line([*cells, _reasons(result["refused"]), _note(result)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
