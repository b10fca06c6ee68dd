"""Which rows `list_sessions` keeps, and in which order. Pure: the input read once, then one test per filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

from ahpd_session_tools import places
from ahpd_session_tools.inputs import Inputs, parse_time
from ahpd_session_tools.rows import (
    STATUS_WORDS,
    Summary,
    has_changes,
    is_unread,
    pull_requests,
    status_words,
)

Test = Callable[[Summary], bool]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def tests(inputs: Inputs) -> list[Test]:
    """What a row must pass, every one of them. Raises the refusal of the first input that is wrong."""
    found = [_status_test(inputs)]
    for name, fits in _BY_TEXT.items():
        wanted = inputs.optional_text(name)
        if wanted is not None:
            found.append(partial(fits, wanted))
    found += [test for name, test in _BY_FLAG.items() if inputs.flag(name)]
    return found + _time_tests(inputs, "created") + _time_tests(inputs, "modified")


def newest_first(summaries: Iterable[Summary]) -> list[Summary]:
    """By their last activity, and by name where that is the same."""
    by_name = sorted(summaries, key=lambda one: str(one["resource"]))
    return sorted(by_name, key=lambda one: _time(one, "modifiedAt") or _LONG_AGO, reverse=True)


def _runs_agent(agent: str, one: Summary) -> bool:
    return bool(one.get("provider") == agent)


def _is_titled(part: str, one: Summary) -> bool:
    return part.lower() in str(one.get("title", "")).lower()


def _has_pull_request(one: Summary) -> bool:
    return bool(pull_requests(one))


_BY_TEXT: Mapping[str, Callable[[str, Summary], bool]] = {
    "workspace": places.is_at,
    "path": places.is_below,
    "agent": _runs_agent,
    "title": _is_titled,
}
_BY_FLAG: Mapping[str, Test] = {
    "withChanges": has_changes,
    "unread": is_unread,
    "withPullRequest": _has_pull_request,
}


def _status_test(inputs: Inputs) -> Test:
    """Any of the words asked for, and no archived row unless those are asked for, one way or the other."""
    wanted = inputs.words("status", STATUS_WORDS)
    archived = inputs.flag("includeArchived") or "archived" in wanted

    def passes(one: Summary) -> bool:
        words = status_words(one)
        return (archived or "archived" not in words) and (not wanted or not wanted.isdisjoint(words))

    return passes


def _time_tests(inputs: Inputs, what: str) -> list[Test]:
    """`<what>After` and `<what>Before`, both ends included. A row whose time is not known passes neither."""
    after, before = inputs.time(f"{what}After"), inputs.time(f"{what}Before")
    if after is None and before is None:
        return []

    def passes(one: Summary) -> bool:
        time = _time(one, f"{what}At")
        return time is not None and (after is None or after <= time) and (before is None or time <= before)

    return [passes]


def _time(summary: Summary, key: str) -> datetime | None:
    return parse_time(str(summary.get(key, "")))
