"""Skips of tests that need an extra, in a small suite of tests that is run without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from closedform.errors import ExportError, needs_extra
from tests.support.extras import EXTRA_OF, missing_extra, skip_for_message
from tests.support.inputs import ROOT

FILES = {
    "test_file.py": "import torch\ndef test_one(): ...\ndef test_two(): ...\n",
    "test_helper.py": "import sys\nsys.path.append({folder!r})\nimport helper\n",
    "helper.py": "import matplotlib.pyplot\n",
    "test_tests.py": """\
import pytest
from closedform.errors import needs_extra

def test_import():
    import optax

def test_library():
    with needs_extra("jax"):
        import jax.numpy

@pytest.fixture
def model():
    import torch

def test_fixture(model): ...

@pytest.mark.needs("torch")
def test_mark():
    assert False

def test_other_package():
    import no_such_package

def test_failure():
    assert False

def test_core(): ...
""",
}
ABSENT = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "matplotlib", "jax", "optax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find(name)
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_tests_are_skipped_by_the_name_of_the_extra(tmp_path: Path) -> None:
    for name, text in FILES.items():
        text = text.replace("{folder!r}", repr(str(tmp_path)))
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ["-q", "-rsf", "--tb=no", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    options = ["-c", str(ROOT / "pyproject.toml"), "-o", f"pythonpath={ROOT}", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, *words, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = done.stdout
    skips = [line for line in summary.splitlines() if line.startswith("SKIPPED")]
    reasons = sorted(line.rpartition(": ")[2] for line in skips)
    extras = [reason.removeprefix("needs the extra ").partition(" in ") for reason in reasons]
    assert {extra for extra, _, _ in extras} == {"jax", "plot", "torch"}
    files = {file.rpartition("/")[2] for _, _, file in extras if file}
    assert files == {"test_file.py", "test_helper.py"}
    assert "2 failed, 1 passed, 6 skipped" in summary, summary + done.stderr
    assert "test_other_package" in summary
    assert "test_failure" in summary


@pytest.mark.parametrize("module", EXTRA_OF)
def test_the_cause_of_an_error_is_found(module: str) -> None:
    with pytest.raises(ExportError) as caught, needs_extra("torch"):
        raise ModuleNotFoundError("", name=f"{module}.inner")
    assert missing_extra(caught.value) == EXTRA_OF[module]
    assert missing_extra(ModuleNotFoundError("", name="closedform.inner")) is None
    assert missing_extra(ImportError("", name=module)) is None
    assert missing_extra(None) is None


@pytest.mark.parametrize(
    ("message", "extra"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "torch"),
        ("No module named 'jax.numpy'", "jax"),
        ("error: matplotlib is not installed", "plot"),
        ("closedform.torch needs torch, which is not installed: pip install", "torch"),
        ("tensorboard, which reads event files, is not installed", "tensorboard"),
        ("No module named 'sympy'", None),
        ("torch is too old", None),
    ],
)
def test_a_program_without_an_extra_is_skipped_by_its_message(
    message: str, extra: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_for_message("No module named 'numpy'")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    if extra is None:
        skip_for_message(message)
        return
    with pytest.raises(pytest.skip.Exception, match=f"needs the extra {extra}"):
        skip_for_message(message)
