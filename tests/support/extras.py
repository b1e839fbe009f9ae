"""Packages that an extra installs: a test that needs one is skipped by the name of the extra."""

from __future__ import annotations

from collections.abc import Mapping

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


def reason(extra: str) -> str:
    """The reason of a skip."""
    return f"needs the extra {extra}"
