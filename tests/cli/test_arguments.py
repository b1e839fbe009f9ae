from typing import Any

import pytest

from closedform.cli.arguments import free_arguments, parse_literal, parse_shapes, parse_steps
from closedform.cli.parser import UsageError
from closedform.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("100_000", 100_000),
        ("3e-4", 3e-4),
        (".5", 0.5),
        ("1.", 1.0),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("cos", "cos"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("__import__('os')", "__import__('os')"),
        ("1,2.5,-3", [1, 2.5, -3]),
        ("a,b", "a,b"),
        ("where(t<3,1,2)", "where(t<3,1,2)"),
        ("[1, [2, true], null]", [1, [2, True], None]),
        (
            '{"class": "linear", "kwargs": {"steps": 3}}',
            {"class": "linear", "kwargs": {"steps": 3}},
        ),
        ("", ""),
    ],
)
def test_literal(text: str, value: Any) -> None:
    parsed = parse_literal(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", r"'\[1, 2' is not valid JSON: Expecting ',' delimiter"),
        ("[NaN]", r"'\[NaN\]' is not valid JSON: NaN is not a JSON number: quote it"),
        ("{class: 1}", "Expecting property name enclosed in double quotes"),
    ],
)
def test_broken_json_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_literal(text)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["--total-iters", "100"], {"total_iters": 100}),
        (["--start=-1e-3"], {"start": -1e-3}),
        (["--low", "-1"], {"low": -1}),
        (["--cycle", "--no-nesterov"], {"cycle": True, "nesterov": False}),
        (["--no-nesterov", "--T_max", "5"], {"nesterov": False, "T_max": 5}),
        (["--expr="], {"expr": ""}),
    ],
)
def test_free_arguments(words: list[str], arguments: dict[str, Any]) -> None:
    assert free_arguments(words) == arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["3"], "expected --name value, got '3'"),
        (["--a", "1", "2"], "expected --name value, got '2'"),
        (["--"], "expected --name value, got '--'"),
        (["--b-c", "1", "--b_c", "2"], "--b_c is given twice"),
    ],
)
def test_invalid_arguments(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        free_arguments(words)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("5", range(5)),
        ("2:5", range(2, 5)),
        ("0:1000:10", range(0, 1000, 10)),
        ("0:1_000:500", range(0, 1000, 500)),
    ],
)
def test_steps(text: str, steps: range) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "steps must be start:stop:stride in integers, got 'a'"),
        ("1:2:3:4", "got '1:2:3:4'"),
        ("-1:5", "got '-1:5'"),
        ("0:", "got '0:'"),
        ("5:5", "the range of steps '5:5' is empty"),
        ("0:9:0", "the range of steps '0:9:0' is empty"),
        (str(2**50 + 2), f"steps must be in 0..{2**50}, got {2**50 + 2}"),
        ("9" * 5000, f"steps must be in 0..{2**50}, got {'9' * 60}"),
        ("0:1125899906842624", "give a stride, as in --steps 0:1125899906842624:281474977"),
        (f"0:5:{2**63}", f"steps must be in 0..{2**50}, got 0:5:{2**63}"),
    ],
)
def test_invalid_steps(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_steps(text)


def test_shapes() -> None:
    assert parse_shapes(["w=64x10", "b=10", "s="]) == {"w": (64, 10), "b": (10,), "s": ()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["w"],
            r"expected name=64x10 with positive sizes, or a file .npz or .safetensors",
        ),
        (["=3"], "got '=3'"),
        (["w=3x"], "got 'w=3x'"),
        (["w=0"], "got 'w=0'"),
        (["w=-1"], "got 'w=-1'"),
        (["v=3", "v=4"], "parameter 'v' is given twice"),
    ],
)
def test_invalid_shapes(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_shapes(words)
