"""Copy-on-write edits of plain JSON objects, shared by the reducers.

Owns: setting, clearing, upserting and dropping without touching the input. Refuses to know:
channels and turns.

Two rules hold for every function here. An edit that changes nothing gives back the very object it was
given, so that a caller can ask `after is before`. And a member that is `null` counts as absent.
"""

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
Handler = Callable[[Json, Json], Json]

IS_READ = 32
IS_ARCHIVED = 64
ACTIVITY_BITS = 31
"""Bits 0-4 of a status: exactly one activity at a time. The bits above are independent flags."""


def reduce_with(handlers: Mapping[str, Handler], state: Json, action: Json) -> Json:
    """Run the handler of `action["type"]`; an unknown type, or input that is no object, changes nothing."""
    if not isinstance(state, dict) or not isinstance(action, dict):
        return state
    kind = action.get("type")
    handler = handlers.get(kind) if isinstance(kind, str) else None
    return state if handler is None else handler(state, action)


def put(target: Json, key: str, value: object) -> Json:
    """`target` with `key` set to `value`; `None` removes the key."""
    old = target.get(key)
    if value is None:
        return target if old is None else {name: kept for name, kept in target.items() if name != key}
    # Only scalars are compared: comparing trees costs more than it saves, and `1 == True` inside them.
    if type(old) is type(value) and not isinstance(value, dict | list) and old == value:
        return target
    return {**target, key: value}


def is_a(value: object, wanted: type) -> bool:
    """`isinstance`, except that a JSON boolean is not a number."""
    return isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))


def setter(field: str, wanted: type, *, clears: bool = False, to: str = "") -> Handler:
    """A handler that copies `field` of the action into `to` (or the same name) of the state.

    With `clears`, an absent value removes the key; without, it changes nothing. A value of another type
    than `wanted` never changes anything.
    """

    def apply(state: Json, action: Json) -> Json:
        value = action.get(field)
        if is_a(value, wanted) or (clears and value is None):
            return put(state, to or field, value)
        return state

    return apply


def flag_setter(field: str, bit: int) -> Handler:
    """A handler that sets or clears `bit` of the status from the boolean `field` of the action."""

    def apply(state: Json, action: Json) -> Json:
        value = action.get(field)
        if not isinstance(value, bool):
            return state
        status = status_of(state)
        return put(state, "status", status | bit if value else status & ~bit)

    return apply


def status_of(state: Json) -> int:
    """The status bits; 0 when they are missing or no integer."""
    status = state.get("status")
    return status if isinstance(status, int) and not isinstance(status, bool) else 0


def listed(value: object) -> list[Any]:
    """`value` if it is a list, else an empty one: absent and malformed lists read as empty."""
    return value if isinstance(value, list) else []


def index_of(items: list[Any], key: str, value: object) -> int:
    """Where the object with that `key` stands, or -1. Only string values identify anything."""
    if not isinstance(value, str):
        return -1
    for at, item in enumerate(items):
        if isinstance(item, dict) and item.get(key) == value:
            return at
    return -1


def replaced(items: list[Any], at: int, item: object) -> list[Any]:
    """A copy of `items` with another item at `at`."""
    copy = items.copy()
    copy[at] = item
    return copy


def upsert(state: Json, field: str, key: str, item: object) -> Json:
    """`item` in the list `state[field]`: in place of the entry with the same `key`, or at the end."""
    if not isinstance(item, dict) or not isinstance(item.get(key), str):
        return state
    items = listed(state.get(field))
    at = index_of(items, key, item[key])
    return {**state, field: [*items, item] if at < 0 else replaced(items, at, item)}


def drop(state: Json, field: str, key: str, value: object, *, keep_empty: bool = True) -> Json:
    """The list `state[field]` without the entry whose `key` is `value`.

    With `keep_empty=False` a list that runs empty takes its key along.
    """
    items = listed(state.get(field))
    at = index_of(items, key, value)
    if at < 0:
        return state
    rest = items[:at] + items[at + 1 :]
    return put(state, field, rest if rest or keep_empty else None)


def add_directory(state: Json, action: Json) -> Json:
    """Append `directory` to `workingDirectories` unless it is there."""
    directory, held = action.get("directory"), listed(state.get("workingDirectories"))
    if not isinstance(directory, str) or directory in held:
        return state
    return {**state, "workingDirectories": [*held, directory]}


def remove_directory(state: Json, action: Json) -> Json:
    """Take `directory` out of `workingDirectories`."""
    directory, held = action.get("directory"), listed(state.get("workingDirectories"))
    if not isinstance(directory, str) or directory not in held:
        return state
    return {**state, "workingDirectories": [each for each in held if each != directory]}


def change_config(state: Json, action: Json) -> Json:
    """Merge `config` into `config.values`, or put it in their place when `replace` is true."""
    given, config = action.get("config"), state.get("config")
    if not isinstance(given, dict) or not isinstance(config, dict):
        return state
    values = config.get("values")
    kept = values if isinstance(values, dict) and action.get("replace") is not True else {}
    return {**state, "config": {**config, "values": {**kept, **given}}}
