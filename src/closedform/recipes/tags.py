"""The param groups to which a cerebras scheduler applies: ``param_group_tags``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from closedform.errors import DefinitionError
from closedform.language import Schedule
from closedform.recipes.entries import Context, build_schedule

Tags = frozenset[Any] | None
"""Tags of param groups; None for all groups. The tag None addresses groups without tags."""


def read_tags(value: object, name: str, where: str) -> Tags:
    """Returns ``param_group_tags`` as a set.

    Raises:
        DefinitionError: It is not a string or list of strings and None, it is empty, or a tag
            occurs twice.
    """
    if value is None:
        return None
    tags = [value] if isinstance(value, str) else value
    if not isinstance(tags, list | tuple | set | frozenset):
        raise DefinitionError(f"{name} must be a tag or a list of tags, got {value!r}", where=where)
    for tag in tags:
        if tag is not None and not isinstance(tag, str):
            raise DefinitionError(f"a tag must be a string or None, got {tag!r}", where=where)
    if not tags:
        raise DefinitionError(
            f"{name} must name at least one tag, got {value!r}",
            where=where,
            hint="leave it out for all groups",
        )
    if len(set(tags)) != len(tags):
        raise DefinitionError(f"{name} must not name a tag twice, got {value!r}", where=where)
    return frozenset(tags)


def group_tags(group: Mapping[str, Any]) -> frozenset[Any]:
    """Returns the tags of a param group: {None} where it has no ``tags`` at all."""
    if group.get("tags") is None:
        return frozenset([None])
    tags = group["tags"]
    return frozenset([tags]) if isinstance(tags, str) else frozenset(tags)


def matching_groups(tags: Tags, groups: Sequence[Mapping[str, Any]], where: str) -> list[bool]:
    """Returns for each group whether it is addressed.

    Raises:
        DefinitionError: No group is.
    """
    if tags is None:
        return [True] * len(groups)
    matches = [bool(tags & group_tags(group)) for group in groups]
    if not any(matches):
        carried_tags = sorted({str(tag) for group in groups for tag in group_tags(group)})
        raise DefinitionError(
            f"param_group_tags {sorted(map(str, tags))} match no param group",
            where=where,
            hint=f"the groups carry {carried_tags}",
        )
    return matches


def build_member(spec: tuple[str, Mapping[str, Any]], tags: Tags, context: Context) -> Schedule:
    """Returns a sub-schedule, which must have the tags of its composite.

    Raises:
        DefinitionError: Its tags differ.
    """
    name, kwargs = spec
    member_tags = read_tags(
        kwargs.get("param_group_tags"), "param_group_tags", f"{context.where} > {name}"
    )
    if member_tags != tags:
        raise DefinitionError(
            "a member must have the param_group_tags of its composite, "
            f"got {member_tags} within {tags}",
            where=f"{context.where} > {name}",
            hint="give both the same tags",
        )
    return build_schedule(name, kwargs, context)
