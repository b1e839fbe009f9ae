"""Every schedule of the reference records is proved: about a minute, run by ``make compare``."""

import pytest

from closedform.compiler import compile_schedule
from closedform.verify.translation.translation import validate
from tests.recipes.schedule_tables import (
    DOCUMENTED_ONLY,
    METRIC_DRIVEN,
    NO_VALUE,
    REFUSED,
    SHIPPED_ONLY,
)
from tests.recipes.test_schedule_records import RECORDS, build

# tests/recipes/test_schedule_records.py holds that the others are refused.
BUILT = [key for key in RECORDS if key not in {*METRIC_DRIVEN, *NO_VALUE, *REFUSED}]
CASES = [
    *((key, True) for key in BUILT if key not in DOCUMENTED_ONLY),
    *((key, False) for key in BUILT if key not in SHIPPED_ONLY),
]
# floor(t**(3/2)/20): the integer t**3//400 is exact up to t = 766,513, where it leaves the integers
# that a float64 holds to a half; the next step whose root is whole is 880**2.
OPEN_FROM = {"cb-0152": 880**2}
WITHOUT_A_SCHEDULE = {"th-0180", "th-0207"}  # the momentum where cycle_momentum is False


@pytest.mark.parametrize(("key", "as_implemented"), CASES)
def test_the_graph_of_a_record_is_its_schedule(key: str, as_implemented: bool) -> None:
    schedules = set(build(RECORDS[key], as_implemented=as_implemented)) - {None}
    assert schedules or key in WITHOUT_A_SCHEDULE
    for schedule in schedules:
        assert schedule is not None
        verdict = validate(schedule, compile_schedule(schedule))
        assert verdict.proved or verdict.proved_until == OPEN_FROM.get(key), verdict
