"""The frameworks by name; the package of each is imported when its entry is first used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from closedform.recipes.framework import Framework

_PACKAGES = {
    "alignment-handbook": "alignment_handbook",
    "automodel": "automodel",
    "axolotl": "axolotl",
    "big_vision": "big_vision",
    "cerebras": "cerebras",
    "composer": "composer",
    "deepspeed": "deepspeed",
    "detectron2": "detectron2",
    "fairseq": "fairseq",
    "gpt-neox": "gpt_neox",
    "huggingface": "huggingface",
    "keras": "keras",
    "levanter": "levanter",
    "lightning-cli": "lightning_cli",
    "litgpt": "litgpt",
    "llama-factory": "llama_factory",
    "llm.c": "llm_c",
    "llm-foundry": "llm_foundry",
    "maxtext": "maxtext",
    "megatron": "megatron",
    "mmengine": "mmengine",
    "ms-swift": "ms_swift",
    "nanochat": "nanochat",
    "nanogpt": "nanogpt",
    "nanotron": "nanotron",
    "nemo": "nemo",
    "olmo": "olmo",
    "olmo_core": "olmo_core",
    "optax": "optax",
    "paddle": "paddle",
    "pytorch_accelerated": "pytorch_accelerated",
    "t5x": "t5x",
    "timm": "timm",
    "torch": "torch",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "transformers": "transformers",
    "trl": "trl",
    "ultralytics": "ultralytics",
}
"""The name of each framework, and its package in this folder."""


class _Frameworks(Mapping[str, Framework]):
    """A mapping whose names are known before any framework is imported."""

    def __getitem__(self, name: str) -> Framework:
        package = importlib.import_module(f"closedform.recipes.{_PACKAGES[name]}")
        framework: Framework = package.FRAMEWORK
        return framework

    def __contains__(self, name: object) -> bool:
        return name in _PACKAGES

    def __iter__(self) -> Iterator[str]:
        return iter(_PACKAGES)

    def __len__(self) -> int:
        return len(_PACKAGES)


FRAMEWORKS: Mapping[str, Framework] = _Frameworks()
"""The frameworks by name."""
