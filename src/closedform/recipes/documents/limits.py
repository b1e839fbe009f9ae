"""Limits of config files, which come from strangers."""

from __future__ import annotations

from closedform.errors import ConfigError

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_DIGITS = 4000
TOO_LARGE = f"a config must have at most {MAX_NODES} values, nested at most {MAX_DEPTH} deep"


class Budget:
    """Counts the values of a config, aliases expanded, and refuses too many.

    Args:
        source: The file, for errors.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0

    def spend(self, depth: int, place: str | None = None) -> None:
        """Counts a value at a depth.

        Raises:
            ConfigError: The values are too many, or nested too deeply.
        """
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            raise ConfigError(TOO_LARGE, where=place or self.source)
