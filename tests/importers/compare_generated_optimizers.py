"""Every generated class of torch optimizers, in both dtypes; prints how many are refused."""

from pathlib import Path

import torch

from tests.importers.generated_optimizers import differences, generated, refusal

COUNT = 2 * 186
MOST_REFUSED = 0.5


def test_no_generated_class_is_traced_wrongly(tmp_path: Path) -> None:
    wrong: list[str] = []
    refused = 0
    for place, parts in enumerate(generated(COUNT)):
        for dtype in (torch.float64, torch.float32):
            why, rule = refusal(parts, dtype)
            if rule is None:
                refused += 1
                print(f"refused {parts}: {why}"[:160])
                continue
            found = list(differences(parts, rule, dtype, tmp_path / f"{place}", place))
            wrong += [f"{parts}: {difference}" for difference in found]
    share = refused / (2 * COUNT)
    print(f"{COUNT} classes in two dtypes: {share:.0%} refused, {len(wrong)} wrong")
    assert not wrong
    # Half of the guards are there to be refused: clocks, addresses, NumPy, texts.
    assert share <= MOST_REFUSED
