"""Names in docstrings of src exist: code between double backticks that looks like a name.

A name with an underscore or an inner capital occurs in the code of the repository, docstrings
aside. A dotted name that begins with closedform, or with a module beside the file, leads to a word
of that module. A path that ends in .py is that of a file, from a folder above the docstring.
Single words are English as well, so they are not looked for.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.test_size import DOCSTRING

SOURCE = ROOT / "src" / "closedform"
FOLDERS = ("src", "tests", "tools", "benchmarks", "examples")
MARKED = re.compile(r"``([^`]+)``|:[a-z]+:`~?([\w.]+)`")
WORD = re.compile(r"\w+")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
PYTHON_FILE = re.compile(r"[\w/]+\.py\b")
COMPOUND = re.compile(r"[^\W_]_+[^\W_]|[a-z][A-Z]")
METADATA = re.compile(r'"(closedform\.\w+)"')
SHORTEST = 6
"""Shorter ones are letters of a formula with an index, such as x_k and log_b."""
PACKAGES = frozenset({"jax", "mlx", "torch"})
"""Packages of others that have the name of a module here."""

UPSTREAM = frozenset(
    (
        *("AnnealingLR", "ExportedProgram", "GrokFastAdamW", "LogProcessor", "MetricsProcessor"),
        *("ModelEmaV3", "PackedSequence", "TrainingInfoProto", "adaptive_clip_grad"),
        *("as_strided_", "find_lr", "fit_flat_cos", "get_piecewise_constant_schedule"),
        *("linear_warmup_cosine_decay", "neg_pre_grad", "param_groups_layer_decay"),
        *("reset_state", "sym_sizes", "torch_huber", "train_gpt2cu"),
        *("precond_update_prob_schedule", "training_log", "weight_lr_power", "2nd_moment_group"),
        # Files of users, and functions of C that a user names.
        *("NAME_init", "NAME_step", "code.py", "file.py", "train.py", "webgpu.onnx"),
        *("common/coco_schedule.py", "common/optim.py", "common/train.py", "dion_simple.py"),
        *("optimization.py", "scripts/base_train.py", "util/lr_decay.py"),
    )
)
"""Names and files of other programs, which no code here has, and placeholders."""


@cache
def texts() -> dict[Path, str]:
    """The Python files of the repository."""
    return {
        path: path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@cache
def words_of(path: Path) -> frozenset[str]:
    """The words of a file, without its docstrings."""
    return frozenset(WORD.findall(DOCSTRING.sub("", texts()[path])))


@cache
def all_words() -> frozenset[str]:
    """The words of the code, and the names of files and folders."""
    names = (part.removesuffix(".py") for path in texts() for part in path.parts)
    return frozenset(names).union(*(words_of(path) for path in texts() if path != Path(__file__)))


@cache
def metadata() -> frozenset[str]:
    """The keys of entries of files, which are spelled like modules."""
    return frozenset(key for text in texts().values() for key in METADATA.findall(text))


def unknown_words(text: str) -> Iterator[str]:
    for word in WORD.findall(text):
        # A number at the end counts states and nodes: exp_avg_1.
        name = re.sub(r"_\d+$", "", word)
        is_name = len(name) >= SHORTEST and COMPOUND.search(name)
        if is_name and all_words().isdisjoint({word, name, f"{name}_"}):
            yield name


def module_at(parts: list[str], folder: Path) -> tuple[Path, list[str]] | None:
    """The module that a dotted name begins with, and the names that it is followed by."""
    for length in range(len(parts), 0, -1):
        base = folder.joinpath(*parts[:length])
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if path in texts():
                return path, parts[length:]
    return None


def unknown_dotted(text: str, file: Path) -> Iterator[str]:
    for name in DOTTED.findall(PYTHON_FILE.sub("", text)):
        parts = name.split(".")
        folder = SOURCE.parent if parts[0] == "closedform" else file.parent
        module = None if parts[0] in PACKAGES else module_at(parts, folder)
        is_known = module is None or not module[1] or module[1][0] in words_of(module[0])
        if not is_known and name not in metadata():
            yield name


def unknown_files(text: str, file: Path) -> Iterator[str]:
    for name in PYTHON_FILE.findall(text):
        if not any(folder / name in texts() for folder in file.parents):
            yield name


def unknown_names(text: str, file: Path) -> Iterator[str]:
    """The names in the docstrings of a file that lead nowhere."""
    for docstring in DOCSTRING.findall(text):
        for code, role in MARKED.findall(docstring):
            content = code or role
            yield from unknown_words(PYTHON_FILE.sub("", content))
            yield from unknown_dotted(content, file)
            yield from unknown_files(content, file)


@cache
def unknown() -> dict[str, set[str]]:
    """Unknown name -> the files whose docstrings have it."""
    places: dict[str, set[str]] = {}
    for path, text in texts().items():
        if SOURCE in path.parents:
            for name in unknown_names(text, path):
                places.setdefault(name, set()).add(path.relative_to(SOURCE).as_posix())
    return places


def test_names_in_docstrings_exist() -> None:
    places = unknown()
    assert {name: places[name] for name in places if name not in UPSTREAM} == {}


def test_upstream_names_are_in_docstrings() -> None:
    """A name that is no longer used leaves the list."""
    assert UPSTREAM <= set(unknown())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("``is_integral`` and ``ir``", []),
        ("``isDotProducts`` of ``ir``", ["isDotProducts"]),
        ("``closedform.ir.ops.Op`` and ``ops.Op``", []),
        (
            "``closedform.ir.ops.Opp`` and ``ops.op_row``",
            ["op_row", "closedform.ir.ops.Opp", "ops.op_row"],
        ),
        (":func:`closedform.ir.op`", ["closedform.ir.op"]),
        ("``ops.py`` and ``ir/ops.py``, ``tests/test_docstrings.py``", []),
        ("``evaluation.py``", ["evaluation.py"]),
        ("is_dot_products without marks", []),
    ],
)
def test_unknown_names_are_found(text: str, names: list[str]) -> None:
    docstring = f'"""{text}"""\n'
    assert sorted(unknown_names(docstring, SOURCE / "ir" / "ops.py")) == sorted(names)


MOST_LINES = 30
WITHOUT_EXAMPLE = frozenset(
    {"analysis", "cli", "frameworks", "importers", "lowering", "recipes", "verify", "web"}
)


def test_docstrings_of_packages_are_short_and_have_an_example() -> None:
    docstrings = {
        path.parent.name: texts()[path].split('"""')[1]
        for path in texts()
        if path.name == "__init__.py" and path.parents[1] == SOURCE
    }
    assert max(text.count("\n") for text in docstrings.values()) <= MOST_LINES
    assert {name for name, text in docstrings.items() if ">>>" not in text} == WITHOUT_EXAMPLE
