"""What peers of 0.8 and 0.7 are sent instead, and how what they send is read: pure functions of plain JSON.

Owns: the differences between 0.9 and the two lines before it, for the channels of `actions.py`. Refuses to know:
connections, and who speaks what. Nothing is changed in place; what does not differ is handed back as it came.
A field or an open value that only later versions know may stay, because an older peer has to ignore it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ahpd.protocol.actions import ACTIONS
from ahpd.protocol.versions import read_version

Json: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Any], Any]

_SAME: Final = "0.9.0"
"""The oldest version that is sent what is held."""
_SCOPED: Final = (0, 8)
"""The first line whose customizations carry decisions per scope."""


class Older:
    """The words of one older line, `(0, 8)` or `(0, 7)`. Compared by identity: see `older`."""

    def __init__(self, line: tuple[int, int]) -> None:
        self.line = line
        self._version = f"{line[0]}.{line[1]}.0"
        self._toggles = line < _SCOPED

    # -- out --------------------------------------------------------------------------------------------

    def notice(self, method: str, params: Json) -> Json | None:
        """The params of a notification, or None when such a peer is not sent it."""
        return self.envelope(params) if method == "action" else params

    def envelope(self, envelope: Json) -> Json | None:
        """An envelope, or None for an action that such a peer does not know. A refusal is always sent: its
        peer knows the action well enough to have asked for it."""
        action = envelope["action"]
        rule = ACTIONS.get(action.get("type"))
        if rule is not None and not rule.known_to(self._version) and "rejectionReason" not in envelope:
            return None
        return {**envelope, "action": self.action(action)}

    def action(self, action: Json) -> Json:
        kind = action.get("type")
        if kind == "chat/error":
            return _failure(action)
        if kind == "chat/turnsLoaded":
            return _within(action, "turns", _turns)
        if self._toggles and kind in _OF_CUSTOMIZATIONS:
            return self._old_toggle(action, kind)
        return action

    def state(self, kind: str, state: Json) -> Json:
        """A snapshot's state of a channel of this kind."""
        if kind == "chat":
            return _within(_within(state, "turns", _turns), "activeTurn", _without_errors)
        if kind == "session":
            state = _within(state, "lifecycle", lambda value: "creationFailed" if value == "failed" else value)
            return _within(state, "customizations", _customizations) if self._toggles else state
        if kind == "root" and self._toggles:
            return _within(state, "agents", _agents)
        return state

    def _old_toggle(self, action: Json, kind: str) -> Json:
        if kind == "session/customizationToggled":
            return _decided(action) if "enablement" in action else action
        return _within(action, *_OF_CUSTOMIZATIONS[kind])

    # -- in ---------------------------------------------------------------------------------------------

    def held(self, action: Json) -> Json:
        """What such a peer dispatched, as it is held."""
        enabled = action.get("enabled")
        if action.get("type") == "session/customizationToggled" and isinstance(enabled, bool):
            kept = {key: value for key, value in action.items() if key != "enabled"}
            return {"enablement": [{"kind": "session", "enabled": enabled}], **kept}
        return action


_OLDER: Final = {line: Older(line) for line in ((0, 8), (0, 7))}


def older(version: str) -> Older | None:
    """The words for a peer that agreed on `version`; None when it is sent what is held."""
    numbers = read_version(version)
    return None if numbers >= read_version(_SAME) else _OLDER.get(numbers[:2], _OLDER[(0, 7)])


# -- parts -----------------------------------------------------------------------------------------


def _within(holder: Json, key: str, change: Change) -> Json:
    """`holder` with one member changed; itself where it has none, or the member stays the same."""
    before = holder.get(key)
    after = before if before is None else change(before)
    return holder if after is before else {**holder, key: after}


def _is_error(part: Any) -> bool:
    return isinstance(part, dict) and part.get("kind") == "error"


def _failure(action: Json) -> Json:
    """`chat/error` with the error itself in place of the part that holds it."""
    part = action.get("part")
    if not isinstance(part, dict):
        return action
    kept = {key: value for key, value in action.items() if key != "part"}
    return {**kept, "error": part.get("error")}


def _without_errors(turn: Json) -> Json:
    """A turn whose parts are of kinds an older peer can show."""
    parts = turn.get("responseParts")
    if not isinstance(parts, list) or not any(_is_error(part) for part in parts):
        return turn
    return {**turn, "responseParts": [part for part in parts if not _is_error(part)]}


def _turn(turn: Any) -> Any:
    """A completed turn: the error it ended with stands beside its parts, not among them."""
    if not isinstance(turn, dict):
        return turn
    bare = _without_errors(turn)
    if bare is turn or turn.get("state") != "error":
        return bare
    last = [part for part in turn["responseParts"] if _is_error(part)][-1]
    return {**bare, "error": last.get("error")}


def _turns(turns: Any) -> Any:
    if not isinstance(turns, list):
        return turns
    after = [_turn(turn) for turn in turns]
    return after if any(new is not old for new, old in zip(after, turns, strict=True)) else turns


def _decided(holder: Json) -> Json:
    """One switch in place of decisions per scope, of which the first counts; nothing decided means on."""
    decisions = holder.get("enablement")
    first = decisions[0] if isinstance(decisions, list) and decisions else {}
    enabled = first.get("enabled") if isinstance(first, dict) else None
    kept = {key: value for key, value in holder.items() if key != "enablement"}
    return {**kept, "enabled": enabled is not False}


def _customization(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    scoped = "enablement" in entry or ("enabled" not in entry and entry.get("type") in ("plugin", "mcpServer"))
    return _within(_decided(entry) if scoped else entry, "children", _customizations)


def _customizations(entries: Any) -> Any:
    return [_customization(entry) for entry in entries] if isinstance(entries, list) else entries


def _agents(agents: Any) -> Any:
    changed = [_within(agent, "customizations", _customizations) for agent in agents]
    return changed if any(new is not old for new, old in zip(changed, agents, strict=True)) else agents


_OF_CUSTOMIZATIONS: Final[dict[str, tuple[str, Change]]] = {
    "session/customizationToggled": ("enablement", lambda value: value),
    "session/customizationsChanged": ("customizations", _customizations),
    "session/customizationUpdated": ("customization", _customization),
    "root/agentsChanged": ("agents", _agents),
}
