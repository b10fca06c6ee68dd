"""Every bound of a connection, in bytes and seconds, with the number it has in production."""

import resource
from dataclasses import dataclass, replace

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may cost. Tests shrink these instead of waiting."""

    connections: int = 2_000
    """Open at once; beyond it those that are neither WebSockets nor being answered make room, or it is 503."""
    http_requests: int = 1_000
    """Answered at once; the other places are left to WebSockets."""
    head_bytes: int = 16 * _KIB
    head_timeout: float = 10.0
    """From accept to the blank line after the first head."""

    max_message: int = 16 * _MIB
    """One WebSocket message, however many fragments; beyond it: close 1009."""
    max_outbox: int = 4 * _MIB
    """Bytes waiting for one client; beyond it: cut with 1013."""
    write_deadline: float = 30.0
    """Longest time without the client taking a byte while some wait."""
    drain: float = 30.0
    """What a client that was cut gets to read the little that is left."""
    ping_every: float = 20.0
    """A client silent for this long is sent a ping."""
    dead_after: float = 60.0
    """Silence after the first unanswered ping that ends the connection."""
    close_wait: float = 2.0
    """From our close frame to the client's end of the connection."""

    max_body: int = 16 * _MIB
    """One HTTP request body; beyond it: 413."""
    body_timeout: float = 60.0
    """Longest gap between two pieces of one body."""
    http_idle: float = 60.0
    """Between two requests on one connection."""
    http_ready: float = 30.0
    """How long a request waits for the HTTP side to be imported and started."""
    http_grace: float = 2.0
    """What requests in flight get when the daemon stops."""

    def within(self, descriptors: int) -> "Limits":
        """These, for a process that may have that many descriptors: agents, stores and children need theirs."""
        connections = min(self.connections, max(descriptors - _KEPT_BACK, descriptors // 2))
        return replace(self, connections=connections, http_requests=min(self.http_requests, connections // 2))


_KEPT_BACK = 1024
_ENOUGH = 1 << 16


def raise_descriptor_limit() -> int:
    """Take as many descriptors as are allowed and of use; how many there are now.

    The usual soft limit of 1,024 is there for programs that call select(), and anybody can open that many
    connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_ENOUGH if each == resource.RLIM_INFINITY else each for each in (soft, hard))
    wanted = max(soft, min(hard, _ENOUGH))
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        except (OSError, ValueError):
            return soft  # macOS allows less than it says
    return wanted
