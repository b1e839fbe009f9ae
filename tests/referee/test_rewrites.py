"""Rewritten steps of rules of the library: the same function is PROVED, and no edit of one is."""

from collections.abc import Callable
from itertools import islice

import pytest

from closedform import optimizers
from closedform.errors import ClosedFormError
from closedform.language import UpdateRule
from closedform.language.groups import Group
from closedform.referee.judgement import judge_step
from closedform.verify.terms.verdict import Status
from tests.referee import foreign
from tests.referee.rewrites import exported, rewritten
from tests.test_library import OPTIMIZERS

PARAMS = {"w": (2, 3), "b": (3,)}

RULES: dict[str, Callable[[], UpdateRule]] = {
    "sgd": lambda: optimizers.sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda: optimizers.adamw(lr=0.01, weight_decay=0.1),
    "rmsprop": lambda: optimizers.rmsprop(lr=0.01, momentum=0.5),
    "adagrad": lambda: optimizers.adagrad(lr=0.1, lr_decay=0.01),
    "lion": lambda: optimizers.lion(lr=0.01),
    "adamax": lambda: optimizers.adamax(lr=0.01),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("seed", "kind"), [(1, "i32"), (2, "f32"), (3, "i64")])
def test_the_same_function_in_other_words_is_proved(name: str, seed: int, kind: str) -> None:
    rule = RULES[name]()
    model, ports = exported(rule, PARAMS)
    verdict = judge_step(rewritten(model, ports, seed, kind), rule, ports=ports).verdict
    assert verdict.proved, verdict


def test_a_tensor_that_the_rule_takes_is_an_input_of_it() -> None:
    rule = OPTIMIZERS["sophia"]()
    model, ports = exported(rule, PARAMS)
    assert judge_step(rewritten(model, ports, 10, "f32"), rule, ports=ports).verdict.proved


@pytest.mark.parametrize(("first", "second"), [("adamw", "sgd"), ("lion", "adagrad")])
def test_parameters_with_a_rule_each(first: str, second: str) -> None:
    rules = {"w": RULES[first](), "b": RULES[second]()}
    model, ports = exported(rules["w"], PARAMS, groups=(Group("b", rule=rules["b"]),))
    file = rewritten(model, ports, seed=4, kind="i32")
    verdict = judge_step(file, rules, ports=ports).verdict
    assert verdict.proved, verdict
    exchanged = {"w": rules["b"], "b": rules["w"]}
    assert not judge_step(file, exchanged, ports=ports).verdict.proved
    assert not judge_step(file, rules["w"], ports=ports).verdict.proved


@pytest.mark.parametrize(("name", "seed"), [("adamw", 0), ("sgd", 5), ("rmsprop", 6)])
def test_an_edit_of_a_rewritten_step_is_not_proved(name: str, seed: int) -> None:
    rule = RULES[name]()
    model, ports = exported(rule, PARAMS)
    file = rewritten(model, ports, seed)
    statuses = []
    for description, edited in islice(foreign.edits(file), seed % 3, None, 5):
        try:
            verdict = judge_step(edited, rule, ports=ports).verdict
        except ClosedFormError:
            continue
        assert not verdict.proved or foreign.are_same(file, edited, ports), description
        statuses.append(verdict.status)
    assert statuses.count(Status.REFUTED) > len(statuses) / 2


def test_branches_and_functions_are_drawn() -> None:
    model, ports = exported(RULES["adamw"](), PARAMS)
    files = [rewritten(model, ports, seed, "i32") for seed in range(1, 4)]
    operators = {node.op_type for file in files for node in file.graph.node}
    assert "If" in operators
    assert any(file.functions for file in files)
    assert all(foreign.are_same(file, files[0], ports) for file in files[1:])
