"""The GitHub action: it installs the packages that `closedform lint` imports, and no others."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(INSTALL,) = (
    step["run"] for step in ACTION["runs"]["steps"] if "pip install" in step.get("run", "")
)
REQUIREMENTS = re.findall(r'"([\w-]+)>=([\d.]+)"', INSTALL)
MODULES = {"python-flint": "flint", "PyYAML": "yaml"}
"""The names under which packages of other names are imported."""

RECIPES = {
    "config.yaml": (
        "max_steps: 400\nlearning_rate: 1.0e-3\nwarmup_steps: 500\nlr_scheduler_type: cosine"
    ),
    "config.toml": (
        "[optimizer]\nname = 'AdamW'\nlr = 1e-3\n"
        "[lr_scheduler]\nwarmup_steps = 20\n[training]\nsteps = 10"
    ),
    "config.json": json.dumps(
        {
            "learning_rate": 1e-3,
            "iters": 1000,
            "lr_schedule": {"name": "cosine_decay", "warmup": 100, "arguments": [1e-3, 1300, 1e-5]},
        }
    ),
}

ALONE = """\
import sys

class Installed:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Installed())
from closedform.cli.application import run
sys.exit(run(sys.argv[1:]))
"""


def test_it_installs_dependencies_of_the_package_with_their_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(line.split(">=") for line in project["dependencies"])
    assert len(REQUIREMENTS) == INSTALL.count('"') // 2 - 2  # but for the two folders
    assert {name: bounds[name] for name, _ in REQUIREMENTS} == dict(REQUIREMENTS)
    assert not {"onnx", "onnxruntime", "z3-solver"} & {name for name, _ in REQUIREMENTS}


@pytest.mark.parametrize("name", RECIPES)
def test_lint_needs_no_other_package(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(RECIPES[name], encoding="utf-8")
    allowed = {MODULES.get(package, package) for package, _ in REQUIREMENTS} | {"closedform"}
    code = f"ALLOWED = {allowed!r}\n{ALONE}"
    words = [sys.executable, "-c", code, "lint", name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.startswith(("note ", "warning ", "error "))
    assert "No module named" not in done.stdout + done.stderr
