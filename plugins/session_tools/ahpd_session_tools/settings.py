"""Which sessions are offered the session tools. Implements the section of that name of the product's "Tools".

`sessionTools` is the switch, `sessionToolsProviders` narrows it. Both speak of sessions: a person at a door
has no provider, so neither says anything about a door.
"""

from __future__ import annotations

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
KEYS = (SESSION_TOOLS, SESSION_TOOLS_PROVIDERS)


def offered(offer: Offer) -> bool:
    """Whether this offer's session has the session tools, by the settings as they are now."""
    if offer.session is None:
        return True
    if not offer.settings.get(SESSION_TOOLS.name, SESSION_TOOLS.default):
        return False
    named = offer.settings.get(SESSION_TOOLS_PROVIDERS.name) or ()
    return not named or offer.provider in named
