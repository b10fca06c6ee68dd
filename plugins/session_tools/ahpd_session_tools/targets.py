"""Finding the session, and the chat of it, that a call names.

A session is known when it is in the catalogue the person behind the call may read, by its URI or an open link.
"""

from __future__ import annotations

from dataclasses import dataclass

from ahpd import ToolCall

from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.links import chat_id, link, parse
from ahpd_session_tools.rows import Summary


@dataclass(frozen=True, slots=True)
class Target:
    """A known session. `chat_id` is what the link named, `None` for the default chat."""

    summary: Summary
    chat_id: str | None

    @property
    def session(self) -> str:
        return str(self.summary["resource"])

    @property
    def open_link(self) -> str:
        """A link that names what the input named."""
        return link(self.session, self.chat_id)

    def chat(self, call: ToolCall) -> str | None:
        """The chat's URI; `None` when this host runs no such chat."""
        view = call.host.session(self.session)
        if view is None or not view.live:
            return None
        if self.chat_id is None:
            return view.default_chat
        return next((chat for chat in view.chats if chat_id(chat) == self.chat_id), None)


def find(call: ToolCall, named: str) -> Target | None:
    """The known session that a URI or an open link names."""
    found = parse(named)
    for summary in call.host.sessions(call.principal):
        if summary["resource"] == named or (found is not None and found.names(summary["resource"])):
            return Target(summary, found.chat if found else None)
    return None


def required(call: ToolCall, inputs: Inputs, name: str = "session") -> Target:
    """The session the input `name` names, or the refusal of every tool that needs one."""
    target = find(call, inputs.text(name))
    if target is None:
        raise inputs.refusal(f"{name} must match the URI of a known session (see list_sessions).")
    return target
