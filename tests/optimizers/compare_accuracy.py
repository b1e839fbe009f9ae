"""Every torch form: its float32 error beside that of torch's single-tensor path (make compare).

The configurations are those of the reference's error table. A step here errs as much as torch's or
less, but where torch adds a multiple with one rounding (fused multiply-add), which no graph has.
"""

import json

import pytest

from tests.reference.records import ROOT
from tests.support.accuracy import beside_torch

TABLE = json.loads((ROOT / "optimizers" / "accuracy.json").read_text(encoding="utf-8"))["rows"]
ROWS = {
    f"{row['class']} {row['config']}": row
    for row in TABLE
    if (row["system"], row["path"]) == ("torch", "single")
}

# The rms over the 3030 elements of ten runs has a spread of about 2 % for errors like these.
SPREAD = 1.02
# Above 1.02 after 12 or after 100 steps: a bound above the multiple measured, and why.
LARGER = {
    "Muon default": (1.2, "1.17: bf16 products are summed in float32 here, in bf16 blocks there"),
}


@pytest.mark.parametrize("key", ROWS)
def test_error_is_at_most_that_of_torch(key: str) -> None:
    check(key)


def check(key: str) -> None:
    row = ROWS[key]
    found = beside_torch(row["class"], row["kwargs"])
    print(f"{key}: {found[12]:.3f} after 12 steps, {found[100]:.3f} after 100, of torch's error")
    limit, _ = LARGER.get(key, (SPREAD, "as torch"))
    assert max(found.values()) <= limit
