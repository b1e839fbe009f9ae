"""Rules beside pytorch_optimizer as installed, over 50 drawn steps in float64, every step compared.

``test_rules_of_packages.py`` compares the same rules with some steps of one draw, which are in the
repository. Not collected with the tests. In an environment with torch and pytorch_optimizer::

    python -m pytest tests/optimizers/compare_rules.py
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.optimizers.test_rules_of_packages import IN_FLOAT32, RULES
from tests.reference import make_optimizers_rules as packages
from tests.support.trajectories import trajectory

pytestmark = pytest.mark.packages(JAX_ENABLE_X64="1")
NAMES = [name for name in packages.RULES if name in RULES]


@pytest.fixture(autouse=True, scope="module")
def _in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    packages.in_float64()
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_that_of_the_package(name: str, seed: int) -> None:
    shapes = packages.NAMES.get(name, tuple(packages.SHAPES))
    start, gradients = packages.drawn(seed)
    make, rates = packages.RULES[name]
    wanted = packages.run(make, start, gradients, shapes, rates)
    first = {key: start[key] for key in shapes}
    given = [{key: gradient[key] for key in shapes} for gradient in gradients]
    # 50 steps of about 20 roundings of 1.1e-16 on parameters near 1, which a root of a small sum of
    # squares enlarges; or 50 steps of 0.01, or one of 0.5, that are rounded to float32.
    rtol, atol = (1.2e-7, 50 * 0.01 * 1.2e-7) if name in IN_FLOAT32 else (1e-10, 1e-12)
    for step, (ours, theirs) in enumerate(
        zip(trajectory(RULES[name](), first, given), wanted, strict=True)
    ):
        for key in shapes:
            np.testing.assert_allclose(
                ours[f"param.{key}"], theirs[key], rtol=rtol, atol=atol, err_msg=f"{key}, {step}"
            )
