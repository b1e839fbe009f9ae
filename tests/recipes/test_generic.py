"""Configs of no known framework: by the names of their keys, by classes, and from objects."""

import argparse
import dataclasses
import json
import math
import random
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.analysis.linting import lint
from closedform.errors import ClosedFormError, ConfigError, MissingFactsError, UnknownNameError
from closedform.recipes.load import load_recipe
from tests.support.commands import CliRunner

LR = "torch.optim.lr_scheduler."


def read(config: Any, **options: Any) -> Any:
    return load_recipe(config, framework="generic", **options)


def rates(recipe: Any, steps: int) -> list[float]:
    return [float(recipe.schedule().exact(step)) for step in range(steps)]


def torch_rates(
    build: Callable[[torch.optim.Optimizer], Any], base: float, steps: int, every: int = 1
) -> list[float]:
    """The rates of a scheduler of torch, stepped after every so many updates."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = build(optimizer)
        found = []
        for step in range(steps):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if (step + 1) % every == 0:
                scheduler.step()
    return found


CLASSES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 4, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 7], "gamma": 0.25}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 15, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2}),
    ("LinearLR", {"start_factor": 0.5, "total_iters": 6}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 20, "cycle_momentum": False}),
]
FORMS: dict[str, Any] = {
    "hydra": lambda name, given: {"_target_": f"{LR}{name}", "_partial_": True, **given},
    "lightning": lambda name, given: {"class_path": f"{LR}{name}", "init_args": given},
    "by name": lambda name, given: {"name": name, **given},
    "nested": lambda name, given: {"type": name, "args": given},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "given"), CLASSES, ids=[name for name, _ in CLASSES])
@pytest.mark.parametrize("every", [1, 3])
def test_blocks_are_read_by_their_class(
    name: str, given: dict[str, Any], form: str, every: int
) -> None:
    form_of: Callable[[str, dict[str, Any]], dict[str, Any]] = FORMS[form]
    block = form_of(name, given)
    optimizer = {"_target_": "torch.optim.AdamW", "weight_decay": 0.1}
    if name not in ("CyclicLR", "OneCycleLR"):
        optimizer["lr"] = 0.1
    length = {"max_epochs": 7} if every > 1 else {"max_steps": 20}
    config = {"a": [{"b": {"optimizer": optimizer, "sched": block}}], "trainer": length}
    recipe = read(config, facts={"updates_per_epoch": every})
    expected = torch_rates(
        lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **given), 0.1, 20,
        every,
    )  # fmt: skip
    # torch changes the rate from one step to the next, 20 times.
    assert rates(recipe, 20) == pytest.approx(expected, rel=1e-12)
    assert name in recipe.notes["decay"]
    assert recipe.optimizer().name == "adamw"


@pytest.mark.parametrize(("name", "given"), CLASSES, ids=[name for name, _ in CLASSES])
def test_a_class_that_a_text_names_takes_the_keys_of_its_arguments(
    name: str, given: dict[str, Any]
) -> None:
    config = {"training": {"lr_scheduler": name}, "params": given, "max_steps": 20}
    if name not in ("CyclicLR", "OneCycleLR"):
        config["lr"] = 0.1
    if name == "OneCycleLR":
        del config["max_steps"]
    recipe = read(config)
    expected = torch_rates(
        lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **given), 0.1, 20
    )
    # torch changes the rate from one step to the next, 20 times.
    assert rates(recipe, 20) == pytest.approx(expected, rel=1e-12)


def test_a_class_with_keys_of_other_names_is_its_family() -> None:
    config = {"lr": 0.1, "scheduler": "StepLR", "lr_decay_epochs": 2, "lr_gamma": 0.5, "epochs": 8}
    recipe = read(config, facts={"updates_per_epoch": 3})
    expected = torch_rates(
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), 0.1, 24, 3
    )
    assert rates(recipe, 24) == pytest.approx(expected, rel=1e-12)
    plain = read({"lr": 0.1, "scheduler": "StepLR", "step_size": 2, "max_steps": 8})
    assert "default of 0.1 is assumed" in plain.notes["gamma"]


def test_a_sequence_of_blocks_is_read() -> None:
    members = [
        {"_target_": f"{LR}LinearLR", "start_factor": 0.1, "total_iters": 5},
        {"_target_": f"{LR}CosineAnnealingLR", "T_max": "${trainer.max_steps}"},
    ]
    block = {"_target_": f"{LR}SequentialLR", "schedulers": members, "milestones": [5]}
    recipe = read({"optimizer": {"lr": 0.1}, "scheduler": block, "trainer": {"max_steps": 20}})

    def build(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        first = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
        second = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [first, second], milestones=[5])

    assert rates(recipe, 20) == pytest.approx(torch_rates(build, 0.1, 20), rel=1e-12)


def test_functions_of_transformers_are_read() -> None:
    block = {"_target_": "transformers.get_cosine_schedule_with_warmup", "num_warmup_steps": 10}
    recipe = read({"sched": block, "opt": {"lr": 1e-3}, "max_steps": 110})
    assert [recipe.schedule().exact(step) for step in (0, 5, 10, 60, 110)] == [
        *(0, pytest.approx(5e-4), pytest.approx(1e-3), pytest.approx(5e-4), pytest.approx(0)),
    ]
    with pytest.raises(ConfigError, match="the key of total is missing"):
        read({"sched": block, "opt": {"lr": 1e-3}})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"gen": {"lr": 1e-3}, "disc": {"lr": 1e-3}}, "2 keys can be the rate .*: gen.lr = 0.001"),
        ({"lr": 1, "max_steps": 9, "epochs": 2, "sched": "linear"}, "2 keys can be the length"),
        (
            {"lr": 1, "sched": "linear", "warmup_iters": 5, "warmup_ratio": 0.1},
            "2 keys can be the length of the warm",
        ),
        ({"steps": 3, "sched": "cosine"}, "the key of lr is missing"),
        ({"lr": 1, "sched": "cosine", "warmup_steps": 3}, "the key of total is missing"),
        ({"lr": 1, "sched": "poly", "max_steps": 3}, "the key of power is missing"),
        ({"lr": 1, "sched": "step", "max_steps": 3, "gamma": 0.1}, "the key of step_size is miss"),
        ({"lr": 1, "sched": "step", "max_steps": 3, "step_size": 4}, "the key of gamma is missing"),
        ({"lr": 1, "min_lr": 0.1, "max_steps": 3}, "the key of decay is missing .* min_lr speak"),
        ({"lr": 1, "max_steps": 3}, "the key of decay is missing .*: the run has a length"),
        ({"lr": 1, "max_steps": 100.5, "sched": "linear"}, "must be a whole number, got 100.5"),
        ({"lr": "auto", "max_steps": 3}, "lr = 'auto' is of another type"),
        ({"lr": 1, "warmup": True, "max_steps": 9, "sched": "linear"}, "key of warmup is missing"),
        ({"lr": 1, "betas": ["x", 1]}, "betas must be a finite number, got 'x'"),
        (
            {"lr": 1, "s": {"scheduler": "StepLR"}, "a": {"step_size": 3}, "b": {"step_size": 4}},
            "2 keys can be step_size of StepLR",
        ),
        ({"lr": 1, "pct_start": 0.1, "max_steps": 3}, "the key of decay is missing"),
        ({"lr": 1, "sched": "noam", "max_steps": 3}, "there is no family of schedules 'noam'"),
        ({"lr": 1, "scheduler": {"_target_": "a.b.Foo"}, "max_steps": 3}, "no scheduler class"),
        ({"lr": "${a}", "a": "${lr}"}, "nested at most"),
        ({"lr": 1, "s": {"_target_": f"{LR}ReduceLROnPlateau"}}, "driven by a metric"),
        (
            {"lr": 1, "s": [{"type": "StepLR", "step_size": 2}, {"type": "StepLR"}], "epochs": 3},
            "2 keys can be the family",
        ),
        ({"lr": 1, "s": {"type": "StepLR", "step_size": 2}}, "the key of unit is missing"),
    ],
)
def test_what_the_names_leave_open_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ClosedFormError, match=words):
        read(config)


def test_a_map_corrects_the_reading() -> None:
    config = {"gen": {"lr": 1e-3}, "disc": {"lr": 2e-3}, "rise": 4, "steps": 20, "sched": "linear"}
    recipe = read(config, paths={"lr": "disc.lr", "warmup": "rise", "min_lr": "1e-3"})
    assert [float(recipe.schedule().exact(step)) for step in (0, 2, 4, 12, 20)] == pytest.approx(
        [0, 1e-3, 2e-3, 1.5e-3, 1e-3]
    )
    assert "gen.lr" in recipe.notes["not-read"]
    with pytest.raises(UnknownNameError, match=r"neither a path .* 'disk.lr' .*mean 'disc.lr'"):
        read(config, paths={"lr": "disk.lr"})
    with pytest.raises(UnknownNameError, match="no concept 'warmpu': did you mean 'warmup'"):
        read(config, paths={"warmpu": "rise"})
    with pytest.raises(ClosedFormError, match="paths are for framework='generic'"):
        load_recipe(config, paths={"lr": "disc.lr"})


def test_the_terminal_has_the_same(tmp_path: Path) -> None:
    path = tmp_path / "gan.json"
    path.write_text(json.dumps({"gen": {"lr": 1e-3}, "disc": {"lr": 2e-3}}))
    runner = CliRunner()
    ambiguous = runner.invoke(["show", str(path), "--generic"])
    assert ambiguous.exit_code == 4
    assert "choose one: --map lr=gen.lr" in ambiguous.stderr
    shown = runner.invoke(["show", str(path), "--generic", "--map", "lr=disc.lr", "--json"])
    data = json.loads(shown.stdout)
    assert data["schedules"]["lr"]["values"][0]["value"] == 2e-3
    assert data["recipe"]["notes"]["decay"].endswith("the rate is assumed to be constant")
    alone = runner.invoke(["show", str(path), "--map", "lr=disc.lr"])
    assert "give --generic" in alone.stderr


def test_epochs_need_their_length() -> None:
    config = {"lr": 0.1, "scheduler": "cosine", "epochs": 10, "warmup_epochs": 2}
    with pytest.raises(MissingFactsError, match="updates_per_epoch"):
        read(config)
    recipe = read(config, facts={"dataset_size": 10, "global_batch_size": 4})
    assert recipe.horizon == 30
    assert float(recipe.schedule().exact(5)) == pytest.approx(0.05)
    assert recipe.schedule().exact(6) == recipe.schedule().exact(8)
    smooth = read(config, facts={"updates_per_epoch": 3}, paths={"unit": "update"})
    assert float(smooth.schedule().exact(5)) == pytest.approx(0.1 * 5 / 6)


@dataclasses.dataclass
class Arguments:
    learning_rate: float = 1e-3
    lr_scheduler_type: str = "cosine"
    max_steps: int = 100
    device: object = dataclasses.field(default_factory=object)


class Node:
    """A container of OmegaConf by its attributes: nodes in ``_content``."""

    def __init__(self, content: Any) -> None:
        self.__dict__["_content"] = content

    def items_ex(self, resolve: bool = True) -> Any:
        raise AssertionError


class Leaf:
    """A value node of OmegaConf by its attributes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _is_missing(self) -> bool:
        return False

    def _value(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    "source",
    [
        Arguments(),
        argparse.Namespace(learning_rate=1e-3, lr_scheduler_type="cosine", max_steps=100),
        types.SimpleNamespace(learning_rate=1e-3, lr_scheduler_type="cosine", max_steps=100),
        Node(
            {
                "learning_rate": Leaf("${base}"),
                "base": Leaf(1e-3),
                "lr_scheduler_type": Leaf("cosine"),
                "max_steps": Leaf(100),
            }
        ),
    ],
    ids=lambda source: type(source).__name__,
)
def test_objects_are_configs(source: Any) -> None:
    recipe = read(source)
    assert recipe.horizon == 100
    assert float(recipe.schedule().exact(50)) == pytest.approx(5e-4)


