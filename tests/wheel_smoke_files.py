"""Writes what `wheel_smoke.py` trains with, in the environment that has torch."""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import closedform as cf

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))
    example = torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)
    cf.training.export(model, cross_entropy, example, cf.optimizers.adamw(0.02), sys.argv[1])
