"""The forms of config files: what is read, what is left open, and hostile files."""

import time
from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ConfigError
from closedform.recipes import read_document
from closedform.recipes.document import Document, interpolate
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved
from closedform.recipes.inheritance import merge_files


def document(text: str, name: str, folder: Path) -> Document:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_document(path)


LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "flags": ("--lr 1e-4 --steps=10 --bf16", {"lr": 1e-4, "steps": 10, "bf16": True}),
    "negative numbers": ("--a -1 --b -1e-3 2", {"a": -1, "b": [-1e-3, 2]}),
    "one a line": ("--lr 1\n--wd 2\n", {"lr": 1, "wd": 2}),
    "key=value": ("steps=10\nlr=1e-3", {"steps": 10, "lr": 1e-3}),
    "continued": ("python t.py \\\n  --lr 1 \\\n  --wd 2", {"lr": 1, "wd": 2}),
    "array": (
        "A=(\n --lr 1 # rate\n --wd 2\n)\ntorchrun t.py ${A[@]} --x y",
        {"lr": 1, "wd": 2, "x": "y"},
    ),
    "variable": ("LR=3e-4\nt.py --lr $LR --wd ${WD:-0.1}", {"lr": 3e-4, "wd": 0.1}),
    "open variable": ("t.py --lr ${LR}", {"lr": Unresolved("${LR}")}),
    "substitution": ("t.py --lr $(rm)", {"lr": Unresolved("$(rm)")}),
    "longest command": ("mkdir --p x; t.py --lr 1 --wd 2", {"lr": 1, "wd": 2}),
    "last one counts": ("t.py --lr 1 --lr 2", {"lr": 2}),
    "text in quotes": ("t.py --kwargs '{\"a\": 1}'", {"kwargs": '{"a": 1}'}),
}


@pytest.mark.parametrize("name", LINES)
def test_command_line(name: str, tmp_path: Path) -> None:
    text, wanted = LINES[name]
    assert document(text, "run.sh", tmp_path).content == wanted


PYTHON: dict[str, tuple[str, dict[str, Any]]] = {
    "arithmetic": ("n = 3\na = 2 * n + 1\nb = n // 2", {"n": 3, "a": 7, "b": 1}),
    "attributes": ("c = {}\nc.lr = 1\nd = c.lr", {"c": {"lr": 1}, "c.lr": 1, "d": 1}),
    "call": ("a = SGD(lr=0.1)", {"a": ConfigCall("SGD", (), {"lr": 0.1})}),
    "dict": ("a = dict(b=[1, (2,)])", {"a": {"b": [1, (2,)]}}),
    "comprehension": ("a = [x // 2 for x in [4, 8]]", {"a": [2, 4]}),
    "import": ("from ..o import SGD as s", {"s": Reference("..o.SGD")}),
    "open": ("a = f'{x}'", {"a": Unresolved("f'{x}'")}),
    "division by zero": ("a = 1 / 0", {"a": Unresolved("1 / 0")}),
}


@pytest.mark.parametrize("name", PYTHON)
def test_python(name: str, tmp_path: Path) -> None:
    text, wanted = PYTHON[name]
    assert document(text, "config.py", tmp_path).content == wanted


def test_nothing_is_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    text = f"import os\nx = open({str(target)!r}, 'w')\nos.system('touch {target}')\n"
    document(text, "config.py", tmp_path)
    document(f"touch {target} --lr $(touch {target}) `touch {target}`", "run.sh", tmp_path)
    assert not target.exists()


def test_gin(tmp_path: Path) -> None:
    text = """# a comment
include 'a.gin'
RATE = 1_000
a/f.g.lr = %RATE
f.g:
  steps = [1,
    2]
  h = @s/m.k()
  name = 'a # b'
  open = %gin.REQUIRED
"""
    assert document(text, "t.gin", tmp_path).content == {
        "include": ["a.gin"],
        "RATE": 1000,
        "a/f.g.lr": 1000,
        "f.g.steps": [1, 2],
        "f.g.h": ConfigCall("m.k", scope="s"),
        "f.g.name": "a # b",
        "f.g.open": Unresolved("%gin.REQUIRED"),
    }


