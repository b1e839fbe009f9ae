"""The linter: every planted fault is found under its rule, and good recipes have none."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import closedform as cf
from closedform.analysis import profile
from closedform.analysis.linting import RULES, Finding, Severity, lint
from closedform.analysis.profile import Profile
from closedform.cli.application import run as main
from closedform.errors import ClosedFormError, LimitError, UnknownNameError
from tests.analysis.linting.configs import (
    PEAK,
    WITH_DECAY,
    WITH_RUN,
    Config,
    cerebras,
    lightning,
    mlx_lm,
)

ONE_UPDATE = {"updates_per_epoch": 1}


@dataclass(frozen=True)
class Planted:
    """A config with one fault, and the rule that finds it."""

    rule: str
    framework: str
    config: Config
    facts: Mapping[str, Any] = field(default_factory=dict)


def with_learning_rate(config: Config, rate: float) -> Config:
    return {**config, "learning_rate": rate}


def sequential(rise: Mapping[str, float], fall: Mapping[str, float]) -> Config:
    """The warmup and the decay of cerebras with other ends."""
    config = cerebras(1000, 100, 1000)
    parts = config["trainer"]["init"]["schedulers"][0]["SequentialLR"]["schedulers"]
    parts[0]["LinearLR"].update(rise)
    parts[1]["CosineDecayLR"].update(fall)
    return config


def litgpt(min_lr: float) -> Config:
    arguments = {"lr": PEAK, "weight_decay": 0.1}
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": arguments}
    train = {"lr_warmup_steps": 100, "max_steps": 1000, "min_lr": min_lr}
    return {"optimizer": optimizer, "train": train}


def deepspeed(own_rate: float) -> Config:
    arguments = {
        "warmup_min_lr": PEAK / 100,  # from 0, two updates have the rate 0
        "warmup_max_lr": PEAK,
        "warmup_num_steps": 100,
        "total_num_steps": 1000,
        "warmup_type": "linear",
    }
    return {
        "optimizer": {"type": "AdamW", "params": {"lr": own_rate, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupDecayLR", "params": arguments},
    }


def with_deepspeed() -> Config:
    """Arguments of the Trainer, and a config of DeepSpeed with another schedule."""
    params = {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "warmup_min_lr": PEAK / 100}
    scheduler = {"type": "WarmupLR", "params": {**params, "warmup_type": "linear"}}
    return {**WITH_RUN["transformers"](1000, 100, 1000), "deepspeed": {"scheduler": scheduler}}


def with_decay_of_ten() -> Config:
    """Megatron's fraction of the warmup, which is one of the decay."""
    return {
        "train_iters": 350,
        "lr_decay_iters": 10,
        "lr_warmup_fraction": 0.1,
        "lr_decay_style": "cosine",
        "lr": PEAK,
        "min_lr": PEAK / 10,
        "micro_batch_size": 1,
        "global_batch_size": 8,
    }


def planted() -> list[Planted]:
    """The faults: the same ones in each framework whose config can have them."""
    faults = [
        Planted("warmup-not-finished", name, build(80, 100, 80))
        for name, build in WITH_RUN.items()
        if name != "torchtitan"  # it cuts the warmup to the run
    ]
    for name, build in WITH_DECAY.items():
        faults += [
            Planted("warmup-not-finished", name, build(80, 100, 1000)),
            Planted("decay-not-finished", name, build(1000, 100, 1400)),
            Planted("horizon-mismatch", name, build(1000, 100, 5000)),
            Planted("unit-mismatch", name, build(1000, 100, 12000), {"gradient_accumulation": 12}),
        ]
    with_torch = {
        "rises-after-decay": lightning("CosineAnnealingLR", T_max=500),
        "above-peak": lightning("StepLR", step_size=300, gamma=10.0),
        "decay-not-started": lightning("MultiStepLR", milestones=[1600, 1800]),
        "updates-without-effect": lightning("PolynomialLR", total_iters=400),
        "rate-of-the-optimizer-ignored": lightning("OneCycleLR", max_lr=0.01, total_steps=1000),
    }
    faults += [Planted(rule, "lightning-cli", c, ONE_UPDATE) for rule, c in with_torch.items()]
    faults += [
        Planted(
            "decay-not-started", "lightning-cli", lightning("StepLR", step_size=3000), ONE_UPDATE
        ),
        Planted("jump", "cerebras", sequential({}, {"initial_learning_rate": PEAK / 2})),
        Planted("jump", "cerebras", sequential({"end_learning_rate": PEAK / 10}, {})),
        Planted("below-minimum", "litgpt", litgpt(1e-4)),
        Planted("defect", "litgpt", litgpt(1e-4)),
        Planted(
            "rate-of-the-optimizer-ignored",
            "mlx-lm",
            with_learning_rate(mlx_lm(1000, 100, 1000), 5e-4),
        ),
        Planted("rate-of-the-optimizer-ignored", "deepspeed", deepspeed(0.1)),
        Planted(
            "weight-decay-not-applied", "mlx-lm", {**mlx_lm(1000, 100, 1000), "weight_decay": 0.3}
        ),
        Planted("horizon-mismatch", "deepspeed", deepspeed(PEAK), {"total_updates": 300}),
        Planted("schedule-replaced", "transformers", with_deepspeed()),
        Planted("warmup-fraction", "megatron", with_decay_of_ten()),
        Planted(
            "unit-mismatch",
            "deepspeed",
            deepspeed(PEAK),
            {"total_updates": 8000, "world_size": 8},
        ),
    ]
    return faults


