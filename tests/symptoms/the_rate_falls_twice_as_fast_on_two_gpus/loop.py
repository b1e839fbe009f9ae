"""A scheduler whose lengths are updates, prepared by a launcher that steps it per process."""

from pathlib import Path

import torch

PROCESSES, WARMUP, UPDATES = 2, 100, 1000


def factor(step: int) -> float:
    rest = (UPDATES - step) / (UPDATES - WARMUP)
    return step / WARMUP if step < WARMUP else max(0.0, rest)


optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=5e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
rows = ["step,lr"]
for update in range(UPDATES):
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
    for _ in range(PROCESSES):
        scheduler.step()
Path("log.csv").write_text("\n".join(rows))
