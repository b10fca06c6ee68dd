"""The gate: every command and every client action has a row here, with the grant it needs, or is refused.

Decoding and validation come from `protocol.shapes`; this table only says who may. A plugin's own commands and
channels bring their grants with them. A name without a row fails a test, not a user.
"""

from __future__ import annotations

from collections.abc import Mapping

METHODS: Mapping[str, str | None] = {
    "initialize": None,
    "ping": None,
    "reconnect": None,
    "subscribe": None,  # by channel: see CHANNELS
    "unsubscribe": None,
    "dispatchAction": None,  # by action: see ACTIONS
    "listSessions": "session:list",
    "createSession": "session:create",
    "disposeSession": "session:dispose",
    "createChat": "chat:create",
    "disposeChat": "chat:dispose",
    "moveChat": "chat:move",
    "fetchTurns": "chat:turns",
    "resolveSessionConfig": "session:list",
    "sessionConfigCompletions": "session:list",
    "completions": "chat:send",
}
"""Commands the kernel serves, each with the grant it asks; `None` where the check is made elsewhere or none is."""

CHANNELS: Mapping[str, str | None] = {"root": None, "session": "session:state", "chat": "chat:turns"}
"""What watching a channel of a kind needs."""

ACTIONS: Mapping[str, str] = {
    "root/configChanged": "config:change",
    "session/titleChanged": "session:rename",
    "session/isReadChanged": "session:mark",
    "session/isArchivedChanged": "session:mark",
    "session/configChanged": "session:configure",
    "session/activeClientSet": "session:attach",
    "session/activeClientRemoved": "session:attach",
    "session/workingDirectorySet": "session:folders",
    "session/workingDirectoryRemoved": "session:folders",
    "session/workingDirectoryReplaced": "session:folders",
    "session/customizationToggled": "session:configure",
    "session/mcpServerStartRequested": "session:configure",
    "session/mcpServerStopRequested": "session:configure",
    "session/mcpServerBackgroundRequested": "session:configure",
    "chat/turnStarted": "chat:send",
    "chat/turnResume": "chat:send",
    "chat/pendingMessageSet": "chat:send",
    "chat/turnCancelled": "chat:cancel",
    "chat/pendingMessageRemoved": "chat:cancel",
    "chat/queuedMessagesReordered": "chat:cancel",
    "chat/toolCallConfirmed": "chat:answer",
    "chat/toolCallResultConfirmed": "chat:answer",
    "chat/inputAnswerChanged": "chat:answer",
    "chat/inputCompleted": "chat:answer",
    "chat/toolCallComplete": "chat:tool",
    "chat/toolCallContentChanged": "chat:tool",
    "chat/draftChanged": "chat:draft",
    "chat/truncated": "chat:truncate",
    "chat/workingDirectorySet": "chat:folders",
    "chat/workingDirectoryRemoved": "chat:folders",
    "chat/isReadChanged": "chat:mark",
    "chat/isArchivedChanged": "chat:mark",
}
"""Actions a client may dispatch, each with the grant it asks."""
