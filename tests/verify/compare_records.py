"""Every schedule of the reference records is proved: about a minute, run by ``make compare``."""

import pytest

from closedform.compiler import compile_schedule
from closedform.errors import ClosedFormError
from closedform.verify.translation.translation import validate
from tests.recipes.schedule_tables import METRIC_DRIVEN
from tests.recipes.test_schedule_records import RECORDS, build


@pytest.mark.parametrize("key", [key for key in RECORDS if key not in METRIC_DRIVEN])
@pytest.mark.parametrize("as_implemented", [True, False])
def test_the_graph_of_a_record_is_its_schedule(key: str, as_implemented: bool) -> None:
    try:
        built = build(RECORDS[key], as_implemented=as_implemented)
    except ClosedFormError:  # refused when it is built, which tests/frameworks holds
        return
    for schedule in set(built) - {None}:
        assert schedule is not None
        verdict = validate(schedule, compile_schedule(schedule))
        assert verdict.proved, verdict