def test_an_object_that_contains_itself_is_refused() -> None:
    loop = argparse.Namespace(lr=1)
    loop.inner = loop
    with pytest.raises(ConfigError, match="nested at most"):
        load_recipe(loop)
    with pytest.raises(
        ConfigError, match=r"a path, a mapping, a dataclass or a namespace, got set"
    ):
        load_recipe({1, 2})  # type: ignore[arg-type]


def test_a_notebook_is_read_by_its_code_cells(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "lr = 7"},
        {"cell_type": "code", "source": ["%pip install trl\n", "!nvidia-smi\n", "steps = 60"]},
        {"cell_type": "code", "source": "%%bash\nlr = 9"},
        {"cell_type": "code", "source": "this is not Python"},
        {
            "cell_type": "code",
            "source": "args = TrainingArguments(learning_rate=2e-4, max_steps=steps, "
            "lr_scheduler_type='linear', optim='adamw_8bit')",
        },
    ]
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps({"cells": cells, "outputs": "x" * 2_000_000}))
    recipe = cf.load_recipe(path)
    assert (recipe.framework, recipe.horizon) == ("transformers", 60)
    assert float(recipe.schedule().exact(30)) == pytest.approx(1e-4)
    shown = CliRunner().invoke(["show", str(path), "--all"])
    assert shown.exit_code == 0
    assert "the library has no optimizer 'adamw_8bit'" in shown.stderr
    path.write_text('{"nbformat": 4}')
    with pytest.raises(ConfigError, match="a notebook must have a list of cells"):
        cf.load_recipe(path)


