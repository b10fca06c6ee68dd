"""The pure reducer for a session channel.

Owns: how a `session/*` action changes `SessionState`. Refuses to know: validation, side effects
and what the catalogue on the root channel shows.
"""

from collections.abc import Callable
from types import MappingProxyType

from ahpd.protocol.edits import (
    ACTIVITY_BITS,
    IS_ARCHIVED,
    IS_READ,
    Json,
    add_directory,
    change_config,
    drop,
    flag_setter,
    index_of,
    listed,
    put,
    reduce_with,
    remove_directory,
    replaced,
    setter,
    status_of,
    upsert,
)

_INPUT_NEEDED = 24
_WAITING_BIT = 16

# -- lifecycle -------------------------------------------------------------------------------------


def _ready(state: Json, action: Json) -> Json:
    # A turn may run while the session is still being created, so the status is none of our business here.
    return put(state, "lifecycle", "ready")


def _creation_failed(state: Json, action: Json) -> Json:
    error = action.get("error")
    return {**state, "lifecycle": "failed", "creationError": error} if isinstance(error, dict) else state


# -- the catalogue of chats ------------------------------------------------------------------------


def _chat_added(state: Json, action: Json) -> Json:
    return upsert(state, "chats", "resource", action.get("summary"))


def _chat_removed(state: Json, action: Json) -> Json:
    chat = action.get("chat")
    after = drop(state, "chats", "resource", chat)
    was_default = after is not state and state.get("defaultChat") == chat
    return put(after, "defaultChat", None) if was_default else after


def _chat_updated(state: Json, action: Json) -> Json:
    chats, changes = listed(state.get("chats")), action.get("changes")
    at = index_of(chats, "resource", action.get("chat"))
    if at < 0 or not isinstance(changes, dict):
        return state
    chat: Json = chats[at]
    for key, value in changes.items():
        if key != "resource":
            chat = put(chat, key, value)
    return state if chat is chats[at] else {**state, "chats": replaced(chats, at, chat)}


def _chats_reordered(state: Json, action: Json) -> Json:
    chats, order = listed(state.get("chats")), listed(action.get("chats"))
    places = [index_of(chats, "resource", each) for each in order]
    # Anything but each chat exactly once is ignored: half an order would lose or double a chat.
    if sorted(places) != list(range(len(chats))) or places == sorted(places):
        return state
    return {**state, "chats": [chats[at] for at in places]}


# -- active clients and directories ----------------------------------------------------------------


def _active_client_set(state: Json, action: Json) -> Json:
    return upsert(state, "activeClients", "clientId", action.get("activeClient"))


def _active_client_removed(state: Json, action: Json) -> Json:
    return drop(state, "activeClients", "clientId", action.get("clientId"))


def _directory_replaced(state: Json, action: Json) -> Json:
    held = listed(state.get("workingDirectories"))
    old, new = action.get("directory"), action.get("replacement")
    if not isinstance(old, str) or not isinstance(new, str) or old == new or old not in held:
        return state
    at = held.index(old)
    before, after = held[:at], [each for each in held[at + 1 :] if each != new]
    return {**state, "workingDirectories": before + ([] if new in before else [new]) + after}


# -- what the session waits for --------------------------------------------------------------------


def _raises_input_needed(entry: object) -> bool:
    # A tool that a client runs by itself waits for a program, not for a person.
    return isinstance(entry, dict) and entry.get("kind") != "toolClientExecution"


def _with_waiting_status(state: Json) -> Json:
    status = status_of(state)
    if any(_raises_input_needed(entry) for entry in listed(state.get("inputNeeded"))):
        return put(state, "status", status & ~ACTIVITY_BITS | _INPUT_NEEDED)
    return put(state, "status", status & ~_WAITING_BIT)


def _input_needed_set(state: Json, action: Json) -> Json:
    after = upsert(state, "inputNeeded", "id", action.get("request"))
    return state if after is state else _with_waiting_status(after)


def _input_needed_removed(state: Json, action: Json) -> Json:
    after = drop(state, "inputNeeded", "id", action.get("id"), keep_empty=False)
    return state if after is state else _with_waiting_status(after)


# -- customizations --------------------------------------------------------------------------------


def _edit_customization(state: Json, wanted: object, change: Callable[[Json], Json]) -> Json:
    """Apply `change` to the customization with that id: top level first, then children."""
    held = listed(state.get("customizations"))
    at = index_of(held, "id", wanted)
    if at >= 0:
        item = change(held[at])
        return state if item is held[at] else {**state, "customizations": replaced(held, at, item)}
    for place, container in enumerate(held):
        children = listed(container.get("children")) if isinstance(container, dict) else []
        at = index_of(children, "id", wanted)
        if at >= 0:
            child = change(children[at])
            if child is children[at]:
                return state
            parent = {**container, "children": replaced(children, at, child)}
            return {**state, "customizations": replaced(held, place, parent)}
    return state