PLANTED = planted()
GOOD = [
    (name, build(run, warmup, run))
    for run, warmup in ((1000, 100), (5000, 50), (100_000, 2000), (777, 7))
    for name, build in (*WITH_RUN.items(), *WITH_DECAY.items())
] + [("deepspeed", deepspeed(PEAK))]


def grave(findings: list[Finding]) -> list[str]:
    return [f"{finding}" for finding in findings if finding.severity is not Severity.NOTE]


def test_there_are_many_faults_and_good_recipes() -> None:
    assert len(PLANTED) >= 40
    assert len({fault.framework for fault in PLANTED}) >= 8
    assert len(GOOD) >= 40


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: f"{fault.framework}-{fault.rule}")
def test_a_planted_fault_is_found(fault: Planted) -> None:
    findings = lint(fault.config, framework=fault.framework, facts=fault.facts)
    rules = {finding.rule for finding in findings if finding.severity is not Severity.NOTE}
    assert fault.rule in rules, findings


@pytest.mark.parametrize(("framework", "config"), GOOD, ids=lambda part: str(part)[:12])
def test_a_good_recipe_has_no_warning(framework: str, config: Config) -> None:
    assert grave(lint(config, framework=framework)) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CosineAnnealingLR", {"T_max": 1000}),
        ("StepLR", {"step_size": 300}),
        ("MultiStepLR", {"milestones": [600, 800]}),
        ("ExponentialLR", {"gamma": 0.99}),
        ("PolynomialLR", {"total_iters": 1000}),
        ("CosineAnnealingWarmRestarts", {"T_0": 250}),
        ("OneCycleLR", {"max_lr": PEAK, "total_steps": 1000}),
    ],
)
def test_a_good_scheduler_of_torch_has_no_warning(name: str, arguments: dict[str, Any]) -> None:
    config = lightning(name, **arguments)
    assert grave(lint(config, framework="lightning-cli", facts=ONE_UPDATE)) == []


def test_the_evidence_is_the_exact_value() -> None:
    """The fault of a warmup of 100 updates in a run of 80: both values follow from the config."""
    config = WITH_RUN["transformers"](80, 100, 80)
    finding = lint(config, framework="transformers")[0]
    assert finding.evidence == {
        79: str(Fraction(79, 100) * Fraction(1, 1000)),
        80: str(Fraction(80, 100) * Fraction(1, 1000)),
    }


# --- shapes that few frameworks can write --------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_a_negative_rate_is_found_at_its_update(depth: int) -> None:
    lr = cf.schedules.linear(1, 0, 100).then(cf.schedules.constant(0) - Fraction(1, depth))
    finding = next(f for f in lint(lr, updates=200) if f.rule == "negative-rate")
    assert (finding.severity, finding.update) == (Severity.ERROR, 100)
    assert finding.evidence == {100: str(Fraction(-1, depth))}


