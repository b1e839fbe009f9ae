import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import closedform.cli
from closedform.errors import UnknownNameError
from tests.support.commands import CliRunner

COSINE = ["--start", "3e-4", "--end", "0", "--steps", "100"]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    return CliRunner()


def test_version(runner: CliRunner) -> None:
    result = runner.invoke(["--version"])
    assert (result.exit_code, result.stdout) == (0, f"closedform {closedform.__version__}\n")


def test_help_names_every_command(runner: CliRunner) -> None:
    result = runner.invoke(["--help"])
    assert result.exit_code == 0
    for command in ("list", "show", "plot", "export", "run"):
        assert f" {command} " in result.stdout


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys, contextlib, io\nfrom closedform.cli.application import run\n"
        "with contextlib.redirect_stdout(io.StringIO()): run(['--help'])\n"
        "heavy = {'sympy', 'onnx', 'onnxruntime', 'numpy', 'torch', 'matplotlib', 'yaml', 'rich',"
        " 'typer', 'closedform.cli.show'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# (arguments, the whole line on stderr)
ERRORS = [
    (
        ["show", "cosin"],
        "the library has no schedule or optimizer 'cosin': did you mean 'cosine'? "
        "`closedform list` shows all",
    ),
    (
        ["show", "cosine", "--start", "1"],
        "missing a required argument: --end (cosine): its options are --start --end --steps",
    ),
    (
        ["plot", "cosine", *COSINE, "--peak", "3"],
        "unknown argument --peak (cosine): did you mean --key?",
    ),
    (
        ["show", "cosine", "--start", "1", "--end", "0", "--steps", "0"],
        "steps must be above 0, got 0 (cosine): a schedule over no steps has no value; "
        "use constant(end)",
    ),
    (
        ["show", "cosine", "--start", "abc", "--end", "0", "--steps", "3"],
        "hyperparameter 'start' must be a number, got str 'abc': give one, such as 100 or 3e-4",
    ),
    (
        ["plot", "cosine", *COSINE, "-o", "lr.jpg"],
        "the suffix of a plot must be .pdf, .png, .svg, got '.jpg' (lr.jpg)",
    ),
    (
        ["show", "adamW"],
        "the library has no schedule or optimizer 'adamW': did you mean 'adamw' or 'torch:AdamW' "
        "or 'cerebras:AdamW'? `closedform list` shows all",
    ),
    (["list", "hf"], "there is no framework 'hf': did you mean 'transformers' or 'huggingface'?"),
    (
        ["list", "nosuch"],
        "there is no framework 'nosuch': known are alignment-handbook, automodel, axolotl, "
        "big_vision, cerebras, composer, deepspeed, detectron2, diffusers, dinov2, dinov3, "
        "espnet, …",
    ),
    (
        ["convert", "recipe.yaml", "--to", "mosaic"],
        "there is no framework 'mosaic': did you mean 'composer' or 'llm-foundry'?",
    ),
    (
        ["convert", "recipe.yaml", "--to", "hf", "--as", "extension"],
        "there is no framework 'hf': did you mean 'transformers' or 'huggingface'?",
    ),
    (
        ["show", "cosine", "--start", "1", "--end", "0", "--steps", "ten"],
        "steps of cosine must be a number, got str 'ten': give one, such as 100 or 3e-4",
    ),
    (
        ["list", "torch", "--frameworks"],
        "--frameworks lists all of them, got the name 'torch': closedform list torch lists the "
        "classes of one",
    ),
    (["list", "tarch"], "there is no framework 'tarch': did you mean 'torch'?"),
    (
        ["show", "torch:LinarLR"],
        "torch has no scheduler or optimizer 'LinarLR': did you mean 'LinearLR'?",
    ),
    (["show", "tarch:LinearLR"], "there is no framework 'tarch': did you mean 'torch'?"),
    (
        ["show", "torch:OneCycleLr"],
        "torch has no scheduler or optimizer 'OneCycleLr': did you mean 'OneCycleLR'?",
    ),
    (
        ["show", "cosinedecaywd"],
        "the library has no schedule or optimizer 'cosinedecaywd': did you mean "
        "'cerebras:CosineDecayWD'? `closedform list` shows all",
    ),
    (
        ["show", "torch:LinearLR", "--total-iters", "7"],
        "a torch scheduler starts from the lr of its group, got none (torch > LinearLR): "
        "give --base-value, such as --base-value 0.1",
    ),
    (
        ["export", "cosine", *COSINE, "-o", "lr.onnx", "--input", "peak"],
        "'peak' is not a hyperparameter of the schedule (schedule 'cosine'): "
        "known are end, start, steps",
    ),
    (
        ["export", "cosine", *COSINE, "-o", "lr.onnx", "--opset", "3"],
        "opset must be in 7..23, got 3 (graph 'cosine'): "
        "the default is 21; onnxruntime 1.17 reads up to 20, later ones 21",
    ),
    (["show", "none.yaml"], "there is no such file (none.yaml)"),
    (["plot", "adamw"], "no schedule for 'lr' (adamw)"),
    (["run", "none.onnx"], "cannot read the model: No such file or directory (file 'none.onnx')"),
]


