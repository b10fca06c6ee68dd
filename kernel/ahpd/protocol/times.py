"""Instants as the protocol writes them: ISO 8601 in UTC, three fraction digits, `Z`.

Owns: reading and writing them. Refuses to know: the clock. Reducers must give the same answer on every
machine, so the time always comes in from outside.
"""

import re
from datetime import UTC, datetime, timedelta

# `datetime.fromisoformat` also takes week dates and dates alone. A JavaScript peer reads those as "no
# date", throws in its own reducer and stops following the channel, so they are refused here.
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def read_time(text: str) -> datetime | None:
    """The instant in UTC, or None if `text` is no date and time with an offset."""
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def write_time(moment: datetime) -> str:
    """`moment` in the protocol's spelling, cut (not rounded) to milliseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def time_after(start: str, milliseconds: float = 0) -> str | None:
    """`start` moved by `milliseconds`; None if `start` cannot be read or the sum leaves the calendar."""
    moment = read_time(start)
    if moment is None:
        return None
    try:
        return write_time(moment + timedelta(milliseconds=int(milliseconds)))
    except (ValueError, OverflowError):
        return None
