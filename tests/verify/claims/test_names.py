"""Names of users and of files never coincide with the prover's own symbols or with arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import sympy as sp
from onnx import TensorProto, helper, numpy_helper

import closedform as cf
from closedform import claims, t
from closedform.errors import VerificationError
from closedform.verify.claims.files import verify_file
from closedform.verify.tactics.prover import prove
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import RESERVED
from closedform.verify.translation.from_onnx import from_onnx

OWN = ("t'", "previous value", "cycle", "phase", "any cycle", "period#")
NUMBERED = ("choice 1", "floor#0", "floor 1", "turns#0", "cosine 0", "angle 0", "atom 0", "power!0")


def of(name: str, **assumptions: bool) -> sp.Symbol:
    return sp.Symbol(name, real=True, **assumptions)


def test_a_second_step_is_not_a_hyperparameter() -> None:
    """With x = t', the later step, both would be increasing; for other x they are not."""
    x = of("t'", integer=True, nonnegative=True)
    for expr in (-((t - x) ** 2), sp.Piecewise((t, t <= x), (0, True))):
        verdict = claims.monotone(cf.Schedule(expr), "increasing").verify()
        assert verdict.refuted


def test_the_previous_value_is_not_a_hyperparameter() -> None:
    x = of("previous value")
    constant = cf.Schedule(x + 0 * t)
    assert claims.recurrence(constant, x, lambda previous, t: previous).verify().proved
    halved = claims.recurrence(constant, x, lambda previous, t: (previous + x) / 2)
    assert halved.verify().proved
    wrong = cf.Schedule(x**2)
    assert claims.recurrence(wrong, x**2, lambda previous, t: x).verify().refuted


def test_the_number_of_a_choice_is_not_a_hyperparameter() -> None:
    """With one symbol for the choice and for x, x - x = 0 would be proved."""
    x = of("choice 1")
    parts = [(sp.Integer(step % 3), t < step) for step in range(1, 12)]
    stairs = cf.Schedule(sp.Piecewise(*parts, (7, True)) - x)
    verdict = claims.bounded(stairs, 0, 0).verify()
    assert verdict.refuted
    assert verdict.counterexample is not None
    point = {name: sp.Rational(number) for name, number in verdict.counterexample.items()}
    assert stairs.bind({"choice 1": point["choice 1"]}).exact(int(point["t"])) != 0


@pytest.mark.parametrize("name", [*OWN, *NUMBERED])
def test_a_symbol_of_the_prover_differs_from_that_of_a_user(name: str) -> None:
    x = of(name)
    assert term(x) != build.own_symbol(name)
    assert prove(build.equal(term(x), build.floor(term(x)))).refuted
    curve = cf.Schedule(sp.Abs(x) ** sp.Rational(1, 3) + sp.floor(t / 3) + sp.cos(sp.pi * t / 7))
    assert not claims.bounded(curve, 0, 1).verify(budget=2).proved


def test_reserved_names_are_refused() -> None:
    with pytest.raises(VerificationError, match=rf"'{RESERVED}' are reserved .*'{RESERVED}x'"):
        build.symbol(f"{RESERVED}x")


# --- names of inputs -----------------------------------------------------------------------------


def scaled(name: str, path: Path) -> Path:
    """A file of the step times an optional input."""
    inputs = [("step", TensorProto.INT64), (name, TensorProto.DOUBLE)]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["step"], ["x"], to=TensorProto.DOUBLE),
            helper.make_node("Mul", ["x", name], ["value"]),
        ],
        "scaled",
        [helper.make_tensor_value_info(key, kind, []) for key, kind in inputs],
        [helper.make_tensor_value_info("value", TensorProto.DOUBLE, [])],
        initializer=[numpy_helper.from_array(np.asarray(2.5), name)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


@pytest.mark.parametrize("name", ["name", "expr", "self", "domain", "length", "cls", "values"])
def test_an_input_may_be_named_as_an_argument(name: str, tmp_path: Path) -> None:
    path = scaled(name, tmp_path / "scaled.onnx")
    lr = from_onnx(path)
    assert lr.hyperparameters == {name: sp.Rational(5, 2)}
    assert lr.name == "scaled"
    assert lr.length is None
    assert lr.exact(4) == 10
    assert lr.rename("other").exact(4) == 10
    assert lr.scale(2).exact(4) == 20
    assert lr.repeat(3).exact(4) == sp.Rational(5, 2)
    assert lr.bind({name: 1}).exact(4) == 4
    read, report = verify_file(path)
    assert read == lr
    assert not report.unknown
