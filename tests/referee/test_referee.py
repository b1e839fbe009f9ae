"""The step of another exporter against a rule: proofs, refutations, renamings, limits."""

import re
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import closedform as cf
from closedform import optimizers
from closedform.effort import Effort
from closedform.errors import ArgumentError, VerificationError
from closedform.language import PARAM
from closedform.language.rule_data import rule_as_data, rule_of_data
from closedform.referee.judgement import judge_step, read_step
from closedform.referee.refutation import uniform_tensor
from tests.referee import foreign
from tests.test_library import OPTIMIZERS

ADAMW = optimizers.adamw(lr=0.01, weight_decay=1e-4)


@pytest.mark.parametrize("name", foreign.names())
def test_a_step_is_the_rule_traced_from_optax(name: str) -> None:
    step = foreign.load(name)
    judgement = judge_step(step.model, step.rule, ports=step.ports)
    assert foreign.is_proved_as_far_as_is_known(name, judgement.verdict), judgement.verdict
    assert judgement.beginning is None or judgement.beginning.proved


@pytest.mark.parametrize("name", foreign.names())
def test_ports_are_known_by_their_use(name: str) -> None:
    step = foreign.load(name)
    judgement = judge_step(step.model, step.rule)
    assert foreign.is_proved_as_far_as_is_known(name, judgement.verdict), judgement.verdict
    params = {key for key, text in step.ports["inputs"].items() if text.startswith("param")}
    assert set(judgement.step.ports.params) == params


@pytest.mark.parametrize("name", foreign.names())
def test_the_rule_of_a_file_makes_its_steps(name: str) -> None:
    step = foreign.load(name)
    rules = cf.from_onnx(step.model, ports=step.ports)
    judgement = judge_step(step.model, rules, ports=step.ports)
    if name == "adadelta":  # SymPy writes sqrt(x)**2 as x, which has a value below 0, too
        assert judgement.difference is None
        assert "is undefined" in judgement.verdict.reason
        return
    assert foreign.is_proved_as_far_as_is_known(name, judgement.verdict), judgement.verdict


def test_rules_of_a_file() -> None:
    adamw, sm3 = foreign.load("adamw"), foreign.load("sm3")
    rule = cf.from_onnx(adamw.model, ports=adamw.ports)
    assert isinstance(rule, cf.UpdateRule)
    assert list(rule.states) == ["mu", "nu"]
    assert rule.is_elementwise
    by_param = cf.from_onnx(sm3.model, ports=sm3.ports)
    assert isinstance(by_param, dict)
    assert {param: list(rule.states) for param, rule in by_param.items()} == {
        "b": ["0_mu_0", "nu"],
        "w": ["0_mu_0", "0_mu_1", "nu"],
    }
    cocob = foreign.load("cocob")
    particles = cf.from_onnx(cocob.model, ports=cocob.ports)
    assert isinstance(particles, cf.UpdateRule)
    assert particles.states["init_particles"].initial == PARAM
    by_use = cf.from_onnx(adamw.model, ports="use")
    assert isinstance(by_use, dict)
    assert {param: list(rule.states) for param, rule in by_use.items()} == {
        "in_7": ["in_3", "in_5"],
        "in_8": ["in_4", "in_6"],
    }


# --- against the library -------------------------------------------------------------------------


def test_adamw_of_optax_is_that_of_the_library() -> None:
    step = foreign.load("adamw")
    judgement = judge_step(step.model, ADAMW, ports=step.ports)
    assert judgement.verdict.proved
    assert judgement.beginning is not None
    assert judgement.renamed == [
        ("shared.count", "t"),
        ("state.b.mu", "state.b.exp_avg"),
        ("state.b.nu", "state.b.exp_avg_sq"),
        ("state.w.mu", "state.w.exp_avg"),
        ("state.w.nu", "state.w.exp_avg_sq"),
    ]


def test_a_difference_is_a_run() -> None:
    step = foreign.load("adamw")
    judgement = judge_step(step.model, optimizers.adamw(lr=0.01), ports=step.ports)
    difference = judgement.difference
    assert judgement.verdict.refuted
    assert difference is not None
    assert difference.steps == 1
    place = re.fullmatch(r"(param\.\w)\[(.*)\]", difference.place)
    assert place is not None
    assert str(difference).startswith(f"after 1 step {difference.place} is ")
    # The weight decay of 1e-2 in place of 1e-4 is the difference: 0.0099 * lr * param.
    computed, expected = float(difference.sides.left), float(difference.sides.right)
    elements = [Fraction(text) for text in re.findall(r"[^\[\], ]+", difference.tensors[place[1]])]
    shape = tuple(map(int, judgement.step.shapes[place[1].removeprefix("param.")]))
    index = np.ravel_multi_index(tuple(map(int, place[2].split(", "))), shape)
    change = 0.0099 * 0.01 * float(elements[index])
    # The constants of the file are numbers that round to floats: some 1e-7 of the parameter.
    assert computed - expected == pytest.approx(change, rel=2e-2)
    assert float(difference.sides.difference) == pytest.approx(abs(change), rel=2e-2)
    assert difference.engine == "onnxruntime"
    # Of float32.
    assert float(difference.value) == pytest.approx(computed, rel=1e-6)
    assert set(difference.tensors) == {
        "param.b",
        "param.w",
        *(f"state.{param}.exp_avg{end}" for param in "bw" for end in ("", "_sq")),
        *(f"state.{param}.{label}" for param in "bw" for label in ("mu", "nu")),
        "shared.count",
        "grad.b at t = 0",
        "grad.w at t = 0",
    }