def test_a_function_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import math\nfrom argparse import Namespace\n\n"
        "def rate(step):\n"
        "    if step < 10:\n        return 1e-3 * step / 10\n"
        "    return 5e-4 * (1 + math.cos(math.pi * min(1.0, (step - 10) / 90)))\n\n"
        "args = Namespace(learning_rate=1e-3, max_steps=100, lr_scheduler_type='cosine')\n"
    )
    runner = CliRunner()
    written = runner.invoke(["convert", f"{path}:rate", "--to", "transformers", "--total", "100"])
    assert written.exit_code == 0
    assert "transformers: exact" in written.stderr
    back = load_recipe(_yaml(tmp_path, written.stdout), framework="transformers")
    assert float(back.schedule().exact(55)) == pytest.approx(5e-4)
    without = runner.invoke(["convert", f"{path}:rate", "--to", "transformers"])
    assert "give --total UPDATES" in without.stderr
    shown = runner.invoke(["show", f"{path}:args"])
    assert (shown.exit_code, "updates       100" in shown.stdout) == (0, True)


def _yaml(folder: Path, text: str) -> Path:
    path = folder / "written.yaml"
    path.write_text(text)
    return path


def test_a_method_without_a_step_names_its_wrapper() -> None:
    class Stateful:
        batch = 0

        def get_lr(self) -> list[float]:
            return [0.1 * ((self.batch**2 + 25) / 25) ** -0.25]

    scheduler = Stateful()
    with pytest.raises(ClosedFormError, match=r"no argument for the step .* def rate\(step\)"):
        cf.from_python(scheduler.get_lr)

    def rate(step: int) -> float:
        scheduler.batch = step
        return scheduler.get_lr()[0]

    assert float(cf.from_python(rate).exact(5)) == pytest.approx(0.1 * 2**-0.25)


