"""The refined schedule beside its algorithm run with SciPy's median filter, and its limits."""

import numpy as np
import pytest

from closedform.schedules import refined

PLACES = np.arange(40)
NORMS = 1 + 3 * np.exp(-PLACES / 5) + 0.5 * np.cos(7.0 * PLACES * PLACES) + PLACES / 40
# Every fifth value, by scipy.ndimage.median_filter 1.17.1 and the closed form of the paper's
# authors (facebookresearch/adaptive_scheduling): smoothing, power, values.
VALUES = (
    (
        0.25,
        2,
        "0.133195808008246 0.402101579544039 1.0 0.847005951180273 0.574508219496965 "
        "0.387782505075801 0.138439407125927 0.0576089591228474",
    ),
    (
        0.5,
        1,
        "0.477267381774233 0.780534977608758 0.981210074894742 0.934334981090094 "
        "0.712266898335579 0.446130472426496 0.254709424452343 0.110031231848199",
    ),
    (
        1,
        2,
        "0.225145028142098 0.671870145550112 0.932981996310003 0.914774952145315 "
        "0.804929714449427 0.58533075270145 0.36321351072802 0.148884162733104",
    ),
)


@pytest.mark.parametrize(("smoothing", "power", "values"), VALUES)
def test_values_are_those_of_the_authors(smoothing: float, power: int, values: str) -> None:
    found = np.asarray(refined(NORMS.tolist(), 1, power, smoothing)(PLACES))
    # The values have 15 digits, and sums of 40 weights differ in their order.
    np.testing.assert_allclose(found[::5], [float(value) for value in values.split()], rtol=1e-13)
    assert found[-1] == 0
    assert found.max() == 1


def test_constant_norms_give_a_line_to_0() -> None:
    found = np.asarray(refined([0.3] * 11, peak=2e-3)(np.arange(20)))
    line = 2e-3 * np.maximum(0, 1 - np.arange(20) / 10)
    # Sums of 10 weights, each rounded: 10 times 1.1e-16 of the peak.
    np.testing.assert_allclose(found, line, rtol=0, atol=2e-3 * 10 * 1.2e-16)
