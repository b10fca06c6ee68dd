"""The keys of this plugin, and which sessions are offered the session tools.

Implements "Which sessions are offered the session tools" of the product's "Tools": `sessionTools` is the switch,
`sessionToolsProviders` narrows it. Both speak of sessions: a person at a door has no provider, so neither says
anything about a door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahpd import ConfigKey, Offer

SESSION_TOOLS = ConfigKey(
    "sessionTools",
    {"type": "boolean"},
    True,
    description="Offer the session tools to the sessions of this host.",
    applies="live",
    daemon=True,
    flag=True,
    in_root=True,
)
SESSION_TOOLS_PROVIDERS = ConfigKey(
    "sessionToolsProviders",
    {"type": "array", "items": {"type": "string"}},
    [],
    description="Offer the session tools to the sessions of these providers alone. Empty: to every provider.",
    applies="live",
    daemon=True,
    flag=True,
    in_root=True,
)
CHAT_MOVES = ConfigKey(
    "chatMoves",
    {"type": "object", "properties": {"enabled": {"type": "boolean"}}, "additionalProperties": False},
    {"enabled": False},
    description="With enabled, chats may be moved between sessions, reordered and promoted.",
    applies="live",
    daemon=True,
)
WORKTREES_ROOT = ConfigKey(
    "worktreesRoot",
    {"type": "string", "minLength": 1, "format": "path"},
    description="Folder for the git worktrees of sessions; without it, <repository>.worktrees beside each one.",
    applies="live",
    daemon=True,
    flag=True,
)
KEYS = (SESSION_TOOLS, SESSION_TOOLS_PROVIDERS, CHAT_MOVES, WORKTREES_ROOT)


def may_move_chats(settings: Mapping[str, Any]) -> bool:
    return bool((settings.get(CHAT_MOVES.name) or {}).get("enabled", False))


def worktrees_root(settings: Mapping[str, Any]) -> str | None:
    root = settings.get(WORKTREES_ROOT.name)
    return str(root) if root else None


def offered(offer: Offer) -> bool:
    """Whether this offer's session has the session tools, by the settings as they are now."""
    if offer.session is None:
        return True
    if not offer.settings.get(SESSION_TOOLS.name, SESSION_TOOLS.default):
        return False
    named = offer.settings.get(SESSION_TOOLS_PROVIDERS.name) or ()
    return not named or offer.provider in named
