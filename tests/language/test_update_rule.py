"""Update rules: what they are made of, and what is refused."""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from closedform import Group, optimizers, transforms
from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    Schedule,
    Shared,
    State,
    UpdateRule,
    global_sum,
    hyper,
    shared,
    state,
    t,
    tensor_input,
)

LR = hyper("lr")


def momentum(**changes: Any) -> UpdateRule:
    buffer = sp.Rational(9, 10) * state("buffer") + GRAD
    parts: dict[str, Any] = {
        "name": "momentum",
        "param": PARAM - LR * buffer,
        "states": {"buffer": State(buffer)},
        "hyperparameters": {"lr": 0.1},
    }
    return UpdateRule(**{**parts, **changes})


def test_parts() -> None:
    rule = momentum()
    assert rule.hyperparameters == {"lr": sp.Rational(1, 10)}
    assert list(rule.expressions()) == ["param", "buffer"]
    assert rule.bind(lr=0.2).hyperparameters == {"lr": sp.Rational(1, 5)}
    assert momentum(states={"buffer": State(GRAD, PARAM)}).states["buffer"].initial == PARAM
    assert isinstance(momentum(hyperparameters={"lr": Schedule(t)}).hyperparameters["lr"], Schedule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: momentum(hyperparameters={}), "'lr' is neither a state nor a hyperparameter"),
        (lambda: momentum(states={}), "'state.buffer' is neither a state nor a hyperparameter"),
        (
            lambda: momentum(hyperparameters={"lr": "0.1"}),
            "hyperparameter 'lr' of momentum must be",
        ),
        (
            lambda: momentum(param="param"),
            "next value of 'param' in rule 'momentum' must be a number",
        ),
        (
            lambda: momentum(states={"buffer": State(GRAD, 0, "row")}),
            r"the shape rule must be one of \('param', 'scalar'\), Without.*or Sizes.*, got 'row'",
        ),
        (
            lambda: momentum(states={"buffer": State(GRAD, float("nan"))}),
            "initial value of state 'buffer' must be finite, got nan",
        ),
        (lambda: momentum().bind(momentum=0.9), "'momentum' is not a hyperparameter .*it has lr"),
        (
            lambda: momentum(name="heavy ball"),
            "a rule's name must be an identifier, got 'heavy ball': it names graphs and files",
        ),
        (
            lambda: momentum(hyperparameters={"lr": 0.1, "beta": 0.5}),
            "no expression uses the hyperparameter 'beta' .*rule 'momentum'.*leave it out",
        ),
        (
            lambda: momentum(states={"buffer": GRAD}),
            "a state must be a State, got Symbol grad .*state 'buffer'.*such as State",
        ),
        (
            lambda: momentum(param=sp.I * PARAM),
            r"an expression must be real and finite, got I\*param .*'param'",
        ),
        (
            lambda: momentum(states={"buffer": State(GRAD + sp.nan)}),
            "an expression must be real and finite, got nan .*'buffer'",
        ),
        (
            lambda: momentum(stored="f8"),
            r"stored must be one of \('bf16', 'f16'\) or None, got 'f8' .*rule 'momentum'",
        ),
        (
            lambda: momentum(ranges={"lr": (sp.Integer(1), sp.Rational(1, 2))}),
            r"the range of 'lr' must be \(low, high\) with low <= high, got \(1, 1/2\) .*momentum",
        ),
        (
            lambda: momentum(shared={"scale": 2}),
            "a state of the model must be a Shared, got int 2 .*shared 'scale'.*such as Shared",
        ),
        (
            lambda: momentum(shared={"scale": Shared(shared("scale") * GRAD)}),
            "'grad' belongs to one parameter, and this is for the whole model .*next value of "
            r"'scale'.*: use it inside global_sum",
        ),
        (
            lambda: momentum(advances=sp.Gt(state("buffer"), 0)),
            "'state.buffer' belongs to one parameter.*the condition of the clock",
        ),
        (
            lambda: momentum(evaluation=PARAM + state("slow")),
            "'state.slow' is neither a state nor a hyperparameter .*the point of evaluation",
        ),
        (
            lambda: momentum(param=PARAM - LR * tensor_input("hessian")),
            "'input.hessian' is neither a state nor a hyperparameter",
        ),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


