"""Secrets inside values: shown as `<set>`, and `<set>` sent back meaning what was there before.

A schema marks a secret with `writeOnly: true`, at any depth (`properties`, `patternProperties`,
`additionalProperties`, `items`). Knows no key and no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ahpd.log import MASK

NOTHING = object()
"""Stands for a value that is not there."""


def has_secrets(schema: Mapping[str, Any]) -> bool:
    """Whether anything a schema describes is marked as a secret."""
    return schema.get("writeOnly") is True or any(has_secrets(inner) for inner in _inner(schema))


def _inner(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for word in ("properties", "patternProperties"):
        yield from (inner for inner in schema.get(word, {}).values() if isinstance(inner, Mapping))
    yield from (
        schema[word] for word in ("additionalProperties", "items") if isinstance(schema.get(word), Mapping)
    )


def below(schema: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    """The schema of one member of an object or one item of a list; empty where nothing is said of it."""
    if isinstance(step, int):
        found = schema.get("items")
    else:
        found = schema.get("properties", {}).get(step)
        if found is None:
            patterns = schema.get("patternProperties", {}).items()
            found = next((inner for pattern, inner in patterns if re.search(pattern, step)), None)
        if found is None:
            found = schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


def masked(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value as it may be shown. A reference to a kept secret (`{"$secret": name}`) is no secret."""
    if value is None or (isinstance(value, Mapping) and set(value) == {"$secret"}):
        return value
    if schema.get("writeOnly") is True:
        return MASK
    if isinstance(value, Mapping):
        return {name: masked(item, below(schema, name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, below(schema, index)) for index, item in enumerate(value)]
    return value


def joined(value: Any, held: Any, schema: Mapping[str, Any]) -> Any:
    """What is held with what somebody sent laid over it: members not sent stay, null takes one out, and `<set>`
    for a secret leaves it. `NOTHING` when nothing is left."""
    if value is None:
        return NOTHING
    if value == MASK and schema.get("writeOnly") is True:
        return held
    if isinstance(value, Mapping):
        members = dict(held) if isinstance(held, Mapping) else {}
        for name, item in value.items():
            member = joined(item, members.pop(name, NOTHING), below(schema, name))
            if member is not NOTHING:
                members[name] = member
        return members
    if isinstance(value, list):
        before = held if isinstance(held, list) else []
        pairs = [(item, before[index] if index < len(before) else NOTHING) for index, item in enumerate(value)]
        items = [joined(item, was, below(schema, index)) for index, (item, was) in enumerate(pairs)]
        return [item for item in items if item is not NOTHING]
    return value


def differences(held: Any, wanted: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The fewest assignments, by path, that make `wanted` of `held`; `NOTHING` takes a member out."""
    if isinstance(held, Mapping) and isinstance(wanted, Mapping):
        for name in dict.fromkeys((*held, *wanted)):
            yield from differences(held.get(name, NOTHING), wanted.get(name, NOTHING), (*path, name))
    elif type(held) is not type(wanted) or held != wanted:
        yield path, wanted
