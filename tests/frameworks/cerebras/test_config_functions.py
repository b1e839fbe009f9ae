"""Every record of cerebras' config functions: the same result, or the same kind of error."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from closedform.errors import ClosedFormError
from closedform.frameworks import cerebras
from tests.reference.records import Row, config_function_records

RECORDS = {row["id"]: row for row in config_function_records()}

# The reference's error -> the builtin that ours is as well.
KINDS: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "AssertionError": ValueError,
    "TypeError": TypeError,
    "AttributeError": TypeError,
    "KeyError": LookupError,
}

# Results that the documents contradict: only as_implemented gives them.
AGAINST_DOCUMENTS: dict[str, Any] = {
    "cfg-0002": ("ConstantLR", {"learning_rate": 0.0}),  # Zero is a number.
    "cfg-0048": ("SGD", {"lr": 1.0}),  # A Python int is a number.
}

FROZEN = "!"
WITHOUT_BIAS = ("Embedding",)
NORMS = ("LayerNorm", "BatchNorm2d")


def parameters(model: list[list[str]]) -> list[str]:
    """The names of the parameters of a model that are trained."""
    return [
        f"{name}.{kind}"
        for name, layer in model
        if not layer.endswith(FROZEN)
        for kind in (("weight",) if layer in WITHOUT_BIAS else ("weight", "bias"))
    ]


def call(row: Row, *, as_implemented: bool) -> Any:
    match row["function"]:
        case "configure_lr_scheduler":
            return cerebras.configure_lr_scheduler(
                row["config"], row["adjust_learning_rate"], as_implemented=as_implemented
            )
        case "configure_scheduler":
            return cerebras.configure_scheduler(row["config"])
        case "configure_scheduler_params":
            return cerebras.configure_scheduler_params(row["config"])
        case "configure_optimizer_params":
            return cerebras.configure_optimizer_params(
                row["optimizer_type"], row["kwargs"], as_implemented=as_implemented
            )
        case "configure_optimizer":
            return cerebras.configure_optimizer(
                row["optimizer_type"], row["kwargs"], as_implemented=as_implemented
            )
        case "configure_param_groups":
            names = parameters(row["model"])
            norms = [name for name, layer in row["model"] if layer in NORMS]
            make: Callable[..., Any] = cerebras.configure_param_groups
            if row["version"] == "2.2.1":
                make = cerebras.configure_param_groups_2_2
            return make(names, norms, row["config"])
    raise AssertionError(row["function"])


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def wanted(row: Row) -> Any:
    result = row["result"]
    if isinstance(result, dict):
        return [result["cls"], result.get("kwargs", result.get("defaults"))]
    return result


RETURNING = [key for key, row in RECORDS.items() if "error" not in row]
REFUSING = [key for key, row in RECORDS.items() if "error" in row]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", RETURNING)
def test_result_is_the_same(key: str) -> None:
    row = RECORDS[key]
    before = copy.deepcopy(row)
    assert plain(call(row, as_implemented=True)) == wanted(row)
    if key in AGAINST_DOCUMENTS:
        assert call(row, as_implemented=False) == AGAINST_DOCUMENTS[key]
    else:
        assert plain(call(row, as_implemented=False)) == wanted(row)
    assert row == before


@pytest.mark.parametrize("key", REFUSING)
@pytest.mark.parametrize("as_implemented", [False, True])
def test_error_is_of_the_same_kind(key: str, as_implemented: bool) -> None:
    row = RECORDS[key]
    before = copy.deepcopy(row)
    with pytest.raises(ClosedFormError) as caught:
        call(row, as_implemented=as_implemented)
    assert isinstance(caught.value, KINDS[row["error"]])
    assert row == before


def test_every_record_is_accounted_for() -> None:
    print(f"{len(RETURNING)} results, {len(AGAINST_DOCUMENTS)} of them against the documents")
    print(f"{len(REFUSING)} errors, of {len(RECORDS)}")
    assert len(RECORDS) == 85
    assert (len(RETURNING), len(REFUSING)) == COUNTS
    assert set(AGAINST_DOCUMENTS) <= set(RETURNING)


COUNTS = (55, 30)
