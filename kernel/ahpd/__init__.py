"""ahpd: a sessions server for coding agents. These names are the whole contract for plugin authors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from ahpd.control import ask_daemon
from ahpd.errors import (
    AgentError,
    AhpdError,
    ConfigError,
    Conflict,
    InvalidParams,
    NotFound,
    PermissionDenied,
    SessionNotFound,
    StartError,
    ToolError,
    TurnInProgress,
)
from ahpd.hookspecs import hookimpl
from ahpd.log import Log
from ahpd.ports import (
    Append,
    ChildProcess,
    ConfigKey,
    ControlVerb,
    CutTurns,
    DropChat,
    DropSession,
    Limit,
    Method,
    MethodCall,
    Opened,
    PluginConfig,
    PutChat,
    PutRecord,
    PutSession,
    PutSummary,
    Reducer,
    SessionRow,
    SessionStore,
    Spawner,
    StoredChat,
    StoredSession,
    StoreOp,
)
from ahpd.tools import WITHHELD, Effects, Offer, OfferedTool, Tool, ToolCall, ToolResult, Wording
from ahpd.views import HostApi, Lineage, Sender, Sent, SessionView

if TYPE_CHECKING:
    from ahpd.host import Host

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentError",
    "AgentSession",
    "AhpdError",
    "Answer",
    "Append",
    "BoundTool",
    "ChildProcess",
    "ConfigError",
    "ConfigKey",
    "Confirmation",
    "Conflict",
    "ControlVerb",
    "CutTurns",
    "Decision",
    "DropChat",
    "DropSession",
    "Effects",
    "Host",
    "HostApi",
    "InvalidParams",
    "Limit",
    "Lineage",
    "Log",
    "Method",
    "MethodCall",
    "Model",
    "NotFound",
    "Offer",
    "OfferedTool",
    "Opened",
    "PastSession",
    "PermissionDenied",
    "PluginConfig",
    "Principal",
    "PutChat",
    "PutRecord",
    "PutSession",
    "PutSummary",
    "Reducer",
    "Sender",
    "Sent",
    "SessionNotFound",
    "SessionRow",
    "SessionStore",
    "SessionView",
    "Spawner",
    "Start",
    "StartError",
    "StoreOp",
    "StoredChat",
    "StoredSession",
    "Subject",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "ToolsServer",
    "Turn",
    "TurnInProgress",
    "WITHHELD",
    "Wording",
    "ask_daemon",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    """`ahpd.Host`, for a program that builds its own host: late, since plugins do not need all it imports."""
    if name == "Host":
        from ahpd.host import Host

        return Host
    raise AttributeError(f"module 'ahpd' has no attribute {name!r}")
