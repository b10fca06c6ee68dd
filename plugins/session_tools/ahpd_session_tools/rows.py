"""A session as the tools describe it: the compact row a model reads, made of the catalogue's summary.

Implements the rows of `list_sessions` and `get_current_session`. A key is there only when it has a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ahpd_session_tools.links import chat_id, link

IDLE, ERROR, IN_PROGRESS, INPUT_NEEDED, READ, ARCHIVED = 1, 2, 8, 16, 32, 64
STATUS_WORDS = ("idle", "inProgress", "inputNeeded", "error", "archived")

_GIT = {
    "branch": "branchName",
    "baseBranch": "baseBranchName",
    "upstreamBranch": "upstreamBranchName",
    "ahead": "outgoingChanges",
    "behind": "incomingChanges",
    "uncommittedChanges": "uncommittedChanges",
}

Summary = Mapping[str, Any]


def json_text(value: Any) -> str:
    """An answer as JSON with nothing in it that a model would pay for and not read."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def row(summary: Summary) -> dict[str, Any]:
    """A `SessionSummary` as one row."""
    session = summary["resource"]
    directories = list(summary.get("workingDirectories") or ())
    project = summary.get("project") or {}
    keys = {
        "session": session,
        "openLink": link(session),
        "title": summary.get("title"),
        "status": ",".join(status_words(summary)),
        "activity": summary.get("activity"),
        "workingDirectory": directories[0] if directories else None,
        "workingDirectories": directories if len(directories) > 1 else None,
        "project": project.get("displayName"),
        "projectUri": project.get("uri"),
        "unread": is_unread(summary) or None,
        "createdAt": summary.get("createdAt"),
        "modifiedAt": summary.get("modifiedAt"),
        "changes": summary.get("changes"),
        "changesets": summary.get("changesets"),
        "git": _git(summary),
        "github": _github(summary),
        "chats": _chats(summary),
    }
    return {key: value for key, value in keys.items() if value not in (None, "", [], {})}


def status_words(summary: Summary) -> list[str]:
    """What a row's status bits say, in words; empty when its status is not known."""
    bits = summary.get("status")
    if not isinstance(bits, int):
        return []
    words = []
    if bits & INPUT_NEEDED and bits & IN_PROGRESS:
        words.append("inputNeeded")
    elif bits & IN_PROGRESS:
        words.append("inProgress")
    elif bits & IDLE:
        words.append("idle")
    if bits & ERROR:
        words.append("error")
    if bits & ARCHIVED:
        words.append("archived")
    return words


def is_unread(summary: Summary) -> bool:
    bits = summary.get("status")
    return isinstance(bits, int) and not bits & READ


def has_changes(summary: Summary) -> bool:
    changes = summary.get("changes") or {}
    return any(changes.get(key, 0) > 0 for key in ("files", "additions", "deletions"))


def pull_requests(summary: Summary) -> list[str]:
    """The pull requests of the session itself, newest first: not those its branch already had."""
    github = _meta(summary, "github")
    before = set(github.get("initialPullRequestUrls") or ()) - set(github.get("associatedPullRequestUrls") or ())
    return [url for url in github.get("pullRequestUrls") or () if url not in before]


def _git(summary: Summary) -> dict[str, Any]:
    git = _meta(summary, "git")
    return {key: git[source] for key, source in _GIT.items() if git.get(source) is not None}


def _github(summary: Summary) -> dict[str, Any]:
    github = _meta(summary, "github")
    urls = pull_requests(summary)
    keys = {
        "owner": github.get("owner"),
        "repo": github.get("repo"),
        "pullRequestUrl": urls[0] if urls else None,
    }
    return {key: value for key, value in keys.items() if value}


def _chats(summary: Summary) -> list[dict[str, str]]:
    """Every chat with its link, the default one first; empty for a session with that one alone."""
    chats = list(summary.get("chats") or ())
    if len(chats) < 2:
        return []
    default = summary.get("defaultChat")
    chats.sort(key=lambda chat: chat["resource"] != default)
    session = summary["resource"]
    return [
        {
            "title": chat.get("title", ""),
            "openLink": link(session, None if chat["resource"] == default else chat_id(chat["resource"])),
        }
        for chat in chats
    ]


def _meta(summary: Summary, key: str) -> Mapping[str, Any]:
    found = (summary.get("_meta") or {}).get(key)
    return found if isinstance(found, Mapping) else {}
