"""The key of this plugin: how many words an agent is given about artifacts."""

from __future__ import annotations

from ahpd import ConfigKey, Offer

COMPACT = ConfigKey(
    "artifactToolsCompactPrompts",
    {"type": "boolean"},
    False,
    description="Give agents the short instruction and description of the artifact tools.",
    applies="live",
    daemon=True,
    in_root=True,
)
KEYS = (COMPACT,)


def is_compact(offer: Offer) -> bool:
    return bool(offer.settings.get(COMPACT.name, COMPACT.default))
