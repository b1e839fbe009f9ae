"""The expression language: what it builds, what it refuses, and that it evaluates nothing."""

import pytest
import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import FloorDiv, FloorMod, t
from closedform.recipes.expressions import parse_function

BUILT = {
    "0.95**t": sp.Rational(19, 20) ** t,
    "0.5*(1 + cos(pi*t/100))": (1 + sp.cos(sp.pi * t / 100)) / 2,
    "-1.0": sp.Integer(-1),
    "+t - -t": 2 * t,
    "t // 30": FloorDiv(t, 30),
    "t % 7": FloorMod(t, 7),
    "floor(t/30)": FloorDiv(t / 30, 1),
    "min(1, t/10)": sp.Min(1, t / 10),
    "max(t, 3, 5)": sp.Max(t, 5),
    "sqrt(4)": sp.Integer(2),
    "exp(-t/19)": sp.exp(-t / 19),
    "log(t + 1)": sp.log(t + 1),
    "where(t < 10, t/10, 1.0)": sp.Piecewise((t / 10, t < 10), (1, True)),
    "where(3 <= t < 5, 1, 0)": sp.Piecewise((1, (t >= 3) & (t < 5)), (0, True)),
    "where(t == 3 or not t > 1, 1, 0)": sp.Piecewise((1, sp.Eq(t, 3) | (t <= 1)), (0, True)),
    "where(t != 3 and t >= 1, 1, 0)": sp.Piecewise((1, sp.Ne(t, 3) & (t >= 1)), (0, True)),
}


@pytest.mark.parametrize("text", BUILT)
def test_expression_is_built(text: str) -> None:
    assert parse_function({"expr": text}, "lr_lambda") == BUILT[text]


HINT = (
    ": it has t, pi, numbers, + - * / // % **, comparisons and cos, sqrt, exp, log, floor, min, "
    "max, where"
)
REFUSED = {
    "__import__('os').system('ls')": "\"__import__('os').system('ls')\" is not a number of the "
    "expression language (f: \"__import__('os').system('ls')\")" + HINT,
    "t.real": "'t.real' is not a number of the expression language (f: 't.real')" + HINT,
    "[t for t in 'a']": "\"[t for t in 'a']\" is not a number of the expression language "
    "(f: \"[t for t in 'a']\")" + HINT,
    "lambda: t": "'lambda: t' is not a number of the expression language (f: 'lambda: t')" + HINT,
    "True": "'True' is not a number of the expression language (f: 'True')" + HINT,
    "1j": "'1j' is not a number of the expression language (f: '1j')" + HINT,
    "t < 3": "'t < 3' is not a number of the expression language (f: 't < 3')" + HINT,
    "x + 1": "unknown name 'x' (f: 'x + 1'): known are pi, t",
    "cosh(t)": "unknown function 'cosh' (f: 'cosh(t)'): did you mean 'cos'?",
    "cos(t, t)": "cos takes 1 arguments, got 2 (f: 'cos(t, t)')",
    "where(t, 1, 2)": "'t' is not a condition (f: 'where(t, 1, 2)'): "
    "write a comparison such as t < 10",
    "where(t in 3, 1, 2)": "'t in 3' is not a condition (f: 'where(t in 3, 1, 2)'): "
    "write a comparison such as t < 10",
    "1/0": "a function of the step divides by 0 (f: '1/0'): check the divisor",
    "9**9**9": "the power 9**387420489 is too large (f: '9**9**9'): write it as a smaller number",
    "1e999": "a number must be finite, got inf (f: '1e999')",
    "sqrt(-1)": "the expression 'sqrt(-1)' is not finite and real (f)",
    "t +": "cannot read the expression 't +' (f)",
    "": "cannot read the expression '' (f)",
    "(" * 300: f"cannot read the expression {'(' * 300!r} (f)",
    "1" + "+1" * 400: "an expression must have at most 400 parts (f)",
    "t" * 2001: "an expression must have at most 2000 characters, got 2001 (f)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_expression_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_function({"expr": text}, "f")
    assert str(caught.value) == REFUSED[text]


@pytest.mark.parametrize("spec", ["t", {"expr": 3}, {"expr": "t", "more": 1}, None])
def test_function_has_one_form(spec: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_function(spec, "f")
    assert str(caught.value) == f'a function must be {{"expr": text}}, got {spec!r} (f)'


def test_a_conditional_expression_is_a_branch() -> None:
    parsed = parse_function({"expr": "0.5 if epoch == 3 else 1.0"}, "lr_lambda", variable="epoch")
    assert [parsed.subs(t, step) for step in (2, 3, 4)] == [1, sp.Rational(1, 2), 1]
