"""ahpd: a sessions server for coding agents. These names are the whole contract for plugin authors."""

from __future__ import annotations

from ahpd.access import Principal, Subject
from ahpd.agents import (
    Agent,
    AgentSession,
    Answer,
    BoundTool,
    Confirmation,
    Decision,
    Model,
    PastSession,
    Start,
    Toolbox,
    ToolsServer,
    Turn,
)
from ahpd.errors import AgentError, AhpdError, ConfigError, Conflict, NotFound, PermissionDenied, ToolError
from ahpd.hookspecs import hookimpl
from ahpd.ports import ChildProcess, ConfigKey, Limit, PluginConfig, Spawner
from ahpd.tools import WITHHELD, Effects, Offer, OfferedTool, Tool, ToolCall, ToolResult, Wording
from ahpd.views import HostApi, Lineage, Sender, Sent, SessionView

__version__ = "0.1.0"

__all__ = [
    "WITHHELD",
    "Agent",
    "AgentError",
    "AgentSession",
    "AhpdError",
    "Answer",
    "BoundTool",
    "ChildProcess",
    "ConfigError",
    "ConfigKey",
    "Confirmation",
    "Conflict",
    "Decision",
    "Effects",
    "HostApi",
    "Limit",
    "Lineage",
    "Model",
    "NotFound",
    "Offer",
    "OfferedTool",
    "PastSession",
    "PermissionDenied",
    "PluginConfig",
    "Principal",
    "Sender",
    "Sent",
    "SessionView",
    "Spawner",
    "Start",
    "Subject",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "ToolsServer",
    "Turn",
    "Wording",
    "hookimpl",
]
