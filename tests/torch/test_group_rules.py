"""Rules and entries of groups, parameters without a shape, and names: beside torch's classes."""

import copy
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError, ClosedFormError, StateError, UnknownNameError
from closedform.language import UpdateRule
from closedform.torch import Optimizer, ParamScheduler, cerebras, optim
from tests.torch.training import COMPILING, largest_difference, parameters, steps, values

RULES: dict[str, Callable[..., UpdateRule]] = {
    "sgd": lambda: cf.optimizers.sgd(lr=0.5),
    "momentum": lambda: cf.optimizers.sgd(lr=0.05, momentum=0.9, dampening=0.5),
    "adamw": lambda: cf.optimizers.adamw(lr=0.02),
    "lion": lambda: cf.optimizers.lion(lr=0.01),
    "adafactor": lambda: cf.optimizers.adafactor(lr=0.02, relative_step=False),
    "scheduled": lambda: cf.optimizers.adamw(lr=cf.schedules.linear(0.1, 0.01, 5)),
    "averaged": lambda: cf.transforms.weight_average(cf.optimizers.sgd(lr=0.1), decay=0.5),
}
SHAPES = ((3, 4), (5,), (2, 2))


def apart(rules: list[UpdateRule]) -> list[torch.Tensor]:
    """Each parameter in an optimizer by itself, with its rule."""
    params = parameters(SHAPES)
    optimizers = [Optimizer([p], rule) for p, rule in zip(params, rules, strict=True)]

    def step_all() -> None:
        for optimizer in optimizers[1:]:
            optimizer.step()

    steps(optimizers[0], params, 4, after=step_all)
    return values(params)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("seed", range(6))
def test_each_group_is_stepped_by_its_rule(seed: int) -> None:
    draw = random.Random(seed)
    names = draw.sample(list(RULES), 3)
    rules = [RULES[name]() for name in names]
    wanted = apart(rules)
    params = parameters(SHAPES)
    groups: list[dict[str, Any]] = [{"params": [param]} for param in params]
    if draw.random() < 0.5:
        optimizer = Optimizer(groups, rules)
    else:
        own = [{**group, "rule": rule} for group, rule in zip(groups, rules, strict=True)]
        optimizer = Optimizer([groups[0], own[1]], rules[0])
        optimizer.add_param_group(own[2])
    assert all("rule" not in group for group in optimizer.param_groups)
    for group, rule in zip(optimizer.param_groups, rules, strict=True):
        constants = {k for k, v in rule.hyperparameters.items() if not isinstance(v, cf.Schedule)}
        assert set(group) - {"params"} == constants
    generator_seed = 1
    steps(optimizer, params, 2, seed=generator_seed)
    # Half of the way is another object: a copy, a pickle or a state dict.
    other: Any = copy.deepcopy(optimizer)
    if seed % 3 == 1:
        other = pickle.loads(pickle.dumps(optimizer))
    if seed % 3 == 2:
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        others = [nn.Parameter(param.detach().clone()) for param in params]
        other = Optimizer([{"params": [p]} for p in others], rules)
        other.load_state_dict(torch.load(file, weights_only=True))
    listed = [param for group in other.param_groups for param in group["params"]]
    generator = torch.Generator().manual_seed(1)
    for number in range(4):
        for param in listed:
            param.grad = torch.randn(param.shape, generator=generator, dtype=torch.float64).float()
        if number >= 2:
            other.step()
    # The same programs, on one vector or on another: float32 numbers of about 1.
    assert largest_difference(listed, wanted) <= 4 * 4 * 6e-8


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.filterwarnings("ignore:.*record_function.*")
def test_the_groups_of_a_traced_step_have_rules_of_their_own() -> None:
    """The first step is traced as a whole: its states are made while it is traced."""
    ours, theirs = parameters(SHAPES), parameters(SHAPES)
    rules = [cf.optimizers.adamw(0.01), cf.optimizers.sgd(0.1, momentum=0.9, dampening=0.5)]

    def make(params: list[nn.Parameter]) -> Optimizer:
        rates = [torch.tensor(0.01), torch.tensor(0.1)]
        parts = [params[:2], params[2:]]
        return Optimizer(
            [{"params": part, "lr": rate} for part, rate in zip(parts, rates, strict=True)], rules
        )

    optimizer, other = make(ours), make(theirs)
    torch._dynamo.reset()
    compiled = torch.compile(optimizer.step, backend="eager", fullgraph=True)
    for number in range(5):
        generator = torch.Generator().manual_seed(number)
        for row, (param, beside) in enumerate(zip(ours, theirs, strict=True)):
            drawn = torch.randn(param.shape, generator=generator)
            # The second parameter has its first step later.
            param.grad = beside.grad = None if row == 1 and number < 3 else drawn
        compiled()
        other.step()
    assert [int(optimizer.state[param]["step"]) for param in ours] == [5, 2, 5]
    assert largest_difference(ours, theirs) <= 5 * 4 * 6e-8  # roundings of numbers of about 1


