"""One exception family. Each class knows its JSON-RPC code; each instance carries a sentence for people.

Knows nothing of who raised it or how it reaches a client.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any


class AhpdError(Exception):
    """Base of everything ahpd raises on purpose. `str(error)` is a sentence somebody can act on."""

    code = -32603

    def __init__(self, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.data = data


class InvalidRequest(AhpdError):
    code = -32600


class MethodNotFound(AhpdError):
    code = -32601


class InvalidParams(AhpdError):
    code = -32602


class SessionNotFound(AhpdError):
    code = -32001


class ProviderNotFound(AhpdError):
    code = -32002


class SessionExists(AhpdError):
    code = -32003


class TurnInProgress(AhpdError):
    code = -32004


class UnsupportedVersion(AhpdError):
    code = -32005


class AuthRequired(AhpdError):
    code = -32007


class NotFound(AhpdError):
    code = -32008


class PermissionDenied(AhpdError):
    code = -32009


class AlreadyExists(AhpdError):
    code = -32010


class Conflict(AhpdError):
    code = -32011


class Rejected(AhpdError):
    """A client's action that may not be applied; the sentence becomes its `rejectionReason`."""


class ToolError(AhpdError):
    """A tool call that cannot be done. The sentence is what the model reads."""


class AgentError(AhpdError):
    """A turn or a session its agent cannot do. `kind` becomes `ErrorInfo.errorType`."""

    def __init__(self, sentence: str, *, kind: str = "agentFailed", resumable: bool = False) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.resumable = resumable


class ConfigError(AhpdError):
    """A wrong configuration or command line. Ends the program with exit code 2."""


class StartError(AhpdError):
    """A daemon that must not, or cannot, start. Ends the program with exit code 1."""


class PluginError(AhpdError):
    """A plugin that broke a rule of its hooks. Costs that plugin, nobody else."""


# What plugins raise


def is_contained(error: BaseException) -> bool:
    """Whether a fence around a plugin's code may stop this: everything but cancellation, also in groups.

    `except Exception` is not enough of a fence: `sys.exit`, another loop's cancellation or a class of the plugin's
    own would end everything around it. A person's Ctrl-C is not a plugin's, but it is raised in the main thread
    only, and not even there while a host runs, which listens for the signal.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_contained, error.exceptions))
    trio = sys.modules.get("trio")  # importing it here would cost every command that starts no loop
    if isinstance(error, KeyboardInterrupt):
        elsewhere = threading.current_thread() is not threading.main_thread()
        return elsewhere or (trio is not None and bool(trio.lowlevel.in_trio_run()))
    return trio is None or not isinstance(error, trio.Cancelled)
