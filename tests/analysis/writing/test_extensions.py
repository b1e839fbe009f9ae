"""Tables and extension points: the written source is run, and compared with the schedule."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from closedform.analysis.writing import TextKind, Verdict, write_recipe
from closedform.errors import ArgumentError, UnknownNameError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.logs import read_log

FLAGS = {
    "lr": 3e-4,
    "min-lr": 3e-5,
    "train-iters": 60,
    "lr-decay-iters": 50,
    "lr-warmup-iters": 7,
    "lr-decay-style": "cosine",
    "decoupled-lr": 1e-3,
}
STEPS = np.arange(70)
CLOSE = 1e-14
"""A few roundings of float64 to the values, which are below 1."""


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe(FLAGS, framework="megatron", facts={"global_batch_size": 8})


def namespace(source: str) -> dict[str, Any]:
    """The names of a written module."""
    found: dict[str, Any] = {}
    exec(compile(source, "<written>", "exec"), found)
    return found


def source(recipe: Recipe, framework: str) -> str:
    written = write_recipe(recipe, framework, kind=TextKind.EXTENSION)
    assert (written.verdict, written.suffix) == (Verdict.EXACT, ".py")
    assert "closedform" not in written.text
    return written.text


T5X = "utils.create_learning_rate_scheduler"
CONFIGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("megatron", FLAGS, {"global_batch_size": 8}),
    (
        "composer",
        {
            "optimizers": {"adamw": {"lr": 1e-3}},
            "schedulers": [{"multistep": {"milestones": ["10ba", "20ba"], "gamma": 0.3}}],
            "max_duration": "60ba",
        },
        {},
    ),
    (
        "fairseq",
        {
            "optimization": {"lr": [1e-3], "max_update": 60},
            "optimizer": "adam",
            "lr_scheduler": {"_name": "cosine", "warmup_updates": 5, "lr_period_updates": 13},
        },
        {},
    ),
    (
        "t5x",
        {
            f"{T5X}.factors": "constant * linear_warmup * rsqrt_decay",
            f"{T5X}.base_learning_rate": 1.0,
            f"{T5X}.warmup_steps": 9,
        },
        {"total_updates": 60},
    ),
]


@pytest.mark.parametrize(("framework", "config", "facts"), CONFIGS)
def test_functions_have_the_values_of_the_schedule(
    framework: str, config: dict[str, Any], facts: dict[str, Any]
) -> None:
    recipe = load_recipe(config, framework=framework, facts=facts)
    function = namespace(source(recipe, "torch"))["learning_rate"]
    wanted = recipe.schedule()(STEPS)
    np.testing.assert_allclose([function(int(t)) for t in STEPS], wanted, rtol=0, atol=CLOSE)


def test_torch_steps_the_schedule_of_each_param_group(recipe: Recipe) -> None:
    made = namespace(source(recipe, "transformers"))
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:1]},
        {"params": parameters[1:], "name": "decoupled_lr"},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    scheduler = made["scheduler"](optimizer)
    for step in range(30):
        rates = [recipe.schedule()(step), recipe.schedule("lr", "decoupled_lr")(step)]
        found = [group["lr"] for group in optimizer.param_groups]
        assert found == pytest.approx(rates, rel=1e-14)
        optimizer.step()
        scheduler.step()


def test_composer_takes_the_factor_of_a_batch(recipe: Recipe) -> None:
    scheduler = namespace(source(recipe, "composer"))["scheduler"]
    for step in (0, 6, 7, 33, 59):
        state = SimpleNamespace(timestamp=SimpleNamespace(batch=step))
        assert 3e-4 * scheduler(state) == pytest.approx(recipe.schedule()(step), rel=1e-14)


def stub(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module of a package that is not installed, with an empty class."""
    for index in range(name.count(".") + 1):
        part = ".".join(name.split(".")[: index + 1])
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    for key, value in members.items():
        setattr(sys.modules[name], key, value)


def test_detectron2_asks_by_the_part_of_the_run(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, "fvcore.common.param_scheduler", ParamScheduler=object)
    multiplier = namespace(source(recipe, "detectron2"))["multiplier"]()
    for step in range(60):
        wanted = recipe.schedule()(step)
        assert 3e-4 * multiplier(step / 60) == pytest.approx(wanted, rel=1e-14)


def test_megatron_asks_by_samples(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "megatron.core.optimizer_param_scheduler", OptimizerParamScheduler=object)
    made = namespace(source(recipe, "megatron"))["scheduler_class"]()()
    for step in (0, 3, 8, 59):
        made.num_steps = 8 * step
        assert made.get_lr({}) == pytest.approx(recipe.schedule()(step), rel=1e-14)
        wanted = recipe.schedule("lr", "decoupled_lr")(step)
        assert made.get_lr({"name": "decoupled_lr"}) == pytest.approx(wanted, rel=1e-14)


def test_optax_takes_a_table_of_the_same_function(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, "jax.numpy", asarray=np.asarray, minimum=np.minimum, float32=np.float32)
    schedule = namespace(source(recipe, "optax"))["schedule"]
    wanted = recipe.schedule()(np.minimum(STEPS, 59))
    np.testing.assert_array_equal(schedule(STEPS), np.float32(wanted))


def test_tables_are_read_as_logs(recipe: Recipe, tmp_path: Any) -> None:
    written = write_recipe(recipe, "megatron", kind="table")
    assert (written.verdict, written.until, written.suffix) == (Verdict.UNTIL, 60, ".csv")
    assert written.left_out == ("the param group 'decoupled_lr'",)
    path = tmp_path / "values.csv"
    path.write_text(written.text, encoding="utf-8")
    log = read_log(path)
    assert log.steps.tolist() == list(range(60))
    for key in ("lr", "weight_decay"):
        found = log.values[key].numbers.tolist()
        # The table has the digits of the float64 values.
        assert found == [float(recipe.schedule(key)(step)) for step in range(60)]


def test_mistakes_of_the_call(recipe: Recipe) -> None:
    with pytest.raises(UnknownNameError, match=r"there is no kind 'tabel'.*'table'"):
        write_recipe(recipe, "megatron", kind="tabel")
    with pytest.raises(UnknownNameError, match=r"there is no framework 'megatrn'.*'megatron'"):
        write_recipe(recipe, "megatrn", kind="table")
    with pytest.raises(ArgumentError, match="at most 1000000 updates, got 2000000"):
        write_recipe(recipe, "megatron", 2_000_000, "table")
