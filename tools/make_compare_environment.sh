#!/bin/sh
# Makes .venv-compare with the packages of others: torch, transformers, timm, optax, jax, mlx.
set -eu
bin=.venv-compare/bin
echo "== setup: .venv-compare with torch, transformers, timm, optax, jax and mlx, a few minutes"
.venv/bin/python -m venv --clear .venv-compare
"$bin/python" -m pip install -qq -e . -r tests/recipes/compare_requirements.txt \
  -c constraints.txt
# timm without what it asks for: its schedulers need torch alone, its models torchvision, whose wheel
# needs the CUDA build of torch. ExecuTorch without its converters of models for other devices.
"$bin/python" -m pip install -qq --no-deps timm==1.0.31 pytorch_optimizer==4.1.0 mup==1.0.0 \
  torchao==0.18.0 executorch==1.5.1 flatbuffers parameterized ruamel.yaml tabulate
touch .venv-compare/.installed
