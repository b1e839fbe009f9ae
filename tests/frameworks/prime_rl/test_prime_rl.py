"""Configs of prime-rl: the ends of its decays, and what it refuses."""

import pytest
import sympy as sp

from closedform.errors import ClosedFormError
from tests.support.configs import read_recipe

PRIME_RL = """\
max_steps = 20
[trainer.optim]
lr = 1.0
[trainer.scheduler]
"""


def test_a_decay_of_one_update_of_prime_rl_has_no_value() -> None:
    recipe = read_recipe(f'{PRIME_RL}type = "linear"\ndecay_steps = 1\n', suffix=".toml")
    assert recipe.schedule().last_step == 18
    assert {"decay-of-one", "starts-above-zero"} == set(recipe.notes)
    assert recipe.schedule().exact(0) == sp.Rational(1, 10**8)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ('type = "linear"\nwarmup_steps = 11', "must not exceed max_steps 20, got 11 and 10"),
        ('type = "linear"\nwarmup_steps = 0\ndecay_steps = 0', "needs a warmup or a decay"),
        ('type = "linear"\nmin_lr = 2.0', "min_lr must not be above lr 1, got 2"),
        ('type = "cosine"\nwarmup_steps = 20', "must be shorter than max_steps 20, got 20"),
        ('type = "cosine"\ndecay_steps = 3', "unknown key 'decay_steps'"),
        ('type = "constant"\nmin_lr = 0.1', "unknown key 'min_lr'"),
        ('type = "wsd"', "there is no scheduler 'wsd'"),
    ],
)
def test_what_prime_rl_refuses_is_refused(scheduler: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read_recipe(f"{PRIME_RL}{scheduler}\n", suffix=".toml")


def test_a_cosine_of_prime_rl_without_a_warmup_may_rise() -> None:
    recipe = read_recipe(
        f'{PRIME_RL}type = "cosine"\nwarmup_steps = 0\nmin_lr = 2.0\n', suffix=".toml"
    )
    assert [recipe.schedule().exact(t) for t in (0, 20)] == [1, 2]
