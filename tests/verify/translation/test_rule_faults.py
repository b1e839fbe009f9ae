"""Faults planted in rules and in their lowering are found by translation validation.

A few of each here; all of them in ``compare_faults.py``, which ``make compare`` runs.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
import sympy as sp

from closedform import optimizers
from closedform.compiler import compile_step
from closedform.effort import Effort
from closedform.language import GRAD, PARAM, UpdateRule, hyper, state
from closedform.language.functions import ReduceMean, matmul, reduce_mean, reduce_sum, transpose
from closedform.options import ModelSpec
from closedform.verify.translation.translation import validate
from tests.support.sampling import marking_slow
from tests.test_library import OPTIMIZERS
from tests.verify.faults import OF_RULES, Outcome, compiled, drawn, faulty

RULES = ("adamw", "radam", "adafactor", "muon", "novograd", "stable_adamw")
EVERY = 5
"""The part of the library that is compiled with faults here."""
SWEEP = replace(OF_RULES, tried=1)
"""A fault is tried on one rule of those whose compilation runs its line."""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("module", OF_RULES.modules, ids=lambda module: module.__name__)
def test_planted_faults_are_caught(module: ModuleType) -> None:
    mutants = drawn(SWEEP, module, 1, seed=5, every=EVERY)
    assert mutants, "no mutant of this module is run by a sample"
    missed, table = SWEEP.missed(mutants, EVERY)
    assert not missed, f"{missed}\n{table}"


@pytest.mark.sample(every=2)
# Its four faults take 9 s.
@pytest.mark.parametrize("name", marking_slow(RULES, ("adafactor",)))
def test_the_graph_of_a_rule_is_not_proved_to_be_a_faulty_one(name: str) -> None:
    sample = OF_RULES.sample(name)
    faults = list(faulty(sample.source))
    for what, rule in random.Random(name).sample(faults, min(4, len(faults))):
        if not validate(rule, sample.graph, effort=Effort.of(1_000_000)).proved:
            continue
        outcome = OF_RULES.outcome_of_graph(rule, sample.graph, compiled(rule))
        assert outcome is Outcome.EQUIVALENT, what


def exchanged(rule: UpdateRule, first: str, second: str) -> UpdateRule:
    """A rule with the values of two hyperparameters exchanged."""
    values = rule.hyperparameters
    return rule.bind(**{first: values[second], second: values[first]})


def with_eps_inside(rule: UpdateRule) -> UpdateRule:
    """``sqrt(v + eps)`` in the place of ``sqrt(v) + eps``."""
    eps = next(symbol for symbol in rule.param.free_symbols if symbol.name == "eps")

    def moved(node: sp.Add) -> sp.Expr:
        root, *_ = [part for part in node.args if part != eps]
        return sp.sqrt(root**2 + eps)

    changed = rule.param.replace(lambda node: node.is_Add and eps in node.args, moved)
    assert changed != rule.param
    return replace(rule, param=changed)


def without_correction(rule: UpdateRule) -> UpdateRule:
    """A step with ``1 - beta1^(t + 1)`` left out."""
    beta1 = hyper("beta1")
    changed = rule.param.replace(
        lambda node: (
            node.is_Add
            and any(p.has(sp.Pow) and p.has(beta1) for p in node.args[1:])
            and node.args[0] == 1
        ),
        lambda node: sp.Integer(1),
    )
    assert changed != rule.param
    return replace(rule, param=changed)


def with_sign(rule: UpdateRule) -> UpdateRule:
    """A step upwards."""
    return replace(rule, param=2 * PARAM - rule.param)


def of_another_state(rule: UpdateRule) -> UpdateRule:
    """The second moment in the place of the first."""
    return replace(rule, param=rule.param.xreplace({state("exp_avg"): state("exp_avg_sq")}))


FAULTS: dict[str, tuple[UpdateRule, Callable[[UpdateRule], UpdateRule]]] = {
    "betas exchanged": (optimizers.adamw(0.1), lambda rule: exchanged(rule, "beta1", "beta2")),
    "eps inside of the root": (optimizers.adamw(0.1), with_eps_inside),
    "no bias correction": (optimizers.adamw(0.1), without_correction),
    "upwards": (optimizers.adamw(0.1), with_sign),
    "another state": (optimizers.adamw(0.1), of_another_state),
    "upwards, with sums": (optimizers.lamb(0.1), with_sign),
    "upwards, with products of matrices": (optimizers.muon(0.1), with_sign),
    "another number of elements": (
        optimizers.stable_adamw(0.1),
        lambda rule: replace(
            rule,
            definitions={
                name: expr.replace(ReduceMean, lambda part: 2 * ReduceMean(part))
                for name, expr in rule.definitions.items()
            },
            param=rule.param.replace(ReduceMean, lambda part: 2 * ReduceMean(part)),
        ),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_people_make_are_refuted(name: str) -> None:
    """Each is refuted at a point, with equal elements in each tensor where there are sums."""
    right, fault = FAULTS[name]
    graph = compile_step(ModelSpec(right, {"w": (3, 4)}))
    assert validate(right, graph).proved
    wrong = fault(right)
    assert wrong != right
    verdict = validate(wrong, graph)
    assert verdict.refuted, verdict
    assert verdict.counterexample is not None


def test_a_transposed_operand_of_a_square_matrix_is_not_proved() -> None:
    """At points with equal elements they are one, so nothing refutes it."""
    right = UpdateRule("product", PARAM - matmul(GRAD, transpose(GRAD)))
    wrong = UpdateRule("product", PARAM - matmul(transpose(GRAD), GRAD))
    graph = compile_step(ModelSpec(right, {"w": (4, 4)}))
    assert validate(right, graph).proved
    assert validate(wrong, graph).unknown


@pytest.mark.parametrize("shape", [(4, 4), (3, 4)])
def test_rows_are_not_columns(shape: tuple[int, int]) -> None:
    """Of 3 rows and 4 columns with equal elements the sums differ, the means do not."""
    for reduce in (reduce_sum, reduce_mean):
        right = UpdateRule("rows", PARAM - reduce(GRAD, (0,)) * reduce(PARAM**2))
        wrong = UpdateRule("rows", PARAM - reduce(GRAD, (-1,), keepdims=True) * reduce(PARAM**2))
        graph = compile_step(ModelSpec(right, {"w": shape}))
        assert validate(right, graph).proved
        verdict = validate(wrong, graph)
        assert verdict.refuted == (reduce is reduce_sum and shape == (3, 4))
        assert not verdict.proved


def test_every_rule_of_the_library_has_faults() -> None:
    for name, make in OPTIMIZERS.items():
        assert next(faulty(make()), None) is not None, name
