"""The coordinate check: activations keep their scale over widths with µP, and not without it.

``compare_transfer.py`` does the same up to a width of 1,024, and finds the best learning rates.
"""

import pytest

from tests.scaling.models import FLATNESS, WIDTHS, coordinates, spread

NARROW = WIDTHS[:3]


@pytest.mark.parametrize(("name", "lr"), [("mlp", 2.0**-7), ("mlp-sgd", 2.0**-3)])
def test_activations_keep_their_scale(name: str, lr: float) -> None:
    scales = [coordinates(name, width, lr, 4, is_mup=True, seeds=4) for width in NARROW]
    assert max(spread(scales).values()) < FLATNESS


def test_activations_of_a_transformer_keep_their_scale() -> None:
    scales = [
        coordinates("transformer", width, 2.0**-7, 4, is_mup=True, seeds=1) for width in NARROW
    ]
    assert max(spread(scales).values()) < FLATNESS


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_the_standard_parametrization_does_not(name: str) -> None:
    scales = [coordinates(name, width, 2.0**-7, 4, is_mup=False, seeds=1) for width in NARROW]
    assert max(spread(scales).values()) > 1.5
