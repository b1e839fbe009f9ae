"""A file of this package is refuted by a run, as a file of another tool is, or a run need not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import sympy as sp
from flint import arb, fmpq

import closedform as cf
from closedform import optimizers, transforms
from closedform.language import GRAD, PARAM, UpdateRule, hyper, state
from closedform.referee.file_report import FileReport, check_file
from closedform.verify.terms.build import add, rational, symbol
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.sides import Sides, sides_of
from closedform.verify.translation.scales import MOST_SIZES, scales_of, sizes_of_runs
from tests.referee.host_steps import element_of, tensor_of_text
from tests.support.commands import CliRunner
from tests.test_library import OPTIMIZERS
from tests.verify.translation.test_rule_faults import with_eps_inside, with_sign

RMSPROP = optimizers.rmsprop(0.01, alpha=0.99)
AVERAGE = hyper("alpha") * state("square_avg") + (1 - hyper("alpha")) * GRAD**2
FLOOR = replace(
    RMSPROP,
    param=PARAM
    - hyper("lr")
    * GRAD
    / (sp.sqrt(sp.Max(AVERAGE, (1 - hyper("alpha")) * GRAD**2)) + hyper("eps")),
)
"""RMSprop whose average stays above its newest part: it always is, but where it begins below 0."""


def report_of(
    folder: Path,
    rule: UpdateRule,
    other: UpdateRule,
    file: str = "step",
    shape: tuple[int, ...] = (2, 3),
) -> FileReport:
    """Returns the report of a file of a rule against another one."""
    cf.to_onnx(rule, folder, params={"w": shape})
    return check_file(folder / f"{file}.onnx", other)


def test_a_state_that_no_run_reaches(tmp_path: Path) -> None:
    report = report_of(tmp_path, FLOOR, RMSPROP)
    row = report.rows[0]
    assert (row.verdict, row.is_reached, report.exit_code()) == ("UNKNOWN", False, 5)
    assert row.detail.endswith(": a run need not reach this state")
    assert row.counterexample["state.w.square_avg"].startswith("-")
    assert FileReport.of_data(json.loads(json.dumps(report.as_data()))) == report


def test_the_exit_code_of_a_state_that_no_run_reaches(tmp_path: Path) -> None:
    cf.to_onnx(FLOOR, tmp_path, params={"w": (2,)})
    source = tmp_path / "mine.py"
    source.write_text("import closedform as cf\nrule = cf.optimizers.rmsprop(0.01, alpha=0.99)\n")
    words = ["verify", str(tmp_path / "step.onnx"), "--against", f"{source}:rule"]
    result = CliRunner().invoke(words)
    assert result.exit_code == 5
    assert "a run need not reach this state" in " ".join(result.stdout.split())


@pytest.mark.parametrize("function", ["Sqrt", "Log"])
@pytest.mark.parametrize("name", ["adamw", "sgd", "lion"])
def test_a_file_that_is_undefined_is_refuted_by_the_number_of_an_engine(
    name: str, function: str, tmp_path: Path
) -> None:
    """A guard of a guard: it has no value over the real numbers, and one in onnxruntime."""
    rule = OPTIMIZERS[name]()
    cf.to_onnx(rule, tmp_path, params={"w": (2,)})
    model = onnx.load(tmp_path / "step.onnx")
    output = "next.param.w"
    for node in model.graph.node:
        node.output[:] = ["honest" if result == output else result for result in node.output]
    for constant, number in (("minus", -1.0), ("nan", float("nan"))):
        tensor = onnx.helper.make_tensor(constant, onnx.TensorProto.FLOAT, [], [number])
        model.graph.initializer.append(tensor)
    for operator, operands, result in (
        ("Mul", ["grad.w", "grad.w"], "square"),
        ("Sub", ["minus", "square"], "negative"),
        (function, ["negative"], "undefined"),
        ("IsNaN", ["undefined"], "is_nan"),
        ("Where", ["is_nan", "nan", "honest"], "guarded"),
        ("IsNaN", ["guarded"], "is_guarded"),
        ("Neg", ["honest"], "opposite"),
        ("Where", ["is_guarded", "opposite", "honest"], output),
    ):
        model.graph.node.append(onnx.helper.make_node(operator, operands, [result]))
    onnx.save(model, tmp_path / "step.onnx")
    report = check_file(tmp_path / "step.onnx", rule)
    row = report.rows[0]
    assert (row.verdict, report.exit_code()) == ("REFUTED", 1), row
    assert "is undefined" in row.detail
    assert "; onnxruntime computes " in row.detail


@pytest.mark.parametrize("shape", [(2, 3), (300, 50)])
def test_a_fault_of_an_own_file_is_a_run(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Too many elements for exact numbers are one number for all of them."""
    rule = optimizers.adamw(0.01)
    report = report_of(tmp_path, with_sign(rule), rule, shape=shape)
    row = report.rows[0]
    assert (row.verdict, report.exit_code()) == ("REFUTED", 1)
    assert row.detail.startswith("after 1 step param.w")
    assert "; onnxruntime computes " in row.detail
    place = row.detail.removeprefix("after 1 step ").partition(" is ")[0]
    place = place if "[" in place else f"{place}[{', '.join('0' for _ in shape)}]"
    values = []
    for source in ("step", "right/step"):
        if source != "step":
            cf.to_onnx(rule, tmp_path / "right", params={"w": shape})
        session = onnxruntime.InferenceSession(tmp_path / f"{source}.onnx")
        feed = {
            entry.name: np.broadcast_to(
                tensor_of_text(
                    row.counterexample.get(entry.name)
                    or row.counterexample.get(f"{entry.name} at t = 0", "0")
                ),
                entry.shape,
            ).astype(np.int64 if "int" in entry.type else np.float32)
            for entry in session.get_inputs()
        }
        names = [entry.name for entry in session.get_outputs()]
        results = dict(zip(names, session.run(names, feed), strict=True))
        values.append(element_of({"param.w": results["next.param.w"]}, place))
    gap = float(row.detail.partition("they differ by ")[2].partition(";")[0])
    # It is printed with three digits.
    assert abs(values[0] - values[1]) == pytest.approx(gap, rel=5e-3)


