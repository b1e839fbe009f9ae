"""The package that code belongs to, by the folders of the packages that are imported.

Paths are resolved and compared component by component: a user's folder may have the name of a
package, and the name of one package may begin with that of another.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """The files of imported packages.

    Attributes:
        roots: The folders of the packages, or the file of a module without a folder.
    """

    roots: tuple[PurePath, ...]

    def parts_of(self, file: str) -> tuple[str, ...] | None:
        """Returns the path of a file below its root, by components; None for other files.

        Args:
            file: The path in a code object; text such as ``<string>`` names no file.
        """
        path = _resolve(file)
        for root in self.roots:
            if path is not None and path.is_relative_to(root):
                return path.relative_to(root).parts
        return None

    def __contains__(self, file: str) -> bool:
        return self.parts_of(file) is not None


def files_of(*packages: str) -> CodeFiles:
    """Returns the files of packages or modules; those that are not imported have none.

    >>> "/home/user/closedform/train.py" in files_of("closedform")
    False
    """
    modules = (sys.modules.get(name) for name in packages)
    # A package has __path__, in several folders where it is a namespace.
    files = [getattr(module, "__path__", None) or [_file(module)] for module in modules]
    return _code_files(path for paths in files for path in paths)


def is_standard(module: str) -> bool:
    """Returns whether an imported module is of the standard library, by its name and its file.

    A user's file may have the name of one, such as ``code.py``.

    >>> is_standard("sysconfig"), is_standard("closedform")
    (True, False)
    """
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    # Modules in C have no file.
    file = _file(sys.modules.get(module))
    return not file or is_in_standard_library(file)


def is_in_standard_library(file: str) -> bool:
    """Returns whether code is of a module of Python's standard library.

    >>> is_in_standard_library(sysconfig.__file__)
    True
    """
    if file.startswith("<frozen "):
        return True
    parts = _code_files([sysconfig.get_path("stdlib")]).parts_of(file)
    # Packages are installed below the standard library, in site-packages.
    root = parts[0] if parts else ""
    return root.removesuffix(".py") in sys.stdlib_module_names


def _code_files(paths: Iterable[str]) -> CodeFiles:
    return CodeFiles(tuple(root for path in paths if (root := _resolve(path)) is not None))


def _file(module: object) -> str:
    return getattr(module, "__file__", None) or ""


def _resolve(file: str) -> PurePath | None:
    # Packages are imported from absolute paths; a relative one may name a folder that is deleted.
    return PurePath(os.path.realpath(file)) if os.path.isabs(file) else None