def test_interpolation() -> None:
    given = {"a": {"b": 3}, "c": "${a.b}", "d": "x${a.b}", "e": "${oc.env:X}", "f": "???"}
    found = interpolate(read_document(given)).content
    assert (found["c"], found["d"]) == (3, "x3")
    assert (found["e"], found["f"]) == (Unresolved("${oc.env:X}"), Unresolved("???"))
    with pytest.raises(ConfigError, match="nested at most 64 deep"):
        interpolate(read_document({"a": "${b}", "b": "${a}"}))


HOSTILE = {
    "macros": (
        "M0 = [1, 1]\n" + "".join(f"M{i + 1} = [%M{i}, %M{i}]\n" for i in range(40)),
        "t.gin",
    ),
    "power": ("a = 10 ** 10 ** 8", "t.py"),
    "product": ("a = 2 ** 4000\n" + "a = a * a\n" * 60, "t.py"),
    "sum of lists": ("a = [0] + [0]\n" + "a = a + a\n" * 60, "t.py"),
    "attributes": ("a = x" + ".y" * 5000, "t.py"),
    "attributes of gin": ("a = x" + ".y" * 5000, "t.gin"),
    "parentheses": ("a = " + "(" * 5000 + ")" * 5000, "t.py"),
    "minus signs": ("a = " + "-" * 20000 + "1", "t.py"),
    "sums": ("a = " + "+".join("1" * 20000), "t.py"),
    "lists of JSON": ("[" * 100000, "t.json"),
    "digits of JSON": ('{"a": ' + "1" * 10000 + "}", "t.json"),
    "digits of TOML": ("a = " + "1" * 10000, "t.toml"),
    "tables of TOML": ("a" + ".a" * 5000 + " = 1", "t.toml"),
    "variables": ("A=xx\n" + "A=$A$A\n" * 60 + "t.py --lr $A", "t.sh"),
    "quotes": ("t.py --lr '" + "a" * 1000, "t.sh"),
    "aliases": ("a: &a [*a, *a]", "t.yaml"),
    "gin without an end": ("a = [", "t.gin"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_or_left_open_in_little_time(name: str, tmp_path: Path) -> None:
    text, file = HOSTILE[name]
    begin = time.process_time()
    try:
        found = document(text, file, tmp_path).content
    except ConfigError:
        found = {}
    assert len(repr(found)) < 2_000_000
    # Thousandths of a second; without limits, minutes or all of the memory.
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("parts", [65, 25_000])
@pytest.mark.parametrize("key", ["a", '"a b"', "'a'", 'a . "b"'])
def test_a_dotted_key_of_toml_has_a_limit(parts: int, key: str, tmp_path: Path) -> None:
    """tomllib needs more than 2 GiB for 25,000 parts."""
    name = ".".join([key] * parts)
    for text in (f"{name} = 1", f"[{name}]", f"x = {{ {name} = 1 }}"):
        with pytest.raises(ConfigError, match="parts, expected at most 64"):
            document(text, "t.toml", tmp_path)
    short = ".".join(f"k{place}" for place in range(60))
    assert document(f"{short} = 1", "t.toml", tmp_path).content["k0"]


BAD_PATHS = ("a\0b.yaml", "a" * 5000, "\ud800.yaml", "a" * 300 + ".yaml")


@pytest.mark.parametrize("path", BAD_PATHS, ids=["null", "long", "surrogate", "long name"])
def test_a_path_that_no_file_has_is_refused(path: str, tmp_path: Path) -> None:
    config = read_document({"_base_": path, "x": 1})
    with pytest.raises(ConfigError):
        merge_files(config, tmp_path)
    with pytest.raises(ConfigError):
        read_document(path)
    with pytest.raises(ConfigError):
        merge_files(read_document({"defaults": [path], "x": 1}), tmp_path)


def test_a_package_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("x: 1")
    for parts, is_read in ((60, True), (65, False), (100_000, False)):
        config = read_document({"defaults": ["b@" + ".".join(["a"] * parts)]})
        if is_read:
            assert merge_files(config, tmp_path).content["a"]
            continue
        with pytest.raises(ConfigError, match="parts, expected at most 64"):
            merge_files(config, tmp_path)