@pytest.mark.parametrize(
    "other", [optimizers.sgd(0.01), optimizers.lion(0.01), optimizers.adamw(0.01, eps=1e-6)]
)
def test_another_optimizer_is_refuted(tmp_path: Path, other: UpdateRule) -> None:
    row = report_of(tmp_path, optimizers.adamw(0.01), other).rows[0]
    assert row.verdict == "REFUTED", row
    assert "; onnxruntime computes " in row.detail


def test_a_step_that_is_accumulated_does_not_count(tmp_path: Path) -> None:
    """Of three gradients the third one makes the step, and the clock of the rule goes on there."""
    rule, other = (transforms.accumulate(optimizers.sgd(rate), 3) for rate in (0.1, 0.2))
    row = report_of(tmp_path, rule, other).rows[0]
    assert row.verdict == "REFUTED", row
    assert row.detail.startswith("after 3 steps param.w")


def test_a_product_of_matrices_is_run_with_its_elements(tmp_path: Path) -> None:
    row = report_of(tmp_path, optimizers.muon(0.1), optimizers.muon(0.2), shape=(2, 2)).rows[0]
    assert row.verdict == "REFUTED", row


def test_eps_inside_of_the_root_of_an_own_file(tmp_path: Path) -> None:
    rule = optimizers.adamw(1e-3, eps=1e-8, weight_decay=1e-2)
    symbols = {entry.name: entry for entry in rule.param.free_symbols}
    inside = with_eps_inside(rule)
    inside = replace(inside, param=inside.param.xreplace({symbols["eps"]: symbols["eps"] ** 2}))
    row = report_of(tmp_path, inside, rule).rows[0]
    assert row.verdict == "REFUTED", row


def test_a_point_of_evaluation_at_a_state_of_a_run(tmp_path: Path) -> None:
    rule = optimizers.schedule_free_sgd(0.1)
    assert rule.evaluation is not None
    same = report_of(tmp_path, rule, rule, "evaluation")
    assert same.rows[0].verdict == "PROVED"
    other = replace(rule, evaluation=(rule.evaluation + PARAM) / 2)
    row = check_file(tmp_path / "evaluation.onnx", other).rows[0]
    assert row.verdict == "REFUTED", row
    assert row.detail.startswith("after ")
    assert " steps evaluation.w[" in row.detail


def test_a_file_of_first_states(tmp_path: Path) -> None:
    rule = optimizers.adagrad(0.1)
    other = optimizers.adagrad(0.1, initial_accumulator_value=0.1)
    row = report_of(tmp_path, rule, other, "init").rows[0]
    assert row.verdict == "REFUTED", row


# --- sides and sizes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "texts", "difference"),
    [
        (fmpq(1, 9), fmpq(1, 8), ("1/9", "1/8"), "0.0139"),
        # Powers of two: sums of other balls are rounded in another way by python-flint 0.7.
        (fmpq(1, 8), arb("0.125 +/- 1e-20") + fmpq(1, 2**46), None, "1.42e-14"),
        (arb("0.3 +/- 1e-9"), fmpq(3, 10) + fmpq(1, 10**7), None, "1.00e-7"),
        (fmpq(1) + fmpq(1, 2**100), fmpq(1), None, "7.89e-31"),
        (Undefined("1 / 0"), fmpq(1, 2), ("undefined (1 / 0)", "1/2"), ""),
    ],
)
def test_both_sides_differ_as_texts(
    left: Any, right: Any, texts: tuple[str, str] | None, difference: str
) -> None:
    sides = sides_of(left, right)
    assert sides.left != sides.right
    assert sides.difference == difference
    if texts is not None:
        assert (sides.left, sides.right) == texts
    assert isinstance(sides, Sides)
    assert sides.suffix == (f": they differ by {difference}" if difference else "")


def test_sizes_are_those_of_constants() -> None:
    x = symbol("x")
    assert scales_of([add(x, rational(1e-8)), x]) == (-27, -54, -13)
    assert scales_of([add(x, rational(3))]) == ()
    sizes = list(sizes_of_runs(scales_of([add(x, rational(1e-6))])))
    assert any(run.gradients == (-20,) for run in sizes)
    assert any(None in run.gradients for run in sizes)
    many = list(sizes_of_runs(range(-140, 60)))
    assert len({run.gradients for run in many}) <= 2 * MOST_SIZES
    # The sizes of a run move on from step to step.
    assert sizes[4].at(0) != sizes[4].at(1)
    assert sizes[4].at(0) == sizes[4].at(len(sizes[4].gradients))
