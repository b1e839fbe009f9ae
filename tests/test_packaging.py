"""The requirements of pyproject.toml, and the versions that are installed for the tests."""

import hashlib
import io
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from closedform.deprecation import REMOVED_IN
from closedform.version import __version__
from tests.support.build_release import compress_wheel, normalize_sdist, wheel_faults
from tests.support.conda_recipe import RECIPE, fill_recipe

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("plot", "torch")
EMPTY = ("prove", "cli")
"""Extras of earlier versions, whose packages are dependencies."""
COMPARED = ("jax", "keras", "mlx", "tensorboard")
"""Extras of the environment of `make compare` alone; its requirements pin their lower bounds."""
EVERYTHING = f"closedform[{','.join(EXTRAS)}]"
# Checkers and build tools do not affect the results of the tests: their lowest versions are
# the pinned ones.
TOOLS = {
    "build",
    "mike",
    "mkdocs-material",
    "mkdocstrings-python",
    "mypy",
    "pre-commit",
    "ruff",
    "types-pyyaml",
}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: str) -> dict[str, str]:
    """The versions of a file of constraints, by name."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def numbers(version: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in version.split("."))
    while found and found[-1] == 0:
        found = found[:-1]
    return found


def bounds() -> dict[str, str]:
    """The lower bound of each dependency, those of the extras among them."""
    extras = PROJECT["optional-dependencies"]
    own = [lines for extra, lines in extras.items() if extra not in COMPARED]
    wanted = [*PROJECT["dependencies"], *(line for lines in own for line in lines)]
    found = {}
    for line in wanted:
        if line == EVERYTHING:
            continue
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", line)
        assert match, f"{line}: a dependency has one lower bound"
        found[canonical(match[1])] = match[2]
    return found


@pytest.mark.parametrize("name", sorted(set(bounds()) - TOOLS))
def test_lowest_version_is_that_of_the_constraints(name: str) -> None:
    assert numbers(pinned("constraints-lowest.txt")[name]) == numbers(bounds()[name])


@pytest.mark.parametrize("name", sorted(bounds()))
def test_pinned_version_is_admitted(name: str) -> None:
    assert numbers(pinned("constraints.txt")[name]) >= numbers(bounds()[name])


def test_constraints_name_only_dependencies() -> None:
    assert set(pinned("constraints-lowest.txt")) == set(bounds()) - TOOLS


def test_every_extra_is_part_of_dev() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {*EXTRAS, *EMPTY, *COMPARED, "all", "dev", "docs"}
    assert [extras[name] for name in EMPTY] == [[], []]
    assert extras["dev"][0] == EVERYTHING
    assert extras["all"] == [EVERYTHING]


def test_classifiers_name_the_versions_that_ci_runs() -> None:
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: 3." in line}
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert named == set(re.findall(r'"(3\.\d+)"', text))
    assert PROJECT["requires-python"] == f">={min(named, key=numbers)}"


def test_addresses_are_those_of_the_project() -> None:
    """Links of README.md are absolute, for PyPI; those into the repository lead to files."""
    home = PROJECT["urls"]["Repository"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", readme)
    assert links
    raw = home.replace("github.com", "raw.githubusercontent.com") + "/main/"
    for link in links:
        assert link.startswith("https://"), link
        for base in (f"{home}/blob/main/", f"{home}/tree/main/", raw):
            path = link.removeprefix(base)
            assert path == link or (ROOT / path).exists(), link
    for name in ("CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml"):
        assert home in (ROOT / name).read_text(encoding="utf-8")
    for name, address in PROJECT["urls"].items():
        assert name == "Documentation" or address.startswith(home)


def test_every_file_of_the_manifest_exists() -> None:
    for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        command, *names = line.split()
        if command in {"graft", "include", "prune"}:
            assert all((ROOT / name).exists() for name in names), line


@pytest.mark.parametrize(
    ("argument", "versions"),
    [
        (None, "-c constraints.txt"),
        ("CONSTRAINTS=constraints-lowest.txt", "-c constraints-lowest.txt"),
        ("CONSTRAINTS=", "--upgrade --upgrade-strategy eager"),
    ],
)
def test_make_installs_the_versions_that_are_asked_for(argument: str | None, versions: str) -> None:
    command = ["make", "-n", "-W", "pyproject.toml", ".venv/.installed"]
    arguments = [] if argument is None else [argument]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    installs = [line for line in done.stdout.splitlines() if "pip install" in line]
    assert [line.partition('".[dev]" ')[2] for line in installs] == [versions], done.stderr


def test_the_newest_versions_are_tested_each_night_and_do_not_fail_the_run() -> None:
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text)["jobs"]["newest"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0].split()[:2] == ["make", "units"]
    assert "CONSTRAINTS=" in commands[0].split()
    assert job["continue-on-error"] is True


@pytest.mark.parametrize("extra", COMPARED)
def test_the_lower_bound_of_a_compared_extra_is_what_is_compared(extra: str) -> None:
    lines = PROJECT["optional-dependencies"][extra]
    text = (ROOT / "tests" / "recipes" / "compare_requirements.txt").read_text(encoding="utf-8")
    for line in lines:
        name, _, bound = line.partition(">=")
        name = name.partition("[")[0]
        pins = re.findall(rf"^{name}(?:\[\w+\])?==([\d.]+)$", text, re.MULTILINE)
        assert pins == [bound], line


def test_the_changelog_the_recipe_of_conda_and_the_package_have_one_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    assert released is not None
    recipe = (RECIPE).read_text(encoding="utf-8")
    assert released[1] == __version__
    assert f'{{% set version = "{__version__}" %}}' in recipe
    assert PROJECT["requires-python"] == ">=3.11"
    major, minor, _ = __version__.split(".")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## [Unreleased]")[2]
    is_released = not changes.partition("\n## [")[0].strip()
    assert f"{major}.{int(minor) + (1 if is_released else 2)}" == REMOVED_IN


def test_the_recipe_of_conda_has_the_dependencies_of_the_package() -> None:
    text = (RECIPE).read_text(encoding="utf-8")
    section = text.partition("  run:\n")[2].partition("\n\n")[0]
    lines = [line.strip().removeprefix("- ") for line in section.splitlines()]
    requirements = [line.lower() for line in lines if not line.startswith("python >")]
    assert requirements == [line.lower().replace(">=", " >=") for line in PROJECT["dependencies"]]


def test_the_recipe_of_a_release_has_the_hash_of_its_sdist(tmp_path: Path) -> None:
    text = RECIPE.read_text(encoding="utf-8")
    for content in (b"sdist", b"another sdist"):
        sdist = tmp_path / f"closedform-{__version__}.tar.gz"
        sdist.write_bytes(content)
        changed = set(fill_recipe(text, sdist).splitlines()) - set(text.splitlines())
        assert changed == {f"  sha256: {hashlib.sha256(content).hexdigest()}"}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    steps = workflow["jobs"]["build"]["steps"]
    assert any("tests/support/conda_recipe.py" in step.get("run", "") for step in steps)


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("closedform-0.0.1.tar.gz", "", "", "closedform-0.0.1.tar.gz: expected the sdist"),
        (f"closedform-{__version__}.tar.gz", "  sha256: ", "  md5: ", "64 hex digits, got 0"),
    ],
)
def test_a_recipe_without_a_place_for_the_hash_of_this_sdist(
    tmp_path: Path, name: str, old: str, new: str, fault: str
) -> None:
    text = RECIPE.read_text(encoding="utf-8").replace(old, new)
    (tmp_path / name).write_bytes(b"sdist")
    with pytest.raises(ValueError, match=fault):
        fill_recipe(text, tmp_path / name)


def test_an_sdist_does_not_depend_on_when_and_by_whom_it_was_built(tmp_path: Path) -> None:
    contents = []
    for index, names in enumerate((("b", "a"), ("a", "b"))):
        sdist = tmp_path / f"{index}.tar.gz"
        with tarfile.open(sdist, "w:gz") as archive:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.uid, entry.mode = 3, 1000 * index, index, 0o600
                archive.addfile(entry, io.BytesIO(b"abc"))
        normalize_sdist(sdist, 1_795_651_200)
        contents.append(sdist.read_bytes())
    assert contents[0] == contents[1]


def test_a_wheel_is_packed_again_without_a_change_of_its_files(tmp_path: Path) -> None:
    wheel, content = tmp_path / "a.whl", bytes(range(256)) * 40 + RECIPE.read_bytes()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(zipfile.ZipInfo("closedform/a.py", (2026, 11, 29, 1, 2, 4)), content)
    size = wheel.stat().st_size
    compress_wheel(wheel)
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = archive.infolist()
        assert archive.read(entry) == content
    assert (entry.filename, entry.date_time[0]) == ("closedform/a.py", 2026)
    assert wheel.stat().st_size < size


@pytest.mark.parametrize(
    ("name", "largest", "fault"),
    [
        ("closedform/recipes/load.py", 10_000, None),
        ("closedform-0.2.0.dist-info/RECORD", 10_000, None),
        ("closedform/recipes/corpus.json", 10_000, "closedform/recipes/corpus.json, 3 bytes"),
        ("tests/conftest.py", 10_000, "tests/conftest.py, 3 bytes"),
        ("closedform/recipes/load.py", 100, "bytes, more than 100; first: closedform/recipes/load"),
    ],
)
def test_a_wheel_has_only_the_package_and_is_small(
    tmp_path: Path, name: str, largest: int, fault: str | None
) -> None:
    wheel = tmp_path / "closedform-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, "x\n\n")
    faults = wheel_faults(wheel, largest)
    assert not faults if fault is None else len(faults) == 1 and fault in faults[0]