def test_states_that_begin_otherwise() -> None:
    step = foreign.load("adagrad")
    ports = {
        **step.ports,
        "initial_states": {
            name: np.zeros_like(value).tolist()
            for name, value in step.ports["initial_states"].items()
        },
    }
    judgement = judge_step(step.model, step.rule, ports=ports)
    assert judgement.verdict.proved
    assert judgement.beginning is not None
    assert judgement.beginning.reason == (
        "state.b.sum_of_squares begins with 0.0, and that of the rule with 1/10"
    )


@pytest.mark.parametrize(("count", "status"), [(0, "PROVED"), (0.0, "PROVED"), (0.5, "REFUTED")])
def test_a_count_may_be_stated_as_a_float(count: float, status: str) -> None:
    step = foreign.load("adamw")
    states = {**step.ports["initial_states"], "state[0].count": count}
    judgement = judge_step(step.model, step.rule, ports={**step.ports, "initial_states": states})
    assert judgement.verdict.proved
    assert judgement.beginning is not None
    assert str(judgement.beginning.status) == status


def test_a_float32_count_is_considered_as_long_as_it_is_exact() -> None:
    step = foreign.load("nadam")
    judgement = judge_step(step.model, step.rule, ports=step.ports)
    assert "at every step from 0 to 16777214" in judgement.verdict.reason


@pytest.mark.parametrize("name", ["adamw", "novograd", "dowg", "sm3"])
def test_edits_are_not_proved(name: str) -> None:
    step = foreign.load(name)
    for description, model in islice(foreign.edits(step.model), 3, None, 9):
        verdict = judge_step(model, step.rule, ports=step.ports).verdict
        assert not verdict.proved or foreign.are_same(step.model, model, step.ports), description


def test_another_optimizer_is_refuted() -> None:
    step = foreign.load("adamw")
    for name in ("adamax", "lion", "nadam", "acprop"):
        assert judge_step(step.model, foreign.load(name).rule, ports=step.ports).verdict.refuted


# --- ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ({"in_0": "grad.b"}, "the input 'in_1' has no role"),
        ({"in_9": "grad.b"}, "'in_9' is neither an input nor an output of the file"),
        ({"in_0": "grad.b", "in_1": "grad.b"}, "'in_0' and 'in_1' are both grad.b"),
        (
            dict.fromkeys(["in_0", "in_1", "in_2", "in_3"], "grad["),
            r"'grad\[' does not say what a port is",
        ),
        (
            {"in_0": "grad.b", "in_1": "grad.w", "in_2": "param.b", "in_3": "param.w"}
            | {"add_out_0": "grad.b"},
            "the output 'add_out_0' is grad.b, which is not an input that a step replaces",
        ),
    ],
)
def test_ports_that_do_not_fit(ports: dict[str, str], message: str) -> None:
    step = foreign.load("sign_sgd")
    full = dict.fromkeys(step.ports["inputs"], "param.x") if "add_out_0" in ports else {}
    if "both" in message:
        full = {"in_2": "param.b", "in_3": "param.w"}
    with pytest.raises(ArgumentError, match=message):
        read_step(step.model, {**full, **ports})


def test_ports_in_the_names_of_this_package() -> None:
    step = foreign.load("rmsprop")
    ports = dict(zip([f"in_{place}" for place in range(6)], _RMSPROP, strict=True))
    assert judge_step(step.model, step.rule, ports=ports).verdict.proved


_RMSPROP = ["grad.b", "grad.w", "state.b.nu", "state.w.nu", "param.b", "param.w"]


def test_a_hyperparameter_without_a_value() -> None:
    step = foreign.load("adamw")
    with pytest.raises(VerificationError, match="the hyperparameter 'lr' of the rule has no value"):
        judge_step(step.model, optimizers.adamw(lr=None), ports=step.ports)


# --- files ---------------------------------------------------------------------------------------


