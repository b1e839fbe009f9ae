"""All edits of all foreign steps: no faulty one is PROVED equal, whatever its ports are known by.

``make compare`` runs this file. An edit that changes nothing, such as ``x - 0`` for ``x + 0``, is
known by running both files.
"""

from collections import Counter

import pytest

from closedform.errors import ClosedFormError
from closedform.referee.judgement import judge_step
from tests.referee import foreign

pytestmark = pytest.mark.packages()


@pytest.mark.parametrize("name", foreign.names())
def test_no_edit_is_proved_equal(name: str) -> None:
    step = foreign.load(name)
    counts: Counter[str] = Counter()
    for description, model in foreign.edits(step.model):
        try:
            status = judge_step(model, step.rule, ports=step.ports).verdict.status
        except ClosedFormError:
            counts["refused"] += 1
            continue
        counts[str(status)] += 1
        if status == "PROVED":
            assert foreign.are_same(step.model, model, step.ports), description
    print(name, dict(counts))
    assert counts["REFUTED"] > counts["UNKNOWN"]
