"""The pure reducer for `ahp-root://`.

Owns: how a `root/*` action changes `RootState`. Refuses to know: who acts
and who sees the result.
"""

from types import MappingProxyType

from ahpd.protocol.edits import Json, change_config, reduce_with, setter

_HANDLERS = MappingProxyType(
    {
        "root/agentsChanged": setter("agents", list),
        "root/activeSessionsChanged": setter("activeSessions", int),
        "root/terminalsChanged": setter("terminals", list),
        "root/configChanged": change_config,
    }
)


def reduce_root(state: Json, action: Json) -> Json:
    """The root state after `action`: a new object, or `state` itself if nothing changed. Never raises."""
    return reduce_with(_HANDLERS, state, action)
