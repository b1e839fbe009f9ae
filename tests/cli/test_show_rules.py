"""What ``closedform show`` says of a rule beside its next values."""

from typer.testing import CliRunner

from closedform.cli import app


def shown(*words: str) -> list[str]:
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, ["show", *words], env=environment)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_states_of_the_model_and_the_point_of_evaluation() -> None:
    lines = shown("schedule_free_sgd", "--lr", "0.5")
    assert "shared.lr_max <- Max(lr, shared.lr_max)" in lines
    assert "evaluated at param + (1 - 1/momentum)*(-param + state.z)" in lines
    assert "  z begins at param, shape of param" in lines
    assert "  shared.weight_sum begins at 0, one for the model" in lines


def test_tensors_beside_the_gradient() -> None:
    lines = shown("sophia", "--update-period", "1")
    assert "  input.hessian is given to every step, shape of param" in lines
