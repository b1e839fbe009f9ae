"""docs/track_3.md: formulas are those of the logs, and the table has the figures of the fits.

The rates of a line of track_3.jsonl are what the code in the log of the record computes at these
updates, run apart from its training.
"""

import numpy as np
import pytest

from tools import build_track_3 as track_3

RECORDS = track_3.read_records()
ROUNDING = 1e-14
"""A quotient, a power and a product of float64."""


def test_every_record_of_the_contest_is_there() -> None:
    assert [record.numbers["number"] for record in RECORDS] == list(range(1, 47))
    assert (len(track_3.early_records()), len(track_3.later_records())) == (10, 31)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.numbers["number"]))
def test_a_formula_is_that_of_the_log(record: track_3.TrackRecord) -> None:
    updates, rates = zip(*record.numbers["rates"], strict=True)
    values = np.array([float(record.schedule()(update)) for update in updates])
    assert np.max(np.abs(values - np.array(rates))) <= ROUNDING * record.numbers["peak"]
    assert f"({record.numbers['end']} − t)" in record.formula()


@pytest.mark.parametrize("law", ["momentum", "multi_power"])
def test_rank_correlations_are_those_of_the_stored_parameters(law: str) -> None:
    figures = track_3.results()[law]
    measured = track_3.correlations(law, figures["parameters"])
    assert measured.keys() == figures["correlations"].keys()
    for name, value in measured.items():
        # A rounding may exchange two neighbours of 31, which is 2 / (31 * 32 * 30) * 6 at most.
        assert value == pytest.approx(figures["correlations"][name], abs=5e-4)


def test_the_designs_leave_the_family_of_the_records() -> None:
    multi_power, momentum = (
        track_3.results()[law]["design"] for law in ("multi_power", "momentum")
    )
    assert multi_power[5] > 0.99 > 0.02 > multi_power[6]
    assert momentum[7] > 0.99 > 0.01 > momentum[8]