def test_one_file_of_one_curve_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("learning_rate: 1e-3\nmax_steps: 10\nlr_scheduler_type: cosine\n")
    target = tmp_path / "lr.onnx"
    result = CliRunner().invoke(["export", str(path), "-o", str(target)])
    assert (result.exit_code, target.is_file()) == (0, True)


def test_a_local_table_of_numpy_is_read() -> None:
    import numpy as np

    def rate(step: int) -> float:
        table = np.linspace(0, 1, 100)
        return float(table[step])

    assert float(cf.from_python(rate).exact(3)) == pytest.approx(3 / 99)


@pytest.mark.parametrize("name", ["adafactor", "muon", "ademamix", "adamw_8bit"])
def test_an_optimizer_that_is_not_modelled_leaves_the_schedule(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"learning_rate: 1e-3\nmax_steps: 10\nlr_scheduler_type: cosine\noptim: {name}\n"
    )
    result = CliRunner().invoke(["show", str(path), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schedules"]["lr"]["values"]
    assert f"did you mean '{name}'" not in result.stderr
    assert name in result.stderr
    proved = CliRunner().invoke(["verify", str(path), "--json"])
    assert proved.exit_code == 0
    assert [entry["subject"] for entry in json.loads(proved.stdout)] == ["lr: cosine"]
    assert name in proved.stderr


def test_both_sides_of_a_difference_can_be_unknown(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text(json.dumps({"gen": {"lr": 1}, "disc": {"lr": 2}, "steps": 9, "sched": "linear"}))
    other.write_text(json.dumps({"lr": 2, "max_steps": 9, "scheduler": "linear"}))
    sides = ["--framework-a", "generic", "--framework-b", "generic"]
    for path, code in (("disc.lr", 0), ("gen.lr", 1)):
        words = ["diff", str(one), str(other), *sides, "--map-a", f"lr={path}"]
        assert CliRunner().invoke(words).exit_code == code


PYTHON = {
    "class": """
from dataclasses import dataclass

TOTAL = 10 * 10

@dataclass
class Config:
    lr: float = 1e-3
    max_steps: int = TOTAL
    lr_scheduler = "cosine"

    def build(self):
        return None
""",
    "argparse": """
import argparse

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("-l", "--lr", type=float, default=1e-3)
    parser.add_argument("--max-steps", default=100, type=int)
    parser.add_argument("--lr-scheduler", default="cosine")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()
""",
    "yacs": """
from yacs.config import CfgNode as CN

_C = CN()
_C.SOLVER = CN()
_C.SOLVER.BASE_LR = 1e-3
_C.SOLVER.MAX_ITER = 100
_C.SOLVER.SCHED = "cosine"
""",
    "calls": """
import torch
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
max_steps = 100
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_steps)
""",
    "names": "learning_rate = 1e-3\nmax_iters = 100\ndecay_lr = True\nschedule = 'cosine'\n",
}


@pytest.mark.parametrize("form", PYTHON)
def test_python_states_its_values_in_many_ways(form: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PYTHON[form])
    recipe = read(path)
    assert recipe.horizon == 100
    assert float(recipe.schedule().exact(50)) == pytest.approx(5e-4)
    assert ("command-line" in recipe.notes) == (form == "argparse")
    if form == "calls":
        assert recipe.optimizer().name == "adamw"


def test_two_defaults_of_an_option_are_not_chosen_between(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("p.add_argument('--lr', default=1)\nq.add_argument('--lr', default=2)\n")
    with pytest.raises(ConfigError, match=r"add_argument.lr is needed, .* 'two defaults'"):
        read(path)


def test_what_no_schedule_depends_on_is_left_open() -> None:
    config = {"lr": 1e-3, "a": {"eps": 1e-8}, "b": {"eps": 1e-5}, "optimizer": "adamw"}
    recipe = read(config)
    assert recipe.notes["eps"].endswith("none was read")
    assert recipe.optimizer().name == "adamw"


DECAY_KEYS = ("lr_anneal_steps", "final_lr_scale", "lr_end_value", "cooldown_iters")
"""Keys of a decay that the table of names does not have, as a program may name them."""


@pytest.mark.parametrize("key", DECAY_KEYS)
@pytest.mark.parametrize("value", [500, "2e-5", [[0, 3e-4], [500, 1e-4]]])
def test_a_key_that_speaks_of_a_decay_is_not_left_out(key: str, value: object) -> None:
    config = {"optim": {"lr": 3e-4}, "sched": {key: value}}
    with pytest.raises(ConfigError, match=rf"not understood: sched\.{key} = ") as raised:
        load_recipe(config, "generic")
    assert f"'sched.{key}': 'unused'" in str(raised.value)
    recipe = load_recipe(config, "generic", paths={f"sched.{key}": "unused", "decay": "constant"})
    assert recipe.schedule().exact(900) == sp.Rational(3, 10000)
    assert lint(recipe) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"ema": {"decay": 0.999}},
        {"weight_decay_end": 0.4},
        {"lr_decay": False},
        {"lr_scheduler_freq": 1},
    ],
)
def test_keys_of_other_decays_are_left_out(entry: dict[str, object]) -> None:
    recipe = load_recipe({"lr": 0.1, **entry}, "generic")
    assert recipe.schedule().exact(5) == sp.Rational(1, 10)


def test_the_first_line_counts_the_assumptions() -> None:
    recipe = load_recipe({"lr": 0.1, "decay": "cosine", "num_steps": 100}, "generic")
    title = str(recipe).partition("\n")[0]
    assert title == "recipe (generic; 3 assumptions: unit, min_lr, decay-place)"


def test_a_choice_answers_the_keys_of_its_concept() -> None:
    config = {"lr": 0.1, "min_lr": 0.05, "decay": "linear", "num_steps": 100}
    recipe = load_recipe(config, "generic", paths={"min_lr": "0"})
    assert recipe.schedule().exact(50) == sp.Rational(1, 20)


@pytest.mark.parametrize("key", ["lr_schedule", "lr_table", "schedule"])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_read_as_the_user_says(key: str, seed: int) -> None:
    draw = random.Random(seed)
    steps = [0, *sorted(draw.sample(range(1, 1000), draw.choice([1, 2, 3])))]
    rates = [draw.randrange(1, 1000) * 1e-6 for _ in steps]
    config = {"algo": {"lr": rates[0], key: [list(row) for row in zip(steps, rates, strict=True)]}}
    with pytest.raises(ConfigError, match="the key of between is missing"):
        load_recipe(config, "generic")
    with pytest.raises(ConfigError, match="the key of unit is missing"):
        load_recipe(config, "generic", paths={"between": "linear"})
    every = np.arange(1100)
    recipe = load_recipe(config, "generic", paths={"between": "linear", "unit": "update"})
    np.testing.assert_allclose(recipe.schedule()(every), np.interp(every, steps, rates), rtol=1e-12)
    recipe = load_recipe(config, "generic", paths={"between": "step", "unit": "update"})
    places = np.searchsorted(steps, every, side="right") - 1
    np.testing.assert_allclose(recipe.schedule()(every), np.array(rates)[places], rtol=1e-15)


@pytest.mark.parametrize("steps", [[10, 20], [0, 20, 20], [0, 2.5]])
def test_a_table_whose_steps_do_not_rise_from_0_is_refused(steps: list[float]) -> None:
    config = {"lr_schedule": [[step, 0.1] for step in steps]}
    with pytest.raises(ConfigError, match="must be 0 and rising whole numbers"):
        load_recipe(config, "generic", paths={"between": "linear", "unit": "update"})


@pytest.mark.parametrize("warmup", [0, 40])
@pytest.mark.parametrize("hold", [0, 60])
@pytest.mark.parametrize("factor", [None, 0.1])
@pytest.mark.parametrize("style", ["cosine", "linear"])
def test_stretches_and_factors_of_a_decay(
    warmup: int, hold: int, factor: float | None, style: str
) -> None:
    config: dict[str, object] = {"lr": 0.01, "num_training_steps": 500, "lr_decay_style": style}
    config |= {"num_warmup_steps": warmup, "num_constant_steps": hold, "num_decay_steps": 200}
    config |= {} if factor is None else {"lr_decay_factor": factor}
    recipe = load_recipe(config, "generic")
    low = 0.01 * (factor or 0)

    def expected(step: int) -> float:
        if step < warmup:
            return 0.01 * step / warmup
        done = min(max(step - warmup - hold, 0) / 200, 1)
        part = 1 - done if style == "linear" else (1 + math.cos(math.pi * done)) / 2
        return low + (0.01 - low) * part

    steps = np.arange(500)
    np.testing.assert_allclose(
        recipe.schedule()(steps), [expected(int(step)) for step in steps], rtol=1e-12, atol=1e-17
    )
    assert ("lowest rate, as a ratio" in recipe.notes["min_lr"]) == (factor is not None)


def test_a_part_of_an_epoch_means_updates() -> None:
    config = {"lr": 0.1, "decay": "cosine", "epochs": 10, "warmup_epochs": 0.5}
    recipe = load_recipe(config, "generic", facts={"updates_per_epoch": 100})
    assert "a part of an epoch" in recipe.notes["unit"]
    assert recipe.schedule().exact(25) == sp.Rational(1, 20)
    assert recipe.schedule().exact(50) == sp.Rational(1, 10)
    whole = load_recipe({**config, "warmup_epochs": 1}, "generic", facts={"updates_per_epoch": 100})
    assert "once in an epoch" in whole.notes["unit"]
