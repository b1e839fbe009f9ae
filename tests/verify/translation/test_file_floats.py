"""A file that overflows where an operation hides it is not PROVED, and genuine files are."""

import onnx.parser
import pytest

from closedform import optimizers
from closedform.effort import Effort
from closedform.exporters.onnx_targets import OnnxFormat
from closedform.options import GraphOptions, ModelSpec
from closedform.referee.judgement import judge_step
from closedform.referee.own_files import prove_file
from closedform.verify.terms.verdict import Verdict
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model
from tests.support.rules import compiled_models
from tests.test_library import OPTIMIZERS
from tests.verify.tampered import sweep
from tests.verify.tampered_floats import FLOAT_EDITS, float_edit, float_subjects

PORTS = {"w": "param.w", "g": "grad.w", "next_w": "param.w"}
SGD = optimizers.sgd(lr=0.1)


def verdict_of(*lines: str, kind: str = "float") -> Verdict:
    """The verdict on a step of another tool: ``honest`` is that of the rule, ``out`` its output."""
    body = "\n".join(lines)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    step ({kind}[4] w, {kind}[4] g) => ({kind}[4] next_w)
    <{kind} rate = {{0.1}}, {kind} one = {{1}}, {kind} large = {{1e30}}, {kind} thousand = {{1000}},
     {kind} small = {{1e-30}}>
    {{
    change = Mul (rate, g)
    honest = Sub (w, change)
    other = Neg (honest)
    size = Abs (g)
    shifted = Add (size, thousand)
    y = Exp (shifted)
    {body}
    next_w = Identity (out)
    }}"""
    return judge_step(onnx.parser.parse_model(text), SGD, ports=PORTS).verdict


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    "lines",
    [
        ("z = Sub (y, y)", "test = IsNaN (z)", "out = Where (test, other, honest)"),
        ("z = Div (y, y)", "test = Equal (z, one)", "out = Where (test, honest, other)"),
        ("z = Add (y, y)", "test = Less (y, z)", "out = Where (test, honest, other)"),
        ("z = Mul (y, thousand)", "test = Equal (y, z)", "out = Where (test, other, honest)"),
        # No operation hides them, and they are infinite and NaN for all inputs.
        ("n = Neg (shifted)", "z = Exp (n)", "v = Mul (z, y)", "out = Mul (honest, v)"),
    ],
)
def test_an_overflow_that_is_hidden(lines: tuple[str, ...], kind: str) -> None:
    verdict = verdict_of(*lines, kind=kind)
    assert verdict.unknown
    assert "exp overflows in exp(" in verdict.reason or "may be NaN in (exp(" in verdict.reason
    assert "which its compiled source does not compute" in verdict.reason


SCALED = ("p = Mul (g, large)", "q = Mul (p, large)", "r = Mul (q, small)", "s = Mul (r, small)")


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    "lines",
    [
        (*SCALED, "d = Sub (s, g)", "e = Min (d, one)", "out = Add (honest, e)"),
        (
            *SCALED,
            "d = Sub (s, g)",
            "e = Max (d, one)",
            "f = Sub (one, e)",
            "out = Add (f, honest)",
        ),
        (
            "p = Add (size, one)",
            "q = Mul (p, large)",
            "r = Mul (q, large)",
            "s = Reciprocal (r)",
            "u = Mul (s, large)",
            "v = Mul (u, large)",
            "x = Mul (v, p)",
            "out = Mul (honest, x)",
        ),
    ],
)
def test_a_product_overflows_in_float32_and_not_in_float64(
    lines: tuple[str, ...], kind: str
) -> None:
    verdict = verdict_of(*lines, kind=kind)
    assert verdict.proved is (kind == "double")
    assert verdict.proved or "overflows" in verdict.reason


@pytest.mark.parametrize(
    "lines",
    [
        # Guards of engines and of other tools, which no ordinary input passes.
        ("t = IsNaN (g)", "out = Where (t, w, honest)"),
        ("s = ReduceSumSquare <keepdims = 0> (g)", "t = IsNaN (s)", "out = Where (t, w, honest)"),
        ("e = Max (honest, honest)", "out = Min (e, honest)"),
        ("z = Mul (y, y)", "out = Identity (honest)"),
    ],
)
def test_a_guard_that_no_ordinary_input_passes(lines: tuple[str, ...]) -> None:
    assert verdict_of(*lines).proved


# --- files of this package -----------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    "name",
    ["lamb", "adafactor", "adafactor_clamped", "prodigy", "d_adapt_sgd", "came", "shampoo"],
)
def test_a_genuine_file_is_proved(name: str) -> None:
    """The intervals of some of these leave values open, which their compiled rule has as well."""
    rule, options = OPTIMIZERS[name](), GraphOptions(dtype="f32")
    spec = ModelSpec(rule, {"w": (3, 4), "v": (3, 4), "u": (2, 5)})
    models = compiled_models(spec, options, OnnxFormat())
    kinds = Kinds(options.tensor_dtype, options.scalar_dtype)
    members = [(entry.rule, entry.params) for entry in spec.assignments]
    for kind in sorted(models.keys() & {"init", "step", "evaluation"}):
        verdict, _ = prove_file(kind, models[kind], Model(members, kinds), Effort.of(20_000_000))
        assert verdict.proved, (kind, verdict)


FEW = ("sgd in one graph", "sgd in 32 bits", "lion of optax")


@pytest.mark.parametrize("name", FEW)
def test_what_is_proved_has_its_meaning(name: str) -> None:
    result = sweep(float_subjects()[name](), 6, seed=1, edits=FLOAT_EDITS)
    assert result.wrong == []
    assert result.files == 6


def test_a_tangent_of_an_infinity_refutes_nothing() -> None:
    """It is read as a quotient of exponentials, which is NaN there; engines compute 1."""
    subject = float_subjects()["exponential in 32 bits"]()
    result = sweep(subject, 12, seed=2, edits=[float_edit("a power", "Tanh")])
    assert result.wrong == []