def test_schedulers_drive_the_groups_of_all_rules() -> None:
    first, second = parameters([(3,), (3,)])
    own: dict[str, Any] = {"params": [second], "rule": cf.optimizers.sgd(0.5)}
    optimizer = Optimizer([{"params": [first]}, own], cf.optimizers.sgd(0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = values([first, second])
    for _ in range(2):
        for param in (first, second):
            param.grad = torch.ones(3)
        optimizer.step()
        scheduler.step()
    for param, start, rate in zip((first, second), before, (0.1, 0.5), strict=True):
        torch.testing.assert_close(param.detach(), start - 1.5 * rate, rtol=1e-6, atol=1e-6)
    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.125]


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("is_whole_group", [False, True])
def test_the_rules_that_are_read_from_torch_are_taken(name: str, is_whole_group: bool) -> None:
    ours, theirs = parameters(((3, 4), (5,))), parameters(((3, 4), (5,)))

    def judge(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.0, "lr": 0.02}]
        options = {"weight_decay": 0.1, **({"momentum": 0.9} if name == "SGD" else {})}
        optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(groups, lr=0.05, **options)
        return optimizer

    rules = cf.from_torch(judge(ours))
    assert isinstance(rules, list)
    groups = judge(ours).param_groups if is_whole_group else [{"params": [p]} for p in ours]
    mine, other = Optimizer(groups, rules), judge(theirs)
    steps(mine, ours, 6)
    steps(other, theirs, 6)
    assert largest_difference(ours, theirs) <= 6 * 4 * 6e-8  # roundings of numbers of about 1


def refusals() -> list[tuple[Any, Any, type[ClosedFormError], str]]:
    sgd, (first, second) = cf.optimizers.sgd(0.1), parameters([(2,), (3,)])
    joint = cf.transforms.clip_by_global_norm(sgd, 1)
    two = [{"params": [first]}, {"params": [second]}]
    return [
        ([first, second], [sgd, sgd], ArgumentError, "got 2 rules for 1 group"),
        (two, [sgd], ArgumentError, "got 1 rules for 2 groups"),
        (two, [sgd, 0.5], ArgumentError, r"must be an UpdateRule, got float \(rule 1\)"),
        ([two[0], {**two[1], "rule": "sgd"}], sgd, ArgumentError, "got str .*param group 1"),
        ([two[0], {**two[1], "rule": joint}], sgd, ArgumentError, "steps all parameters together"),
        ([two[0], {**two[1], "rule": sgd}], joint, ArgumentError, "steps all parameters together"),
        (
            [two[0], {**two[1], "maximize": True}],
            sgd,
            ArgumentError,
            r"'maximize' is False in the rule 'sgd', and True.*'rule': sgd\(maximize=True\)",
        ),
        (
            [two[0], {**two[1], "weight_decay": 0.1}],
            UpdateRule("own", sgd.param, {}, {"lr": 0.1}),
            UnknownNameError,
            "'weight_decay', which is not a hyperparameter",
        ),
    ]


@pytest.mark.parametrize("number", range(8))
def test_wrong_rules_are_refused(number: int) -> None:
    groups, rule, error, said = refusals()[number]
    with pytest.raises(error, match=said):
        Optimizer(groups, rule)


