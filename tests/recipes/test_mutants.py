"""5,000 configs with errors: each is read, or refused with an error of the library, in time.

``make test`` tries 50 of them, ``make compare`` all.
"""

import time
from pathlib import Path

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes import load_recipe
from tests.recipes.mutants import mutants

COUNT = 50
MOST_SECONDS = 20
"""The most processor time of one config: the largest real one takes a second."""


@pytest.mark.sample(every=100)
@pytest.mark.parametrize("part", range(100))
def test_mutants_are_read_or_refused(part: int, tmp_path: Path) -> None:
    refused, wrong = 0, []
    for index, mutant in enumerate(mutants(COUNT, seed=part * COUNT)):
        framework, _, name = mutant.file.partition("/")
        path = tmp_path / name
        path.write_text(mutant.text, encoding="utf-8")
        began = time.process_time()
        try:
            load_recipe(path, framework=framework, facts=mutant.facts).schedule("lr")
        except ClosedFormError:
            refused += 1
        except Exception as error:  # what must not happen, and is listed
            wrong.append(f"{index} {mutant.file}: {type(error).__name__}: {error}")
        if time.process_time() - began > MOST_SECONDS:
            wrong.append(f"{index} {mutant.file}: more than {MOST_SECONDS} s")
    assert not wrong, f"{len(wrong)} of {COUNT}:\n" + "\n".join(wrong)
    assert 0 < refused < COUNT  # the changes matter, and not all of them