@pytest.mark.parametrize("updates", [2, 3, 50])
def test_updates_without_effect_are_counted_from_the_second_one(updates: int) -> None:
    lr = cf.schedules.linear(0, 0, updates).then(cf.schedules.linear(1, 0, 100))
    rules = {f.rule: f for f in lint(lr, updates=100 + updates)}
    assert rules["updates-without-effect"].update == 1
    assert f"first {updates} updates" in rules["updates-without-effect"].message


def test_a_group_that_no_schedule_drives_is_found() -> None:
    recipe = cf.load_recipe(WITH_DECAY["megatron"](1000, 100, 1000), framework="megatron")
    default, *others = recipe.param_groups
    rates = {**default.schedules, "lr": cf.schedules.constant(Fraction(1, 100))}
    group = replace(default, schedules=rates, name="embeddings")
    planted = replace(recipe, param_groups=(default, *others, group))
    finding = next(f for f in lint(planted) if f.rule == "unscheduled-group")
    assert (finding.group, finding.evidence) == ("embeddings", {0: "1/100"})


def test_rates_of_groups_that_are_overwritten_are_found() -> None:
    config = {
        **deepspeed(PEAK),
        "optimizer": {
            "type": "Muon",
            "params": {"lr": PEAK, "muon_lr": 0.02, "adam_lr": 3e-4, "weight_decay": 0.1},
        },
    }
    rules = [f.rule for f in lint(config, framework="deepspeed")]
    assert rules.count("group-rates-overwritten") == 2


def test_a_schedule_that_ends_before_the_run_is_found() -> None:
    lr = cf.Schedule(cf.t + 1, domain=(cf.t < 100,))
    finding = lint(lr, updates=150)[0]
    assert (finding.rule, finding.update) == ("horizon-mismatch", 99)


def test_data_that_last_longer_than_the_run_are_found() -> None:
    config = {"learning_rate": PEAK, "max_steps": 1000, "lr_scheduler_type": "linear"}
    recipe = cf.load_recipe(config, framework="transformers")
    facts = cf.load_recipe(
        config,
        framework="transformers",
        facts={"dataset_size": 64_000, "global_batch_size": 32, "epochs": 3},
    ).facts
    assert "horizon-mismatch" in {f.rule for f in lint(replace(recipe, facts=facts))}


# --- the entrances -------------------------------------------------------------------------------


def faulty_file(folder: Path, comment: str = "") -> Path:
    path = folder / "recipe.yaml"
    lines = ["learning_rate: 1e-3", "lr_scheduler_type: cosine", "warmup_steps: 100"]
    path.write_text("\n".join([f"# {comment}", *lines, "max_steps: 80"]))
    return path


ARGUMENTS = ("--framework", "transformers")


def test_the_command_fails_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(faulty_file(tmp_path)), *ARGUMENTS]) == 1
    assert "error warmup-not-finished: the run ends after 80 updates" in capsys.readouterr().out


def test_json_has_all_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(faulty_file(tmp_path))
    assert main(["lint", path, *ARGUMENTS, "--json"]) == 1
    first, *_ = json.loads(capsys.readouterr().out)["findings"]
    assert first["recipe"] == path
    assert (first["rule"], first["severity"], first["update"]) == (
        "warmup-not-finished",
        "error",
        79,
    )
    assert first["evidence"]["80"] == "1/1250"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--ignore", "warmup-not-finished"], 0),
        (["--ignore", "jump"], 1),
        (["--fail-on", "warning"], 1),
    ],
)
def test_options_decide_the_exit_code(tmp_path: Path, options: list[str], code: int) -> None:
    assert main(["lint", str(faulty_file(tmp_path)), *ARGUMENTS, *options]) == code


def test_a_warning_fails_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(WITH_DECAY["megatron"](1000, 100, 1400)))
    words = ["lint", str(path), "--framework", "megatron"]
    assert (main(words), main([*words, "--fail-on", "warning"])) == (0, 1)


def test_a_comment_leaves_rules_out(tmp_path: Path) -> None:
    path = faulty_file(tmp_path, "closedform: ignore warmup-not-finished, jump")
    assert grave(lint(path, framework="transformers")) == []


def test_an_unknown_rule_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'warmup-not-finished'"):
        lint(
            {"learning_rate": 1, "max_steps": 3},
            framework="transformers",
            ignore=["warmup-unfinished"],
        )
    path = faulty_file(tmp_path, "closedform: ignore warmup")
    with pytest.raises(ClosedFormError, match="a comment ignores the rule 'warmup'"):
        lint(path, framework="transformers")


