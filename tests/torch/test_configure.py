"""The config functions on classes: all 85 records, and configs that name classes of your own."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from closedform.errors import ClosedFormError, ConfigError
from closedform.frameworks import names
from closedform.torch import cerebras
from tests.frameworks.cerebras.test_config_functions import (
    AGAINST_DOCUMENTS,
    FROZEN,
    KINDS,
    RECORDS,
    REFUSING,
    RETURNING,
    plain,
    wanted,
)
from tests.reference.records import Row
from tests.torch.training import parameters, two_groups

LAYERS: dict[str, Any] = {
    "Embedding": lambda: nn.Embedding(2, 2),
    "Linear": lambda: nn.Linear(2, 2),
    "LayerNorm": lambda: nn.LayerNorm(2),
    "BatchNorm2d": lambda: nn.BatchNorm2d(2),
    "Conv2d": lambda: nn.Conv2d(2, 2, 1),
}

# The reference's Adam moves its weight decay to an entry of its own, which makes a scheduler of
# weight_decay decoupled there; here the entry is the argument, an L2 penalty as documented.
OTHER_ENTRIES = {
    "Adam": {"weight_decay", "l2_regularization_rate", "correct_bias"},
    "AdamW": {"l2_regularization_rate"},
}


def model_of(layers: list[list[str]]) -> nn.Module:
    model = nn.Module()
    for path, kind in layers:
        inner = model
        *parents, name = path.split(".")
        for parent in parents:
            if not hasattr(inner, parent):
                inner.add_module(parent, nn.Module())
            inner = inner.get_submodule(parent)
        layer = LAYERS[kind.removesuffix(FROZEN)]()
        layer.requires_grad_(not kind.endswith(FROZEN))
        inner.add_module(name, layer)
    return model


def call(row: Row) -> Any:
    """The result of our function, in the form of the record."""
    config: Any = row.get("config")
    made: Any
    match row["function"]:
        case "configure_lr_scheduler":
            made = cerebras.configure_lr_scheduler(
                two_groups(), config, row["adjust_learning_rate"]
            )
            return None if made is None else [type(made).__name__, made.kwargs]
        case "configure_scheduler":
            made = cerebras.configure_scheduler(two_groups(), config)
            return [type(made).__name__, made.kwargs]
        case "configure_scheduler_params":
            cls, kwargs = cerebras.configure_scheduler_params(config)
            return [cls.__name__, kwargs]
        case "configure_optimizer_params":
            kind, given = cerebras.configure_optimizer_params(row["optimizer_type"], row["kwargs"])
            return [kind.__name__, plain(given)]
        case "configure_optimizer":
            optimizer = cerebras.configure_optimizer(
                row["optimizer_type"], parameters([(2, 3)]), **row["kwargs"]
            )
            return [type(optimizer).__name__, plain(optimizer.defaults)]
        case "configure_param_groups":
            version = "2.2" if row["version"] == "2.2.1" else "2.3"
            model = model_of(row["model"])
            by_id = {id(param): name for name, param in model.named_parameters()}
            groups = cerebras.configure_param_groups(model, config, version)
            return [{**g, "params": [by_id[id(p)] for p in g["params"]]} for g in groups]
    raise AssertionError(row["function"])


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", RETURNING)
def test_result_is_the_same(key: str) -> None:
    row = RECORDS[key]
    before = copy.deepcopy(row)
    found = call(row)
    if key in AGAINST_DOCUMENTS:
        assert found == plain(AGAINST_DOCUMENTS[key])
    elif row["function"] == "configure_optimizer":
        name, entries = wanted(row)
        other = OTHER_ENTRIES.get(name, set())
        assert found[0] == name
        assert {k: v for k, v in found[1].items() if k not in other} == {
            k: v for k, v in entries.items() if k not in other
        }
    else:
        assert found == wanted(row)
    assert row == before


@pytest.mark.parametrize("key", REFUSING)
def test_error_is_of_the_same_kind(key: str) -> None:
    row = RECORDS[key]
    before = copy.deepcopy(row)
    with pytest.raises(ClosedFormError) as caught:
        call(row)
    assert isinstance(caught.value, KINDS[row["error"]])
    assert row == before


def test_all_85_records_are_asked() -> None:
    assert len(RETURNING) + len(REFUSING) == len(RECORDS) == 85


class LateStart(cerebras.LRScheduler):
    def __init__(self, optimizer: Any, rate: float, total_iters: int = 4) -> None:
        self.rate = rate
        super().__init__(optimizer, total_iters)

    def _get_closed_form(self) -> Any:
        return self.rate * self.last_epoch


def test_classes_of_your_own_are_found_by_name() -> None:
    optimizer = two_groups()
    for name in ("LateStartLR", "latestart", "LateStart"):
        if name != "LateStartLR":
            made = cerebras.configure_lr_scheduler(optimizer, {"scheduler": name, "rate": 0.5})
            assert type(made) is LateStart
    linear = {
        "scheduler": "linear",
        "initial_learning_rate": 0,
        "end_learning_rate": 1,
        "total_iters": 3,
    }
    row = cerebras.configure_lr_scheduler(
        optimizer, [linear, {"scheduler": "LateStart", "rate": 2}]
    )
    assert row is not None
    assert [row.schedules[0](step) for step in range(6)] == pytest.approx(
        [0, 1 / 3, 2 / 3, 0, 2, 4]
    )
    nested = {
        "SequentialLR": {
            "schedulers": [
                {"LateStart": {"rate": 1, "total_iters": 2}},
                {"ConstantLR": {"learning_rate": 3}},
            ]
        }
    }
    before = copy.deepcopy(nested)
    made = cerebras.configure_scheduler(optimizer, nested)
    assert [made.schedules[0](step) for step in range(4)] == [0, 1, 3, 3]
    assert nested == before
    cls, kwargs = cerebras.configure_scheduler_params({"scheduler": "latestart", "rate": 1})
    assert (cls, kwargs) == (LateStart, {"rate": 1})
    with pytest.raises(ConfigError, match="did you mean 'LateStart'"):
        cerebras.configure_lr_scheduler(optimizer, {"scheduler": "LateStrt", "rate": 0.5})


def test_a_member_of_your_own_leaves_the_optimizer_alone() -> None:
    optimizer = two_groups(lr=torch.tensor(0.5), foreach=False)
    rate = optimizer.param_groups[0]["lr"]
    config = [
        {"scheduler": "LateStart", "rate": 8, "total_iters": 3, "main_scheduler": "chained"},
    ]
    made = cerebras.configure_lr_scheduler(optimizer, config)
    assert type(made) is cerebras.ChainedScheduler
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0


def test_factors_of_groups_are_applied() -> None:
    groups: list[dict[str, Any]] = [
        {"params": parameters([(2,)]), "adjust_learning_rate": 0.5},
        {"params": parameters([(3,)])},
    ]
    optimizer = cerebras.configure_optimizer("sgd", groups, learning_rate=1)
    made = cerebras.configure_lr_scheduler(optimizer, 4, {"embedding": 0.5})
    assert made is not None
    assert made.get_last_lr() == [2, 4]


def test_every_optimizer_of_the_framework_can_be_configured() -> None:
    for name in names("cerebras").optimizers:
        optimizer = cerebras.configure_optimizer(name.upper(), parameters([(2, 3)]))
        assert type(optimizer).__name__ == name