def test_a_group_without_a_rule_needs_one_where_all_have_their_own() -> None:
    first, second = parameters([(2,), (3,)])
    optimizer = Optimizer([{"params": [first]}], [cf.optimizers.sgd(0.1)])
    with pytest.raises(ArgumentError, match=r"this one has none .*param group 1"):
        optimizer.add_param_group({"params": [second]})
    optimizer.add_param_group({"params": [second], "rule": cf.optimizers.lion(0.1)})
    steps(optimizer, [first, second], 1)


# --- entries ----------------------------------------------------------------------------------


def misspellings(name: str) -> list[str]:
    """The name with a letter left out, doubled, replaced, and with two letters exchanged."""
    draw = random.Random(name)
    at = draw.randrange(1, len(name) - 1) if len(name) > 2 else 0
    exchanged = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return [name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:], exchanged, name.upper()]


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_a_misspelled_entry_is_answered_by_the_name(name: str) -> None:
    params = parameters(((3, 4), (2, 2)))
    keys = {parameter.name for parameter in optim.OPTIMIZERS[name].entry.parameters}
    for key in sorted(key for key in keys if len(key) > 1):
        for wrong in misspellings(key):
            if wrong in keys or wrong == key:
                continue
            groups = [{"params": params[:1]}, {"params": params[1:], wrong: 0.5}]
            with pytest.raises(UnknownNameError, match="did you mean") as caught:
                getattr(optim, name)(groups)
            assert f"{name}, param group 1" in str(caught.value)
            meant = str(caught.value).rsplit("did you mean ", maxsplit=1)[1].strip("'?")
            assert meant in keys


def test_entries_of_other_tools_are_kept_as_in_torch() -> None:
    params = parameters(((2,), (3,)))
    others = {
        "name": "head",
        "initial_lr": 0.1,
        "max_lr": 1.0,
        "min_lr": 0.0,
        "swa_lr": 0.1,
        "max_momentum": 0.9,
        "base_momentum": 0.8,
        "lr_scale": 0.5,
        "layer_id": 3,
        "is_head": True,
        "learning": "slow",
    }
    for make in (optim.AdamW, lambda given: Optimizer(given, cf.optimizers.adamw(1e-3))):
        groups: list[dict[str, Any]] = [{"params": params[:1], **others}, {"params": params[1:]}]
        optimizer = make(groups)
        assert {key: optimizer.param_groups[0][key] for key in others} == others
        steps(optimizer, params, 1)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"learning_rate": 0.1}, "its name here is 'lr'"),
        ({"wd": 0.1}, "its name here is 'weight_decay'"),
        ({"beta_1": 0.8}, "did you mean 'beta1'"),
        ({"weight_decya": 0.1}, "did you mean 'weight_decay'"),
        ({"lrr": 0.1}, "did you mean 'lr'"),
    ],
)
def test_names_of_other_libraries_are_answered(entry: dict[str, float], said: str) -> None:
    params = parameters(((2,),))
    with pytest.raises(UnknownNameError, match=said):
        Optimizer([{"params": params, **entry}], cf.optimizers.adamw(1e-3))


@pytest.mark.parametrize("name", ["rules", "Rule", "optimizer", "update_rule"])
def test_a_rule_in_another_entry_is_refused(name: str) -> None:
    entry: dict[str, Any] = {name: cf.optimizers.lion(0.1)}
    for make in (optim.AdamW, lambda groups: Optimizer(groups, cf.optimizers.sgd(0.1))):
        first, second = parameters(((3,), (2,)))
        groups: list[dict[str, Any]] = [{"params": [first]}, {"params": [second], **entry}]
        with pytest.raises(ArgumentError, match="which is not read") as caught:
            make(groups)
        assert f"has a rule in the entry {name!r}" in str(caught.value)
        assert "param group 1): add the group with its rule: {'params': …, 'rule'" in str(
            caught.value
        )


