"""The value that a file is read as is that of onnxruntime, or it has none."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import closedform as cf
from closedform.errors import ClosedFormError
from tests.importers.onnx_programs import REALS, differences, program_model, sweep

CAST = helper.make_node("Cast", ["step"], ["d"], to=TensorProto.DOUBLE)
node = helper.make_node


def test_a_program_is_read_as_it_runs() -> None:
    _, wrong = sweep(120, seed=1)
    assert wrong == []


PARTIAL = {
    "0 * (1 / t) + 1": [
        node("Div", ["one", "d"], ["a"]),
        node("Mul", ["a", "zero"], ["b"]),
        node("Add", ["b", "one"], ["value"]),
    ],
    "t / t": [node("Div", ["d", "d"], ["value"])],
    "1 / t - 1 / t": [node("Div", ["one", "d"], ["a"]), node("Sub", ["a", "a"], ["value"])],
    "1 / (1 / t)": [node("Div", ["one", "d"], ["a"]), node("Div", ["one", "a"], ["value"])],
    "0 * log(t)": [node("Log", ["d"], ["a"]), node("Mul", ["a", "zero"], ["value"])],
    "exp(log(t))": [node("Log", ["d"], ["a"]), node("Exp", ["a"], ["value"])],
}


@pytest.mark.parametrize("name", PARTIAL)
def test_a_value_that_is_dropped_has_its_steps(name: str) -> None:
    """At step 0 onnxruntime computes NaN, or by way of an infinity: no real number."""
    model = program_model(
        [CAST, *PARTIAL[name]], {key: np.float64(value) for key, value in REALS.items()}
    )
    schedule = cf.from_onnx(model)
    with pytest.raises(ClosedFormError, match="no value"):
        schedule.exact(0)
    assert schedule.exact(3) in (0, 1, 3)
    assert not list(differences(model))
    verdicts = {finding.claim.name: finding.shown for finding in schedule.verify(effort=0.2)}
    assert verdicts["total"] == "REFUTED"
    assert "PROVED" not in {verdicts["finite"], verdicts["total"]}


@pytest.mark.parametrize("op", ["Abs", "Neg"])
def test_the_least_integer_has_no_opposite(op: str) -> None:
    nodes = [node(op, ["low"], ["a"]), node("Cast", ["a"], ["value"], to=TensorProto.DOUBLE)]
    with pytest.raises(ClosedFormError, match="it has no value at any step"):
        cf.from_onnx(program_model(nodes, {"low": np.int64(-(2**63))}))
    nodes = [node("Add", ["low", "step"], ["s"]), node(op, ["s"], ["a"]), nodes[1]]
    schedule = cf.from_onnx(program_model(nodes, {"low": np.int64(-(2**63))}))
    with pytest.raises(ClosedFormError):
        schedule.exact(0)
    assert schedule.exact(1) == 2**63 - 1