def test_verify_file(tmp_path: Path) -> None:
    step = foreign.load("novograd")
    path = tmp_path / "step.onnx"
    onnx.save(step.model, path)
    report = cf.verify_file(path, against=step.rule, ports=step.ports)
    verdicts = ["PROVED", "PROVED", "STATED", "PROVED", "STATED"]
    assert [row.verdict for row in report.rows] == verdicts
    assert report.rows[2].detail.startswith("no bound after up to 4 steps")
    assert report.rows[3].name == "capturable"
    assert report.rows[4].detail == "shared.count in the rule: t"
    assert cf.verify_file(path).rows[0].detail == "name its rule: --against adamw"
    with pytest.raises(ArgumentError, match="a step of an optimizer, and its source is a schedule"):
        cf.verify_file(path, against="constant --value 1")


def test_a_step_of_the_package_names_its_ports(tmp_path: Path) -> None:
    cf.to_onnx(optimizers.sgd(0.1), tmp_path, params={"w": (2,)})
    with pytest.raises(ArgumentError, match="the file 'step' of a rule names its ports"):
        cf.verify_file(tmp_path / "step.onnx", against="sgd --lr 0.1", ports={"param.w": "param.w"})


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_rules_are_data(name: str) -> None:
    rule = OPTIMIZERS[name]()
    assert rule_of_data(rule_as_data(rule)) == rule


# --- operators of ai.onnx.preview.training -------------------------------------------------------


def _training_file(operator: str, states: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [f"{kind}{place}" for kind in ("x", "g", *"vh"[:states]) for place in (0, 1)]
    shapes = [(2, 3) if name.endswith("0") else (4,) for name in names]
    outputs = [name for name in names if name[0] != "g"]
    node = helper.make_node(
        operator,
        ["rate", "count", *names],
        [f"next_{name}" for name in outputs],
        domain="ai.onnx.preview.training",
        **attributes,
    )
    following = helper.make_node("Add", ["count", "one"], ["next_count"])
    sizes = dict(zip(names, shapes, strict=True))
    graph = helper.make_graph(
        [node, following],
        "step",
        [
            helper.make_tensor_value_info("rate", 1, ()),
            helper.make_tensor_value_info("count", 7, ()),
            *(helper.make_tensor_value_info(name, 1, sizes[name]) for name in names),
        ],
        [
            *(helper.make_tensor_value_info(f"next_{name}", 1, sizes[name]) for name in outputs),
            helper.make_tensor_value_info("next_count", 7, ()),
        ],
        [numpy_helper.from_array(np.array(1), "one")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("operator", "states", "attributes"),
    [
        ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 1e-5, "norm_coefficient": 0.01}),
        (
            "Momentum",
            1,
            {"alpha": 0.9, "beta": 0.8, "mode": "standard", "norm_coefficient": 0.01},
        ),
        (
            "Momentum",
            1,
            {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0},
        ),
        ("Adam", 2, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02}),
    ],
)
@pytest.mark.parametrize("count", [0, 3])
def test_training_operators(
    operator: str, states: int, attributes: dict[str, Any], count: int
) -> None:
    from onnx.reference import ReferenceEvaluator

    from closedform.importers.onnx_graph import read_model
    from closedform.ir import evaluate

    model = _training_file(operator, states, attributes)
    draw = np.random.default_rng(3)
    feed = {
        value.name: draw.uniform(
            0.5, 1.5, [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
        if value.name != "count"
    }
    feed["count"] = np.array(count)
    graph = read_model(model)
    actual = evaluate(graph, feed)
    expected = ReferenceEvaluator(model).run(None, feed)
    for value, array in zip(model.graph.output, expected, strict=True):
        # A step is a dozen operations, each rounded to float32.
        np.testing.assert_allclose(actual[value.name], array, rtol=2e-6)


def test_the_momentum_of_onnx_is_sgd() -> None:
    attributes = {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0}
    model = _training_file("Momentum", 1, attributes)
    rule = optimizers.sgd(lr=None, momentum=0.9, nesterov=True)
    names = {"rate": "lr", "count": "step", "x0": "param.a", "x1": "param.b", "g0": "grad.a"}
    names |= {"g1": "grad.b", "v0": "state.a.momentum", "v1": "state.b.momentum"}
    judgement = judge_step(model, rule, ports=names)
    assert judgement.verdict.proved, judgement.verdict


@pytest.mark.parametrize("units", [0, 1_000, 100_000, 300_000])
def test_a_small_effort_ends_in_a_verdict(units: int) -> None:
    step = foreign.load("adamw")
    verdict = judge_step(step.model, step.rule, ports=step.ports, effort=Effort.of(units)).verdict
    assert not verdict.refuted
    assert verdict.proved or "effort" in verdict.reason


def test_a_uniform_run_begins_with_one_number() -> None:
    assert uniform_tensor(np.array([0.5, 0.5]), "state.w.sum") == np.array(0.5)
    with pytest.raises(
        VerificationError, match=r"the elements of state\.w\.sum begin with several"
    ):
        uniform_tensor(np.array([0.5, 1]), "state.w.sum")
