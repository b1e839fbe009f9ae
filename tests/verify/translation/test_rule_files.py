"""The files of rules are validated on export: what they say, what is shared, and what is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import sympy as sp
from onnx import ModelProto, helper

import closedform as cf
from closedform import optimizers, schedules, transforms
from closedform.api import onnx as api_onnx
from closedform.compiler import compile_program
from closedform.errors import VerificationError
from closedform.expr import GRAD, PARAM, hyper
from closedform.frameworks import cerebras
from closedform.language import UpdateRule, global_sum
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.translation.translation import MEANING_OF_RULES
from closedform.verify.translation.verdicts import KEY, validate_rule
from tests.support.sampling import marking_slow
from tests.test_library import OPTIMIZERS

RATE = schedules.linear(0, 1e-3, 20).then(schedules.cosine(1e-3, 0, 80))
Shapes = dict[str, tuple[int, ...]]
MATRICES: Shapes = {"w": (6, 4), "v": (6, 4), "w2": (4, 3)}
OPTIONS = GraphOptions()
PARAMS: Shapes = {**MATRICES, "b": (4,), "a": (3,)}


def shapes_of(rule: UpdateRule) -> Shapes:
    return PARAMS if rule.requires == sp.true else MATRICES


def content_of(model: ModelProto) -> dict[str, Any]:
    entries = {entry.key: entry.value for entry in model.metadata_props}
    content: dict[str, Any] = json.loads(entries[KEY])
    return content


def exported(rule: UpdateRule, folder: Path, **options: Any) -> dict[str, ModelProto]:
    models = cf.to_onnx(rule, folder, params=shapes_of(rule), **options)
    assert isinstance(models, dict)
    return models


# A sum that counts elements, of tensors of several shapes; and the second moment of spam, a minimum
# in a sum under a root: their signs are not found.
UNDECIDED = {("adams", True), ("spam", False), ("spam", True)}


@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")  # the status is read
@pytest.mark.sample(every=9)
@pytest.mark.parametrize("inline", [False, True])
# The searches for the signs of these two take 20 s each.
@pytest.mark.parametrize("name", marking_slow(OPTIMIZERS, ("momo", "spam")))
def test_every_file_of_every_rule_is_proved(name: str, inline: bool, tmp_path: Path) -> None:
    models = exported(OPTIMIZERS[name](), tmp_path, inline=inline)
    assert set(models) >= {"init", "step"}
    for model in models.values():
        content = content_of(model)
        if (name, inline) in UNDECIDED and content["status"] == "UNKNOWN":
            continue
        assert content["status"] == "PROVED", content
        assert content["reason"] == MEANING_OF_RULES.format(last=2**50)


TRANSFORMED: dict[str, Callable[[UpdateRule], UpdateRule]] = {
    "clip_by_global_norm": lambda rule: transforms.clip_by_global_norm(rule, 1),
    "clip_by_value": lambda rule: transforms.clip_by_value(rule, 1),
    "clip_by_unit_norm": lambda rule: transforms.clip_by_unit_norm(rule, 1),
    "skip_nonfinite": transforms.skip_nonfinite,
    "loss_scaling": lambda rule: transforms.loss_scaling(rule, 1024),
    "dynamic_loss_scaling": transforms.dynamic_loss_scaling,
    "cerebras_loss_scaling": cerebras.dynamic_loss_scaling,
    "accumulate": lambda rule: transforms.accumulate(rule, 4),
    "weight_average": lambda rule: transforms.weight_average(rule, 0.99),
    "lookahead": transforms.lookahead,
    "sam": transforms.sam,
    "grokfast": transforms.grokfast,
    "hyperball": transforms.hyperball,
    # Parameters of so few elements have plain states: the proof of codes takes minutes.
    "eight_bit_states": transforms.eight_bit_states,
    "four_bit_states": transforms.four_bit_states,
    "cautious": transforms.cautious,
    "mask_weight_decay": transforms.mask_weight_decay,
    "sparsify": transforms.sparsify,
    "master_weights": transforms.master_weights,
    "kahan": transforms.kahan,
    "stochastic_rounding": transforms.stochastic_rounding,
    "sixteen_bit_states": lambda rule: transforms.sixteen_bit_states(rule, rounding="stochastic"),
    "several": lambda rule: transforms.skip_nonfinite(
        transforms.clip_by_global_norm(transforms.accumulate(rule, 2), 1)
    ),
}


def test_every_transform_is_here() -> None:
    of_frameworks = {"several", "cerebras_loss_scaling"}
    others = {"states_to_sparsify", "Partition", "partition"}  # the last one: test_partitions.py
    assert set(transforms.__all__) - others == set(TRANSFORMED) - of_frameworks


@pytest.mark.sample(every=7)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_transform_of_adamw_is_proved(name: str, inline: bool, tmp_path: Path) -> None:
    rule = TRANSFORMED[name](optimizers.adamw(RATE))
    for model in exported(rule, tmp_path, inline=inline).values():
        assert content_of(model)["status"] == "PROVED"


# --- what is one proof ---------------------------------------------------------------------------


def parts_of(model: ModelProto) -> dict[str, int]:
    return {part["of"]: part["parameters"] for part in content_of(model)["parts"]}


def test_parameters_that_are_computed_alike_are_one_proof(tmp_path: Path) -> None:
    """An elementwise rule is one for all shapes; one with sums is one for each shape."""
    models = exported(optimizers.adamw(RATE), tmp_path)
    assert parts_of(models["step"]) == {"": 0, "w": 5}
    models = exported(optimizers.lamb(RATE), tmp_path)
    assert parts_of(models["step"]) == {"": 0, "w": 2, "w2": 1, "b": 1, "a": 1}
    clipped = transforms.clip_by_global_norm(optimizers.sgd(RATE), 1)
    assert parts_of(exported(clipped, tmp_path)["step"]) == {
        **{f"sum {name}": count for name, count in (("w", 2), ("w2", 1), ("b", 1), ("a", 1))},
        "": 0,
        "w": 2,
        "w2": 1,
        "b": 1,
        "a": 1,
    }


def test_groups_are_proofs_of_their_own(tmp_path: Path) -> None:
    rule = optimizers.adamw(RATE, weight_decay=0.1)
    bare = cf.Group(["b", "a"], changes={"weight_decay": 0})
    models = exported(rule, tmp_path, groups=[bare])
    assert parts_of(models["step"]) == {"": 0, "w": 3, "b": 2}
    assert content_of(models["step"])["status"] == "PROVED"


def test_a_thousand_parameters_cost_little_more_than_one(tmp_path: Path) -> None:
    params = {f"layer.{place}": (8,) for place in range(1000)}
    models = cf.to_onnx(optimizers.sgd(RATE, momentum=0.9), tmp_path, params=params, inline=False)
    assert isinstance(models, dict)
    assert parts_of(models["step"]) == {"": 0, "layer.0": 1000}


# --- what is wrong -------------------------------------------------------------------------------


def test_a_node_of_a_function_that_is_wrong_is_refuted(tmp_path: Path) -> None:
    rule = optimizers.adamw(RATE)
    models = exported(rule, tmp_path, validate=False, inline=False)
    nodes = [node for each in models["step"].functions for node in each.node]
    (root,) = [node for node in nodes if node.op_type == "Sqrt"]
    root.op_type = "Abs"
    with pytest.raises(VerificationError) as caught:
        validate_rule(ModelSpec(rule, PARAMS), OPTIONS, models)
    assert str(caught.value).startswith("the model is not its source: at grad.w = ")
    assert "next.param.w is " in str(caught.value)
    assert "(rule 'adamw', file 'step.onnx')" in str(caught.value)


def test_operands_of_another_parameter_are_refuted(tmp_path: Path) -> None:
    """One call of a thousand that is wired otherwise is no longer one of the others' kind."""
    rule = optimizers.sgd(RATE, momentum=0.9)
    models = exported(rule, tmp_path, validate=False, inline=False)
    call = next(node for node in models["step"].graph.node if "param.v" in node.input)
    call.input[list(call.input).index("grad.v")] = "grad.w"
    with pytest.raises(VerificationError, match=r"next\.param\.v is "):
        validate_rule(ModelSpec(rule, PARAMS), OPTIONS, models)