def _customization_toggled(state: Json, action: Json) -> Json:
    decisions = action.get("enablement")
    if not isinstance(decisions, list):
        return state

    def change(item: Json) -> Json:
        if item.get("type") in ("plugin", "mcpServer"):
            return put(item, "enablement", decisions or None)
        first = decisions[0] if decisions and isinstance(decisions[0], dict) else {}
        enabled = first.get("enabled")
        return put(item, "enabled", enabled if isinstance(enabled, bool) else True)

    return _edit_customization(state, action.get("id"), change)


def _customization_updated(state: Json, action: Json) -> Json:
    return upsert(state, "customizations", "id", action.get("customization"))


def _customization_removed(state: Json, action: Json) -> Json:
    wanted = action.get("id")
    after = drop(state, "customizations", "id", wanted)
    if after is not state:
        return after
    held = listed(state.get("customizations"))
    for place, container in enumerate(held):
        rest = drop(container, "children", "id", wanted) if isinstance(container, dict) else container
        if rest is not container:
            return {**state, "customizations": replaced(held, place, rest)}
    return state


# -- MCP servers -----------------------------------------------------------------------------------


def _set_server(state: Json, wanted: object, server_state: object, channel: object) -> Json:
    def change(item: Json) -> Json:
        if item.get("type") != "mcpServer" or not isinstance(server_state, dict):
            return item
        return put({**item, "state": server_state}, "channel", channel if isinstance(channel, str) else None)

    return _edit_customization(state, wanted, change)


def _server_state_changed(state: Json, action: Json) -> Json:
    return _set_server(state, action.get("id"), action.get("state"), action.get("channel"))


def _server_start_requested(state: Json, action: Json) -> Json:
    return _set_server(state, action.get("id"), {"kind": "starting"}, None)


def _server_stop_requested(state: Json, action: Json) -> Json:
    return _set_server(state, action.get("id"), {"kind": "stopped"}, None)


def _server_background_requested(state: Json, action: Json) -> Json:
    def change(item: Json) -> Json:
        server = item.get("state")
        if item.get("type") != "mcpServer" or not isinstance(server, dict):
            return item
        blocks = server.get("kind") == "starting" and server.get("blocking") is True
        return {**item, "state": {**server, "blocking": False}} if blocks else item

    return _edit_customization(state, action.get("id"), change)


_HANDLERS = MappingProxyType(
    {
        "session/ready": _ready,
        "session/creationFailed": _creation_failed,
        "session/chatAdded": _chat_added,
        "session/chatRemoved": _chat_removed,
        "session/chatUpdated": _chat_updated,
        "session/chatsReordered": _chats_reordered,
        "session/defaultChatChanged": setter("defaultChat", str, clears=True),
        "session/titleChanged": setter("title", str),
        "session/isReadChanged": flag_setter("isRead", IS_READ),
        "session/isArchivedChanged": flag_setter("isArchived", IS_ARCHIVED),
        "session/activityChanged": setter("activity", str, clears=True),
        "session/changesetsChanged": setter("changesets", list, clears=True),
        "session/serverToolsChanged": setter("tools", list, to="serverTools"),
        "session/activeClientSet": _active_client_set,
        "session/activeClientRemoved": _active_client_removed,
        "session/workingDirectorySet": add_directory,
        "session/workingDirectoryRemoved": remove_directory,
        "session/workingDirectoryReplaced": _directory_replaced,
        "session/inputNeededSet": _input_needed_set,
        "session/inputNeededRemoved": _input_needed_removed,
        "session/customizationsChanged": setter("customizations", list),
        "session/customizationToggled": _customization_toggled,
        "session/customizationUpdated": _customization_updated,
        "session/customizationRemoved": _customization_removed,
        "session/mcpServerStateChanged": _server_state_changed,
        "session/mcpServerStartRequested": _server_start_requested,
        "session/mcpServerStopRequested": _server_stop_requested,
        "session/mcpServerBackgroundRequested": _server_background_requested,
        "session/configChanged": change_config,
        "session/metaChanged": setter("_meta", dict, clears=True),
    }
)


def reduce_session(state: Json, action: Json) -> Json:
    """The session state after `action`: a new object, or `state` itself if nothing changed. Never raises."""
    return reduce_with(_HANDLERS, state, action)
