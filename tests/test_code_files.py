"""The package that code belongs to: neighbours with similar names, folders with the same name."""

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import pytest

from closedform.code_files import CodeFiles, files_of, is_in_standard_library, is_standard
from closedform.errors import TraceError


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def run(code: str, *folders: Path) -> str:
    """The output of a program that finds modules in these folders before others."""
    paths = [str(folder) for folder in folders] + [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ROOT = PurePath("/site/torch")
NEIGHBOURS = (
    "/site/torch_extra/a.py",
    "/site/torch_optim/a.py",
    "/site/torch.py",
    "/site/torc/a.py",
    "/home/torch/a.py",
    "/home/site/torch/a.py",
    "/site/torch/../jax/a.py",
    "torch/a.py",
    "a.py",
    "<string>",
    "",
)


@pytest.mark.parametrize("file", NEIGHBOURS)
def test_files_next_to_a_package_are_not_of_it(file: str) -> None:
    assert file not in CodeFiles((ROOT,))
    assert CodeFiles((ROOT,)).parts_of(file) is None


def test_files_of_a_package_have_a_place_in_it() -> None:
    assert CodeFiles((ROOT,)).parts_of("/site/torch/optim/adam.py") == ("optim", "adam.py")
    assert CodeFiles((ROOT,)).parts_of("/site/jax/../torch/a.py") == ("a.py",)
    assert "/b/x.py" in CodeFiles((ROOT, PurePath("/b")))
    assert "/site/torch/a.py" not in CodeFiles(())


def test_the_folders_are_those_of_imported_packages() -> None:
    import closedform.ir.ops as ops

    assert files_of("closedform").parts_of(str(ops.__file__)) == ("ir", "ops.py")
    assert files_of("closedform.ir", "closedform.language").parts_of(str(ops.__file__)) == (
        "ops.py",
    )
    assert files_of("closedform.ir.ops").parts_of(str(ops.__file__)) == ()
    assert str(ops.__file__) not in files_of("closedform.ir.graph", "closedform.language")
    assert files_of("a_package_that_is_not_imported", "sys").roots == ()


def test_a_package_that_is_found_by_a_link_is_one_package(tmp_path: Path) -> None:
    write(
        tmp_path / "real", {"linked/__init__.py": "", "linked/a.py": "code = (lambda: 0).__code__"}
    )
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "linked").symlink_to(tmp_path / "real" / "linked")
    code = """\
        import linked.a
        from closedform.code_files import files_of
        print(files_of("linked").parts_of(linked.a.code.co_filename))
        print(files_of("linked").parts_of("{real}/linked/a.py"))
        print(files_of("linked").parts_of("{real}/linked_not/a.py"))
    """
    said = run(code.format(real=tmp_path / "real"), tmp_path / "site")
    assert said.splitlines() == ["('a.py',)", "('a.py',)", "None"]


def test_installed_packages_are_not_of_the_standard_library() -> None:
    assert is_in_standard_library(str(textwrap.__file__))
    assert is_in_standard_library(os.path.commonpath.__code__.co_filename)  # frozen
    assert not is_in_standard_library(str(pytest.__file__))
    assert not is_in_standard_library(__file__)
    assert is_standard("os.path")
    assert is_standard("sys")
    assert not is_standard("pytest")
    assert not is_standard(__name__)


OPTIMIZER = """\
import torch

class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(param.grad, alpha=-group["lr"])
                after(param)

def after(param):
    pass
"""
FAILING = OPTIMIZER.replace("    pass", "    raise KeyError('planted')")
NAMES = ("torch_extra", "torch_optim.sgd", "torchlike", "jaxlike", "numpy_torch", "closedform_own")


def link_torch(folder: Path) -> None:
    """Makes the packages of a folder neighbours of torch, as in site-packages."""
    torch: Any = importlib.import_module("torch")
    (folder / "torch").symlink_to(os.path.dirname(torch.__file__))


def test_optimizers_of_packages_with_similar_names_are_read(tmp_path: Path) -> None:
    files = {f"{name.replace('.', '/')}.py": OPTIMIZER for name in (*NAMES, "code")}
    write(tmp_path, files)
    link_torch(tmp_path)
    said = run(
        f"""\
        import importlib, torch
        import closedform as cf
        for name in {(*NAMES, "code")}:
            optimizer = importlib.import_module(name).Plain([torch.zeros(2, 3)])
            print(name, cf.from_torch(optimizer).param)
        """,
        tmp_path,
    )
    texts = {line.partition(" ")[2] for line in said.splitlines()}
    assert len(said.splitlines()) == len(NAMES) + 1
    assert len(texts) == 1, said


def test_models_of_packages_with_similar_names_branch_on_their_sizes(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "torch_nets.py": """\
                import torch

                class Net(torch.nn.Linear):
                    def forward(self, x):
                        return super().forward(x if x.shape[0] > 5 else 2 * x)
            """
        },
    )
    link_torch(tmp_path)
    said = run(
        f"""\
        import torch, torch_nets
        import closedform as cf
        from closedform.training import TrainSession, export
        batch = torch.ones(4, 3), torch.ones(4, 2)
        loss = torch.nn.functional.mse_loss
        axes = {{"x": {{0: "rows"}}, "target": {{0: "rows"}}}}
        out = {str(tmp_path / "out")!r}
        export(torch_nets.Net(3, 2), loss, batch, cf.optimizers.sgd(0.1), out, dynamic_axes=axes)
        try:
            TrainSession(out).step((torch.ones(6, 3).numpy(), torch.ones(6, 2).numpy()))
        except cf.ClosedFormError as error:
            print(error)
        """,
        tmp_path,
    )
    assert "this step is for sizes with rows <= 5" in said, said


FOLDERS = ("closedform", "torch", "jax", "site-packages", "torch/optim", "clöne of/closedform")


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_error_names_the_line_in_a_folder_with_the_name_of_a_package(
    tmp_path: Path, folder: str
) -> None:
    torch: Any = importlib.import_module("torch")
    import closedform as cf

    path = write(tmp_path, {f"{folder}/own_step.py": FAILING}) / folder / "own_step.py"
    names: dict[str, object] = {"__name__": "own_step"}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    optimizer = names["Plain"]([torch.nn.Parameter(torch.zeros(2, 3))])  # type: ignore[operator]
    with pytest.raises(TraceError) as caught:
        cf.from_torch(optimizer)
    assert "the step raises KeyError: 'planted'" in str(caught.value)
    assert f"{path}:15" in str(caught.value)