@pytest.mark.parametrize(("arguments", "line"), ERRORS)
def test_error_is_one_line_with_an_exit_code(
    runner: CliRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(arguments)
    is_unreadable = any(word.startswith("none.") for word in arguments)
    assert (result.exit_code, result.stdout) == (4 if is_unreadable else 2, "")
    assert result.stderr == f"error: {line}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "there is no command 'nosuch'"),
        (["shw"], "there is no command 'shw': did you mean 'show'?"),
        (["cosine"], "there is no command 'cosine': did you mean `closedform show cosine`?"),
        (["show", "lr.py", "--peak", "1"], "takes no --peak: name the function that takes it: lr."),
        (["--jsn"], "there is no option '--jsn'"),
        (["list", "--jsn"], "unknown option --jsn: did you mean --json?"),
        (
            ["show", "cosine", *COSINE, "--untill", "3"],
            "unknown argument --untill (cosine): did you",
        ),
        (
            ["export", "linear", "--step-dtpye", "int32", "-o", "lr.onnx"],
            "did you mean --step-dtype?",
        ),
        (["show", "torch:LinearLR", "--total-iter", "7"], "did you mean --total-iters?"),
        (["show", "cosine", *COSINE, "--until", "1.5"], "an integer of at least 1, got '1.5'"),
        (["verify", "cosine", *COSINE, "--budget", "x"], "a number of at least 0.1, got 'x'"),
        (["verify", "cosine", *COSINE, "--effort", "0"], "a number of at least 0.1, got '0'"),
        (["show"], "the following arguments are required: name"),
        (["show", "--start", "1", "cosine"], "the name must precede its options"),
        (["show", "cosine", "1"], "expected --name value, got '1'"),
        (["show", "cosine", "--start", "1", "--start", "2"], "--start is given twice"),
        (["show", "recipe.yaml", "--start", "1"], "a config file takes no --start"),
        (["show", "cosine", *COSINE, "--until", "0"], "--until"),
        (["export", "cosine", *COSINE], "required: -o/--output"),
        (["export", "cosine", *COSINE, "-o", "x", "--params", "w=3"], "omit --params"),
        (["export", "adamw", "-o", "x"], "needs the shapes of parameters"),
        (["export", "adamw", "-o", "x.onnx", "--params", "w=3"], "-o must be a folder"),
        (["export", "cosine", *COSINE, "-o", "x", "--dtype", "f16"], "f16"),
        (["run", "lr.onnx", "--steps", "x"], "steps must be start:stop:stride"),
        (["run", "lr.onnx", "--format", "xml"], "xml"),
    ],
)
def test_usage_error_is_exit_2(runner: CliRunner, arguments: list[str], words: str) -> None:
    result = runner.invoke(arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(re.sub(r"[│\n]", " ", result.stderr).split())


def test_traceback_raises_the_error(runner: CliRunner) -> None:
    result = runner.invoke(["--traceback", "show", "cosin"])
    assert isinstance(result.exception, UnknownNameError)


def test_a_file_that_cannot_be_written_is_an_error(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["export", "cosine", *COSINE, "-o", str(tmp_path / "file" / "lr.onnx")]
    result = runner.invoke(words)
    assert result.exit_code == 4
    assert result.stderr.startswith("error: cannot write the folder: File exists (folder ")
    assert result.stderr.count("\n") == 1


def test_the_module_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "closedform", "show", "cosin"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the library has no schedule or optimizer 'cosin'")
    assert "Traceback" not in done.stderr


def test_closed_pipe_is_quiet() -> None:
    command = f"{shlex.quote(sys.executable)} -m closedform list | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "schedules"
    assert "Traceback" not in done.stderr


def test_public_names_of_the_package() -> None:
    assert dir(closedform.cli) == ["main"]


def test_a_class_of_many_frameworks_is_suggested_from_three_of_them(runner: CliRunner) -> None:
    error = runner.invoke(["show", "cosineannealinglr"]).stderr
    assert re.search(r"did you mean ('\S+' or ){2}'\S+', or \d+ more\?", error)
    assert "did you mean 'torch:CosineAnnealingLR'" in error
