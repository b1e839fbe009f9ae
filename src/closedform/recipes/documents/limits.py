"""Limits of config files, which come from untrusted sources."""

from __future__ import annotations

from closedform.errors import ConfigError

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
# Below the 4,300 digits at which int() refuses a string since Python 3.11.
MAX_DIGITS = 4000
TOO_LARGE = f"a config must have at most {MAX_NODES} values, nested at most {MAX_DEPTH} deep"


MAX_PATH = 4096
"""The most characters of a path: PATH_MAX of Linux."""


def checked_path(path: str, source: str) -> str:
    """Returns the path of a file that a config names.

    Args:
        path: The path as it is written.
        source: The config, for errors.

    Raises:
        ConfigError: No file can have it: it is too long, or has a null byte or half a character.
    """
    # The file system would raise ValueError or UnicodeEncodeError for these characters.
    is_text = "\0" not in path and not any("\ud800" <= char <= "\udfff" for char in path)
    if is_text and len(path) <= MAX_PATH:
        return path
    raise ConfigError(
        f"{path[:60]!r} is not the path of a file: at most {MAX_PATH} characters, and no null byte",
        where=source,
    )


def checked_keys(text: str, source: str) -> list[str]:
    """Returns the keys of a dotted name, which is nested as deeply as it has parts.

    Args:
        text: The name.
        source: The config, for errors.

    Raises:
        ConfigError: They are too many.
    """
    if text.count(".") >= MAX_DEPTH:
        raise ConfigError(
            f"the name {text[:60]!r} has {text.count('.') + 1} parts, expected at most {MAX_DEPTH}",
            where=source,
        )
    return text.split(".")


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
