"""``closedform show`` of a rule: shared states, evaluation point, other inputs."""

from tests.support.commands import CliRunner


def shown(*words: str) -> list[str]:
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    result = CliRunner().invoke(["show", *words], env=environment)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_shared_states_and_the_evaluation_point() -> None:
    lines = shown("schedule_free_sgd", "--lr", "0.5")
    assert "shared.lr_max <- Max(lr, shared.lr_max)" in lines
    assert "evaluated at param + (1 - 1/momentum)*(-param + state.z)" in lines
    assert "  z starts at param, shape of param" in lines
    assert "  shared.weight_sum starts at 0, one per model" in lines


def test_inputs_other_than_the_gradient() -> None:
    lines = shown("sophia", "--update-period", "1")
    assert "  input.hessian is an input of every step, shape of param" in lines
