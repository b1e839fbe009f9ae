"""The packages that `make compare` installs, found as far as their schedulers need them."""

import functools
import importlib
import importlib.util
import sys
import types
from typing import Any


@functools.cache
def timm_scheduler() -> Any:
    """The module timm.scheduler, without what else timm loads: models, which need torchvision.

    The wheel of torchvision on PyPI needs the CUDA build of torch.
    """
    found = importlib.util.find_spec("timm")
    if found is None:
        raise ModuleNotFoundError("timm is not installed: make compare")
    package = types.ModuleType("timm")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules.setdefault("timm", package)
    return importlib.import_module("timm.scheduler")
