"""Deliberate mistakes: each is one clear error that says what was expected, given and to do."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import Group, OptimizerSession, ScheduleSession, optimizers, schedules, transforms
from closedform.errors import ClosedFormError

LR = schedules.cosine(1e-3, 1e-5, 100)
WARMUP = schedules.linear(0, 1e-3, 10)
SGD = optimizers.sgd(lr=0.1)
ANY: Any = None
"""A value of a wrong type, past the type checker."""


def untyped(value: object) -> Any:
    return value


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "then a number": (
        lambda: WARMUP.then(untyped(3e-4)),
        "then takes a Schedule, got float 0.0003 (schedule 'linear'): "
        "closedform.schedules.constant(0.0003) is one",
    ),
    "then nothing": (
        lambda: WARMUP.then(ANY),
        "then takes a Schedule, got NoneType None (schedule 'linear'): "
        "make one with closedform.schedules or closedform.Schedule",
    ),
    "sequential of a number": (
        lambda: cf.schedules.sequential([LR, untyped(1)]),
        "sequential takes Schedules, got int 1 (member 1): closedform.schedules.constant(1) is one",
    ),
    "sequential of one": (
        lambda: cf.schedules.sequential(untyped(3)),
        "sequential takes a list of Schedules, got int 3: give a list: sequential([first, second])",
    ),
    "shape as text": (
        lambda: cf.compile(LR, step_shape=untyped("n")),
        "step_shape must be a tuple of integers >= 0 and names, got str 'n': "
        'give () for one step, or ("n",) for any number of steps',
    ),
    "shape as a number": (
        lambda: cf.compile(LR, step_shape=untyped(3)),
        "step_shape must be a tuple of integers >= 0 and names, got int 3",
    ),
    "negative shape": (lambda: cf.compile(LR, step_shape=(-1,)), "got tuple (-1,)"),
    "list of shapes": (
        lambda: cf.to_onnx(SGD, "x", params=untyped([(3,)])),
        "params must be a mapping from name to shape, got list [(3,)] (rule 'sgd'): "
        'give params={"w": (3, 4), …}',
    ),
    "list of groups": (
        lambda: cf.compile(SGD, params={"w": (3,)}, groups=untyped([3])),
        "groups must be a list of Groups, got list [3]",
    ),
    "a group": (
        lambda: cf.compile(SGD, params={"w": (3,)}, groups=untyped(Group("w"))),
        "groups must be a list of Groups, got Group",
    ),
    "group of a number": (lambda: Group(untyped(3)), "must be names or globs, got int 3"),
    "no path": (
        lambda: cf.to_onnx(LR, untyped(3)),
        "path must be the path of a file or folder, got int 3: "
        'give one, such as "lr.onnx", or leave it out to write no file',
    ),
    "no path of a rule": (
        lambda: cf.to_onnx(SGD, untyped(3), params={"w": (3,)}),
        "path must be the path of a file or folder, got int 3",
    ),
    "a schedule to verify a file against": (
        lambda: cf.verify_file("lr.onnx", against=untyped(LR)),
        "end = 1e-05, start = 0.001, steps = 100>: a schedule is given as text: "
        "'cosine --start 1 --end 0 --steps 100', or 'file.py:name'",
    ),
    "a number to verify a file against": (
        lambda: cf.verify_file("step.onnx", against=untyped(3)),
        "against must be text, a rule or rules by parameter, got int 3",
    ),
    "a list to verify a file against": (
        lambda: cf.verify_file("step.onnx", against=untyped([SGD])),
        "against must be text, a rule or rules by parameter, got list",
    ),
    "no path to verify": (
        lambda: cf.verify_file(ANY),
        "must be the path of an ONNX file, got None",
    ),
    "swapped arguments": (
        lambda: schedules.linear(2000, 0, 3e-4),
        "steps must be a whole number of steps, got 0.0003 (linear): look at the order of the "
        "arguments; a part of a step is a Fraction",
    ),
    "swapped arguments of a cosine": (
        lambda: schedules.cosine(100, 0, 1e-3),
        "steps must be a whole number of steps, got 0.001 (cosine)",
    ),
    "divided by zero": (lambda: LR / 0, "the divisor must not be 0, got 0 (schedule 'cosine')"),
    "difference to nothing": (
        lambda: cf.diff(LR, ANY),
        "b must be a Schedule, a Recipe or a log, got NoneType None (diff)",
    ),
    "difference to a name": (
        lambda: cf.diff(untyped("cosine"), LR),
        "a must be a Schedule, a Recipe or a log, got str 'cosine' (diff): "
        "load_recipe reads a config, from_python a function of the step, from_onnx a file; "
        "`closedform diff` takes all of them",
    ),
    "difference to a rule": (lambda: cf.diff(LR, untyped(SGD)), "b must be a Schedule"),
    "until beyond all steps": (
        lambda: cf.diff(LR, cf.schedules.constant(1), until=10**400),
        "until must be an integer of at least 1 and at most 1125899906842624, got int",
    ),
    "an offset beyond all steps": (
        lambda: cf.recover(dict.fromkeys(range(6), 0.1), offset=-(10**400)),
        "offset must be an integer from -",
    ),
    "a logged value without an end": (
        lambda: cf.recover({1: 0.1, 2: 0.2, 3: untyped(sp.exp(sp.exp(sp.exp(20))))}),
        "a value of a log has an exponential whose exponent is beyond",
    ),
    "an offset as text": (
        lambda: cf.recover(dict.fromkeys(range(6), 0.1), offset=untyped("1")),
        "got str '1' (recover)",
    ),
    "a decimal minus a schedule": (
        lambda: untyped(Decimal("nan")) - LR,
        "the summand must be a number, got Decimal",
    ),
    "a schedule times a complex number": (
        lambda: LR * untyped(1j),
        "must be a number, got complex 1j",
    ),
    "until as text": (lambda: cf.diff(LR, LR, until=untyped("3")), "until must be an integer"),
    "writing nothing": (
        lambda: cf.write_recipe(ANY, "olmo"),
        "write_recipe takes a Recipe, got NoneType None: load_recipe reads a config",
    ),
    "certifying nothing": (lambda: cf.certify(ANY), "certify takes a Schedule, got NoneType None"),
    "certifying a number of steps": (
        lambda: cf.certify(LR, steps=untyped(3)),
        "steps must be a range or a list of steps, got int 3 (schedule 'cosine'): give range(1000)",
    ),
    "plot of nothing": (lambda: cf.plot(ANY), "plot takes Schedules and logs, got NoneType None"),
    "plot of a number": (
        lambda: cf.plot(untyped(3), "a.png"),
        "plot takes Schedules and logs, got int 3: closedform.schedules.constant(3) is one",
    ),
    "plot until a text": (
        lambda: cf.plot(LR, "a.png", steps=untyped("3")),
        "steps must be an integer above 0, got str '3' (plot)",
    ),
    "name of a hyperparameter": (lambda: cf.expr.hyper(untyped(3)), "must be an identifier"),
    "decay out of range": (
        lambda: transforms.weight_average(SGD, 2),
        "decay must be in [0, 1], got 2 (weight_average)",
    ),
    "open schedule of a transform": (
        lambda: transforms.clip_by_global_norm(SGD, WARMUP.unbind("steps")),
        "the schedule of max_norm has no value for steps (clip_by_global_norm): "
        "give it one with bind()",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = MISTAKES[name]
    with pytest.raises(ClosedFormError) as caught:
        make()
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not an ONNX file", b"\x08\x0a" * 99, b"{}"])
def test_files_that_are_not_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    path.write_bytes(content)
    with pytest.raises(ClosedFormError, match="it is not an ONNX model"):
        ScheduleSession(path)
    with pytest.raises(ClosedFormError, match="it is not an ONNX model"):
        cf.from_onnx(path)


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_empty_configs(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"config.{suffix}"
    path.write_text("\n", encoding="utf-8")
    words = "is not recognized" if suffix == "toml" else "the file is empty, expected a config"
    with pytest.raises(ClosedFormError, match=words):
        cf.load_recipe(path)


def test_names_of_the_package_are_suggested() -> None:
    with pytest.raises(AttributeError, match="no attribute 'to_onx': did you mean 'to_onnx'"):
        untyped(cf).to_onx  # noqa: B018
    with pytest.raises(TypeError, match="unsupported operand"):
        untyped(LR) ** 2
    with pytest.raises(TypeError, match="unsupported operand"):
        untyped(LR) / LR


def test_arithmetic_of_schedules() -> None:
    other = schedules.linear(3, 1, 10)
    cases: list[tuple[cf.Schedule, Callable[[int], Any]]] = [
        (LR * 2, lambda t: 2 * LR.exact(t)),
        (0.5 * LR, lambda t: LR.exact(t) / 2),
        (LR / 4, lambda t: LR.exact(t) / 4),
        (LR + 1, lambda t: LR.exact(t) + 1),
        (1 - LR, lambda t: 1 - LR.exact(t)),
        (LR - Fraction(1, 3), lambda t: LR.exact(t) - untyped(Fraction(1, 3))),
        (-LR, lambda t: -LR.exact(t)),
        (LR + other, lambda t: LR.exact(t) + other.exact(t)),
        (LR - other, lambda t: LR.exact(t) - other.exact(t)),
        (LR * other, lambda t: LR.exact(t) * other.exact(t)),
    ]
    for made, wanted in cases:
        for step in (0, 7, 50, 100, 130):
            assert made.exact(step) == wanted(step)
            assert made(step) == pytest.approx(float(wanted(step)), rel=1e-15, abs=1e-18)
    assert (LR + other).length == 100
    assert (LR * 2).bind(steps=50).exact(50) == 2 * LR.exact(100)


def test_fractions_of_a_step_are_exact() -> None:
    assert schedules.linear(0, 1, Fraction(5, 2)).exact(2) == untyped(Fraction(4, 5))


def test_clip_norm_and_decay_of_an_average_follow_schedules() -> None:
    """Against loops of NumPy in float64; four roundings each of numbers below 4."""
    norm = schedules.linear(1, 0.1, 5)
    decay = schedules.linear(0, 0.9, 4)
    rule = transforms.clip_by_global_norm(SGD, norm, eps=0)
    rule = transforms.weight_average(rule, decay, first="blend")
    start = np.array([1.0, -2.0])
    session = OptimizerSession(rule, params={"w": start.copy()})
    param, average = start.copy(), start.copy()
    rng = np.random.default_rng(0)
    for step in range(8):
        grad = rng.normal(size=2)
        session.step({"w": grad.copy()})
        clipped = min(1.0, float(norm(step)) / float(np.linalg.norm(grad)))
        param = param - 0.1 * grad * clipped
        average = average + (1 - float(decay(step))) * (param - average)
        assert session.params["w"] == pytest.approx(param, rel=1e-14)
        state = session.states["average"]["w"]
        assert state == pytest.approx(average, rel=1e-14)


def test_a_function_in_the_place_of_a_schedule_is_for_from_python() -> None:
    def rate(step: int) -> float:
        return step / 10

    line = cf.schedules.linear(0, 1, 10)
    with pytest.raises(cf.errors.ArgumentError, match="from_python a function of the step"):
        cf.diff(rate, line)  # type: ignore[arg-type]
    with pytest.raises(cf.errors.ExportError, match="from_python reads a function of the step"):
        cf.to_onnx(rate, "lr.onnx")  # type: ignore[call-overload]
    with pytest.raises(cf.errors.ArgumentError, match=r"got list .* dict\(enumerate\(values\)\)"):
        cf.recover([1.0, 0.5])  # type: ignore[arg-type]