def test_a_schedule_in_an_entry_that_is_not_read_is_refused() -> None:
    group = {"params": parameters(((2,),)), "lr_schedule": cf.schedules.linear(1, 0, 10)}
    with pytest.raises(ArgumentError, match="a schedule in the entry 'lr_schedule', which is"):
        Optimizer([group], cf.optimizers.sgd(0.1))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_rule_that_is_set_after_the_group_was_added_is_refused(before: int) -> None:
    params = parameters(((2,),))
    optimizer = Optimizer(params, cf.optimizers.sgd(0.1))
    steps(optimizer, params, before)
    before_step = values(params)
    optimizer.param_groups[0]["rule"] = cf.optimizers.sgd(0.5)
    with pytest.raises(ArgumentError, match="a rule in the entry 'rule', which is not read"):
        steps(optimizer, params, 1)
    assert largest_difference(params, before_step) == 0


@pytest.mark.parametrize("name", ["adagrad", "adam", "sgd", "rmsprop", "adamw"])
def test_a_decay_that_is_0_in_the_rule_may_be_set_by_a_group(name: str) -> None:
    """A decay mask in both orders; under a scheduler, it may begin at 0."""
    make = getattr(cf.optimizers, name)
    results = []
    masks: list[tuple[UpdateRule, tuple[dict[str, float], ...]]] = [
        (make(lr=0.05, weight_decay=0), ({}, {"weight_decay": 0.1})),
        (make(lr=0.05, weight_decay=0.1), ({"weight_decay": 0}, {})),
    ]
    for rule, groups in masks:
        params = parameters(((3,), (4,)))
        optimizer = Optimizer(
            [{"params": [p], **group} for p, group in zip(params, groups, strict=True)], rule
        )
        steps(optimizer, params, 4)
        results.append(values(params))
    assert largest_difference(*results) <= 4 * 4 * 6e-8  # roundings of numbers of about 1
    params, judged = parameters(((3,),)), parameters(((3,),))
    ours = Optimizer([{"params": params, "weight_decay": 0}], make(lr=0.05, weight_decay=0))
    other = Optimizer(judged, make(lr=0.05, weight_decay=0.1))
    other.param_groups[0]["weight_decay"] = 0
    schedulers = [
        ParamScheduler(one, cf.schedules.linear(0, 0.5, 4), key="weight_decay")
        for one in (ours, other)
    ]
    steps(ours, params, 4, after=schedulers[0].step)
    steps(other, judged, 4, after=schedulers[1].step)
    assert largest_difference(params, judged) <= 4 * 4 * 6e-8  # as above


def test_betas_of_a_group_are_those_of_the_rule() -> None:
    params, judged = parameters(((3,),)), parameters(((3,),))
    ours = Optimizer([{"params": params, "betas": (0.5, 0.6)}], cf.optimizers.adamw(0.1))
    assert "betas" not in ours.param_groups[0]
    other = Optimizer(judged, cf.optimizers.adamw(0.1, betas=(0.5, 0.6)))
    steps(ours, params, 3)
    steps(other, judged, 3)
    assert all(torch.equal(a, b) for a, b in zip(params, judged, strict=True))


# --- parameters that take their shape later -----------------------------------------------------


def lazy_net() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(2))


def reshaped_net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def shape_it(net: nn.Module) -> None:
    """Another head, by new data of the parameters of the old one."""
    if isinstance(net[2], nn.LazyLinear):  # type: ignore[index]
        net(torch.ones(1, 3))
    head: Any = net[2]  # type: ignore[index]
    head.weight.data, head.bias.data = torch.empty(7, 4), torch.empty(7)
    generator = torch.Generator().manual_seed(0)
    for param in net.parameters():
        param.data.copy_(torch.randn(param.shape, generator=generator))


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad", "Adafactor", "RMSprop", "Muon"])
@pytest.mark.parametrize("make", [lazy_net, reshaped_net])
def test_parameters_take_their_shape_before_their_first_step(
    name: str, make: Callable[[], nn.Module]
) -> None:
    results = []
    for classes in (optim, torch.optim):
        # torch's Adagrad makes its states at once, and its Muon looks at the shapes then.
        if name in ("Adagrad", "Muon") and classes is torch.optim:
            net = reshaped_net()
            shape_it(net)
        else:
            net = make()
        params: list[Any] = [p for p in net.parameters() if name != "Muon"]
        params = params or [layer.weight for layer in (net[0], net[2])]  # type: ignore[index]
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(classes, name)(params, lr=0.05, **options)
        shape_it(net)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        results.append(values(params))
    # Three steps of float32; Muon's products are in bfloat16.
    bound = 2e-2 if name == "Muon" else 2e-6
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=bound, atol=bound)


