"""The frameworks by name; the module of each is imported when its entry is first used.

A package adds one with an entry point: ``[project.entry-points."closedform.frameworks"]`` with
``mylab = "mylab_recipes:FRAMEWORK"`` makes ``FRAMEWORKS["mylab"]`` its declaration.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.errors import ConfigError, UnknownNameError, nearest
from closedform.recipes.framework import Framework, Tier

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MIN_HASH = 7
"""The fewest characters of a commit's hash that name a version: git abbreviates it to 7."""

ENTRY_POINTS = "closedform.frameworks"
"""The group of the entry points by which packages add frameworks."""

_NAMES = (
    "alignment-handbook automodel axolotl big_vision cerebras composer deepspeed detectron2 "
    "diffusers dinov2 dinov3 espnet fairseq fairseq2 gpt-neox huggingface icefall keras kohya "
    "levanter lightning-cli lightning-hydra lingua litgpt llama-factory llm-foundry llm.c mae "
    "maxtext megatron mlx-lm mmengine ms-swift nanochat nanogpt nanotron nanovlm nemo nemo-rl olmo "
    "olmo_core onetrainer open-instruct open_clip openrlhf optax paddle prime-rl "
    "pytorch_accelerated sentence-transformers simpletuner slime speechbrain t5x timm torch "
    "torchtitan torchtune transformers trl ultralytics verl yolox"
)
"""The frameworks: `make frameworks` writes them."""
_MODULES = {name: re.sub("[-.]", "_", name) for name in _NAMES.split()}
"""The name of each framework, and its folder in frameworks/."""


def _declared() -> Iterable[EntryPoint]:
    """The entry points of the group.

    ``importlib.metadata`` takes 25 ms to list none: it is asked only where the file of an installed
    package names the group, and where a zip file may have packages.
    """
    for folder in map(Path, sys.path):
        files = (*folder.glob("*-info/entry_points.txt"), *folder.glob("EGG-INFO/entry_points.txt"))
        if folder.is_file() or any(ENTRY_POINTS in file.read_text("utf-8") for file in files):
            from importlib.metadata import entry_points

            return entry_points(group=ENTRY_POINTS)
    return ()


@functools.cache
def _entry_points() -> dict[str, EntryPoint]:
    """Returns the entry points of installed packages, without names that are in the table.

    Raises:
        ConfigError: Two packages declare one name.
    """
    points: dict[str, EntryPoint] = {}
    for point in _declared():
        if point.name in _MODULES:
            continue
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigError(
                f"two packages declare the framework {point.name!r}",
                where=f"{other.value} and {point.value}",
                hint="uninstall one of them",
            )
    return points


class _Frameworks(Mapping[str, Framework]):
    """A mapping whose names are known before any framework is imported."""

    def __getitem__(self, name: str) -> Framework:
        if name in _MODULES:
            module = importlib.import_module(self.module(name))
            framework: Framework = module.FRAMEWORK
            return framework
        point = _entry_points()[name]
        registered = point.load()
        if not isinstance(registered, Framework) or registered.name != name:
            raise ConfigError(
                f"entry point {name!r} must be a Framework of this name, got {registered!r:.80}",
                where=f"package {point.dist.name if point.dist else point.module!r}",
                hint=f"{point.value} is where the package declares it",
            )
        return replace(registered, tier=Tier.COMMUNITY)

    @staticmethod
    def module(name: str) -> str:
        """Returns the name of the module of a framework."""
        if name in _MODULES:
            return f"closedform.frameworks.{_MODULES[name]}"
        return _entry_points()[name].module

    def __contains__(self, name: object) -> bool:
        return name in _MODULES or name in _entry_points()

    def __iter__(self) -> Iterator[str]:
        yield from _MODULES
        yield from _entry_points()

    def __len__(self) -> int:
        return len(_MODULES) + len(_entry_points())


FRAMEWORKS = _Frameworks()
"""The frameworks by name."""

_ABBREVIATIONS = {
    "accelerate": ("huggingface",),
    "d2": ("detectron2",),
    "ds": ("deepspeed",),
    "flax": ("optax",),
    "hf": ("transformers", "huggingface"),
    "jax": ("optax",),
    "lightning": ("lightning-cli", "lightning-hydra"),
    "mosaic": ("composer", "llm-foundry"),
    "mosaicml": ("composer", "llm-foundry"),
    "nemo_rl": ("nemo-rl",),
    "pl": ("lightning-cli", "lightning-hydra"),
    "pt": ("torch",),
    "pytorch": ("torch",),
    "pytorch-lightning": ("lightning-cli", "lightning-hydra"),
    "tensorflow": ("keras",),
    "tf": ("keras",),
    "tt": ("torchtitan", "torchtune"),
    "yolo": ("ultralytics", "yolox"),
}
"""Common names of a framework whose name differs too much to be the nearest."""

_LIKENESS = 0.6
"""The least similarity of a suggestion: nosuch and nanochat, which differ, agree by 0.57."""


def unknown_framework(name: object, names: Iterable[str] = FRAMEWORKS) -> UnknownNameError:
    """Returns the error for an unknown name of a framework, with suggestions.

    Args:
        name: The name.
        names: The frameworks that could have been named.

    Example:
        >>> print(unknown_framework("hf"))
        there is no framework 'hf': did you mean 'transformers' or 'huggingface'?
    """
    names = tuple(names)
    candidates = [label for label in _ABBREVIATIONS.get(str(name).lower(), ()) if label in names]
    texts = " or ".join(map(repr, candidates))
    hint = f"did you mean {texts}?" if candidates else nearest(str(name), names, _LIKENESS)
    return UnknownNameError(f"there is no framework {name!r}", hint=hint)


def known_version(framework: Framework, version: str | None) -> str:
    """Returns a version under its known name; the newest one if none is given.

    Raises:
        UnknownNameError: The semantics of the version are not known.
    """
    versions = framework.versions
    if version is None:
        return versions[0] if versions else ""
    for name in versions:
        # A hash may be given shorter or longer than the framework's declaration has it.
        is_prefix = len(version) >= MIN_HASH and name.startswith(version)
        if version == name or is_prefix or (len(name) >= MIN_HASH and version.startswith(name)):
            return name
    raise UnknownNameError(
        f"the semantics of {framework.name} {version} are not known",
        hint=nearest(version, versions),
    )
