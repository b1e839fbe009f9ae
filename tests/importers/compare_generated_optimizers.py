"""Every generated class of torch optimizers, in both dtypes; prints how many are refused."""

from pathlib import Path

import torch

from tests.importers.generated_optimizers import differences, generated, must_be_refused, refusal

COUNT = 2 * 186
# Of the classes that a rule could express: operations without an expression in the language (sort,
# cumsum), elements of tensors, texts of dtypes, states that are made only in some of the ways.
MOST_REFUSED = 0.25


def test_no_generated_class_is_traced_wrongly(tmp_path: Path) -> None:
    wrong: list[str] = []
    refused, count = 0, 0
    for place, parts in enumerate(generated(COUNT)):
        for dtype in (torch.float64, torch.float32):
            why, rule = refusal(parts, dtype)
            if must_be_refused(parts):
                wrong += [] if rule is None else [f"{parts} is traced"]
            else:
                count += 1
                refused += rule is None
            if rule is None:
                print(f"refused {parts}: {why}"[:160])
                continue
            found = list(differences(parts, rule, dtype, tmp_path / f"{place}", place))
            wrong += [f"{parts}: {difference}" for difference in found]
    share = refused / count
    print(f"{count} of {2 * COUNT} could be traced: {share:.0%} refused; {len(wrong)} wrong")
    assert not wrong
    assert share <= MOST_REFUSED
