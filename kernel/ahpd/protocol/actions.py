"""Every action type as data: the kind of channel it belongs to, whether a client may dispatch it, since when.

Owns: the tables of the root, session and chat families. Refuses to know: payloads (`shapes.py`) and effects
(the reducers). A plugin with its own channel kind builds a table with `family` and adds it with `combine`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ahpd.protocol.versions import read_version


class ActionRule(NamedTuple):
    """What the wire has to know of an action type; `since` is the first version that knows it."""

    kind: str
    client_may: bool
    since: tuple[int, int, int]

    def known_to(self, version: str) -> bool:
        """Whether a peer that negotiated `version` knows this action."""
        return read_version(version) >= self.since


def family(kind: str, *, host: Mapping[str, str], client: Mapping[str, str]) -> dict[str, ActionRule]:
    """The table of one channel kind, from `{since: "name name ..."}` per side.

    Names come without their `kind/` prefix. What is listed under `client` the host may dispatch as well.
    """
    rows: dict[str, ActionRule] = {}
    for client_may, versions in ((False, host), (True, client)):
        for since, names in versions.items():
            rule = ActionRule(kind, client_may, read_version(since))
            rows = combine(rows, {f"{kind}/{name}": rule for name in names.split()})
    return rows


def combine(*tables: Mapping[str, ActionRule]) -> dict[str, ActionRule]:
    """All rows of all tables; ValueError if two tables claim the same action."""
    rows: dict[str, ActionRule] = {}
    for table in tables:
        if clash := sorted(rows.keys() & table.keys()):
            raise ValueError(f"action {clash[0]} is declared twice")
        rows.update(table)
    return rows


def client_actions(table: Mapping[str, ActionRule]) -> Iterable[str]:
    """The types in `table` that a client may dispatch."""
    return (name for name, rule in table.items() if rule.client_may)


ROOT: Final = family(
    "root",
    host={"0.1.0": "agentsChanged activeSessionsChanged terminalsChanged"},
    client={"0.1.0": "configChanged"},
)

SESSION: Final = family(
    "session",
    host={
        "0.1.0": "ready creationFailed activityChanged serverToolsChanged customizationsChanged "
        "customizationUpdated metaChanged",
        "0.2.0": "changesetsChanged customizationRemoved",
        "0.3.0": "mcpServerStateChanged",
        "0.4.0": "chatAdded chatRemoved chatUpdated defaultChatChanged",
        "0.5.1": "inputNeededSet inputNeededRemoved",
        "0.9.0": "chatsReordered",
    },
    client={
        "0.1.0": "titleChanged isReadChanged isArchivedChanged customizationToggled configChanged",
        "0.5.0": "activeClientSet activeClientRemoved",
        "0.5.2": "mcpServerStartRequested mcpServerStopRequested",
        "0.7.0": "workingDirectorySet workingDirectoryRemoved",
        "0.8.0": "workingDirectoryReplaced",
        "0.9.0": "mcpServerBackgroundRequested",
    },
)

CHAT: Final = family(
    "chat",
    host={
        "0.4.0": "responsePart delta reasoning usage turnComplete error toolCallStart toolCallDelta "
        "toolCallReady inputRequested",
        "0.5.0": "activityChanged",
        "0.5.1": "turnsLoaded",
        "0.6.0": "toolCallAuthRequired toolCallAuthResolved",
        "0.9.0": "movableChanged changesetsChanged backgroundWorkSet backgroundWorkRemoved",
    },
    client={
        "0.4.0": "turnStarted turnCancelled toolCallConfirmed toolCallContentChanged toolCallComplete "
        "toolCallResultConfirmed pendingMessageSet pendingMessageRemoved queuedMessagesReordered "
        "inputAnswerChanged inputCompleted truncated",
        "0.5.0": "draftChanged",
        "0.7.0": "workingDirectorySet workingDirectoryRemoved",
        "0.9.0": "turnResume isReadChanged isArchivedChanged",
    },
)

ACTIONS: Final = combine(ROOT, SESSION, CHAT)
"""The kernel's own table: what clients of every host of this kind may see."""
