"""An export says whether it is proved: a warning, a comment, a line of the command, exit code 3."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import closedform as cf
from closedform.errors import UnprovedWarning, VerificationError
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation import rule_files, verdicts
from closedform.verify.translation.translation import PAIRS
from tests.support.commands import CliRunner

COSINE = cf.schedules.cosine(1e-3, 0, 1000)
OPEN = Verdict(Status.UNKNOWN, reason="the prover gave up", proved_until=10_000)
WRONG = Verdict(Status.REFUTED, reason="value is 1, and its source 2")
RANGE = "UNKNOWN, proved for t < 10,000; open beyond: the prover gave up"
IN_PAIRS: dict[str, Any] = {"precision": "double-float", "dtype": "f32", "scalar_dtype": "f32"}
CONFIG = Path(__file__).parents[3] / "examples" / "configs" / "gpt3_111m.yaml"
WORDS = ["cosine", "--start", "1e-3", "--end", "0", "--steps", "1000"]


def decide(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    """Makes every validation of a graph end with a verdict."""
    monkeypatch.setattr(verdicts, "validate", lambda *_, **__: verdict)
    monkeypatch.setattr(rule_files, "validate_outputs", lambda *_, **__: verdict)


def translation_of(model: Any) -> dict[str, Any]:
    entries = {entry.key: entry.value for entry in model.metadata_props}
    content: dict[str, Any] = json.loads(entries["closedform.translation"])
    return content


def test_the_warning_is_public() -> None:
    assert cf.errors.UnprovedWarning is UnprovedWarning
    assert issubclass(UnprovedWarning, UserWarning)


def test_a_proved_export_is_silent(tmp_path: Path) -> None:
    cf.to_onnx(COSINE, tmp_path / "lr.onnx")  # warnings are errors in the tests
    assert "PROVED equal to it over the real numbers" in " ".join(cf.to_c(COSINE).split())


def test_a_file_in_pairs_is_not_proved(tmp_path: Path) -> None:
    with pytest.warns(
        UnprovedWarning, match="the file of schedule 'cosine' is not proved"
    ) as found:
        cf.to_onnx(COSINE, tmp_path / "lr.onnx", **IN_PAIRS)
    assert PAIRS in str(found[0].message)
    assert found[0].filename == __file__
    assert (tmp_path / "lr.onnx").exists()


def test_a_warning_has_the_range_that_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, OPEN)
    with pytest.warns(UnprovedWarning) as found:
        model = cf.to_onnx(COSINE, tmp_path / "lr.onnx")
    assert str(found[0].message) == (
        f"the file of schedule 'cosine' is not proved to be its source: {RANGE}"
    )
    assert translation_of(model)["proved_until"] == 10_000


def test_each_file_of_a_rule_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, OPEN)
    with pytest.warns(UnprovedWarning) as found:
        cf.to_onnx(cf.optimizers.adamw(lr=1e-3), tmp_path, params={"w": (2,)})
    assert [str(each.message).partition(" is not")[0] for each in found] == [
        "the file init.onnx of rule 'adamw'",
        "the file step.onnx of rule 'adamw'",
    ]
    assert {each.filename for each in found} == {__file__}


def test_a_warning_as_an_error_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, OPEN)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnprovedWarning)
        with pytest.raises(UnprovedWarning):
            cf.to_onnx(COSINE, tmp_path / "lr.onnx")
        with pytest.raises(UnprovedWarning):
            cf.to_onnx(cf.optimizers.sgd(lr=1), tmp_path / "rule", params={"w": (2,)})
    assert not list(tmp_path.iterdir())


def test_validate_false_is_silent_and_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, OPEN)
    model = cf.to_onnx(COSINE, tmp_path / "lr.onnx", validate=False)
    assert translation_of(model)["status"] == "NOT VALIDATED"
    rule = cf.optimizers.adamw(lr=1e-3)
    models = cf.to_onnx(rule, tmp_path, params={"w": (2,)}, validate=False)
    assert {translation_of(each)["status"] for each in models.values()} == {"NOT VALIDATED"}
    for source in (COSINE, rule):
        assert "Formula: not validated (validate=False)." in cf.to_c(source, validate=False)


def comment_of(header: str) -> str:
    return " ".join(header[: header.index("*/")].replace("\n *", " ").split())


def test_c_in_pairs_is_not_proved() -> None:
    with pytest.warns(UnprovedWarning, match="the C of 'cosine' is not proved") as found:
        header = cf.to_c(COSINE, **IN_PAIRS)
    assert f"the graph of this text is not proved to be it: UNKNOWN: {PAIRS}" in comment_of(header)
    assert found[0].filename == __file__


def test_c_has_the_range_that_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, OPEN)
    for source in (COSINE, cf.optimizers.adamw(lr=1e-3)):
        with pytest.warns(UnprovedWarning) as found:
            header = cf.to_c(source)
        message = f"the C of {source.name!r} is not proved to be its source: {RANGE}"
        assert [str(each.message) for each in found] == [message]
        assert RANGE in comment_of(header)


def test_c_of_a_rule_with_sums_over_all_parameters() -> None:
    with pytest.warns(
        UnprovedWarning, match="several functions: only its ONNX files are validated"
    ):
        cf.to_c(cf.optimizers.prodigy())


def test_c_that_is_refuted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, WRONG)
    for source in (COSINE, cf.optimizers.adamw(lr=1e-3)):
        with pytest.raises(VerificationError, match="the model is not its source: value is 1"):
            cf.to_c(source)


# --- the command ---------------------------------------------------------------------------------


def test_export_prints_the_verdict(tmp_path: Path) -> None:
    for name in ("lr.onnx", "lr.h"):
        result = CliRunner().invoke(["export", *WORDS, "-o", str(tmp_path / name), "--strict"])
        assert result.exit_code == 0
        assert result.stdout.splitlines()[1] == "  translation: PROVED"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lr.h", "lr.onnx"]


def test_export_of_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, OPEN)
    for name in ("lr.onnx", "lr.h"):
        result = CliRunner().invoke(["export", *WORDS, "-o", str(tmp_path / name)])
        assert result.exit_code == 0
        assert result.stdout.splitlines()[1] == f"  translation: {RANGE}"
        assert result.stderr == ""
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["lr.onnx", "new/deep/lr.onnx", "lr.h", "new/lr.h"])
def test_a_strict_export_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, OPEN)
    result = CliRunner().invoke(["export", *WORDS, "-o", str(tmp_path / name), "--strict"])
    assert result.exit_code == 3
    assert "nothing is written: the " in result.stderr
    assert RANGE in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_strict_export_of_a_recipe_is_whole_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["export", str(CONFIG), "-o", str(tmp_path), "--params", "w=4", "--strict"]
    done = CliRunner().invoke(words)
    assert done.exit_code == 0
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"schedule.onnx", "init.onnx", "step.onnx"} <= files.keys()
    assert done.stdout.count("translation: PROVED") == len(files)
    monkeypatch.setattr(rule_files, "validate_outputs", lambda *_, **__: OPEN)  # the last files
    result = CliRunner().invoke([*words, "--force"])
    assert result.exit_code == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