def test_a_frozen_parameter_may_change_its_shape_until_its_first_step() -> None:
    results = []
    for classes in (optim, torch.optim):
        body, head = parameters(((3, 4), (2, 3)))
        optimizer = classes.Adafactor([body, head], lr=0.05)
        for number in range(4):
            body.grad = torch.full((3, 4), 1.0 + number)
            if number == 2:
                head.data = torch.ones(5)
            if number >= 2:
                head.grad = torch.arange(5.0)
            optimizer.step()
        results.append(values([body, head]))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-6)  # four steps of float32


def test_a_model_may_take_another_dtype_before_the_first_step() -> None:
    results = []
    for classes in (optim, torch.optim):
        net = nn.Linear(3, 2)
        torch.manual_seed(0)
        nn.init.normal_(net.weight)
        nn.init.normal_(net.bias)
        optimizer: Any = classes.AdamW(net.parameters(), lr=0.05)
        net.double()
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 3, dtype=torch.float64)).square().sum().backward()
            optimizer.step()
        assert {states["exp_avg"].dtype for states in optimizer.state.values()} == {torch.float64}
        results.append(values(net.parameters()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)  # three steps of float64


def test_weights_that_are_loaded_after_the_optimizer_is_made_are_those_it_starts_from() -> None:
    rule = cf.transforms.weight_average(cf.optimizers.sgd(lr=0.1), decay=0.5)
    early, late = parameters(((3,),)), parameters(((3,),))
    optimizer = Optimizer(early, rule)
    for param in (*early, *late):
        param.data.fill_(5)
    other = Optimizer(late, rule)
    steps(optimizer, early, 4)
    steps(other, late, 4)
    for one in (optimizer, other):
        one.eval()
    assert largest_difference(early, late) == 0


def test_uninitialized_parameters_are_named_where_they_cannot_be_taken() -> None:
    net = nn.LazyLinear(3)
    with pytest.raises(ArgumentError, match=r"parameter 0 is not initialized.*run the model once"):
        cerebras.AdamW(net.parameters())
    trained = nn.Linear(2, 3)
    source = optim.AdamW(trained.parameters())
    steps(source, trained.parameters(), 1)
    optimizer = optim.AdamW(nn.LazyLinear(3).parameters())
    with pytest.raises(StateError, match=r"not initialized, .* parameter 0 of an unknown shape"):
        optimizer.load_state_dict(source.state_dict())


# --- names -------------------------------------------------------------------------------------


def named_optimizer(order: str, *, prefix: str = "") -> tuple[dict[str, nn.Parameter], Optimizer]:
    params = {name: nn.Parameter(torch.full((2,), float(ord(name)))) for name in order}
    optimizer = optim.AdamW([(prefix + name, param) for name, param in params.items()], lr=0.1)
    return params, optimizer


@pytest.mark.parametrize("order", ["abc", "cab", "bac"])
def test_parameters_in_another_order_are_matched_by_name(order: str) -> None:
    params, optimizer = named_optimizer("abc")
    for number, param in enumerate(params.values()):
        param.grad = torch.full((2,), 1.0 + number)
    optimizer.step()
    others, other = named_optimizer(order)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for name, param in others.items():
        assert torch.equal(other.state[param]["exp_avg"], optimizer.state[params[name]]["exp_avg"])
    assert other.param_groups[0]["param_names"] == list(order)


def test_other_names_are_matched_in_order_as_in_torch() -> None:
    params, optimizer = named_optimizer("abc")
    steps(optimizer, params.values(), 1)
    for order, prefix in (("abc", "module."), ("abd", "")):
        others, other = named_optimizer(order, prefix=prefix)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for one, two in zip(params.values(), others.values(), strict=True):
            assert torch.equal(optimizer.state[one]["exp_avg"], other.state[two]["exp_avg"])


def test_names_that_are_in_part_at_another_place_are_refused() -> None:
    params, optimizer = named_optimizer("abc")
    steps(optimizer, params.values(), 1)
    _, other = named_optimizer("bad")
    with pytest.raises(StateError) as caught:
        other.load_state_dict(optimizer.state_dict())
    for part in (
        "parameter 'a' is parameter 0 of param group 0 in the state dict",
        "parameter 1 of param group 0 here",
        "leave 'param_names' out",
    ):
        assert part in str(caught.value)
    assert not other.state


# --- torch.distributed.checkpoint ---------------------------------------------------------------

RESTING = {
    "adamw": lambda: cf.optimizers.adamw(1e-2),
    "sgd": lambda: cf.optimizers.sgd(0.1, momentum=0.9, weight_decay=0.1),
    "lion": lambda: cf.optimizers.lion(1e-2),
    "lamb": lambda: cf.optimizers.lamb(1e-2),
    "muon": lambda: cf.optimizers.muon(1e-2),
    "clipped": lambda: cf.transforms.clip_by_global_norm(cf.optimizers.adamw(1e-2), 1),
    "averaged": lambda: cf.transforms.weight_average(cf.optimizers.adamw(1e-2), decay=0.9),
    "read from torch": lambda: cf.from_torch(torch.optim.AdamW([nn.Parameter(torch.ones(2))])),
}
MOVING = {
    "ftrl": lambda: cf.optimizers.ftrl(),
    "decoupled_adamw": lambda: cf.optimizers.decoupled_adamw(1e-2),
    "schedule_free": lambda: cf.optimizers.schedule_free_adamw(1e-2),
    "lookahead": lambda: cf.transforms.lookahead(cf.optimizers.adamw(1e-2), 1),
    "scheduled": lambda: cf.optimizers.adamw(cf.schedules.linear(0.1, 0, 5)),
    "scheduled without decay": lambda: cf.optimizers.adam(cf.schedules.linear(0.1, 0, 5)),
}


@pytest.mark.parametrize("name", [*RESTING, *MOVING])
def test_the_checkpoints_of_torch_make_states_and_move_no_parameter(name: str) -> None:
    """For them, torch steps with gradients and learning rates of 0."""
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    def model() -> nn.Linear:
        torch.manual_seed(0)
        return nn.Linear(3, 2, bias=False)

    make: Callable[[], Any] = {**RESTING, **MOVING}[name]
    one, two = model(), model()
    trained, fresh = Optimizer(one.parameters(), make()), Optimizer(two.parameters(), make())
    assert (not fresh.state) == (name in RESTING)
    steps(trained, one.parameters(), 3)
    saved = copy.deepcopy(get_optimizer_state_dict(one, trained))
    two_before = values(two.parameters())
    get_optimizer_state_dict(two, fresh)
    assert largest_difference(two.parameters(), two_before) == 0
    with torch.no_grad():
        two.weight.copy_(one.weight)
    set_optimizer_state_dict(two, fresh, saved)
    assert largest_difference(two.parameters(), one.parameters()) == 0
    steps(trained, one.parameters(), 2, seed=3)
    steps(fresh, two.parameters(), 2, seed=3)
    assert largest_difference(two.parameters(), one.parameters()) == 0


def test_a_shape_that_changes_after_the_states_are_made_is_refused_by_name() -> None:
    net = nn.Linear(6, 3)
    optimizer = Optimizer(net.parameters(), cf.optimizers.ftrl(0.1))
    optimizer.load_state_dict(optimizer.state_dict())
    net.weight.data, net.bias.data = torch.ones(5, 6), torch.zeros(5)
    net(torch.ones(2, 6)).sum().backward()
    with pytest.raises(StateError, match=r"has shape \[3, 6\].*parameter 0 of shape \[5, 6\]"):
        optimizer.step()
    optimizer.state.clear()
    optimizer.step()