def test_each_rule_has_a_planted_fault() -> None:
    """Rules that only schedules, groups or facts show are planted in tests of this file."""
    by_config = {fault.rule for fault in PLANTED}
    elsewhere = {"negative-rate", "unscheduled-group", "group-rates-overwritten"}
    elsewhere |= {"refused-by-framework"}  # tests/frameworks/transformers/test_deepspeed.py
    assert by_config | elsewhere == set(RULES)


PLUGIN = """
[pytest]
closedform_recipes = recipes/*.yaml
closedform_ignore = {ignored}
"""


@pytest.mark.parametrize(("ignored", "code"), [("", 1), ("warmup-not-finished", 0)])
def test_the_plugin_of_pytest_collects_recipes(tmp_path: Path, ignored: str, code: int) -> None:
    (tmp_path / "recipes").mkdir()
    path = faulty_file(tmp_path / "recipes")
    path.write_text(path.read_text() + "\noutput_dir: out\nper_device_train_batch_size: 4\n")
    (tmp_path / "pytest.ini").write_text(PLUGIN.format(ignored=ignored))
    words = ["-p", "closedform.pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    assert (
        pytest.main([*words, "-p", "no:cacheprovider", "-c", str(tmp_path / "pytest.ini")]) == code
    )


def test_the_page_lists_the_rules() -> None:
    page = Path(__file__).parents[3] / "docs" / "check_a_recipe_in_ci.md"
    rows = [f"| `{name}` | {severity} | {fault} |" for name, (severity, fault) in RULES.items()]
    assert "\n".join(rows) in page.read_text(encoding="utf-8")


LONG_RUNS: dict[str, Callable[[], cf.Schedule]] = {
    "cosine": lambda: cf.schedules.linear(0, 1e-3, 1000).then(
        cf.schedules.cosine(1e-3, 0, 250_000)
    ),
    "restarts": lambda: cf.schedules.cosine_hard_restarts(1, 0.01, 200_000, cycles=4),
    "stairs": lambda: cf.schedules.exponential(1, 0.5, 33_333, staircase=True),
    "turn": lambda: cf.Schedule((cf.t - 123_457) ** 2 + 1),
    "zeros": lambda: cf.schedules.constant(0).then(cf.schedules.cosine(1, 0, 170_000), at=5),
    "cyclic": lambda: cf.schedules.cyclic(0.1, 1, 7001, 9001),
    "cut": lambda: cf.schedules.linear(1, -1, 400_000).clip(low=0),
}


@pytest.mark.parametrize("name", LONG_RUNS)
def test_a_long_run_has_the_curve_of_all_its_updates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Profile.of(LONG_RUNS[name](), 220_000)
    assert any(branch.last - branch.first > profile._MOST_VALUES for branch in short.branches)
    monkeypatch.setattr(profile, "_MOST_VALUES", 2**20)
    exact = Profile.of(LONG_RUNS[name](), 220_000)
    assert (short.leading_zeros, short.trailing_zeros) == (
        exact.leading_zeros,
        exact.trailing_zeros,
    )
    assert (short.falls > 0) is (exact.falls > 0)
    for part, whole in zip(short.branches, exact.branches, strict=True):
        assert part.change == pytest.approx(whole.change, rel=1e-9)  # equal but for its rounding
        assert part.rise == pytest.approx(whole.rise, rel=1e-9, abs=1e-12)
        assert replace(part, change=0, rise=0, highest=0, lowest=0) == replace(
            whole, change=0, rise=0, highest=0, lowest=0
        )


@pytest.mark.parametrize("updates", [10**11, 2**50])
def test_the_work_does_not_grow_with_the_run(updates: int) -> None:
    config = {"learning_rate": 1e-3, "warmup_steps": 100, "lr_scheduler_type": "cosine"}
    begun = time.process_time()
    findings = lint({**config, "max_steps": updates}, framework="transformers")
    assert time.process_time() - begun < 2
    assert not [finding for finding in findings if finding.severity == "error"]


def test_a_run_beyond_the_clock_is_refused() -> None:
    with pytest.raises(
        LimitError, match=r"the updates of the run must be at most 2\*\*50, .* got 1000"
    ):
        lint(cf.schedules.constant(0.1), updates=10**20)
