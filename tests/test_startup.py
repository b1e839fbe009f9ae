"""Start-up: the modules that a first use imports, in processes of their own.

Time is compared as a list of modules: the same on every machine, whatever its load.
"""

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """\
trainer:
  init:
    optimizer: {AdamW: {weight_decay: 0.1}}
    schedulers:
      - LinearLR: {initial_learning_rate: 1.0e-3, end_learning_rate: 0.0, total_iters: 10}
    loop: {max_steps: 10}
"""


def imported(code: str, *prefixes: str) -> list[str]:
    """The modules with one of the prefixes that are imported after the code has run."""
    report = (
        f"{code}\nimport sys\n"
        f"print(*sorted(name for name in sys.modules if name.startswith({prefixes!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_config_imports_its_own_framework_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    code = f"import closedform as cf; cf.load_recipe({str(path)!r}, 'cerebras').schedule()(3)"
    packages = {name.split(".")[2] for name in imported(code, "closedform.frameworks.")}
    assert "cerebras" in packages
    assert not packages & {"megatron", "mmengine", "timm", "ultralytics"}


def test_curves_that_differ_are_compared_without_the_prover() -> None:
    code = (
        "import closedform as cf\nfrom closedform.schedules import cosine, linear\n"
        "assert cf.diff(cosine(1, 0, 9), linear(1, 0, 9)).first_step == 1"
    )
    found = imported(code, "closedform.verify.", "closedform.optimizers", "matplotlib", "onnx")
    assert found == ["closedform.verify.terms", "closedform.verify.terms.verdict"]


def test_a_value_imports_the_compiler_of_schedules_alone() -> None:
    code = "import closedform as cf; cf.schedules.cosine(1, 0, 9)(5)"
    others = ("api", "verify", "exporters", "recipes", "lowering.model", "lowering.rule")
    assert imported(code, *(f"closedform.{name}" for name in others), "onnx") == []


def test_showing_a_schedule_imports_sympy_and_the_schedules_alone() -> None:
    words = ["show", "cosine", "--start", "3e-4", "--end", "0", "--steps", "100"]
    code = f"from closedform.cli.application import run\nassert run({words!r}) == 0\nprint('END')"
    prefixes = ("numpy", "onnx", "typer", "rich", "yaml", "matplotlib", "torch", "z3")
    own = ("closedform.recipes", "closedform.optimizers", "closedform.verify", "closedform.ir")
    found = imported(code, *prefixes, *own, "closedform.plotting.")
    assert found[found.index("END") + 1 :] == ["closedform.plotting.steps"]


COMMANDS = {
    "lint": ["CONFIG"],
    "show": ["CONFIG"],
    "diff": ["CONFIG", "LOG"],
    "diff of recipes": ["CONFIG", "CONFIG"],
    "watch": ["CONFIG", "LOG"],
}
"""The commands that a job of CI runs, with a config and the log of a run."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_ci_imports_no_engine(name: str, tmp_path: Path) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "log.csv"
    config.write_text(CONFIG, encoding="utf-8")
    rows = [f"{step},{1e-3 * (10 - step) / 10:.6g}" for step in range(10)]
    log.write_text("\n".join(["step,lr", *rows]), encoding="utf-8")
    files = {"CONFIG": str(config), "LOG": str(log)}
    words = [name.split()[0], *(files[word] for word in COMMANDS[name])]
    code = f"from closedform.cli.application import run\nassert run({words!r}) == 0\nprint('END')"
    engines = ("onnx", "onnxruntime", "torch", "jax", "z3", "matplotlib", "closedform.exporters")
    prover = () if name == "diff of recipes" else ("closedform.verify.claims", "closedform.runtime")
    modules = imported(code, *engines, *prover)
    assert modules[modules.index("END") + 1 :] == []


def test_schedules_import_no_update_rules() -> None:
    words = ["show", "cosine", "--start", "3e-4", "--end", "0", "--steps", "100"]
    shown = f"from closedform.cli.application import run\nassert run({words!r}) == 0\nprint('END')"
    modules = ("functions", "groups", "model", "shapes", "update_rule")
    of_rules = tuple(f"closedform.language.{module}" for module in modules)
    assert imported("import closedform; closedform.schedules.cosine", *of_rules) == []
    assert imported(shown, *of_rules)[-1] == "END"


def test_the_package_and_the_help_import_no_library() -> None:
    heavy = ("sympy", "numpy", "onnx", "flint", "rich", "closedform.language", "closedform.cli.s")
    assert imported("import closedform as cf; dir(cf)", *heavy) == []
    code = "from closedform.cli.application import help_text; help_text()"
    assert imported(code, *heavy, "closedform.files", "secrets") == []


def test_the_command_collects_rarely_and_restores_the_thresholds() -> None:
    code = """\
import gc, closedform.cli.application as application
from closedform.cli import main
seen = []
application.run = lambda words: seen.append(gc.get_threshold()[0]) or 0
given = gc.get_threshold()
try:
    main(["show"])
except SystemExit as done:
    assert done.code == 0
assert seen[0] > given[0] and gc.get_threshold() == given
"""
    assert imported(code, "closedform.cli.show") == []


def test_imports_of_submodules_look_for_no_nearest_name() -> None:
    code = "from closedform.language import update_rule; from closedform.errors import nearest"
    assert imported(code, "difflib") == []