def test_equal_rules_have_equal_hashes() -> None:
    assert momentum() == momentum()
    assert hash(momentum()) == hash(momentum())
    assert momentum().bind(lr=0.2) != momentum()
    assert len({momentum(), momentum(), momentum(name="other")}) == 2


def test_states_of_the_model() -> None:
    norm = sp.sqrt(global_sum(GRAD**2))
    rule = momentum(
        shared={"norm": Shared(norm)},
        advances=sp.Gt(norm, shared("norm")),
        inputs=("hessian",),
        evaluation=PARAM + LR * tensor_input("hessian"),
    )
    assert rule.shared_symbols == {"norm": shared("norm")}
    assert rule.for_shape((2,)) is rule
    assert rule.bind(lr=1).evaluation == rule.evaluation


# --- terms that a function leaves out ------------------------------------------------------------

LEFT_OUT = [
    (name, key)
    for name in optimizers.__all__
    for key, parameter in inspect.signature(getattr(optimizers, name)).parameters.items()
    if parameter.default == 0 and not isinstance(parameter.default, bool) and key != "warmup_steps"
]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(("name", "key"), LEFT_OUT)
def test_a_hyperparameter_that_is_0_is_bound_as_its_function_takes_it(name: str, key: str) -> None:
    function = getattr(optimizers, name)
    given = {"lr": 0.25} if "lr" in inspect.signature(function).parameters else {}
    rule, wanted = function(**given), function(**given, **{key: 0.125})
    if key in wanted.hyperparameters:
        assert rule.bind(**{key: 0.125}) == wanted
        assert pickle.loads(pickle.dumps(rule)).bind(**{key: 0.125}) == wanted
        assert key in rule.hyperparameters or rule.bind(**{key: 0}) == rule
        if given:
            assert rule.bind(lr=0.5, **{key: 0.125}) == wanted.bind(lr=0.5)
            assert rule.bind(lr=0.5).bind(**{key: 0.125}) == wanted.bind(lr=0.5)
    else:  # the start of a state, such as the first sum of Adagrad
        with pytest.raises(DefinitionError, match=f"{key!r} is not a hyperparameter"):
            rule.bind(**{key: 0.125})


def test_a_term_of_a_rule_that_was_changed_is_not_made_anew() -> None:
    clipped = transforms.clip_by_global_norm(optimizers.adagrad(0.1), 1)
    with pytest.raises(
        DefinitionError, match=r"the term of 'weight_decay' is left out.*adagrad\(…\) with a transf"
    ):
        clipped.bind(weight_decay=0.1)
    with pytest.raises(DefinitionError, match="weight_decay must be >= 0, got -1"):
        optimizers.adagrad(0.1).bind(weight_decay=-1)
    with pytest.raises(DefinitionError, match="'maximize' is not a hyperparameter"):
        optimizers.adagrad(0.1).bind(maximize=True)
    with pytest.raises(DefinitionError, match="a term that is 0 may be left out: make the rule"):
        momentum().bind(weight_decay=0.1)


def test_a_group_may_set_a_decay_that_is_0_in_the_rule() -> None:
    """A decay mask in both orders."""
    for name in ("adagrad", "adam", "sgd", "rmsprop"):
        function = getattr(optimizers, name)
        with_decay, without = function(0.1, weight_decay=0.5), function(0.1)
        assert Group("e", changes={"weight_decay": 0.5}).bound(without) == with_decay
        masked = Group("e", changes={"weight_decay": 0}).bound(with_decay)
        assert masked.hyperparameters["weight_decay"] == 0