def test_a_sum_without_one_of_its_parts_is_not_proved(tmp_path: Path) -> None:
    rule = transforms.clip_by_global_norm(optimizers.sgd(RATE), 1)
    models = exported(rule, tmp_path, validate=False, inline=False)
    (*_, last) = [
        node
        for node in models["step"].graph.node
        if node.op_type == "Add" and any(name.startswith("sum.") for name in node.input)
    ]
    last.input[1] = last.input[0]
    verdict = validate_rule(ModelSpec(rule, PARAMS), OPTIONS, models)["step"]
    assert verdict.unknown


def test_another_rule_is_refuted_in_each_file(tmp_path: Path) -> None:
    made = optimizers.schedule_free_adamw(RATE, warmup_steps=3)
    models = exported(made, tmp_path, validate=False)
    for name, other in {
        "step": made.bind(beta2=0.9),
        "evaluation": made.bind(beta1=0.5),
    }.items():
        with pytest.raises(VerificationError, match=f"file '{name}.onnx'"):
            validate_rule(ModelSpec(other, PARAMS), OPTIONS, {name: models[name]})
    begun = optimizers.rprop(0.1)
    models = exported(begun, tmp_path, validate=False)
    with pytest.raises(VerificationError, match=r"file 'init.onnx'"):
        validate_rule(ModelSpec(optimizers.rprop(0.2), PARAMS), OPTIONS, {"init": models["init"]})


