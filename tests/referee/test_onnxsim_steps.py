"""The optimizer steps of onnxsim 0.8.1, whose host computes the rate and the bias corrections.

``make_onnxsim_steps.py`` writes the files.
"""

import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import onnx
import pytest
import sympy as sp

import closedform as cf
from closedform import optimizers
from closedform.errors import ClosedFormError
from closedform.language import UpdateRule, t
from closedform.referee.judgement import judge_step
from tests.referee import foreign
from tests.referee.rewrites import exported

FILES = Path(__file__).with_name("onnxsim_steps.zip")
SHAPES = {"w": (6, 4), "b": (4,)}
STATES = {"adam": ("m", "v"), "sgd_momentum": ("mom",)}


def file_of(optimizer: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Returns a file and its ports; the outputs are those of b after those of w."""
    with zipfile.ZipFile(FILES) as archive:
        model = onnx.load_model_from_string(archive.read(f"{optimizer}.onnx"))
    labels = STATES[optimizer]
    names: dict[str, str] = {}
    for param in SHAPES:
        names |= {param: f"param.{param}", f"{param}_grad": f"grad.{param}"}
        names |= {f"{param}_{label}": f"state.{param}.{label}" for label in labels}
    carried = [text for text in names.values() if not text.startswith("grad")]
    outputs = [value.name for value in model.graph.output]
    inputs = {value.name: names.get(value.name, value.name) for value in model.graph.input}
    return model, {
        "inputs": inputs,
        "outputs": dict(zip(outputs, carried, strict=True)),
        "initial_states": {},
    }


def bound_rule(model: onnx.ModelProto, ports: dict[str, Any]) -> UpdateRule:
    """The rule of the Adam file with the scalars that ``adam_bias_corrections`` of onnxsim has."""
    rule = cf.from_onnx(model, ports=ports)
    assert isinstance(rule, UpdateRule)
    decays = {"m_correction": sp.Rational(9, 10), "v_correction": sp.Rational(999, 1000)}
    corrections = {name: cf.Schedule(1 / (1 - beta ** (t + 1))) for name, beta in decays.items()}
    return rule.bind(lr=0.01, **corrections)


@pytest.mark.parametrize("has_ports", [True, False])
def test_momentum_is_sgd(has_ports: bool) -> None:
    model, ports = file_of("sgd_momentum")
    named = ports if has_ports else None
    rule = optimizers.sgd(lr=None, momentum=0.9)
    assert judge_step(model, rule, ports=named).verdict.proved
    other = optimizers.sgd(lr=None, momentum=0.9, nesterov=True)
    assert not judge_step(model, other, ports=named).verdict.proved


def test_adam_with_its_corrections_is_adam() -> None:
    model, ports = exported(bound_rule(*file_of("adam")), SHAPES)
    assert judge_step(model, optimizers.adam(lr=0.01), ports=ports).verdict.proved
    for other in (optimizers.adam(lr=0.01, betas=(0.9, 0.99)), optimizers.adam(lr=0.02)):
        assert judge_step(model, other, ports=ports).verdict.refuted


@pytest.mark.parametrize(
    ("optimizer", "rule", "name"),
    [
        ("adam", optimizers.adam(lr=None), "m_correction"),
        ("sgd_momentum", optimizers.sgd(lr=0.1, momentum=0.9), "lr"),
    ],
)
def test_an_input_that_may_have_any_value(optimizer: str, rule: UpdateRule, name: str) -> None:
    model, ports = file_of(optimizer)
    verdict = judge_step(model, rule, ports=ports).verdict
    assert verdict.unknown
    assert f"the input {name!r} of the file may have any value" in verdict.reason


def test_edits_are_not_proved() -> None:
    model, ports = file_of("adam")
    rule = cf.from_onnx(model, ports=ports)
    assert judge_step(model, rule, ports=ports).verdict.proved
    count = 0
    for description, edited in islice(foreign.edits(model), 0, None, 3):
        try:
            verdict = judge_step(edited, rule, ports=ports).verdict
        except ClosedFormError:
            continue
        count += 1
        assert not verdict.proved, description
    assert count >= 6
