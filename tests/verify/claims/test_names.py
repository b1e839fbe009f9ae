"""Names of users and of files never coincide with the prover's own symbols or with arguments."""

import ast
import copy
import pickle
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
import sympy as sp
from onnx import TensorProto, helper, numpy_helper

import closedform as cf
from closedform import claims, t
from closedform.errors import DefinitionError
from closedform.language.shapes import EPSILON, SIZE
from closedform.language.symbols import InternalName, internal_symbol
from closedform.verify.claims.files import verify_file
from closedform.verify.prover import prove
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term
from closedform.verify.translation.from_onnx import from_onnx

SOURCES = Path(cf.__file__).parent
CONSTRUCTORS = frozenset({"Symbol", "symbol", "symbols"})
INTERNAL = frozenset({"own_symbol", "internal_symbol"})
PUBLIC = {
    "language/symbols.py": {"t", "param", "grad", "state.0", "local.0"},
    "language/model.py": {"shared.0", "input.0"},
    "language/shapes.py": {"shape.rank", "shape.size", "dtype.epsilon", "shape[0]"},
}
"""The symbols of the language, which users write; the docs name them."""

ELSEWHERE = {
    # The clock as a real number, which is in no goal with the clock as an integer.
    "verify/terms/real_line.py": {"t"},
    # The clock.
    "verify/certificates/values.py": {"t"},
    # Only its assumptions are read.
    "language/settled.py": {"n"},
    # Traces of torch optimizers, whose hyperparameters are identifiers and become inputs.
    "importers/tensors/values.py": {"other.shape.size", "other.shape[0]", "other.0"},
    "importers/tensors/algebra.py": {"stacked"},
    # Formulas of laws, which contain no expression of a user.
    "laws/law.py": {"eta_k", "\\eta_{k-1}", "S_{k+1}", "S_k", "Q", "Q_k", "S", "k n", "n-k"},
    "laws/published.py": {"LD S2 N", "B C beta gamma", "L0 A alpha", "lambda", "D G"},
    # Operands of an exported operator, which has no hyperparameters.
}
"""The other names that are text, and the reason why no user's symbol meets them."""


def names_in_sources(constructors: frozenset[str]) -> dict[str, set[str]]:
    """Returns the texts that symbols are made of, by file; what is filled in is 0."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # To parse all files takes 5 s.
        if not any(f"{name}(" in text for name in constructors):
            continue
        for node in ast.walk(ast.parse(text)):
            name = _called(node) in constructors and _text(cast("ast.Call", node).args)
            if name:
                found.setdefault(path.relative_to(SOURCES).as_posix(), set()).add(name)
    return found


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(args: list[ast.expr]) -> str:
    """The first argument, where it is a text."""
    match args[:1]:
        case [ast.Constant(value=str(text))]:
            return text
        case [ast.JoinedStr(values=parts)]:
            return "".join(str(p.value) if isinstance(p, ast.Constant) else "0" for p in parts)
    return ""


LABELS = sorted({name for names in names_in_sources(INTERNAL).values() for name in names})
NAMES = [
    *LABELS,
    "previous value",
    "t'",
    "!",
    "!!",
    "!fresh floor!0",
    "!prover t'",
    "\N{SECTION SIGN}x",
]
ASSUMPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"positive": True},
    {"nonnegative": True},
    {"integer": True},
    {"integer": True, "nonnegative": True},
    {"integer": True, "positive": True},
)


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


def test_every_name_of_a_symbol_is_listed() -> None:
    """A new symbol with a text for a name is red: a user's symbol may have that name."""
    assert names_in_sources(CONSTRUCTORS) == {**PUBLIC, **ELSEWHERE}


def test_the_names_of_internal_symbols_are_read() -> None:
    assert {"previous", "later", "t'", "t/0", "choice 0", "cycle"} <= set(LABELS)


def test_an_internal_name_equals_no_text() -> None:
    name, twin = InternalName("x", "prover"), InternalName("x", "prover")
    other = InternalName("x", "recurrence")
    assert name == twin
    assert hash(name) == hash(twin)
    assert name not in ("x", other)
    assert "x" != name
    assert {name: 1, "x": 2, other: 3} == {"x": 2, twin: 1, other: 3}
    assert sorted(["y", name, "x", other, "a"]) == ["a", "x", name, other, "y"]
    assert pickle.loads(pickle.dumps(name)) == name
    assert copy.deepcopy(name) == name
    first, second = internal_symbol("x", "prover", real=True), sp.Symbol("x", real=True)
    assert first != second
    assert first + second != 2 * second
    assert first + second == second + first
    assert str(first) == "x"
    dummy = sp.Dummy("floor#0", dummy_index=1)
    assert len({term(dummy), term(sp.Symbol("floor#0 1")), build.own_symbol("floor#0 1")}) == 3


@pytest.mark.sample(every=19)
@pytest.mark.parametrize("assumptions", ASSUMPTIONS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_hyperparameter_may_have_any_name(name: str, assumptions: dict[str, bool]) -> None:
    x = of(name, **assumptions)
    ramp, square = cf.Schedule(x + t), cf.Schedule(-((t - x) ** 2))
    half = sp.Rational(1, 2)
    right = [
        claims.recurrence(ramp, x, lambda previous, _: previous + 1),
        claims.monotone(ramp, "strictly increasing"),
        claims.equal(cf.Schedule(x + t / 2), ramp, scale=half),
        claims.periodic(cf.Schedule(x * sp.cos(2 * sp.pi * t / 7)), 7),
        claims.bounded(ramp, x),
    ]
    stairs = sp.Piecewise(*((sp.Integer(k % 3), t < k) for k in range(1, 12)), (7, True))
    wrong = [
        claims.recurrence(ramp, x, lambda previous, _: x + 1),
        claims.monotone(square, "increasing") if assumptions.get("integer") else None,
        claims.equal(cf.Schedule(x + t / 2), cf.Schedule(2 * x + t), scale=half),
        claims.bounded(cf.Schedule(stairs - x), 0, 0),
    ]
    for claim in right:
        assert claim.verify().status.value == "PROVED", claim.sentence
    for claim in filter(None, wrong):
        assert claim.verify().status.value == "REFUTED", claim.sentence


@pytest.mark.parametrize("name", ["grad", "param", "state.mean", "shape.size", "dtype.epsilon"])
def test_a_rule_refuses_a_hyperparameter_with_the_name_of_a_symbol(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"may not be named {name!r}"):
        cf.UpdateRule(
            "plain",
            cf.expr.PARAM - SIZE * EPSILON * cf.expr.state("mean"),
            {"mean": cf.expr.State(cf.expr.state("mean") + cf.expr.GRAD)},
            {name: 0.5},
        )


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", NAMES)
def test_a_symbol_of_the_prover_differs_from_that_of_a_user(name: str) -> None:
    x = of(name)
    assert term(x) != build.own_symbol(name)
    assert prove(build.equal(term(x), build.floor(term(x)))).refuted
    curve = cf.Schedule(sp.Abs(x) ** sp.Rational(1, 3) + sp.floor(t / 3) + sp.cos(sp.pi * t / 7))
    assert not claims.bounded(curve, 0, 1).verify(effort=0.2).proved


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
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
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
