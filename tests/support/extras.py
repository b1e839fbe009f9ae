"""Packages that an extra installs: a test that needs one is skipped by the name of the extra."""

import importlib.util
import re
from collections.abc import Mapping

import pytest

EXTRA_OF: Mapping[str, str] = {
    "jax": "jax",
    "keras": "keras",
    "matplotlib": "plot",
    "mlx": "mlx",
    "onnxscript": "torch",
    "optax": "jax",
    "tensorboard": "tensorboard",
    "torch": "torch",
    # Tools of the extra dev that few tests use.
    "build": "dev",
    "mypy": "dev",
    "sklearn": "dev",
}
"""Extras by the names of their modules."""

_MISSING = re.compile(r"No module named '(\w+)|(\w+)(?:, which(?: [\w ]+,)?)? is not installed")


def missing_extra(error: BaseException | None) -> str | None:
    """The extra whose module is not installed, where an exception has this cause; else None."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        root = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and root in EXTRA_OF:
            return EXTRA_OF[root]
        seen.append(error)
        # Errors of the library are raised `from None`, which keeps the context.
        error = error.__cause__ or error.__context__
    return None


def skip_for_module(module: str) -> None:
    """Skips the test if a module of an extra is not installed."""
    if module in EXTRA_OF and importlib.util.find_spec(module) is None:
        skip_for_extra(EXTRA_OF[module])


def skip_for_message(text: str) -> None:
    """Skips the test if a program says that a module of an extra is not installed.

    Such a program has no result to judge.
    """
    for in_python, in_library in _MISSING.findall(text):
        skip_for_module(in_python or in_library)


def skip_for_extra(extra: str, file: str = "") -> None:
    """Skips the test, or a whole file of tests, by the name of an extra.

    The reason names the file: of files with one reason pytest-xdist reports the first.
    """
    place = f" in {file}" if file else ""
    pytest.skip(f"needs the extra {extra}{place}", allow_module_level=True)
