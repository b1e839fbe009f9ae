"""Configs that inherit from other files, or name them: no file is read but those given.

Without given files, a file that a config names is one in its folder, such as that of DeepSpeed.

MMEngine's ``_base_`` and Detectron2's ``_BASE_``, Hydra's ``defaults``, and gin's ``include``. A
path names an entry of a mapping of texts, or a file below a directory, after symbolic links are
resolved. Nothing is run.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from closedform.errors import ConfigError, nearest
from closedform.recipes.document import Document, FileSource, Syntax, document_of, text_of
from closedform.recipes.documents.limits import MAX_BYTES, checked_keys, checked_path

MAX_FILES = 200
"""The most files of one config, each counted as often as it is merged."""

_BASES = ("_base_", "_BASE_")
_DELETE = "_delete_"
_DEFAULTS, _SELF = "defaults", "_self_"
_PACKAGE = re.compile(r"\A\s*#\s*@package\s+(\S+)")
_PACKAGE_KEY = "@package"
"""The entry of a file's content that holds the package of its header."""
_GIN_INCLUDE = re.compile(r"^\s*include\s+['\"]([^'\"]+)['\"]\s*$", re.MULTILINE)
_NOT_FILES = re.compile(r"\$\{|://")


@dataclass(slots=True)
class Files:
    """The files that may be read.

    Attributes:
        texts: Path -> text, or the directory that the files are in.
        source: The config, for errors.
        count: The files that were read.
    """

    texts: Mapping[str, str] | Path
    source: str
    count: int = 0

    def text(self, path: str) -> str:
        """Returns the text of a file by its path, relative to the given files.

        Raises:
            ConfigError: There is none, it is outside of the directory, or there are too many.
        """
        self.count += 1
        if self.count > MAX_FILES:
            raise ConfigError(
                f"a config must have at most {MAX_FILES} further files, or one includes itself",
                where=self.source,
            )
        checked_path(path, self.source)
        if path.startswith(("/", "../")) or path == "..":
            raise ConfigError(
                f"the file {path!r} is outside of the given files",
                where=self.source,
                hint="name a directory that holds all files",
            )
        if isinstance(self.texts, Mapping):
            if path not in self.texts:
                raise ConfigError(
                    f"the further file {path!r} is not given",
                    where=self.source,
                    hint=nearest(path, list(self.texts)) if self.texts else None,
                )
            text = self.texts[path]
            if len(text) > MAX_BYTES:
                raise ConfigError(f"{path} must have at most {MAX_BYTES} bytes", where=self.source)
            return text
        file = (self.texts / path).resolve()
        # After resolve(): a symbolic link must not lead out of the directory.
        if not file.is_relative_to(self.texts):
            raise ConfigError(
                f"the file {path!r} is outside of {self.texts}",
                where=self.source,
                hint="name a directory that holds all files",
            )
        return text_of(file)

    def has(self, path: str) -> bool:
        """Returns whether there is a file of a path."""
        checked_path(path, self.source)
        if isinstance(self.texts, Mapping):
            return path in self.texts
        return not path.startswith(("/", "..")) and (self.texts / path).is_file()


def merge_files(document: Document, source: FileSource) -> Document:
    """Returns a config with the files that it inherits from, the file itself winning.

    Args:
        document: The config.
        source: A directory, below which the files are, or their texts by their paths. Where the
            config is a file of the directory, paths are relative to it, otherwise to the directory.

    Raises:
        ConfigError: A file is missing or outside of those given, there are too many, two bases
            have the same key, or an entry is not one of the kinds that are read.

    Example:
        >>> from closedform.recipes.document import read_document
        >>> config = read_document({"_base_": "a.yaml", "train": {"lr": 1}})
        >>> merge_files(config, {"a.yaml": "train: {lr: 2, steps: 3}"}).content
        {'train': {'lr': 1, 'steps': 3}}
    """
    files, place = _given_files(document, source)
    if document.syntax is Syntax.GIN:
        text = text_of(Path(document.source))
        return document_of(_inline_includes(text, place, files), ".gin", document.source)
    return replace(document, content=_resolve(document.content, place, files), files=source)


def named_document(document: Document, path: str) -> Document | None:
    """Returns the JSON file that a config names; None where there is none that may be read.

    A run resolves the path from the folder that it is started in, which a config does not say: it
    is tried below the given files, then below the folder of the config.

    Args:
        document: The config.
        path: The path, as the config has it.

    Raises:
        ConfigError: The file is not JSON, is too large, or a link out of the folder.
    """
    source = document.files
    if source is None:
        if document.syntax is Syntax.MAPPING or not Path(document.source).is_file():
            return None
        source = Path(document.source).parent
    files, place = _given_files(document, source)
    for candidate in (posixpath.normpath(path), _join(place, path)):
        if files.has(candidate):
            return document_of(files.text(candidate), ".json", path)
    return None


def _given_files(document: Document, source: FileSource) -> tuple[Files, str]:
    """The files of a source, and the place of the config among them."""
    if isinstance(source, Mapping):
        return Files(source, document.source), ""
    folder = Path(checked_path(str(source), document.source)).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{str(source)!r} is not a directory", where=document.source)
    path = Path(document.source).resolve()
    is_inside = document.syntax is not Syntax.MAPPING and path.is_relative_to(folder)
    place = path.relative_to(folder).parent.as_posix() if is_inside else ""
    return Files(folder, document.source), place


def _join(place: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(place, path))


