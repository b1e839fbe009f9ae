"""Rules that step on shards with partial sums, and those that need the full tensor."""

import pytest
import sympy as sp

import closedform as cf
from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    State,
    UpdateRule,
    hyper,
    reduce_mean,
    reduce_sum,
    state,
)
from closedform.language.functions import ReduceMean, ReduceSum
from closedform.language.groups import Assignment
from closedform.language.model import GlobalSum, global_sum
from closedform.torch.distributed.partial_sums import own_sums, shard_rule

WHOLE = {
    "adafactor": {2},
    "came": {2},
    "sm3": {1, 2},
    "adamp": {2},
    "sgdp": {2},
    "kron": {1, 2},
    "shampoo": {1, 2},
    "soap": {2},
}
"""Rules that need the full tensor, and for which number of axes."""

MATRICES = ("adamuon", "dion", "muon", "normuon", "scion")
"""Rules for matrices alone."""

NAMES = [name for name in cf.optimizers.__all__ if name.islower() and name not in MATRICES]


@pytest.mark.parametrize("name", NAMES)
def test_most_rules_step_on_shards(name: str) -> None:
    rule = getattr(cf.optimizers, name)()
    for shape in ((6,), (6, 4)):
        made = shard_rule(rule, shape)
        assert made.is_gathered == (len(shape) in WHOLE.get(name, set()))
        has_sums = any(e.has(ReduceSum, ReduceMean) for e in made.rule.all_expressions())
        assert made.is_gathered or not has_sums


@pytest.mark.parametrize("name", MATRICES)
def test_a_rule_for_matrices_needs_all_of_one_and_rejects_a_vector(name: str) -> None:
    rule = getattr(cf.optimizers, name)()
    assert shard_rule(rule, (6, 4)).is_gathered
    with pytest.raises(DefinitionError, match=rf"rule '{name}', shape \[6\]"):
        shard_rule(rule, (6,))


def test_a_mean_is_over_the_full_tensor_even_if_it_is_empty() -> None:
    rule = UpdateRule("mean", PARAM - reduce_mean(GRAD))
    for shape, size in (((6, 4), 24), ((0, 3), 1)):
        made = shard_rule(rule, shape).rule
        (total,) = made.param.atoms(GlobalSum)
        assert made.param == PARAM - total / size


def test_sums_over_one_parameter_differ_from_sums_over_all() -> None:
    # The same expression, once for the parameter and once for the model, one inside the other.
    inner = reduce_sum(GRAD**2)
    both = sp.sqrt(global_sum(GRAD**2)) + inner + global_sum(GRAD * inner)
    rule = UpdateRule("both", PARAM - hyper("lr") * GRAD * both, {}, {"lr": 1})
    made = shard_rule(rule, (4, 3))
    assert not made.is_gathered
    names = own_sums([Assignment(made.rule, {"w": (4, 3)})])
    assert len(names) == 1
    assert own_sums([Assignment(rule, {"w": (4, 3)})]) == frozenset()


def test_sums_along_an_axis_or_of_a_scalar_need_the_full_tensor() -> None:
    rows = reduce_sum(GRAD**2, (-1,), keepdims=True)
    along = UpdateRule("along", PARAM - GRAD / (1 + rows))
    assert shard_rule(along, (4, 3)).is_gathered
    # A sum of a number is that number, and not one for each element.
    number = State(reduce_sum(state("count")) + 1, shape="scalar")
    counting = UpdateRule("counting", PARAM - GRAD, {"count": number})
    assert shard_rule(counting, (4, 3)).is_gathered
