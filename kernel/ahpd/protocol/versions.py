"""Which protocol versions this host speaks, and how one is agreed with a client.

Owns: the list and the choice. Refuses to know: what differs between versions (`actions.py` says since when an
action exists; rewriting for older peers is the wire's).
"""

import re
from typing import Final

SUPPORTED: Final = ("1.0.0", "0.9.0")
"""What the host itself offers when it is the one that asks."""

SUPPORTED_RANGES: Final = ["^1.0.0", "^0.9.0"]
"""For the `supportedVersions` of a refusal."""

OLD_RANGES: Final = ["^0.8.0", "^0.7.0"]
"""What is taken as well by a host that was told to serve older clients."""

# Patch releases change no wire shape, so any 1.0.x and 0.9.x is taken. A later 1.x is within the caret range
# above as clients read it, but its baseline may include what this host has not got: it is not taken.
_LINES: Final = frozenset({(1, 0), (0, 9)})
_OLD_LINES: Final = frozenset({(0, 8), (0, 7)})

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")


def read_version(text: object) -> tuple[int, int, int]:
    """`MAJOR.MINOR.PATCH` as numbers; ValueError, naming the entry, for anything else."""
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{str(text)[:40]!r} is not a protocol version like '1.0.0'")
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch)


def agree(offered: list[str], compat: bool = False) -> str | None:
    """The highest version in `offered` that this host takes, exactly as offered; None if there is none.

    `compat` also takes 0.8.x and 0.7.x. A malformed entry is a ValueError even beside good ones.
    """
    lines = _LINES | _OLD_LINES if compat else _LINES
    known = [(read_version(text), text) for text in offered]
    return max(((version, text) for version, text in known if version[:2] in lines), default=(None, None))[1]