def _read(path: str, files: Files) -> dict[str, Any]:
    """The content of a file, merged with the files that it inherits from."""
    text = files.text(path)
    content = document_of(text, posixpath.splitext(path)[1], path).content
    entries = _resolve(content, posixpath.dirname(path), files)
    package = _PACKAGE.match(text)
    return {_PACKAGE_KEY: package.group(1), **entries} if package else entries


def _resolve(content: Mapping[str, Any], place: str, files: Files) -> dict[str, Any]:
    for key in _BASES:
        if content.get(key) is not None:
            return _with_bases(content, key, place, files)
    if isinstance(content.get(_DEFAULTS), list):
        return _with_defaults(content, place, files)
    return dict(content)


def _with_bases(content: Mapping[str, Any], key: str, place: str, files: Files) -> dict[str, Any]:
    """The bases in their order, which may not have one key twice, and the file over them."""
    base_files = content[key]
    paths = base_files if isinstance(base_files, list) else [base_files]
    base: dict[str, Any] = {}
    for path in paths:
        if not isinstance(path, str) or _NOT_FILES.search(path):
            raise ConfigError(f"{key} must name files, got {path!r:.60}", where=files.source)
        base_entries = _read(_join(place, path), files)
        base_entries.pop(_PACKAGE_KEY, None)
        twice = sorted(set(map(str, base)) & set(map(str, base_entries)))
        # mmengine/config/config.py refuses duplicate keys of bases; detectron2 lets the later one
        # win.
        if twice and key == "_base_":
            raise ConfigError(
                f"two files of _base_ have the key {twice[0]!r}, which MMEngine refuses",
                where=files.source,
            )
        base = _over(base, base_entries)
    overrides = {name: value for name, value in content.items() if name != key}
    return _over(base, overrides)


def _over(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merged by key, the second one winning; ``_delete_`` drops entries of the first."""
    result = dict(base)
    for key, value in overrides.items():
        before = result.get(key)
        if isinstance(value, Mapping):
            is_new = bool(value.get(_DELETE)) or not isinstance(before, Mapping)
            inner = {name: item for name, item in value.items() if name != _DELETE}
            result[key] = _over({} if is_new else before or {}, inner)
        else:
            result[key] = value
    return result


def _with_defaults(content: Mapping[str, Any], place: str, files: Files) -> dict[str, Any]:
    """The composition of Hydra 1.1 and later: the file itself comes last, or at ``_self_``."""
    overrides = {name: value for name, value in content.items() if name != _DEFAULTS}
    entries = list(content[_DEFAULTS])
    if _SELF not in entries:
        entries.append(_SELF)
    # Overrides apply to all entries, also to those before them in the list.
    choices = dict(_choices(entries, files.source))
    result: dict[str, Any] = {}
    for entry in entries:
        if entry == _SELF:
            result = _over(result, overrides)
            continue
        for group, name, package, is_optional in _entry(entry, choices, files.source):
            path = _join(place, posixpath.join(group, f"{name}.yaml"))
            if is_optional and not files.has(path):
                continue
            group_content = _read(path, files)
            header = group_content.pop(_PACKAGE_KEY, None)
            result = _over(
                result,
                _place_in_package(
                    group_content, package or header or group.replace("/", "."), path
                ),
            )
    return result


def _choices(entries: list[Any], source: str) -> Iterator[tuple[str, Any]]:
    """The overrides of the list: a group and its choice."""
    for entry in entries:
        if isinstance(entry, Mapping) and len(entry) == 1:
            ((key, name),) = entry.items()
            words = str(key).split()
            if words and words[0] == "override":
                if len(words) != 2:
                    raise ConfigError(f"cannot read the default {entry!r:.60}", where=source)
                yield words[1].lstrip("/").partition("@")[0], name


def _entry(
    entry: Any, choices: Mapping[str, Any], source: str
) -> Iterator[tuple[str, str, str, bool]]:
    """The group, the name, the package and whether it is optional, of an entry; none for null."""
    key, name = "", entry
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((key, name),) = entry.items()
    words = str(key).split()
    if words and words[0] == "override":
        return
    is_optional = bool(words) and words[0] == "optional"
    group, _, package = (words[-1] if words else "").lstrip("/").partition("@")
    name = choices.get(group, name) if group else name
    # A null leaves the group out.
    if name is None:
        return
    if not isinstance(name, str) or _NOT_FILES.search(name):
        raise ConfigError(f"cannot read the default {entry!r:.60}", where=source)
    if not group:
        name, _, package = name.lstrip("/").partition("@")
        group, name = posixpath.split(name)
    yield group, name.removesuffix(".yaml"), package, is_optional


def _place_in_package(content: dict[str, Any], package: str, source: str) -> dict[str, Any]:
    """A content under its package."""
    if package in ("", "_global_"):
        return content
    for part in reversed(checked_keys(package, source)):
        content = {part: content}
    return content


def _inline_includes(text: str, place: str, files: Files) -> str:
    """The text of a gin file with its includes; a path is tried as it is, then below the file."""

    def include(match: re.Match[str]) -> str:
        path = posixpath.normpath(match.group(1))
        if not files.has(path):
            path = _join(place, match.group(1))
        return _inline_includes(files.text(path), posixpath.dirname(path), files)

    result = _GIN_INCLUDE.sub(include, text)
    if len(result) > MAX_BYTES:
        raise ConfigError(
            f"the files must have at most {MAX_BYTES} bytes together", where=files.source
        )
    return result