def test_nothing_is_written_where_it_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = optimizers.sgd(0.2)
    made = compile_program
    monkeypatch.setattr(
        api_onnx,
        "compile_program",
        lambda spec, options: made(ModelSpec(other, spec.params), options),
    )
    folder = tmp_path / "sgd"
    with pytest.raises(VerificationError) as caught:
        cf.to_onnx(optimizers.sgd(0.1), folder, params={"w": (2,)})
    assert "validate=False exports all the same" in str(caught.value)
    assert not folder.exists()
    models = cf.to_onnx(optimizers.sgd(0.1), folder, params={"w": (2,)}, validate=False)
    assert isinstance(models, dict)
    assert content_of(models["step"])["status"] == "NOT VALIDATED"


def test_what_has_no_meaning_is_unknown(tmp_path: Path) -> None:
    rule = optimizers.sgd(0.1)
    models = exported(rule, tmp_path, validate=False)
    extra = helper.make_node("Softmax", ["grad.w"], ["soft"])
    models["step"].graph.node.append(extra)
    models["step"].graph.output.append(
        helper.make_tensor_value_info("soft", onnx.TensorProto.FLOAT, (6, 4))
    )
    verdict = validate_rule(ModelSpec(rule, PARAMS), OPTIONS, models)["step"]
    assert verdict.unknown
    assert "the operator 'Softmax' is not supported" in verdict.reason
    assert content_of(models["step"])["status"] == "UNKNOWN"


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    rule = transforms.clip_by_global_norm(optimizers.lamb(RATE), 1)
    for folder in ("a", "b"):
        exported(rule, tmp_path / folder)
    for name in ("init.onnx", "step.onnx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_open_hyperparameters_are_symbols(tmp_path: Path) -> None:
    rule = UpdateRule("open", PARAM - hyper("rate") * GRAD, {}, {"rate": None})
    models = exported(rule, tmp_path)
    assert content_of(models["step"])["status"] == "PROVED"
    other = UpdateRule("open", PARAM - sp.exp(hyper("rate")) * GRAD, {}, {"rate": None})
    with pytest.raises(VerificationError, match="rate = "):
        validate_rule(ModelSpec(other, PARAMS), OPTIONS, models)


def test_a_hyperparameter_may_stand_in_a_sum_alone(tmp_path: Path) -> None:
    total = global_sum(hyper("scale") * GRAD**2)
    rule = UpdateRule("scaled", PARAM - GRAD / (1 + total), {}, {"scale": 2})
    models = exported(rule, tmp_path)
    assert content_of(models["step"])["status"] == "PROVED"
    with pytest.raises(VerificationError, match=r"step\.onnx"):
        validate_rule(
            ModelSpec(replace(rule, hyperparameters={"scale": 3}), PARAMS), OPTIONS, models
        )
